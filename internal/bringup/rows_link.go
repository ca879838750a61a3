package bringup

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ibup/internal/config"
	"ibup/internal/host"
)

// fullMember is the bit of a P_Key that makes a full member of the partition.
const fullMember = 0x8000

// child finds or makes the interface on the wanted partition. It is made before
// the key is in the port's table: the kernel lets it wait and brings it up by
// itself when the subnet manager adds the key, even if ibup is gone by then.
func (v *view) child() *Step {
	key := v.cfg.IPoIB.PKey | fullMember
	if key == 0xffff || v.cfg.IPoIB.PKey == 0 {
		return nil
	}
	// With this key at index 0 of the table the parent is in the partition
	// itself, and the kernel refuses a child.
	if v.parent.PKey|fullMember == key {
		return nil
	}
	var best *host.Link
	for i := range v.s.Links {
		l := &v.s.Links[i]
		if l.Type != host.TypeInfiniBand || l.Parent != v.parent.Index || l.PKey|fullMember != key {
			continue
		}
		if best == nil || v.fitness(l) > v.fitness(best) {
			best = l
		}
	}
	if best != nil {
		v.link = best
		return nil
	}
	return &Step{Kind: CreateChild, Link: v.parent.Name, Index: v.parent.Index, PKey: key,
		Why: fmt.Sprintf("no interface of %s is on partition 0x%04x", v.parent.Name, key)}
}

// fitness chooses among twins: rtnetlink allows several children with one key.
func (v *view) fitness(l *host.Link) int {
	n := 0
	if l.Name == v.cfg.Name {
		n++
	}
	for _, a := range l.Addrs {
		if slices.Contains(v.cfg.Network.Addresses, a.Prefix) {
			n += 2
		}
	}
	return n
}

// name gives the interface its name. Who has it now is moved aside when that
// disturbs nobody.
func (v *view) name() *Step {
	if v.link.Name == v.cfg.Name {
		return nil
	}
	if slices.Contains(v.s.Facts.UdevPending, v.link.Index) {
		return wait(because(UdevPending, nil, "link", v.link.Name))
	}
	if holder := linkByName(v.s.Snapshot, v.cfg.Name); holder != nil {
		if why := v.cannotMove(*holder); why != "" {
			return wait(because(NameTaken, []string{why}, "name", v.cfg.Name, "holder", describe(*holder)))
		}
		return v.rename(*holder, v.aside(), fmt.Sprintf("%s wants its name and nothing uses it", v.cfg.Name))
	}
	return v.rename(*v.link, v.cfg.Name, fmt.Sprintf("it is the interface of %s", portText(v.dev, v.port)))
}

// rename renames a link as it is where the kernel can (6.2 and later), else takes
// it down first if nothing uses it.
func (v *view) rename(l host.Link, to, why string) *Step {
	step := Step{Kind: Rename, Index: l.Index, Link: l.Name, From: l.Name, To: to, Why: why}
	a := v.s.Facts.Attempts[step.key()]
	if !l.Up || a.Errno != int(unix.EBUSY) {
		return &step
	}
	if use := inUseBy(v.s.Snapshot, l); use != "" {
		return wait(because(RenameUnsafe, []string{l.Name + " " + use}, "link", l.Name, "name", to))
	}
	return &Step{Kind: SetDown, Index: l.Index, Link: l.Name, Why: "this kernel renames only what is down, and nothing uses it"}
}

// cannotMove says why an interface must keep its name, "" when it need not.
func (v *view) cannotMove(l host.Link) string {
	if use := inUseBy(v.s.Snapshot, l); use != "" {
		return l.Name + " " + use
	}
	switch {
	case l.Type == host.TypeInfiniBand, l.Kind == "dummy" && !l.Up:
		return ""
	case l.BDF != "" || l.Kind == "":
		return l.Name + " is a network card of another kind"
	case l.Up:
		return fmt.Sprintf("%s is up and belongs to somebody else (kind %s)", l.Name, l.Kind)
	}
	return fmt.Sprintf("%s belongs to somebody else (kind %s)", l.Name, l.Kind)
}

func describe(l host.Link) string {
	switch {
	case l.Type == host.TypeInfiniBand && l.Parent != 0:
		return fmt.Sprintf("another IPoIB interface (%s, P_Key 0x%04x)", l.BDF, l.PKey)
	case l.Type == host.TypeInfiniBand:
		return fmt.Sprintf("the IPoIB interface of another port (%s port %d)", l.BDF, l.DevPort+1)
	case l.Kind != "":
		return "an interface of kind " + l.Kind
	case l.BDF != "":
		return "an Ethernet card (" + l.BDF + ")"
	}
	return "another interface"
}

// aside is the first name ibN that neither exists nor is wanted by a file.
func (v *view) aside() string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("ib%d", n)
		if linkByName(v.s.Snapshot, name) != nil || name == v.cfg.Name {
			continue
		}
		if !slices.ContainsFunc(v.s.Claims, func(c Claim) bool { return c.Name == name }) {
			return name
		}
	}
}

// mode sets datagram or connected mode; before the MTU, which it changes.
func (v *view) mode() *Step {
	want := string(v.cfg.IPoIB.Mode)
	if want == "" || v.link.Mode == want || v.connectedImpossible() || v.link.Mode == "" {
		return nil
	}
	// The interface works in the other mode too, so a refusal is no obstacle.
	if r := v.s.Facts.Refused; r != nil && r.Index == v.link.Index && r.Mode == want {
		return nil
	}
	return &Step{Kind: SetMode, Link: v.link.Name, Index: v.link.Index, From: v.link.Mode, To: want, Why: "Mode=" + want}
}

// connectedImpossible: the first octet of an IPoIB address has the connected mode
// bits (RFC 4755, 3.1); the enhanced path of mlx5 leaves them out.
func (v *view) connectedImpossible() bool {
	return v.cfg.IPoIB.Mode == config.ModeConnected && v.link.Mode != "connected" &&
		len(v.link.Addr) > 0 && v.link.Addr[0]&0x80 == 0
}

// maxDatagram is the largest IB MTU less the encapsulation (RFC 4391, 4).
const maxDatagram = 4092

// wantMTU is the MTU to ask for: what the file says, as far as the mode can.
func (v *view) wantMTU() int {
	want := v.cfg.IPoIB.MTU
	if v.link.Mode != "connected" && want > maxDatagram {
		return maxDatagram
	}
	return want
}

// mtu asks for the wanted MTU, once: a port or the group's MTU may limit it, which
// is reported and not fought.
func (v *view) mtu() *Step {
	want := v.wantMTU()
	if want == 0 || v.link.MTU == want {
		return nil
	}
	if r := v.s.Facts.Asked; r != nil && r.Index == v.link.Index && r.Asked == want && r.Effective >= v.link.MTU {
		return nil
	}
	return &Step{Kind: SetMTU, Link: v.link.Name, Index: v.link.Index, From: fmt.Sprint(v.link.MTU), MTU: want, Why: fmt.Sprintf("MTU=%d", v.cfg.IPoIB.MTU)}
}

// up sets the interface up, and before it a child's parent, without which the
// child "may be not functioning" (ipoib_open).
func (v *view) up() *Step {
	for _, l := range []*host.Link{v.parent, v.link} {
		if !l.Up {
			return &Step{Kind: SetUp, Link: l.Name, Index: l.Index, Why: "it is down"}
		}
	}
	return nil
}

// addresses adds what is missing and leaves alone what is there besides. It does
// not wait for carrier: the address is in place when carrier comes.
func (v *view) addresses() *Step {
	for _, want := range v.cfg.Network.Addresses {
		if hasAddr(*v.link, want) {
			continue
		}
		for _, l := range v.s.Links {
			if l.Index != v.link.Index && hasIP(l, want.Addr()) {
				return wait(because(AddrElsewhere, nil, "address", want.String(), "holder", l.Name, "file", fileOf(v.cfg)))
			}
		}
		return &Step{Kind: AddAddress, Link: v.link.Name, Index: v.link.Index, Prefix: want,
			Bare: v.onFallback() && want.Addr().Is4(), Why: "Address=" + want.String()}
	}
	return nil
}

// carrier waits for carrier and says what holds it up.
func (v *view) carrier() *Step {
	if v.link.Carrier {
		return nil
	}
	return wait(v.noCarrier())
}

func (v *view) noCarrier() *Reason {
	p := v.port
	port := portText(v.dev, p)
	evidence := []string{fmt.Sprintf("port state %s, phys_state %s, LID %d, SM LID %d", p.State, p.PhysState, p.LID, p.SMLID)}
	fill := []string{"port", port, "bdf", v.fn.BDF, "num", fmt.Sprint(p.Num), "lid", fmt.Sprint(p.LID), "phys", p.PhysState,
		"state", p.State, "link", v.link.Name, "guid", fmt.Sprintf("0x%016x", p.GUID)}
	if p.GUID == 0 && v.dev.NodeGUID == 0 && v.fn.PhysFn != "" {
		return because(VFNoGUID, evidence, fill...)
	}
	switch p.State {
	case "ACTIVE", "ACTIVE_DEFER":
	case "INIT":
		return because(NoSM, append(evidence, v.elsewhere()...), fill...)
	case "ARMED":
		return because(SMSlow, evidence, fill...)
	default:
		evidence = append(evidence, v.kernelSays(v.fn.BDF)...)
		evidence = append(evidence, v.elsewhere()...)
		switch p.PhysState {
		case "Disabled":
			return because(PortDisabled, evidence, fill...)
		case "PortConfigurationTraining", "LinkErrorRecovery":
			return because(LinkTraining, evidence, fill...)
		}
		return because(NoCable, evidence, fill...)
	}
	key := v.link.PKey | fullMember
	if !slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k|fullMember == key }) {
		keys := make([]string, len(p.PKeys))
		for i, k := range p.PKeys {
			keys[i] = fmt.Sprintf("0x%04x", k)
		}
		evidence = append(evidence, "the table has "+strings.Join(keys, ", "))
		return because(PKeyAbsent, evidence, append(fill, "pkey", fmt.Sprintf("0x%04x", key))...)
	}
	return because(GroupJoin, append(evidence, v.kernelSays(v.link.Name)...), fill...)
}

// elsewhere tells of ports of this machine that work, when the file names none:
// the cable may be in the other one.
func (v *view) elsewhere() []string {
	if v.cfg.Match != (config.Match{}) {
		return nil
	}
	var out []string
	for _, c := range candidates(v.s.Snapshot) {
		if c.port != nil && c.Place != v.place && c.port.LinkLayer == "InfiniBand" && c.port.State == "ACTIVE" {
			out = append(out, fmt.Sprintf("but %s is ACTIVE: if that one is meant, PortGUID=0x%016x", portText(c.dev, c.port), c.port.GUID))
		}
	}
	return out
}

// unique waits until duplicate address detection of IPv6 is over.
func (v *view) unique() *Step {
	for _, a := range v.link.Addrs {
		if !slices.Contains(v.cfg.Network.Addresses, a.Prefix) {
			continue
		}
		if a.DADFailed {
			return wait(because(AddrDuplicate, nil, "address", a.Prefix.Addr().String(), "link", v.link.Name))
		}
		if a.Tentative {
			return wait(because(AddrTentative, nil, "address", a.Prefix.Addr().String(), "link", v.link.Name))
		}
	}
	return nil
}

// stable waits until carrier has lasted, unless peers are there to prove more.
func (v *view) stable() *Step {
	f := v.s.Facts
	if len(v.cfg.Verify.Ping) > 0 {
		return nil
	}
	if f.Carrier == v.link.Index && f.CarrierSince > 0 && v.s.Now >= f.CarrierSince+stableFor {
		return nil
	}
	step := wait(because(Unstable, nil, "link", v.link.Name))
	step.Until = f.CarrierSince + stableFor
	return step
}

// routes puts the routes in place. On the fallback that waits until the interface
// is proven, for they would draw traffic from it.
func (v *view) routes() *Step {
	if v.onFallback() {
		return nil
	}
	return v.missingRoute()
}

// verify proves that the peers answer.
func (v *view) verify() *Step {
	peers := v.cfg.Verify.Ping
	if len(peers) == 0 {
		return nil
	}
	f := v.s.Facts
	if f.Verified != nil && f.Verified.OK && f.Verified.Index == v.link.Index && f.Verified.At >= f.CarrierSince {
		return nil
	}
	return &Step{Kind: Verify, Link: v.link.Name, Index: v.link.Index, Peers: peers, Why: "Ping="}
}

// dropFallback goes back to InfiniBand: first the new way, then away with the old.
func (v *view) dropFallback() *Step {
	if step := v.missingRoute(); step != nil {
		return step
	}
	if v.s.Facts.FallbackFiles || v.ourFallback() {
		return &Step{Kind: Withdraw, Link: v.cfg.Name, Why: "the interface works again"}
	}
	return nil
}

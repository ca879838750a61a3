package bringup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ibup/internal/config"
	"ibup/internal/host"
)

// Observe brings the facts up to date with a new snapshot: since when a function
// has had no driver and the interface carrier, and whether what was tried before
// was tried on the same objects. It does not change its argument.
func Observe(f Facts, c config.Config, s host.Snapshot, claims []Claim, now time.Duration) Facts {
	place, reason := pick(c, s, claims, f.Place)
	if reason == nil {
		f.Place = place
	}
	unbound := map[string]time.Duration{}
	for _, fn := range s.PCI {
		if fn.Driver != "" {
			continue
		}
		unbound[fn.BDF] = now
		if at, ok := f.Unbound[fn.BDF]; ok {
			unbound[fn.BDF] = at
		}
	}
	f.Unbound = unbound

	if stack := stackOf(s); stack != f.Stack {
		if f.Stack != "" {
			f.Attempts = nil
		}
		f.Stack = stack
	}

	link := Target(c, s, f.Place)
	switch {
	case link == nil || !link.Carrier:
		f.Carrier, f.CarrierSince = 0, 0
	case f.Carrier != link.Index || f.CarrierSince == 0:
		f.Carrier, f.CarrierSince = link.Index, now
	}
	if f.Asked != nil && (link == nil || link.Index != f.Asked.Index) {
		f.Asked = nil
	}
	return f
}

// stackOf identifies the objects of the stack, without names and states that a
// failing attempt itself may change.
func stackOf(s host.Snapshot) string {
	var b strings.Builder
	for _, f := range s.PCI {
		fmt.Fprint(&b, f.BDF, f.Dead, f.BAR0, ' ')
	}
	for _, d := range s.IB {
		fmt.Fprint(&b, d.BDF, d.Name, ' ')
	}
	for _, l := range s.Links {
		if l.Type == host.TypeInfiniBand {
			fmt.Fprint(&b, l.Index, ' ')
		}
	}
	for _, m := range s.Modules {
		fmt.Fprint(&b, m.Name, ' ')
	}
	return b.String()
}

// Target is the interface that a configuration means on a port; nil when it does
// not exist.
func Target(c config.Config, s host.Snapshot, p Place) *host.Link {
	v := &view{cfg: c, s: State{Snapshot: s}, place: p}
	for i := range s.IB {
		if s.IB[i].BDF == p.BDF {
			v.dev = &s.IB[i]
			v.port = portOf(v.dev, p.Port)
		}
	}
	if v.dev == nil || v.port == nil || v.netdev() != nil || v.child() != nil {
		return nil
	}
	return v.link
}

// Result is what became of a step.
type Result struct {
	Err      error
	Errno    int           // positive, 0 when the error is none of the kernel's
	MTU      int           // SetMTU: the MTU read back
	Verified *Verification // Verify
	// Install, Withdraw: whether blocks of ours stand in route files now.
	FallbackFiles bool
}

// Record takes in a step's result. It does not change its argument.
func Record(f Facts, step Step, r Result, now time.Duration) Facts {
	a := f.Attempts[step.key()]
	a.N++
	a.At, a.Err, a.Errno = now, "", r.Errno
	if r.Err != nil {
		a.Err = r.Err.Error()
	}
	f.Attempts = maps.Clone(f.Attempts)
	if f.Attempts == nil {
		f.Attempts = map[string]Attempt{}
	}
	f.Attempts[step.key()] = a

	switch step.Kind {
	case SetMTU:
		f.Asked = &MTUResult{Index: step.Index, Asked: step.MTU, Effective: r.MTU}
		if r.Err != nil {
			f.Asked.LimitedBy = "port" // the kernel takes no more than the port can
		}
	case SetMode:
		f.Refused = nil
		if r.Err != nil {
			f.Refused = &ModeResult{Index: step.Index, Mode: step.To, Err: r.Err.Error()}
		}
	case Verify:
		if f.Verified = r.Verified; r.Verified != nil {
			v := *r.Verified
			v.At = now
			f.Verified = &v
		}
	case Install, Withdraw:
		f.FallbackFiles = r.FallbackFiles
		f.FilesTried = true
	case AddAddress:
		if step.Bare && r.Err == nil && step.Prefix.Bits() < step.Prefix.Addr().BitLen() {
			f.Withheld = withhold(f.Withheld, Route{Dest: step.Prefix.Masked(), Src: step.Prefix.Addr(), Connected: true})
		}
	case DelRoute:
		if r.Err == nil {
			f.Withheld = withhold(f.Withheld, step.Route)
		}
	case ReplaceRoute:
		if r.Err == nil {
			f.Withheld = slices.DeleteFunc(slices.Clone(f.Withheld), func(x Route) bool { return x == step.Route })
		}
	}
	return f
}

func withhold(list []Route, r Route) []Route {
	if slices.Contains(list, r) {
		return list
	}
	return append(slices.Clone(list), r)
}

// Notes are what the user should know although the interface works: a mode or an
// MTU that could not be had, a limited membership.
func Notes(c config.Config, s State) []Reason {
	link := Target(c, s.Snapshot, s.Facts.Place)
	if link == nil {
		return nil
	}
	v := &view{cfg: c, s: s, link: link}
	var notes []Reason
	if c.IPoIB.Mode != "" && link.Mode != "" && link.Mode != string(c.IPoIB.Mode) && c.IPoIB.Mode == config.ModeConnected {
		hint := "This kernel's ib_ipoib has no parameter against it: remove Mode=connected"
		if s.Facts.EnhancedParam {
			hint = "ib_ipoib has the parameter ipoib_enhanced: with \"options ib_ipoib ipoib_enhanced=0\" in /etc/modprobe.d (and in the initramfs) and a reboot the classic path is used, which can"
		}
		var evidence []string
		if v.connectedImpossible() {
			evidence = append(evidence, fmt.Sprintf("the first octet of %s's address is %02x; with connected mode it would be 80", link.Name, link.Addr[0]))
		}
		if r := s.Facts.Refused; r != nil && r.Index == link.Index {
			evidence = append(evidence, r.Err)
		}
		notes = append(notes, *because(ModeImpossible, evidence, "link", link.Name, "hint", hint))
	}
	if m := MTU(c, s); m.LimitedBy != "" {
		notes = append(notes, *because(MTULimited, nil, "link", link.Name, "asked", fmt.Sprint(m.Asked),
			"effective", fmt.Sprint(m.Effective), "limit", limitText(m.LimitedBy), "hint", limitHint(m.LimitedBy)))
	}
	for _, d := range s.IB {
		if p := portOf(&d, s.Facts.Place.Port); d.BDF == s.Facts.Place.BDF && p != nil && limitedOnly(p.PKeys, link.PKey) {
			notes = append(notes, *because(PKeyLimited, nil, "pkey", fmt.Sprintf("0x%04x", link.PKey)))
		}
	}
	return notes
}

// limitedOnly tells whether a table has a key only without the membership bit.
func limitedOnly(keys []uint16, key uint16) bool {
	limited := slices.Contains(keys, key&^fullMember)
	return limited && !slices.Contains(keys, key|fullMember)
}

// MTU tells what the interface's MTU is and what limits it below what was asked.
func MTU(c config.Config, s State) MTUResult {
	link := Target(c, s.Snapshot, s.Facts.Place)
	if link == nil {
		return MTUResult{Asked: c.IPoIB.MTU}
	}
	m := MTUResult{Index: link.Index, Asked: c.IPoIB.MTU, Effective: link.MTU}
	if m.Asked == 0 || m.Effective >= m.Asked {
		return m
	}
	v := &view{cfg: c, s: s, link: link}
	switch tried := s.Facts.Asked; {
	case v.wantMTU() == link.MTU:
		m.LimitedBy = "mode"
	case tried != nil && tried.LimitedBy != "":
		m.LimitedBy = tried.LimitedBy
	default:
		m.LimitedBy = "group"
	}
	return m
}

func limitText(by string) string {
	return map[string]string{
		"mode":  "datagram mode (4092 at most)",
		"port":  "the port's own MTU",
		"group": "the MTU of the partition's broadcast group",
	}[by]
}

func limitHint(by string) string {
	return map[string]string{
		"mode":  "Only connected mode has larger ones",
		"port":  "The largest IB MTU of this port, less 4, is the limit; ask for 2044",
		"group": "The subnet manager makes the group: opensm's partitions.conf, ipoib, mtu=5 for this partition, and every port of the group must do 4096",
	}[by]
}

package bringup

import (
	"fmt"
	"slices"
	"strings"

	"ibup/internal/config"
	"ibup/internal/host"
)

// Place is a port of a PCI function. A function without an InfiniBand device
// yet has Port 1 (ConnectX-4 and later have one port per function).
type Place struct {
	BDF  string `json:"pci,omitempty"`
	Port int    `json:"port,omitempty"`
}

// Claim is a partition on a port that an interface has.
type Claim struct {
	Place
	Name string
	PKey uint16
}

// Assign gives each interface of the set its port. A file that names its port
// has it. The others, in the set's order, get the first InfiniBand port, by PCI
// address and port number, on which no other file claims the same P_Key. What
// an interface was given before in this boot (held) it keeps as long as its
// file allows, and a port that already carries an address of the file is its
// port. Every process computes the same from the same machine.
func Assign(set []config.Config, s host.Snapshot, held map[string]Place) []Claim {
	var claims []Claim
	for _, c := range set {
		// Those that come later keep what they hold.
		taken := slices.Clone(claims)
		for _, other := range set {
			if p, ok := held[other.Name]; ok && other.Name != c.Name && !hasClaim(claims, other.Name) {
				taken = append(taken, Claim{p, other.Name, other.IPoIB.PKey})
			}
		}
		if p, reason := pick(c, s, taken, held[c.Name]); reason == nil {
			claims = append(claims, Claim{p, c.Name, c.IPoIB.PKey})
		}
	}
	return claims
}

func hasClaim(claims []Claim, name string) bool {
	return slices.ContainsFunc(claims, func(c Claim) bool { return c.Name == name })
}

// candidate is a port that exists or, with dev nil, will once the driver works.
type candidate struct {
	Place
	fn   *host.PCIFunction
	dev  *host.IBDevice
	port *host.Port
}

func (c candidate) ethernet() bool { return c.port != nil && c.port.LinkLayer == "Ethernet" }

// String is the candidate for a list of what there is.
func (c candidate) String() string {
	if c.port == nil {
		return fmt.Sprintf("%s (no InfiniBand device yet)", c.BDF)
	}
	return fmt.Sprintf("%s port %d on %s: %s, GUID 0x%016x, %s", c.dev.Name, c.Port, c.BDF, c.port.LinkLayer, c.port.GUID, c.port.State)
}

func candidates(s host.Snapshot) []candidate {
	var out []candidate
	for i := range s.PCI {
		f := &s.PCI[i]
		if !isMLX5(*f) {
			continue
		}
		n := len(out)
		for j := range s.IB {
			d := &s.IB[j]
			if d.BDF != f.BDF {
				continue
			}
			for k := range d.Ports {
				out = append(out, candidate{Place{f.BDF, d.Ports[k].Num}, f, d, &d.Ports[k]})
			}
		}
		if len(out) == n {
			out = append(out, candidate{Place: Place{f.BDF, 1}, fn: f})
		}
	}
	return out
}

// isMLX5 leaves out the families older than mlx5: ConnectX to ConnectX-3 (below
// 0x1011, 0x6340 to 0x676e) and InfiniHost (0x5a44 to 0x6282). Those lists are
// closed, while new mlx5 cards keep coming.
func isMLX5(f host.PCIFunction) bool {
	return f.Device >= 0x1011 && (f.Device < 0x5a00 || f.Device >= 0x7000)
}

// HasMLX5 tells whether there is any function that mlx5_core could drive.
func HasMLX5(s host.Snapshot) bool { return slices.ContainsFunc(s.PCI, isMLX5) }

// pick chooses the port for an interface, or says why there is none.
func pick(c config.Config, s host.Snapshot, claims []Claim, held Place) (Place, *Reason) {
	all := candidates(s)
	m := c.Match
	if m == (config.Match{Port: m.Port}) {
		return firstFree(c, s, all, claims, held)
	}
	// A device that is not there yet may turn out to be the wanted one; if no
	// other can, even on a function that is out of order.
	var pending *candidate
	for i := range all {
		x := &all[i]
		fits := false
		switch {
		case m.PortGUID != 0:
			fits = x.port != nil && x.port.GUID == m.PortGUID
		case m.PCI != "":
			fits = x.BDF == m.PCI
		default:
			fits = x.dev != nil && x.dev.Name == m.Device
		}
		// The GUID is the port's own: a Port= beside it says nothing more.
		if m.PortGUID == 0 && m.Port != 0 && x.port != nil && x.Port != m.Port {
			fits = false
		}
		if fits {
			if m.Port != 0 && x.port == nil {
				x.Place.Port = m.Port
			}
			return x.Place, nil
		}
		if x.port == nil && m.PCI == "" && (pending == nil || !usable(*pending.fn) && usable(*x.fn)) {
			pending = x
		}
	}
	if pending != nil {
		if m.Port != 0 && m.PortGUID == 0 {
			pending.Place.Port = m.Port
		}
		return pending.Place, nil
	}
	return Place{}, noMatch(c, all)
}

func usable(f host.PCIFunction) bool {
	return !f.Dead && f.BAR0 && (f.Driver == "" || f.Driver == driverName)
}

func noMatch(c config.Config, all []candidate) *Reason {
	var there []string
	absent := true
	for _, x := range all {
		there = append(there, x.String())
		if x.BDF == c.Match.PCI {
			absent = false
		}
	}
	want := wantText(c.Match)
	if len(all) == 0 || (c.Match.PCI != "" && c.Match.PortGUID == 0 && absent) {
		if len(there) == 0 {
			there = []string{"no mlx5 function is on the PCI bus"}
		}
		return because(PCIAbsent, there, "want", want)
	}
	return because(PortUnknown, there, "want", want, "file", fileOf(c))
}

func wantText(m config.Match) string {
	var w []string
	switch {
	case m.PortGUID != 0:
		w = append(w, fmt.Sprintf("PortGUID=0x%016x", m.PortGUID))
	case m.PCI != "":
		w = append(w, m.PCI)
	case m.Device != "":
		w = append(w, "Device="+m.Device)
	}
	if m.Port != 0 && m.PortGUID == 0 {
		w = append(w, fmt.Sprintf("Port=%d", m.Port))
	}
	if len(w) == 0 {
		return "of an mlx5 card (ConnectX, BlueField)"
	}
	return strings.Join(w, " ")
}

func fileOf(c config.Config) string {
	if c.Path == "" {
		return "/etc/ibup/" + c.Name + ".conf"
	}
	return c.Path
}

// firstFree is the choice for a file that names no port.
func firstFree(c config.Config, s host.Snapshot, all []candidate, claims []Claim, held Place) (Place, *Reason) {
	free := func(x candidate) bool {
		if x.ethernet() || (x.port != nil && x.port.LinkLayer != "InfiniBand" && x.port.LinkLayer != "") {
			return false
		}
		if c.Match.Port != 0 && x.port != nil && x.Port != c.Match.Port {
			return false
		}
		// A VF on its own host is meant for a guest.
		if x.fn.PhysFn != "" {
			return false
		}
		return !slices.ContainsFunc(claims, func(k Claim) bool { return k.Place == x.Place && k.PKey == c.IPoIB.PKey })
	}
	var ok []candidate
	for _, x := range all {
		if free(x) {
			ok = append(ok, x)
		}
	}
	for _, x := range ok {
		if x.Place == held {
			return x.Place, nil
		}
	}
	if p := inUse(c, s); p != (Place{}) {
		for _, x := range ok {
			if x.Place == p {
				return p, nil
			}
		}
	}
	// An Ethernet class does not rule InfiniBand out, but it is a worse guess than
	// a port that is known or a function that says it is InfiniBand.
	for _, x := range ok {
		if x.port != nil || x.fn.Class>>8 == 0x0207 {
			return x.Place, nil
		}
	}
	if len(ok) > 0 {
		return ok[0].Place, nil
	}
	for _, x := range all {
		if x.ethernet() {
			return Place{}, ethernetReason(x)
		}
	}
	if len(all) > 0 {
		return Place{}, because(PortTaken, claimList(claims), "file", fileOf(c))
	}
	return Place{}, noMatch(c, all)
}

func claimList(claims []Claim) []string {
	var out []string
	for _, k := range claims {
		out = append(out, fmt.Sprintf("%s has %s port %d, P_Key 0x%04x", k.Name, k.BDF, k.Port, k.PKey))
	}
	return out
}

// inUse finds the port that already does the interface's work, set up by hand or
// by an earlier boot stage: it carries an address of the file, or has the wanted
// name and is up.
func inUse(c config.Config, s host.Snapshot) Place {
	var named Place
	for _, l := range s.Links {
		if l.Type != host.TypeInfiniBand || l.BDF == "" {
			continue
		}
		p := Place{l.BDF, l.DevPort + 1}
		for _, a := range l.Addrs {
			if slices.Contains(c.Network.Addresses, a.Prefix) {
				return p
			}
		}
		if l.Name == c.Name && l.Up && len(c.Network.Addresses) == 0 {
			named = p
		}
	}
	return named
}

// MeantFor are the interfaces of a set that a PCI function may concern: those that
// are on one of its ports, and those whose port is not known yet.
func MeantFor(bdf string, set []config.Config, s host.Snapshot, held map[string]Place) []config.Config {
	claims := Assign(set, s, held)
	var out []config.Config
	for _, c := range set {
		on := slices.ContainsFunc(claims, func(k Claim) bool { return k.Name == c.Name && k.BDF == bdf })
		open := (c.Match.PortGUID != 0 || c.Match.PCI == "" && c.Match.Device != "") && !matched(c.Match, s)
		if on || open || c.Match.PortGUID == 0 && c.Match.PCI == bdf {
			out = append(out, c)
		}
	}
	return out
}

// matched tells whether a port that exists is the one that a GUID or a device's
// name means.
func matched(m config.Match, s host.Snapshot) bool {
	return slices.ContainsFunc(s.IB, func(d host.IBDevice) bool {
		if m.PortGUID == 0 {
			return d.Name == m.Device
		}
		return slices.ContainsFunc(d.Ports, func(p host.Port) bool { return p.GUID == m.PortGUID })
	})
}

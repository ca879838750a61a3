package bringup

import (
	"errors"
	"fmt"
	"slices"

	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

// Apply is the model of what a step does: it returns the state of a machine on
// which it succeeded, with all that follows by itself (a driver finds its
// functions, the subnet manager makes ports active). A Wait brings what is waited
// for, unless that is pointless; then time passes. It does not change its
// argument.
func Apply(c config.Config, step Step, s State) State {
	s.Snapshot = clone(s.Snapshot)
	m := &model{c: c, s: &s}
	res := Result{}
	switch step.Kind {
	case LoadModules:
		for _, name := range step.Modules {
			m.load(name)
		}
		s.Facts.Modules = ModulePlan{}
		m.settle()
	case BindDriver:
		m.bind(step.BDF)
		m.settle()
	case CreateChild:
		m.createChild(step.Index, step.PKey)
	case Rename:
		if l := m.link(step.Index); l != nil {
			for i := range s.Routes {
				if s.Routes[i].Dev == l.Name {
					s.Routes[i].Dev = step.To
				}
			}
			l.Name = step.To
		}
	case SetMode:
		m.setMode(step)
	case SetMTU:
		if l := m.link(step.Index); l != nil {
			l.MTU = step.MTU
			res.MTU = step.MTU
		}
	case SetUp:
		if l := m.link(step.Index); l != nil {
			l.Up = true
		}
		m.settle()
	case SetDown:
		if l := m.link(step.Index); l != nil {
			l.Up, l.Carrier = false, false
		}
	case AddAddress:
		m.addAddress(step)
	case ReplaceRoute, DelRoute:
		m.route(step)
	case Install:
		for _, r := range c.Fallback.Routes {
			if !hasRoute(s.Snapshot, routeOf(r), r.Dev) {
				s.Routes = append(s.Routes, host.Route{Dest: r.Dest.Masked(), Via: r.Via, Dev: r.Dev, Metric: metricOf(routeOf(r)), Proto: fallback.Protocol})
			}
		}
		res.FallbackFiles = c.Fallback.Persist
	case Withdraw:
		s.Routes = slices.DeleteFunc(s.Routes, func(r host.Route) bool {
			return r.Proto == fallback.Protocol && slices.ContainsFunc(c.Fallback.Routes, func(f config.Route) bool { return same(r, routeOf(f), f.Dev) })
		})
	case Verify:
		v := &Verification{Index: step.Index, OK: true}
		for _, p := range step.Peers {
			v.Peers = append(v.Peers, PeerResult{Peer: p, Sent: 3, Received: 3})
		}
		res.Verified = v
	case Wait, Rest:
		m.wait(step)
	case Up:
		s.Facts.Verdict = IsUp
	case Fail:
		s.Facts.Verdict = Failed
	}
	if step.Changes() || step.Kind == Verify {
		s.Facts = Record(s.Facts, step, res, s.Now)
	}
	if step.Kind == Install {
		s.Facts.Verdict = Fallback
	}
	s.Facts = Observe(s.Facts, c, s.Snapshot, s.Claims, s.Now)
	return s
}

// errEndless tells that a plan does not end.
var errEndless = errors.New("the plan does not end")

// Plan is a dry run: the steps from a state to Up, Fail, or resting on the
// fallback, if everything succeeds. The last step tells which.
func Plan(c config.Config, s State) ([]Step, error) {
	const limit = 100
	var steps []Step
	for range limit {
		step := Next(c, s)
		steps = append(steps, step)
		if step.Kind == Up || step.Kind == Fail {
			return steps, nil
		}
		// On the fallback, and nothing that the model knows of will change that.
		if n := len(steps); step.Kind == Rest && (step.Reason.Pointless || n > 1 && steps[n-2].key() == step.key()) {
			return steps, nil
		}
		s = Apply(c, step, s)
	}
	return steps, errEndless
}

type model struct {
	c config.Config
	s *State
}

func clone(s host.Snapshot) host.Snapshot {
	s.PCI = slices.Clone(s.PCI)
	s.IB = slices.Clone(s.IB)
	for i := range s.IB {
		s.IB[i].Ports = slices.Clone(s.IB[i].Ports)
		for j := range s.IB[i].Ports {
			s.IB[i].Ports[j].PKeys = slices.Clone(s.IB[i].Ports[j].PKeys)
		}
	}
	s.Links = slices.Clone(s.Links)
	for i := range s.Links {
		s.Links[i].Addrs = slices.Clone(s.Links[i].Addrs)
	}
	s.Routes = slices.Clone(s.Routes)
	s.Modules = slices.Clone(s.Modules)
	return s
}

func (m *model) link(index int) *host.Link { return linkByIndex(m.s.Snapshot, index) }

func (m *model) loaded(name string) bool {
	return slices.ContainsFunc(m.s.Modules, func(x host.Module) bool { return x.Name == name && x.State != "coming" })
}

func (m *model) load(name string) {
	for i := range m.s.Modules {
		if m.s.Modules[i].Name == name {
			m.s.Modules[i].State = "live"
			return
		}
	}
	m.s.Modules = append(m.s.Modules, host.Module{Name: name, State: "live"})
}

func (m *model) bind(bdf string) {
	for i := range m.s.PCI {
		if f := &m.s.PCI[i]; f.BDF == bdf {
			f.Driver, f.Probe = driverName, nil
		}
	}
}

// settle lets the kernel do what follows by itself.
func (m *model) settle() {
	s := m.s
	for i := range s.PCI {
		f := &s.PCI[i]
		if !isMLX5(*f) || f.Dead || !f.BAR0 || f.Override != "" && f.Override != driverName {
			continue
		}
		if m.loaded("mlx5_core") && f.Driver == "" && f.Probe == nil {
			f.Driver = driverName
		}
		if m.loaded("mlx5_ib") && f.Driver == driverName && (f.Probe == nil || !f.Probe.Waiting) {
			m.device(f)
		}
	}
	for _, d := range s.IB {
		for _, p := range d.Ports {
			if m.loaded("ib_ipoib") && p.LinkLayer == "InfiniBand" {
				m.netdev(d, p)
			}
		}
	}
	for i := range s.Links {
		l := &s.Links[i]
		if l.Type != host.TypeInfiniBand {
			continue
		}
		p := m.port(l)
		l.Carrier = l.Up && p != nil && p.State == "ACTIVE" &&
			slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k|fullMember == l.PKey|fullMember })
	}
}

func (m *model) port(l *host.Link) *host.Port {
	for i := range m.s.IB {
		if d := &m.s.IB[i]; d.BDF == l.BDF {
			if p := portOf(d, l.DevPort+1); p != nil {
				return p
			}
		}
	}
	return nil
}

// device gives a function its InfiniBand device, with the GUID or name that the
// configuration hopes for.
func (m *model) device(f *host.PCIFunction) {
	for _, d := range m.s.IB {
		if d.BDF == f.BDF {
			return
		}
	}
	d := host.IBDevice{Name: "mlx5_" + f.BDF, BDF: f.BDF, NodeGUID: 1}
	if m.c.Match.Device != "" {
		d.Name = m.c.Match.Device
	}
	for n := 1; n <= max(1, m.c.Match.Port); n++ {
		d.Ports = append(d.Ports, host.Port{Num: n, GUID: m.c.Match.PortGUID, LinkLayer: "InfiniBand",
			State: "ACTIVE", PhysState: "LinkUp", LID: 1, SMLID: 1, PKeys: []uint16{0xffff, m.c.IPoIB.PKey | fullMember}})
	}
	m.s.IB = append(m.s.IB, d)
	f.IB = append(slices.Clone(f.IB), d.Name)
}

func (m *model) freshIndex() int {
	n := 1
	for _, l := range m.s.Links {
		n = max(n, l.Index+1)
	}
	return n
}

func (m *model) netdev(d host.IBDevice, p host.Port) {
	for _, l := range m.s.Links {
		if l.Type == host.TypeInfiniBand && l.Parent == 0 && l.BDF == d.BDF && l.DevPort == p.Num-1 {
			return
		}
	}
	v := &view{cfg: config.Config{Name: ""}, s: State{Snapshot: m.s.Snapshot}}
	m.s.Links = append(m.s.Links, host.Link{Name: v.aside(), Index: m.freshIndex(), Type: host.TypeInfiniBand,
		Addr: make(host.HWAddr, 20), MTU: 2044, BDF: d.BDF, DevPort: p.Num - 1, PKey: 0xffff, Mode: "datagram"})
}

func (m *model) createChild(parent int, key uint16) {
	p := m.link(parent)
	if p == nil {
		return
	}
	child := *p
	child.Index, child.Parent, child.PKey = m.freshIndex(), parent, key
	child.Name = (Step{Link: p.Name, PKey: key}).childName()
	child.Up, child.Carrier, child.Addrs = false, false, nil
	m.s.Links = append(m.s.Links, child)
}

func (m *model) setMode(step Step) {
	l := m.link(step.Index)
	if l == nil {
		return
	}
	l.Mode = step.To
	if step.To == "connected" {
		l.MTU = 65520
	} else {
		l.MTU = min(l.MTU, 2044)
	}
}

func (m *model) addAddress(step Step) {
	l := m.link(step.Index)
	if l == nil || hasAddr(*l, step.Prefix) {
		return
	}
	l.Addrs = append(l.Addrs, host.Addr{Prefix: step.Prefix})
	r := Route{Dest: step.Prefix.Masked(), Connected: true}
	if !step.Bare && step.Prefix.Bits() < step.Prefix.Addr().BitLen() && !hasRoute(m.s.Snapshot, r, l.Name) {
		m.s.Routes = append(m.s.Routes, host.Route{Dest: r.Dest, Dev: l.Name, Metric: metricOf(r), Proto: protoKernel})
	}
}

func (m *model) route(step Step) {
	dev := step.Route.Dev
	if dev == "" {
		dev = step.Link
	}
	m.s.Routes = slices.DeleteFunc(m.s.Routes, func(x host.Route) bool {
		return x.Dest == step.Route.Dest.Masked() && x.Metric == metricOf(step.Route) && (step.Kind == ReplaceRoute || x.Dev == dev)
	})
	if step.Kind == ReplaceRoute {
		m.s.Routes = append(m.s.Routes, host.Route{Dest: step.Route.Dest.Masked(), Via: step.Route.Via, Dev: dev, Metric: metricOf(step.Route), Proto: 4})
	}
}

// wait has come true what a reason waits for.
func (m *model) wait(step Step) {
	s := m.s
	s.Facts.InFlight, s.Facts.Silent = nil, 0
	s.Facts.UdevPending = nil
	s.Now += stableFor
	s.Now = max(s.Now, min(step.Until, s.Deadline))
	if step.Reason == nil || step.Reason.Pointless {
		return
	}
	for i := range s.Modules {
		s.Modules[i].State = "live"
	}
	for i := range s.PCI {
		f := &s.PCI[i]
		if f.Probe != nil && (f.Probe.Waiting || f.Driver != "") {
			f.Probe = nil
		}
	}
	for i := range s.IB {
		for j := range s.IB[i].Ports {
			p := &s.IB[i].Ports[j]
			if p.LinkLayer == "" {
				p.LinkLayer = "InfiniBand"
			}
			if p.LinkLayer == "InfiniBand" && s.IB[i].BDF == s.Facts.Place.BDF {
				p.State, p.PhysState, p.LID, p.SMLID = "ACTIVE", "LinkUp", 1, 1
				if key := m.c.IPoIB.PKey | fullMember; !slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k|fullMember == key }) {
					p.PKeys = append(p.PKeys, key)
				}
			}
		}
	}
	for i := range s.Links {
		for j := range s.Links[i].Addrs {
			s.Links[i].Addrs[j].Tentative = false
		}
	}
	m.settle()
	// The parent's key is the first of the table.
	for i := range s.Links {
		l := &s.Links[i]
		if p := m.port(l); p != nil && l.Up && p.State == "ACTIVE" {
			l.Carrier = true
		}
	}
}

// childName is the name that the kernel gives a child (ipoib_vlan_add).
func (s Step) childName() string {
	name := s.Link
	if len(name) > 10 {
		name = name[:10]
	}
	return fmt.Sprintf("%s.%04x", name, s.PKey)
}

package bringup

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibup/internal/config"
	"ibup/internal/host"
)

// say is a step in a table: acts in words, the others with their reason's code.
func say(s Step) string {
	switch s.Kind {
	case Wait, Rest, Fail, Install:
		return string(s.Kind) + " " + string(s.Reason.Code)
	case DelRoute, ReplaceRoute, AddAddress:
		if s.Bare {
			return s.String() + " bare"
		}
	}
	return s.String()
}

type edits []func(*State)

func (e edits) do(s *State) {
	for _, f := range e {
		f(s)
	}
}

func port(f func(*host.Port)) func(*State) { return func(s *State) { f(s.port0()) } }
func link(f func(*host.Link)) func(*State) { return func(s *State) { f(s.ib0()) } }
func fn(f func(*host.PCIFunction)) func(*State) {
	return func(s *State) { f(&s.PCI[0]) }
}
func late(s *State) { s.Now = s.Deadline }

func noCarrier(state, phys string) func(*State) {
	return func(s *State) {
		s.ib0().Carrier = false
		s.Facts.Carrier, s.Facts.CarrierSince = 0, 0
		p := s.port0()
		p.State, p.PhysState = state, phys
	}
}

func second(s *State) {
	s.PCI = append(s.PCI, function(bdf1))
	s.PCI[1].IB, s.PCI[1].Net = []string{"mlx5_1"}, []string{"ib1"}
	s.IB = append(s.IB, device("mlx5_1", bdf1, guid1))
	s.Links = append(s.Links, ibLink("ib1", 4, bdf1))
}

func route(dest, via, dev string, metric, proto int) func(*State) {
	return func(s *State) {
		r := host.Route{Dest: netip.MustParsePrefix(dest), Dev: dev, Metric: metric, Proto: proto}
		if via != "" {
			r.Via = netip.MustParseAddr(via)
		}
		s.Routes = append(s.Routes, r)
	}
}

func fallbackIn(s *State) { route("20.20.20.0/24", "10.20.0.1", "eno1", 200, 73)(s) }

func match(m config.Match) func(*config.Config) { return func(c *config.Config) { c.Match = m } }
func pkey(k uint16) func(*config.Config)        { return func(c *config.Config) { c.IPoIB.PKey = k } }
func noPing(c *config.Config)                   { c.Verify.Ping = nil }
func mode(m config.Mode) func(*config.Config)   { return func(c *config.Config) { c.IPoIB.Mode = m } }
func mtu(n int) func(*config.Config)            { return func(c *config.Config) { c.IPoIB.MTU = n } }

func child(name string, index int) func(*State) {
	return func(s *State) {
		l := ibLink(name, index, bdf0)
		l.Parent, l.PKey = 3, 0x8001
		s.Links = append(s.Links, l)
		s.port0().PKeys = []uint16{0xffff, 0x8001}
	}
}

func attempted(step Step, n int, errno unix.Errno) func(*State) {
	return func(s *State) {
		if s.Facts.Attempts == nil {
			s.Facts.Attempts = map[string]Attempt{}
		}
		a := Attempt{N: n, At: s.Now, Errno: int(errno)}
		if errno != 0 {
			a.Err = errno.Error()
		}
		s.Facts.Attempts[step.key()] = a
	}
}

func probed(err string, waiting bool) func(*State) {
	return fn(func(f *host.PCIFunction) { f.Probe = &host.Probe{Err: err, Waiting: waiting} })
}

const fwTimeout = "mlx5_core 0000:3b:00.0: Firmware over 10000 MS in pre-initializing state, aborting"

var bindStep = Step{Kind: BindDriver, BDF: bdf0}

type row1 struct {
	name  string
	conf  []func(*config.Config)
	from  func(...func(*State)) State
	state edits
	want  string
}

func c(f ...func(*config.Config)) []func(*config.Config) { return f }

func TestNext(t *testing.T) {
	var rows []row1
	for _, part := range [][]row1{deviceRows(), portRows(), linkRows(), addressRows(), fallbackRows()} {
		rows = append(rows, part...)
	}
	if len(rows) < 80 {
		t.Errorf("%d rows; the table must stay complete", len(rows))
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			s := r.from(r.state...)
			if s.Facts.Place == (Place{}) && len(s.PCI) > 0 {
				s.Facts.Place = Place{bdf0, 1}
			}
			step := Next(conf(r.conf...), s)
			if got := say(step); got != r.want {
				t.Errorf("Next = %q; want %q", got, r.want)
			}
			if step.Reason != nil {
				text := step.Reason.Summary + step.Reason.Remedy
				if strings.Contains(strings.ReplaceAll(text, "ATTR{type}", ""), "{") {
					t.Errorf("a placeholder is left: %q", text)
				}
			}
		})
	}
}

func deviceRows() []row1 {
	return []row1{
		{"no function at all", nil, healthy, edits{func(s *State) { bare(s); s.PCI = nil }}, "fail IB-PCI-ABSENT"},
		{"no function, fallback", c(withFallback), healthy, edits{func(s *State) { bare(s); s.PCI = nil }}, "install-fallback IB-PCI-ABSENT"},
		{"only an mlx4 card", nil, healthy, edits{bare, fn(func(f *host.PCIFunction) { f.Device = 0x1003 })}, "fail IB-PCI-ABSENT"},
		{"bus number moved", c(match(config.Match{PCI: bdf1})), healthy, nil, "fail IB-PCI-ABSENT"},
		{"off the bus", nil, healthy, edits{unbound, fn(func(f *host.PCIFunction) { f.Dead = true })}, "fail IB-PCI-DEAD"},
		{"off the bus while bound", nil, running, edits{fn(func(f *host.PCIFunction) { f.Dead = true })}, "fail IB-PCI-DEAD"},
		{"no BAR", c(withFallback), healthy, edits{bare, fn(func(f *host.PCIFunction) { f.BAR0 = false })}, "install-fallback IB-PCI-NO-BAR"},
		{"given to a guest", nil, healthy, edits{noDevice, fn(func(f *host.PCIFunction) { f.Driver = "vfio-pci" })}, "fail IB-PCI-DRIVER"},
		{"reserved by driver_override", nil, healthy, edits{unbound, fn(func(f *host.PCIFunction) { f.Override = "vfio-pci" })}, "fail IB-PCI-DRIVER"},
		{"override names mlx5_core", nil, running, edits{fn(func(f *host.PCIFunction) { f.Override = "mlx5_core" })}, "ib0 is up"},

		{"nothing loaded", nil, healthy, edits{bare}, "load ib_core, ib_cm, mlx5_core, mlx5_ib, ib_ipoib"},
		{"only the core loaded (initramfs of an IB-only card)", nil, healthy, edits{noDevice, func(s *State) {
			s.Modules, s.Facts.Modules.Load = loaded("mlx5_core"), []string{"mlx5_ib", "ib_ipoib"}
		}}, "load mlx5_ib, ib_ipoib"},
		{"all built in", nil, running, edits{func(s *State) { s.Modules = nil }}, "ib0 is up"},
		{"module missing", nil, healthy, edits{bare, func(s *State) {
			s.Facts.Modules.Problem = because(ModMissing, nil, "module", "mlx5_ib", "kernel", "x", "hint", "")
		}}, "fail IB-MOD-MISSING"},
		{"modules disabled", nil, healthy, edits{bare, func(s *State) { s.ModulesDisabled = true }}, "fail IB-MOD-DISABLED"},
		{"modules disabled but all there", nil, running, edits{func(s *State) { s.ModulesDisabled = true }}, "ib0 is up"},
		{"somebody else is loading", nil, healthy, edits{unbound, func(s *State) { s.Modules[1].State = "coming" }}, "wait IB-MOD-LOADING"},
		{"load under way", nil, healthy, edits{bare, func(s *State) { s.Facts.InFlight = &Step{Kind: LoadModules} }}, "wait IB-MOD-LOADING"},
		{"load under way, firmware slow", nil, healthy, edits{unbound, probed("", true), func(s *State) { s.Facts.InFlight = &Step{Kind: LoadModules} }}, "wait IB-FW-WAIT"},
		{"load refused", nil, healthy, edits{bare, attempted(Step{Kind: LoadModules}, 1, unix.EINVAL)}, "fail IB-MOD-REFUSED"},
		{"load refused: signature", nil, healthy, edits{bare, attempted(Step{Kind: LoadModules}, 1, unix.EPERM)}, "fail IB-MOD-REFUSED"},
		{"load interrupted once", nil, healthy, edits{bare, attempted(Step{Kind: LoadModules}, 1, unix.EINTR)}, "load ib_core, ib_cm, mlx5_core, mlx5_ib, ib_ipoib"},
		{"load interrupted twice: pause", nil, healthy, edits{bare, attempted(Step{Kind: LoadModules}, 2, unix.EINTR)}, "wait IB-MOD-REFUSED"},
		{"load interrupted three times", nil, healthy, edits{bare, attempted(Step{Kind: LoadModules}, 3, unix.EINTR)}, "fail IB-MOD-REFUSED"},

		{"just loaded, not probed", nil, healthy, edits{unbound, func(s *State) { s.Facts.Unbound = map[string]time.Duration{bdf0: s.Now} }}, "wait IB-PROBE-WAIT"},
		{"not probed for a second", nil, healthy, edits{unbound, func(s *State) { s.Facts.Unbound = map[string]time.Duration{bdf0: s.Now - time.Second} }}, "bind mlx5_core to 0000:3b:00.0 again"},
		{"firmware starting, driver link there", nil, healthy, edits{noDevice, probed("", true)}, "wait IB-FW-WAIT"},
		{"in the probe, the log says nothing yet", nil, healthy, edits{noDevice, fn(func(f *host.PCIFunction) { f.Starting = true })}, "wait IB-FW-WAIT"},
		{"in the probe again after one that failed", nil, healthy, edits{noDevice, fn(func(f *host.PCIFunction) {
			f.Starting, f.Probe = true, &host.Probe{Err: "enable hca failed", Errno: 110}
		})}, "wait IB-PROBE-FAILED"},
		{"given up, without interrupts", nil, healthy, edits{noDevice, fn(func(f *host.PCIFunction) { f.Starting, f.Probe = true, &host.Probe{Dying: true} })}, "wait IB-FW-DYING"},
		{"firmware starting", nil, healthy, edits{unbound, probed("", true)}, "wait IB-FW-WAIT"},
		{"firmware starting, budget over", c(withFallback), healthy, edits{unbound, probed("", true), late}, "install-fallback IB-FW-WAIT"},
		{"probe gave up on firmware", nil, healthy, edits{unbound, probed(fwTimeout, false)}, "bind mlx5_core to 0000:3b:00.0 again"},
		{"bind gave up on firmware", nil, healthy, edits{unbound, probed(fwTimeout, false), attempted(bindStep, 2, unix.EBUSY)}, "wait IB-FW-TIMEOUT"},
		{"bind gave up on firmware often", nil, healthy, edits{unbound, probed(fwTimeout, false), attempted(bindStep, 5, unix.EBUSY)}, "wait IB-FW-TIMEOUT"},
		{"bind gave up on firmware, budget over", c(withFallback), healthy, edits{unbound, probed(fwTimeout, false), attempted(bindStep, 3, unix.EBUSY), late}, "install-fallback IB-FW-TIMEOUT"},
		{"bind under way", nil, healthy, edits{unbound, probed(fwTimeout, false), func(s *State) { s.Facts.InFlight = &bindStep }}, "wait IB-PROBE-WAIT"},
		{"command refused", nil, healthy, edits{unbound, probed("enable hca failed", false), attempted(bindStep, 2, unix.EIO)}, "wait IB-PROBE-FAILED"},
		{"command refused three times", nil, healthy, edits{unbound, probed("enable hca failed", false), attempted(bindStep, 3, unix.EIO)}, "fail IB-PROBE-FAILED"},
		{"command refused three times, a minute ago, on the fallback", c(withFallback), healthy, edits{unbound, probed("enable hca failed", false),
			attempted(bindStep, 3, unix.EIO), fallbackIn, func(s *State) { s.Facts.Verdict = Fallback; s.Now += time.Minute }}, "bind mlx5_core to 0000:3b:00.0 again"},
		{"bind under way after a failure", nil, healthy, edits{unbound, probed("enable hca failed", false), attempted(bindStep, 1, unix.EIO), func(s *State) { s.Facts.InFlight = &bindStep }}, "wait IB-PROBE-FAILED"},
		{"bind under way after a failure, the log begun anew", nil, healthy, edits{noDevice, attempted(bindStep, 2, unix.EIO), fn(func(f *host.PCIFunction) {
			f.Starting, f.Probe = true, &host.Probe{}
		}), func(s *State) { s.Facts.InFlight = &bindStep }}, "wait IB-PROBE-FAILED"},
		{"id unknown to the driver", nil, healthy, edits{unbound, attempted(bindStep, 1, unix.ENODEV)}, "fail IB-PCI-UNKNOWN"},
		{"driver gave the card up", nil, healthy, edits{noDevice, fn(func(f *host.PCIFunction) { f.Probe = &host.Probe{Dying: true} })}, "wait IB-FW-DYING"},
		{"no device yet", nil, healthy, edits{noDevice}, "wait IB-DEVICE-ABSENT"},
		{"no device, budget over", c(withFallback), healthy, edits{noDevice, late}, "install-fallback IB-DEVICE-ABSENT"},
		{"reading the port hangs", nil, healthy, edits{func(s *State) { s.Facts.Silent = 3 * time.Second }}, "wait IB-FW-SILENT"},
		{"link layer unreadable", nil, healthy, edits{port(func(p *host.Port) { p.LinkLayer = "" })}, "wait IB-FW-SILENT"},
	}
}

func portRows() []row1 {
	return []row1{
		{"Ethernet port", nil, healthy, edits{port(func(p *host.Port) { p.LinkLayer = "Ethernet" })}, "fail IB-PORT-ETHERNET"},
		{"Ethernet port, named", c(match(config.Match{PCI: bdf0}), withFallback), healthy, edits{port(func(p *host.Port) { p.LinkLayer = "Ethernet" })}, "install-fallback IB-PORT-ETHERNET"},
		{"first port Ethernet, second not", nil, healthy, edits{second, port(func(p *host.Port) { p.LinkLayer = "Ethernet" }), func(s *State) { s.Links = append(s.Links[:1], s.Links[2]) }}, "rename ib1 to ib0"},
		{"GUID of the second", c(match(config.Match{PortGUID: guid1})), healthy, edits{second, func(s *State) { s.ib0().Name = "ib7" }}, "rename ib1 to ib0"},
		{"GUID wins over a stale PCI address", c(match(config.Match{PortGUID: guid0, PCI: bdf1, Device: "mlx5_9"})), running, nil, "ib0 is up"},
		{"GUID unknown", c(match(config.Match{PortGUID: 5})), healthy, nil, "fail IB-PORT-UNKNOWN"},
		{"GUID may be on the function without a device", c(match(config.Match{PortGUID: 5})), healthy, edits{second, func(s *State) { s.IB = s.IB[:1]; s.Links = s.Links[:2] }}, "wait IB-DEVICE-ABSENT"},
		{"PCI wins over device", c(match(config.Match{PCI: bdf0, Device: "mlx5_7"})), running, nil, "ib0 is up"},
		{"device by name", c(match(config.Match{Device: "mlx5_1"})), healthy, edits{second, func(s *State) { s.ib0().Name = "ib7" }}, "rename ib1 to ib0"},
		{"device name unknown", c(match(config.Match{Device: "mlx5_7"})), healthy, nil, "fail IB-PORT-UNKNOWN"},
		{"port number unknown", c(match(config.Match{PCI: bdf0, Port: 2})), healthy, nil, "fail IB-PORT-UNKNOWN"},
		{"claimed by another file", nil, healthy, edits{func(s *State) { s.Claims = []Claim{{Place{bdf0, 1}, "ib9", 0xffff}} }}, "fail IB-PORT-TAKEN"},
		{"claimed for another partition only", nil, running, edits{func(s *State) { s.Claims = []Claim{{Place{bdf0, 1}, "ib0.8001", 0x8001}} }}, "ib0 is up"},
		{"VF on its host is not taken unasked", nil, healthy, edits{fn(func(f *host.PCIFunction) { f.PhysFn = bdf1 })}, "fail IB-PORT-TAKEN"},
		{"VF named, without GUID", c(match(config.Match{PCI: bdf0})), running, edits{noCarrier("DOWN", "Polling"), fn(func(f *host.PCIFunction) { f.PhysFn = bdf1 }),
			func(s *State) { s.port0().GUID, s.IB[0].NodeGUID = 0, 0 }}, "fail IB-VF-NO-GUID"},
		{"no netdev yet", nil, healthy, edits{func(s *State) { s.Links = s.Links[:1] }}, "wait IB-NETDEV-ABSENT"},
		{"netdev of another port is not ours", nil, healthy, edits{link(func(l *host.Link) { l.DevPort = 1 })}, "wait IB-NETDEV-ABSENT"},
		{"netdev of another function is not ours", nil, healthy, edits{link(func(l *host.Link) { l.BDF = bdf1 })}, "wait IB-NETDEV-ABSENT"},

		{"cable out", nil, running, edits{noCarrier("DOWN", "Polling")}, "wait IB-CABLE"},
		{"cable out, budget over", c(withFallback), running, edits{noCarrier("DOWN", "Polling"), late}, "install-fallback IB-CABLE"},
		{"port disabled", nil, running, edits{noCarrier("DOWN", "Disabled")}, "wait IB-PORT-DISABLED"},
		{"training", nil, running, edits{noCarrier("DOWN", "PortConfigurationTraining")}, "wait IB-LINK-TRAINING"},
		{"no subnet manager", nil, running, edits{noCarrier("INIT", "LinkUp")}, "wait IB-SM-ABSENT"},
		{"no subnet manager but its old LID", nil, running, edits{noCarrier("INIT", "LinkUp"), port(func(p *host.Port) { p.SMLID = 1 })}, "wait IB-SM-ABSENT"},
		{"subnet manager at work", nil, running, edits{noCarrier("ARMED", "LinkUp")}, "wait IB-SM-SLOW"},
		{"key not in the table", nil, running, edits{noCarrier("ACTIVE", "LinkUp"), port(func(p *host.Port) { p.PKeys = []uint16{0x8002} })}, "wait IB-PKEY-ABSENT"},
		{"only a limited key is enough to wait for the join", nil, running, edits{noCarrier("ACTIVE", "LinkUp"), port(func(p *host.Port) { p.PKeys = []uint16{0x7fff} })}, "wait IB-GROUP-JOIN"},
		{"group join", nil, running, edits{noCarrier("ACTIVE", "LinkUp")}, "wait IB-GROUP-JOIN"},
		{"group join, budget over, no fallback", nil, running, edits{noCarrier("ACTIVE", "LinkUp"), late}, "fail IB-GROUP-JOIN"},
	}
}

func linkRows() []row1 {
	rename := Step{Kind: Rename, Index: 3, From: "ibp59s0", To: "ib0"}
	named := func(name string) func(*State) { return link(func(l *host.Link) { l.Name = name }) }
	up := link(func(l *host.Link) { l.Up = true })
	return []row1{
		{"healthy: set up", nil, healthy, nil, "set up ib0"},
		{"renamed by udev", nil, healthy, edits{named("ibp59s0")}, "rename ibp59s0 to ib0"},
		{"renamed by udev, up", nil, healthy, edits{named("ibp59s0"), up}, "rename ibp59s0 to ib0"},
		{"live rename refused, unused", nil, healthy, edits{named("ibp59s0"), up, attempted(rename, 1, unix.EBUSY)}, "set down ibp59s0"},
		{"live rename refused, in use", nil, healthy, edits{named("ibp59s0"), up, attempted(rename, 1, unix.EBUSY),
			link(func(l *host.Link) { l.Addrs = []host.Addr{{Prefix: prefix}} })}, "fail IB-RENAME-UNSAFE"},
		{"live rename refused, down by now", nil, healthy, edits{named("ibp59s0"), attempted(rename, 1, unix.EBUSY)}, "rename ibp59s0 to ib0"},
		{"live rename refused, carries root", nil, healthy, edits{named("ibp59s0"), up, attempted(rename, 1, unix.EBUSY), route("192.0.2.0/24", "", "ibp59s0", 0, 2),
			func(s *State) {
				s.Mounts = []host.Mount{{Source: "192.0.2.1:/root", Target: "/", FSType: "nfs4", Options: "rw,addr=192.0.2.1"}}
			}}, "fail IB-RENAME-UNSAFE"},
		{"renamed back again and again", nil, healthy, edits{named("ibp59s0"), attempted(rename, 3, 0)}, "wait IB-REFUSED"},
		{"udev not finished", nil, healthy, edits{named("ibp59s0"), func(s *State) { s.Facts.UdevPending = []int{3} }}, "wait IB-UDEV-PENDING"},
		{"udev not finished but the name is right", nil, healthy, edits{func(s *State) { s.Facts.UdevPending = []int{3} }}, "set up ib0"},
		{"name taken by another port's idle interface", nil, healthy, edits{second, named("ib7"), func(s *State) { s.Links[2].Name = "ib0" }}, "rename ib0 to ib1"},
		{"name taken: aside avoids wanted names", nil, healthy, edits{second, named("ib7"), func(s *State) {
			s.Links[2].Name = "ib0"
			s.Claims = []Claim{{Place{bdf1, 1}, "ib1", 0xffff}}
		}}, "rename ib0 to ib2"},
		{"name taken by another port's interface in use", nil, healthy, edits{second, named("ib7"), func(s *State) {
			s.Links[2].Name, s.Links[2].Up = "ib0", true
			s.Links[2].Addrs = []host.Addr{{Prefix: netip.MustParsePrefix("192.0.2.1/24")}}
		}}, "fail IB-NAME-TAKEN"},
		{"name taken by an Ethernet card", nil, healthy, edits{named("ib7"), func(s *State) { s.Links[0].Name = "ib0"; s.Links[0].Addrs = nil; s.Routes = nil }}, "fail IB-NAME-TAKEN"},
		{"name taken by an idle dummy", nil, healthy, edits{named("ib7"), func(s *State) { s.Links = append(s.Links, host.Link{Name: "ib0", Index: 9, Type: 1, Kind: "dummy"}) }}, "rename ib0 to ib1"},
		{"name taken by a bridge", nil, healthy, edits{named("ib7"), func(s *State) {
			s.Links = append(s.Links, host.Link{Name: "ib0", Index: 9, Type: 1, Kind: "bridge", Up: true})
		}}, "fail IB-NAME-TAKEN"},

		{"child to be made", c(pkey(0x8001)), healthy, nil, "create child ib0 key 0x8001"},
		{"child is made though its key is not there yet", c(pkey(0x8002)), healthy, edits{port(func(p *host.Port) { p.PKeys = []uint16{0xffff} })}, "create child ib0 key 0x8002"},
		{"limited key in the file means the full one", c(pkey(0x0001)), healthy, nil, "create child ib0 key 0x8001"},
		{"child of that key adopted whatever its name", c(pkey(0x8001)), healthy, edits{named("ibp"), child("storage", 7)}, "rename storage to ib0"},
		{"child's name is the parent's: the parent makes room", c(pkey(0x8001)), healthy, edits{child("ib0.8001", 7)}, "rename ib0 to ib1"},
		{"twins: the one with the address", c(pkey(0x8001), func(c *config.Config) { c.Name = "x" }), healthy, edits{child("a", 7), child("b", 8), func(s *State) { s.Links[3].Addrs = []host.Addr{{Prefix: prefix}} }}, "rename b to x"},
		{"parent is in the partition itself", c(pkey(0x8001)), healthy, edits{link(func(l *host.Link) { l.PKey = 0x8001 })}, "set up ib0"},
		{"child refused", c(pkey(0x8001)), healthy, edits{attempted(Step{Kind: CreateChild, Link: "ib0", Index: 3, PKey: 0x8001}, 3, unix.ENOTUNIQ)}, "fail IB-CHILD-REFUSED"},
		{"parent up before the child", c(pkey(0x8001), func(c *config.Config) { c.Name = "ib0.8001" }), healthy, edits{child("ib0.8001", 7)}, "set up ib0"},
		{"then the child", c(pkey(0x8001), func(c *config.Config) { c.Name = "ib0.8001" }), healthy, edits{child("ib0.8001", 7), up}, "set up ib0.8001"},

		{"connected mode", c(mode("connected")), healthy, nil, "set mode ib0 from datagram to connected"},
		{"mode before MTU", c(mode("connected"), mtu(65520)), healthy, nil, "set mode ib0 from datagram to connected"},
		{"connected impossible", c(mode("connected"), mtu(65520)), healthy, edits{link(func(l *host.Link) { l.Addr = make(host.HWAddr, 20) })}, "set mtu ib0 from 2044 to 4092"},
		{"connected refused is no obstacle", c(mode("connected")), healthy, edits{func(s *State) { s.Facts.Refused = &ModeResult{Index: 3, Mode: "connected"} }}, "set up ib0"},
		{"back to datagram", c(mode("datagram")), healthy, edits{link(func(l *host.Link) { l.Mode = "connected" })}, "set mode ib0 from connected to datagram"},
		{"mode kept", nil, healthy, edits{link(func(l *host.Link) { l.Mode = "connected" })}, "set up ib0"},
		{"mode unknown is left alone", c(mode("connected")), healthy, edits{link(func(l *host.Link) { l.Mode = "" })}, "set up ib0"},
		{"MTU", c(mtu(4092)), healthy, nil, "set mtu ib0 from 2044 to 4092"},
		{"MTU right already", c(mtu(2044)), healthy, nil, "set up ib0"},
		{"MTU limited by the group is not fought", c(mtu(4092)), running, edits{func(s *State) { s.Facts.Asked = &MTUResult{Index: 3, Asked: 4092, Effective: 4092} }}, "ib0 is up"},
		{"MTU of an earlier interface says nothing", c(mtu(4092)), running, edits{func(s *State) { s.Facts.Asked = &MTUResult{Index: 2, Asked: 4092, Effective: 2044} }}, "set mtu ib0 from 2044 to 4092"},
	}
}

func addressRows() []row1 {
	up := link(func(l *host.Link) { l.Up = true })
	v6 := netip.MustParsePrefix("fd00::109/64")
	gw := func(c *config.Config) { c.Network.Gateway = netip.MustParseAddr("20.20.20.1") }
	silent := func(ll string) func(*State) {
		return func(s *State) {
			s.Facts.Verified = &Verification{At: s.Now, Index: 3, Peers: []PeerResult{{Peer: peer, Sent: 3, LLAddr: ll, Neighbour: "FAILED"}}}
			attempted(Step{Kind: Verify, Link: "ib0", Index: 3, Peers: []netip.Addr{peer}}, 2, 1)(s)
		}
	}
	return []row1{
		{"address before carrier", nil, healthy, edits{up}, "add address 20.20.20.109/24 on ib0"},
		{"address beside a foreign one", nil, healthy, edits{up, link(func(l *host.Link) { l.Addrs = []host.Addr{{Prefix: netip.MustParsePrefix("192.0.2.1/24")}} })}, "add address 20.20.20.109/24 on ib0"},
		{"address on another interface", nil, healthy, edits{up, func(s *State) { s.Links[0].Addrs = append(s.Links[0].Addrs, host.Addr{Prefix: prefix}) }}, "fail IB-ADDR-ELSEWHERE"},
		{"IPv6 too", c(func(c *config.Config) { c.Network.Addresses = append(c.Network.Addresses, v6) }), running, nil, "add address fd00::109/64 on ib0"},
		{"IPv6 tentative", c(func(c *config.Config) { c.Network.Addresses = append(c.Network.Addresses, v6) }), running, edits{link(func(l *host.Link) { l.Addrs = append(l.Addrs, host.Addr{Prefix: v6, Tentative: true}) })}, "wait IB-ADDR-TENTATIVE"},
		{"IPv6 duplicate", c(func(c *config.Config) { c.Network.Addresses = append(c.Network.Addresses, v6) }), running, edits{link(func(l *host.Link) { l.Addrs = append(l.Addrs, host.Addr{Prefix: v6, DADFailed: true}) })}, "fail IB-ADDR-DUPLICATE"},
		{"address refused", nil, healthy, edits{up, attempted(Step{Kind: AddAddress, Link: "ib0", Index: 3, Prefix: prefix}, 3, unix.EINVAL)}, "fail IB-REFUSED"},
		{"no privilege", nil, healthy, edits{attempted(Step{Kind: SetUp, Link: "ib0", Index: 3}, 1, unix.EPERM)}, "fail IB-PRIVILEGE"},
		{"no address asked for", c(func(c *config.Config) { c.Network.Addresses = nil }, noPing), running, nil, "ib0 is up"},

		{"carrier new, no ping", c(noPing), running, edits{func(s *State) { s.Facts.CarrierSince = s.Now - time.Millisecond }}, "wait IB-CARRIER-UNSTABLE"},
		{"carrier stable, no ping", c(noPing), running, edits{func(s *State) { s.Facts.CarrierSince = s.Now - time.Second }}, "ib0 is up"},
		{"carrier new, ping proves it", nil, running, edits{func(s *State) { s.Facts.CarrierSince = s.Now; s.Facts.Verified = nil }}, "verify that 20.20.20.107 answer over ib0"},
		{"gateway", c(gw), running, nil, "replace route default via 20.20.20.1 on ib0"},
		{"gateway there", c(gw), running, edits{route("0.0.0.0/0", "20.20.20.1", "ib0", 0, 4)}, "ib0 is up"},
		{"route refused", c(gw), running, edits{attempted(Step{Kind: ReplaceRoute, Link: "ib0", Index: 3, Route: Route{Dest: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("20.20.20.1")}}, 3, unix.ENETUNREACH)}, "fail IB-ROUTE-REFUSED"},
		{"verified before the carrier broke", nil, running, edits{func(s *State) { s.Facts.CarrierSince = 9 * time.Second }}, "verify that 20.20.20.107 answer over ib0"},
		{"verified on an interface that is gone", nil, running, edits{func(s *State) { s.Facts.Verified.Index = 2 }}, "verify that 20.20.20.107 answer over ib0"},
		{"no answer, no neighbour", nil, running, edits{silent("")}, "wait IB-PEER-NO-ARP"},
		{"no answer, neighbour there", nil, running, edits{silent("80:00:…")}, "wait IB-PEER-NO-ECHO"},
		{"still asking when the time is over", nil, running, edits{silent(""), late, func(s *State) { s.Facts.InFlight = &Step{Kind: Verify} }}, "fail IB-PEER-NO-ARP"},
		{"all right", nil, running, nil, "ib0 is up"},
	}
}

func fallbackRows() []row1 {
	slow := func(s *State) { s.Now = s.Deadline }
	fell := func(s *State) { s.Facts.Verdict = Fallback }
	persist := func(c *config.Config) { c.Fallback.Persist = true }
	down := edits{noCarrier("INIT", "LinkUp"), fallbackIn, fell}
	with := func(e ...func(*State)) edits { return append(append(edits{}, down...), e...) }
	return []row1{
		{"shadowed by the connected route", c(withFallback), running, down, "del route 20.20.20.0/24 on ib0"},
		{"shadow gone: rest", c(withFallback), running, with(func(s *State) { s.Routes = append(s.Routes[:1], s.Routes[2]) }), "rest IB-SM-ABSENT"},
		{"a wider route through ib0 is no shadow", c(withFallback), running, with(func(s *State) { s.Routes[1].Dest = netip.MustParsePrefix("20.20.0.0/16") }), "rest IB-SM-ABSENT"},
		{"a narrower one is, whatever its metric", c(withFallback), running, with(func(s *State) { s.Routes[1].Dest, s.Routes[1].Metric = netip.MustParsePrefix("20.20.20.128/25"), 900 }), "del route 20.20.20.128/25 metric 900 on ib0"},
		{"fallback flushed by somebody", c(withFallback), running, edits{noCarrier("INIT", "LinkUp"), fell}, "install-fallback IB-SM-ABSENT"},
		{"fallback not possible yet", c(withFallback), running, edits{noCarrier("INIT", "LinkUp"), late, attempted(Step{Kind: Install}, 2, unix.ENETUNREACH)}, "wait IB-SM-ABSENT"},
		{"file half missing", c(withFallback, persist), running, down, "install-fallback IB-SM-ABSENT"},
		{"file half impossible: tried once", c(withFallback, persist), running, with(func(s *State) { s.Facts.FilesTried = true; s.Routes = append(s.Routes[:1], s.Routes[2]) }), "rest IB-SM-ABSENT"},
		{"within the budget there is no fallback", c(withFallback), running, edits{noCarrier("INIT", "LinkUp")}, "wait IB-SM-ABSENT"},
		{"address added without its route", c(withFallback), healthy, edits{link(func(l *host.Link) { l.Up = true }), fallbackIn, fell}, "add address 20.20.20.109/24 on ib0 bare"},
		{"fallback from the route file at boot counts", c(withFallback), healthy, edits{link(func(l *host.Link) { l.Up = true }), route("20.20.20.0/24", "10.20.0.1", "eno1", 200, 3)}, "add address 20.20.20.109/24 on ib0 bare"},
		{"proven: the withheld route first", c(withFallback), running, edits{fallbackIn, fell, func(s *State) {
			s.Routes = append(s.Routes[:1], s.Routes[2])
			s.Facts.Withheld = []Route{{Dest: prefix.Masked(), Src: prefix.Addr(), Connected: true}}
		}}, "replace route 20.20.20.0/24 on ib0"},
		{"then the fallback goes", c(withFallback), running, edits{fallbackIn, fell, func(s *State) {
			s.Facts.Withheld = []Route{{Dest: prefix.Masked(), Src: prefix.Addr(), Connected: true}}
		}}, "withdraw the fallback route"},
		{"a route that is not ours stays", c(withFallback), running, edits{route("20.20.20.0/24", "10.20.0.1", "eno1", 200, 3)}, "ib0 is up"},
		{"our block in the file goes", c(withFallback), running, edits{func(s *State) { s.Facts.FallbackFiles = true }}, "withdraw the fallback route"},
		{"time over with steps left: the fallback first", c(withFallback), healthy, edits{slow}, "install-fallback IB-TIME-UP"},
		{"time over, no fallback: the steps are done", nil, healthy, edits{slow}, "set up ib0"},
		{"time over, tried in vain, no fallback", nil, healthy, edits{attempted(Step{Kind: SetUp, Link: "ib0", Index: 3}, 1, unix.EINVAL), slow}, "fail IB-REFUSED"},
		{"works on while on the fallback", c(withFallback), healthy, edits{bare, fallbackIn, fell}, "load ib_core, ib_cm, mlx5_core, mlx5_ib, ib_ipoib"},
		{"withheld route of an address that is gone", c(withFallback), running, edits{func(s *State) {
			s.Facts.Withheld = []Route{{Dest: netip.MustParsePrefix("192.0.2.0/24"), Src: netip.MustParseAddr("192.0.2.9"), Connected: true}}
		}}, "ib0 is up"},
		{"hand-made interface on a machine with the route file's route", c(withFallback), running, edits{route("20.20.20.0/24", "10.20.0.1", "eno1", 200, 3)}, "ib0 is up"},
	}
}

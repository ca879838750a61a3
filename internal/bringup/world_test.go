package bringup

import (
	"net/netip"
	"slices"
	"time"

	"ibup/internal/config"
	"ibup/internal/host"
)

// Builders of machines for tests. The healthy one is a ConnectX with all loaded,
// its port ACTIVE and ib0 made by the kernel, down and without an address.

const bdf0, bdf1 = "0000:3b:00.0", "0000:5e:00.0"

var (
	prefix = netip.MustParsePrefix("20.20.20.109/24")
	peer   = netip.MustParseAddr("20.20.20.107")
	ipoibA = host.HWAddr{0x80, 0, 0, 0x42, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x50, 0x6b, 0x4b, 3, 0, 0xa1, 0, 0}
)

const guid0, guid1 = 0x506b4b0300a10000, 0x506b4b0300a10001

func conf(edit ...func(*config.Config)) config.Config {
	c := config.Config{
		Name:    "ib0",
		Path:    "/etc/ibup/ib0.conf",
		IPoIB:   config.IPoIB{PKey: 0xffff},
		Network: config.Network{Addresses: []netip.Prefix{prefix}},
		Verify:  config.Verify{Ping: []netip.Addr{peer}},
		Boot:    config.Boot{Timeout: 60 * time.Second, Watch: config.WatchUntilUp},
	}
	for _, e := range edit {
		e(&c)
	}
	return c
}

func withFallback(c *config.Config) {
	c.Fallback.Routes = []config.Route{{Dest: netip.MustParsePrefix("20.20.20.0/24"), Via: netip.MustParseAddr("10.20.0.1"), Dev: "eno1", Metric: 200}}
}

func function(bdf string) host.PCIFunction {
	return host.PCIFunction{BDF: bdf, Vendor: 0x15b3, Device: 0x1017, Class: 0x020700, Driver: "mlx5_core", BAR0: true, IB: []string{"mlx5_0"}, Net: []string{"ib0"}}
}

func device(name, bdf string, guid uint64) host.IBDevice {
	return host.IBDevice{Name: name, BDF: bdf, NodeGUID: guid, Firmware: "16.35.2000", Ports: []host.Port{{
		Num: 1, GUID: guid, LinkLayer: "InfiniBand", State: "ACTIVE", PhysState: "LinkUp", LID: 2, SMLID: 1,
		Rate: "100 Gb/sec (4X EDR)", PKeys: []uint16{0xffff},
	}}}
}

func ibLink(name string, index int, bdf string) host.Link {
	return host.Link{Name: name, Index: index, Type: 32, Addr: ipoibA, MTU: 2044, BDF: bdf, PKey: 0xffff, Mode: "datagram"}
}

func eno1() host.Link {
	return host.Link{Name: "eno1", Index: 2, Type: 1, Up: true, Carrier: true, MTU: 1500, BDF: "0000:01:00.0",
		Addrs: []host.Addr{{Prefix: netip.MustParsePrefix("10.20.0.5/16")}}}
}

func loaded(names ...string) []host.Module {
	var m []host.Module
	for _, n := range names {
		m = append(m, host.Module{Name: n, State: "live"})
	}
	return m
}

func healthy(edit ...func(*State)) State {
	s := State{
		Snapshot: host.Snapshot{
			Kernel:  "6.1.0-44-amd64",
			PCI:     []host.PCIFunction{function(bdf0)},
			IB:      []host.IBDevice{device("mlx5_0", bdf0, guid0)},
			Links:   []host.Link{eno1(), ibLink("ib0", 3, bdf0)},
			Routes:  []host.Route{{Dest: netip.MustParsePrefix("10.20.0.0/16"), Dev: "eno1", Proto: 2}},
			Modules: loaded("ib_core", "mlx5_core", "mlx5_ib", "ib_ipoib"),
		},
		Now:      10 * time.Second,
		Deadline: 70 * time.Second,
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

// running is a machine on which everything is as configured and proven.
func running(edit ...func(*State)) State {
	s := healthy(func(s *State) {
		l := s.ib0()
		l.Up, l.Carrier = true, true
		l.Addrs = []host.Addr{{Prefix: prefix}}
		s.Routes = append(s.Routes, host.Route{Dest: prefix.Masked(), Dev: "ib0", Proto: 2})
		s.Facts.CarrierSince, s.Facts.Carrier = 5*time.Second, 3
		s.Facts.Verified = &Verification{At: 8 * time.Second, Index: 3, OK: true}
	})
	for _, e := range edit {
		e(&s)
	}
	return s
}

func (s *State) ib0() *host.Link {
	i := slices.IndexFunc(s.Links, func(l host.Link) bool { return l.Type == 32 })
	return &s.Links[i]
}

func (s *State) port0() *host.Port { return &s.IB[0].Ports[0] }

// bare takes the stack away: the card alone, no driver.
func bare(s *State) {
	s.PCI[0].Driver, s.PCI[0].IB, s.PCI[0].Net = "", nil, nil
	s.IB, s.Modules = nil, nil
	s.Links = s.Links[:1]
	s.Facts.Modules = ModulePlan{Load: []string{"ib_core", "ib_cm", "mlx5_core", "mlx5_ib", "ib_ipoib"}}
}

// noDevice: the driver has the function, but nothing came of it yet.
func noDevice(s *State) {
	s.PCI[0].IB, s.PCI[0].Net = nil, nil
	s.IB = nil
	s.Links = s.Links[:1]
}

func unbound(s *State) {
	noDevice(s)
	s.PCI[0].Driver = ""
}

// tried records an attempt at the step that Next gives for the state.
func tried(c config.Config, n int, errno int, err string) func(*State) {
	return func(s *State) {
		step := Next(c, *s)
		s.Facts.Attempts = map[string]Attempt{step.key(): {N: n, At: s.Now, Err: err, Errno: errno}}
	}
}

package bringup

import (
	"fmt"
	"slices"
	"testing"

	"ibup/internal/config"
	"ibup/internal/host"
)

// named is a file for an interface, by default on the first free port.
func named(name string, edit ...func(*config.Config)) config.Config {
	c := conf(func(c *config.Config) {
		c.Name, c.Path = name, "/etc/ibup/"+name+".conf"
		c.Network.Addresses = nil
	})
	for _, e := range edit {
		e(&c)
	}
	return c
}

func claimText(claims []Claim) []string {
	var out []string
	for _, c := range claims {
		out = append(out, fmt.Sprintf("%s=%s/%d", c.Name, c.BDF, c.Port))
	}
	slices.Sort(out)
	return out
}

func TestAssign(t *testing.T) {
	at := func(bdf string) string { return bdf + "/1" }
	two := healthy(second).Snapshot
	tests := []struct {
		name string
		set  []config.Config
		s    host.Snapshot
		held map[string]Place
		want []string
	}{
		{"in the order of names and addresses", []config.Config{named("ib0"), named("ib1")}, two, nil, []string{"ib0=" + at(bdf0), "ib1=" + at(bdf1)}},
		{"who names its port comes first", []config.Config{named("ib1", match(config.Match{PCI: bdf0})), named("ib0")}, two, nil, []string{"ib0=" + at(bdf1), "ib1=" + at(bdf0)}},
		{"more files than ports", []config.Config{named("ib0"), named("ib1"), named("ib2")}, two, nil, []string{"ib0=" + at(bdf0), "ib1=" + at(bdf1)}},
		{"another partition of the same port", []config.Config{named("ib0"), named("ib0.8001", pkey(0x8001))}, two, nil, []string{"ib0.8001=" + at(bdf0), "ib0=" + at(bdf0)}},
		{"what was held is kept", []config.Config{named("ib0"), named("ib1")}, two, map[string]Place{"ib0": {bdf1, 1}}, []string{"ib0=" + at(bdf1), "ib1=" + at(bdf0)}},
		{"what another holds is not taken", []config.Config{named("ib0"), named("ib1")}, two, map[string]Place{"ib1": {bdf0, 1}}, []string{"ib0=" + at(bdf1), "ib1=" + at(bdf0)}},
		{"a held port that the file no longer allows", []config.Config{named("ib0", match(config.Match{PCI: bdf0}))}, two, map[string]Place{"ib0": {bdf1, 1}}, []string{"ib0=" + at(bdf0)}},
		{"a held port that is gone", []config.Config{named("ib0")}, two, map[string]Place{"ib0": {"0000:99:00.0", 1}}, []string{"ib0=" + at(bdf0)}},
		{"the port that has the address", []config.Config{conf()}, healthy(second, func(s *State) {
			s.Links[2].Addrs = []host.Addr{{Prefix: prefix}}
		}).Snapshot, nil, []string{"ib0=" + at(bdf1)}},
		{"a function without a device yet", []config.Config{named("ib0"), named("ib1")}, healthy(second, func(s *State) { s.IB = s.IB[1:] }).Snapshot, nil, []string{"ib0=" + at(bdf0), "ib1=" + at(bdf1)}},
		{"Ethernet class is a worse guess", []config.Config{named("ib0")}, healthy(second, func(s *State) {
			s.IB = nil
			s.PCI[0].Class = 0x020000
		}).Snapshot, nil, []string{"ib0=" + at(bdf1)}},
		{"an Ethernet port is none", []config.Config{named("ib0")}, healthy(second, port(func(p *host.Port) { p.LinkLayer = "Ethernet" })).Snapshot, nil, []string{"ib0=" + at(bdf1)}},
		{"a VF on its host is none", []config.Config{named("ib0")}, healthy(second, fn(func(f *host.PCIFunction) { f.PhysFn = bdf1 })).Snapshot, nil, []string{"ib0=" + at(bdf1)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := claimText(Assign(tt.set, tt.s, tt.held)); !slices.Equal(got, tt.want) {
				t.Errorf("Assign = %v; want %v", got, tt.want)
			}
		})
	}
}

func TestMeantFor(t *testing.T) {
	two := healthy(second).Snapshot
	unknown := healthy(second, func(s *State) { s.IB = s.IB[:1] }).Snapshot
	tests := []struct {
		name string
		bdf  string
		set  []config.Config
		s    host.Snapshot
		want []string
	}{
		{"first free", bdf0, []config.Config{named("ib0"), named("ib1")}, two, []string{"ib0"}},
		{"second free", bdf1, []config.Config{named("ib0"), named("ib1")}, two, []string{"ib1"}},
		{"nobody's", bdf1, []config.Config{named("ib0")}, two, nil},
		{"by GUID", bdf1, []config.Config{named("ib0", match(config.Match{PortGUID: guid1}))}, two, []string{"ib0"}},
		{"GUID of another one", bdf0, []config.Config{named("ib0", match(config.Match{PortGUID: guid1}))}, two, nil},
		{"GUID not seen yet", bdf1, []config.Config{named("ib0", match(config.Match{PortGUID: 9}))}, unknown, []string{"ib0"}},
		{"by PCI address, the function gone again", "0000:99:00.0", []config.Config{named("ib0", match(config.Match{PCI: "0000:99:00.0"}))}, two, []string{"ib0"}},
		{"device name not seen yet", bdf1, []config.Config{named("ib0", match(config.Match{Device: "mlx5_9"}))}, unknown, []string{"ib0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range MeantFor(tt.bdf, tt.set, tt.s, nil) {
				got = append(got, c.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("MeantFor(%s) = %v; want %v", tt.bdf, got, tt.want)
			}
		})
	}
}

func TestIsMLX5(t *testing.T) {
	for id, want := range map[uint16]bool{
		0x1003: false, 0x1007: false, 0x6340: false, 0x673c: false, 0x5a44: false, 0x6282: false, // older families
		0x1011: true, 0x1013: true, 0x1017: true, 0x101b: true, 0x101f: true, 0x1021: true, 0x1025: true, 0xa2d2: true, 0xa2dc: true,
	} {
		if got := isMLX5(host.PCIFunction{Device: id}); got != want {
			t.Errorf("isMLX5(%#x) = %v; want %v", id, got, want)
		}
	}
}

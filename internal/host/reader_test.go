package host

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ibup/internal/host/hosttest"
)

func TestReadEL7(t *testing.T) {
	s := read(t, text(t, "el7"))
	const bdf = "0000:3b:00.0"
	same(t, "kernel", s.Kernel, "3.10.0-1160.el7.x86_64")
	same(t, "uptime", s.Uptime, 93420*time.Millisecond)
	same(t, "PCI", s.PCI, []PCIFunction{{
		BDF: bdf, Vendor: 0x15b3, Device: 0x1017, Class: 0x020700, Driver: "mlx5_core", BAR0: true,
		IB: []string{"mlx5_0"}, Net: []string{"ib0"},
		Probe: &Probe{At: 5140900 * time.Microsecond},
	}})
	same(t, "IB", s.IB, []IBDevice{{
		Name: "mlx5_0", BDF: bdf, NodeGUID: 0x506b4b0300c3d1a2, Firmware: "16.35.2000",
		BoardID: "MT_0000000010", HCAType: "MT4119", NodeDesc: "node09 HCA-1",
		Ports: []Port{{
			Num: 1, GUID: 0x506b4b0300c3d1a2, LinkLayer: "InfiniBand", State: "ACTIVE", PhysState: "LinkUp",
			LID: 2, SMLID: 1, Rate: "100 Gb/sec (4X EDR)", PKeys: []uint16{0xffff, 0x8001},
		}},
	}})
	same(t, "links", s.Links, []Link{
		{Name: "lo", Index: 1, Type: 772, Addr: hw("00:00:00:00:00:00"), Up: true, Carrier: true, MTU: 65536,
			Addrs: []Addr{{Prefix: netip.MustParsePrefix("127.0.0.1/8")}}},
		{Name: "ib0", Index: 4, Type: TypeInfiniBand, Addr: hw("80:00:00:67:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c3:d1:a2"),
			Up: true, Carrier: true, MTU: 2044, BDF: bdf, Driver: "ib_ipoib", PKey: 0xffff, Mode: "datagram",
			Addrs: []Addr{
				{Prefix: netip.MustParsePrefix("20.20.20.109/24")},
				{Prefix: netip.MustParsePrefix("fe80::526b:4b03:c3:d1a2/64"), Tentative: true},
			}},
		{Name: "ib0.8001", Index: 5, Type: TypeInfiniBand, Addr: hw("80:00:00:68:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c3:d1:a2"),
			Up: true, Carrier: true, MTU: 2044, Parent: 4, BDF: bdf, Driver: "ib_ipoib", PKey: 0x8001, Mode: "connected"},
		{Name: "ibc", Index: 6, Type: TypeInfiniBand, Addr: hw("80:00:00:69:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c3:d1:a2"),
			MTU: 2044, Parent: 4, BDF: bdf, Kind: "ipoib", PKey: 0x8003, Mode: "datagram"},
	})
	same(t, "routes", s.Routes, []Route{
		{Dest: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.20.0.1"), Dev: "eno1", Metric: 100, Proto: 4},
		{Dest: netip.MustParsePrefix("20.20.20.0/24"), Dev: "ib0", Proto: 2},
	})
	same(t, "modules", s.Modules, []Module{
		{Name: "ib_core", State: "live", RefCount: 4, SrcVersion: "5A79BA6D6C1B6D2A6A6E5A4", Holders: []string{"ib_cm", "ib_ipoib", "mlx5_ib"}},
		{Name: "ib_cm", State: "live", RefCount: 1, Holders: []string{"ib_ipoib"}},
		{Name: "mlx5_core", State: "live", RefCount: 1, SrcVersion: "0863D8DB0A42249ABDB85F2", Version: "5.0-0", Holders: []string{"mlx5_ib"}},
		{Name: "mlx5_ib", State: "live"},
		{Name: "ib_ipoib", State: "live"},
	})
	same(t, "mounts", s.Mounts, []Mount{
		{Source: "/dev/sda2", Target: "/", FSType: "xfs", Options: "rw,attr2,inode64,noquota"},
		{Source: "20.20.20.107:/export/a b", Target: "/scratch one", FSType: "nfs4",
			Options: "rw,vers=4.1,proto=tcp,clientaddr=20.20.20.109,addr=20.20.20.107"},
	})
	same(t, "gaps", s.Incomplete, []Gap(nil))
	var kinds []Kind
	for _, l := range s.KernelSays {
		kinds = append(kinds, l.Kind)
	}
	same(t, "kernel lines", kinds, []Kind{Enumerated, FirmwareVersion, Other, Cable, Other, LinkNotReady, LinkReady})
}

// TestReadWithoutNetlink has sysfs stand in for the links.
func TestReadWithoutNetlink(t *testing.T) {
	s := read(t, text(t, "el7"), "!ibup/net.json")
	want := read(t, text(t, "el7")).Links
	for i := range want {
		want[i].Addrs = nil
		if want[i].Type == TypeInfiniBand { // from netlink and ethtool
			want[i].Kind, want[i].Driver = "", ""
		}
	}
	// Only netlink knows key and mode of a child that was made through it.
	want[3].PKey, want[3].Mode = 0, ""
	same(t, "links", s.Links, want)
	if len(s.Incomplete) != 1 || s.Incomplete[0].What != "addresses and routes" {
		t.Errorf("gaps %v, want one for addresses and routes", s.Incomplete)
	}
}

func TestReadDebian12(t *testing.T) {
	s := read(t, text(t, "debian12"))
	pf, vf := "0000:01:00.0", "0000:01:00.1"
	same(t, "PCI", s.PCI, []PCIFunction{
		{BDF: pf, Vendor: 0x15b3, Device: 0x101b, Class: 0x020700, Driver: "mlx5_core", NumVFs: 1, BAR0: true,
			IB: []string{"ibp1s0"}, Net: []string{"ibp1s0"}},
		{BDF: vf, Vendor: 0x15b3, Device: 0x101c, Class: 0x020700, PhysFn: pf, BAR0: true, Override: "vfio-pci"},
	})
	p := s.IB[0].Ports[0]
	same(t, "port", p, Port{Num: 1, GUID: 0x0002c90300a1b2c4, LinkLayer: "InfiniBand", State: "INIT", PhysState: "LinkUp",
		LID: 0xffff, Rate: "200 Gb/sec (4X HDR)", PKeys: []uint16{0x7fff}})
	child := s.Links[1]
	if child.Name != "ibp1s0.8005" || child.PKey != 0x8005 || child.BDF != pf || child.Parent != 3 {
		t.Errorf("child %+v", child)
	}
	same(t, "modules", s.Modules, []Module{
		{Name: "ib_core", State: "builtin"},
		{Name: "mlx5_core", State: "live", RefCount: 1, Holders: []string{"mlx5_ib"}},
		{Name: "mlx5_ib", State: "coming", RefCount: 1},
	})
}

// TestReadFunctions tells apart what can be wrong with a function before there is
// an InfiniBand device.
func TestReadFunctions(t *testing.T) {
	const dir = "[sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0]\n"
	unbound := "!driver\n!infiniband\n!net\n[sys/class/infiniband]\n!mlx5_0\n[sys/class/net]\n!ib0\n"
	log := func(lines string) string { return "[ibup]\nkmsg <<\n" + lines + ">>\n" }
	tests := []struct {
		name  string
		patch string
		want  func(*PCIFunction)
	}{
		{"no driver", dir + unbound, func(f *PCIFunction) {
			f.Driver, f.IB, f.Net = "", nil, nil
		}},
		{"in the probe", dir + "!infiniband\n!net\n[sys/class/infiniband]\n!mlx5_0\n[sys/class/net]\n!ib0\n", func(f *PCIFunction) {
			f.Starting, f.IB, f.Net = true, nil, nil
		}},
		{"probed, no InfiniBand device", dir + "msi_irqs/\n!infiniband\n!net\n[sys/class/infiniband]\n!mlx5_0\n[sys/class/net]\n!ib0\n", func(f *PCIFunction) {
			f.IB, f.Net = nil, nil
		}},
		{"Ethernet class", dir + "class: 0x020000", func(f *PCIFunction) { f.Class = 0x020000 }},
		{"dead", dir + "config =x ffffffffffffffffffffffffffffffff", func(f *PCIFunction) { f.Dead = true }},
		{"BAR 0 found no space", dir + "resource <<\n0x0000000000000000 0x0000000000000000 0x0000000000000000\n>>", func(f *PCIFunction) { f.BAR0 = false }},
		{"BAR 0 unset", dir + "resource <<\n0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n>>", func(f *PCIFunction) { f.BAR0 = false }},
		{"BAR 0 unset at an address", dir + "resource <<\n0x0000000001000000 0x0000000001ffffff 0x000000002014220c\n>>", func(f *PCIFunction) { f.BAR0 = false }},
		{"kept for vfio", dir + "driver_override: vfio-pci", func(f *PCIFunction) { f.Override = "vfio-pci" }},
		{"probe failed", dir + unbound + log("6,1,2000000,-;mlx5_core 0000:3b:00.0: firmware version: 16.35.2000\n"+
			"3,2,3000000,-;mlx5_core 0000:3b:00.0: enable hca failed\n"+
			"3,3,3100000,-;mlx5_core 0000:3b:00.0: mlx5_load_one failed with error code -5\n"+
			"4,4,3200000,-;mlx5_core: probe of 0000:3b:00.0 failed with error -5\n"), func(f *PCIFunction) {
			f.Driver, f.IB, f.Net = "", nil, nil
			f.Probe = &Probe{At: 2 * time.Second, Err: "mlx5_core 0000:3b:00.0: enable hca failed", Errno: 5}
		}},
		{"other class", dir + "class: 0x088000", nil},
		{"other vendor", dir + "vendor: 0x8086", nil},
		{"no log", "!ibup/kmsg", func(f *PCIFunction) { f.Probe = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := read(t, text(t, "el7"), tt.patch)
			if tt.want == nil {
				same(t, "PCI", s.PCI, []PCIFunction(nil))
				return
			}
			want := read(t, text(t, "el7")).PCI[0]
			tt.want(&want)
			same(t, "PCI", s.PCI, []PCIFunction{want})
		})
	}
}

func TestReadEthernetPort(t *testing.T) {
	s := read(t, text(t, "el7"), `
[sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0]
class: 0x020000
!net
infiniband/mlx5_0/ports/1/link_layer: Ethernet
infiniband/mlx5_0/ports/1/state: 1: DOWN
infiniband/mlx5_0/ports/1/phys_state: 3: Disabled
infiniband/mlx5_0/ports/1/gids/0: 0000:0000:0000:0000:0000:0000:0000:0000
[ibup]
net.json: {}
`)
	p := s.IB[0].Ports[0]
	if p.LinkLayer != "Ethernet" || p.State != "DOWN" || p.PhysState != "Disabled" || p.GUID != 0 {
		t.Errorf("port %+v", p)
	}
}

// TestReadEightHCAs also has the result sorted and the same every time.
func TestReadEightHCAs(t *testing.T) {
	one := text(t, "el7")
	texts := []string{one}
	for i := 1; i < 8; i++ {
		texts = append(texts, strings.NewReplacer(
			"3a:00.0", fmt.Sprintf("%x:00.0", 0x40+2*i),
			"0000:3a", fmt.Sprintf("0000:%x", 0x40+2*i),
			"3b:00.0", fmt.Sprintf("%x:00.0", 0x41+2*i),
			"mlx5_0", fmt.Sprintf("mlx5_%d", i),
			"ib0", fmt.Sprintf("ib%d", i),
			"ibc", fmt.Sprintf("ibc%d", i),
			"ifindex: ", fmt.Sprintf("ifindex: %d", i),
			"iflink: ", fmt.Sprintf("iflink: %d", i),
			"ibup/", "x/", "[ibup]", "[x]", "[proc]", "[y]", "sys/module", "z",
		).Replace(one))
	}
	texts = append(texts, "!ibup")
	root := hosttest.Tree(t, texts...)
	var first []byte
	for range 3 {
		s := readRoot(t, root)
		if len(s.PCI) != 8 || len(s.IB) != 8 {
			t.Fatalf("%d functions and %d devices, want 8", len(s.PCI), len(s.IB))
		}
		for i, f := range s.PCI {
			if len(f.IB) != 1 || len(f.Net) != 1 || f.IB[0][5:] != f.Net[0][2:] {
				t.Errorf("function %d: %+v", i, f)
			}
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if string(b) != string(first) {
			t.Error("a second reading differs")
		}
	}
}

// TestReadPortAsItChanges has the second reading of a live port look at its state,
// the used part of the P_Key table and a little beyond, and at all of it when the
// port changes.
func TestReadPortAsItChanges(t *testing.T) {
	const port = "[sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0/ports/1]\n"
	var empty strings.Builder
	empty.WriteString(port)
	for i := 4; i < 128; i++ {
		fmt.Fprintf(&empty, "pkeys/%d: 0x0000\n", i)
	}
	root := hosttest.Tree(t, text(t, "el7"), empty.String(), port+"pkeys/100: 0x8064")
	r := New(root)
	defer r.Close()
	r.live = true
	next := func(patch string) Port {
		t.Helper()
		if err := hosttest.Write(root, patch); err != nil {
			t.Fatal(err)
		}
		s, err := r.Read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return s.IB[0].Ports[0]
	}
	keys := func(patch string) []uint16 { t.Helper(); return next(port + patch).PKeys }
	same(t, "at first", keys(""), []uint16{0xffff, 0x8001, 0x8064})
	same(t, "removed", keys("pkeys/100: 0x0000"), []uint16{0xffff, 0x8001})
	same(t, "added in front", keys("pkeys/1: 0x8002"), []uint16{0xffff, 0x8002, 0x8001})
	same(t, "added behind", keys("pkeys/3: 0x8003\npkeys/4: 0x8004\npkeys/6: 0x8006"), []uint16{0xffff, 0x8002, 0x8001, 0x8003, 0x8004, 0x8006})
	same(t, "far away, with a change", keys("pkeys/100: 0x8064\nstate: 1: DOWN\nphys_state: 3: Disabled"),
		[]uint16{0xffff, 0x8002, 0x8001, 0x8003, 0x8004, 0x8006, 0x8064})
	if p := next(port + "phys_state: 2: Polling"); p.State != "DOWN" || p.PhysState != "Polling" {
		t.Errorf("cable plugged: %+v", p)
	}
	if p := next(port + "lid: 0x9\nstate: 4: ACTIVE\nphys_state: 5: LinkUp"); p.LID != 9 || p.PhysState != "LinkUp" || p.Rate == "" || p.GUID == 0 {
		t.Errorf("active again: %+v", p)
	}
	if p := next(port + "lid: 0xa"); p.LID != 9 || p.Num != 1 || p.LinkLayer != "InfiniBand" {
		t.Errorf("remembered: %+v", p)
	}
	for _, m := range r.ports {
		m.at = m.at.Add(-stale)
	}
	if p := next(""); p.LID != 10 {
		t.Errorf("after a while: %+v", p)
	}
	r.live = false
	if p := next(port + "lid: 0xb"); p.LID != 11 {
		t.Errorf("captured: %+v", p)
	}
}

func TestParseModules(t *testing.T) {
	in := "ib_core 1 - mlx5_ib,[permanent], Loading 0x0\n" +
		"mlx5_ib 1 2 - Unloading 0x0 (OE)\n" +
		"short 1 2 -\nodd 1 2 - Gone 0x0\n\n"
	same(t, "modules", parseModules([]byte(in)), map[string]Module{
		"ib_core": {Name: "ib_core", State: "coming", Holders: []string{"mlx5_ib"}},
		"mlx5_ib": {Name: "mlx5_ib", State: "going", RefCount: 2},
	})
}

func TestReadNoMachine(t *testing.T) {
	r := New(t.TempDir())
	defer r.Close()
	if _, err := r.Read(context.Background()); err == nil {
		t.Error("an empty directory is a machine")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r = New(hosttest.Tree(t, text(t, "el7")))
	defer r.Close()
	if _, err := r.Read(ctx); err != context.Canceled {
		t.Errorf("Read with an ended context = %v", err)
	}
}

// TestReadThisMachine runs against whatever this is; netlink and sysfs must agree.
func TestReadThisMachine(t *testing.T) {
	if _, err := os.Stat("/sys/class/net/lo"); err != nil {
		t.Skip("no sysfs here")
	}
	r := New("/")
	defer r.Close()
	s, err := r.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Kernel == "" || s.Uptime == 0 || len(s.Mounts) == 0 {
		t.Errorf("kernel %q, uptime %v, mounts %v", s.Kernel, s.Uptime, s.Mounts)
	}
	lo := slices.IndexFunc(s.Links, func(l Link) bool { return l.Name == "lo" })
	if lo < 0 || s.Links[lo].Type != 772 || s.Links[lo].MTU == 0 {
		t.Errorf("no loopback interface in %+v", s.Links)
	}
	var fromSysfs Snapshot
	for _, l := range r.sysfsLinks(&fromSysfs) {
		i := slices.IndexFunc(s.Links, func(o Link) bool { return o.Index == l.Index })
		if i < 0 {
			t.Errorf("netlink does not list %s", l.Name)
			continue
		}
		if n := s.Links[i]; n.Name != l.Name || n.Type != l.Type || n.MTU != l.MTU || n.Up != l.Up || n.Carrier != l.Carrier || l.Type == TypeEthernet && n.Addr.String() != l.Addr.String() {
			t.Errorf("netlink %+v\nsysfs   %+v", n, l)
		}
	}
	for _, g := range s.Incomplete {
		t.Logf("gap: %s: %s", g.What, g.Why)
	}
}

func BenchmarkReadThisMachine(b *testing.B) {
	r := New("/")
	defer r.Close()
	for b.Loop() {
		if _, err := r.Read(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func text(t testing.TB, name string) string { return hosttest.Read(t, "testdata/"+name+".txt") }

func read(t *testing.T, texts ...string) Snapshot {
	t.Helper()
	return readRoot(t, hosttest.Tree(t, texts...))
}

func readRoot(t *testing.T, root string) Snapshot {
	t.Helper()
	r := New(root)
	defer r.Close()
	s, err := r.Read(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hw(s string) HWAddr {
	var a HWAddr
	a.UnmarshalText([]byte(s))
	return a
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := json.MarshalIndent(got, "", " ")
	w, _ := json.MarshalIndent(want, "", " ")
	t.Errorf("%s: got\n%s\nwant\n%s", what, g, w)
}

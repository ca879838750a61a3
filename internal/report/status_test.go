package report

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibup/internal/bringup"
	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

var update = flag.Bool("update", false, "write the golden files")

const bdf = "0000:3b:00.0"

var (
	prefix = netip.MustParsePrefix("20.20.20.109/24")
	peer   = netip.MustParseAddr("20.20.20.107")
)

// node is a node on which ib0 is up; edit makes it another one.
func node(edit func(*host.Snapshot, *config.Config, *bringup.Journal)) Input {
	c := config.Default("ib0")
	c.Path = "/etc/ibup/ib0.conf"
	c.IPoIB.MTU = 4092
	c.Network.Addresses = []netip.Prefix{prefix}
	c.Verify.Ping = []netip.Addr{peer}
	c.Fallback.Routes = []config.Route{{Dest: prefix.Masked(), Via: netip.MustParseAddr("10.20.0.1"), Dev: "eno1", Metric: 200}}
	guid := uint64(0x506b4b0300a10000)
	s := host.Snapshot{
		Kernel: "3.10.0-1160.el7.x86_64",
		PCI:    []host.PCIFunction{{BDF: bdf, Vendor: 0x15b3, Device: 0x1017, Class: 0x020700, Driver: "mlx5_core", BAR0: true, IB: []string{"mlx5_0"}, Net: []string{"ib0"}}},
		IB: []host.IBDevice{{Name: "mlx5_0", BDF: bdf, NodeGUID: guid, Firmware: "16.35.2000", BoardID: "MT_0000000010", Ports: []host.Port{{
			Num: 1, GUID: guid, LinkLayer: "InfiniBand", State: "ACTIVE", PhysState: "LinkUp", LID: 2, SMLID: 1, Rate: "100 Gb/sec (4X EDR)", PKeys: []uint16{0xffff}}}}},
		Links: []host.Link{{Name: "ib0", Index: 4, Type: 32, Up: true, Carrier: true, MTU: 2044, BDF: bdf, PKey: 0xffff, Mode: "datagram", Driver: "mlx5_core[ib_ipoib]",
			Addr: make(host.HWAddr, 20), Addrs: []host.Addr{{Prefix: prefix}, {Prefix: netip.MustParsePrefix("fe80::1/64"), Tentative: true}}}},
		Routes: []host.Route{{Dest: prefix.Masked(), Dev: "ib0", Proto: 2}},
	}
	for _, m := range []string{"ib_core", "mlx5_core", "mlx5_ib", "ib_ipoib"} {
		s.Modules = append(s.Modules, host.Module{Name: m, State: "live"})
	}
	sec := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	j := &bringup.Journal{
		Version: 1, Interface: "ib0", Verdict: bringup.IsUp,
		Runs: []bringup.RunInfo{{PID: 412, Begin: sec(9), End: sec(14)}},
		Facts: bringup.Facts{
			Place: bringup.Place{BDF: bdf, Port: 1}, Carrier: 4, CarrierSince: sec(12),
			Asked: &bringup.MTUResult{Index: 4, Asked: 4092, Effective: 4092},
			Verified: &bringup.Verification{At: sec(14), Index: 4, OK: true, Peers: []bringup.PeerResult{{
				Peer: peer, Sent: 3, Received: 3, RTT: 310 * time.Microsecond, NextHop: peer, Neighbour: "REACHABLE", LLAddr: "80:00:00:48:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:b1:00:00"}}},
		},
		Steps: []bringup.Entry{
			{N: 1, Run: 1, Step: bringup.Step{Kind: bringup.LoadModules}, Begin: sec(9), End: sec(10.2)},
			{N: 2, Run: 1, Step: bringup.Step{Kind: bringup.SetUp}, Begin: sec(10.5), End: sec(10.52)},
			{N: 3, Run: 1, Step: bringup.Step{Kind: bringup.Verify}, Begin: sec(13.9), End: sec(14), Err: "x"},
		},
		History: []bringup.Change{{At: sec(11), Code: bringup.NoSM, Summary: "no subnet manager"}, {At: sec(14), Verdict: bringup.IsUp}},
	}
	if edit != nil {
		edit(&s, &c, j)
	}
	in := Input{
		Set: config.Set{Interfaces: []config.Config{c}}, Snapshot: s, Now: sec(60),
		Active: func(j *bringup.Journal) bool { return j.Runs[0].End == 0 },
		Fill:   func(_ config.Config, _ host.Snapshot, f bringup.Facts) bringup.Facts { return f },
		Fallback: func(_ string, f config.Fallback) (fallback.Report, error) {
			live := fallback.Absent
			for _, r := range s.Routes {
				if r.Proto == fallback.Protocol {
					live = fallback.Installed
				}
			}
			return fallback.Report{Routes: []fallback.Result{{Route: f.Routes[0], Live: live}}}, nil
		},
	}
	if j.Interface != "" {
		in.Journals = map[string]*bringup.Journal{"ib0": j}
	}
	return in
}

func noSM(s *host.Snapshot) {
	p := &s.IB[0].Ports[0]
	p.State, p.SMLID = "INIT", 0
	s.Links[0].Carrier = false
}

func TestText(t *testing.T) {
	tests := []struct {
		name  string
		state string
		edit  func(*host.Snapshot, *config.Config, *bringup.Journal)
	}{
		{"up", "up", nil},
		{"fallback", "fallback", func(s *host.Snapshot, c *config.Config, j *bringup.Journal) {
			noSM(s)
			j.Runs[0].End = 0
			s.Routes = []host.Route{{Dest: prefix.Masked(), Via: netip.MustParseAddr("10.20.0.1"), Dev: "eno1", Metric: 200, Proto: fallback.Protocol}}
		}},
		{"coming", "coming up", func(s *host.Snapshot, c *config.Config, j *bringup.Journal) {
			noSM(s)
			j.Runs[0].End = 0
			c.Fallback.Routes = nil
		}},
		{"nothing", "down", func(s *host.Snapshot, c *config.Config, j *bringup.Journal) {
			*s = host.Snapshot{Kernel: s.Kernel, Incomplete: []host.Gap{{What: "kernel log", Why: "operation not permitted"}}}
			*c = config.Default("ib0")
			j.Interface = ""
		}},
		{"ethernet", "down", func(s *host.Snapshot, c *config.Config, j *bringup.Journal) {
			s.IB[0].Ports[0].LinkLayer, s.IB[0].Ports[0].State = "Ethernet", "DOWN"
			s.PCI[0].Class = 0x020000
			s.Links = nil
			c.Fallback.Routes = nil
			c.Match.PCI = bdf
			j.Facts = bringup.Facts{}
		}},
		{"undone", "down", func(s *host.Snapshot, c *config.Config, j *bringup.Journal) {
			s.Links[0].Addrs = nil
			c.Fallback.Routes = nil
			s.PCI = append(s.PCI, host.PCIFunction{BDF: "0000:5e:00.0", Vendor: 0x15b3, Device: 0x101b, Class: 0x020700, Dead: true})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStatus(node(tt.edit))
			if got := s.Interfaces[0].State; got != tt.state {
				t.Errorf("state %q; want %q", got, tt.state)
			}
			var b strings.Builder
			if err := s.Text(&b, Style{Width: 100}); err != nil {
				t.Fatal(err)
			}
			for _, line := range strings.Split(b.String(), "\n") {
				if n := len([]rune(line)); n > 100 && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("line of %d columns: %s", n, line)
				}
			}
			if n := strings.Count(b.String(), "\n"); n > 40 {
				t.Errorf("%d lines are more than a screen", n)
			}
			golden(t, tt.name+".txt", b.String())
		})
	}
}

func TestJSON(t *testing.T) {
	b, err := json.MarshalIndent(NewStatus(node(nil)), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "up.json", string(b)+"\n")
}

// Colours are for terminals, and only the state has one.
func TestColor(t *testing.T) {
	var plain, color strings.Builder
	s := NewStatus(node(nil))
	s.Text(&plain, Style{})
	s.Text(&color, Style{Color: true})
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("colours without a terminal")
	}
	if !strings.Contains(color.String(), green+"up"+reset) {
		t.Error("no colour on a terminal")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update writes it):\n%s\nwant:\n%s", path, got, want)
	}
}

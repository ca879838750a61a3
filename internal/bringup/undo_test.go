package bringup

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ibup/internal/config"
	"ibup/internal/host"
)

// journalOf is the journal after a bring-up from a state, and the machine then.
func journalOf(t *testing.T, c config.Config, s State) (*Journal, State) {
	t.Helper()
	j := &Journal{Interface: c.Name, Runs: make([]RunInfo, 1)}
	for range 60 {
		step := Next(c, s)
		if step.Kind == Up || step.Kind == Rest {
			j.Facts = s.Facts
			if l := Target(c, s.Snapshot, s.Facts.Place); l != nil {
				j.Target = TargetInfo{Place: s.Facts.Place, Link: l.Name, Index: l.Index}
			}
			return j, s
		}
		if step.Kind != Wait {
			j.end(j.begin(step, s.Now), nil, s.Now)
		}
		s = Apply(c, step, s)
	}
	t.Fatal("the bring-up does not end")
	return nil, s
}

func TestUndo(t *testing.T) {
	gw := func(c *config.Config) { c.Network.Gateway = peer }
	kid := func(c *config.Config) { c.Name, c.IPoIB.PKey = "ib0.8001", 0x8001 }
	foreign := host.Addr{Prefix: netip.MustParsePrefix("192.0.2.9/24")}
	tests := []struct {
		name   string
		c      config.Config
		from   State
		after  func(*State)
		unload bool
		want   []string
		kept   string
	}{
		{"what was there stays", conf(), running(), nil, false, nil, ""},
		{"all of it, last first", conf(gw), healthy(), nil, false,
			[]string{"del route default via 20.20.20.107 on ib0", "del address 20.20.20.109/24 on ib0", "set down ib0"}, ""},
		{"only the address was ours", conf(), healthy(link(func(l *host.Link) { l.Up, l.Carrier = true, true })), nil, false,
			[]string{"del address 20.20.20.109/24 on ib0"}, ""},
		{"gone already", conf(), healthy(), func(s *State) { l := s.ib0(); l.Addrs, l.Up = nil, false }, false, nil, ""},
		{"a foreign address keeps it up", conf(), healthy(), func(s *State) { s.ib0().Addrs = append(s.ib0().Addrs, foreign) }, false,
			[]string{"del address 20.20.20.109/24 on ib0"}, "ib0 stays up: it has the address 192.0.2.9/24"},
		{"child", conf(kid), healthy(), nil, false,
			[]string{"del address 20.20.20.109/24 on ib0.8001", "set down ib0.8001", "set down ib0", "delete child ib0 key 0x8001"}, ""},
		{"child in use", conf(kid), healthy(), func(s *State) { l := linkByName(s.Snapshot, "ib0.8001"); l.Addrs = append(l.Addrs, foreign) }, false,
			[]string{"del address 20.20.20.109/24 on ib0.8001"}, "ib0.8001 stays: it has the address 192.0.2.9/24"},
		{"modules stay unasked", conf(), healthy(bare), nil, false, []string{"del address 20.20.20.109/24 on ib0", "set down ib0"}, ""},
		{"modules", conf(), healthy(bare), nil, true,
			[]string{"del address 20.20.20.109/24 on ib0", "set down ib0", "unload ib_ipoib, mlx5_ib, mlx5_core, ib_cm, ib_core"}, ""},
		{"modules that others need", conf(), healthy(bare), func(s *State) {
			s.PCI = append(s.PCI, function(bdf1))
			s.Links = append(s.Links, host.Link{Name: "eth9", Index: 9, Type: 1, Up: true, BDF: bdf1})
		}, true, []string{"del address 20.20.20.109/24 on ib0", "set down ib0"}, "the modules stay: eth9, of the same driver, is up"},
		{"the fallback too", conf(withFallback), healthy(noDevice, late), nil, false, []string{"withdraw the fallback route"}, ""},
		{"a replaced route comes back", conf(gw), healthy(route("0.0.0.0/0", "10.20.0.1", "eno1", 0, 3)), nil, false,
			[]string{"del route default via 20.20.20.107 on ib0", "replace route default via 10.20.0.1 on eno1", "del address 20.20.20.109/24 on ib0", "set down ib0"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, s := journalOf(t, tt.c, tt.from)
			if tt.after != nil {
				tt.after(&s)
			}
			steps, kept, refused := Undo(tt.c, j, s.Snapshot, tt.unload)
			if refused != nil {
				t.Fatalf("refused: %v", refused)
			}
			var got []string
			for _, step := range steps {
				got = append(got, step.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Undo:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if tt.kept == "" && len(kept) > 0 || tt.kept != "" && !slices.Contains(kept, tt.kept) {
				t.Errorf("kept %q; want %q", kept, tt.kept)
			}
		})
	}
}

func TestUndoRefuses(t *testing.T) {
	j, s := journalOf(t, conf(), healthy())
	for _, m := range []host.Mount{
		{Source: "20.20.20.107:/root", Target: "/", FSType: "nfs4", Options: "rw,addr=20.20.20.107"},
		{Source: "20.20.20.107:/home", Target: "/home", FSType: "nfs"},
		{Source: "//20.20.20.107/share", Target: "/share", FSType: "cifs"},
	} {
		s.Mounts = []host.Mount{m}
		if steps, _, refused := Undo(conf(), j, s.Snapshot, false); refused == nil || refused.Code != InUse || steps != nil {
			t.Errorf("with %s mounted: %v, %v", m.Source, steps, refused)
		}
	}
	s.Mounts = []host.Mount{{Source: "10.20.0.1:/home", Target: "/home", FSType: "nfs"}, {Source: "/dev/sda1", Target: "/", FSType: "xfs"}}
	if _, _, refused := Undo(conf(), j, s.Snapshot, false); refused != nil {
		t.Errorf("refused for mounts that go another way: %v", refused)
	}
}

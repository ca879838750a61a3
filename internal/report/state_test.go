package report

import (
	"testing"

	"ibup/internal/bringup"
	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

// What an interface is called does not depend on whether a process is at work on
// it, unless it is neither up nor on the fallback.
func TestState(t *testing.T) {
	c := config.Default("ib0")
	c.Fallback.Routes = make([]config.Route, 1)
	for _, x := range []struct {
		name         string
		live, active bool
		want         string
	}{
		{"nobody at work, no fallback", false, false, "down"},
		{"somebody at work, no fallback", false, true, "coming up"},
		{"on the fallback", true, false, "fallback"},
		{"on the fallback, watched", true, true, "fallback"},
	} {
		outcome := fallback.Absent
		if x.live {
			outcome = fallback.Installed
		}
		s := NewStatus(Input{
			Set:      config.Set{Interfaces: []config.Config{c}},
			Snapshot: host.Snapshot{},
			Journals: map[string]*bringup.Journal{"ib0": {Runs: []bringup.RunInfo{{PID: 1}}}},
			Active:   func(*bringup.Journal) bool { return x.active },
			Fallback: func(string, config.Fallback) (fallback.Report, error) {
				return fallback.Report{Routes: []fallback.Result{{Live: outcome}}}, nil
			},
			Fill: func(_ config.Config, _ host.Snapshot, f bringup.Facts) bringup.Facts { return f },
		})
		if got := s.Interfaces[0].State; got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

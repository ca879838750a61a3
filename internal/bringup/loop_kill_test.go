package bringup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"ibup/internal/config"
)

// Killed at any step, before or after it took effect, and started again: the same
// end, and no step that is not needed.
func TestLoopKilledAnywhere(t *testing.T) {
	c := conf(withFallback, pkey(0x8001), mode("connected"), mtu(4092), func(c *config.Config) {
		c.Name = "ib0.8001"
		c.Network.Gateway = peer
	})
	var whole []Step
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(c, healthy(bare))
		bring(t, m, dir, false)
		whole = m.done
	})
	if len(whole) < 8 {
		t.Fatalf("only %d steps: %v", len(whole), whole)
	}
	for n := range whole {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s %v", n, whole[n].Kind, effect), func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					m := newMachine(c, healthy(bare))
					ctx, cancel := context.WithCancel(t.Context())
					count := 0
					m.before = func(Step) (Result, bool) {
						if count++; count <= n+1-btoi(!effect) {
							return Result{}, false
						}
						cancel() // and this act never happens
						return Result{Err: errors.New("killed")}, true
					}
					d := deps(ctx, m, dir, &notes{}, false)
					Run(ctx, c, d)
					m.before = nil
					if out, _ := bring(t, m, dir, false); out.Verdict != IsUp {
						t.Fatalf("the second run = %+v", out)
					}
					seen := map[string]int{}
					for _, s := range m.done {
						if seen[s.key()]++; seen[s.key()] > 1 && s.Changes() {
							t.Errorf("%v was done twice: %v", s, m.done)
						}
					}
					if len(m.s.Links) != 3 {
						t.Errorf("links at the end: %+v", m.s.Links)
					}
				})
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestLoopStatusNamesStages(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(conf(), healthy(bare, func(s *State) {}))
		_, n := bring(t, m, dir, false)
		all := strings.Join(n.status, "\n")
		for _, want := range []string{"load ib_core", "set up ib0", "add address 20.20.20.109/24", "verify that 20.20.20.107", "up"} {
			if !strings.Contains(all, want) {
				t.Errorf("status lacks %q:\n%s", want, all)
			}
		}
	})
}

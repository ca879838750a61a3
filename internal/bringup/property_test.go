package bringup

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"ibup/internal/config"
	"ibup/internal/host"
)

// From any state, doing what Next says (on the model of a machine where each step
// works) ends in Up or in a reason, and no step is asked for twice.
func TestNextEndsFromAnyState(t *testing.T) {
	n := 8000
	if testing.Short() {
		n = 2000
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		c, s := randomConfig(r), randomState(r)
		steps, err := Plan(c, s)
		if err != nil {
			t.Fatalf("seed %d: %v: %v", seed, err, steps[len(steps)-5:])
		}
		seen := map[string]bool{}
		for i, step := range steps {
			if step.Kind == "" {
				t.Fatalf("seed %d: step %d is empty", seed, i)
			}
			if step.Changes() {
				if k := step.key(); seen[k] {
					t.Fatalf("seed %d: %v is asked for twice: %v", seed, step, steps)
				} else {
					seen[k] = true
				}
			}
			if (step.Kind == Wait || step.Kind == Rest || step.Kind == Fail) && (step.Reason == nil || step.Reason.Code == "" || step.Reason.Summary == "") {
				t.Fatalf("seed %d: %v has no reason", seed, step)
			}
		}
		if len(steps) > 40 {
			t.Fatalf("seed %d: %d steps: %v", seed, len(steps), steps)
		}
	}
}

// What is up stays up without another step, on any machine that got there.
func TestUpIsIdempotent(t *testing.T) {
	for seed := range 3000 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		c, s := randomConfig(r), randomState(r)
		for range 100 {
			step := Next(c, s)
			if step.Kind == Up {
				s = Apply(c, step, s)
				if again := Next(c, s); again.Kind != Up {
					t.Fatalf("seed %d: after up: %v", seed, again)
				}
				break
			}
			s = Apply(c, step, s)
		}
	}
}

// Next reads its arguments and no more: asked twice it says the same.
func TestNextIsPure(t *testing.T) {
	for seed := range 2000 {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		c, s := randomConfig(r), randomState(r)
		before := fmt.Sprintf("%+v", s)
		a, b := Next(c, s), Next(c, s)
		if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) || a.String() != b.String() {
			t.Fatalf("seed %d: %v, then %v", seed, a, b)
		}
		if after := fmt.Sprintf("%+v", s); after != before {
			t.Fatalf("seed %d: the state was changed:\n%s\n%s", seed, before, after)
		}
	}
}

func pick1[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func randomConfig(r *rand.Rand) config.Config {
	return conf(func(c *config.Config) {
		c.Match = pick1(r, config.Match{}, config.Match{}, config.Match{PCI: bdf0}, config.Match{PCI: bdf1},
			config.Match{PortGUID: guid0}, config.Match{PortGUID: guid1}, config.Match{Device: "mlx5_0"}, config.Match{Port: 2})
		c.IPoIB.PKey = pick1[uint16](r, 0xffff, 0xffff, 0x8001, 0x8002)
		c.IPoIB.Mode = pick1(r, "", config.ModeDatagram, config.ModeConnected)
		c.IPoIB.MTU = pick1(r, 0, 2044, 4092, 65520)
		if r.IntN(3) == 0 {
			c.Network.Addresses = append(c.Network.Addresses, netip.MustParsePrefix("fd00::109/64"))
		}
		if r.IntN(3) == 0 {
			c.Network.Gateway = netip.MustParseAddr("20.20.20.1")
			c.Network.Routes = []config.Route{{Dest: netip.MustParsePrefix("30.30.0.0/16"), Via: netip.MustParseAddr("20.20.20.2"), Metric: 50}}
		}
		if r.IntN(2) == 0 {
			c.Verify.Ping = nil
		}
		if r.IntN(2) == 0 {
			withFallback(c)
			c.Fallback.Persist = r.IntN(2) == 0
		}
	})
}

func randomState(r *rand.Rand) State {
	s := State{Snapshot: host.Snapshot{Kernel: "3.10.0-1160.el7"}, Now: time.Duration(r.IntN(100)) * time.Second}
	s.Deadline = s.Now + time.Duration(r.IntN(3))*30*time.Second
	s.Links = append(s.Links, eno1())
	for _, m := range needed() {
		if r.IntN(4) > 0 {
			s.Modules = append(s.Modules, host.Module{Name: m, State: pick1(r, "live", "live", "live", "builtin", "coming")})
		} else {
			s.Facts.Modules.Load = append(s.Facts.Modules.Load, m)
		}
	}
	if r.IntN(20) == 0 {
		s.Facts.Modules = ModulePlan{Problem: because(ModMissing, nil)}
	}
	s.ModulesDisabled = r.IntN(30) == 0
	index := 2
	for i, bdf := range []string{bdf0, bdf1} {
		if r.IntN(8) == 0 {
			continue
		}
		f := host.PCIFunction{BDF: bdf, Device: pick1[uint16](r, 0x1017, 0x101b, 0x1003), Class: pick1[uint32](r, 0x020700, 0x020700, 0x020000),
			BAR0: r.IntN(10) > 0, Dead: r.IntN(20) == 0, Driver: pick1(r, "", driverName, driverName, driverName, "vfio-pci")}
		f.BAR0 = f.BAR0 || f.Driver == driverName // it would not have bound
		if r.IntN(3) == 0 {
			f.Probe = &host.Probe{Err: pick1(r, "", "mlx5_core: Firmware over 10000 MS in pre-initializing state, aborting", "enable hca failed"), Waiting: r.IntN(3) == 0, Dying: r.IntN(3) == 0}
		}
		if r.IntN(10) == 0 {
			f.PhysFn = "0000:3a:00.0"
		}
		s.PCI = append(s.PCI, f)
		if f.Driver != driverName || r.IntN(4) == 0 {
			continue
		}
		d := device(fmt.Sprintf("mlx5_%d", i), bdf, guid0+uint64(i))
		p := &d.Ports[0]
		p.LinkLayer = pick1(r, "InfiniBand", "InfiniBand", "InfiniBand", "Ethernet", "")
		p.State = pick1(r, "ACTIVE", "ACTIVE", "INIT", "DOWN", "ARMED")
		p.PhysState = pick1(r, "LinkUp", "Polling", "Disabled", "PortConfigurationTraining")
		p.PKeys = pick1(r, []uint16{0xffff}, []uint16{0x7fff, 0x8001}, []uint16{0xffff, 0x8001, 2}, nil)
		s.IB = append(s.IB, d)
		if p.LinkLayer != "InfiniBand" || r.IntN(5) == 0 {
			continue
		}
		index++
		l := ibLink(pick1(r, "ib0", "ib1", "ibp59s0"), index, bdf)
		if linkByName(s.Snapshot, l.Name) != nil {
			l.Name = fmt.Sprintf("ibx%d", index)
		}
		randomLink(r, &s, &l)
		parent := l
		s.Links = append(s.Links, l)
		if r.IntN(3) == 0 {
			index++
			l := ibLink(parent.Name+".8001", index, bdf)
			l.Parent, l.PKey = parent.Index, 0x8001
			randomLink(r, &s, &l)
			s.Links = append(s.Links, l)
		}
	}
	if r.IntN(10) == 0 && linkByName(s.Snapshot, "ib0") == nil {
		s.Links = append(s.Links, host.Link{Name: "ib0", Index: 90, Type: 1, Kind: pick1(r, "", "dummy", "vlan"), Up: r.IntN(2) == 0})
	}
	if r.IntN(5) == 0 {
		s.Routes = append(s.Routes, host.Route{Dest: prefix.Masked(), Via: netip.MustParseAddr("10.20.0.1"), Dev: "eno1", Metric: 200, Proto: pick1(r, 73, 3)})
	}
	if r.IntN(10) == 0 {
		s.Facts.InFlight = &Step{Kind: pick1(r, LoadModules, BindDriver, Verify, SetUp), Modules: []string{"mlx5_core"}, Index: 3, BDF: bdf1}
		if r.IntN(2) == 0 {
			s.Facts.Verified = &Verification{Peers: []PeerResult{{Peer: peer, Sent: 3}}}
		}
	}
	if r.IntN(10) == 0 {
		s.Facts.Verdict = pick1(r, IsUp, Fallback)
	}
	s.Facts.EnhancedParam = r.IntN(2) == 0
	return s
}

func randomLink(r *rand.Rand, s *State, l *host.Link) {
	l.Mode = pick1(r, "datagram", "connected", "")
	l.MTU = pick1(r, 2044, 4092, 1500)
	if r.IntN(2) == 0 {
		l.Addr = append(host.HWAddr{0}, l.Addr[1:]...)
	}
	if r.IntN(2) == 0 {
		l.Up = true
		l.Carrier = r.IntN(2) == 0
	}
	if l.Up && r.IntN(3) == 0 {
		p := pick1(r, prefix, netip.MustParsePrefix("192.0.2.1/24"))
		l.Addrs = append(l.Addrs, host.Addr{Prefix: p, Tentative: r.IntN(5) == 0, DADFailed: r.IntN(20) == 0})
		if r.IntN(3) > 0 {
			s.Routes = append(s.Routes, host.Route{Dest: p.Masked(), Dev: l.Name, Proto: 2})
		}
	}
}

// While the interface is not proven, packets for the fallback's network go by the
// fallback, at every step from its installation until the interface works.
func TestNeverUnreachable(t *testing.T) {
	checked := 0
	for seed := range 6000 {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		c, s := randomConfig(r), randomState(r)
		withFallback(&c)
		s.Facts.Verdict = Pending
		for range 60 {
			step := Next(c, s)
			if step.Kind == Up || step.Kind == Fail {
				break
			}
			// Taking the shadow away is the step between.
			if s.Facts.Verdict == Fallback && step.Kind != DelRoute && step.Kind != Install {
				checked++
				// An interface that somebody else gave the address is left alone.
				if target := Target(c, s.Snapshot, s.Facts.Place); slices.ContainsFunc(s.Links, func(l host.Link) bool {
					return hasAddr(l, prefix) && (target == nil || l.Index != target.Index)
				}) {
					break
				}
				if way := wayTo(s.Snapshot, peer); way != "eno1" && !proven(c, s) {
					t.Fatalf("seed %d: before %v the way is %q: %+v", seed, step, way, s.Routes)
				}
			}
			resting := step.Kind == Rest && step.Reason.Pointless
			if s = Apply(c, step, s); resting {
				break
			}
		}
	}
	t.Logf("%d states on the fallback", checked)
	if checked < 1000 {
		t.Errorf("only %d states were on the fallback", checked)
	}
}

// proven tells whether the interface works as far as the configuration asks.
func proven(c config.Config, s State) bool {
	l := Target(c, s.Snapshot, s.Facts.Place)
	if l == nil || !l.Carrier {
		return false
	}
	if v := s.Facts.Verified; len(c.Verify.Ping) > 0 {
		return v != nil && v.OK && v.Index == l.Index
	}
	return s.Facts.Carrier == l.Index && s.Now >= s.Facts.CarrierSince+stableFor
}

package bringup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ibup/internal/config"
	"ibup/internal/host"
)

// machine is a machine in memory that reacts to steps as the model says.
type machine struct {
	mu      sync.Mutex
	c       config.Config
	s       State
	changes chan struct{}
	done    []Step                          // steps that were done, in order
	before  func(Step) (Result, bool)       // may answer for the machine
	read    func(context.Context, *machine) // may hang
	start   time.Time
}

func newMachine(c config.Config, s State) *machine {
	s.Facts = Facts{Modules: s.Facts.Modules}
	return &machine{c: c, s: s, changes: make(chan struct{}, 1), start: time.Now()}
}

func (m *machine) now() time.Duration { return 10*time.Second + time.Since(m.start) }

func (m *machine) snapshot(ctx context.Context) (host.Snapshot, error) {
	if m.read != nil {
		m.read(ctx, m)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return clone(m.s.Snapshot), ctx.Err()
}

func (m *machine) network(context.Context) (host.NetDump, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := clone(m.s.Snapshot)
	return host.NetDump{Links: s.Links, Routes: s.Routes}, nil
}

// change lets something happen, with an event.
func (m *machine) change(f func(*State)) {
	m.mu.Lock()
	f(&m.s)
	m.mu.Unlock()
	select {
	case m.changes <- struct{}{}:
	default:
	}
}

func (m *machine) do(_ context.Context, c config.Config, _ State, step Step) Result {
	if m.before != nil {
		if res, answered := m.before(step); answered {
			return res
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = append(m.done, step)
	m.s.Now = m.now()
	place, verified := m.s.Facts.Place, m.s.Facts.Verified
	m.s = Apply(c, step, m.s)
	res := Result{MTU: step.MTU, Verified: m.s.Facts.Verified, FallbackFiles: m.s.Facts.FallbackFiles}
	if step.Kind != Verify {
		res.Verified = verified
	}
	m.s.Facts.Place = place
	return res
}

func (m *machine) surroundings(_ config.Config, s host.Snapshot, f Facts) Facts {
	f.Modules = ModulePlan{}
	for _, n := range needed() {
		if !hasModule(s, n) {
			f.Modules.Load = append(f.Modules.Load, n)
		}
	}
	return f
}

func (m *machine) kinds() []Kind {
	m.mu.Lock()
	defer m.mu.Unlock()
	var k []Kind
	for _, s := range m.done {
		k = append(k, s.Kind)
	}
	return k
}

// notes collects what a run tells.
type notes struct {
	mu      sync.Mutex
	events  []Event
	at      []time.Time
	status  []string
	settled int
}

func (n *notes) log(e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
	n.at = append(n.at, time.Now())
}

func (n *notes) notify(_, status string, settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = append(n.status, status)
	if settled {
		n.settled++
	}
}

// since is when something was told, after start; -1: never.
func (n *notes) when(start time.Time, match func(Event) bool) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, e := range n.events {
		if match(e) {
			return n.at[i].Sub(start)
		}
	}
	return -1
}

func verdict(v Verdict) func(Event) bool {
	return func(e Event) bool { return e.Kind == Settled && e.Verdict == v }
}

func ended1(k Kind) func(Event) bool {
	return func(e Event) bool { return e.Kind == StepEnd && e.Step.Kind == k }
}

func deps(ctx context.Context, m *machine, dir string, n *notes, stay bool) Deps {
	o := NewObserver(m.snapshot, m.changes, m.now)
	go o.Run(ctx)
	return Deps{
		Observer: o, Do: m.do, Surroundings: m.surroundings, Set: []config.Config{m.c},
		Network: m.network, Store: Store{Dir: dir, BootID: "boot"}, Now: m.now, Notify: n.notify, Log: n.log, Stay: stay,
	}
}

// bring runs a machine's interface to the end.
func bring(t *testing.T, m *machine, dir string, stay bool) (Outcome, *notes) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := &notes{}
	out, err := Run(ctx, m.c, deps(ctx, m, dir, n, stay))
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return out, n
}

func TestLoopFromNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(conf(mode("connected"), mtu(65520), withFallback), healthy(bare))
		out, n := bring(t, m, dir, true)
		if out.Verdict != IsUp {
			t.Fatalf("Run = %+v", out)
		}
		want := []Kind{LoadModules, SetMTU, SetUp, AddAddress, Verify}
		if got := m.kinds(); !slices.Equal(got, want) {
			t.Errorf("steps %v; want %v", got, want)
		}
		if n.settled != 1 || n.status[len(n.status)-1] != "up" {
			t.Errorf("status %q, settled %d times", n.status, n.settled)
		}
		j, err := Store{Dir: dir, BootID: "boot"}.Read("ib0")
		if err != nil {
			t.Fatal(err)
		}
		if j.Verdict != IsUp || j.Target.Link != "ib0" || j.Target.BDF != bdf0 || len(j.Steps) != len(want) || len(j.Runs) != 1 || j.Runs[0].End == 0 {
			t.Errorf("journal: %+v", j)
		}
		if len(j.Notes) != 2 || j.Notes[0].Code != ModeImpossible || j.Notes[1].Code != MTULimited {
			t.Errorf("notes: %+v", j.Notes)
		}
		for _, e := range j.Steps {
			if e.End < e.Begin || e.Begin == 0 || e.Text == "" {
				t.Errorf("entry %+v", e)
			}
		}
	})
}

func TestLoopNothingToDo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(conf(), running())
		for range 3 {
			if out, _ := bring(t, m, dir, false); out.Verdict != IsUp {
				t.Fatalf("Run = %+v", out)
			}
		}
		if got := m.kinds(); !slices.Equal(got, []Kind{Verify, Verify, Verify}) {
			t.Errorf("steps %v; want nothing but the proof", got)
		}
	})
}

func TestLoopFallbackAndBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newMachine(conf(withFallback), healthy(func(s *State) {
			s.port0().State = "INIT"
		}))
		time.AfterFunc(90*time.Second, func() {
			m.change(func(s *State) {
				s.port0().State = "ACTIVE"
				s.ib0().Carrier = true
			})
		})
		out, n := bring(t, m, dir, true)
		if out.Verdict != IsUp {
			t.Fatalf("Run = %+v", out)
		}
		if at := n.when(start, verdict(Fallback)); at < 60*time.Second || at > 62*time.Second {
			t.Errorf("on the fallback after %v; want 60 s", at)
		}
		if at := n.when(start, verdict(IsUp)); at < 90*time.Second || at > 95*time.Second {
			t.Errorf("up after %v; want soon after 90 s", at)
		}
		// The connected route must go while there is no carrier, and be back before
		// the fallback goes.
		want := []Kind{SetUp, AddAddress, Install, DelRoute, Verify, ReplaceRoute, Withdraw}
		if got := m.kinds(); !slices.Equal(got, want) {
			t.Errorf("steps %v; want %v", got, want)
		}
		if !hasRoute(m.s.Snapshot, Route{Dest: prefix.Masked()}, "ib0") || fallbackLive(m.c, m.s.Snapshot) {
			t.Errorf("routes at the end: %+v", m.s.Routes)
		}
	})
}

func TestLoopPointlessReasonIsFast(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newMachine(conf(withFallback), healthy(func(s *State) {
			s.port0().LinkLayer = "Ethernet"
			s.Links = s.Links[:1]
		}))
		out, n := bring(t, m, dir, false)
		if out.Verdict != Fallback || out.Reason.Code != PortEthernet {
			t.Fatalf("Run = %+v", out)
		}
		if at := n.when(start, ended1(Install)); at < 0 || at > 2*time.Second {
			t.Errorf("fallback after %v", at)
		}
	})
}

func TestLoopDriverHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newMachine(conf(withFallback), healthy(bare))
		m.before = func(s Step) (Result, bool) {
			if s.Kind == LoadModules {
				time.Sleep(120 * time.Second)
			}
			return Result{}, false
		}
		out, n := bring(t, m, dir, true)
		if out.Verdict != IsUp {
			t.Fatalf("Run = %+v", out)
		}
		if at := n.when(start, verdict(Fallback)); at < 60*time.Second || at > 62*time.Second {
			t.Errorf("on the fallback after %v; want 60 s though the driver hangs", at)
		}
		if at := n.when(start, verdict(IsUp)); at < 120*time.Second || at > 125*time.Second {
			t.Errorf("up after %v", at)
		}
	})
}

// A look that does not come back, the first or a later one, ends on the fallback
// like every other trouble, and the fallback is installed once.
func TestLoopMachineDoesNotAnswer(t *testing.T) {
	for _, answered := range []int{0, 1} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			m := newMachine(conf(withFallback), running())
			reads := 0
			m.read = func(ctx context.Context, _ *machine) {
				if reads++; reads > answered {
					select {
					case <-ctx.Done():
					case <-time.After(300 * time.Second):
					}
				}
			}
			m.before = func(s Step) (Result, bool) {
				return Result{Err: errors.New("no answer"), Verified: &Verification{Index: 3}}, s.Kind == Verify
			}
			out, n := bring(t, m, dir, false)
			if out.Verdict != Fallback || out.Reason.Code != FWSilent {
				t.Fatalf("%d looks: Run = %+v", answered, out)
			}
			if at := n.when(start, ended1(Install)); at < 60*time.Second || at > 63*time.Second {
				t.Errorf("%d looks: fallback after %v", answered, at)
			}
			if got := m.kinds(); count(got, Install) != 1 {
				t.Errorf("%d looks: steps %v", answered, got)
			}
		})
	}
}

func count(all []Kind, k Kind) int {
	n := 0
	for _, x := range all {
		if x == k {
			n++
		}
	}
	return n
}

func TestLoopFallbackNotPossibleYet(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newMachine(conf(withFallback), healthy(func(s *State) { bare(s); s.PCI = nil }))
		m.before = func(s Step) (Result, bool) {
			if s.Kind == Install && time.Since(start) < 20*time.Second {
				return Result{Err: fmt.Errorf("eno1: %w", unix.ENETUNREACH)}, true
			}
			return Result{}, false
		}
		out, n := bring(t, m, dir, false)
		if out.Verdict != Fallback || out.Reason.Code != PCIAbsent {
			t.Fatalf("Run = %+v", out)
		}
		if at := n.when(start, verdict(Fallback)); at > 50*time.Second {
			t.Errorf("fallback after %v", at)
		}
		tries := 0
		for _, e := range n.events {
			if e.Kind == StepBegin && e.Step.Kind == Install {
				tries++
			}
		}
		if tries > 9 {
			t.Errorf("%d tries in 20 s", tries)
		}
	})
}

func TestLoopNoFallbackFails(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(conf(), healthy(func(s *State) { s.port0().State, s.port0().PhysState = "DOWN", "Polling" }))
		out, _ := bring(t, m, dir, true)
		if out.Verdict != Failed || out.Reason.Code != NoCable {
			t.Fatalf("Run = %+v", out)
		}
	})
}

func TestLoopLaterLoss(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := conf(withFallback)
		c.Boot.Watch = config.WatchAlways
		m := newMachine(c, running())
		ctx, cancel := context.WithCancel(t.Context())
		n := &notes{}
		start := time.Now()
		carrier := func(on bool) func() {
			return func() {
				m.change(func(s *State) {
					s.ib0().Carrier = on
					s.port0().State = map[bool]string{true: "ACTIVE", false: "INIT"}[on]
				})
			}
		}
		time.AfterFunc(100*time.Second, carrier(false)) // short: tolerated
		time.AfterFunc(105*time.Second, carrier(true))
		time.AfterFunc(200*time.Second, carrier(false)) // long
		time.AfterFunc(300*time.Second, carrier(true))
		time.AfterFunc(400*time.Second, cancel)
		out, err := Run(ctx, c, deps(ctx, m, dir, n, true))
		if err != nil || out.Verdict != IsUp || out.Interrupted {
			t.Fatalf("Run = %+v, %v", out, err)
		}
		if at := n.when(start, verdict(Fallback)); at < 210*time.Second || at > 213*time.Second {
			t.Errorf("on the fallback at %v; want 210 s", at)
		}
		var verdicts []Verdict
		for _, e := range n.events {
			if e.Kind == Settled {
				verdicts = append(verdicts, e.Verdict)
			}
		}
		if !slices.Equal(verdicts, []Verdict{IsUp, Fallback, IsUp}) {
			t.Errorf("verdicts %v", verdicts)
		}
	})
}

func TestLoopInterrupted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(conf(withFallback), healthy(bare))
		ctx, cancel := context.WithCancel(t.Context())
		m.before = func(s Step) (Result, bool) {
			if s.Kind == LoadModules {
				time.Sleep(30 * time.Second)
			}
			return Result{}, false
		}
		n := &notes{}
		start := time.Now()
		time.AfterFunc(5*time.Second, cancel)
		out, err := Run(ctx, m.c, deps(ctx, m, dir, n, true))
		if err != nil || !out.Interrupted || out.Verdict != Pending {
			t.Fatalf("Run = %+v, %v", out, err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("ended after %v; want to wait for the driver, and no longer", d)
		}
		if got := m.kinds(); !slices.Equal(got, []Kind{LoadModules}) {
			t.Errorf("steps %v", got)
		}
	})
}

// Two at once: the second reports what the first finds.
func TestLoopTwoAtOnce(t *testing.T) {
	dir := t.TempDir()
	m := newMachine(conf(withFallback), healthy(bare))
	hold := make(chan struct{})
	m.before = func(s Step) (Result, bool) {
		if s.Kind == LoadModules {
			<-hold
		}
		return Result{}, false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	outs := make([]Outcome, 5)
	for i := range outs {
		d := deps(ctx, m, dir, &notes{}, true)
		all.Go(func() { outs[i], _ = Run(ctx, m.c, d) })
	}
	close(hold)
	all.Wait()
	for i, out := range outs {
		if out.Verdict != IsUp {
			t.Errorf("run %d: %+v", i, out)
		}
	}
	changes := 0
	for _, k := range m.kinds() {
		if k != Verify {
			changes++
		}
	}
	if changes != 3 {
		t.Errorf("steps %v; want one load, one up, one address", m.kinds())
	}
}

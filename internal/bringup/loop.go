package bringup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"ibup/internal/config"
	"ibup/internal/host"
)

// Deps are the surroundings of a run.
type Deps struct {
	Observer *Observer
	// Do does a step that Changes, or verifies. It may take as long as a driver
	// waits for firmware, and returns at ctx's end only if that is harmless.
	Do func(ctx context.Context, c config.Config, s State, step Step) Result
	// Surroundings fills in the facts that neither snapshot nor journal have.
	Surroundings func(c config.Config, s host.Snapshot, f Facts) Facts
	Set          []config.Config // all interfaces of the machine
	// Network lists links and routes, which needs no firmware: for when a look at
	// all of the machine hangs.
	Network func(context.Context) (host.NetDump, error)
	Store   Store
	Now     func() time.Duration // since boot
	Notify  func(iface, status string, settled bool)
	Log     func(Event)
	// Stay: stay on the fallback, or for good with Watch=always, as Boot.Watch
	// says. Without it a run ends with its first verdict.
	Stay bool
}

// Event is what a run tells while it goes on.
type Event struct {
	Iface string
	Kind  EventKind
	Step  Step          // StepBegin, StepEnd
	Took  time.Duration // StepEnd
	Err   error         // StepEnd, Trouble
	// Waiting: the Reason. Settled: the Verdict, its Reason if it is not IsUp.
	Reason  *Reason
	Verdict Verdict
}

// EventKind is a kind of Event.
type EventKind string

// Kinds of events.
const (
	StepBegin EventKind = "begin"
	StepEnd   EventKind = "end"
	Waiting   EventKind = "wait"
	Settled   EventKind = "verdict"
	Noted     EventKind = "note"
	Trouble   EventKind = "trouble" // the run goes on without something, the journal for instance
)

// Outcome is what a run came to.
type Outcome struct {
	Verdict Verdict
	Reason  *Reason
	Notes   []Reason
	// Interrupted: ctx ended before there was a verdict.
	Interrupted bool
}

const (
	pace     = time.Second     // between looks while something is awaited: port states send no event
	restPace = 2 * time.Second // the same on the fallback
	upPace   = 10 * time.Second
	// lossGrace is how long an interface that was up may be without carrier or
	// peer before the fallback: a subnet manager's restart is shorter.
	lossGrace = 10 * time.Second
	// silence is how long a look at the machine may take. It takes milliseconds, or
	// a minute for each command that the firmware does not answer.
	silence = 5 * time.Second
)

// run is one interface's run.
type run struct {
	Deps
	cfg     config.Config
	journal *Journal

	state    State
	begin    time.Duration
	lost     time.Duration // since when an interface that was up is not; 0: it is
	settled  bool
	inFlight *Step
	since    time.Duration // when inFlight began
	done     chan ended
	fresh    int // the number of the first look to decide by
	reason   *Reason
	held     map[string]Place // by other interfaces, as of heldAt
	heldAt   time.Duration
	network  chan host.NetDump // of a listing under way; nil: none is
}

type ended struct {
	n    int
	step Step
	res  Result
	took time.Duration
}

// Run brings an interface up, until the first verdict or, with Stay, as long as
// the configuration says. It holds the interface's lock meanwhile; the verdict of
// another process that has it is returned as its own. When ctx ends everything
// stays as it is; an act that is under way is waited for, because a driver's start
// that is broken off leaves the card without one.
func Run(ctx context.Context, c config.Config, d Deps) (Outcome, error) {
	release, theirs, err := d.Store.Acquire(ctx, c.Name, d.Stay)
	switch {
	case ctx.Err() != nil:
		return Outcome{Interrupted: true}, nil
	case err != nil:
		return Outcome{Verdict: Failed}, fmt.Errorf("%s: %w", c.Name, err)
	case theirs != nil:
		out := Outcome{Verdict: theirs.Verdict, Reason: theirs.Reason, Notes: theirs.Notes}
		d.Log(Event{Iface: c.Name, Kind: Settled, Verdict: out.Verdict, Reason: out.Reason})
		d.Notify(c.Name, text(out.Verdict, out.Reason), true)
		return out, nil
	}
	defer release()
	r := &run{Deps: d, cfg: c, done: make(chan ended, 1)}
	return r.loop(ctx), nil
}

func (r *run) loop(ctx context.Context) Outcome {
	looks := r.Observer.Subscribe()
	r.open()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.close(true)
		case e := <-r.done:
			r.finish(e)
			continue
		case <-tick.C:
			r.Observer.Refresh()
		case <-looks:
		}
		again, over := r.decide(ctx)
		if over {
			return r.close(false)
		}
		if again > 0 {
			tick.Reset(again)
		}
	}
}

// open begins the journal, on what earlier runs of this boot left.
func (r *run) open() {
	r.begin = r.Now()
	j, err := r.Store.Read(r.cfg.Name)
	if err != nil {
		if !errors.Is(err, ErrNoJournal) {
			r.trouble(err)
		}
		j = &Journal{Version: JournalVersion, Interface: r.cfg.Name, BootID: r.Store.BootID}
	}
	j.Verdict, j.Reason = Pending, nil
	j.Runs = append(j.Runs, RunInfo{PID: os.Getpid(), Begin: r.begin, Watches: r.Stay && r.cfg.Boot.Watch != config.WatchNever})
	j.Runs = j.Runs[max(0, len(j.Runs)-maxRuns):]
	r.journal = j
	r.state.Facts = j.Facts
	// Every run tries and proves anew.
	r.state.Facts.Verdict, r.state.Facts.Attempts, r.state.Facts.Verified = Pending, nil, nil
	// What was seen while another process was at it is no basis.
	r.fresh = r.Observer.Refresh()
	r.write()
	r.Notify(r.cfg.Name, "starting", false)
}

// close ends the run. An act under way is waited for.
func (r *run) close(interrupted bool) Outcome {
	if r.inFlight != nil {
		r.Notify(r.cfg.Name, "waiting for the kernel to finish: "+r.inFlight.String(), false)
		r.finish(<-r.done)
	}
	r.journal.Runs[len(r.journal.Runs)-1].End = r.Now()
	r.write()
	return Outcome{Verdict: r.journal.Verdict, Reason: r.journal.Reason, Notes: r.journal.Notes,
		Interrupted: interrupted && r.journal.Verdict == Pending}
}

// look takes in the last look at the machine. False: there is none new enough to
// decide by.
func (r *run) look() bool {
	v, since, err := r.Observer.Last()
	now := r.Now()
	r.state.Now = now
	r.state.Facts.Silent = 0
	if err != nil {
		r.trouble(err)
		return false
	}
	if v.N == 0 || v.N < r.fresh {
		// The firmware may have stopped answering: then go by the last look.
		if since < silence {
			return false
		}
		r.state.Facts.Silent = since
		v.Snapshot = r.listNetwork(v)
	}
	s := &r.state
	s.Snapshot = v.Snapshot
	s.Claims = r.claims(v.Snapshot)
	s.Facts = Observe(s.Facts, r.cfg, v.Snapshot, s.Claims, now)
	s.Facts = r.Surroundings(r.cfg, v.Snapshot, s.Facts)
	s.Facts.InFlight = r.inFlight
	return true
}

// listNetwork brings links and routes of an old look up to date, or gives those
// alone where there is none: whether the fallback is in place must be seen. The
// kernel may hold the network back as well, so it gets its time and no more.
func (r *run) listNetwork(v View) host.Snapshot {
	if r.network == nil {
		c := make(chan host.NetDump, 1)
		r.network = c
		go func() {
			d, _ := r.Network(context.Background()) // without links it is of no use
			c <- d
		}()
	}
	select {
	case d := <-r.network:
		r.network = nil
		if len(d.Links) > 0 {
			v.Routes = d.Routes
		}
		if len(v.Links) == 0 {
			v.Links = d.Links
		}
	case <-time.After(pace):
	}
	return v.Snapshot
}

// claims are the ports of the other interfaces.
func (r *run) claims(s host.Snapshot) []Claim {
	if len(r.Set) < 2 {
		return nil
	}
	// What other processes hold changes when they begin, not with every event.
	if now := r.Now(); r.held == nil || now >= r.heldAt+pace {
		r.held, r.heldAt = r.Store.Held(), now
	}
	held := maps.Clone(r.held)
	if r.state.Facts.Place != (Place{}) {
		held[r.cfg.Name] = r.state.Facts.Place
	}
	return slices.DeleteFunc(Assign(r.Set, s, held), func(c Claim) bool { return c.Name == r.cfg.Name })
}

// decide asks Next and starts what it says. It returns when to look again, and
// whether the run is over.
func (r *run) decide(ctx context.Context) (again time.Duration, over bool) {
	if !r.look() {
		return pace, false
	}
	s := &r.state
	s.Deadline = r.deadline()
	step := Next(r.cfg, *s)
	if s.Facts.Verdict == IsUp {
		switch {
		case step.Kind == Up:
			r.lost = 0
		case r.lost == 0:
			r.lost = s.Now
		}
	}
	switch step.Kind {
	case Wait, Rest:
		// Most acts are over before anybody can read about them.
		if r.inFlight == nil || s.Now >= r.since+pace {
			r.waitFor(step)
		}
		if step.Kind == Rest {
			over = r.settle(Fallback, step.Reason)
		} else if s.Now >= s.Deadline {
			over = r.settle(Failed, step.Reason)
		}
		return r.until(step), over
	case Up:
		return upPace, r.settle(IsUp, nil)
	case Fail:
		return pace, r.settle(Failed, step.Reason)
	}
	r.act(ctx, step)
	return pace, false
}

// deadline is when waiting is over.
func (r *run) deadline() time.Duration {
	d := r.begin + r.cfg.Boot.Timeout
	if r.state.Facts.Verdict == IsUp {
		since := r.lost
		if since == 0 {
			since = r.state.Now
		}
		d = since + lossGrace
	}
	// The first question to the peers is let end: its answer is the reason.
	if f := r.inFlight; f != nil && f.Kind == Verify && r.state.Facts.Verified == nil {
		d = max(d, r.since+pings*pingWait+time.Second)
	}
	return d
}

func (r *run) until(step Step) time.Duration {
	d := pace
	if step.Kind == Rest {
		d = restPace
	}
	if step.Until > 0 {
		d = min(d, max(step.Until-r.state.Now, time.Millisecond))
	}
	return d
}

// act does a step. The fallback is not kept waiting by an act that hangs, so it is
// done here and now; the rest is done beside the loop.
func (r *run) act(ctx context.Context, step Step) {
	n := r.journal.begin(step, r.Now())
	r.write()
	r.Log(Event{Iface: r.cfg.Name, Kind: StepBegin, Step: step})
	if !r.settled {
		r.reason = nil
		r.Notify(r.cfg.Name, step.String(), false)
	}
	// Not ctx: a step that has begun is finished, so that its end is known.
	ctx = context.WithoutCancel(ctx)
	do := func(s State) ended {
		begin := r.Now()
		res := r.Do(ctx, r.cfg, s, step)
		return ended{n, step, res, r.Now() - begin}
	}
	if step.Kind == Install || step.Kind == DelRoute {
		r.record(do(r.state))
		return
	}
	r.inFlight, r.since = &step, r.Now()
	s := r.state
	go func() { r.done <- do(s) }()
}

func (r *run) finish(e ended) {
	r.inFlight = nil
	r.record(e)
}

// record takes in what became of a step.
func (r *run) record(e ended) {
	now := r.Now()
	if e.res.Err != nil && e.res.Errno == 0 {
		e.res.Errno = errnoOf(e.res.Err)
	}
	r.state.Facts = Record(r.state.Facts, e.step, e.res, now)
	r.fresh = r.Observer.Refresh()
	r.journal.end(e.n, e.res.Err, now)
	r.write()
	r.Log(Event{Iface: r.cfg.Name, Kind: StepEnd, Step: e.step, Took: e.took, Err: e.res.Err})
}

func errnoOf(err error) int {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	return 0
}

// waitFor tells what is waited for, when that is news.
func (r *run) waitFor(step Step) {
	news := r.reason == nil || r.reason.Code != step.Reason.Code
	r.reason = step.Reason
	r.journal.Reason = step.Reason
	if !news {
		return
	}
	r.journal.note(Change{At: r.Now(), Verdict: r.journal.Verdict, Code: step.Reason.Code, Summary: step.Reason.Summary})
	r.write()
	r.Log(Event{Iface: r.cfg.Name, Kind: Waiting, Reason: step.Reason})
	r.Notify(r.cfg.Name, text(r.journal.Verdict, step.Reason), r.settled)
}

// settle publishes a verdict, when it is news, and tells whether it ends the run.
func (r *run) settle(v Verdict, reason *Reason) (over bool) {
	if v == IsUp {
		reason = nil
		r.reason = nil
	}
	news := r.journal.Verdict != v
	r.state.Facts.Verdict = v
	r.state.Facts.Attempts = keepWhile(v != IsUp, r.state.Facts.Attempts)
	r.journal.Verdict, r.journal.Reason = v, reason
	r.settled = true
	if news {
		r.journal.Notes = Notes(r.cfg, r.state)
		change := Change{At: r.Now(), Verdict: v}
		if reason != nil {
			change.Code, change.Summary = reason.Code, reason.Summary
		}
		r.journal.note(change)
		r.write()
		for i := range r.journal.Notes {
			r.Log(Event{Iface: r.cfg.Name, Kind: Noted, Reason: &r.journal.Notes[i]})
		}
		r.Log(Event{Iface: r.cfg.Name, Kind: Settled, Verdict: v, Reason: reason})
		r.Notify(r.cfg.Name, text(v, reason), true)
	}
	if !r.Stay || r.cfg.Boot.Watch == config.WatchNever {
		return true
	}
	if v == IsUp {
		return r.cfg.Boot.Watch != config.WatchAlways
	}
	// Without a fallback there is nothing to come back from: the unit fails.
	return len(r.cfg.Fallback.Routes) == 0
}

func keepWhile[T any](keep bool, v T) T {
	if keep {
		return v
	}
	var zero T
	return zero
}

// text is a verdict and what is waited for, in one line.
func text(v Verdict, reason *Reason) string {
	var s string
	switch v {
	case IsUp:
		return "up"
	case Fallback:
		s = "on the fallback"
	case Failed:
		s = "failed"
	default:
		s = "waiting"
	}
	if reason != nil {
		s += ": " + reason.Summary
	}
	return s
}

// write puts the journal on record. A full /run is no reason to stop.
func (r *run) write() {
	r.journal.Facts = r.state.Facts
	r.journal.MTU = MTU(r.cfg, r.state)
	r.journal.Target = r.target()
	if len(r.journal.Runs) > 0 {
		r.journal.Runs[len(r.journal.Runs)-1].Initrd = r.state.Initrd
	}
	if err := r.Store.Write(r.journal); err != nil {
		r.trouble(err)
	}
}

func (r *run) trouble(err error) {
	r.Log(Event{Iface: r.cfg.Name, Kind: Trouble, Err: err})
}

func (r *run) target() TargetInfo {
	t := TargetInfo{Place: r.state.Facts.Place}
	for _, d := range r.state.IB {
		if d.BDF != t.BDF {
			continue
		}
		t.Device = d.Name
		if p := portOf(&d, t.Port); p != nil {
			t.GUID = fmt.Sprintf("0x%016x", p.GUID)
		}
	}
	if l := Target(r.cfg, r.state.Snapshot, t.Place); l != nil {
		t.Link, t.Index = l.Name, l.Index
	}
	return t
}

package bringup

import (
	"time"

	"ibup/internal/config"
	"ibup/internal/host"
)

const (
	driverName = "mlx5_core"

	// stableFor is how long carrier must last before it is believed, where no
	// peer proves more: the first sweep of a subnet manager may change the P_Key at
	// index 0, which takes carrier away once more.
	stableFor = time.Second
	// udevGrace is how long udev may take to rename a new interface.
	udevGrace = 3 * time.Second
	// probeGrace is how long a function without a driver is left to the kernel
	// before the driver is asked to probe it again.
	probeGrace = time.Second
)

// view is what the rows look at: the configuration, the state, and the objects
// found so far.
type view struct {
	cfg config.Config
	s   State

	place  Place
	fn     *host.PCIFunction
	dev    *host.IBDevice
	port   *host.Port
	parent *host.Link // the port's own interface
	link   *host.Link // the one wanted: parent or a child of it
}

// row is one thing that must be right. It returns nil when it is; else what to
// do about it, or what it waits for (a Wait step without a time).
type row func(*view) *Step

// rows are all rows in order. Each relies on those before it.
func rows() []row {
	return []row{
		(*view).pickPort,
		(*view).function,
		(*view).modules,
		(*view).probe,
		(*view).device,
		(*view).linkLayer,
		(*view).netdev,
		(*view).child,
		(*view).name,
		(*view).mode,
		(*view).mtu,
		(*view).up,
		(*view).addresses,
		(*view).carrier,
		(*view).unique,
		(*view).stable,
		(*view).routes,
		(*view).verify,
		(*view).dropFallback,
	}
}

// Next decides what to do now. It returns an act, Up when all is right, Wait when
// something else has to happen first, Rest when that may take long and the
// fallback is in place, or Fail when waiting is over and there is no fallback.
func Next(cfg config.Config, s State) Step {
	v := &view{cfg: cfg, s: s}
	switch f := s.Facts; {
	case f.Silent > 0 && f.InFlight != nil:
		return v.blocked(v.inFlight(*f.InFlight), 0)
	case f.Silent > 0:
		return v.blocked(because(FWSilent, v.kernelSays(s.Facts.Place.BDF), "pci", v.pci()), 0)
	}
	for _, r := range rows() {
		step := r(v)
		if step == nil {
			continue
		}
		if step.Kind == Wait {
			return v.blocked(step.Reason, step.Until)
		}
		return v.attempt(*step)
	}
	return Step{Kind: Up, Link: v.link.Name, Index: v.link.Index}
}

// wait is the answer of a row that cannot go on.
func wait(r *Reason) *Step { return &Step{Kind: Wait, Reason: r} }

// backoff is the pause after the n-th attempt at the same step. The second
// attempt is immediate: much can be a race with udev or another process.
func backoff(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return min(time.Second<<min(n-2, 5), 30*time.Second)
}

// retry is when a step that was given up is tried once more all the same; 0: never.
// A card can come back to life without an event: somebody has reset it.
func retry(step Step, a Attempt) time.Duration {
	if step.Kind == BindDriver {
		return a.At + time.Minute
	}
	return 0
}

// attempt passes a step on unless another act is under way, or it was tried in
// vain just now, or the fallback comes first because the time is over.
func (v *view) attempt(step Step) Step {
	if f := v.s.Facts.InFlight; f != nil {
		return v.blocked(v.inFlight(*f), 0)
	}
	a, tried := v.s.Facts.Attempts[step.key()]
	reason := because(TimeUp, nil, "link", v.cfg.Name, "step", step.String())
	if tried {
		if r := v.hopeless(step, a); r != nil {
			again := retry(step, a)
			if again == 0 || v.s.Now < again {
				return v.blocked(r, again)
			}
		}
		reason = v.failed(step, a)
		reason.Pointless = false
		if until := a.At + backoff(a.N); v.s.Now < until {
			return v.blocked(reason, until)
		}
	}
	// These two end the time on the fallback.
	if !v.over() || step.Kind == Withdraw || step.Kind == ReplaceRoute {
		return step
	}
	if len(v.cfg.Fallback.Routes) == 0 {
		if tried {
			return Step{Kind: Fail, Reason: reason}
		}
		return step
	}
	if first, _ := v.fallback(reason); first != nil {
		return *first
	}
	return step
}

// over tells that there is no more time to wait. Once on the fallback the
// interface has to be proven again before that ends.
func (v *view) over() bool {
	return v.s.Now >= v.s.Deadline || v.s.Facts.Verdict == Fallback || v.s.Facts.Verdict == Failed
}

// blocked is what to do while a reason holds: wait, or when waiting is over or
// pointless the fallback, or give up. again is when to look again whatever
// happens, 0 when an event will tell.
func (v *view) blocked(r *Reason, again time.Duration) Step {
	if !r.Pointless && !v.over() {
		return Step{Kind: Wait, Reason: r, Until: earlier(again, v.s.Deadline)}
	}
	if len(v.cfg.Fallback.Routes) == 0 {
		return Step{Kind: Fail, Reason: r}
	}
	step, later := v.fallback(r)
	if step != nil {
		return *step
	}
	kind := Wait
	if fallbackLive(v.cfg, v.s.Snapshot) {
		kind = Rest
	}
	return Step{Kind: kind, Reason: r, Until: earlier(again, later)}
}

// earlier is the earlier of two times of which 0 is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// install puts the fallback route in place. Without a step that is done, or is
// tried again at the time given.
func (v *view) install(r *Reason) (*Step, time.Duration) {
	f := v.s.Facts
	if fallbackLive(v.cfg, v.s.Snapshot) && (!v.cfg.Fallback.Persist || f.FallbackFiles || f.FilesTried) {
		return nil, 0
	}
	step := Step{Kind: Install, Link: v.cfg.Name, Reason: r, Why: r.Summary}
	a, tried := f.Attempts[step.key()]
	if until := a.At + backoff(a.N); tried && v.s.Now < until {
		return nil, until
	}
	return &step, 0
}

// fallback puts the fallback route in place, then takes away what would draw
// traffic from it.
func (v *view) fallback(r *Reason) (*Step, time.Duration) {
	if step, later := v.install(r); step != nil || later != 0 {
		return step, later
	}
	for _, route := range v.shadows() {
		step := Step{Kind: DelRoute, Link: route.Dev, Index: v.indexOf(route.Dev), Route: route, Reason: r,
			Why: "it would draw traffic from the fallback route into an interface that does not work"}
		step.Route.Dev = ""
		a, tried := v.s.Facts.Attempts[step.key()]
		if until := a.At + backoff(a.N); tried && v.s.Now < until {
			return nil, until
		}
		return &step, 0
	}
	return nil, 0
}

func (v *view) indexOf(name string) int {
	if l := linkByName(v.s.Snapshot, name); l != nil {
		return l.Index
	}
	return 0
}

func linkByName(s host.Snapshot, name string) *host.Link {
	for i := range s.Links {
		if s.Links[i].Name == name {
			return &s.Links[i]
		}
	}
	return nil
}

func linkByIndex(s host.Snapshot, index int) *host.Link {
	for i := range s.Links {
		if s.Links[i].Index == index {
			return &s.Links[i]
		}
	}
	return nil
}

// pci is the function in words: address and, where known, what it is.
func (v *view) pci() string {
	switch {
	case v.fn != nil:
		return v.fn.BDF
	case v.s.Facts.Place.BDF != "":
		return v.s.Facts.Place.BDF
	}
	return "the HCA"
}

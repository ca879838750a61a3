package bringup

import (
	"fmt"
	"slices"

	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

// Undo is what `ibup down` does: the steps that take away what the journal says
// ibup added, last first, as far as it is still there. What was only changed (a
// name, a mode, an MTU) stays. Kept says what is left in place and why. The error
// is a *Reason when the interface must not go.
func Undo(c config.Config, j *Journal, s host.Snapshot, unload bool) (steps []Step, kept []string, refused *Reason) {
	u := &undo{c: c, j: j, s: s, gone: map[string]bool{}}
	if l := linkByIndex(s, j.Target.Index); l != nil {
		if what := Carries(s, *l); what != "" {
			return nil, nil, because(InUse, []string{what}, "link", l.Name, "what", what)
		}
	}
	for _, e := range slices.Backward(j.Steps) {
		if e.Err != "" && e.Step.Kind != LoadModules && e.Step.Kind != Install {
			continue
		}
		u.step(e.Step, unload)
	}
	u.held()
	return u.steps, u.kept, nil
}

type undo struct {
	c     config.Config
	j     *Journal
	s     host.Snapshot
	steps []Step
	kept  []string
	gone  map[string]bool // what is taken away already, by Step.key
}

func (u *undo) add(s Step) {
	if k := s.key(); !u.gone[k] {
		u.gone[k] = true
		u.steps = append(u.steps, s)
	}
}

func (u *undo) keep(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(u.kept, text) {
		u.kept = append(u.kept, text)
	}
}

func (u *undo) step(done Step, unload bool) {
	l := linkByIndex(u.s, done.Index)
	switch done.Kind {
	case ReplaceRoute:
		u.route(done, l)
	case AddAddress:
		if l != nil && hasAddr(*l, done.Prefix) {
			u.add(Step{Kind: DelAddress, Link: l.Name, Index: l.Index, Prefix: done.Prefix})
		}
	case SetUp:
		if l == nil || !l.Up {
			return
		}
		if use := u.useOf(*l); use != "" {
			u.keep("%s stays up: it %s", l.Name, use)
			return
		}
		u.add(Step{Kind: SetDown, Link: l.Name, Index: l.Index})
	case CreateChild:
		if l == nil {
			return // a child does not outlive its parent
		}
		for _, child := range u.s.Links {
			if child.Parent != done.Index || child.PKey != done.PKey {
				continue
			}
			if use := u.useOf(child); use != "" {
				u.keep("%s stays: it %s", child.Name, use)
				continue
			}
			u.add(Step{Kind: DeleteChild, Link: l.Name, Index: done.Index, PKey: done.PKey})
		}
	case Install:
		v := &view{cfg: u.c, s: State{Snapshot: u.s}}
		if v.ourFallback() || u.j.Facts.FallbackFiles {
			u.add(Step{Kind: Withdraw, Link: u.c.Name})
		}
	case LoadModules:
		if unload {
			u.unload(done)
		}
	}
}

func (u *undo) route(done Step, l *host.Link) {
	// A connected route goes with its address.
	if l == nil || done.Route.Connected || !hasRoute(u.s, done.Route, l.Name) {
		return
	}
	u.add(Step{Kind: DelRoute, Link: l.Name, Index: l.Index, Route: done.Route})
	if done.Was == nil {
		return
	}
	if dev := linkByName(u.s, done.Was.Dev); dev != nil {
		was := *done.Was
		was.Dev = ""
		u.add(Step{Kind: ReplaceRoute, Link: dev.Name, Index: dev.Index, Route: was})
	}
}

// held puts routes back that were withheld and whose address stays.
func (u *undo) held() {
	for _, r := range u.j.Facts.Withheld {
		for _, l := range u.s.Links {
			del := Step{Kind: DelAddress, Link: l.Name, Index: l.Index}
			for _, a := range l.Addrs {
				if a.Prefix.Addr() != r.Src || a.Prefix.Masked() != r.Dest {
					continue
				}
				if del.Prefix = a.Prefix; !u.gone[del.key()] && !hasRoute(u.s, r, l.Name) {
					u.add(Step{Kind: ReplaceRoute, Link: l.Name, Index: l.Index, Route: r})
				}
			}
		}
	}
}

// useOf is what uses an interface besides what ibup put on it.
func (u *undo) useOf(l host.Link) string {
	rest := u.s
	rest.Links = nil
	for _, x := range u.s.Links {
		x.Addrs = slices.DeleteFunc(slices.Clone(x.Addrs), func(a host.Addr) bool {
			return u.gone[Step{Kind: DelAddress, Link: x.Name, Index: x.Index, Prefix: a.Prefix}.key()]
		})
		rest.Links = append(rest.Links, x)
		if x.Index == l.Index {
			l = x
		}
	}
	// Routes go with the addresses and with ibup's own; those of a foreign address
	// are told by that.
	rest.Routes = slices.DeleteFunc(slices.Clone(u.s.Routes), func(r host.Route) bool {
		del := Step{Kind: DelRoute, Link: r.Dev, Route: Route{Dest: r.Dest, Via: r.Via, Metric: r.Metric}}
		if dev := linkByName(u.s, r.Dev); dev != nil {
			del.Index = dev.Index
		}
		return r.Proto == protoKernel || r.Proto == fallback.Protocol || u.gone[del.key()]
	})
	if what := Carries(u.s, l); what != "" {
		return what
	}
	return inUseBy(rest, l)
}

// unload takes the modules back that ibup loaded, unless an interface of any mlx5
// function is in use: the driver's end would be its end.
func (u *undo) unload(done Step) {
	for _, l := range u.s.Links {
		mlx5 := slices.ContainsFunc(u.s.PCI, func(f host.PCIFunction) bool { return f.BDF == l.BDF && f.Driver == driverName })
		if !mlx5 || !l.Up || u.gone[Step{Kind: SetDown, Link: l.Name, Index: l.Index}.key()] {
			continue
		}
		if l.Parent != 0 && u.gone[Step{Kind: DeleteChild, Index: l.Parent, Link: u.nameOf(l.Parent), PKey: l.PKey}.key()] {
			continue
		}
		u.keep("the modules stay: %s, of the same driver, is up", l.Name)
		return
	}
	var names []string
	for _, m := range slices.Backward(done.Modules) {
		if hasModule(u.s, m) {
			names = append(names, m)
		}
	}
	if len(names) > 0 {
		u.add(Step{Kind: Unload, Modules: names})
	}
}

func (u *undo) nameOf(index int) string {
	if l := linkByIndex(u.s, index); l != nil {
		return l.Name
	}
	return ""
}

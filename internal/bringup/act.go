package bringup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
	"ibup/internal/ipoib"
)

// Actor does steps on this machine. The parts are interfaces of what is used of
// them, for tests.
type Actor struct {
	Link     LinkWriter
	Modules  ModuleLoader
	Fallback FallbackRoutes
	Ping     func(ctx context.Context, link string, src, dst netip.Addr, n int, wait time.Duration) (ipoib.Echo, error)
}

// LinkWriter is what an [ipoib.Writer] does.
type LinkWriter interface {
	CreateChild(parent int, key uint16) error
	DeleteChild(parent int, key uint16) error
	Rename(index int, to string) error
	SetMode(index int, mode string) (got string, err error)
	SetMTU(index, mtu int) (effective int, err error)
	SetUp(index int) error
	SetDown(index int) error
	AddAddress(index int, p netip.Prefix, bare bool) error
	DelAddress(index int, p netip.Prefix) error
	ReplaceRoute(ipoib.Route) error
	DelRoute(ipoib.Route) error
	Bind(bdf string) error
	Neighbours(index int) (map[netip.Addr]ipoib.Neighbour, error)
}

// ModuleLoader loads what is missing of the stack, and unloads.
type ModuleLoader interface {
	Load(ctx context.Context, kernel string) error
	Unload(name string) error
}

// FallbackRoutes is what a [fallback.Installer] does.
type FallbackRoutes interface {
	Install(ctx context.Context, iface string, f config.Fallback) (fallback.Report, error)
	Withdraw(ctx context.Context, iface string, f config.Fallback) (fallback.Report, error)
}

// Do does a step.
func (a *Actor) Do(ctx context.Context, c config.Config, s State, step Step) Result {
	switch step.Kind {
	case LoadModules:
		return Result{Err: a.Modules.Load(ctx, s.Kernel)}
	case Unload:
		var errs []error
		for _, m := range step.Modules {
			errs = append(errs, a.Modules.Unload(m))
		}
		return Result{Err: errors.Join(errs...)}
	case BindDriver:
		return Result{Err: a.Link.Bind(step.BDF)}
	case CreateChild:
		return Result{Err: a.Link.CreateChild(step.Index, step.PKey)}
	case DeleteChild:
		return Result{Err: a.Link.DeleteChild(step.Index, step.PKey)}
	case Rename:
		return Result{Err: a.Link.Rename(step.Index, step.To)}
	case SetMode:
		_, err := a.Link.SetMode(step.Index, step.To)
		return Result{Err: err}
	case SetMTU:
		effective, err := a.Link.SetMTU(step.Index, step.MTU)
		return Result{Err: err, MTU: effective}
	case SetUp:
		return Result{Err: a.Link.SetUp(step.Index)}
	case SetDown:
		return Result{Err: a.Link.SetDown(step.Index)}
	case AddAddress:
		return Result{Err: a.Link.AddAddress(step.Index, step.Prefix, step.Bare)}
	case DelAddress:
		return Result{Err: a.Link.DelAddress(step.Index, step.Prefix)}
	case ReplaceRoute:
		return Result{Err: a.Link.ReplaceRoute(step.kernelRoute())}
	case DelRoute:
		return Result{Err: a.Link.DelRoute(step.kernelRoute())}
	case Install:
		rep, err := a.Fallback.Install(ctx, c.Name, c.Fallback)
		return Result{Err: err, FallbackFiles: inFiles(rep)}
	case Withdraw:
		rep, err := a.Fallback.Withdraw(ctx, c.Name, c.Fallback)
		return Result{Err: err, FallbackFiles: inFiles(rep)}
	case Verify:
		return a.verify(ctx, c, s, step)
	}
	return Result{Err: fmt.Errorf("no such act: %s", step.Kind)}
}

func (s Step) kernelRoute() ipoib.Route {
	return ipoib.Route{Index: s.Index, Dest: s.Route.Dest, Via: s.Route.Via, Metric: metricOf(s.Route), Src: s.Route.Src, Connected: s.Route.Connected}
}

// inFiles tells whether blocks of ours stand in route files after what was done.
func inFiles(rep fallback.Report) bool {
	return slices.ContainsFunc(rep.Routes, func(r fallback.Result) bool {
		return r.Persist == fallback.Installed || r.Persist == fallback.Unchanged
	})
}

// How a peer is asked: three requests, for one answer may be luck.
const (
	pings    = 3
	pingWait = time.Second
)

// verify asks all peers at once.
func (a *Actor) verify(ctx context.Context, c config.Config, s State, step Step) Result {
	v := &Verification{Index: step.Index, OK: true, Peers: make([]PeerResult, len(step.Peers))}
	link := linkByIndex(s.Snapshot, step.Index)
	if link == nil {
		return Result{Err: fmt.Errorf("%s is gone", step.Link), Verified: v}
	}
	var all sync.WaitGroup
	for i, peer := range step.Peers {
		all.Go(func() {
			e, err := a.Ping(ctx, link.Name, sourceFor(*link, c, peer), peer, pings, pingWait)
			p := PeerResult{Peer: peer, Sent: e.Sent, Received: e.Received, RTT: e.RTT, NextHop: nextHop(*link, c, peer)}
			if err != nil {
				p.Err = err.Error()
			}
			v.Peers[i] = p
		})
	}
	all.Wait()
	neighbours, nerr := a.Link.Neighbours(step.Index)
	var failed []error
	for i := range v.Peers {
		p := &v.Peers[i]
		if n, ok := neighbours[p.NextHop]; ok {
			p.Neighbour, p.LLAddr = n.State, n.LLAddr
			// What a failed resolution leaves is an old address.
			if n.State == "FAILED" || n.State == "INCOMPLETE" {
				p.LLAddr = ""
			}
		}
		if !p.OK() {
			v.OK = false
			failed = append(failed, errors.New(p.String()))
		}
	}
	if !v.OK && nerr != nil {
		failed = append(failed, nerr)
	}
	return Result{Err: errors.Join(failed...), Verified: v}
}

// sourceFor is the address to ask a peer from: that in the peer's network, else
// the first of its family.
func sourceFor(l host.Link, c config.Config, peer netip.Addr) netip.Addr {
	var first netip.Addr
	for _, p := range c.Network.Addresses {
		if p.Addr().Is4() != peer.Is4() || !hasAddr(l, p) {
			continue
		}
		if p.Contains(peer) {
			return p.Addr()
		}
		if !first.IsValid() {
			first = p.Addr()
		}
	}
	return first
}

// nextHop is the host on the link that a packet to a peer goes to.
func nextHop(l host.Link, c config.Config, peer netip.Addr) netip.Addr {
	for _, a := range l.Addrs {
		if a.Prefix.Contains(peer) {
			return peer
		}
	}
	best, hop := -1, peer
	for _, r := range c.Network.Routes {
		if r.Via.IsValid() && r.Dest.Contains(peer) && r.Dest.Bits() > best {
			best, hop = r.Dest.Bits(), r.Via
		}
	}
	if gw := c.Network.Gateway; best < 0 && gw.IsValid() && gw.Is4() == peer.Is4() {
		hop = gw
	}
	return hop
}

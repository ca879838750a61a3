package bringup

import (
	"net/netip"
	"slices"

	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

const (
	protoKernel = 2   // RTPROT_KERNEL: made by the kernel for an address
	connectedV6 = 256 // IP6_RT_PRIO_ADDRCONF, of connected routes
)

// onFallback tells whether traffic goes by the fallback route now. It does not
// matter who put it there: initscripts do so at boot from the route file.
func (v *view) onFallback() bool {
	return len(v.cfg.Fallback.Routes) > 0 && fallbackLive(v.cfg, v.s.Snapshot)
}

// fallbackLive tells whether every fallback route is in the kernel.
func fallbackLive(c config.Config, s host.Snapshot) bool {
	for _, r := range c.Fallback.Routes {
		if !hasRoute(s, routeOf(r), r.Dev) {
			return false
		}
	}
	return true
}

// ourFallback tells whether a fallback route in the kernel is ibup's.
func (v *view) ourFallback() bool {
	for _, r := range v.cfg.Fallback.Routes {
		if slices.ContainsFunc(v.s.Routes, func(x host.Route) bool {
			return x.Proto == fallback.Protocol && same(x, routeOf(r), r.Dev)
		}) {
			return true
		}
	}
	return false
}

func hasRoute(s host.Snapshot, r Route, dev string) bool {
	return slices.ContainsFunc(s.Routes, func(x host.Route) bool { return same(x, r, dev) })
}

func same(x host.Route, r Route, dev string) bool {
	return x.Dest == r.Dest.Masked() && x.Via == r.Via && x.Dev == dev && x.Metric == metricOf(r)
}

func metricOf(r Route) int {
	if r.Connected && r.Metric == 0 && r.Dest.Addr().Is6() {
		return connectedV6
	}
	return fallback.Priority(r.Dest, r.Metric)
}

// missingRoute is the first route of the file, or withheld before, that is not in
// the kernel.
func (v *view) missingRoute() *Step {
	for _, r := range v.wantedRoutes() {
		dev := r.Dev
		if dev == "" {
			dev = v.link.Name
		}
		if hasRoute(v.s.Snapshot, r, dev) {
			continue
		}
		why := "Route= or Gateway="
		if r.Connected {
			why = "it was held back while the fallback was in use"
		}
		return &Step{Kind: ReplaceRoute, Link: dev, Index: v.indexOf(dev), Route: r, Was: v.replaced(r), Why: why}
	}
	return nil
}

// replaced is the route that another one with its destination and metric takes the
// place of, for `ibup down` to put back.
func (v *view) replaced(r Route) *Route {
	for _, x := range v.s.Routes {
		if x.Dest == r.Dest.Masked() && x.Metric == metricOf(r) && x.Dev != "" && !r.Dest.Addr().Is6() {
			return &Route{Dest: x.Dest, Via: x.Via, Dev: x.Dev, Metric: x.Metric, Connected: x.Proto == protoKernel}
		}
	}
	return nil
}

func (v *view) wantedRoutes() []Route {
	var out []Route
	for _, r := range v.s.Facts.Withheld {
		// A route of an address that has gone since is gone for good.
		if !r.Connected || hasIP(*v.link, r.Src) {
			out = append(out, r)
		}
	}
	for _, r := range v.cfg.Network.Routes {
		out = append(out, routeOf(r))
	}
	if gw := v.cfg.Network.Gateway; gw.IsValid() {
		dest := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gw.Is6() {
			dest = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		out = append(out, Route{Dest: dest, Via: gw})
	}
	return out
}

// shadows are routes through the interface that draw traffic from the fallback:
// its connected route, above all, which has metric 0 and which the kernel uses
// even when there is no carrier.
func (v *view) shadows() []Route {
	var out []Route
	for _, x := range v.s.Routes {
		l := linkByName(v.s.Snapshot, x.Dev)
		if l == nil || l.Type != host.TypeInfiniBand || !v.mine(l) {
			continue
		}
		if !slices.ContainsFunc(v.cfg.Fallback.Routes, func(f config.Route) bool { return shadowed(f, x) }) {
			continue
		}
		r := Route{Dest: x.Dest, Via: x.Via, Dev: x.Dev, Metric: x.Metric, Connected: x.Proto == protoKernel && !x.Via.IsValid()}
		if r.Connected {
			r.Src = srcFor(*l, x.Dest)
		}
		out = append(out, r)
	}
	return out
}

// mine tells whether a link is the interface in question: the one found, or while
// none is found (its port is gone, say) one with its name or its address.
func (v *view) mine(l *host.Link) bool {
	if v.link != nil {
		return l.Index == v.link.Index
	}
	return l.Name == v.cfg.Name || slices.ContainsFunc(v.cfg.Network.Addresses, func(p netip.Prefix) bool { return hasAddr(*l, p) })
}

// shadowed tells whether packets for f's destination take x instead. An IPv6
// connected route stays: without it a peer could not be asked over the interface
// (IPv4 takes a destination for on-link then), and its metric, 256, leaves room
// for a fallback before it.
func shadowed(f config.Route, x host.Route) bool {
	if x.Dest.Addr().Is6() && x.Proto == protoKernel {
		return false
	}
	if x.Dest.Bits() < f.Dest.Bits() || x.Dest.Addr().Is6() != f.Dest.Addr().Is6() || !f.Dest.Contains(x.Dest.Addr()) {
		return false
	}
	return x.Dest.Bits() > f.Dest.Bits() || x.Metric <= metricOf(routeOf(f))
}

func srcFor(l host.Link, dest netip.Prefix) netip.Addr {
	for _, a := range l.Addrs {
		if a.Prefix.Masked() == dest {
			return a.Prefix.Addr()
		}
	}
	return netip.Addr{}
}

func hasAddr(l host.Link, p netip.Prefix) bool {
	return slices.ContainsFunc(l.Addrs, func(a host.Addr) bool { return a.Prefix == p })
}

func hasIP(l host.Link, ip netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(a host.Addr) bool { return a.Prefix.Addr() == ip })
}

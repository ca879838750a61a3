package fallback

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"ibup/internal/config"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// owner tells whether a route that is in the kernel with a foreign protocol
// came from ibup's block in a route file: initscripts add it as "boot" (3),
// NetworkManager as "static" (4).
type owner func(config.Route) bool

func ours(rt netlink.Route, r config.Route, own owner) bool {
	switch rt.Protocol {
	case Protocol:
		return true
	case unix.RTPROT_BOOT, unix.RTPROT_STATIC:
		return own(r)
	}
	return false
}

func (in Installer) installLive(f config.Fallback, own owner) Report {
	return in.eachLive(f, func(res *Result) {
		res.Live, res.LiveErr = in.addRoute(res, own)
	})
}

func (in Installer) withdrawLive(f config.Fallback, own, shared owner) Report {
	return in.eachLive(f, func(res *Result) {
		if shared(res.Route) {
			res.Live = Kept
			return
		}
		res.Live, res.LiveErr = in.delRoute(res.Route, own)
	})
}

func (in Installer) stateLive(f config.Fallback, own owner) Report {
	return in.eachLive(f, func(res *Result) {
		l, err := in.link(res.Route)
		if err == nil {
			res.Obstacle, _ = obstacle(l, res.Route.Dev)
		}
		rt, _, err := in.find(res.Route)
		switch {
		case err != nil:
			res.Live, res.LiveErr = Failed, err
		case rt == nil:
			res.Live = Absent
		case ours(*rt, res.Route, own):
			res.Live = Installed
		default:
			res.Live = Kept
		}
	})
}

func (in Installer) eachLive(f config.Fallback, do func(*Result)) Report {
	rep := Report{Routes: make([]Result, len(f.Routes))}
	for i, r := range f.Routes {
		rep.Routes[i].Route = r
		if in.Netlink != nil {
			do(&rep.Routes[i])
		}
	}
	return rep
}

// link finds the route's device; nil without error when there is none.
func (in Installer) link(r config.Route) (netlink.Link, error) {
	l, err := in.Netlink.LinkByName(r.Dev)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, &RouteError{Route: r, Why: "reading device " + r.Dev, Err: err}
	}
	return l, nil
}

// obstacle says what is wrong with a route's device, nil when there is none;
// usable: a route can be added all the same.
func obstacle(l netlink.Link, dev string) (what string, usable bool) {
	switch {
	case l == nil:
		return "device " + dev + " does not exist", false
	case l.Attrs().RawFlags&unix.IFF_UP == 0:
		return "device " + dev + " is down", false
	case l.Attrs().RawFlags&unix.IFF_LOWER_UP == 0:
		return dev + " has no carrier", true
	}
	return "", true
}

// find looks for exactly this route, whoever added it, and for another one of
// the same destination and metric.
func (in Installer) find(r config.Route) (exact, other *netlink.Route, err error) {
	l, err := in.link(r)
	if err != nil {
		return nil, nil, err
	}
	index := 0
	if l != nil {
		index = l.Attrs().Index
	}
	routes, err := in.list(family(r))
	if err != nil {
		return nil, nil, &RouteError{Route: r, Why: "reading the routes", Err: err}
	}
	for i, rt := range routes {
		if rt.Tos != 0 || rt.Priority != Priority(r.Dest, r.Metric) || dest(rt) != r.Dest.Masked() {
			continue
		}
		gw, _ := netip.AddrFromSlice(rt.Gw)
		same := rt.LinkIndex == index && gw.Unmap() == r.Via && len(rt.MultiPath) == 0 && rt.Via == nil
		if same && rt.Type == unix.RTN_UNICAST {
			exact = &routes[i]
		} else if other == nil {
			other = &routes[i]
		}
	}
	return exact, other, nil
}

func (in Installer) list(family int) (routes []netlink.Route, err error) {
	// A dump that the kernel marks as interrupted may lack routes.
	for range 5 {
		routes, err = in.Netlink.RouteListFiltered(family, &netlink.Route{}, 0)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return routes, err
		}
	}
	return nil, err
}

func (in Installer) addRoute(res *Result, own owner) (Outcome, error) {
	r := res.Route
	l, err := in.link(r)
	if err != nil {
		return Failed, err
	}
	what, usable := obstacle(l, r.Dev)
	if !usable {
		return Failed, &RouteError{Route: r, Kind: ErrNotYet, Why: what}
	}
	res.Obstacle = what
	exact, other, err := in.find(r)
	if err != nil {
		return Failed, err
	}
	if other != nil {
		res.Shadowed = in.describe(*other)
	}
	if exact != nil {
		if ours(*exact, r, own) {
			return Unchanged, nil
		}
		return Kept, nil
	}
	if other != nil && r.Dest.Addr().Is6() {
		res.Shadowed = ""
		return Failed, &RouteError{Route: r, Kind: ErrConflict, Why: "\"" + in.describe(*other) + "\" has the same destination and metric",
			Remedy: "give the fallback another metric"}
	}
	switch err := in.Netlink.RouteAddEcmp(kernelRoute(r, l.Attrs().Index)); {
	case err == nil:
		return Installed, nil
	case errors.Is(err, unix.EEXIST):
		return Unchanged, nil // somebody was faster
	default:
		return Failed, refusal(r, err)
	}
}

func (in Installer) delRoute(r config.Route, own owner) (Outcome, error) {
	exact, _, err := in.find(r)
	switch {
	case err != nil:
		return Failed, err
	case exact == nil:
		return Absent, nil
	case !ours(*exact, r, own):
		return Kept, nil
	}
	del := kernelRoute(r, exact.LinkIndex)
	del.Protocol = exact.Protocol
	switch err := in.Netlink.RouteDel(del); {
	case err == nil:
		return Removed, nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENODEV):
		return Absent, nil // gone meanwhile
	default:
		return Failed, refusal(r, err)
	}
}

// refusal explains the kernel's answer to a route.
func refusal(r config.Route, err error) error {
	e := &RouteError{Route: r, Err: err}
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		e.Kind, e.Why = ErrNotYet, fmt.Sprintf("no address of %s reaches the gateway %s", r.Dev, r.Via)
		e.Remedy = "it is tried again when an address or link changes; check the gateway if it stays so"
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENODEV):
		e.Kind, e.Why = ErrNotYet, "device "+r.Dev+" went away or down"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		e.Kind, e.Why, e.Remedy = ErrPermission, "the kernel lets only CAP_NET_ADMIN change routes", "run ibup as root"
	default:
		e.Why = "the kernel refused it"
	}
	return e
}

func kernelRoute(r config.Route, index int) *netlink.Route {
	p := r.Dest.Masked()
	rt := &netlink.Route{
		LinkIndex: index,
		Dst:       &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Priority:  r.Metric,
		Protocol:  Protocol,
		Table:     unix.RT_TABLE_MAIN,
		Type:      unix.RTN_UNICAST,
		Scope:     unix.RT_SCOPE_UNIVERSE,
	}
	if r.Via.IsValid() {
		rt.Gw = r.Via.AsSlice()
	} else if p.Addr().Is4() {
		rt.Scope = unix.RT_SCOPE_LINK
	}
	return rt
}

func family(r config.Route) int {
	if r.Dest.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Priority is a route's metric as the kernel lists it: IPv6 turns 0 into
// IP6_RT_PRIO_USER, 1024.
func Priority(dest netip.Prefix, metric int) int {
	if metric == 0 && dest.Addr().Is6() {
		return 1024
	}
	return metric
}

// dest is a listed route's destination; a default route may come without one.
func dest(rt netlink.Route) netip.Prefix {
	if rt.Dst == nil {
		if rt.Family == unix.AF_INET6 {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	a, ok := netip.AddrFromSlice(rt.Dst.IP)
	bits, size := rt.Dst.Mask.Size()
	if size == 32 { // the library gives 0.0.0.0 as 16 bytes
		a = a.Unmap()
	}
	if !ok {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}

// describe is a listed route in the words of `ip route`.
func (in Installer) describe(rt netlink.Route) string {
	r := config.Route{Dest: dest(rt), Metric: rt.Priority}
	if gw, ok := netip.AddrFromSlice(rt.Gw); ok {
		r.Via = gw.Unmap()
	}
	if l, err := in.Netlink.LinkByIndex(rt.LinkIndex); err == nil {
		r.Dev = l.Attrs().Name
	}
	s := r.String()
	if rt.Type != unix.RTN_UNICAST {
		s += fmt.Sprintf(" (type %d)", rt.Type)
	}
	return s
}

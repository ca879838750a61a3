package bringup

import (
	"fmt"
	"net/netip"
	"strings"

	"ibup/internal/host"
)

// Carries says what would stop if an interface went away: the root or another
// network file system whose server is reached through it. "" when nothing would.
func Carries(s host.Snapshot, l host.Link) string {
	for _, m := range s.Mounts {
		server, ok := serverOf(m)
		if !ok || wayTo(s, server) != l.Name {
			continue
		}
		if m.Target == "/" {
			return "carries the root file system " + m.Source
		}
		return fmt.Sprintf("carries the mount %s (%s)", m.Target, m.Source)
	}
	return ""
}

// serverOf takes the server's address from addr= of the mount's options, or from
// its source ("20.20.20.107:/export", "//10.0.0.1/share").
func serverOf(m host.Mount) (netip.Addr, bool) {
	for _, o := range strings.Split(m.Options, ",") {
		if v, ok := strings.CutPrefix(o, "addr="); ok {
			if a, err := netip.ParseAddr(v); err == nil {
				return a.Unmap(), true
			}
		}
	}
	name := strings.TrimPrefix(m.Source, "//")
	if rest, ok := strings.CutPrefix(name, "["); ok {
		name, _, _ = strings.Cut(rest, "]")
	} else {
		name, _, _ = strings.Cut(name, "/")
		name = strings.TrimSuffix(name, ":")
	}
	a, err := netip.ParseAddr(name)
	return a, err == nil
}

// wayTo is the interface of the best route of the main table to an address: the
// longest prefix, then the lowest metric.
func wayTo(s host.Snapshot, to netip.Addr) string {
	best := host.Route{Metric: -1}
	for _, r := range s.Routes {
		if !r.Dest.Contains(to) {
			continue
		}
		if best.Metric < 0 || r.Dest.Bits() > best.Dest.Bits() || r.Dest.Bits() == best.Dest.Bits() && r.Metric < best.Metric {
			best = r
		}
	}
	return best.Dev
}

// inUseBy says what uses an interface, so that it must not be taken down or
// renamed; "" when nothing does. A link-local address is no use.
func inUseBy(s host.Snapshot, l host.Link) string {
	if what := Carries(s, l); what != "" {
		return what
	}
	for _, a := range l.Addrs {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			return "has the address " + a.Prefix.String()
		}
	}
	for _, r := range s.Routes {
		if r.Dev == l.Name && !r.Dest.Addr().IsLinkLocalUnicast() && !r.Dest.Addr().IsMulticast() {
			return "has the route " + r.Dest.String()
		}
	}
	for _, child := range s.Links {
		if child.Parent != l.Index || child.Index == l.Index {
			continue
		}
		if use := inUseBy(s, child); use != "" {
			return fmt.Sprintf("has the child %s, which %s", child.Name, use)
		}
	}
	return ""
}

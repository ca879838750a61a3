package config

import (
	"net/netip"
	"strconv"
	"strings"
)

const (
	routeSyntax    = "DEST [via GATEWAY] [dev INTERFACE] [metric N]"
	fallbackSyntax = "DEST [via GATEWAY] dev INTERFACE [metric N]"
)

// String is the route in the words of `ip route add`, the syntax of the files.
func (r Route) String() string {
	var b strings.Builder
	switch {
	case r.Dest != everywhere(r.Dest.Addr()):
		b.WriteString(r.Dest.String())
	case r.Dest.Addr().Is6() && !r.Via.IsValid():
		b.WriteString(r.Dest.String()) // "default" alone is IPv4's
	default:
		b.WriteString("default")
	}
	if r.Via.IsValid() {
		b.WriteString(" via " + r.Via.String())
	}
	if r.Dev != "" {
		b.WriteString(" dev " + r.Dev)
	}
	if r.Metric != 0 {
		b.WriteString(" metric " + strconv.Itoa(r.Metric))
	}
	return b.String()
}

func everywhere(like netip.Addr) netip.Prefix {
	if like.Is6() {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// parseRoute takes the destination and then the words via, dev and metric in any
// order.
func parseRoute(v string) (r Route, f *fault) {
	words := strings.Fields(v)
	if len(words) == 0 || routeWord(words[0]) == nil {
		return r, bad("write Route="+routeSyntax, "has no destination")
	}
	dest := words[0]
	seen := map[string]bool{}
	for i := 1; i < len(words); i += 2 {
		w := words[i]
		if f := routeWord(w); f != nil {
			return r, f
		}
		if seen[w] {
			return r, bad("write one", "%q stands there twice", w)
		}
		seen[w] = true
		if i+1 == len(words) {
			return r, bad("write Route="+routeSyntax, "nothing behind %q", w)
		}
		arg := words[i+1]
		switch w {
		case "via":
			r.Via, f = parseHost(arg)
		case "dev":
			if r.Dev = arg; !validName(arg) || arg == "lo" {
				f = bad("write dev with a network interface of at most 15 letters, such as dev eno1", "%q is no interface for a route", arg)
			}
		case "metric":
			n, err := strconv.ParseUint(arg, 10, 32)
			if r.Metric = int(n); err != nil || !isDecimal(arg) {
				f = bad("write a number from 0 to 4294967295", "%q is no metric", arg)
			}
		}
		if f != nil {
			return r, f
		}
	}
	if r.Dest, f = parseDest(dest, r.Via); f != nil {
		return r, f
	}
	if r.Via.IsValid() && r.Via.Is6() != r.Dest.Addr().Is6() {
		return r, bad("write a gateway of the destination's address family", "%s is not reached by way of %s", r.Dest, r.Via)
	}
	return r, nil
}

func routeWord(w string) *fault {
	switch w {
	case "via", "dev", "metric":
		return nil
	case "gw", "gateway":
		return bad("did you mean via?", "unknown word %q", w)
	case "netmask":
		return bad("write the destination with its prefix length: 20.20.30.0/24", "unknown word %q", w)
	case "table", "src", "scope", "proto", "mtu", "onlink", "weight", "nexthop":
		return bad("write Route="+routeSyntax+" and add other routes by other means", "%q is not supported", w)
	}
	return bad(didYouMean(w, []string{"via", "dev", "metric"}), "unknown word %q", w)
}

func parseDest(w string, via netip.Addr) (netip.Prefix, *fault) {
	if w == "default" {
		return everywhere(via), nil
	}
	addr, length, found := strings.Cut(w, "/")
	a, err := netip.ParseAddr(addr)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return netip.Prefix{}, bad("write Route="+routeSyntax+", for example 20.20.30.0/24 via 20.20.20.1", "%q is no destination", w)
	case a.IsMulticast():
		return netip.Prefix{}, bad("write the address of a network", "%s is a multicast address", w)
	case !found:
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	bits, f := parseBits(a, addr, length)
	if f != nil {
		return netip.Prefix{}, f
	}
	p := netip.PrefixFrom(a, bits)
	if p != p.Masked() {
		return p, bad("write "+p.Masked().String(), "%s has bits behind its prefix", w)
	}
	return p, nil
}

// parseFallback takes a route that leads around the interface.
func parseFallback(iface, v string) (Route, *fault) {
	r, f := parseRoute(v)
	switch {
	case f != nil:
		f.hint = strings.ReplaceAll(f.hint, routeSyntax, fallbackSyntax)
		return r, f
	case r.Dev == "":
		return r, bad("write the Ethernet interface too: Route="+v+" dev eno1", "no dev: the way around %s needs another interface", iface)
	case r.Dev == iface:
		return r, bad("write the Ethernet interface, such as dev eno1", "dev %s is the interface whose failure it is for", iface)
	case r.Via.IsValid() && r.Dest.Bits() > 0 && r.Dest.Contains(r.Via):
		return r, bad("write a gateway on "+r.Dev+"'s own network", "the gateway %s is inside the destination %s, where only the fallback leads", r.Via, r.Dest)
	}
	return r, nil
}

package config

import (
	"net/netip"
	"strings"
)

// checker finds mistakes that only several keys together show.
type checker struct {
	c    *Config
	errs Errors
}

// check looks at one interface. Parts in which there are errors already are left
// out, so that no mistake is told twice.
func check(c *Config, before Errors) Errors {
	k := &checker{c: c}
	clean := func(section string) bool {
		for _, e := range before {
			if e.Key == "" || strings.HasPrefix(e.Key, section+".") || strings.HasPrefix(e.Key, "ibup.") {
				return false
			}
		}
		return true
	}
	if clean("IPoIB") {
		k.mtu()
	}
	if clean("Network") {
		k.addresses()
		k.gateway()
		k.routes()
		k.pings()
	}
	k.fallback()
	return k.errs
}

func (k *checker) fail(id string, i int, hint, format string, args ...any) {
	f := bad(hint, format, args...)
	at := k.c.origin(id, i)
	k.errs = append(k.errs, &Error{File: at.File, Line: at.Line, Iface: k.c.Name, Key: id, Msg: f.msg, Hint: f.hint})
}

func (k *checker) mtu() {
	n := k.c.IPoIB.MTU
	const id = "IPoIB.MTU"
	switch {
	case n == 0:
	case n > maxMTUDatagram && n <= 4096 && k.c.IPoIB.Mode != ModeConnected:
		k.fail(id, 0, "write MTU=4092: of InfiniBand's 4096 bytes, 4 are the IPoIB header", "%d is above 4092, the most in datagram mode", n)
	case n > maxMTUDatagram && k.c.IPoIB.Mode == ModeDatagram:
		k.fail(id, 0, "write MTU=4092, or Mode=connected where the hardware can", "%d is above 4092, the most in datagram mode", n)
	case n > maxMTUDatagram && k.c.IPoIB.Mode == ModeKeep:
		k.fail(id, 0, "write Mode=connected too, or MTU=4092", "%d is above 4092, the most in datagram mode, which is the kernel's default", n)
	case n < minMTUv6:
		for _, p := range k.c.Network.Addresses {
			if p.Addr().Is6() {
				k.fail(id, 0, "write at least MTU=1280", "%d is too small for the IPv6 address %s", n, p)
				return
			}
		}
	}
}

func (k *checker) addresses() {
	for i, p := range k.c.Network.Addresses {
		for j, q := range k.c.Network.Addresses[:i] {
			if f := clash(p, q, k.c.origin("Network.Address", j).String()); f != nil {
				k.fail("Network.Address", i, f.hint, "%s", f.msg)
				break
			}
		}
	}
}

// clash tells why two addresses cannot both be right.
func clash(p, q netip.Prefix, where string) *fault {
	switch {
	case p.Addr() == q.Addr():
		return bad("remove one of the two", "%s has the address already: %s", where, q)
	case p.Overlaps(q) && p.Bits() != q.Bits():
		return bad("write the prefix length that the network has", "%s overlaps with %s of %s", p, q, where)
	}
	return nil
}

// onLink tells whether the interface reaches an address without a gateway.
func (k *checker) onLink(a netip.Addr) bool {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return true
	}
	for _, p := range k.c.Network.Addresses {
		if p.Contains(a) {
			return true
		}
	}
	for _, r := range k.c.Network.Routes {
		if !r.Via.IsValid() && r.Dev == "" && r.Dest.Contains(a) {
			return true
		}
	}
	return false
}

func (k *checker) own(a netip.Addr) bool {
	for _, p := range k.c.Network.Addresses {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

// via checks a gateway on the interface itself.
func (k *checker) via(id string, i int, gw netip.Addr) {
	switch {
	case len(k.c.Network.Addresses) == 0:
		k.fail(id, i, "add Address=", "the gateway %s cannot be reached: the interface has no address", gw)
	case k.own(gw):
		k.fail(id, i, "write the gateway's address", "%s is the interface's own address", gw)
	case !k.onLink(gw):
		k.fail(id, i, "write a gateway on a network of Address=", "the gateway %s is on none of the interface's networks (%s)", gw, strings.Join(stringsOf(k.c.Network.Addresses), ", "))
	case k.unusable(gw):
		k.fail(id, i, "write the gateway's address", "%s is the network's own or its broadcast address", gw)
	}
}

// unusable tells whether an IPv4 address is a network's own or its broadcast address.
func (k *checker) unusable(a netip.Addr) bool {
	for _, p := range k.c.Network.Addresses {
		if a.Is4() && p.Contains(a) && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p)) {
			return true
		}
	}
	return false
}

func (k *checker) gateway() {
	if gw := k.c.Network.Gateway; gw.IsValid() {
		k.via("Network.Gateway", 0, gw)
	}
}

func (k *checker) routes() {
	const id = "Network.Route"
	gw := k.c.Network.Gateway
	for i, r := range k.c.Network.Routes {
		if r.Via.IsValid() && r.Dev == "" {
			k.via(id, i, r.Via)
		}
		if gw.IsValid() && r.Dest == everywhere(gw) && r.Metric == 0 {
			k.fail(id, i, "keep one, or give this one a metric", "is a second default route beside Gateway=%s", gw)
		}
		k.twice(id, i, k.c.Network.Routes)
	}
}

// twice finds the route before this one that the kernel would take for the same.
func (k *checker) twice(id string, i int, routes []Route) {
	for j, r := range routes[:i] {
		if r.Dest == routes[i].Dest && r.Metric == routes[i].Metric {
			k.fail(id, i, "remove it, or give it another metric", "%s has a route to %s with that metric already", k.c.origin(id, j), r.Dest)
			return
		}
	}
}

func (k *checker) pings() {
	for i, a := range k.c.Verify.Ping {
		switch {
		case k.own(a):
			k.fail("Verify.Ping", i, "write a machine behind the switch", "%s is the interface's own address, which always answers", a)
		case k.unusable(a):
			k.fail("Verify.Ping", i, "write the address of one machine", "%s is the network's own or its broadcast address", a)
		}
	}
}

func (k *checker) fallback() {
	const id = "Fallback.Route"
	for i, r := range k.c.Fallback.Routes {
		k.twice(id, i, k.c.Fallback.Routes)
		if !r.Via.IsValid() {
			continue
		}
		for _, p := range k.c.Network.Addresses {
			if p.Contains(r.Via) {
				k.fail(id, i, "write a gateway on "+r.Dev+"'s own network", "the gateway %s is on %s's own network %s, which is what has failed then", r.Via, k.c.Name, p.Masked())
				break
			}
		}
	}
}

// crossCheck looks at interface c beside those that were found good before it.
func crossCheck(c *Config, others []*Config) Errors {
	k := &checker{c: c}
	for _, o := range others {
		if samePort(c.Match, o.Match) && c.IPoIB.PKey == o.IPoIB.PKey {
			id := matchKey(c.Match)
			k.fail(id, 0, "write another port, or another partition in PKey=", "%s wants the same port with the same P_Key 0x%04x: %s", o.Name, c.IPoIB.PKey, o.origin(matchKey(o.Match), 0))
		}
		for i, p := range c.Network.Addresses {
			for j, q := range o.Network.Addresses {
				if f := clash(p, q, o.origin("Network.Address", j).String()); f != nil {
					k.fail("Network.Address", i, f.hint, "%s", f.msg)
					break
				}
			}
		}
	}
	return k.errs
}

// samePort compares what two interfaces say about their port, each by the key
// that counts for it.
func samePort(a, b Match) bool {
	if matchKey(a) != matchKey(b) {
		return false
	}
	switch matchKey(a) {
	case "Match.PortGUID":
		return a.PortGUID == b.PortGUID
	case "Match.PCI":
		return a.PCI == b.PCI && max(a.Port, 1) == max(b.Port, 1)
	case "Match.Device":
		return a.Device == b.Device && max(a.Port, 1) == max(b.Port, 1)
	}
	return false
}

// matchKey is the key by which the port is found; "" for the first free one.
func matchKey(m Match) string {
	switch {
	case m.PortGUID != 0:
		return "Match.PortGUID"
	case m.PCI != "":
		return "Match.PCI"
	case m.Device != "":
		return "Match.Device"
	}
	return ""
}

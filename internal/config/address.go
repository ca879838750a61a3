package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

var noAddr netip.Addr

// hasLeadingZero tells whether dotted decimal numbers have one: some programs
// read those as octal.
func hasLeadingZero(s string) bool {
	zero := false
	for _, n := range strings.Split(s, ".") {
		if !isDecimal(n) {
			return false
		}
		zero = zero || len(n) > 1 && n[0] == '0'
	}
	return zero
}

// parseInterfaceAddress takes an address with prefix length that an interface
// can have.
func parseInterfaceAddress(v string) (netip.Prefix, *fault) {
	addr, length, found := strings.Cut(v, "/")
	if strings.ContainsAny(v, " \t,") {
		return netip.Prefix{}, bad("write one Address= line for each", "%q is more than one address", v)
	}
	a, f := parseHost(addr)
	if f != nil {
		return netip.Prefix{}, f
	}
	if !found {
		return netip.Prefix{}, bad("write it with the network's, such as Address="+addr+example(a), "%s has no prefix length", v)
	}
	bits, f := parseBits(a, addr, length)
	if f != nil {
		return netip.Prefix{}, f
	}
	p := netip.PrefixFrom(a, bits)
	switch {
	case bits == 0:
		return p, bad("write the network's prefix length, such as Address="+addr+example(a), "%s makes the whole internet one network", v)
	case a.Is4() && bits < 31 && a == p.Masked().Addr():
		return p, bad("write the node's own address, such as "+a.Next().String()+"/"+length, "%s is the address of the network, not of a node", v)
	case a.Is4() && bits < 31 && a == lastOf(p):
		return p, bad("write the node's own address", "%s is the broadcast address of its network", v)
	}
	return p, nil
}

func example(a netip.Addr) string {
	if a.Is6() {
		return "/64"
	}
	return "/24"
}

// parseBits takes a prefix length, and knows a netmask when it sees one.
func parseBits(a netip.Addr, addr, length string) (int, *fault) {
	if n, err := strconv.Atoi(length); err == nil && isDecimal(length) {
		if n > a.BitLen() {
			return 0, bad("write the network's, such as "+addr+example(a), "/%d is too long: an IPv%d address has %d bits", n, family(a), a.BitLen())
		}
		return n, nil
	}
	if m, err := netip.ParseAddr(length); err == nil && m.Is4() && a.Is4() {
		b := m.As4()
		mask := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
		for n := 0; n <= 32; n++ {
			if mask == uint32(0xffffffff<<(32-n)) {
				return 0, bad(fmt.Sprintf("write %s/%d", addr, n), "%s is a netmask, not a prefix length", length)
			}
		}
	}
	return 0, bad("write the network's, such as "+addr+example(a), "%q is no prefix length", length)
}

func family(a netip.Addr) int {
	if a.Is6() {
		return 6
	}
	return 4
}

// lastOf is the highest address of an IPv4 network, its broadcast address.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

// parseHost takes the address of one machine.
func parseHost(v string) (netip.Addr, *fault) {
	a, err := netip.ParseAddr(v)
	switch {
	case err != nil && hasLeadingZero(v):
		return noAddr, bad("write it without zeros in front of a number, which some programs take for octal", "%q is no address", v)
	case err != nil && strings.Contains(v, "/"):
		return noAddr, bad("write it without the prefix length", "%q is no address", v)
	case err != nil:
		return noAddr, bad("write numbers, such as 20.20.20.109: names cannot be looked up this early", "%q is no address", v)
	case a.Zone() != "":
		return noAddr, bad("write it without %"+a.Zone(), "%s has a zone", v)
	case a.Is4In6():
		return noAddr, bad("write "+a.Unmap().String(), "%s is an IPv4 address in IPv6 notation", v)
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return noAddr, bad("write the address of a machine", "%s is nobody's address", v)
	case a.IsMulticast():
		return noAddr, bad("write the address of a machine", "%s is a multicast address", v)
	case a.IsLoopback():
		return noAddr, bad("write the address of a machine", "%s is a loopback address", v)
	case a.Is4() && a.As4()[0] >= 240:
		return noAddr, bad("write the address of a machine", "%s is a broadcast or reserved address", v)
	}
	return a, nil
}

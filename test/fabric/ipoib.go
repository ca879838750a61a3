package fabric

import (
	"encoding/binary"
	"net/netip"
)

// What IPoIB puts into a datagram (RFC 4391, sections 6 and 9): four bytes of
// EtherType and zeros, then the packet. Hardware addresses have 20 bytes: flags,
// QPN, GID.
const (
	ipoibHeader   = 4
	ipoibAddress  = 20
	etherIPv4     = 0x0800
	etherARP      = 0x0806
	arpInfiniBand = 32 // hardware type
	arpRequest    = 1
	arpReply      = 2
	arpLength     = 8 + 2*ipoibAddress + 2*4

	multicastQP = 0xffffff

	ipv4Header     = 20
	icmpHeader     = 8
	icmpProtocol   = 1
	icmpEchoReply  = 0
	icmpEcho       = 8
	defaultTTL     = 64
	ipMoreFragment = 0x2000
	ipOffsetMask   = 0x1fff
)

// linkAddress is the part of an IPoIB hardware address that matters.
type linkAddress struct {
	qpn uint32
	gid GID
}

func (a linkAddress) put(b []byte) {
	binary.BigEndian.PutUint32(b, a.qpn)
	copy(b[4:], a.gid[:])
}

func parseLinkAddress(b []byte) linkAddress {
	return linkAddress{binary.BigEndian.Uint32(b) & 0xffffff, GID(b[4:ipoibAddress])}
}

// arp is an ARP packet for IPv4 over InfiniBand.
type arp struct {
	op               uint16
	senderHW         linkAddress
	sender, targetIP netip.Addr
	targetHW         linkAddress
}

func (a arp) encode() []byte {
	b := make([]byte, ipoibHeader+arpLength)
	binary.BigEndian.PutUint16(b, etherARP)
	p := b[ipoibHeader:]
	binary.BigEndian.PutUint16(p[0:], arpInfiniBand)
	binary.BigEndian.PutUint16(p[2:], etherIPv4)
	p[4], p[5] = ipoibAddress, 4
	binary.BigEndian.PutUint16(p[6:], a.op)
	a.senderHW.put(p[8:])
	copy(p[28:], a.sender.AsSlice())
	a.targetHW.put(p[32:])
	copy(p[52:], a.targetIP.AsSlice())
	return b
}

func parseARP(p []byte) (a arp, ok bool) {
	if len(p) < arpLength || binary.BigEndian.Uint16(p) != arpInfiniBand ||
		binary.BigEndian.Uint16(p[2:]) != etherIPv4 || p[4] != ipoibAddress || p[5] != 4 {
		return arp{}, false
	}
	return arp{
		op:       binary.BigEndian.Uint16(p[6:]),
		senderHW: parseLinkAddress(p[8:]),
		sender:   netip.AddrFrom4([4]byte(p[28:32])),
		targetHW: parseLinkAddress(p[32:]),
		targetIP: netip.AddrFrom4([4]byte(p[52:56])),
	}, true
}

// echo is an ICMP echo request or reply in an unfragmented IPv4 packet.
type echo struct {
	from, to netip.Addr
	kind     uint8 // icmpEcho or icmpEchoReply
	id, seq  uint16
	data     []byte
}

func (e echo) encode() []byte {
	b := make([]byte, ipoibHeader+ipv4Header+icmpHeader+len(e.data))
	binary.BigEndian.PutUint16(b, etherIPv4)
	ip := b[ipoibHeader:]
	ip[0] = 4<<4 | ipv4Header/4
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[8], ip[9] = defaultTTL, icmpProtocol
	copy(ip[12:], e.from.AsSlice())
	copy(ip[16:], e.to.AsSlice())
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipv4Header]))
	icmp := ip[ipv4Header:]
	icmp[0] = e.kind
	binary.BigEndian.PutUint16(icmp[4:], e.id)
	binary.BigEndian.PutUint16(icmp[6:], e.seq)
	copy(icmp[icmpHeader:], e.data)
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
	return b
}

// parseEcho reads an IPv4 packet; ok is false for anything but an intact,
// whole echo request or reply.
func parseEcho(ip []byte) (e echo, ok bool) {
	if len(ip) < ipv4Header || ip[0]>>4 != 4 || ip[9] != icmpProtocol {
		return echo{}, false
	}
	head, total := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if head < ipv4Header || total > len(ip) || total < head+icmpHeader ||
		binary.BigEndian.Uint16(ip[6:])&(ipMoreFragment|ipOffsetMask) != 0 || checksum(ip[:head]) != 0 {
		return echo{}, false
	}
	icmp := ip[head:total]
	if icmp[0] != icmpEcho && icmp[0] != icmpEchoReply || icmp[1] != 0 || checksum(icmp) != 0 {
		return echo{}, false
	}
	return echo{
		from: netip.AddrFrom4([4]byte(ip[12:16])),
		to:   netip.AddrFrom4([4]byte(ip[16:20])),
		kind: icmp[0],
		id:   binary.BigEndian.Uint16(icmp[4:]),
		seq:  binary.BigEndian.Uint16(icmp[6:]),
		data: icmp[icmpHeader:],
	}, true
}

// checksum is the Internet checksum (RFC 1071): 0 over data that contain a
// right one.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

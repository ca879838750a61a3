package ipoib

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Echo is what came of pinging a host.
type Echo struct {
	Sent, Received int
	RTT            time.Duration // the shortest
}

// ICMP types and the length of the echo header (RFC 792, RFC 4443).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
	echoHeader               = 8
)

// Ping sends n ICMP echo requests over the named interface, whatever the routes
// say, each when the one before was answered or wait has passed.
func Ping(ctx context.Context, link string, src, dst netip.Addr, n int, wait time.Duration) (Echo, error) {
	var e Echo
	f, err := echoSocket(link, src, dst)
	if err != nil {
		return e, err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()

	id := uint16(rand.Uint32())
	buf := make([]byte, 1500)
	for seq := range uint16(n) {
		start := time.Now()
		if _, err := f.Write(echoPacket(dst.Is6(), id, seq)); err != nil {
			if ctx.Err() != nil {
				return e, ctx.Err()
			}
			// ENETUNREACH, EHOSTUNREACH (from an earlier request's ARP), ENOBUFS.
			return e, fmt.Errorf("ping %s: %w", dst, err)
		}
		e.Sent++
		f.SetReadDeadline(start.Add(wait))
		for {
			k, err := f.Read(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if ctx.Err() != nil {
				return e, ctx.Err()
			}
			if errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ECONNREFUSED) {
				continue // an ICMP error for an earlier request
			}
			if err != nil {
				return e, fmt.Errorf("ping %s: %w", dst, err)
			}
			if isReply(buf[:k], dst.Is6(), id, seq) {
				e.Received++
				if rtt := time.Since(start); e.RTT == 0 || rtt < e.RTT {
					e.RTT = rtt
				}
				break
			}
		}
	}
	return e, nil
}

// echoSocket opens a raw socket that sends to and receives from dst over link.
func echoSocket(link string, src, dst netip.Addr) (*os.File, error) {
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if dst.Is6() {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, fmt.Errorf("ping: %w", os.NewSyscallError("socket", err))
	}
	if err := connectEcho(fd, link, src, dst); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ping %s over %s: %w", dst, link, err)
	}
	return os.NewFile(uintptr(fd), "icmp"), nil
}

func connectEcho(fd int, link string, src, dst netip.Addr) error {
	if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, link); err != nil {
		return os.NewSyscallError("setsockopt SO_BINDTODEVICE", err)
	}
	if src.IsValid() {
		if err := unix.Bind(fd, sockaddr(src)); err != nil {
			return os.NewSyscallError("bind", err)
		}
	}
	return os.NewSyscallError("connect", unix.Connect(fd, sockaddr(dst)))
}

func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Addr: a.As16()}
}

// echoPacket is an echo request. The kernel fills in the checksum of ICMPv6.
func echoPacket(v6 bool, id, seq uint16) []byte {
	b := make([]byte, 56+echoHeader)
	b[0] = echoRequest4
	if v6 {
		b[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if !v6 {
		binary.BigEndian.PutUint16(b[2:], checksum(b))
	}
	return b
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// isReply tells whether a received message answers a request. A raw IPv4 socket
// gives the IP header too.
func isReply(b []byte, v6 bool, id, seq uint16) bool {
	want := byte(echoReply6)
	if !v6 {
		want = echoReply4
		if len(b) < 20 {
			return false
		}
		ihl := int(b[0]&15) * 4
		if ihl < 20 || len(b) < ihl {
			return false
		}
		b = b[ihl:]
	}
	return len(b) >= echoHeader && b[0] == want &&
		binary.BigEndian.Uint16(b[4:]) == id && binary.BigEndian.Uint16(b[6:]) == seq
}

// Neighbour is an entry of the kernel's neighbour table.
type Neighbour struct {
	State  string // as `ip neigh` prints it
	LLAddr string // "" when it has none
}

// Neighbours are the entries of an interface, by address.
func (w *Writer) Neighbours(index int) (map[netip.Addr]Neighbour, error) {
	list, err := w.Netlink.NeighList(index, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("neighbours: %w", err)
	}
	m := map[netip.Addr]Neighbour{}
	for _, n := range list {
		ip, ok := netip.AddrFromSlice(n.IP)
		if !ok {
			continue
		}
		e := Neighbour{State: neighState(n.State)}
		if len(n.HardwareAddr) > 0 {
			e.LLAddr = n.HardwareAddr.String()
		}
		m[ip.Unmap()] = e
	}
	return m, nil
}

func neighState(s int) string {
	switch s {
	case netlink.NUD_INCOMPLETE:
		return "INCOMPLETE"
	case netlink.NUD_REACHABLE:
		return "REACHABLE"
	case netlink.NUD_STALE:
		return "STALE"
	case netlink.NUD_DELAY:
		return "DELAY"
	case netlink.NUD_PROBE:
		return "PROBE"
	case netlink.NUD_FAILED:
		return "FAILED"
	case netlink.NUD_NOARP:
		return "NOARP"
	case netlink.NUD_PERMANENT:
		return "PERMANENT"
	}
	return ""
}

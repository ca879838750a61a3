package ipoib

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestIsReply(t *testing.T) {
	reply := func(v6 bool, typ byte, id, seq uint16) []byte {
		b := echoPacket(v6, id, seq)
		b[0] = typ
		if !v6 {
			b = append(make([]byte, 20), b...)
			b[0] = 0x45
		}
		return b
	}
	tests := []struct {
		name string
		b    []byte
		v6   bool
		want bool
	}{
		{"IPv4", reply(false, echoReply4, 7, 1), false, true},
		{"IPv6", reply(true, echoReply6, 7, 1), true, true},
		{"our own request", reply(false, echoRequest4, 7, 1), false, false},
		{"another program's", reply(false, echoReply4, 8, 1), false, false},
		{"an earlier one", reply(false, echoReply4, 7, 0), false, false},
		{"empty", nil, false, false},
		{"short IPv4 header", make([]byte, 19), false, false},
		{"header longer than the packet", append([]byte{0x4f}, make([]byte, 30)...), false, false},
		{"header length 0", make([]byte, 40), false, false},
		{"short IPv6", make([]byte, 7), true, false},
	}
	for _, tt := range tests {
		if got := isReply(tt.b, tt.v6, 7, 1); got != tt.want {
			t.Errorf("%s: isReply = %v; want %v", tt.name, got, tt.want)
		}
	}
}

// RFC 1071: the sum over a packet with its checksum is all ones.
func TestChecksum(t *testing.T) {
	for _, seq := range []uint16{0, 1, 0xffff} {
		if got := checksum(echoPacket(false, 0x1234, seq)); got != 0 {
			t.Errorf("checksum over a packet = %#x; want 0", got)
		}
	}
}

// The loopback interface answers for real.
func TestPingLoopback(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		addr := netip.MustParseAddr(ip)
		e, err := Ping(t.Context(), "lo", addr, addr, 3, 5*time.Second)
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			if os.Getenv("IBUP_CI") == "1" && addr.Is4() {
				t.Fatalf("ping %s: %v", ip, err)
			}
			t.Skipf("ping %s: %v", ip, err)
		}
		if err != nil || e.Sent != 3 || e.Received != 3 || e.RTT <= 0 {
			t.Errorf("Ping %s = %+v, %v; want 3 of 3", ip, e, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lo := netip.MustParseAddr("127.0.0.1")
	if _, err := Ping(ctx, "lo", lo, netip.MustParseAddr("127.9.9.9"), 3, time.Minute); err == nil {
		t.Error("Ping under a context that has ended gives no error")
	}
	if _, err := Ping(t.Context(), "nosuch0", lo, lo, 1, time.Second); err == nil {
		t.Error("Ping over an interface that is not there gives no error")
	}
}

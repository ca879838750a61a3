package fabric

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func addHost(t *testing.T, f *Fabric, cfg HostConfig) *Host {
	t.Helper()
	h, err := f.AddHost(cfg)
	must(t, err)
	t.Cleanup(h.Close)
	return h
}

var (
	ip107 = netip.MustParseAddr("20.20.20.107")
	ip109 = netip.MustParseAddr("20.20.20.109")
)

func pair(t *testing.T, f *Fabric, pkey uint16) (a, b *Host) {
	return addHost(t, f, HostConfig{Name: "a", GUID: 0xa, IP: ip107, PKey: pkey}),
		addHost(t, f, HostConfig{Name: "b", GUID: 0xb, IP: ip109, PKey: pkey})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// noPing pings b from a, which must fail and say why.
func noPing(t *testing.T, a *Host, ip netip.Addr, why string) {
	t.Helper()
	err := a.Ping(within(t, 50*time.Millisecond), ip)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) {
		t.Errorf("ping: %v, want %q", err, why)
	}
}

func TestPing(t *testing.T) {
	f := newFabric(t, Options{})
	a, b := pair(t, f, 0)
	for _, size := range []int{0, 56, 2044 - 28} {
		must(t, a.PingSize(within(t, deadline), b.IP(), size))
		must(t, b.PingSize(within(t, deadline), a.IP(), size))
	}
	if err := a.PingSize(within(t, deadline), b.IP(), 2044-27); err == nil || !strings.Contains(err.Error(), "room for 2016") {
		t.Errorf("ping larger than the MTU: %v", err)
	}

	b.SetAnswering(false)
	noPing(t, a, b.IP(), "no ARP answer")
	b.SetAnswering(true)
	must(t, a.Ping(within(t, deadline), b.IP()))

	other := netip.MustParseAddr("20.20.20.108")
	noPing(t, a, other, "no ARP answer")
	must(t, b.Claim(other))
	must(t, a.Ping(within(t, deadline), other))
	b.Release(other)
	b.Release(b.IP())
	noPing(t, a, other, "no ARP answer")
	must(t, a.Ping(within(t, deadline), b.IP()))

	must(t, b.Port().SetPhys(PhysPolling))
	waitMTU(t, b, 0)
	noPing(t, a, b.IP(), "no ARP answer")
	noPing(t, b, a.IP(), "not in the broadcast group of partition 0xffff (port Down/Polling)")
	must(t, b.Port().SetPhys(PhysLinkUp))
	must(t, a.Ping(within(t, deadline), b.IP()))
	if d := a.Port().Counters().Drops; d[DropQueueFull]+d[DropReceiverPKey]+d[DropSenderPKey] != 0 {
		t.Errorf("drops: %v", d)
	}
	b.Close()
	if err := b.Ping(within(t, deadline), a.IP()); !errors.Is(err, ErrClosed) {
		t.Errorf("ping from a closed host: %v", err)
	}
}

func TestPing4K(t *testing.T) {
	f := newFabric(t, Options{})
	a, b := pair(t, f, 0)
	must(t, f.SetPartition(DefaultPKey, Partition{MTU: 4096, Everyone: Full}))
	// The group may have been joined before it changed: wait for the new MTU.
	for _, h := range []*Host{a, b} {
		waitMTU(t, h, 4092)
	}
	must(t, a.PingSize(within(t, deadline), b.IP(), 4092-28))
}

func waitMTU(t *testing.T, h *Host, want int) {
	t.Helper()
	ctx := within(t, deadline)
	for {
		h.mu.Lock()
		mtu, changed := h.group.mtu, h.changed
		h.mu.Unlock()
		if mtu == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("host %s has MTU %d, want %d", h.cfg.Name, mtu, want)
		}
	}
}

func TestPingPartition(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Membership
		ok   bool
	}{
		{"full, full", Full, Full, true},
		{"full, limited", Full, Limited, true},
		{"limited, full", Limited, Full, true},
		{"limited, limited", Limited, Limited, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, Options{})
			a, b := pair(t, f, 0x8001)
			noPing(t, a, b.IP(), "not in the broadcast group of partition 0x8001")
			must(t, f.SetMember(0x8001, c.a, 0xa))
			must(t, f.SetMember(0x8001, c.b, 0xb))
			must(t, a.WaitJoined(within(t, deadline)))
			must(t, b.WaitJoined(within(t, deadline)))
			if c.ok {
				must(t, a.Ping(within(t, deadline), b.IP()))
				must(t, b.Ping(within(t, deadline), a.IP()))
				return
			}
			noPing(t, a, b.IP(), "no ARP answer")
			if b.Port().Counters().Drops[DropReceiverPKey] == 0 {
				t.Error("the switch did not drop the limited member's ARP request")
			}
		})
	}
}

func TestPingSM(t *testing.T) {
	f := newFabric(t, Options{SM: SMAbsent})
	a, b := pair(t, f, 0)
	noPing(t, a, b.IP(), "(port Init/LinkUp)")
	f.SetSMLate(time.Millisecond)
	must(t, a.Ping(within(t, deadline), b.IP()))
	must(t, f.SetSM(SMGone))
	must(t, a.Ping(within(t, deadline), b.IP()))
	f.Reregister()
	must(t, f.SetSM(SMPresent))
	must(t, a.Ping(within(t, deadline), b.IP()))
	// A silent SA is asked again, joinRetry later.
	f.SetSASilent(true)
	f.Reregister()
	waitMTU(t, a, 0)
	noPing(t, a, b.IP(), "not in the broadcast group")
	f.SetSASilent(false)
	must(t, a.Ping(within(t, deadline), b.IP()))
}

func TestAddHostErrors(t *testing.T) {
	f := newFabric(t, Options{})
	for _, cfg := range []HostConfig{{GUID: 1}, {IP: ip107}, {GUID: 1, IP: netip.MustParseAddr("fe80::1")}, {GUID: 1, IP: ip107, QPN: 1}, {GUID: 1, IP: ip107, QPN: 0xffffff}} {
		if _, err := f.AddHost(cfg); err == nil {
			t.Errorf("AddHost(%+v) succeeded", cfg)
		}
	}
}

func FuzzIPoIB(f *testing.F) {
	request := arp{op: arpRequest, senderHW: linkAddress{0x123, MakeGID(DefaultPrefix, 1)}, sender: ip109, targetIP: ip107}
	probe := request // duplicate address detection
	probe.sender = netip.IPv4Unspecified()
	ping := echo{from: ip109, to: ip107, kind: icmpEcho, id: 1, seq: 2, data: []byte("odd")}
	for _, p := range [][]byte{nil, request.encode(), probe.encode(), ping.encode(), ping.encode()[:30]} {
		f.Add(p)
	}
	fab := New(Options{})
	f.Cleanup(fab.Close)
	h, err := fab.AddHost(HostConfig{GUID: 1, IP: ip107})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) < ipoibHeader {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		answer := h.handle(&Packet{SLID: 9, SrcQP: 0x123, Payload: payload})
		body := payload[ipoibHeader:]
		a, isARP := parseARP(body)
		e, isEcho := parseEcho(body)
		if answer == nil {
			return
		}
		switch {
		case answer.DLID != 9:
			t.Errorf("answer to LID %d", answer.DLID)
		case isARP && answer.Payload[1] == 0x06:
			if r, ok := parseARP(answer.Payload[ipoibHeader:]); !ok || r.op != arpReply || r.sender != ip107 || a.targetIP != ip107 || r.targetIP != a.sender || answer.DestQP != a.senderHW.qpn {
				t.Errorf("%+v answered with %+v", a, r)
			}
		case isEcho:
			if r, ok := parseEcho(answer.Payload[ipoibHeader:]); !ok || r.kind != icmpEchoReply || r.from != ip107 || r.to != e.from || !bytes.Equal(r.data, e.data) {
				t.Errorf("%+v answered with %+v", e, r)
			}
		default:
			t.Errorf("% x answered with % x", payload, answer.Payload)
		}
	})
}

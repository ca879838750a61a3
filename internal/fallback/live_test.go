package fallback

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// counter counts what is written to the kernel.
type counter struct {
	*netlink.Handle
	writes int
}

func (c *counter) RouteAddEcmp(r *netlink.Route) error { c.writes++; return c.Handle.RouteAddEcmp(r) }
func (c *counter) RouteDel(r *netlink.Route) error     { c.writes++; return c.Handle.RouteDel(r) }

// network is a network namespace with eno1 (10.20.0.9/16, 2001:db8:20::9/64)
// and eno2 (10.30.0.9/16), each a veth with its peer, up and with carrier.
func network(t *testing.T) *counter {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for dev, addrs := range map[string][]string{"eno1": {"10.20.0.9/16", "2001:db8:20::9/64"}, "eno2": {"10.30.0.9/16"}} {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: dev}, PeerName: dev + "p"}
		if err := h.LinkAdd(v); err != nil {
			t.Fatal(err)
		}
		up(t, h, dev)
		up(t, h, dev+"p")
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a)
			if err != nil {
				t.Fatal(err)
			}
			addr.Flags = unix.IFA_F_NODAD
			if err := h.AddrAdd(v, addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &counter{Handle: h}
}

func up(t *testing.T, h *netlink.Handle, dev string) {
	t.Helper()
	l, err := h.LinkByName(dev)
	if err == nil {
		err = h.LinkSetUp(l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// add puts a route in as somebody else.
func (c *counter) add(t *testing.T, route string, protocol int, more ...func(*netlink.Route)) {
	t.Helper()
	r, err := parseLine("eno1", route)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.LinkByName(r.Dev)
	if err != nil {
		t.Fatal(err)
	}
	rt := kernelRoute(r.Route, l.Attrs().Index)
	rt.Protocol = netlink.RouteProtocol(protocol)
	for _, m := range more {
		m(rt)
	}
	if err := c.Handle.RouteAdd(rt); err != nil {
		t.Fatal(err)
	}
}

// to is the gateway the kernel uses towards an address; invalid if on-link.
func (c *counter) to(t *testing.T, addr string) netip.Addr {
	t.Helper()
	routes, err := c.RouteGet(netip.MustParseAddr(addr).AsSlice())
	if errors.Is(err, unix.ENETUNREACH) {
		return netip.Addr{}
	}
	if err != nil || len(routes) != 1 {
		t.Fatalf("route to %s: %v, %v", addr, routes, err)
	}
	gw, _ := netip.AddrFromSlice(routes[0].Gw)
	return gw.Unmap()
}

// dump is all routes but those the kernel makes by itself, some of them late.
func (c *counter) dump(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.RouteListFiltered(family, &netlink.Route{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL {
				fmt.Fprintf(&b, "%s protocol %d metric %d type %d\n", r, r.Protocol, r.Priority, r.Type)
			}
		}
	}
	return b.String()
}

func TestLive(t *testing.T) {
	const route6 = "2001:db8:99::/64 via 2001:db8:20::1 metric 200"
	tests := []struct {
		name     string
		routes   []string
		prepare  func(*testing.T, *counter)
		live     Outcome // of Install
		back     Outcome // of Withdraw
		via      string  // gateway to 20.20.20.107 after Install
		shadowed string
		writes   int // of Install and Withdraw together
	}{
		{name: "nothing there", live: Installed, back: Removed, via: "10.20.0.1", writes: 2},
		{name: "on-link", routes: []string{"20.20.20.0/24 dev eno1"}, live: Installed, back: Removed, writes: 2},
		{name: "default route", routes: []string{"default via 10.20.0.1 metric 900"}, live: Installed, back: Removed, via: "10.20.0.1", writes: 2},
		{name: "IPv6", routes: []string{route6}, live: Installed, back: Removed, writes: 2},
		{name: "IPv6 default, no metric", routes: []string{"default via fe80::1"}, live: Installed, back: Removed, writes: 2},
		{name: "there by hand", prepare: func(t *testing.T, c *counter) { c.add(t, route1, unix.RTPROT_BOOT) },
			live: Kept, back: Kept, via: "10.20.0.1"},
		{name: "there from a routing daemon", prepare: func(t *testing.T, c *counter) { c.add(t, route1, unix.RTPROT_BIRD) },
			live: Kept, back: Kept, via: "10.20.0.1"},
		{name: "there from an ibup that was killed", prepare: func(t *testing.T, c *counter) { c.add(t, route1, Protocol) },
			live: Unchanged, back: Removed, via: "10.20.0.1", writes: 1},
		{name: "another gateway", prepare: func(t *testing.T, c *counter) {
			c.add(t, "20.20.20.0/24 via 10.20.0.77 metric 200", unix.RTPROT_STATIC)
		}, live: Installed, back: Removed, via: "10.20.0.1", shadowed: "20.20.20.0/24 via 10.20.0.77 dev eno1 metric 200", writes: 2},
		{name: "another device", prepare: func(t *testing.T, c *counter) {
			c.add(t, "20.20.20.0/24 via 10.30.0.1 dev eno2 metric 200", unix.RTPROT_STATIC)
		}, live: Installed, back: Removed, via: "10.20.0.1", shadowed: "20.20.20.0/24 via 10.30.0.1 dev eno2 metric 200", writes: 2},
		{name: "made unreachable", prepare: func(t *testing.T, c *counter) {
			c.add(t, "20.20.20.0/24 metric 200", unix.RTPROT_STATIC, func(r *netlink.Route) { r.Type, r.LinkIndex = unix.RTN_UNREACHABLE, 0 })
		}, live: Installed, back: Removed, via: "10.20.0.1", shadowed: "20.20.20.0/24 metric 200 (type 7)", writes: 2},
		{name: "another metric is another route", prepare: func(t *testing.T, c *counter) {
			c.add(t, "20.20.20.0/24 via 10.20.0.77 metric 300", unix.RTPROT_STATIC)
		}, live: Installed, back: Removed, via: "10.20.0.1", writes: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := network(t)
			if tt.prepare != nil {
				tt.prepare(t, c)
			}
			before := c.dump(t)
			if tt.routes == nil {
				tt.routes = []string{route1}
			}
			f := fallbackOf(t, tt.routes...)
			f.Persist = false
			in := Installer{Root: t.TempDir(), Netlink: c}
			rep, err := in.Install(t.Context(), "ib0", f)
			if err != nil || rep.Routes[0].Live != tt.live || rep.Routes[0].Shadowed != tt.shadowed || !rep.Live() {
				t.Fatalf("Install: %v, %v; want %s and shadowed %q", rep.Routes[0], err, tt.live, tt.shadowed)
			}
			if o := rep.Routes[0].Obstacle; o != "" {
				t.Errorf("sees an obstacle: %s", o)
			}
			if got := c.to(t, "20.20.20.107"); tt.via != "" && got.String() != tt.via {
				t.Errorf("goes via %s, want %s\n%s", got, tt.via, c.dump(t))
			}
			now, writes := c.dump(t), c.writes
			again, err := in.Install(t.Context(), "ib0", f)
			if err != nil || again.Changed() || c.writes != writes || c.dump(t) != now {
				t.Errorf("the second Install wrote: %v, %v", again.Routes[0], err)
			}
			st, err := in.State("ib0", f)
			if want := map[Outcome]Outcome{Installed: Installed, Unchanged: Installed, Kept: Kept}[tt.live]; err != nil || st.Routes[0].Live != want {
				t.Errorf("State: %v, %v", st.Routes[0], err)
			}
			rep, err = in.Withdraw(t.Context(), "ib0", f)
			if err != nil || rep.Routes[0].Live != tt.back {
				t.Errorf("Withdraw: %v, %v; want %s", rep.Routes[0], err, tt.back)
			}
			if got := c.dump(t); got != before && tt.live != Unchanged {
				t.Errorf("routes after Withdraw:\n%s\nbefore:\n%s", got, before)
			}
			if rep, err = in.Withdraw(t.Context(), "ib0", f); err != nil || rep.Changed() {
				t.Errorf("the second Withdraw: %v, %v", rep.Routes[0], err)
			}
			if c.writes != tt.writes {
				t.Errorf("%d writes, want %d", c.writes, tt.writes)
			}
		})
	}
}

func TestLiveRefused(t *testing.T) {
	tests := []struct {
		name    string
		route   string
		prepare func(*testing.T, *counter)
		kind    error
		message string
	}{
		{name: "no device", route: "20.20.20.0/24 via 10.20.0.1 dev eno7", kind: ErrNotYet, message: "device eno7 does not exist"},
		{name: "device down", route: route1, kind: ErrNotYet, message: "device eno1 is down", prepare: func(t *testing.T, c *counter) {
			l, err := c.LinkByName("eno1")
			if err == nil {
				err = c.LinkSetDown(l)
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "gateway out of reach", route: "20.20.20.0/24 via 10.99.0.1 metric 200", kind: ErrNotYet, message: "no address of eno1 reaches the gateway 10.99.0.1"},
		{name: "IPv6 gateway out of reach", route: "2001:db8:99::/64 via 2001:db8:77::1", kind: ErrNotYet, message: "no address of eno1 reaches the gateway 2001:db8:77::1"},
		{name: "IPv6 conflict", route: "2001:db8:99::/64 via 2001:db8:20::1 metric 200", kind: ErrConflict,
			message: `"2001:db8:99::/64 via 2001:db8:20::7 dev eno1 metric 200" has the same destination and metric; give the fallback another metric`,
			prepare: func(t *testing.T, c *counter) {
				c.add(t, "2001:db8:99::/64 via 2001:db8:20::7 metric 200", unix.RTPROT_STATIC)
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := network(t)
			if tt.prepare != nil {
				tt.prepare(t, c)
			}
			before := c.dump(t)
			// The file half does not depend on the kernel, nor the other way.
			in, file := scripts(t, nil)
			in.Netlink = c
			rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, tt.route))
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.message) || rep.Routes[0].Live != Failed || rep.Live() {
				t.Errorf("error %v, %v; want %v", err, rep.Routes[0], tt.kind)
			}
			if rep.Routes[0].Persist != Installed {
				t.Errorf("file: %s, %q", rep.Routes[0].Persist, content(t, file))
			}
			if got := c.dump(t); got != before {
				t.Errorf("routes changed:\n%s\nbefore:\n%s", got, before)
			}
		})
	}
}

// A route that initscripts or NetworkManager made of our block is ours; the
// same route made by hand before is not.
func TestOwnership(t *testing.T) {
	tests := []struct {
		name     string
		before   func(*testing.T, *counter) // before the first Install
		reboot   int                        // protocol of the route after a reboot; 0: no reboot
		withdraw Outcome
	}{
		{"live and in the file", nil, 0, Removed},
		{"from the block by initscripts", nil, unix.RTPROT_BOOT, Removed},
		{"from the block by NetworkManager", nil, unix.RTPROT_STATIC, Removed},
		{"by hand before", func(t *testing.T, c *counter) { c.add(t, route1, unix.RTPROT_BOOT) }, 0, Kept},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := network(t)
			in, file := scripts(t, nil)
			in.Netlink = c
			f := fallbackOf(t, route1)
			if tt.before != nil {
				tt.before(t, c)
			}
			if _, err := in.Install(t.Context(), "ib0", f); err != nil {
				t.Fatal(err)
			}
			if tt.reboot != 0 {
				if rep, err := (Installer{Root: t.TempDir(), Netlink: c}).Withdraw(t.Context(), "ib0", f); err != nil || rep.Routes[0].Live != Removed {
					t.Fatal(rep.Routes[0], err)
				}
				c.add(t, route1, tt.reboot)
			}
			writes := c.writes
			rep, err := in.Install(t.Context(), "ib0", f)
			if err != nil || rep.Changed() || c.writes != writes {
				t.Errorf("the second Install wrote: %v, %v", rep.Routes[0], err)
			}
			rep, err = in.Withdraw(t.Context(), "ib0", f)
			if err != nil || rep.Routes[0].Live != tt.withdraw || rep.Routes[0].Persist != Removed {
				t.Errorf("Withdraw: %v, %v; want live %s", rep.Routes[0], err, tt.withdraw)
			}
			if got := content(t, file); got != "<absent>" {
				t.Errorf("the file holds %q", got)
			}
		})
	}
}

// Two ports of one subnet fall back to the same route: it stays until neither
// needs it.
func TestSharedRoute(t *testing.T) {
	c := network(t)
	in, file := scripts(t, nil)
	in.Netlink = c
	f := fallbackOf(t, route1)
	for _, iface := range []string{"ib0", "ib1"} {
		if _, err := in.Install(t.Context(), iface, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		iface string
		live  Outcome
	}{{"ib0", Kept}, {"ib1", Removed}} {
		rep, err := in.Withdraw(t.Context(), step.iface, f)
		if err != nil || rep.Routes[0].Live != step.live || rep.Routes[0].Persist != Removed {
			t.Errorf("Withdraw for %s: %v, %v", step.iface, rep.Routes[0], err)
		}
	}
	if got := content(t, file); got != "<absent>" {
		t.Errorf("the file holds %q", got)
	}
}

func TestNoCarrier(t *testing.T) {
	c := network(t)
	peer, err := c.LinkByName("eno1p")
	if err == nil {
		err = c.LinkSetDown(peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	in, f := Installer{Root: t.TempDir(), Netlink: c}, fallbackOf(t, route1)
	f.Persist = false
	rep, err := in.Install(t.Context(), "ib0", f)
	if err != nil || rep.Routes[0].Obstacle != "eno1 has no carrier" || rep.Routes[0].Live != Installed {
		t.Errorf("Install: %v, %v", rep.Routes[0], err)
	}
	if st, err := in.State("ib0", f); err != nil || st.Routes[0].Obstacle != "eno1 has no carrier" {
		t.Errorf("State: %v, %v", st.Routes[0], err)
	}
	f.Routes[0].Dev = "eno7"
	if st, err := in.State("ib0", f); err != nil || st.Routes[0].Obstacle != "device eno7 does not exist" || st.Routes[0].Live != Absent {
		t.Errorf("State: %v, %v", st.Routes[0], err)
	}
}

// The live route does not wait for the file.
func TestLiveWithoutFile(t *testing.T) {
	c := network(t)
	rep, err := (Installer{Root: t.TempDir(), Netlink: c}).Install(t.Context(), "ib0", fallbackOf(t, route1))
	if !errors.Is(err, ErrNoNetworkScripts) || !rep.Live() || c.to(t, "20.20.20.107").String() != "10.20.0.1" {
		t.Errorf("%+v, %v", rep.Routes[0], err)
	}
}

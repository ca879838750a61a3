package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Netlink is the NetReader of the running machine, in the network namespace of
// the calling thread.
type Netlink struct{}

// maxRoutes bounds what is kept of a table that a routing daemon may have filled.
const maxRoutes = 20000

// ReadNet dumps links, addresses and the main table.
func (Netlink) ReadNet(ctx context.Context) (NetDump, error) {
	var d NetDump
	if err := ctx.Err(); err != nil {
		return d, err
	}
	links, err := dump("links", listLinks)
	if err != nil {
		return d, err
	}
	addrs, err := dump("addresses", func() ([]netlink.Addr, error) {
		return netlink.AddrList(nil, netlink.FAMILY_ALL)
	})
	if err != nil {
		return d, err
	}
	routes, err := dump("routes", listRoutes)
	if err != nil {
		return d, err
	}
	names := make(map[int]string, len(links))
	at := make(map[int]*Link, len(links))
	d.Links = make([]Link, 0, len(links))
	for _, l := range links {
		link := fromNetlink(l)
		if link.Type == TypeInfiniBand {
			link.Driver = ethtoolDriver(link.Name)
		}
		d.Links = append(d.Links, link)
		names[link.Index] = link.Name
		at[link.Index] = &d.Links[len(d.Links)-1]
	}
	for _, a := range addrs {
		l := at[a.LinkIndex]
		prefix, ok := toPrefix(a.IPNet)
		if l == nil || !ok {
			continue // came after the links were listed: in the next snapshot
		}
		l.Addrs = append(l.Addrs, Addr{
			Prefix:    prefix,
			Tentative: a.Flags&unix.IFA_F_TENTATIVE != 0,
			DADFailed: a.Flags&unix.IFA_F_DADFAILED != 0,
		})
	}
	for _, rt := range routes {
		d.Routes = append(d.Routes, fromRoute(rt, names)...)
	}
	return d, nil
}

// dump is the one way to ask the kernel for a list: a change in the middle makes
// the answer inconsistent, and the kernel says so, often on a machine where many
// interfaces come and go. Then it is asked again. Extended acknowledgements and
// strict checking stay off: Linux 3.10 has neither and refuses the socket option.
func dump[T any](what string, list func() ([]T, error)) ([]T, error) {
	const tries = 10
	for range tries {
		v, err := list()
		switch {
		case err == nil:
			return v, nil
		case !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return nil, fmt.Errorf("netlink: %s: %w", what, err)
		}
	}
	return nil, fmt.Errorf("netlink: %s changed during each of %d dumps", what, tries)
}

// listLinks is netlink.LinkList without its request for virtual functions: for
// an HCA the kernel would ask the firmware about every VF.
func listLinks() ([]linkMsg, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	links := make([]linkMsg, 0, len(msgs))
	for _, m := range msgs {
		l, err := netlink.LinkDeserialize(nil, m)
		if err != nil {
			return nil, err
		}
		links = append(links, linkMsg{l, int(nl.DeserializeIfInfomsg(m).Type)})
	}
	return links, nil
}

// linkMsg is a link with its ARPHRD number, of which the library keeps a name only.
type linkMsg struct {
	netlink.Link
	arphrd int
}

func listRoutes() ([]netlink.Route, error) {
	var routes []netlink.Route
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	err := netlink.RouteListFilteredIter(netlink.FAMILY_ALL, main, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
		routes = append(routes, r)
		return len(routes) < maxRoutes
	})
	return routes, err
}

func fromNetlink(l linkMsg) Link {
	a := l.Attrs()
	link := Link{
		Name:    a.Name,
		Index:   a.Index,
		Type:    l.arphrd,
		Addr:    HWAddr(a.HardwareAddr),
		Up:      a.RawFlags&unix.IFF_UP != 0,
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0,
		MTU:     a.MTU,
		Kind:    l.Type(),
	}
	if a.NetNsID < 0 && a.ParentIndex != a.Index { // else the parent is in another namespace
		link.Parent = a.ParentIndex
	}
	switch l := l.Link.(type) {
	case *netlink.Device:
		link.Kind = "" // the library says "device" where the kernel says nothing
	case *netlink.IPoIB:
		link.PKey = l.Pkey
		link.Mode = l.Mode.String()
	}
	return link
}

func fromRoute(rt netlink.Route, names map[int]string) []Route {
	dest, ok := toPrefix(rt.Dst)
	if rt.Dst == nil {
		dest = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if rt.Family == netlink.FAMILY_V6 {
			dest = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	} else if !ok {
		return nil
	}
	one := func(gw net.IP, via netlink.Destination, index int) Route {
		addr, _ := netip.AddrFromSlice(gw)
		if v, ok := via.(*netlink.Via); ok {
			addr, _ = netip.AddrFromSlice(v.Addr)
		}
		return Route{Dest: dest, Via: addr.Unmap(), Dev: names[index], Metric: rt.Priority, Proto: int(rt.Protocol)}
	}
	if len(rt.MultiPath) == 0 {
		return []Route{one(rt.Gw, rt.Via, rt.LinkIndex)}
	}
	var hops []Route
	for _, h := range rt.MultiPath {
		hops = append(hops, one(h.Gw, h.Via, h.LinkIndex))
	}
	return hops
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	if bits == 32 {
		ip = ip.Unmap()
	}
	return netip.PrefixFrom(ip, ones), true
}

// ethtoolDriver tells the classic IPoIB interface ("ib_ipoib") from the one that
// mlx5 accelerates ("mlx5_core[ib_ipoib]").
func ethtoolDriver(link string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, link)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

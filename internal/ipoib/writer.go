// Package ipoib writes what makes an IPoIB interface: partition child, name, mode,
// MTU, flags, addresses and routes, through rtnetlink and sysfs. It is the only
// writer of these. Interfaces are given by index, which a rename does not change.
// It decides nothing, but it knows which of the two ways a kernel understands, and
// it reads back what the kernel may have made of a request.
package ipoib

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Netlink is the part of rtnetlink that is used. A [netlink.Handle] is one; tests
// count calls with another.
type Netlink interface {
	LinkByIndex(index int) (netlink.Link, error)
	LinkSetName(link netlink.Link, name string) error
	LinkSetMTU(link netlink.Link, mtu int) error
	LinkSetUp(link netlink.Link) error
	LinkSetDown(link netlink.Link) error
	AddrAdd(link netlink.Link, addr *netlink.Addr) error
	AddrDel(link netlink.Link, addr *netlink.Addr) error
	RouteReplace(route *netlink.Route) error
	RouteDel(route *netlink.Route) error
	NeighList(index, family int) ([]netlink.Neigh, error)
}

// Writer writes to one machine.
type Writer struct {
	Netlink Netlink
	// WriteFile writes an attribute below /sys with a single write(2).
	WriteFile func(path, text string) error
	// ReadFile reads one.
	ReadFile func(path string) (string, error)
}

// patience bounds a request to the kernel; rtnl may be held by a driver that waits
// for firmware.
const patience = 10 * time.Second

// New returns a writer for this machine.
func New() (*Writer, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	// Extended acknowledgements stay off: Linux 3.10 refuses every request then.
	if err := h.SetSocketTimeout(patience); err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return &Writer{Netlink: h, WriteFile: writeFile, ReadFile: readFile}, nil
}

func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func readFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// at is a link for a request: only its index counts.
func at(index int) netlink.Link {
	a := netlink.NewLinkAttrs() // a literal would set the queue length to 0
	a.Index = index
	return &netlink.Device{LinkAttrs: a}
}

// file is the path of an interface's attribute. Sysfs knows interfaces by name only.
func (w *Writer) file(index int, attr string) (string, error) {
	l, err := w.Netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("interface %d: %w", index, err)
	}
	return filepath.Join("/sys/class/net", l.Attrs().Name, attr), nil
}

// CreateChild makes a child of parent on partition key, which must have the full
// membership bit: kernels name the child by the number as written and set the bit
// afterwards (ipoib_vlan_add), so that 0x1 would make a twin of 0x8001. It goes
// through sysfs, for children made by rtnetlink lack the files mode and pkey that
// other tools use. One that is there already is no error.
func (w *Writer) CreateChild(parent int, key uint16) error {
	path, err := w.file(parent, "create_child")
	if err != nil {
		return err
	}
	err = w.WriteFile(path, fmt.Sprintf("0x%04x\n", key))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// DeleteChild removes a child made by CreateChild. It returns before the interface
// is gone. A child that is not there is no error.
func (w *Writer) DeleteChild(parent int, key uint16) error {
	path, err := w.file(parent, "delete_child")
	if err != nil {
		return err
	}
	if err = w.WriteFile(path, fmt.Sprintf("0x%04x\n", key)); errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Rename renames an interface. EBUSY: it is up, and the kernel (before 6.2) renames
// only what is down. EEXIST: the name is taken.
func (w *Writer) Rename(index int, to string) error {
	return wrap(w.Netlink.LinkSetName(at(index), to), "rename to %s", to)
}

// SetMode writes "datagram" or "connected" and reads it back. Not through
// rtnetlink: the parent has no link kind on EL7, and its changelink can return
// without the lock it came with.
func (w *Writer) SetMode(index int, mode string) (got string, err error) {
	path, err := w.file(index, "mode")
	if err != nil {
		return "", err
	}
	// ipoib_set_mode compares with the newline; without it everything is EINVAL.
	err = w.WriteFile(path, mode+"\n")
	got, rerr := w.ReadFile(path)
	switch {
	case err != nil:
		return got, err
	case rerr != nil:
		return got, rerr
	case got != mode:
		return got, fmt.Errorf("%s: wrote %s, reads %s", path, mode, got)
	}
	return got, nil
}

// SetMTU sets the MTU and returns what it is then: the kernel takes more than the
// multicast group allows, says nothing and uses less (ipoib_change_mtu).
func (w *Writer) SetMTU(index, mtu int) (effective int, err error) {
	err = wrap(w.Netlink.LinkSetMTU(at(index), mtu), "mtu %d", mtu)
	l, rerr := w.Netlink.LinkByIndex(index)
	if rerr != nil {
		return 0, errors.Join(err, rerr)
	}
	return l.Attrs().MTU, err
}

// SetUp sets an interface up. That succeeds also when its P_Key is not there yet.
func (w *Writer) SetUp(index int) error { return wrap(w.Netlink.LinkSetUp(at(index)), "up") }

// SetDown sets an interface down, and with a parent all its children.
func (w *Writer) SetDown(index int) error { return wrap(w.Netlink.LinkSetDown(at(index)), "down") }

// AddAddress adds an address; bare without the connected route. One that is there
// already is no error.
func (w *Writer) AddAddress(index int, p netip.Prefix, bare bool) error {
	a := addr(p)
	if bare {
		a.Flags = unix.IFA_F_NOPREFIXROUTE
	}
	err := w.Netlink.AddrAdd(at(index), a)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return wrap(err, "address %s", p)
}

// DelAddress removes an address. One that is not there is no error.
func (w *Writer) DelAddress(index int, p netip.Prefix) error {
	err := w.Netlink.AddrDel(at(index), addr(p))
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return wrap(err, "address %s", p)
}

func addr(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: ipnet(p)}
}

func ipnet(p netip.Prefix) *net.IPNet {
	ip := p.Addr()
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(p.Bits(), ip.BitLen())}
}

// Route is a route through an interface. A Connected one is as the kernel makes it
// for the address Src.
type Route struct {
	Index     int
	Dest      netip.Prefix
	Via       netip.Addr // invalid: on-link
	Metric    int
	Src       netip.Addr
	Connected bool
}

// ReplaceRoute puts a route in place of the one with the same destination and
// metric, or adds it.
func (w *Writer) ReplaceRoute(r Route) error {
	return wrap(w.Netlink.RouteReplace(r.netlink()), "route %s", r.Dest)
}

// DelRoute removes a route. One that is not there is no error.
func (w *Writer) DelRoute(r Route) error {
	err := w.Netlink.RouteDel(r.netlink())
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return wrap(err, "route %s", r.Dest)
}

func (r Route) netlink() *netlink.Route {
	n := &netlink.Route{
		LinkIndex: r.Index,
		Dst:       ipnet(r.Dest.Masked()),
		Priority:  r.Metric,
		Protocol:  unix.RTPROT_STATIC,
		Family:    netlink.FAMILY_V4,
	}
	if r.Dest.Addr().Is6() {
		n.Family = netlink.FAMILY_V6
	}
	if r.Via.IsValid() {
		n.Gw = r.Via.AsSlice()
	} else {
		n.Scope = netlink.SCOPE_LINK
	}
	if r.Connected {
		n.Protocol = unix.RTPROT_KERNEL
		if r.Src.Is4() {
			n.Src = r.Src.AsSlice()
		}
	}
	return n
}

// Bind asks mlx5_core to take a PCI function: the kernel probes it again. The call
// lasts as long as the probe, which waits for firmware. ENODEV: the driver does not
// know the function, or, before Linux 4.16, the probe failed.
func (w *Writer) Bind(bdf string) error {
	return w.WriteFile("/sys/bus/pci/drivers/mlx5_core/bind", bdf)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

package ipoib

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// recorder is a kernel that notes what it is asked and answers with err.
type recorder struct {
	calls []string
	err   error
	mtu   int
	mode  string
}

func (r *recorder) note(format string, args ...any) error {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	return r.err
}

func (r *recorder) LinkByIndex(index int) (netlink.Link, error) {
	a := netlink.NewLinkAttrs()
	a.Index, a.Name, a.MTU = index, "ib0", r.mtu
	return &netlink.Device{LinkAttrs: a}, nil
}
func (r *recorder) LinkSetName(l netlink.Link, name string) error {
	return r.note("name %d %s", l.Attrs().Index, name)
}
func (r *recorder) LinkSetMTU(l netlink.Link, mtu int) error {
	return r.note("mtu %d %d txqlen %d", l.Attrs().Index, mtu, l.Attrs().TxQLen)
}
func (r *recorder) LinkSetUp(l netlink.Link) error   { return r.note("up %d", l.Attrs().Index) }
func (r *recorder) LinkSetDown(l netlink.Link) error { return r.note("down %d", l.Attrs().Index) }
func (r *recorder) AddrAdd(l netlink.Link, a *netlink.Addr) error {
	return r.note("add %d %s flags %#x", l.Attrs().Index, a.IPNet, a.Flags)
}
func (r *recorder) AddrDel(l netlink.Link, a *netlink.Addr) error {
	return r.note("del %d %s", l.Attrs().Index, a.IPNet)
}
func (r *recorder) RouteReplace(n *netlink.Route) error { return r.note("replace %s", routeText(n)) }
func (r *recorder) RouteDel(n *netlink.Route) error     { return r.note("delroute %s", routeText(n)) }
func (r *recorder) NeighList(int, int) ([]netlink.Neigh, error) {
	return []netlink.Neigh{
		{IP: []byte{20, 20, 20, 107}, State: netlink.NUD_REACHABLE, HardwareAddr: []byte{0, 1, 2}},
		{IP: []byte{20, 20, 20, 108}, State: netlink.NUD_FAILED},
	}, r.err
}

func routeText(n *netlink.Route) string {
	return fmt.Sprintf("dev %d %s via %v metric %d proto %d scope %d src %v", n.LinkIndex, n.Dst, n.Gw, n.Priority, n.Protocol, n.Scope, n.Src)
}

func (r *recorder) writer() *Writer {
	return &Writer{
		Netlink:   r,
		WriteFile: func(path, text string) error { return r.note("write %s %q", path, text) },
		ReadFile:  func(string) (string, error) { return r.mode, nil },
	}
}

func TestWrites(t *testing.T) {
	p4, p6 := netip.MustParsePrefix("20.20.20.109/24"), netip.MustParsePrefix("fd00::109/64")
	gw := netip.MustParseAddr("20.20.20.1")
	tests := []struct {
		name string
		do   func(*Writer) error
		want string
	}{
		{"child", func(w *Writer) error { return w.CreateChild(3, 0x8001) }, `write /sys/class/net/ib0/create_child "0x8001\n"`},
		{"no child", func(w *Writer) error { return w.DeleteChild(3, 0x8001) }, `write /sys/class/net/ib0/delete_child "0x8001\n"`},
		{"name", func(w *Writer) error { return w.Rename(3, "ib7") }, "name 3 ib7"},
		{"up", func(w *Writer) error { return w.SetUp(3) }, "up 3"},
		{"down", func(w *Writer) error { return w.SetDown(3) }, "down 3"},
		{"address", func(w *Writer) error { return w.AddAddress(3, p4, false) }, "add 3 20.20.20.109/24 flags 0x0"},
		{"address without its route", func(w *Writer) error { return w.AddAddress(3, p4, true) }, "add 3 20.20.20.109/24 flags 0x200"},
		{"IPv6", func(w *Writer) error { return w.AddAddress(3, p6, false) }, "add 3 fd00::109/64 flags 0x0"},
		{"no address", func(w *Writer) error { return w.DelAddress(3, p4) }, "del 3 20.20.20.109/24"},
		{"route", func(w *Writer) error {
			return w.ReplaceRoute(Route{Index: 3, Dest: netip.MustParsePrefix("30.0.0.9/8"), Via: gw, Metric: 50})
		}, "replace dev 3 30.0.0.0/8 via 20.20.20.1 metric 50 proto 4 scope 0 src <nil>"},
		{"connected route", func(w *Writer) error {
			return w.ReplaceRoute(Route{Index: 3, Dest: p4.Masked(), Src: p4.Addr(), Connected: true})
		}, "replace dev 3 20.20.20.0/24 via <nil> metric 0 proto 2 scope 253 src 20.20.20.109"},
		{"no route", func(w *Writer) error { return w.DelRoute(Route{Index: 3, Dest: p4.Masked()}) },
			"delroute dev 3 20.20.20.0/24 via <nil> metric 0 proto 4 scope 253 src <nil>"},
		{"bind", func(w *Writer) error { return w.Bind("0000:3b:00.0") }, `write /sys/bus/pci/drivers/mlx5_core/bind "0000:3b:00.0"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{}
			if err := tt.do(r.writer()); err != nil {
				t.Fatal(err)
			}
			if want := []string{tt.want}; !reflect.DeepEqual(r.calls, want) {
				t.Errorf("calls %q; want %q", r.calls, want)
			}
			// The kernel's answer reaches the caller.
			r = &recorder{err: unix.EPERM}
			if err := tt.do(r.writer()); !errors.Is(err, unix.EPERM) {
				t.Errorf("with EPERM: %v", err)
			}
		})
	}
}

// What is as wished already is no error.
func TestAlreadySo(t *testing.T) {
	p := netip.MustParsePrefix("20.20.20.109/24")
	tests := []struct {
		name string
		err  error
		do   func(*Writer) error
	}{
		{"address there", unix.EEXIST, func(w *Writer) error { return w.AddAddress(3, p, false) }},
		{"address gone", unix.EADDRNOTAVAIL, func(w *Writer) error { return w.DelAddress(3, p) }},
		{"route gone", unix.ESRCH, func(w *Writer) error { return w.DelRoute(Route{Index: 3, Dest: p}) }},
		{"child gone", &fs.PathError{Op: "write", Err: unix.ENODEV}, func(w *Writer) error { return w.DeleteChild(3, 0x8001) }},
	}
	for _, tt := range tests {
		if err := tt.do((&recorder{err: tt.err}).writer()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestSetModeReadsBack(t *testing.T) {
	r := &recorder{mode: "connected"}
	if got, err := r.writer().SetMode(3, "connected"); got != "connected" || err != nil {
		t.Errorf("SetMode = %q, %v", got, err)
	}
	if want := []string{`write /sys/class/net/ib0/mode "connected\n"`}; !reflect.DeepEqual(r.calls, want) {
		t.Errorf("calls %q; want %q: the kernel compares with the newline", r.calls, want)
	}
	r = &recorder{mode: "datagram"}
	if got, err := r.writer().SetMode(3, "connected"); got != "datagram" || err == nil {
		t.Errorf("a mode that did not take: SetMode = %q, %v", got, err)
	}
}

func TestSetMTUReadsBack(t *testing.T) {
	r := &recorder{mtu: 2044}
	if got, err := r.writer().SetMTU(3, 4092); got != 2044 || err != nil {
		t.Errorf("SetMTU = %d, %v; want what the kernel made of it", got, err)
	}
	if want := "mtu 3 4092 txqlen -1"; r.calls[0] != want {
		t.Errorf("call %q; want %q: a queue length of 0 would be set", r.calls[0], want)
	}
	r = &recorder{mtu: 2044, err: unix.EINVAL}
	if got, err := r.writer().SetMTU(3, 9000); got != 2044 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("refused: SetMTU = %d, %v", got, err)
	}
}

func TestNeighbours(t *testing.T) {
	n, err := (&recorder{}).writer().Neighbours(3)
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]Neighbour{
		netip.MustParseAddr("20.20.20.107"): {State: "REACHABLE", LLAddr: "00:01:02"},
		netip.MustParseAddr("20.20.20.108"): {State: "FAILED"},
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("Neighbours = %v; want %v", n, want)
	}
}

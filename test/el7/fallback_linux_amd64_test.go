package el7

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A node whose card is gone: up, status and down with the system calls of 3.10,
// in namespaces of our own with an Ethernet interface eno1.
func TestLinux310Fallback(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("IBUP_CI") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	bin := program(t)
	handle := namespaces(t)
	const (
		file  = "/etc/sysconfig/network-scripts/route-eno1"
		mine  = "10.9.0.0/16 via 10.20.0.2"
		route = "20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200"
	)
	put(t, "/etc/ibup/ib0.conf", "[Match]\nPortGUID=0x506b4b0300a1b2c2\n[Network]\nAddress=20.20.20.109/24\n[Fallback]\nRoute="+route+"\nPersist=yes\n")
	put(t, "/etc/sysconfig/network-scripts/ifcfg-eno1", "DEVICE=eno1\nONBOOT=yes\n")
	put(t, file, mine)

	var first string
	for try := range 2 {
		if r := run(t, true, bin, "up"); r.code != 3 || !strings.Contains(r.stderr, "verdict=fallback") {
			t.Fatalf("up: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if got := routes(t, handle); got != "20.20.20.0/24 via 10.20.0.1 metric 200 protocol 73\n" {
			t.Errorf("routes after up: %s", got)
		}
		text := read(t, file)
		if !strings.HasPrefix(text, mine+"\n# BEGIN ibup ib0\n") || !strings.Contains(text, "\n"+route+"\n# END ibup ib0\n") {
			t.Errorf("route file after up:\n%s", text)
		}
		if try == 0 {
			first = text
		} else if text != first {
			t.Errorf("the second up wrote the file:\n%s", text)
		}
	}
	r := run(t, true, bin, "status", "--json")
	var status struct {
		Interfaces []struct {
			Name, State string
			Reason      struct{ Code string }
		}
	}
	err := json.Unmarshal([]byte(r.stdout), &status)
	if err != nil || r.code != 3 || len(status.Interfaces) != 1 || status.Interfaces[0].State != "fallback" || !strings.HasPrefix(status.Interfaces[0].Reason.Code, "IB-P") {
		t.Errorf("status: exit %d, %v\n%s%s", r.code, err, r.stdout, r.stderr)
	}
	if r := run(t, true, bin, "down"); r.code != 0 {
		t.Errorf("down: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if got := routes(t, handle); got != "" {
		t.Errorf("routes after down: %s", got)
	}
	if got := read(t, file); got != mine {
		t.Errorf("route file after down: %q, want %q", got, mine)
	}
}

// namespaces puts this thread, and what it starts, on a machine with empty /etc and
// /run and one Ethernet interface.
func namespaces(t *testing.T) *netlink.Handle {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	err := errors.Join(
		unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_NEWNET),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", "/etc", "tmpfs", 0, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		os.MkdirAll("/etc/ibup", 0o755),
		os.MkdirAll("/etc/sysconfig/network-scripts", 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	eno1 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eno1"}, PeerName: "peer"}
	if err := h.LinkAdd(eno1); err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("10.20.0.9/16")
	if err != nil {
		t.Fatal(err)
	}
	peer, err := h.LinkByName("peer")
	if err := errors.Join(err, h.LinkSetUp(eno1), h.LinkSetUp(peer), h.AddrAdd(eno1, addr)); err != nil {
		t.Fatal(err)
	}
	return h
}

// routes are the IPv4 routes but for those the kernel made.
func routes(t *testing.T, h *netlink.Handle) string {
	t.Helper()
	all, err := h.RouteList(nil, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, r := range all {
		if r.Protocol != unix.RTPROT_KERNEL {
			fmt.Fprintf(&b, "%s via %s metric %d protocol %d\n", r.Dst, r.Gw, r.Priority, int(r.Protocol))
		}
	}
	return b.String()
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

//go:build linux

package udev

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReceiveFromKernel has the kernel send an event and finds it again by an
// action word that nobody else sends for this device.
func TestReceiveFromKernel(t *testing.T) {
	m := monitor(t, Kernel, wantBuffer)
	trigger(t, Offline)
	ev := await(t, m, Offline)
	if ev.Subsystem != "net" || ev.Env["INTERFACE"] != "lo" || ev.Seqnum == 0 {
		t.Errorf("event %+v", ev)
	}
}

// TestReceiveRefusesForgery sends to the kernel's group as root, which the kernel
// lets happen, and wants to see the true event that follows it only.
func TestReceiveRefusesForgery(t *testing.T) {
	m := monitor(t, Kernel, wantBuffer)
	before := m.Refused()
	forge(t, Kernel, []byte("offline@/devices/virtual/net/lo\x00ACTION=offline\x00DEVPATH=/devices/virtual/net/lo\x00SUBSYSTEM=net\x00SEQNUM=1\x00FORGED=1\x00"))
	trigger(t, Offline)
	if ev := await(t, m, Offline); ev.Env["FORGED"] != "" {
		t.Errorf("forged event accepted: %+v", ev)
	}
	if got := m.Refused() - before; got != 1 {
		t.Errorf("refused %d messages, want 1", got)
	}
}

// TestReceiveFromUdevd plays udevd, which is a process of root.
func TestReceiveFromUdevd(t *testing.T) {
	m := monitor(t, Udev, wantBuffer)
	forge(t, Udev, []byte("libudev\x00 is not enough"))
	forge(t, Udev, udevMessage("ACTION=online\x00DEVPATH=/devices/virtual/net/lo\x00SUBSYSTEM=net\x00SEQNUM=9\x00TAGS=:systemd:\x00"))
	ev := await(t, m, Online)
	if ev.Env["TAGS"] != ":systemd:" {
		t.Errorf("event %+v", ev)
	}
	if m.Refused() == 0 {
		t.Error("a message without a libudev header was not refused")
	}
}

func TestReceiveAfterOverrun(t *testing.T) {
	m := monitor(t, Kernel, 4096)
	for range 300 {
		trigger(t, Change)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		_, err := m.Receive(ctx)
		if errors.Is(err, ErrOverrun) {
			break
		}
		if err != nil {
			t.Fatalf("Receive = %v, want ErrOverrun", err)
		}
	}
	// It goes on working: drain what was kept, then see a new event.
	for drained := false; !drained; {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := m.Receive(short)
		cancel()
		drained = errors.Is(err, context.DeadlineExceeded)
		if err != nil && !drained && !errors.Is(err, ErrOverrun) {
			t.Fatal(err)
		}
	}
	trigger(t, Offline)
	await(t, m, Offline)
}

func TestReceiveHonoursContext(t *testing.T) {
	m := monitor(t, Udev, wantBuffer)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for { // a udevd on this machine may have something to say
		_, err := m.Receive(ctx)
		if err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Receive = %v, want the context's error", err)
		}
		break
	}
	if _, err := m.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive with an ended context = %v", err)
	}
}

func TestCloseWakesReceive(t *testing.T) {
	m := monitor(t, Udev, wantBuffer)
	got := make(chan error, 1)
	go func() {
		for {
			if _, err := m.Receive(context.Background()); err != nil {
				got <- err
				return
			}
		}
	}()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("Receive = %v, want os.ErrClosed", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close did not wake Receive")
	}
	if err := m.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close = %v", err)
	}
}

func TestOpenRefusesOtherGroups(t *testing.T) {
	for _, g := range []Group{0, 3, 4} {
		if m, err := Open(g); err == nil {
			m.Close()
			t.Errorf("Open(%d) succeeded", g)
		}
	}
}

// TestVet covers the senders that a test cannot be.
func TestVet(t *testing.T) {
	root := unix.UnixCredentials(&unix.Ucred{Pid: 1})
	nobody := unix.UnixCredentials(&unix.Ucred{Pid: 99, Uid: 65534, Gid: 65534})
	from := func(groups, pid uint32) unix.Sockaddr {
		return &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups, Pid: pid}
	}
	tests := []struct {
		name  string
		group Group
		from  unix.Sockaddr
		oob   []byte
		flags int
		ok    bool
	}{
		{"kernel", Kernel, from(1, 0), root, 0, true},
		{"udevd", Udev, from(2, 500), root, 0, true},
		{"root to the kernel's group", Kernel, from(1, 500), root, 0, false},
		{"a user to the kernel's group", Kernel, from(1, 500), nobody, 0, false},
		{"a user to udevd's group", Udev, from(2, 500), nobody, 0, false},
		{"unicast", Udev, from(0, 500), root, 0, false},
		{"unicast from port 0", Kernel, from(0, 0), root, 0, false},
		{"another group", Udev, from(1, 0), root, 0, false},
		{"no credentials", Udev, from(2, 500), nil, 0, false},
		{"broken credentials", Udev, from(2, 500), root[:len(root)-5], 0, false},
		{"other control data", Udev, from(2, 500), unix.UnixRights(0), 0, false},
		{"truncated", Kernel, from(1, 0), root, unix.MSG_TRUNC, false},
		{"control data truncated", Kernel, from(1, 0), root, unix.MSG_CTRUNC, false},
		{"no sender", Kernel, nil, root, 0, false},
		{"another family", Kernel, &unix.SockaddrUnix{}, root, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.group.vet(tt.from, tt.oob, tt.flags)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, errRefused) {
				t.Errorf("vet = %v, want ok = %v", err, tt.ok)
			}
		})
	}
}

func monitor(t *testing.T, g Group, buffer int) *Monitor {
	t.Helper()
	m, err := open(g, buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// await returns the next event of the loopback interface with the given action.
func await(t *testing.T, m *Monitor, a Action) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		ev, err := m.Receive(ctx)
		if err != nil {
			t.Fatalf("Receive: %v", err)
		}
		if ev.Action == a && ev.Devpath == "/devices/virtual/net/lo" {
			return ev
		}
	}
}

// trigger makes the kernel send an event about the loopback interface.
func trigger(t *testing.T, a Action) {
	t.Helper()
	needRoot(t, os.WriteFile("/sys/class/net/lo/uevent", []byte(a), 0))
}

// forge sends a message to a group from a socket of our own.
func forge(t *testing.T, g Group, msg []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	needRoot(t, unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uint32(g)}))
}

func needRoot(t *testing.T, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Geteuid() == 0 || os.Getenv("IBUP_CI") == "1":
		t.Fatal(err)
	default:
		t.Skipf("needs root: %v", err)
	}
}

func BenchmarkParseKernel(b *testing.B) {
	msg := []byte(added)
	b.SetBytes(int64(len(msg)))
	for b.Loop() {
		if _, err := parseKernel(msg); err != nil {
			b.Fatal(err)
		}
	}
}

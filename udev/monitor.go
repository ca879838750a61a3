//go:build linux

package udev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a multicast group of the uevent socket.
type Group uint32

// The groups there are.
const (
	Kernel Group = 1 // events as the kernel sends them, before any udev rule has run
	Udev   Group = 2 // events as udevd sends them on, after its rules; silent without udevd
)

// ErrOverrun tells that the kernel dropped events because they were not read
// fast enough. The monitor goes on working; what happened meanwhile has to be
// found out by a new scan of sysfs.
var ErrOverrun = errors.New("udev: events were lost, rescan")

const (
	// A coldplug of a large machine is some thousand events of about 500 bytes.
	wantBuffer = 4 << 20
	// The kernel's messages end at 4 KiB; udevd adds properties of its own.
	maxMessage = 32 << 10
)

// Monitor is a subscription to a group of events. One goroutine may call Receive
// at a time; Close may be called from any.
type Monitor struct {
	file    *os.File
	group   Group
	buf     []byte
	oob     []byte
	closed  atomic.Bool
	refused atomic.Uint64
}

// Open subscribes to a group. It needs no privilege. Events sent from now on
// are kept by the kernel until they are received, so open first and scan after.
func Open(group Group) (*Monitor, error) { return open(group, wantBuffer) }

func open(group Group, buffer int) (*Monitor, error) {
	if group != Kernel && group != Udev {
		return nil, fmt.Errorf("udev: no such group %d", group)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("udev: %w", os.NewSyscallError("socket", err))
	}
	if err := setup(fd, group, buffer); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("udev: %w", err)
	}
	return &Monitor{
		file:  os.NewFile(uintptr(fd), "uevent"),
		group: group,
		buf:   make([]byte, maxMessage),
		oob:   make([]byte, unix.CmsgSpace(unix.SizeofUcred)),
	}, nil
}

func setup(fd int, group Group, buffer int) error {
	// Root may exceed net.core.rmem_max; others get what that allows.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil {
			return os.NewSyscallError("setsockopt SO_RCVBUF", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return os.NewSyscallError("setsockopt SO_PASSCRED", err)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uint32(group)}))
}

// Receive waits for the next event. Messages that anybody but the kernel (group
// Kernel) or a process of root (group Udev) has sent, and messages that do not
// parse, are passed over and counted.
//
// Errors: ErrOverrun, after which Receive may be called again; the context's
// error; os.ErrClosed after Close.
func (m *Monitor) Receive(ctx context.Context) (Event, error) {
	if err := ctx.Err(); err != nil {
		return Event{}, err
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		m.file.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-woken
			m.file.SetReadDeadline(time.Time{})
		}
	}()
	for {
		ev, err := m.receive()
		switch {
		case err == nil:
			return ev, nil
		case m.closed.Load():
			return Event{}, os.ErrClosed
		case errors.Is(err, errRefused) || errors.Is(err, errMalformed):
			m.refused.Add(1)
		case errors.Is(err, unix.ENOBUFS):
			return Event{}, ErrOverrun
		case ctx.Err() != nil:
			return Event{}, ctx.Err()
		default:
			return Event{}, fmt.Errorf("udev: %w", err)
		}
	}
}

func (m *Monitor) receive() (Event, error) {
	conn, err := m.file.SyscallConn()
	if err != nil {
		return Event{}, err
	}
	var (
		n, oobn, flags int
		from           unix.Sockaddr
		rerr           error
	)
	err = conn.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, from, rerr = unix.Recvmsg(int(fd), m.buf, m.oob, 0)
			if rerr != unix.EINTR {
				return rerr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = os.NewSyscallError("recvmsg", rerr)
	}
	if err != nil {
		return Event{}, err
	}
	if err := m.group.vet(from, m.oob[:oobn], flags); err != nil {
		return Event{}, err
	}
	if m.group == Kernel {
		return parseKernel(m.buf[:n])
	}
	return parseUdev(m.buf[:n])
}

// errRefused is wrapped by every refusal of a message for its sender.
var errRefused = errors.New("event refused")

// vet decides whether the sender of a message may be believed.
func (g Group) vet(from unix.Sockaddr, oob []byte, flags int) error {
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return fmt.Errorf("%w: truncated", errRefused)
	}
	nl, ok := from.(*unix.SockaddrNetlink)
	if !ok {
		return fmt.Errorf("%w: no sender", errRefused)
	}
	// Groups is 0 in a message to this socket alone, which anybody may send.
	if nl.Groups != uint32(g) {
		return fmt.Errorf("%w: sent to group %#x", errRefused, nl.Groups)
	}
	// Root can send to the kernel's group; only the port number shows it.
	if g == Kernel && nl.Pid != 0 {
		return fmt.Errorf("%w: sent by port %d, not by the kernel", errRefused, nl.Pid)
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(cmsgs) != 1 {
		return fmt.Errorf("%w: no credentials", errRefused)
	}
	cred, err := unix.ParseUnixCredentials(&cmsgs[0])
	if err != nil {
		return fmt.Errorf("%w: no credentials", errRefused)
	}
	if cred.Uid != 0 {
		return fmt.Errorf("%w: sent by uid %d", errRefused, cred.Uid)
	}
	return nil
}

// Refused is how many messages were passed over so far.
func (m *Monitor) Refused() uint64 { return m.refused.Load() }

// Close ends the subscription and wakes a waiting Receive.
func (m *Monitor) Close() error {
	if m.closed.Swap(true) {
		return os.ErrClosed
	}
	return m.file.Close()
}

package main

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// report counts the system calls by which the command changes something.
type report struct {
	Calls   int            // all system calls
	Netlink map[string]int // rtnetlink requests that change something, by type
	Asked   int            // rtnetlink requests that only ask
	Kernel  map[string]int // writes to files below /sys and /proc
	Files   map[string]int // files opened to write, renamed to, removed elsewhere
	Modules int            // modules loaded and unloaded
	Ioctl   map[string]int // interface ioctls that are no SIOCG…
	Killed  bool
}

func newReport() report {
	return report{Netlink: map[string]int{}, Kernel: map[string]int{}, Files: map[string]int{}, Ioctl: map[string]int{}}
}

func (r *report) enter(c call) {
	r.Calls++
	switch c.nr {
	case unix.SYS_SENDTO:
		if c.routeSocket(c.args[0]) {
			r.message(c.bytes(c.args[1], 6))
		}
	case unix.SYS_SENDMSG:
		if c.routeSocket(c.args[0]) {
			r.message(c.sendmsg(c.args[1]))
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV:
		if path := c.file(c.args[0]); kernelFile(path) {
			r.Kernel[path]++
		}
	case unix.SYS_OPENAT:
		if c.args[2]&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0 {
			r.file(c.text(c.args[1]))
		}
	case unix.SYS_RENAME:
		r.file(c.text(c.args[1]))
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		r.file(c.text(c.args[3]))
	case unix.SYS_UNLINK, unix.SYS_MKDIR, unix.SYS_CHMOD, unix.SYS_RMDIR:
		r.file(c.text(c.args[0]))
	case unix.SYS_UNLINKAT, unix.SYS_MKDIRAT:
		r.file(c.text(c.args[1]))
	case unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE:
		r.Modules++
	case unix.SYS_IOCTL:
		if n := c.args[1]; interfaceIoctl(n) {
			r.Ioctl[fmt.Sprintf("%#x", n)]++
		}
	}
}

// message takes in the head of an rtnetlink request: the types come in fours,
// NEW, DEL, GET, SET (linux/rtnetlink.h).
func (r *report) message(head []byte) {
	if len(head) < 6 {
		r.Netlink["unreadable"]++
		return
	}
	kind := binary.NativeEndian.Uint16(head[4:])
	if kind >= unix.RTM_BASE && kind&3 == 2 {
		r.Asked++
		return
	}
	r.Netlink[name(kind)]++
}

// sendmsg reads the first bytes of a msghdr's first buffer.
func (c call) sendmsg(msghdr uint64) []byte {
	h := c.bytes(msghdr, 32)
	if len(h) < 32 {
		return nil
	}
	iov := c.bytes(binary.NativeEndian.Uint64(h[16:]), 8)
	if len(iov) < 8 {
		return nil
	}
	return c.bytes(binary.NativeEndian.Uint64(iov), 6)
}

func name(kind uint16) string {
	for k, v := range map[uint16]string{
		unix.RTM_NEWLINK: "NEWLINK", unix.RTM_DELLINK: "DELLINK", unix.RTM_SETLINK: "SETLINK",
		unix.RTM_NEWADDR: "NEWADDR", unix.RTM_DELADDR: "DELADDR",
		unix.RTM_NEWROUTE: "NEWROUTE", unix.RTM_DELROUTE: "DELROUTE",
		unix.RTM_NEWNEIGH: "NEWNEIGH", unix.RTM_DELNEIGH: "DELNEIGH",
	} {
		if k == kind {
			return v
		}
	}
	return fmt.Sprint(kind)
}

func kernelFile(path string) bool {
	return strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/proc/")
}

func (r *report) file(path string) {
	if !strings.HasPrefix(path, "/dev/null") {
		r.Files[path]++
	}
}

// interfaceIoctl: of the socket ioctls (0x89xx) those that set are even up to
// SIOCSIFMAP; SIOCETHTOOL reads here.
func interfaceIoctl(n uint64) bool {
	switch n {
	case unix.SIOCSIFFLAGS, unix.SIOCSIFADDR, unix.SIOCSIFMTU, unix.SIOCSIFNAME, unix.SIOCSIFHWADDR, unix.SIOCADDRT, unix.SIOCDELRT:
		return true
	}
	return false
}

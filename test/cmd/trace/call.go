package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a system call of a thread that is stopped at its entry or exit.
type call struct {
	t      *tracer
	tid    int
	nr     uint64
	args   [4]uint64
	failed bool // at the exit
}

// bytes reads the thread's memory, as much as can be read of n bytes.
func (c call) bytes(addr uint64, n int) []byte {
	b := make([]byte, n)
	n, err := unix.PtracePeekData(c.tid, uintptr(addr), b)
	if err != nil && n <= 0 {
		return nil
	}
	return b[:n]
}

// text reads a NUL-terminated string.
func (c call) text(addr uint64) string {
	var all []byte
	for len(all) < unix.PathMax {
		b := c.bytes(addr+uint64(len(all)), 64)
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(append(all, b[:i]...))
		}
		if len(b) == 0 {
			break
		}
		all = append(all, b...)
	}
	return string(all)
}

// file is what a descriptor of the process is: a path, or "socket:[inode]".
func (c call) file(fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.t.pid, int32(fd)))
	return path
}

// routeSocket tells whether a descriptor is an rtnetlink socket.
func (c call) routeSocket(fd uint64) bool {
	inode, ok := strings.CutPrefix(c.file(fd), "socket:[")
	if !ok {
		return false
	}
	inode = strings.TrimSuffix(inode, "]")
	table, err := os.ReadFile("/proc/net/netlink")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		f := strings.Fields(line)
		if len(f) == 10 && f[9] == inode {
			return f[1] == fmt.Sprint(unix.NETLINK_ROUTE)
		}
	}
	return false
}

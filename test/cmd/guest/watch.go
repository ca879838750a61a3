package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ibup/test/vm/wire"
)

// watcher records kernel uevents and wakes whoever waits for something when
// the kernel says that anything about devices or the network has changed.
type watcher struct {
	mu      sync.Mutex
	uevents []wire.Uevent
	changed chan struct{} // closed and replaced at every change
}

// watch opens the kernel's event sockets and begins to record.
func watch() (*watcher, error) {
	w := &watcher{changed: make(chan struct{})}
	uevents, err := netlinkSocket(unix.NETLINK_KOBJECT_UEVENT, 1)
	if err != nil {
		return nil, fmt.Errorf("uevent socket: %w", err)
	}
	routes, err := netlinkSocket(unix.NETLINK_ROUTE,
		unix.RTMGRP_LINK|unix.RTMGRP_IPV4_IFADDR|unix.RTMGRP_IPV6_IFADDR|unix.RTMGRP_IPV4_ROUTE|unix.RTMGRP_IPV6_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink socket: %w", err)
	}
	go w.receive(uevents, w.record)
	go w.receive(routes, func([]byte) {})
	return w, nil
}

func netlinkSocket(proto int, groups uint32) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
}

func (w *watcher) receive(fd int, use func([]byte)) {
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			fmt.Fprintln(os.Stderr, "bench agent: netlink:", err)
			return
		}
		if n > 0 {
			use(buf[:n])
		}
		w.mu.Lock()
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// record parses "action@devpath" and NUL-separated variables.
func (w *watcher) record(msg []byte) {
	head, rest, _ := bytes.Cut(msg, []byte{0})
	action, devpath, ok := strings.Cut(string(head), "@")
	if !ok {
		return
	}
	e := wire.Uevent{Uptime: uptime(), Action: action, Devpath: devpath, Env: map[string]string{}}
	for kv := range strings.SplitSeq(string(rest), "\x00") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			e.Env[k] = v
		}
	}
	w.mu.Lock()
	w.uevents = append(w.uevents, e)
	w.mu.Unlock()
}

func (w *watcher) seen() []wire.Uevent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]wire.Uevent(nil), w.uevents...)
}

// await returns when the request's condition holds. It looks again at every
// kernel event; attributes that send none are caught by a slow tick.
func (w *watcher) await(r wire.Request) ([]byte, error) {
	check, tick, err := condition(r)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Duration(r.Timeout * float64(time.Second)))
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		data, ok := check()
		if ok {
			return data, nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return data, fmt.Errorf("not so after %gs, last seen: %q", r.Timeout, data)
		}
		select {
		case <-changed:
		case <-time.After(min(tick, left)):
		}
	}
}

func condition(r wire.Request) (check func() ([]byte, bool), tick time.Duration, err error) {
	switch {
	case len(r.Args) > 0:
		return func() ([]byte, bool) {
			out, err := exec.Command(r.Args[0], r.Args[1:]...).CombinedOutput()
			return out, err == nil
		}, 300 * time.Millisecond, nil
	case r.Gone:
		return func() ([]byte, bool) {
			_, err := os.Lstat(r.Path)
			return nil, errors.Is(err, os.ErrNotExist)
		}, 100 * time.Millisecond, nil
	}
	re, err := regexp.Compile(r.Match)
	if err != nil {
		return nil, 0, err
	}
	return func() ([]byte, bool) {
		data, err := os.ReadFile(r.Path)
		if err != nil {
			if errors.Is(err, syscall.EISDIR) && r.Match == "" {
				return nil, true
			}
			return []byte(err.Error()), false
		}
		return data, re.Match(data)
	}, 100 * time.Millisecond, nil
}

// readKmsg returns the kernel log from its beginning.
func readKmsg() ([]wire.Kmsg, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/kmsg: %w", err)
	}
	defer unix.Close(fd)
	var out []wire.Kmsg
	buf := make([]byte, 1<<14)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return out, nil
		case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR): // overwritten meanwhile
			continue
		case err != nil:
			return out, fmt.Errorf("/dev/kmsg: %w", err)
		}
		if m, ok := parseKmsg(string(buf[:n])); ok {
			out = append(out, m)
		}
	}
}

// parseKmsg reads "priority,sequence,microseconds,flags;text" and drops the
// device properties that follow on lines of their own.
func parseKmsg(rec string) (wire.Kmsg, bool) {
	head, text, ok := strings.Cut(rec, ";")
	f := strings.Split(head, ",")
	if !ok || len(f) < 3 {
		return wire.Kmsg{}, false
	}
	prio, err1 := strconv.Atoi(f[0])
	usec, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return wire.Kmsg{}, false
	}
	text, _, _ = strings.Cut(text, "\n")
	return wire.Kmsg{Uptime: float64(usec) / 1e6, Level: prio & 7, Text: text}, true
}

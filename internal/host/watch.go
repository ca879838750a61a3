package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"ibup/udev"
)

// Watcher tells that the machine may have changed, so that a new snapshot is worth
// taking. It tells no more: any number of changes become one signal, and a lost
// event is a change.
//
// Some things change without any notice: the state of an IB port, its P_Key table,
// the kernel log. Whoever waits for those has to look again by the clock too.
type Watcher struct {
	// C has a value after a change. It is never closed.
	C <-chan struct{}

	changed chan struct{}
	uevents *udev.Monitor
	links   *os.File
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// Watch begins to watch: kernel uevents of PCI functions, InfiniBand, network
// interfaces and modules, and rtnetlink's word on links and addresses. A snapshot
// taken after Watch has returned misses nothing that C does not announce. The
// watcher ends with ctx or with Close.
func Watch(ctx context.Context) (*Watcher, error) {
	uevents, err := udev.Open(udev.Kernel)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	links, err := openLinks()
	if err != nil {
		uevents.Close()
		return nil, fmt.Errorf("watch: %w", err)
	}
	changed := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{C: changed, changed: changed, uevents: uevents, links: links, cancel: cancel}
	context.AfterFunc(ctx, w.shut)
	w.done.Add(2)
	go w.followUevents(ctx)
	go w.followLinks()
	return w, nil
}

// Close ends the watcher and waits for its goroutines.
func (w *Watcher) Close() {
	w.cancel()
	w.shut()
	w.done.Wait()
}

func (w *Watcher) shut() {
	w.uevents.Close()
	w.links.Close()
}

func (w *Watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // one is waiting to be seen already
	}
}

func (w *Watcher) followUevents(ctx context.Context) {
	defer w.done.Done()
	for {
		ev, err := w.uevents.Receive(ctx)
		switch {
		case errors.Is(err, udev.ErrOverrun):
			w.signal()
		case err != nil:
			return
		case concerns(ev.Subsystem):
			w.signal()
		}
	}
}

// concerns leaves out the bulk of a kernel's events; loading a module makes dozens
// of SUBSYSTEM=slab on Linux 3.10.
func concerns(subsystem string) bool {
	switch subsystem {
	case "pci", "net", "module", "drivers", "auxiliary", "infiniband", "infiniband_mad", "infiniband_verbs", "infiniband_cm":
		return true
	}
	return false
}

func openLinks() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind", err)
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// followLinks takes any message as a change, whoever sent it: a snapshot too many
// does no harm.
func (w *Watcher) followLinks() {
	defer w.done.Done()
	buf := make([]byte, 16<<10)
	for {
		_, err := w.links.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		w.signal()
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ibup/internal/bringup"
	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
	"ibup/internal/ipoib"
	"ibup/internal/modules"
	"ibup/udev"
)

const root = "/"

// sinceBoot is the time the kernel log counts in, suspension included.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// load reads the configuration and says what is wrong with it.
func (a *app) load() (config.Set, error) {
	cmdline, err := config.ReadCmdline(root)
	if err != nil {
		fmt.Fprintf(a.stderr, "ibup: kernel command line: %v\n", err)
	}
	set, err := config.Load(root, cmdline)
	if err != nil {
		fmt.Fprintf(a.stderr, "%v\n", err)
	}
	return set, err
}

func installer() fallback.Installer {
	in := fallback.Installer{Root: root}
	if h, err := netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
		h.SetSocketTimeout(10 * time.Second)
		in.Netlink = h
	}
	return in
}

// actor does steps on this machine.
func actor(l *logger) (*bringup.Actor, error) {
	w, err := ipoib.New()
	if err != nil {
		return nil, err
	}
	report := func(r modules.Result) {
		if l.steps && r.Err == nil {
			l.line(levelInfo, fmt.Sprintf("module %s loaded took=%s", r.Load.Name, took(r.Took)))
		}
	}
	return &bringup.Actor{
		Link:     w,
		Modules:  bringup.Loader{Root: root, Loader: modules.NewLoader(), Report: report},
		Fallback: installer(),
		Ping:     ipoib.Ping,
	}, nil
}

// surroundings are this machine's.
func surroundings() *bringup.Surroundings {
	return &bringup.Surroundings{Root: root, Fallback: installer(), Now: sinceBoot}
}

// watch opens the event sources and returns the one channel that tells of them, and
// the reader that looks.
func watch(ctx context.Context) (*bringup.Observer, func(), error) {
	w, err := host.Watch(ctx)
	if err != nil {
		return nil, nil, err
	}
	reader := host.New(root)
	o := bringup.NewObserver(reader.Read, w.C, sinceBoot)
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	// udevd tells when it has finished with an interface; the kernel does not.
	if m, err := udev.Open(udev.Udev); err == nil {
		go followUdev(ctx, m, o)
	}
	return o, func() {
		w.Close()
		select {
		case <-done:
			reader.Close()
		case <-time.After(time.Second): // a look that hangs in the firmware
		}
	}, nil
}

func followUdev(ctx context.Context, m *udev.Monitor, o *bringup.Observer) {
	defer m.Close()
	for {
		ev, err := m.Receive(ctx)
		switch {
		case err == udev.ErrOverrun, err == nil && ev.Subsystem == "net":
			o.Refresh()
		case err != nil:
			return
		}
	}
}

// look takes one snapshot.
func look(ctx context.Context) (host.Snapshot, error) {
	reader := host.New(root)
	defer reader.Close()
	return reader.Read(ctx)
}

func isRoot() bool { return os.Geteuid() == 0 }

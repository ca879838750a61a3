package bringup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Lock takes an interface's lock without waiting. False: another process has it.
// The kernel lets it go when the process ends, however it ends.
func (s Store) Lock(iface string) (release func(), ok bool, err error) {
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, false, err
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, iface+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return func() { f.Close() }, true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, false, nil
	default:
		f.Close()
		return nil, false, fmt.Errorf("lock of %s: %w", iface, os.NewSyscallError("flock", err))
	}
}

// Acquire takes an interface's lock, or waits for the verdict of the process that
// has it: then release is nil and the journal has the verdict. One who will watch
// over the interface does not go away on the verdict of one who will not.
func (s Store) Acquire(ctx context.Context, iface string, watch bool) (release func(), j *Journal, err error) {
	if release, ok, err := s.Lock(iface); err != nil || ok {
		return release, nil, err
	}
	changed, stop, err := watchDir(s.Dir)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	for {
		release, ok, err := s.Lock(iface)
		if err != nil || ok {
			return release, nil, err
		}
		if j, err := s.Read(iface); err == nil && j.Alive() && j.Verdict != Pending && (!watch || j.Watching() || j.Verdict == IsUp) {
			return nil, j, nil
		}
		// The end of a process without a verdict makes no event here.
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-changed:
		case <-time.After(time.Second):
		}
	}
}

// watchDir tells when a file is put into a directory.
func watchDir(dir string) (<-chan struct{}, func(), error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, os.NewSyscallError("inotify_init", err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", dir, os.NewSyscallError("inotify_add_watch", err))
	}
	changed := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	return changed, func() { f.Close() }, nil
}

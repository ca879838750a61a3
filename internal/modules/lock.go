package modules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// acquire takes the loader's lock, waiting for another process no longer than ctx.
func (l *Loader) acquire(ctx context.Context) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(l.lock), 0o755); err != nil {
		return nil, fmt.Errorf("module lock: %w", err)
	}
	f, err := os.OpenFile(l.lock, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("module lock: %w", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- flock(f) }()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("module lock: %w", err)
		}
	case <-ctx.Done():
		// flock(2) cannot be called off: when it is granted after all, let it go.
		go func() { <-locked; f.Close() }()
		return nil, fmt.Errorf("module lock %s is held by %s: %w", l.lock, holder(l.lock), ctx.Err())
	}
	f.Truncate(0)
	f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return func() { f.Close() }, nil
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// holder names the process that has the lock, for a message.
func holder(lock string) string {
	b, _ := os.ReadFile(lock)
	pid := strings.TrimSpace(string(b))
	if pid == "" {
		return "another process"
	}
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return "process " + pid
	}
	return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(comm)))
}

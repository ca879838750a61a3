package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"ibup/test/vm/wire"
)

const port = "/dev/ttyS1"

// agent answers requests; each runs on its own goroutine.
type agent struct {
	watcher *watcher
	mu      sync.Mutex // guards out and runs
	out     *json.Encoder
	runs    map[uint64]*process
}

// serve greets the bench and answers it until the line closes.
func serve(w *watcher) error {
	if w == nil {
		var err error
		if w, err = watch(); err != nil {
			return err
		}
	}
	tty, err := openRaw(port)
	if err != nil {
		return err
	}
	a := &agent{watcher: w, out: json.NewEncoder(tty), runs: map[uint64]*process{}}
	a.send(wire.Reply{})
	in := json.NewDecoder(tty)
	for {
		var r wire.Request
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", port, err)
		}
		if r.Op == wire.OpRun { // known before a signal for it is read
			a.start(r)
			continue
		}
		go func() { a.send(a.answer(r)) }()
	}
}

func (a *agent) send(r wire.Reply) {
	r.Uptime = uptime()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "bench agent:", err)
	}
}

func (a *agent) answer(r wire.Request) wire.Reply {
	reply := wire.Reply{ID: r.ID}
	var err error
	switch r.Op {
	case wire.OpSignal:
		err = a.signal(r.Target, r.Signal)
	case wire.OpOutput:
		reply.Stdout, reply.Stderr, err = a.output(r.Target)
	case wire.OpPut:
		err = put(r)
	case wire.OpGet:
		reply.Data, err = os.ReadFile(r.Path)
	case wire.OpAwait:
		reply.Data, err = a.watcher.await(r)
	case wire.OpUevents:
		reply.Uevents = a.watcher.seen()
	case wire.OpKmsg:
		reply.Kmsg, err = readKmsg()
	default:
		err = fmt.Errorf("unknown operation %q", r.Op)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// put writes a file, or a sysfs attribute when Mode is zero.
func put(r wire.Request) error {
	if r.Mode == 0 {
		return os.WriteFile(r.Path, r.Data, 0o644)
	}
	if err := os.MkdirAll(filepath.Dir(r.Path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.Path, r.Data, os.FileMode(r.Mode)); err != nil {
		return err
	}
	return os.Chmod(r.Path, os.FileMode(r.Mode)) // whatever the umask
}

// openRaw opens a serial line so that bytes pass unchanged.
func openRaw(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func uptime() float64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return float64(ts.Sec) + float64(ts.Nsec)/1e9
}

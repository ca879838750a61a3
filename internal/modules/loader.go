package modules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibup/internal/host"
	"ibup/internal/modules/unpack"
)

// LockFile is held by whoever loads modules. The kernel would sort out two loaders
// too, but mlx5_ib and ib_cm loaded side by side have missed each other (NVIDIA
// 2753944), and two orders of one stack are one too many to reason about.
const LockFile = "/run/ibup/modules.lock"

// Loader loads into and unloads from the running kernel.
type Loader struct {
	root   string // "/": where /sys and /proc are
	lock   string
	kernel kernel
	tail   func() (*host.Tail, error)

	mu      sync.Mutex
	current string
	pending sync.WaitGroup
}

// kernel is the system calls.
type kernel interface {
	finit(f *os.File, params string, flags int) error
	init(image []byte, params string) error
	remove(name string) error
}

// NewLoader returns a loader for this machine.
func NewLoader() *Loader {
	return &Loader{root: "/", lock: LockFile, kernel: syscalls{}, tail: host.OpenTail}
}

// Result is how the load of one module went.
type Result struct {
	Load Load
	Took time.Duration
	Err  error // *LoadError, nil when it is live now
}

// Run loads what the plan has to do, in order, and stops at the first needed module
// that does not load. report, if not nil, is called with every result.
//
// When ctx ends first, Run returns its error at once, but a driver that is probing
// its cards goes on doing so in the kernel: Busy names it, Wait waits for it. A
// process that exits meanwhile kills that probe with it, and the driver then
// reports nonsense such as "-12": Wait before exit.
func (l *Loader) Run(ctx context.Context, plan Plan, report func(Result)) error {
	todo := plan.Todo()
	if len(todo) == 0 {
		return nil
	}
	unlock, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	results := make(chan Result, len(todo))
	l.pending.Go(func() {
		defer unlock()
		defer close(results)
		for _, m := range todo {
			if ctx.Err() != nil {
				return
			}
			start := time.Now()
			err := l.load(ctx, m)
			results <- Result{m, time.Since(start), err}
			if err != nil && !m.Optional {
				return
			}
		}
	})
	for {
		select {
		case r, more := <-results:
			if !more {
				return ctx.Err()
			}
			if report != nil {
				report(r)
			}
			if r.Err != nil && !r.Load.Optional {
				return r.Err
			}
		case <-ctx.Done():
			return fmt.Errorf("loading %s: the kernel is still at it: %w", l.Busy(), ctx.Err())
		}
	}
}

// Load loads one module, as Run does.
func (l *Loader) Load(ctx context.Context, m Load) error {
	m.Optional = false
	return l.Run(ctx, Plan{Loads: []Load{m}}, nil)
}

// Busy names the module that is being loaded, "" when none is.
func (l *Loader) Busy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

func (l *Loader) setBusy(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = name
}

// Wait returns when no load is under way any more.
func (l *Loader) Wait() { l.pending.Wait() }

// maxRounds is how often a module that is there and then is not is tried.
const maxRounds = 3

// load brings one module to life.
func (l *Loader) load(ctx context.Context, m Load) error {
	l.setBusy(m.Name)
	defer l.setBusy("")
	tail, err := l.tail()
	if err == nil {
		defer tail.Close()
	}
	said := func() []host.KernelLine {
		if tail == nil {
			return nil
		}
		return tail.Lines()
	}
	for round := 1; ; round++ {
		if stateIn(l.root, m.Name) == Live {
			return nil
		}
		err := l.insert(m)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY):
			// Somebody else's load. The kernel has waited for its end; it is live,
			// or it failed or is being removed, which has no event to wait for.
			again, failed := l.settle(ctx, m.Name)
			if !again {
				return failed
			}
			// Not somebody else's: a module's own start can end with these, too.
			if round >= maxRounds {
				return l.explain(m, err, said())
			}
		default:
			return l.explain(m, err, said())
		}
	}
}

// settle waits until a module that is neither live nor absent is one of them: true
// when it is absent, so that it can be loaded again.
func (l *Loader) settle(ctx context.Context, name string) (again bool, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		switch stateIn(l.root, name) {
		case Live, Builtin:
			return false, nil
		case Absent:
			return true, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("module %s is neither live nor gone: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

// insert hands the module to the kernel: by its file descriptor where possible, so
// that IMA and lockdown see the file, else unpacked from memory.
func (l *Loader) insert(m Load) error {
	f, err := os.Open(m.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	switch {
	case m.Compression == Plain:
		if err := l.kernel.finit(f, m.Params, 0); !errors.Is(err, unix.ENOSYS) {
			return err
		}
	case l.unpacks(m.Compression):
		err := l.kernel.finit(f, m.Params, unix.MODULE_INIT_COMPRESSED_FILE)
		if !mayBeUnpacking(err) {
			return err
		}
	}
	image, err := readImage(m)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return l.kernel.init(image, m.Params)
}

// readImage reads and unpacks a module file.
func readImage(m Load) ([]byte, error) {
	b, err := os.ReadFile(m.Path)
	if err != nil {
		return nil, err
	}
	switch m.Compression {
	case Gzip:
		return unpack.Gzip(b, unpack.Limit)
	case XZ:
		return unpack.XZ(b, unpack.Limit)
	case Zstd:
		return unpack.Zstd(b, unpack.Limit)
	}
	return b, nil
}

// unpacks tells whether the kernel itself can decompress a module: since 5.17 with
// CONFIG_MODULE_DECOMPRESS, for the one algorithm it names.
func (l *Loader) unpacks(c Compression) bool {
	b, err := os.ReadFile(filepath.Join(l.root, "sys/module/compression"))
	return err == nil && strings.TrimSpace(string(b)) == string(c)
}

// mayBeUnpacking tells whether an error can come from the kernel's decompressor and
// not from the module, so that unpacking here is worth a try.
func mayBeUnpacking(err error) bool {
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS, unix.ENOEXEC, unix.ENOMEM, unix.EIO} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

type syscalls struct{}

func (syscalls) finit(f *os.File, params string, flags int) error {
	return unix.FinitModule(int(f.Fd()), params, flags)
}

func (syscalls) init(image []byte, params string) error { return unix.InitModule(image, params) }

func (syscalls) remove(name string) error { return unix.DeleteModule(name, unix.O_NONBLOCK) }

package modules

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"

	"ibup/internal/host"
	"ibup/internal/host/hosttest"
)

// fakeKernel answers by module and call, and records what was asked of it.
type fakeKernel struct {
	root string
	errs map[string][]error // module: results of its calls, in order; nil when used up

	mu    sync.Mutex
	calls []string // "finit ptp a=1", "init ptp", "remove ptp"
	image []byte   // of the last init
	gate  chan struct{}
}

func (k *fakeKernel) call(name, what string) error {
	if k.gate != nil {
		<-k.gate
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, strings.TrimSpace(what))
	var err error
	if e := k.errs[name]; len(e) > 0 {
		err, k.errs[name] = e[0], e[1:]
	}
	if err == nil && !strings.HasPrefix(what, "remove") {
		hosttest.Write(k.root, "sys/module/"+name+"/initstate: live")
	}
	return err
}

func (k *fakeKernel) finit(f *os.File, params string, flags int) error {
	name, _, _ := nameOf(f.Name())
	if flags != 0 {
		name += fmt.Sprintf("+%d", flags)
	}
	return k.call(strings.TrimSuffix(name, "+4"), "finit "+name+" "+params)
}

func (k *fakeKernel) init(image []byte, params string) error {
	k.image = image
	name, _, _ := strings.Cut(string(image), "\n")
	return k.call(name, "init "+name+" "+params)
}

func (k *fakeKernel) remove(name string) error { return k.call(name, "remove "+name) }

func (k *fakeKernel) log() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.calls, ", ")
}

// fake makes a machine with plain module files a, b and c, whose content begins
// with their name.
func fake(t *testing.T, errs map[string][]error) (*Loader, *fakeKernel, Plan) {
	t.Helper()
	root := hosttest.Tree(t, "a.ko: a\nb.ko: b\nc.ko: c\nsys/module/")
	k := &fakeKernel{root: root, errs: errs}
	l := &Loader{root: root, lock: filepath.Join(root, "run/ibup/modules.lock"), kernel: k,
		tail: func() (*host.Tail, error) { return nil, errors.New("no log") }}
	var plan Plan
	for _, n := range []string{"a", "b", "c"} {
		plan.Loads = append(plan.Loads, Load{Name: n, Path: filepath.Join(root, n+".ko"), State: Absent})
	}
	return l, k, plan
}

func run(t *testing.T, l *Loader, p Plan) (results string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var got []string
	err = l.Run(ctx, p, func(r Result) {
		s := r.Load.Name
		if r.Err != nil {
			s += "!"
		}
		got = append(got, s)
	})
	return strings.Join(got, " "), err
}

func TestRun(t *testing.T) {
	type errs = map[string][]error
	tests := []struct {
		name    string
		errs    errs
		change  func(*Plan)
		results string
		calls   string
		err     error
	}{
		{name: "in order", results: "a b c", calls: "finit a, finit b, finit c"},
		{name: "parameters", change: func(p *Plan) { p.Loads = p.Loads[:1]; p.Loads[0].Params = "x=1 y" }, results: "a", calls: "finit a x=1 y"},
		{name: "nothing to do", change: func(p *Plan) {
			p.Loads[0].State, p.Loads[1].State, p.Loads[2].State = Live, Builtin, Live
		}},
		{name: "somebody loads it too", change: func(p *Plan) { p.Loads[0].State = Coming }, results: "a b c", calls: "finit a, finit b, finit c"},
		{name: "stops at a failure", errs: errs{"b": {unix.ENOEXEC}}, results: "a b!", calls: "finit a, finit b", err: unix.ENOEXEC},
		{name: "goes on behind an optional one", errs: errs{"b": {unix.ENOEXEC}}, change: func(p *Plan) { p.Loads[1].Optional = true },
			results: "a b! c", calls: "finit a, finit b, finit c"},
		{name: "interrupted", errs: errs{"a": {unix.EINTR, unix.EINTR}}, change: func(p *Plan) { p.Loads = p.Loads[:1] },
			results: "a", calls: "finit a, finit a, finit a"},
		{name: "another's load failed", errs: errs{"a": {unix.EBUSY}}, change: func(p *Plan) { p.Loads = p.Loads[:1] },
			results: "a", calls: "finit a, finit a"},
		{name: "no finit_module", errs: errs{"a": {unix.ENOSYS}}, change: func(p *Plan) { p.Loads = p.Loads[:1] },
			results: "a", calls: "finit a, init a"},
		{name: "no file", change: func(p *Plan) { p.Loads[0].Path += "x" }, results: "a!", err: os.ErrNotExist},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, k, plan := fake(t, tt.errs)
			if tt.change != nil {
				tt.change(&plan)
			}
			results, err := run(t, l, plan)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Errorf("Run = %v, want %v", err, tt.err)
			}
			if results != tt.results || k.log() != tt.calls {
				t.Errorf("results %q, calls %q\nwant    %q,       %q", results, k.log(), tt.results, tt.calls)
			}
			var le *LoadError
			if tt.err != nil && (!errors.As(err, &le) || le.Reason == "") {
				t.Errorf("%v is no LoadError with a reason", err)
			}
		})
	}
}

// TestRunOfOwnEEXIST has a module whose own start ends with the error that
// otherwise means another's load: that has an end, too.
func TestRunOfOwnEEXIST(t *testing.T) {
	for _, errno := range []error{unix.EEXIST, unix.EBUSY} {
		l, k, plan := fake(t, map[string][]error{"a": {errno, errno, errno, errno, errno}})
		plan.Loads = plan.Loads[:1]
		if _, err := run(t, l, plan); !errors.Is(err, errno) || k.log() != "finit a, finit a, finit a" {
			t.Errorf("Run = %v, calls %q; want %v after three", err, k.log(), errno)
		}
	}
}

// TestRunAgainstAnotherLoader has the kernel say EEXIST while the other's load
// comes to its end.
func TestRunAgainstAnotherLoader(t *testing.T) {
	l, k, plan := fake(t, map[string][]error{"a": {unix.EEXIST}})
	plan.Loads = plan.Loads[:1]
	if err := hosttest.Write(k.root, "sys/module/a/initstate: coming"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(120*time.Millisecond, func() { hosttest.Write(k.root, "sys/module/a/initstate: live") })
	if results, err := run(t, l, plan); results != "a" || err != nil || k.log() != "finit a" {
		t.Errorf("Run = %q, %v, calls %q", results, err, k.log())
	}
	// One that never comes to an end is given up with the context.
	l, k, plan = fake(t, map[string][]error{"a": {unix.EEXIST}})
	if err := hosttest.Write(k.root, "sys/module/a/initstate: going"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := l.Load(ctx, plan.Loads[0]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Load = %v", err)
	}
	l.Wait()
}

// TestRunReturnsWithItsContext has a driver whose probe takes too long.
func TestRunReturnsWithItsContext(t *testing.T) {
	l, k, plan := fake(t, nil)
	k.gate = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := l.Run(ctx, plan, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "loading a") || l.Busy() != "a" {
		t.Errorf("Run = %v, busy %q", err, l.Busy())
	}
	// The kernel is still at it, so nobody else may begin.
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := l.Run(short, plan, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lock") {
		t.Errorf("second Run = %v", err)
	}
	close(k.gate)
	l.Wait()
	if k.log() != "finit a" || l.Busy() != "" {
		t.Errorf("calls %q, busy %q: want the load under way to end and no other to begin", k.log(), l.Busy())
	}
	if results, err := run(t, l, plan); err != nil || results != "a b c" {
		t.Errorf("Run afterwards = %q, %v", results, err)
	}
}

func TestRunOneLoaderAtATime(t *testing.T) {
	l, k, plan := fake(t, nil)
	release, err := l.acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(context.Background(), plan, nil) }()
	select {
	case err := <-done:
		t.Fatalf("Run = %v while the lock was held", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if k.log() != "finit a, finit b, finit c" {
		t.Errorf("calls %q", k.log())
	}
}

func TestLoadUnpacks(t *testing.T) {
	image := append([]byte("a\n"), noise(300_000)...)
	for _, c := range []Compression{Gzip, XZ, Zstd} {
		t.Run(string(c), func(t *testing.T) {
			l, k, plan := fake(t, nil)
			m := plan.Loads[0]
			m.Compression = c
			if err := os.WriteFile(m.Path, pack(t, c, image), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := l.Load(context.Background(), m); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(k.image, image) {
				t.Errorf("image of %d bytes, want %d", len(k.image), len(image))
			}
			// A truncated file is an error with the file's name, not a module.
			os.Remove(filepath.Join(k.root, "sys/module/a/initstate"))
			os.Remove(filepath.Join(k.root, "sys/module/a"))
			if err := os.WriteFile(m.Path, pack(t, c, image)[:1000], 0o644); err != nil {
				t.Fatal(err)
			}
			k.calls = nil
			err := l.Load(context.Background(), m)
			if err == nil || !strings.Contains(err.Error(), m.Path) || k.log() != "" {
				t.Errorf("truncated: %v, calls %q", err, k.log())
			}
		})
	}
}

// TestLoadLetsTheKernelUnpack where it says that it can, and takes over where it
// cannot after all.
func TestLoadLetsTheKernelUnpack(t *testing.T) {
	for _, tt := range []struct {
		kernel string
		err    []error
		calls  string
	}{
		{"xz", nil, "finit a+4 x=1"},
		{"xz", []error{unix.EINVAL}, "finit a+4 x=1, init a x=1"},
		{"xz", []error{unix.EOPNOTSUPP}, "finit a+4 x=1, init a x=1"},
		{"zstd", nil, "init a x=1"},
	} {
		l, k, plan := fake(t, map[string][]error{"a": tt.err})
		m := plan.Loads[0]
		m.Compression, m.Params = XZ, "x=1"
		path := strings.TrimSuffix(m.Path, ".ko") + ".ko.xz"
		m.Path = path
		if err := os.WriteFile(path, pack(t, XZ, []byte("a\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := hosttest.Write(k.root, "sys/module/compression: "+tt.kernel); err != nil {
			t.Fatal(err)
		}
		if err := l.Load(context.Background(), m); err != nil || k.log() != tt.calls {
			t.Errorf("kernel unpacks %s: %v, calls %q, want %q", tt.kernel, err, k.log(), tt.calls)
		}
	}
}

func TestUnload(t *testing.T) {
	tests := []struct {
		name, tree string
		err        error // of the kernel
		calls      string
		want       string // part of the error
	}{
		{"unused", "initstate: live\nrefcnt: 0\nholders/", nil, "remove a", ""},
		{"absent", "", nil, "", ""},
		{"gone meanwhile", "initstate: live\nrefcnt: 0", unix.ENOENT, "remove a", ""},
		{"held", "initstate: live\nrefcnt: 2\nholders/b/\nholders/c/", nil, "", "in use by b, c"},
		{"referenced", "initstate: live\nrefcnt: 3\nholders/", nil, "", "3 references"},
		{"taken meanwhile", "initstate: live\nrefcnt: 0", unix.EWOULDBLOCK, "remove a", "in use"},
		{"refused", "initstate: live\nrefcnt: 0", unix.EPERM, "remove a", "does not unload"},
		{"built in", "parameters/x: 1", nil, "", "built into"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, k, _ := fake(t, map[string][]error{"a": {tt.err}})
			if tt.tree != "" {
				if err := hosttest.Write(k.root, "[sys/module/a]\n"+tt.tree); err != nil {
					t.Fatal(err)
				}
			}
			err := l.Unload("a")
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Unload = %v, want %q", err, tt.want)
			}
			if k.log() != tt.calls {
				t.Errorf("calls %q, want %q", k.log(), tt.calls)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	line := func(k host.Kind, module, text string) host.KernelLine {
		return host.KernelLine{Kind: k, Module: module, Text: text}
	}
	tests := []struct {
		name   string
		err    error
		params string
		said   []host.KernelLine
		reason string
		kernel int // lines cited
	}{
		{"key", unix.ENOKEY, "", nil, "not signed by a key", 0},
		{"signature", unix.EKEYREJECTED, "", []host.KernelLine{line(host.Signature, "", "Loading of unsigned module is rejected")}, "signature is rejected", 1},
		{"damaged", unix.ENOEXEC, "", nil, "damaged", 0},
		{"vermagic", unix.ENOEXEC, "", []host.KernelLine{line(host.Vermagic, "a", "a: version magic")}, "built for another kernel", 1},
		{"module_layout", unix.ENOEXEC, "", []host.KernelLine{line(host.SymbolVersion, "a", "a: disagrees")}, "built for another kernel", 1},
		{"mixed", unix.EINVAL, "", []host.KernelLine{line(host.SymbolVersion, "a", "a: disagrees"), line(host.UnknownSymbol, "a", "a: Unknown symbol x (err -22)")}, "another set of modules", 2},
		{"another module's line", unix.EINVAL, "", []host.KernelLine{line(host.SymbolVersion, "ko2iblnd", "ko2iblnd: disagrees")}, "refuses it", 0},
		{"bad value", unix.EINVAL, "x=y", []host.KernelLine{line(host.Parameter, "a", "a: `y' invalid for parameter `x'")}, `bad value ("x=y")`, 1},
		{"no symbol", unix.ENOENT, "", []host.KernelLine{line(host.UnknownSymbol, "a", "a: Unknown symbol x (err 0)")}, "nothing exports", 1},
		{"unknown parameter (3.10)", unix.ENOENT, "q=1", []host.KernelLine{line(host.Parameter, "a", "a: Unknown parameter `q'")}, `does not know one of its parameters ("q=1")`, 1},
		{"no line: symbol", unix.ENOENT, "", nil, "nothing exports", 0},
		{"no line: parameter", unix.ENOENT, "q=1", nil, "parameters", 0},
		{"lockdown", unix.EPERM, "", []host.KernelLine{line(host.Lockdown, "", "Lockdown: ibup: unsigned module loading is restricted")}, "lockdown", 1},
		{"module_blacklist", unix.EPERM, "", []host.KernelLine{line(host.Blacklisted, "a", "Module a is blacklisted")}, "module_blacklist", 1},
		{"killed", unix.ENOMEM, "", []host.KernelLine{line(host.LoaderKilled, "", "workqueue: …: -EINTR")}, "being killed", 1},
		{"memory", unix.ENOMEM, "", nil, "no memory", 0},
		{"no device", unix.ENODEV, "", nil, "nothing to work with", 0},
		{"other", unix.EFAULT, "", nil, "initialization failed", 0},
		{"unreadable", &os.PathError{Op: "open", Path: "/a.ko", Err: unix.ENOENT}, "", nil, "cannot be read", 0},
		{"damaged archive", io.ErrUnexpectedEOF, "", nil, "cannot be read", 0},
	}
	l, k, _ := fake(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := l.explain(Load{Name: "a", Params: tt.params}, tt.err, tt.said)
			if !strings.Contains(e.Reason, tt.reason) || len(e.Kernel) != tt.kernel || !errors.Is(e, tt.err) {
				t.Errorf("explain = %+v\nwant %q and %d lines", e, tt.reason, tt.kernel)
			}
			for _, part := range append(slices.Clone(e.Kernel), e.Reason, e.Remedy, "module a") {
				if !strings.Contains(e.Error(), part) && !strings.Contains(e.Error(), fmt.Sprintf("%q", part)) {
					t.Errorf("%q does not say %q", e, part)
				}
			}
		})
	}
	if err := hosttest.Write(k.root, "proc/sys/kernel/modules_disabled: 1"); err != nil {
		t.Fatal(err)
	}
	if e := l.explain(Load{Name: "a"}, unix.EPERM, nil); !strings.Contains(e.Reason, "modules_disabled") {
		t.Errorf("modules_disabled: %v", e)
	}
}

// noise does not compress, so that half of an archive is half of the image.
func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func pack(t testing.TB, c Compression, image []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch c {
	case Gzip:
		w = gzip.NewWriter(&b)
	case XZ:
		w, err = xz.NewWriter(&b)
	case Zstd:
		w, err = zstd.NewWriter(&b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

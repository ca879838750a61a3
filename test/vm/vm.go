package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"ibup/test/image"
)

// VM is a running machine.
type VM struct {
	opt     Options
	console console
	agent   *client
	qmp     *qmp
	kill    context.CancelFunc

	pid int

	mu   sync.Mutex
	used int // slots taken

	ended chan struct{} // closed when QEMU is gone
	err   error         // why, valid once ended is closed
}

// Start boots a machine and returns when its agent answers: in the small guest
// after coldplug, in the systemd one as soon as the agent's service runs (see
// [VM.WaitBoot]). An error that wraps [image.ErrNotSetUp] says what is missing.
func Start(ctx context.Context, opt Options) (*VM, error) {
	opt = opt.withDefaults()
	v, err := start(ctx, opt)
	if err != nil {
		return nil, fmt.Errorf("vm %s (%s): %w", opt.Name, opt.Kernel, err)
	}
	return v, nil
}

func start(ctx context.Context, opt Options) (*VM, error) {
	cache, err := image.Open()
	if err != nil {
		return nil, err
	}
	kernel, err := cache.Kernel(opt.Kernel)
	if err != nil {
		return nil, err
	}
	qemu, err := cache.QEMU(ctx)
	if err != nil {
		return nil, err
	}
	initrd, err := writeInitrd(ctx, cache, opt)
	if err != nil {
		return nil, err
	}
	defer initrd.Close()

	run, kill := context.WithTimeout(context.WithoutCancel(ctx), opt.Limit)
	v := &VM{opt: opt, kill: kill, used: len(opt.HCAs), ended: make(chan struct{})}
	cmd := exec.CommandContext(run, qemu[0], append(qemu[1:], opt.qemuArgs(kernel.Image, "/dev/fd/5")...)...)
	cmd.Stdout, cmd.Stderr = &v.console, &v.console
	qmpConn, qmpFile, err := socketPair("qmp")
	if err != nil {
		return nil, err
	}
	agentConn, agentFile, err := socketPair("agent")
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{qmpFile, agentFile, initrd}
	// The machine must not outlive the test: it gets a process group to be
	// killed by, and dies with the thread that started it, see below.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			v.pid = cmd.Process.Pid
		}
		qmpFile.Close()
		agentFile.Close()
		started <- err
		if err != nil {
			return
		}
		v.end(run, cmd.Wait())
	}()
	if err := <-started; err != nil {
		kill()
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	v.qmp = newQMP(qmpConn)
	v.agent = newClient(agentConn)

	boot, cancel := context.WithTimeout(ctx, opt.Boot)
	defer cancel()
	if err := v.waitReady(boot); err != nil {
		v.Close()
		return nil, fmt.Errorf("%w; console:\n%s", err, v.ConsoleTail())
	}
	return v, nil
}

func (v *VM) waitReady(ctx context.Context) error {
	select {
	case <-v.agent.ready:
	case <-v.ended:
		return fmt.Errorf("ended while booting: %w", v.err)
	case <-ctx.Done():
		return fmt.Errorf("no greeting from the guest: %w", ctx.Err())
	}
	return v.qmp.handshake(ctx)
}

// end notes that QEMU is gone and lets everybody who waits know.
func (v *VM) end(run context.Context, err error) {
	switch {
	case errors.Is(run.Err(), context.DeadlineExceeded):
		v.err = fmt.Errorf("killed at its limit of %v", v.opt.Limit)
	case err != nil:
		v.err = fmt.Errorf("QEMU: %w", err)
	default:
		v.err = errors.New("the machine was switched off")
	}
	v.kill()
	close(v.ended)
	v.agent.close(v.err)
	v.qmp.close(v.err)
}

// Close kills the machine and waits until it is gone.
func (v *VM) Close() {
	v.kill()
	<-v.ended
}

// Ended is closed when the machine is gone.
func (v *VM) Ended() <-chan struct{} { return v.ended }

// Console returns everything that firmware, kernel and guest have written to
// the first serial port, and QEMU's own messages.
func (v *VM) Console() string { return v.console.String() }

// ConsoleTail returns the last lines of the console.
func (v *VM) ConsoleTail() string {
	b := []byte(v.Console())
	lines := bytes.SplitAfter(b, []byte("\n"))
	if n := len(lines); n > 60 {
		lines = lines[n-60:]
	}
	return string(bytes.Join(lines, nil))
}

// Name returns the machine's name.
func (v *VM) Name() string { return v.opt.Name }

type console struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.String()
}

// writeInitrd returns a file without a name that holds the guest's packed file
// system followed by the machine's own part; the kernel unpacks them one over
// the other.
func writeInitrd(ctx context.Context, cache *image.Cache, opt Options) (*os.File, error) {
	base, err := cache.Initramfs(ctx, opt.guest())
	if err != nil {
		return nil, err
	}
	agent, err := buildAgent()
	if err != nil {
		return nil, err
	}
	out, err := os.CreateTemp("", "ibup-initrd-")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(out.Name()), concatenate(out, base, opt.overlay(agent))); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

func concatenate(out *os.File, base string, over image.Files) error {
	in, err := os.Open(base)
	if err != nil {
		return err
	}
	defer in.Close()
	n, err := out.ReadFrom(in)
	if err != nil {
		return err
	}
	if _, err := out.Write(make([]byte, -n&3)); err != nil { // archives begin at multiples of four
		return err
	}
	return over.WriteCPIO(out)
}

// buildAgent compiles the guest's agent, once per process.
var buildAgent = sync.OnceValues(func() (string, error) {
	root, err := image.ModuleRoot()
	if err != nil {
		return "", err
	}
	cache, err := image.Open()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache.Dir, "agent", fmt.Sprint(os.Getuid()))
	return path, BuildStatic(root, "ibup/test/cmd/guest", path)
})

// BuildStatic compiles a command of this module for a guest.
func BuildStatic(root, pkg, out string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), "build")
	if err != nil {
		return err
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", tmp.Name(), pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, b)
	}
	return os.Rename(tmp.Name(), out)
}

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// tracer follows one process with all its threads through ptrace(2). All calls
// come from the thread that started it.
type tracer struct {
	pid    int
	inside map[int]bool // threads between entry and exit of a system call
	report report
	kill   kill
}

func newTracer(k kill) *tracer {
	return &tracer{inside: map[int]bool{}, report: newReport(), kill: k}
}

// options: marked system call stops, new threads are followed, the command dies
// with the tracer.
const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// run runs the command to its end and returns its exit status.
func (t *tracer) run(args []string) (int, error) {
	runtime.LockOSThread()
	path, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	p, err := os.StartProcess(path, args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return 0, err
	}
	t.pid = p.Pid
	if _, err := unix.Wait4(t.pid, nil, 0, nil); err != nil { // stopped at exec
		return 0, fmt.Errorf("wait: %w", err)
	}
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		return 0, fmt.Errorf("ptrace: %w", err)
	}
	if err := unix.PtraceSyscall(t.pid, 0); err != nil {
		return 0, fmt.Errorf("ptrace: %w", err)
	}
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case tid == t.pid && ws.Exited():
			return ws.ExitStatus(), nil
		case tid == t.pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case !ws.Stopped():
			delete(t.inside, tid)
			continue
		}
		sig, err := t.stopped(tid, ws)
		if err == nil {
			err = unix.PtraceSyscall(tid, sig)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // killed meanwhile
			return 0, fmt.Errorf("ptrace: %w", err)
		}
	}
}

// stopped handles a stop and returns the signal to go on with.
func (t *tracer) stopped(tid int, ws unix.WaitStatus) (int, error) {
	switch sig := ws.StopSignal(); {
	case sig == unix.SIGTRAP|0x80:
		return 0, t.syscall(tid)
	case sig == unix.SIGTRAP, sig == unix.SIGSTOP: // a new thread
		return 0, nil
	default:
		return int(sig), nil
	}
}

func (t *tracer) syscall(tid int) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	c := call{t: t, tid: tid, nr: r.Orig_rax, args: [4]uint64{r.Rdi, r.Rsi, r.Rdx, r.R10}}
	t.inside[tid] = !t.inside[tid]
	if t.inside[tid] {
		t.report.enter(c)
	} else {
		c.failed = int64(r.Rax) < 0
	}
	if t.kill.now(c, t.inside[tid]) {
		t.report.Killed = true
		return unix.Kill(t.pid, unix.SIGKILL)
	}
	return nil
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"ibup/test/vm/wire"
)

// process is a running command in a process group of its own.
type process struct {
	cmd         *exec.Cmd
	out, errOut buffer
}

// buffer is a bytes.Buffer that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.b.Bytes())
}

// start begins a run; the reply is sent when it has ended.
func (a *agent) start(r wire.Request) {
	if len(r.Args) == 0 {
		a.send(wire.Reply{ID: r.ID, Error: "nothing to run"})
		return
	}
	p := &process{cmd: exec.Command(r.Args[0], r.Args[1:]...)}
	p.cmd.Dir, p.cmd.Stdin = r.Dir, bytes.NewReader(r.Stdin)
	p.cmd.Env = append(os.Environ(), r.Env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errOut
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A daemon that keeps the pipe open must not hold the reply back.
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		a.send(wire.Reply{ID: r.ID, Error: err.Error()})
		return
	}
	a.mu.Lock()
	a.runs[r.ID] = p
	a.mu.Unlock()
	go func() {
		reply := wire.Reply{ID: r.ID}
		if r.Timeout > 0 {
			limit := time.AfterFunc(time.Duration(r.Timeout*float64(time.Second)), func() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
			defer limit.Stop()
		}
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
			reply.Error = err.Error()
		}
		if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			reply.Code = 128 + int(ws.Signal())
		} else {
			reply.Code = p.cmd.ProcessState.ExitCode()
		}
		reply.Stdout, reply.Stderr = p.out.bytes(), p.errOut.bytes()
		a.mu.Lock()
		delete(a.runs, r.ID)
		a.mu.Unlock()
		a.send(reply)
	}()
}

func (a *agent) find(id uint64) (*process, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.runs[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("run %d is not running", id)
}

func (a *agent) signal(id uint64, sig int) error {
	p, err := a.find(id)
	if err != nil {
		return err
	}
	return syscall.Kill(-p.cmd.Process.Pid, syscall.Signal(sig))
}

func (a *agent) output(id uint64) (out, errOut []byte, err error) {
	p, err := a.find(id)
	if err != nil {
		return nil, nil, err
	}
	return p.out.bytes(), p.errOut.bytes(), nil
}

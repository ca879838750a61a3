package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"ibup/test/vm/wire"
)

// Result is how a command in the guest ended.
type Result struct {
	Stdout, Stderr string
	Code           int     // exit status; 128+N when killed by signal N
	Uptime         float64 // seconds since the guest's boot, at its end
}

// Run runs a command in the guest and waits for it. That it fails is no error:
// see Code. When ctx ends the command is killed.
func (v *VM) Run(ctx context.Context, command string, args ...string) (Result, error) {
	p, err := v.Background(command, args...)
	if err != nil {
		return Result{}, err
	}
	res, err := p.Wait(ctx)
	if ctx.Err() != nil {
		p.Signal(context.WithoutCancel(ctx), syscall.SIGKILL) // best effort
	}
	return res, err
}

// Sh runs a shell script in the guest.
func (v *VM) Sh(ctx context.Context, script string) (Result, error) {
	return v.Run(ctx, "sh", "-c", script)
}

// Process is a command that runs in the guest.
type Process struct {
	v    *VM
	name string
	id   uint64
	ch   <-chan wire.Reply
}

// Background starts a command in the guest.
func (v *VM) Background(command string, args ...string) (*Process, error) {
	id, ch, err := v.agent.send(wire.Request{Op: wire.OpRun, Args: append([]string{command}, args...)})
	if err != nil {
		return nil, v.fail(command, err)
	}
	return &Process{v, command, id, ch}, nil
}

// Wait waits until the command has ended. It can be called once.
func (p *Process) Wait(ctx context.Context) (Result, error) {
	r, err := p.v.agent.receiveReply(ctx, p.ch)
	if err != nil {
		return Result{}, p.v.fail(p.name, err)
	}
	return Result{string(r.Stdout), string(r.Stderr), r.Code, r.Uptime}, nil
}

// Signal sends a signal to the command and its children.
func (p *Process) Signal(ctx context.Context, sig syscall.Signal) error {
	_, err := p.v.agent.do(ctx, wire.Request{Op: wire.OpSignal, Target: p.id, Signal: int(sig)})
	return p.v.fail("signal "+p.name, err)
}

// Output returns what the running command has written so far.
func (p *Process) Output(ctx context.Context) (stdout, stderr string, err error) {
	r, err := p.v.agent.do(ctx, wire.Request{Op: wire.OpOutput, Target: p.id})
	return string(r.Stdout), string(r.Stderr), p.v.fail("output of "+p.name, err)
}

// Put writes a file in the guest, with its directories.
func (v *VM) Put(ctx context.Context, path string, data []byte, mode fs.FileMode) error {
	_, err := v.agent.do(ctx, wire.Request{Op: wire.OpPut, Path: path, Data: data, Mode: uint32(mode)})
	return v.fail("put "+path, err)
}

// Set writes an existing file in the guest, such as an attribute in sysfs.
func (v *VM) Set(ctx context.Context, path, value string) error {
	return v.Put(ctx, path, []byte(value), 0)
}

// Get reads a file in the guest.
func (v *VM) Get(ctx context.Context, path string) ([]byte, error) {
	r, err := v.agent.do(ctx, wire.Request{Op: wire.OpGet, Path: path})
	return r.Data, v.fail("get", err)
}

// WaitFile waits until the file in the guest exists and its contents match the
// regular expression, and returns them. The limit is guest time.
func (v *VM) WaitFile(ctx context.Context, path, match string, limit time.Duration) (string, error) {
	r, err := v.agent.do(ctx, wire.Request{Op: wire.OpAwait, Path: path, Match: match, Timeout: limit.Seconds()})
	return string(r.Data), v.fail(fmt.Sprintf("wait for %s to match %q", path, match), err)
}

// WaitGone waits until the path does not exist in the guest.
func (v *VM) WaitGone(ctx context.Context, path string, limit time.Duration) error {
	_, err := v.agent.do(ctx, wire.Request{Op: wire.OpAwait, Path: path, Gone: true, Timeout: limit.Seconds()})
	return v.fail("wait for "+path+" to go", err)
}

// WaitUntil waits until the shell script succeeds in the guest, tried again
// whenever the kernel reports a change, and returns its output.
func (v *VM) WaitUntil(ctx context.Context, script string, limit time.Duration) (string, error) {
	r, err := v.agent.do(ctx, wire.Request{Op: wire.OpAwait, Args: []string{"sh", "-c", script}, Timeout: limit.Seconds()})
	return string(r.Data), v.fail(fmt.Sprintf("wait until %q", script), err)
}

// WaitBoot waits until systemd has finished booting, whatever failed, and udev
// has handled the devices found meanwhile.
func (v *VM) WaitBoot(ctx context.Context) error {
	if _, err := v.Run(ctx, "systemctl", "is-system-running", "--wait"); err != nil {
		return err
	}
	_, err := v.Run(ctx, "udevadm", "settle")
	return err
}

// Kmsg returns the guest's kernel log.
func (v *VM) Kmsg(ctx context.Context) ([]wire.Kmsg, error) {
	r, err := v.agent.do(ctx, wire.Request{Op: wire.OpKmsg})
	return r.Kmsg, v.fail("kernel log", err)
}

// Dmesg returns the guest's kernel log as text.
func (v *VM) Dmesg(ctx context.Context) (string, error) {
	log, err := v.Kmsg(ctx)
	var b strings.Builder
	for _, m := range log {
		fmt.Fprintf(&b, "[%12.6f] %s\n", m.Uptime, m.Text)
	}
	return b.String(), err
}

// Uevents returns the kernel's uevents since the agent started; in the small
// guest that is before coldplug.
func (v *VM) Uevents(ctx context.Context) ([]wire.Uevent, error) {
	r, err := v.agent.do(ctx, wire.Request{Op: wire.OpUevents})
	return r.Uevents, v.fail("uevents", err)
}

// HotAdd plugs the device of a vfio-user server into the next free slot.
func (v *VM) HotAdd(ctx context.Context, socket string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.used == len(v.opt.HCAs)+v.opt.HotplugSlots {
		return v.fail("hot add", fmt.Errorf("no free slot of %d", v.opt.HotplugSlots))
	}
	if _, err := v.QMP(ctx, "device_add", hcaProperties(v.used, socket)); err != nil {
		return err
	}
	v.used++
	return nil
}

// QMP executes a command of the QEMU Machine Protocol.
func (v *VM) QMP(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	b, err := v.qmp.execute(ctx, command, arguments)
	return b, v.fail("", err)
}

func (v *VM) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	if what == "" {
		return fmt.Errorf("vm %s: %w", v.opt.Name, err)
	}
	return fmt.Errorf("vm %s: %s: %w", v.opt.Name, what, err)
}

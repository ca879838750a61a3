package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ibup/internal/bringup"
	"ibup/internal/config"
	"ibup/internal/host"
)

func upCommand() command {
	return command{
		name: "up", args: "[IFACE…] [--device BDF] [--dry-run]", short: "bring interfaces up, or the fallback into place",
		long: `
Brings up all configured interfaces, or those named, side by side: loads the
modules, waits for the port, makes and configures the interface, proves that it
works. If that cannot be, it says why and installs the fallback route of the
interface's file. What is right already is not touched. Started twice, the second
one waits for the first one's verdict and reports it.

As a service (NOTIFY_SOCKET is set) it stays on the fallback and goes back to
InfiniBand when that works, as Watch= of the file says. Otherwise it ends with the
first verdict.

  --device BDF   only interfaces that the PCI function may concern
  --dry-run      print the steps that remain, and why; change nothing
  --timeout D    instead of Timeout= of the files, "90s"
  --wait         end with the first verdict also as a service

Examples:
  ibup up
  ibup up ib0 --dry-run
  ibup up --device 0000:3b:00.0`,
		run: (*app).up,
	}
}

func waitCommand() command {
	return command{
		name: "wait", args: "[IFACE…] [--timeout D]", short: "return when all interfaces have a verdict",
		long: `
The same as "ibup up --wait": returns when every configured interface is up or on
its fallback, whoever brought it there; what nobody is at work on it brings up
itself. Returns at once on a machine without an mlx5 card.

Example:
  ibup wait && mount /home`,
		run: func(a *app, ctx context.Context, c command, words []string) int {
			return a.up(ctx, c, append([]string{"--wait"}, words...))
		},
	}
}

// upOptions are what the command line of `up` says.
type upOptions struct {
	ifaces  []string
	device  string
	dryRun  bool
	wait    bool
	timeout time.Duration
}

func (a *app) up(ctx context.Context, c command, words []string) int {
	var o upOptions
	f := a.flags(c)
	f.StringVar(&o.device, "device", "", "")
	f.BoolVar(&o.dryRun, "dry-run", false, "")
	f.BoolVar(&o.wait, "wait", false, "")
	f.DurationVar(&o.timeout, "timeout", 0, "")
	args, code, stop := a.parse(c, f, words)
	if stop {
		return code
	}
	o.ifaces = args
	if o.device != "" && !host.IsBDF(o.device) {
		return a.fail(exitUsage, "--device %s: a PCI address looks like 0000:3b:00.0 (lspci -D)", o.device)
	}
	if o.timeout < 0 {
		return a.fail(exitUsage, "--timeout %v is negative", o.timeout)
	}

	set, bad := a.load()
	if set.StandAside {
		fmt.Fprintln(a.stderr, "ibup: standing aside, as the kernel command line says (ibup=0 or rd.ibup=0)")
		a.ready()
		return exitUp
	}
	snapshot, err := look(ctx)
	if err != nil {
		return a.fail(exitFailed, "%v", err)
	}
	chosen, code := a.choose(set, snapshot, o)
	if code != exitUp {
		return code
	}
	code = exitUp
	switch {
	case len(chosen) == 0:
		a.ready()
	case o.dryRun:
		code = a.dryRun(set, snapshot, chosen)
	case !isRoot():
		code = a.fail(exitFailed, "up changes the network: run it as root (ibup up --dry-run tells what it would do)")
	default:
		code = a.bringUp(ctx, set, snapshot, chosen, o)
	}
	if bad != nil && (code == exitUp || code == exitFallback) {
		code = exitUsage
	}
	return code
}

// ready tells the service manager that there was nothing to do: a Type=notify
// service that ends without READY=1 counts as failed.
func (a *app) ready() { bringup.NewNotifier(a.env("NOTIFY_SOCKET"), nil).Set("", "", true) }

// named picks the interfaces of a set by name; all when there are no names.
func (a *app) named(set config.Set, names []string) ([]config.Config, int) {
	if len(names) == 0 {
		return set.Interfaces, exitUp
	}
	var chosen []config.Config
	for _, name := range names {
		i := slices.IndexFunc(set.Interfaces, func(c config.Config) bool { return c.Name == name })
		switch {
		case i >= 0:
			chosen = append(chosen, set.Interfaces[i])
		case slices.Contains(set.Refused, name):
			return nil, exitUsage // its mistakes are told already
		default:
			return nil, a.fail(exitUsage, "%s is not configured; there are: %s", name, strings.Join(configured(set.Interfaces), ", "))
		}
	}
	return chosen, exitUp
}

// choose picks the interfaces that a call of `up` is about.
func (a *app) choose(set config.Set, s host.Snapshot, o upOptions) ([]config.Config, int) {
	chosen, code := a.named(set, o.ifaces)
	if code != exitUp {
		return nil, code
	}
	if len(o.ifaces) == 0 && nothingToDo(set, s) {
		return nil, exitUp
	}
	chosen = slices.Clone(chosen)
	if o.device != "" {
		meant := configured(bringup.MeantFor(o.device, set.Interfaces, s, bringup.NewStore().Held()))
		chosen = slices.DeleteFunc(chosen, func(c config.Config) bool { return !slices.Contains(meant, c.Name) })
	}
	if o.timeout > 0 {
		for i := range chosen {
			chosen[i].Boot.Timeout = o.timeout
		}
	}
	return chosen, exitUp
}

// nothingToDo: the node has no card, and nobody has planned for the loss of one.
func nothingToDo(set config.Set, s host.Snapshot) bool {
	planned := slices.ContainsFunc(set.Interfaces, func(c config.Config) bool { return len(c.Fallback.Routes) > 0 })
	return !bringup.HasMLX5(s) && !planned
}

func configured(all []config.Config) []string {
	var n []string
	for _, c := range all {
		n = append(n, c.Name)
	}
	return n
}

// bringUp runs the chosen interfaces side by side.
func (a *app) bringUp(ctx context.Context, set config.Set, s host.Snapshot, chosen []config.Config, o upOptions) int {
	l := a.newLogger(set.Debug, s.Initrd)
	act, err := actor(l)
	if err != nil {
		return a.fail(exitFailed, "%v", err)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	observer, closeWatch, err := watch(watching)
	if err != nil {
		return a.fail(exitFailed, "%v", err)
	}
	defer closeWatch()
	notifier := bringup.NewNotifier(a.env("NOTIFY_SOCKET"), configured(chosen))
	deps := bringup.Deps{
		Observer:     observer,
		Do:           act.Do,
		Surroundings: surroundings().Fill,
		Network:      host.Netlink{}.ReadNet,
		Set:          set.Interfaces,
		Store:        bringup.NewStore(),
		Now:          sinceBoot,
		Notify:       notifier.Set,
		Log:          l.event,
		Stay:         a.env("NOTIFY_SOCKET") != "" && !o.wait,
	}
	codes := make([]int, len(chosen))
	var all sync.WaitGroup
	for i, c := range chosen {
		all.Go(func() {
			out, err := bringup.Run(ctx, c, deps)
			if err != nil {
				l.line(levelErr, err.Error())
			}
			codes[i] = exitCode(c, out)
		})
	}
	all.Wait()
	cancel()
	return worst(codes)
}

func exitCode(c config.Config, out bringup.Outcome) int {
	switch {
	case out.Interrupted:
		return exitInterrupted
	case out.Verdict == bringup.IsUp:
		return exitUp
	case out.Verdict == bringup.Fallback:
		return exitFallback
	case unasked(c) && out.Reason != nil && out.Reason.Code == bringup.PortEthernet:
		return exitUp // a node whose cards do Ethernet, and nobody has said otherwise
	}
	return exitFailed
}

// unasked: nobody has configured the interface, it is the default.
func unasked(c config.Config) bool { return c.Path == "" && len(c.Origin) == 0 }

// worst is the exit code for several interfaces.
func worst(codes []int) int {
	for _, code := range []int{exitInterrupted, exitFailed, exitFallback} {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return exitUp
}

// dryRun prints the remaining steps.
func (a *app) dryRun(set config.Set, s host.Snapshot, chosen []config.Config) int {
	store, around := bringup.NewStore(), surroundings()
	held := store.Held()
	claims := bringup.Assign(set.Interfaces, s, held)
	for _, c := range chosen {
		now := sinceBoot()
		st := bringup.State{Snapshot: s, Now: now, Deadline: now + c.Boot.Timeout}
		if j, err := store.Read(c.Name); err == nil {
			st.Facts = j.Facts
		}
		st.Facts.Attempts, st.Facts.Verdict, st.Facts.Verified = nil, bringup.Pending, nil
		st.Claims = slices.DeleteFunc(slices.Clone(claims), func(k bringup.Claim) bool { return k.Name == c.Name })
		st.Facts = around.Fill(c, s, bringup.Observe(st.Facts, c, s, st.Claims, now))
		steps, err := bringup.Plan(c, st)
		if err != nil {
			return a.fail(exitFailed, "%s: %v", c.Name, err)
		}
		a.printPlan(c, steps)
	}
	return exitUp
}

func (a *app) printPlan(c config.Config, steps []bringup.Step) {
	acts := 0
	for _, s := range steps {
		if s.Changes() {
			acts++
		}
	}
	if acts == 0 {
		fmt.Fprintf(a.stdout, "%s: nothing to change\n", c.Name)
	} else {
		fmt.Fprintf(a.stdout, "%s: what would be done, if each step works:\n", c.Name)
	}
	for i, s := range steps {
		fmt.Fprintf(a.stdout, "%3d. %s\n", i+1, s)
		switch {
		case s.Reason != nil && s.Kind != bringup.Install && s.Kind != bringup.DelRoute:
			fmt.Fprintf(a.stdout, "     %s\n", s.Reason.Code)
			for _, e := range s.Reason.Evidence {
				fmt.Fprintf(a.stdout, "     %s\n", e)
			}
			fmt.Fprintf(a.stdout, "     remedy: %s\n", s.Reason.Remedy)
		case s.Why != "":
			fmt.Fprintf(a.stdout, "     because: %s\n", s.Why)
		}
	}
}

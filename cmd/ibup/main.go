// Command ibup brings InfiniBand up early and keeps the node reachable if it
// cannot. See ibup(8).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Set by the build.
var version, commit = "unknown", "unknown"

// Exit codes.
const (
	exitUp       = 0 // up, or nothing to do
	exitFailed   = 1
	exitUsage    = 2 // bad command line or configuration
	exitFallback = 3 // not up; the fallback route is in place
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil
	stop()
	if interrupted && code == exitInterrupted {
		// The caller shall see what ended it.
		signal.Reset(syscall.SIGTERM)
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}
	os.Exit(code)
}

// exitInterrupted is what a shell reports for SIGTERM.
const exitInterrupted = 128 + int(syscall.SIGTERM)

// app is one call of the program.
type app struct {
	env            func(string) string
	stdout, stderr io.Writer
}

// command is a subcommand. run gets the words behind its name.
type command struct {
	name, args, short, long string
	run                     func(a *app, ctx context.Context, c command, args []string) int
}

func commands() []command {
	return []command{upCommand(), downCommand(), statusCommand(), configCommand(), waitCommand(), versionCommand()}
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	a := &app{env: env, stdout: stdout, stderr: stderr}
	if len(args) == 0 {
		a.usage(stderr)
		return exitUsage
	}
	name := args[0]
	switch name {
	case "help", "-h", "-help", "--help":
		return a.help(args[1:])
	case "--version", "-version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(a, ctx, c, args[1:])
		}
	}
	fmt.Fprintf(stderr, "ibup: there is no command %q; there are: %s, help\n", name, strings.Join(names(), ", "))
	return exitUsage
}

func names() []string {
	var n []string
	for _, c := range commands() {
		n = append(n, c.name)
	}
	return n
}

func (a *app) usage(w io.Writer) {
	fmt.Fprint(w, "ibup: InfiniBand that is simply there after boot\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  ibup %-36s %s\n", strings.TrimSpace(c.name+" "+c.args), c.short)
	}
	fmt.Fprint(w, "  ibup help [COMMAND]                       more on a command, with examples\n\n"+
		"Exit codes: 0 up or nothing to do, 1 failed, 2 usage or bad configuration, 3 on the fallback.\n")
}

func (a *app) help(args []string) int {
	if len(args) == 0 {
		a.usage(a.stdout)
		return exitUp
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return run(context.Background(), args[:1], a.env, a.stdout, a.stderr)
	}
	c := commands()[i]
	return c.run(a, context.Background(), c, []string{"--help"})
}

// flags makes the flag set of a command. Its help goes to standard output when it
// was asked for.
func (a *app) flags(c command) *flag.FlagSet {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// parse parses a command's words; flags may stand behind arguments. stop: do not
// go on, return code.
func (a *app) parse(c command, f *flag.FlagSet, words []string) (args []string, code int, stop bool) {
	for {
		if err := f.Parse(words); err == flag.ErrHelp {
			fmt.Fprintf(a.stdout, "Usage: ibup %s\n\n%s\n", strings.TrimSpace(c.name+" "+c.args), strings.TrimSpace(c.long))
			return nil, exitUp, true
		} else if err != nil {
			fmt.Fprintf(a.stderr, "ibup %s: %v; see: ibup help %s\n", c.name, err, c.name)
			return nil, exitUsage, true
		}
		words = f.Args()
		if len(words) == 0 {
			return args, 0, false
		}
		args, words = append(args, words[0]), words[1:]
	}
}

func (a *app) fail(code int, format string, args ...any) int {
	fmt.Fprintf(a.stderr, "ibup: "+format+"\n", args...)
	return code
}

func versionCommand() command {
	return command{
		name: "version", short: "version, commit and Go release",
		long: "Prints the version, the commit it was built from and the Go release that built it.",
		run: func(a *app, _ context.Context, c command, words []string) int {
			args, code, stop := a.parse(c, a.flags(c), words)
			if stop {
				return code
			}
			if len(args) > 0 {
				return a.fail(exitUsage, "version takes no arguments")
			}
			fmt.Fprintf(a.stdout, "ibup %s (commit %s, %s)\n", version, commit, runtime.Version())
			return exitUp
		},
	}
}

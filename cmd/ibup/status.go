package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ibup/internal/bringup"
	"ibup/internal/report"
)

func statusCommand() command {
	return command{
		name: "status", args: "[IFACE…] [--json]", short: "how each interface fares, from card to fallback",
		long: `
Shows each configured interface from the PCI function to the peers, what is wrong
with it now and what to do, and how long the last bring-up took. It needs no
privilege; what it could not read it says.

  --json   for programs; times in nanoseconds

Exit codes: 0 all are up, 1 one is not, 3 one is on the fallback.

Example:
  ibup status ib0`,
		run: (*app).status,
	}
}

func (a *app) status(ctx context.Context, c command, words []string) int {
	f := a.flags(c)
	asJSON := f.Bool("json", false, "")
	args, code, stop := a.parse(c, f, words)
	if stop {
		return code
	}
	set, bad := a.load()
	// A firmware that does not answer must not hold up the answer to "what is it".
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	snapshot, err := look(ctx)
	if err != nil {
		return a.fail(exitFailed, "%v", err)
	}
	chosen, code := a.named(set, args)
	if code != exitUp {
		return code
	}
	set.Interfaces = chosen
	if len(args) > 0 {
		set.Refused = nil
	}
	store := bringup.NewStore()
	journals := map[string]*bringup.Journal{}
	for _, c := range chosen {
		if j, err := store.Read(c.Name); err == nil {
			journals[c.Name] = j
		}
	}
	status := report.NewStatus(report.Input{
		Set: set, Snapshot: snapshot, Journals: journals, Active: (*bringup.Journal).Alive,
		Fallback: installer().State, Now: sinceBoot(), Fill: surroundings().Fill,
	})
	if *asJSON {
		err = a.json(status)
	} else {
		err = status.Text(a.stdout, style(a.stdout, a.env))
	}
	switch {
	case err != nil:
		return a.fail(exitFailed, "%v", err)
	case bad != nil:
		return exitUsage
	}
	codes := make([]int, len(status.Interfaces))
	for i, x := range status.Interfaces {
		codes[i] = map[string]int{"up": exitUp, "fallback": exitFallback}[x.State]
		if x.State != "up" && x.State != "fallback" {
			codes[i] = exitFailed
		}
	}
	return worst(codes)
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "\t")
	return enc.Encode(v)
}

// style is for a terminal of its width, with colours unless NO_COLOR is set; plain
// otherwise.
func style(w io.Writer, env func(string) string) report.Style {
	f, ok := w.(*os.File)
	if !ok {
		return report.Style{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return report.Style{}
	}
	width := int(size.Col)
	if width == 0 { // a serial console does not say
		width = 80
	}
	return report.Style{Color: env("NO_COLOR") == "" && env("TERM") != "dumb", Width: width}
}

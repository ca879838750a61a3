package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ibup/internal/bringup"
	"ibup/internal/config"
)

func downCommand() command {
	return command{
		name: "down", args: "[IFACE…] [--unload]", short: "take away what ibup added, and nothing else",
		long: `
Removes, last first, what ibup added in this boot: routes, addresses, partition
children, the fallback; interfaces that it set up are set down. What was there
before stays, names, modes and MTUs as they are. An interface that carries the
root or another network file system is not touched.

  --unload    also unload the modules that ibup loaded, if nothing uses them
  --dry-run   print the steps; change nothing

Example:
  ibup down ib0`,
		run: (*app).down,
	}
}

func (a *app) down(ctx context.Context, c command, words []string) int {
	f := a.flags(c)
	unload := f.Bool("unload", false, "")
	dry := f.Bool("dry-run", false, "")
	args, code, stop := a.parse(c, f, words)
	if stop {
		return code
	}
	set, bad := a.load()
	store := bringup.NewStore()
	names := args
	if len(names) == 0 {
		for name := range store.Held() {
			names = append(names, name)
		}
		// One that never found its port may be on the fallback all the same.
		for _, c := range set.Interfaces {
			if _, err := store.Read(c.Name); !errors.Is(err, bringup.ErrNoJournal) {
				names = append(names, c.Name)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if !isRoot() && !*dry {
		return a.fail(exitFailed, "down changes the network: run it as root")
	}
	for _, name := range names {
		i := slices.IndexFunc(set.Interfaces, func(c config.Config) bool { return c.Name == name })
		cfg := config.Default(name)
		if i >= 0 {
			cfg = set.Interfaces[i]
		}
		if err := a.downOne(ctx, store, cfg, *unload, *dry); err != nil {
			code = a.fail(exitFailed, "%v", err)
		}
	}
	if bad != nil && code == exitUp {
		code = exitUsage
	}
	return code
}

// errBusy: another ibup is at work on the interface.
var errBusy = errors.New("another ibup is at work on it (systemctl stop ibup@*.service ibup.service)")

func (a *app) downOne(ctx context.Context, store bringup.Store, cfg config.Config, unload, dry bool) error {
	release, ok, err := store.Lock(cfg.Name)
	switch {
	case err != nil && !dry:
		return err
	case err == nil && !ok && !dry:
		return fmt.Errorf("%s: %w", cfg.Name, errBusy)
	case ok:
		defer release()
	}
	journal, err := store.Read(cfg.Name)
	if errors.Is(err, bringup.ErrNoJournal) {
		fmt.Fprintf(a.stdout, "%s: ibup has done nothing in this boot\n", cfg.Name)
		return nil
	}
	if err != nil {
		return err
	}
	snapshot, err := look(ctx)
	if err != nil {
		return err
	}
	steps, kept, refused := bringup.Undo(cfg, journal, snapshot, unload)
	if refused != nil {
		return fmt.Errorf("%s: %s; %s", refused.Code, refused.Summary, lower(refused.Remedy))
	}
	act, err := actor(a.newLogger(0, false))
	if err != nil {
		return err
	}
	var errs []error
	for _, step := range steps {
		fmt.Fprintf(a.stdout, "%s: %s\n", cfg.Name, step)
		if dry {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		if res := act.Do(ctx, cfg, bringup.State{Snapshot: snapshot}, step); res.Err != nil {
			errs = append(errs, fmt.Errorf("%s: could not %s: %w", cfg.Name, step, res.Err))
		}
		cancel()
	}
	for _, k := range kept {
		fmt.Fprintf(a.stdout, "%s: %s\n", cfg.Name, k)
	}
	if len(steps) == 0 {
		fmt.Fprintf(a.stdout, "%s: nothing of ibup's is there\n", cfg.Name)
	}
	// What could not be removed, and what is kept, must be remembered.
	if len(errs) == 0 && len(kept) == 0 && !dry {
		errs = append(errs, store.Remove(cfg.Name))
	}
	return errors.Join(errs...)
}

func lower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

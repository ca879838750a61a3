package main

import (
	"context"
	"fmt"
	"slices"

	"ibup/internal/config"
	"ibup/internal/fallback"
)

func configCommand() command {
	return command{
		name: "config", args: "check|show [IFACE…]", short: "check the configuration, or show what is in effect",
		long: `
  check   reads /etc/ibup/*.conf and the kernel command line; tells each mistake
          with file and line, the reason and the remedy
  show    every value in effect and where it comes from

  --root DIR   of the machine below DIR (an image, an initramfs)
  --json       for programs

Exit codes: 0 no mistakes, 2 mistakes.

Examples:
  ibup config check
  ibup config show ib0`,
		run: (*app).config,
	}
}

func (a *app) config(_ context.Context, c command, words []string) int {
	f := a.flags(c)
	dir := f.String("root", root, "")
	asJSON := f.Bool("json", false, "")
	args, code, stop := a.parse(c, f, words)
	if stop {
		return code
	}
	if len(args) == 0 || args[0] != "check" && args[0] != "show" {
		return a.fail(exitUsage, "config needs one of: check, show; see: ibup help config")
	}
	cmdline, err := config.ReadCmdline(*dir)
	if err != nil && *dir == root {
		fmt.Fprintf(a.stderr, "ibup: kernel command line: %v\n", err)
	}
	if args[0] == "check" {
		return a.check(*dir, cmdline, *asJSON, args[1:])
	}
	set, bad := config.Load(*dir, cmdline)
	if bad != nil {
		fmt.Fprintf(a.stderr, "%v\n", bad)
	}
	chosen, code := a.named(set, args[1:])
	if code != exitUp {
		return code
	}
	values := map[string][]config.Row{}
	for i, cfg := range chosen {
		values[cfg.Name] = config.Show(cfg)
		if *asJSON {
			continue
		}
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprint(a.stdout, config.Text(cfg))
	}
	if *asJSON {
		a.json(values)
	}
	if bad != nil {
		return exitUsage
	}
	return exitUp
}

// check tells all mistakes, and what may not be meant.
func (a *app) check(dir, cmdline string, asJSON bool, names []string) int {
	set, _ := config.Load(dir, cmdline)
	code := exitUp
	if chosen, c := a.named(set, names); c != exitUp {
		code = c
	} else if !asJSON {
		for _, cfg := range chosen {
			from := cfg.Path
			if from == "" {
				from = "the default"
			}
			fmt.Fprintf(a.stdout, "%s: can be used (%s)\n", cfg.Name, from)
		}
	}
	findings := []config.Finding{}
	for _, f := range config.Check(dir, cmdline) {
		if len(names) > 0 && f.Iface != "" && !slices.Contains(names, f.Iface) {
			continue
		}
		if f.Severity == config.Bad {
			code = exitUsage
		}
		findings = append(findings, f)
		if !asJSON {
			fmt.Fprintln(a.stderr, f)
		}
	}
	for _, cfg := range set.Interfaces {
		if len(names) > 0 && !slices.Contains(names, cfg.Name) {
			continue
		}
		// A route file is not our configuration: what is wrong there is no mistake here.
		for _, x := range (fallback.Installer{Root: dir}).Check(cfg.Name, cfg.Fallback) {
			f := config.Finding{Severity: config.Warning, File: x.File, Line: x.Line, Iface: cfg.Name, Key: "Fallback.Persist", Text: x.Text, Remedy: x.Remedy}
			findings = append(findings, f)
			if !asJSON {
				fmt.Fprintln(a.stderr, f)
			}
		}
	}
	if asJSON {
		a.json(findings)
	}
	return code
}

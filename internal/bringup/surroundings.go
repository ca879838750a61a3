package bringup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
	"ibup/internal/modules"
)

// Surroundings finds the facts that neither snapshot nor journal have, below a root
// directory.
type Surroundings struct {
	Root     string
	Fallback interface {
		State(iface string, f config.Fallback) (fallback.Report, error)
	}
	Now func() time.Duration

	mu    sync.Mutex
	plan  ModulePlan
	plans string                // the modules that plan was made for
	made  time.Duration         // when
	links map[int]time.Duration // when an IPoIB interface was first seen
	files map[string]bool       // interfaces whose route files were looked at
}

// replan is how long a plan stands that could not be: somebody may install the
// missing file.
const replan = 5 * time.Second

// Fill fills the facts in.
func (x *Surroundings) Fill(c config.Config, s host.Snapshot, f Facts) Facts {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.Modules = x.modules(s)
	f.UdevPending = x.udevPending(s)
	_, err := os.Stat(filepath.Join(x.Root, "sys/module/ib_ipoib/parameters/ipoib_enhanced"))
	f.EnhancedParam = err == nil
	if !x.files[c.Name] && len(c.Fallback.Routes) > 0 {
		// A block may be left from an earlier boot.
		if rep, err := x.Fallback.State(c.Name, c.Fallback); err == nil || len(rep.Routes) > 0 {
			f.FallbackFiles = inFiles(rep)
		}
		if x.files == nil {
			x.files = map[string]bool{}
		}
		x.files[c.Name] = true
	}
	return f
}

func (x *Surroundings) modules(s host.Snapshot) ModulePlan {
	var absent []string
	for _, name := range needed() {
		if !hasModule(s, name) {
			absent = append(absent, name)
		}
	}
	if len(absent) == 0 {
		return ModulePlan{}
	}
	key := strings.Join(absent, " ")
	if now := x.Now(); key != x.plans || x.plan.Problem != nil && now >= x.made+replan {
		x.plan, x.plans, x.made = planModules(x.Root, s.Kernel), key, now
	}
	return x.plan
}

func hasModule(s host.Snapshot, name string) bool {
	for _, m := range s.Modules {
		if m.Name == name {
			return true
		}
	}
	return false
}

// planModules asks the module trees what has to be loaded.
func planModules(root, kernel string) ModulePlan {
	plan, err := modules.Resolve(root, kernel, modules.Stack())
	if err != nil {
		return ModulePlan{Problem: moduleProblem(kernel, err)}
	}
	var p ModulePlan
	for _, l := range plan.Todo() {
		p.Load = append(p.Load, l.Name)
	}
	return p
}

func moduleProblem(kernel string, err error) *Reason {
	var missing *modules.MissingError
	var blocked *modules.BlockedError
	switch {
	case errors.As(err, &missing):
		hint := ""
		if missing.Install != "" {
			hint = sentence(missing.Install)
		}
		return because(ModMissing, []string{missing.Error()}, "module", missing.Module, "kernel", kernel, "hint", hint)
	case errors.As(err, &blocked):
		return because(ModBlocked, []string{fmt.Sprintf("%s: %s", blocked.Where, blocked.Line)}, "module", blocked.Module, "where", blocked.Where)
	}
	return because(ModMissing, []string{err.Error()}, "module", "mlx5_core", "kernel", kernel, "hint", "")
}

// sentence makes a remedy's words a sentence before others.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + ". "
}

// udevPending are the IPoIB interfaces that udevd has not handled yet: it records
// each interface it has finished with. Without udevd nothing is pending.
func (x *Surroundings) udevPending(s host.Snapshot) []int {
	if _, err := os.Stat(filepath.Join(x.Root, "run/udev/control")); err != nil {
		return nil
	}
	now := x.Now()
	seen := map[int]time.Duration{}
	var pending []int
	for _, l := range s.Links {
		if l.Type != host.TypeInfiniBand {
			continue
		}
		at, known := x.links[l.Index]
		if !known {
			at = now
		}
		seen[l.Index] = at
		if now >= at+udevGrace {
			continue
		}
		if _, err := os.Stat(filepath.Join(x.Root, fmt.Sprintf("run/udev/data/n%d", l.Index))); err != nil {
			pending = append(pending, l.Index)
		}
	}
	x.links = seen
	return pending
}

// Loader adapts the module loader.
type Loader struct {
	Root   string
	Loader *modules.Loader
	Report func(modules.Result)
}

// Load loads what is missing of the stack for the running kernel.
func (l Loader) Load(ctx context.Context, kernel string) error {
	plan, err := modules.Resolve(l.Root, kernel, modules.Stack())
	if err != nil {
		return err
	}
	return l.Loader.Run(ctx, plan, l.Report)
}

// Unload unloads a module that nothing uses.
func (l Loader) Unload(name string) error { return l.Loader.Unload(name) }

package modules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Resolve plans the load of the wanted modules and all that they depend on, for a
// kernel release below root. Modules that are built in, or live where root's running
// kernel is that one, are in the plan with their state, so that a reader sees the
// whole stack.
//
// Errors are *MissingError and *BlockedError, joined when several wanted modules
// have one; the plan then has what could be resolved.
func Resolve(root, kernel string, want []Want) (Plan, error) {
	r := &resolver{
		root:  root,
		plan:  Plan{Kernel: kernel},
		seen:  map[string]bool{},
		rules: readRules(root),
	}
	running, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	r.running = err == nil && strings.TrimSpace(string(running)) == kernel
	for _, e := range r.rules.errs {
		r.note("%s: not read, options in it are not applied", e)
	}
	r.index, r.indexErr = readIndex(root, kernel)
	if r.indexErr != nil {
		r.index = &index{}
	}
	var errs []error
	for _, w := range want {
		err := r.visit(normal(w.Name), "", w.Optional, true)
		switch {
		case err == nil:
		case w.Optional:
			r.note("optional: %v", err)
		default:
			errs = append(errs, err)
		}
	}
	return r.plan, errors.Join(errs...)
}

type resolver struct {
	root     string
	running  bool // kernel is root's running one: /sys/module applies
	index    *index
	indexErr error
	rules    *rules
	seen     map[string]bool
	plan     Plan
}

func (r *resolver) note(format string, args ...any) {
	r.plan.Notes = append(r.plan.Notes, fmt.Sprintf(format, args...))
}

// visit puts a module into the plan behind everything it needs.
func (r *resolver) visit(name, neededBy string, optional, wanted bool) error {
	if r.seen[name] {
		return nil
	}
	l := Load{Name: name, State: r.state(name), Optional: optional}
	if l.State != Absent && l.State != Coming {
		r.seen[name] = true
		r.plan.Loads = append(r.plan.Loads, l)
		return nil
	}
	file, ok := r.index.files[name]
	if !ok {
		return r.missing(name, neededBy, "")
	}
	l.Path = r.index.path(r.root, file)
	_, l.Compression, _ = nameOf(file)
	l.Params = r.rules.params(name)
	if err := r.allowed(name, wanted); err != nil {
		return err
	}
	if _, err := os.Stat(l.Path); err != nil {
		return r.missing(name, neededBy, danglingWhy(l.Path))
	}
	r.seen[name] = true // before the dependencies: soft ones may form a circle
	soft := r.softdeps(name)
	for _, dep := range soft.pre {
		r.soft(dep, name)
	}
	for _, dep := range r.index.depsOf(name) {
		if err := r.visit(dep, name, optional, false); err != nil {
			return err
		}
	}
	r.plan.Loads = append(r.plan.Loads, l)
	for _, dep := range soft.post {
		r.soft(dep, name)
	}
	return nil
}

// soft visits a soft dependency, which may fail without a word, as in modprobe.
func (r *resolver) soft(dep, neededBy string) {
	if err := r.visit(dep, neededBy, true, false); err != nil {
		r.note("soft dependency of %s: %v", neededBy, err)
	}
}

func (r *resolver) softdeps(name string) softdep {
	a, b := r.index.softdeps[name], r.rules.softdeps[name]
	return softdep{slices.Concat(a.pre, b.pre), slices.Concat(a.post, b.post)}
}

// state is where a module is now.
func (r *resolver) state(name string) State {
	if r.index.builtin[name] {
		return Builtin
	}
	if !r.running {
		return Absent
	}
	s := stateIn(r.root, name)
	if s == Builtin && r.index.files[name] != "" {
		return Coming // its directory is there, its attributes are not yet
	}
	return s
}

// stateIn reads /sys/module. A built-in module with parameters has a directory but
// no initstate; so has, for a moment, one that is just being set up.
func stateIn(root, name string) State {
	dir := filepath.Join(root, "sys/module", name)
	if _, err := os.Stat(dir); err != nil {
		return Absent
	}
	b, err := os.ReadFile(filepath.Join(dir, "initstate"))
	switch strings.TrimSpace(string(b)) {
	case "live":
		return Live
	case "coming", "going":
		return Coming
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Builtin
	}
	return Coming
}

// allowed tells whether somebody has forbidden the module. modprobe would load a
// blacklisted module that is asked for by name; this loader acts for an event, where
// modprobe would not.
func (r *resolver) allowed(name string, wanted bool) error {
	if o, ok := r.rules.refused[name]; ok {
		return &BlockedError{name, "module_blacklist", o.where, o.line}
	}
	if o, ok := r.rules.install[name]; ok {
		if disables(o) {
			return &BlockedError{name, "install", o.where, o.line}
		}
		r.note("%s: %q is not run, the module is loaded directly", o.where, o.line)
	}
	if o, ok := r.rules.blacklist[name]; ok {
		if wanted {
			return &BlockedError{name, "blacklist", o.where, o.line}
		}
		r.note("%s: %q does not stop it from being loaded as a dependency", o.where, o.line)
	}
	return nil
}

// missing makes the error for a module that is not there, with what helps: other
// kernels that have it, and the package that brings it.
func (r *resolver) missing(name, neededBy, why string) error {
	kernel := r.plan.Kernel
	e := &MissingError{
		Module: name, NeededBy: neededBy, Kernel: kernel, Why: why,
		Dirs:    moduleDirs(r.root, kernel),
		Others:  r.otherKernels(name),
		Install: installHint(r.root, kernel, name),
	}
	switch {
	case why != "":
	case errors.Is(r.indexErr, fs.ErrNotExist):
		e.Why = "no modules.dep"
	case r.indexErr != nil:
		e.Why = r.indexErr.Error()
	default:
		e.Why = "not in modules.dep"
		if file := findFile(r.index.dir, name); file != "" {
			e.Why = file + " is not in modules.dep"
			e.Install = "run depmod -a " + kernel
		}
	}
	return e
}

// danglingWhy says what is wrong with a file that modules.dep names.
func danglingWhy(path string) string {
	if target, err := os.Readlink(path); err == nil {
		return fmt.Sprintf("%s is a link to %s, which does not exist", path, target)
	}
	return fmt.Sprintf("modules.dep names %s, which does not exist", path)
}

// findFile looks for a module file that depmod has not seen.
func findFile(dir, name string) string {
	var found string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if n, _, ok := nameOf(path); ok && n == name {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// otherKernels lists the kernels below root whose modules.dep has the module.
func (r *resolver) otherKernels(name string) []string {
	var others []string
	dir := filepath.Dir(moduleDirs(r.root, r.plan.Kernel)[0])
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() == r.plan.Kernel {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name(), "modules.dep"))
		if err != nil {
			continue
		}
		if files, _ := parseDep(b); files[name] != "" {
			others = append(others, e.Name())
		}
	}
	return others
}

package modules

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// index is what depmod has written about a kernel's modules.
type index struct {
	dir      string            // /lib/modules/<kernel>, root included
	files    map[string]string // module: path as in modules.dep
	deps     map[string]string // module: the rest of its line
	builtin  map[string]bool
	softdeps map[string]softdep
}

type softdep struct{ pre, post []string }

// moduleDirs are where a kernel's modules can be. A root without the /lib link of
// a merged /usr has only the second.
func moduleDirs(root, kernel string) []string {
	return []string{
		filepath.Join(root, "lib/modules", kernel),
		filepath.Join(root, "usr/lib/modules", kernel),
	}
}

// readIndex reads modules.dep, modules.builtin and modules.softdep. The first must
// be there; a kernel with everything built in has an empty one.
func readIndex(root, kernel string) (*index, error) {
	var dep []byte
	var err error
	x := &index{}
	for _, x.dir = range moduleDirs(root, kernel) {
		if dep, err = os.ReadFile(filepath.Join(x.dir, "modules.dep")); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	x.files, x.deps = parseDep(dep)
	for file, take := range map[string]func([]byte){
		"modules.builtin": func(b []byte) { x.builtin = parseBuiltin(b) },
		"modules.softdep": func(b []byte) { x.softdeps = parseSoftdeps(b) },
	} {
		b, err := os.ReadFile(filepath.Join(x.dir, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		take(b)
	}
	return x, nil
}

// path makes a path of modules.dep absolute: most are relative to the kernel's
// directory, those of depmod's `external` directories are not.
func (x *index) path(root, file string) string {
	if filepath.IsAbs(file) {
		return filepath.Join(root, file)
	}
	return filepath.Join(x.dir, file)
}

// depsOf lists a module's dependencies in the order in which they are loaded.
// modules.dep has them the other way round, each before what it needs.
func (x *index) depsOf(module string) []string {
	fields := strings.Fields(x.deps[module])
	names := make([]string, 0, len(fields))
	for i := len(fields) - 1; i >= 0; i-- {
		if name, _, ok := nameOf(fields[i]); ok {
			names = append(names, name)
		}
	}
	return names
}

// parseDep reads modules.dep: "kernel/…/ib_ipoib.ko: kernel/…/ib_cm.ko …". Lines
// that are not of that form, and comments, are left out.
func parseDep(b []byte) (files, deps map[string]string) {
	n := bytes.Count(b, []byte("\n"))
	files, deps = make(map[string]string, n), make(map[string]string, n)
	// One string for the whole file: the maps hold slices of it.
	for line := range strings.Lines(string(b)) {
		file, rest, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(file, "#") {
			continue
		}
		file = strings.TrimSpace(file)
		name, _, ok := nameOf(file)
		if !ok {
			continue
		}
		if _, twice := files[name]; !twice {
			files[name], deps[name] = file, strings.TrimSpace(rest)
		}
	}
	return files, deps
}

// parseBuiltin reads modules.builtin: one "kernel/…/name.ko" a line.
func parseBuiltin(b []byte) map[string]bool {
	builtin := make(map[string]bool, bytes.Count(b, []byte("\n")))
	for line := range strings.Lines(string(b)) {
		if name, _, ok := nameOf(strings.TrimSpace(line)); ok {
			builtin[name] = true
		}
	}
	return builtin
}

// parseSoftdeps reads "softdep NAME pre: A B post: C" lines, as in modules.softdep
// and in modprobe.d.
func parseSoftdeps(b []byte) map[string]softdep {
	deps := map[string]softdep{}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) > 2 && f[0] == "softdep" {
			addSoftdep(deps, f[1], f[2:])
		}
	}
	return deps
}

func addSoftdep(deps map[string]softdep, module string, words []string) {
	d := deps[normal(module)]
	var list *[]string
	for _, w := range words {
		switch w {
		case "pre:":
			list = &d.pre
		case "post:":
			list = &d.post
		default:
			if list != nil {
				*list = append(*list, normal(w))
			}
		}
	}
	deps[normal(module)] = d
}

// MissingError is a needed module that this kernel has not got.
type MissingError struct {
	Module   string
	NeededBy string // "" when wanted itself
	Kernel   string
	Dirs     []string // looked into
	Why      string   // "not in modules.dep", "file … is missing"
	Others   []string // kernels that have it
	Install  string   // what to do about it on this distribution
}

func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "module %s", e.Module)
	if e.NeededBy != "" {
		fmt.Fprintf(&b, ", needed by %s,", e.NeededBy)
	}
	fmt.Fprintf(&b, " is missing for kernel %s: %s (looked into %s)", e.Kernel, e.Why, strings.Join(e.Dirs, ", "))
	if len(e.Others) > 0 {
		fmt.Fprintf(&b, "; it is there for kernel %s", strings.Join(e.Others, ", "))
	}
	if e.Install != "" {
		fmt.Fprintf(&b, "; %s", e.Install)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, fs.ErrNotExist) true.
func (e *MissingError) Unwrap() error { return fs.ErrNotExist }

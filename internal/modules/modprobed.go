package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modprobeDirs are searched for *.conf; of two files with one name the earlier
// directory's counts (modprobe.d(5)).
func modprobeDirs() []string {
	return []string{"etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"}
}

// rules are what modprobe.d and the kernel command line say about modules.
type rules struct {
	options   map[string][]string
	blacklist map[string]origin
	refused   map[string]origin // module_blacklist=: the kernel itself refuses
	install   map[string]origin
	softdeps  map[string]softdep
	errs      []string // files that could not be read
}

// origin is a line and where it stands.
type origin struct{ where, line string }

func newRules() *rules {
	return &rules{
		options:   map[string][]string{},
		blacklist: map[string]origin{},
		refused:   map[string]origin{},
		install:   map[string]origin{},
		softdeps:  map[string]softdep{},
	}
}

// readRules reads both below root. Files that cannot be read are noted.
func readRules(root string) *rules {
	r := newRules()
	files := map[string]string{}
	for _, dir := range modprobeDirs() {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil && !os.IsNotExist(err) {
			r.errs = append(r.errs, err.Error())
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasSuffix(name, ".conf") && files[name] == "" {
				files[name] = filepath.Join(dir, name)
			}
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(root, files[name]))
		if err != nil {
			r.errs = append(r.errs, err.Error())
			continue
		}
		r.parse("/"+files[name], string(b))
	}
	// What comes later wins in the kernel, so the command line is last.
	if b, err := os.ReadFile(filepath.Join(root, "proc/cmdline")); err == nil {
		r.parseCmdline(string(b))
	}
	return r
}

// parse reads one modprobe.d file. A '\' at the end continues a line.
func (r *rules) parse(file, text string) {
	var line string
	start := 0
	for i, part := range strings.Split(text, "\n") {
		if line == "" {
			start = i + 1
		}
		if joined, more := strings.CutSuffix(part, `\`); more {
			line += joined + " "
			continue
		}
		line = strings.TrimSpace(line + part)
		if line != "" && line[0] != '#' {
			r.directive(origin{fmt.Sprintf("%s:%d", file, start), line})
		}
		line = ""
	}
}

func (r *rules) directive(o origin) {
	f := strings.Fields(o.line)
	if len(f) < 2 {
		return
	}
	module := normal(f[1])
	switch f[0] {
	case "options":
		r.options[module] = append(r.options[module], f[2:]...)
	case "blacklist":
		r.blacklist[module] = o
	case "install":
		if _, twice := r.install[module]; !twice && len(f) > 2 { // modprobe takes the first
			r.install[module] = o
		}
	case "softdep":
		addSoftdep(r.softdeps, module, f[2:])
	}
}

// parseCmdline takes module.parameter=value, and the lists of modules that shall
// not be loaded.
func (r *rules) parseCmdline(text string) {
	for _, word := range splitCmdline(strings.TrimSpace(text)) {
		if word == "--" {
			return // the rest is for init
		}
		key, value, _ := strings.Cut(word, "=")
		o := origin{"/proc/cmdline", word}
		switch normal(key) {
		case "modprobe.blacklist", "rd.driver.blacklist":
			list(r.blacklist, value, o)
			continue
		case "module_blacklist":
			list(r.refused, value, o)
			continue
		}
		if module, param, ok := strings.Cut(key, "."); ok && module != "" && param != "" {
			module = normal(module)
			r.options[module] = append(r.options[module], strings.TrimPrefix(word, key[:len(module)+1]))
		}
	}
}

func list(into map[string]origin, modules string, o origin) {
	for m := range strings.SplitSeq(modules, ",") {
		if m != "" {
			into[normal(m)] = o
		}
	}
}

// splitCmdline splits as the kernel does (lib/cmdline.c, next_arg): at white space
// outside double quotes. A quote left open reaches to the end. Quotes around a
// whole word or value are taken off.
func splitCmdline(text string) []string {
	var words []string
	var word strings.Builder
	quoted := false
	flush := func() {
		if word.Len() > 0 {
			words = append(words, unquote(word.String()))
			word.Reset()
		}
	}
	for _, c := range []byte(text) {
		switch {
		case c == '"':
			quoted = !quoted
			word.WriteByte(c)
		case !quoted && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			flush()
		case c != 0:
			word.WriteByte(c)
		}
	}
	flush()
	return words
}

func unquote(word string) string {
	if s, ok := strings.CutPrefix(word, `"`); ok {
		return strings.TrimSuffix(s, `"`)
	}
	if key, value, ok := strings.Cut(word, `="`); ok {
		return key + "=" + strings.TrimSuffix(value, `"`)
	}
	return word
}

// params are the options of a module as the kernel takes them: one string, a value
// with white space in double quotes.
func (r *rules) params(module string) string {
	opts := make([]string, len(r.options[module]))
	for i, o := range r.options[module] {
		if key, value, ok := strings.Cut(o, "="); ok && strings.ContainsAny(value, " \t") && !strings.HasPrefix(value, `"`) {
			o = key + `="` + value + `"`
		}
		opts[i] = o
	}
	return strings.Join(opts, " ")
}

// BlockedError is a needed module that somebody has said shall not be loaded.
type BlockedError struct {
	Module string
	By     string // "blacklist", "install" or "module_blacklist"
	Where  string // "/etc/modprobe.d/x.conf:3" or "/proc/cmdline"
	Line   string // as it stands there
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("module %s must not be loaded: %s: %q; remove that line if the machine shall have InfiniBand", e.Module, e.Where, e.Line)
}

// disables tells whether an install line is only there to prevent the load.
func disables(o origin) bool {
	f := strings.Fields(o.line)
	if len(f) != 3 {
		return false
	}
	switch filepath.Base(f[2]) {
	case "true", "false", ":":
		return true
	}
	return false
}

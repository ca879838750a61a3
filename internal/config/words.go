package config

import (
	"path/filepath"
	"strings"
)

// procCmdline stands for the kernel command line in origins and errors.
const procCmdline = "/proc/cmdline"

// word is one argument of the kernel command line.
type word struct {
	key, value string
	valued     bool // has a "="
	open       bool // a quote in it is not closed
	from       Origin
}

// words collects the arguments in the order in which later ones win. In the
// initramfs dracut reads /etc/cmdline.d and /etc/cmdline before the kernel's
// (getcmdline in dracut-lib.sh), and so do we.
func (t tree) words(cmdline string) (out []word, errs Errors) {
	if t.initramfs() {
		names, _ := filepath.Glob(t.path("/etc/cmdline.d/*.conf")) // the pattern is good
		for i, name := range names {
			names[i] = "/etc/cmdline.d/" + filepath.Base(name)
		}
		for _, name := range append(names, "/etc/cmdline") {
			if !t.exists(name) {
				continue
			}
			data, err := t.read(name)
			if err != nil {
				errs = append(errs, &Error{File: name, Msg: err.Error()})
				continue
			}
			no := 0
			for line := range strings.Lines(string(data)) {
				no++
				out = append(out, split(line, Origin{name, no})...)
			}
		}
	}
	if len(cmdline) > maxFile {
		return out, append(errs, &Error{File: procCmdline, Msg: errTooLarge.Error()})
	}
	return append(out, split(cmdline, Origin{File: procCmdline})...), errs
}

func (t tree) initramfs() bool { return t.exists("/etc/initrd-release") }

// split takes the command line apart as the kernel does (next_arg in
// lib/cmdline.c): at white space outside double quotes; quotes around a whole
// argument or value are taken off. What comes behind "--" is init's.
func split(s string, from Origin) (out []word) {
	for {
		s = strings.TrimLeft(s, " \t\n\v\f\r\x00")
		if s == "" {
			return out
		}
		quoted, end := false, 0
		for end < len(s) && (quoted || !strings.ContainsRune(" \t\n\v\f\r\x00", rune(s[end]))) {
			if s[end] == '"' {
				quoted = !quoted
			}
			end++
		}
		w := word{open: quoted, from: from}
		text := s[:end]
		s = s[end:]
		if text == "--" {
			return out
		}
		whole := strings.HasPrefix(text, `"`)
		text = strings.TrimPrefix(text, `"`)
		w.key, w.value, w.valued = strings.Cut(text, "=")
		value := strings.HasPrefix(w.value, `"`)
		w.value = strings.TrimPrefix(w.value, `"`)
		if whole || value {
			w.value = strings.TrimSuffix(w.value, `"`)
		}
		if whole && !w.valued {
			w.key = strings.TrimSuffix(w.key, `"`)
		}
		if w.open {
			w.value = strings.TrimRight(w.value, " \t\n")
		}
		out = append(out, w)
	}
}

package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxLine   = 4096 // bytes
	maxErrors = 50   // of one file; a file that is something else altogether has more
)

// parser reads one file. It goes on behind a mistake, so that all are told at
// once.
type parser struct {
	cfg      Config
	all      []key
	errs     Errors
	line     int
	section  string         // "" before the first, or in an unknown one
	skip     bool           // in an unknown section: its keys mean nothing
	sections map[string]int // line of each header
	lines    map[string]int // line of each key that may stand once
}

// parse reads a file of an interface. The Config is of use only when there are
// no errors. What concerns several keys or files is checked later.
func parse(name, path string, data []byte) (Config, Errors) {
	p := &parser{cfg: Default(name), all: keys(), sections: map[string]int{}, lines: map[string]int{}}
	p.cfg.Path = path
	for _, line := range p.raw(data) {
		p.line = line.no
		p.statement(line.text)
	}
	p.errs.sort()
	if len(p.errs) > maxErrors {
		p.errs = append(p.errs[:maxErrors], &Error{File: path, Iface: name, Line: p.errs[maxErrors].Line, Msg: "more mistakes from here on", Hint: "is this a file of ibup's?"})
	}
	return p.cfg, p.errs
}

func (p *parser) fail(key, hint, format string, args ...any) {
	if len(p.errs) <= maxErrors {
		p.errs = append(p.errs, &Error{File: p.cfg.Path, Line: p.line, Iface: p.cfg.Name, Key: key, Msg: fmt.Sprintf(format, args...), Hint: hint})
	}
}

type rawLine struct {
	no   int
	text string
}

// raw splits the file into lines and finds what no line may contain. Things that
// an editor does to the whole file are told once.
func (p *parser) raw(data []byte) []rawLine {
	var out []rawLine
	p.line = 1
	if rest, found := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); found {
		p.fail("", "save it as UTF-8 without BOM", "starts with a byte order mark")
		data = rest
	} else if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		p.fail("", "save it as UTF-8", "is UTF-16")
		return nil
	}
	crlf := false
	no := 0
	for line := range bytes.Lines(data) {
		no++
		p.line = no
		line = bytes.TrimSuffix(line, []byte("\n"))
		if rest, found := bytes.CutSuffix(line, []byte("\r")); found {
			line = rest
			if !crlf {
				p.fail("", "remove the carriage returns: sed -i 's/\\r$//' "+p.cfg.Path, "lines end in CR LF")
				crlf = true
			}
		}
		switch {
		case len(line) > maxLine:
			p.fail("", "make it shorter", "the line has %d bytes, at most %d are read", len(line), maxLine)
		case bytes.IndexFunc(line, control) >= 0:
			i := bytes.IndexFunc(line, control)
			p.fail("", "write the line anew", "an invisible character (0x%02x) at column %d: the file is damaged or no text", line[i], i+1)
		case !utf8.Valid(line):
			p.fail("", "save it as UTF-8", "is not UTF-8")
		default:
			out = append(out, rawLine{no, strings.TrimSpace(string(line))})
		}
	}
	return out
}

// control finds what no text has and what must not get to a terminal.
func control(r rune) bool { return unicode.IsControl(r) && r != '\t' }

func (p *parser) statement(s string) {
	switch {
	case s == "" || s[0] == '#' || s[0] == ';':
	case s[0] == '[':
		p.header(s)
	case p.skip:
	case !strings.Contains(s, "="):
		p.fail("", "write KEY=VALUE, a [Section], or # in front of a comment", "%s is no setting", quote(s))
	default:
		p.setting(s)
	}
}

func (p *parser) header(s string) {
	p.section, p.skip = "", true // until it turns out to be good
	name, found := strings.CutSuffix(s[1:], "]")
	if !found {
		if i := strings.IndexByte(s, ']'); i > 0 {
			p.fail("", "write "+s[:i+1]+" on a line of its own", "something stands behind the section: %s", quote(s[i+1:]))
		} else {
			p.fail("", "write ["+strings.TrimSpace(s[1:])+"]", "the section has no closing bracket")
		}
		return
	}
	if !slices.Contains(sections[:], name) {
		p.fail("", didYouMean(name, bracketed()), "unknown section %s", quote(s))
		return
	}
	if first, twice := p.sections[name]; twice {
		p.fail("", "write its keys below that one", "[%s] is there already on line %d", name, first)
	} else {
		p.sections[name] = p.line
	}
	p.section, p.skip = name, false
}

func bracketed() []string {
	var out []string
	for _, s := range sections {
		out = append(out, "["+s+"]")
	}
	return out
}

func (p *parser) setting(s string) {
	name, value, _ := strings.Cut(s, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if p.section == "" {
		p.fail("", p.home(name), "%s stands before the first section", quote(name+"="))
		return
	}
	k := findKey(p.all, func(k key) bool { return k.section == p.section && k.name == name })
	if k == nil {
		p.fail("", p.correct(name), "unknown key %s in [%s]", quote(name), p.section)
		return
	}
	if first, twice := p.lines[k.id()]; twice && !k.list {
		p.fail(k.id(), "keep one of the two", "is set already on line %d", first)
		return
	}
	p.lines[k.id()] = p.line
	f := misread(value)
	if f == nil {
		f = k.apply(&p.cfg, value, Origin{p.cfg.Path, p.line})
	}
	if f != nil {
		p.fail(k.id(), f.hint, "%s", f.msg)
	}
}

// home tells in which section a key belongs.
func (p *parser) home(name string) string {
	if k := findKey(p.all, func(k key) bool { return k.name == name }); k != nil {
		return "write [" + k.section + "] above it"
	}
	return "write a section above it: " + strings.Join(bracketed(), ", ")
}

// correct is the hint for an unknown key: the same key of another section, a key
// of this one that looks like it, or one of another.
func (p *parser) correct(name string) string {
	var elsewhere []string
	for _, k := range p.all {
		if k.name == name {
			return "it is a key of [" + k.section + "]"
		}
		if k.section != p.section {
			elsewhere = append(elsewhere, k.name)
		}
	}
	here := keyNames(p.all, p.section)
	if w := nearest(name, here); w != "" {
		return "did you mean " + w + "=?"
	}
	if w := nearest(name, elsewhere); w != "" {
		k := findKey(p.all, func(k key) bool { return k.name == w && k.section != p.section })
		return "did you mean " + w + "= of [" + k.section + "]?"
	}
	return "there are: " + strings.Join(here, ", ")
}

// misread finds what other formats allow in a value and this one does not.
func misread(v string) *fault {
	for i := 1; i < len(v); i++ {
		if (v[i] == '#' || v[i] == ';') && (v[i-1] == ' ' || v[i-1] == '\t') {
			return bad("put the comment on a line of its own", "a comment behind a value would be a part of it: %s", quote(v[i:]))
		}
	}
	switch {
	case strings.HasPrefix(v, "#"), strings.HasPrefix(v, ";"):
		return bad("put the comment on a line of its own", "a comment behind a value would be a part of it: %s", quote(v))
	case strings.HasSuffix(v, `\`):
		return bad("write it on one line", "a backslash does not continue a line")
	case len(v) > 1 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0]:
		return bad("write it without: "+v[1:len(v)-1], "quotes would be a part of the value")
	}
	return nil
}

// quote shows text of a file: never longer than a line of a console, and no
// control characters.
func quote(s string) string {
	if len(s) > 40 {
		s = strings.ToValidUTF8(s[:40], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

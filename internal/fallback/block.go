package fallback

import (
	"bytes"
	"slices"
	"strings"

	"ibup/internal/config"
)

// The lines ibup writes besides routes. Only the first two are a format; the
// others say something about the bytes around them, so that taking the block
// out gives back exactly what was there.
const (
	beginMark = "# BEGIN ibup "
	endMark   = "# END ibup "
	// madeMark is the first line of a file that ibup created.
	madeMark = "# This file was made by ibup and goes with its last block."
	// joinMark in a block: the newline before the block is ibup's too.
	joinMark = "# (the line above had no newline)"
	// keptMark before a route: it was in the kernel already and is not ibup's.
	keptMark = "# (in the kernel before ibup: stays there)"
)

// addressSyntax is the test of initscripts (ifup-routes) and NetworkManager
// (nms-ifcfg-rh-utils.c) for a file of ADDRESSn= assignments: a line that matches
// ^[[:space:]]*ADDRESS[0-9]+=. It returns the number of that line, 0 for none.
func addressSyntax(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		rest, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t\v\f\r"), []byte("ADDRESS"))
		number, _, assigned := bytes.Cut(rest, []byte("="))
		if ok && assigned && len(number) > 0 && len(bytes.Trim(number, "0123456789")) == 0 {
			return n
		}
	}
	return 0
}

// segment is a block of ibup's or what stands between blocks.
type segment struct {
	iface string // "" for what is not ibup's
	text  []byte // all bytes, line ends included
	line  int    // of its first line, 1-based
}

// wish is a route for the block; kept marks it as not made by ibup.
type wish struct {
	line string
	kept bool
}

// split cuts a route file into segments. The error is a *FileError without
// Path when a block is damaged.
func split(data []byte) ([]segment, error) {
	var segs []segment
	open := false // inside a block
	n, start, pos := 0, 0, 0
	for line := range bytes.Lines(data) {
		n++
		word := strings.TrimSpace(string(line)) + " "
		begin, isBegin := strings.CutPrefix(word, beginMark)
		end, isEnd := strings.CutPrefix(word, endMark)
		begin, end = strings.TrimSpace(begin), strings.TrimSpace(end)
		last := len(segs) - 1
		switch {
		case isBegin && open:
			return nil, damaged(segs[last].line, "the block of "+segs[last].iface+" has no END before the next BEGIN")
		case isBegin && (begin == "" || strings.ContainsAny(begin, " \t")):
			return nil, damaged(n, "BEGIN names no interface")
		case isEnd && !open:
			return nil, damaged(n, "END without BEGIN")
		case isEnd && end != segs[last].iface:
			return nil, damaged(n, "END of "+end+" in the block of "+segs[last].iface)
		}
		if isBegin || (!open && (last < 0 || segs[last].iface != "")) {
			segs = append(segs, segment{line: n})
			last++
			if isBegin {
				segs[last].iface = begin
			}
			start = pos
		}
		pos += len(line)
		segs[last].text = data[start:pos:pos]
		open = isBegin || (open && !isEnd)
	}
	if open {
		s := segs[len(segs)-1]
		return nil, damaged(s.line, "the block of "+s.iface+" has no END")
	}
	return segs, nil
}

func damaged(line int, why string) error {
	return &FileError{Line: line, Kind: ErrDamagedBlock, Why: why,
		Remedy: "delete the damaged \"# BEGIN ibup\"/\"# END ibup\" lines and the routes of that block, then run ibup up again"}
}

// block is the text of iface's block, "" for no wishes.
func block(iface string, wishes []wish, joined bool) []byte {
	if len(wishes) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString(beginMark + iface + "\n")
	if joined {
		b.WriteString(joinMark + "\n")
	}
	b.WriteString("# In place while " + iface + " does not work; ibup removes it. Change /etc/ibup/" + iface + ".conf, not this.\n")
	for _, w := range wishes {
		if w.kept {
			b.WriteString(keptMark + "\n")
		}
		b.WriteString(w.line + "\n")
	}
	b.WriteString(endMark + iface + "\n")
	return b.Bytes()
}

func hasLine(text []byte, want string) bool {
	for line := range bytes.Lines(text) {
		if strings.TrimSpace(string(line)) == want {
			return true
		}
	}
	return false
}

// edit returns data with iface's block made to hold the wishes, and with no
// block when there are none. exists tells an absent file from an empty one;
// the second result is whether the file shall exist.
func edit(data []byte, exists bool, iface string, wishes []wish) ([]byte, bool, error) {
	segs, err := split(data)
	if err != nil {
		return nil, false, err
	}
	out := make([]segment, 0, len(segs)+1)
	placed := len(wishes) == 0
	handOn := false // the next block, or the end of the file, inherits a joinMark
	for _, s := range segs {
		if s.iface == iface {
			joined := hasLine(s.text, joinMark) || handOn
			if placed { // no wishes, or a second block of ours
				handOn = joined
				continue
			}
			s.text = block(iface, wishes, joined)
			placed, handOn = true, false
		} else if handOn && s.iface != "" {
			first, rest, _ := bytes.Cut(s.text, []byte("\n"))
			s.text = bytes.Join([][]byte{first, []byte(joinMark), rest}, []byte("\n"))
			handOn = false
		} else {
			handOn = false // something was written behind: the newline is needed
		}
		out = append(out, s)
	}
	if handOn && len(out) > 0 {
		last := &out[len(out)-1]
		last.text = bytes.TrimSuffix(last.text, []byte("\n"))
	}
	var b bytes.Buffer
	blocks := 0
	for _, s := range out {
		b.Write(s.text)
		if s.iface != "" {
			blocks++
		}
	}
	if !placed {
		blocks++
		if !exists {
			b.WriteString(madeMark + "\n")
		}
		joined := b.Len() > 0 && b.Bytes()[b.Len()-1] != '\n'
		if joined {
			b.WriteByte('\n')
		}
		b.Write(block(iface, wishes, joined))
	}
	text := b.Bytes()
	if blocks == 0 && len(segs) > 0 {
		if rest, made := bytes.CutPrefix(text, []byte(madeMark+"\n")); made {
			return rest, len(rest) > 0, nil
		}
	}
	return text, exists || blocks > 0, nil
}

// checkAppend tells why a block cannot work in this file.
func checkAppend(dev string, data []byte) error {
	if n := addressSyntax(data); n > 0 {
		remedy := "write its routes as lines of `ip route` instead"
		if lines, err := Convert(dev, data); err == nil {
			remedy = "replace the file's content by these lines, which mean the same:\n    " + strings.Join(lines, "\n    ")
		} else {
			remedy += " (" + err.Error() + ")"
		}
		return &FileError{Line: n, Kind: ErrAddressSyntax,
			Why: "cannot carry a metric, and lines of both kinds do not work in one file", Remedy: remedy}
	}
	// ifup-routes reads with plain `read`: a backslash joins the next line.
	if t := bytes.TrimSuffix(data, []byte("\n")); bytes.HasSuffix(t, []byte(`\`)) {
		return &FileError{Line: 1 + bytes.Count(t, []byte("\n")), Why: "ends in a backslash and would swallow the line behind it",
			Remedy: "remove the backslash"}
	}
	return nil
}

// blockLines gives the routes in iface's block of a file, each with whether it
// is marked as not made by ibup.
func blockLines(segs []segment, iface string) map[string]bool {
	m := map[string]bool{}
	for _, s := range segs {
		if s.iface != iface {
			continue
		}
		kept := false
		for line := range bytes.Lines(s.text) {
			word := strings.TrimSpace(string(line))
			if word == keptMark {
				kept = true
			} else if word != "" && word[0] != '#' {
				m[word] = kept
				kept = false
			}
		}
	}
	return m
}

// foreign reports whether a line outside ibup's blocks, or a route in the
// ADDRESSn syntax, means the route already.
func foreign(data []byte, segs []segment, r config.Route) bool {
	if addressSyntax(data) > 0 {
		lines, err := Convert(r.Dev, data)
		return err == nil && slices.Contains(lines, r.String())
	}
	for _, s := range segs {
		if s.iface != "" {
			continue
		}
		for line := range bytes.Lines(s.text) {
			got, err := parseLine(r.Dev, string(line))
			if err == nil && !got.more && got.Route == r {
				return true
			}
		}
	}
	return false
}

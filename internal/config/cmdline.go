package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// setting is ibup.KEY=VALUE or ibup.IFACE.KEY=VALUE.
type setting struct {
	iface string // "" when it names none
	key   *key   // nil when it is unknown
	word  word
	fault *fault
}

// wishes are what the kernel command line says to ibup.
type wishes struct {
	settings   []setting
	standAside bool
	debug      int
	dracut     map[string]Origin // interfaces that ip= names
	children   []child
	errs       Errors
}

// readWords picks out what is meant for ibup. Of a setting given twice, the last
// counts, as with all kernel arguments.
func readWords(words []word, initramfs bool) wishes {
	w := wishes{dracut: map[string]Origin{}}
	all := keys()
	for _, a := range words {
		switch name, found := strings.CutPrefix(a.key, "ibup."); {
		case a.key == "ibup", a.key == "rd.ibup":
			w.stand(a, a.key == "ibup" || initramfs)
		case found && name == "debug":
			w.debugLevel(a)
		case found:
			w.settings = append(w.settings, readSetting(all, name, a))
		case strings.HasPrefix(a.key, "rd.ibup."):
			w.fail(a, "write "+strings.TrimPrefix(a.key, "rd.")+"=: it counts in the initramfs too", "unknown argument")
		case a.key == "ip":
			if dev := dracutInterface(a.value); dev != "" {
				w.dracut[dev] = a.from
			}
		case a.key == "ib.pkey":
			c, f := parseChild(a)
			if f != nil {
				w.fail(a, f.hint, "%s", f.msg)
				continue
			}
			w.children = append(w.children, c)
		}
	}
	return w
}

func (w *wishes) fail(a word, hint, format string, args ...any) {
	w.errs = append(w.errs, &Error{File: a.from.File, Line: a.from.Line, Key: clip(a.key), Msg: fmt.Sprintf(format, args...), Hint: hint})
}

func (w *wishes) stand(a word, here bool) {
	on := true
	if a.valued {
		var f *fault
		if on, f = parseBool(a.value); f != nil {
			w.fail(a, "write "+a.key+"=0 to have ibup stand aside", "%s", f.msg)
			return
		}
	}
	if here {
		w.standAside = !on
	}
}

func (w *wishes) debugLevel(a word) {
	w.debug = 1
	if !a.valued {
		return
	}
	n, err := strconv.Atoi(a.value)
	if err != nil || n < 0 || n > 2 {
		w.fail(a, "write ibup.debug=0, 1 or 2", "%s is no level", quote(a.value))
		return
	}
	w.debug = n
}

// readSetting takes apart what stands behind "ibup.". Interface names may have
// dots themselves: the key is behind the last one.
func readSetting(all []key, name string, a word) setting {
	s := setting{word: a}
	arg := name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		s.iface, arg = name[:i], name[i+1:]
		if f := checkName(s.iface); f != nil {
			s.fault = bad("write ibup.INTERFACE.KEY=VALUE", "%s", f.msg)
			return s
		}
	}
	s.key = findKey(all, func(k key) bool { return k.arg == arg })
	switch {
	case s.key == nil:
		s.fault = bad(correctArg(all, s.iface, arg), "unknown argument")
	case !a.valued:
		s.fault = bad("write "+a.key+"="+s.key.syntax, "has no value")
	case strings.ContainsFunc(a.value, control) || !utf8.ValidString(a.value):
		s.fault = bad("write "+a.key+"="+s.key.syntax, "has an invisible character")
	case a.open:
		s.fault = bad(`close it with "`, "a quote is not closed: all that follows belongs to the value")
	}
	return s
}

func correctArg(all []key, iface, arg string) string {
	args := []string{"debug"}
	for _, k := range all {
		if strings.EqualFold(k.name, arg) {
			return "did you mean " + argName(iface, k.arg) + "=?"
		}
		args = append(args, k.arg)
	}
	if w := nearest(arg, args); w != "" {
		return "did you mean " + argName(iface, w) + "=?"
	}
	slices.Sort(args)
	return "there are: " + strings.Join(args, ", ")
}

func argName(iface, arg string) string {
	if iface == "" || arg == "debug" {
		return "ibup." + arg
	}
	return "ibup." + iface + "." + arg
}

// values are what a setting gives its key one by one. Commas separate values of
// a list, and words of a route, since quotes do not get through every boot
// loader.
func (s setting) values() []string {
	v := strings.TrimSpace(s.word.value)
	switch {
	case !s.key.list || v == "":
		return []string{v}
	case s.key.name == "Route":
		return []string{strings.TrimSpace(strings.ReplaceAll(v, ",", " "))}
	}
	var out []string
	for p := range strings.SplitSeq(v, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// override puts the settings of one interface over what its file says. A list
// given here replaces that of the file.
func override(c *Config, settings []setting) (errs Errors) {
	replaced := map[string]bool{}
	reset := func(id string) {
		if !replaced[id] {
			replaced[id] = true
			findKey(keys(), func(k key) bool { return k.id() == id }).apply(c, "", Origin{})
		}
	}
	for _, s := range settings {
		f := s.fault
		if f == nil {
			switch id := s.key.id(); id {
			case "Network.Address", "Network.AddressFrom": // two ways to say one thing
				reset("Network.Address")
				reset("Network.AddressFrom")
			default:
				if s.key.list {
					reset(id)
				}
			}
			for _, v := range s.values() {
				if f = s.key.apply(c, v, s.word.from); f != nil {
					break
				}
			}
		}
		if f != nil {
			errs = append(errs, &Error{File: s.word.from.File, Line: s.word.from.Line, Iface: c.Name, Key: clip(s.word.key), Msg: f.msg, Hint: f.hint})
		}
	}
	return errs
}

// clip keeps an absurd key from filling the screen.
func clip(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}

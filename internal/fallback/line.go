package fallback

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"ibup/internal/config"
)

// lineRoute is a line of a route file in the `ip route` syntax.
type lineRoute struct {
	config.Route
	more bool // says more than destination, gateway, device and metric
}

var (
	errNoRoute = errors.New("no route on this line") // blank or a comment
	errUnknown = errors.New("a word this parser does not know")
)

// wordError is a word that `ip route add` refuses for certain.
type wordError struct{ word, why string }

func (e *wordError) Error() string { return fmt.Sprintf("%q: %s", e.word, e.why) }

// parseLine understands the words that initscripts hand to `ip route add`. It
// fails with errNoRoute, errUnknown or a *wordError.
func parseLine(dev, line string) (lineRoute, error) {
	var r lineRoute
	r.Dev = dev
	// bash splits at blank, tab and newline only: a carriage return stays.
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' || c == '\n' })
	if len(words) == 0 || words[0][0] == '#' {
		return r, errNoRoute
	}
	dest := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		arg := func() (string, error) {
			i++
			if i >= len(words) {
				return "", &wordError{w, "nothing behind it"}
			}
			return words[i], nil
		}
		var v string
		var err error
		switch w {
		case "via":
			if v, err = arg(); err == nil {
				r.Via, err = parseAddr(v)
			}
		case "dev":
			if v, err = arg(); err == nil {
				r.Dev = v
			}
		case "metric", "priority", "preference":
			if v, err = arg(); err == nil {
				var m uint64
				if m, err = strconv.ParseUint(v, 0, 32); err != nil {
					err = &wordError{v, "no metric"}
				}
				r.Metric = int(m)
			}
		case "onlink":
			r.more = true
		case "table", "proto", "protocol", "scope", "src", "tos", "dsfield", "mtu", "advmss", "window", "cwnd", "initcwnd", "initrwnd", "realm", "realms", "pref", "rtt", "type":
			r.more = true
			_, err = arg()
		default:
			if w == "to" {
				w, err = arg()
			}
			if err == nil && dest {
				return r, errUnknown
			}
			if err == nil {
				r.Dest, err = parseDest(w, r.Via)
				dest = true
			}
		}
		if err != nil {
			return r, err
		}
	}
	if !dest {
		return r, errUnknown
	}
	if r.Dest.Bits() == 0 && r.Via.Is6() { // "default" before "via"
		r.Dest = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return r, nil
}

func parseDest(w string, via netip.Addr) (netip.Prefix, error) {
	if w == "default" {
		if via.Is6() {
			return netip.PrefixFrom(netip.IPv6Unspecified(), 0), nil
		}
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	p, err := netip.ParsePrefix(w)
	if err == nil {
		return p, nil
	}
	addr, _, _ := strings.Cut(w, "/")
	a, aerr := parseAddr(addr)
	switch {
	case aerr != nil:
		return p, aerr
	case addr != w:
		return p, &wordError{w, "no prefix length"}
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// parseAddr leaves iproute2's short forms ("10.20") and keywords as unknown and
// refuses only what looks like a whole address and is none.
func parseAddr(w string) (netip.Addr, error) {
	a, err := netip.ParseAddr(w)
	switch {
	case err == nil:
		return a, nil
	case strings.Count(w, ".") == 3 || strings.Contains(w, ":"):
		return a, &wordError{w, "no address"}
	}
	return a, errUnknown
}

// assignment reads NAMEn=VALUE without anything a shell would have to work out,
// and perhaps a comment behind it.
func assignment(text string) (name string, n int, value string, ok bool) {
	left, right, found := strings.Cut(strings.TrimLeft(text, " \t"), "=")
	name = strings.TrimRight(left, "0123456789")
	n, err := strconv.Atoi(left[len(name):])
	if !found || err != nil || left != name+strconv.Itoa(n) || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return "", 0, "", false
	}
	var rest string
	switch {
	case strings.HasPrefix(right, `"`), strings.HasPrefix(right, "'"):
		value, rest, ok = strings.Cut(right[1:], right[:1])
		ok = ok && (right[0] == '\'' || !strings.ContainsAny(value, "$`\\"))
	default:
		end := strings.IndexAny(right, " \t")
		if end < 0 {
			end = len(right)
		}
		value, rest = right[:end], right[end:]
		ok = !strings.ContainsAny(value, "\"'$`\\\r#;&|<>()")
	}
	comment := strings.TrimLeft(rest, " \t")
	if ok && comment != "" && (comment == rest || comment[0] != '#') {
		ok = false
	}
	return name, n, value, ok
}

// numbered are the NAMEn variables of a file in the ADDRESSn syntax.
type numbered struct {
	vars map[string]map[int]string // name → number → value
	line map[string]map[int]int    // the same → line number
	odd  []int                     // lines that are no plain assignment, comment or blank
}

func readNumbered(data []byte) numbered {
	n := numbered{vars: map[string]map[int]string{}, line: map[string]map[int]int{}}
	no := 0
	for raw := range bytes.Lines(data) {
		no++
		text := strings.TrimRight(string(raw), "\n")
		if t := strings.TrimSpace(text); t == "" || t[0] == '#' {
			continue
		}
		name, i, value, ok := assignment(text)
		if !ok {
			n.odd = append(n.odd, no)
			continue
		}
		if n.vars[name] == nil {
			n.vars[name], n.line[name] = map[int]string{}, map[int]int{}
		}
		n.vars[name][i] = value
		n.line[name][i] = no
	}
	return n
}

// Convert gives the lines in the `ip route` syntax that mean what initscripts
// make of a file in the ADDRESSn syntax: the routes from number 0 to the first
// gap, each through dev.
func Convert(dev string, data []byte) ([]string, error) {
	n := readNumbered(data)
	if len(n.odd) > 0 {
		return nil, fmt.Errorf("line %d is no plain assignment", n.odd[0])
	}
	var out []string
	for i := 0; n.vars["ADDRESS"][i] != ""; i++ {
		addr, err := netip.ParseAddr(n.vars["ADDRESS"][i])
		if err != nil {
			return nil, fmt.Errorf("ADDRESS%d: %w", i, err)
		}
		bits, err := maskBits(n.vars["NETMASK"][i])
		if err != nil {
			return nil, fmt.Errorf("NETMASK%d: %w", i, err)
		}
		p, err := addr.Prefix(bits)
		if err != nil {
			return nil, fmt.Errorf("ADDRESS%d: %w", i, err)
		}
		r := config.Route{Dest: p, Dev: dev}
		if gw := n.vars["GATEWAY"][i]; gw != "" {
			if r.Via, err = netip.ParseAddr(gw); err != nil {
				return nil, fmt.Errorf("GATEWAY%d: %w", i, err)
			}
		}
		out = append(out, r.String())
	}
	if len(out) == 0 {
		return nil, errors.New("no ADDRESS0")
	}
	return out, nil
}

func maskBits(mask string) (int, error) {
	a, err := netip.ParseAddr(mask)
	if err != nil || !a.Is4() {
		return 0, fmt.Errorf("%q is no netmask", mask)
	}
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	bits := 0
	for v&(1<<31) != 0 {
		bits++
		v <<= 1
	}
	if v != 0 {
		return 0, fmt.Errorf("%q has a hole", mask)
	}
	return bits, nil
}

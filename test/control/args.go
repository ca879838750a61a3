package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ibup/test/fabric"
)

// command is one entry of the table.
type command struct {
	name string
	args []arg
	help string
	run  func(*Server, values) (Reply, error)
}

// arg is an argument; kind says how it is read and how help shows it.
type arg struct {
	name     string
	kind     kind
	optional bool
}

// kind reads a JSON value. Its errors say what is wanted instead.
type kind struct {
	spelling string
	parse    func(json.RawMessage) (any, error)
}

// values are parsed arguments, of the types that their kinds give.
type values map[string]any

func (v values) has(name string) bool { _, ok := v[name]; return ok }

// get returns an argument, or the zero value where an optional one is left out.
func get[T any](v values, name string) T {
	t, _ := v[name].(T)
	return t
}

func or[T any](v values, name string, deflt T) T {
	if t, ok := v[name].(T); ok {
		return t
	}
	return deflt
}

func (c command) parse(raw map[string]json.RawMessage) (values, error) {
	v := values{}
	for _, a := range c.args {
		r, ok := raw[a.name]
		delete(raw, a.name)
		if !ok {
			if !a.optional {
				return nil, fmt.Errorf("%q is missing; usage: %s", a.name, c.usage())
			}
			continue
		}
		var err error
		if v[a.name], err = a.kind.parse(r); err != nil {
			return nil, fmt.Errorf("%s %s: %w", a.name, r, err)
		}
	}
	if len(raw) != 0 {
		return nil, fmt.Errorf("no argument %q; usage: %s", slices.Sorted(maps.Keys(raw))[0], c.usage())
	}
	return v, nil
}

// usage is the request with the arguments' spellings; optional ones in
// brackets.
func (c command) usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"do":%q`, c.name)
	for _, a := range c.args {
		s := fmt.Sprintf(`,%q:%s`, a.name, a.kind.spelling)
		if a.optional {
			s = "[" + s + "]"
		}
		b.WriteString(s)
	}
	return b.String() + "}"
}

// choice is one of some words, each standing for a value.
func choice[T any](words []string, is []T) kind {
	want := strings.Join(words, ", ")
	return kind{`"` + strings.Join(words, "|") + `"`, func(r json.RawMessage) (any, error) {
		var s string
		if err := json.Unmarshal(r, &s); err == nil {
			for i, w := range words {
				if strings.EqualFold(w, s) {
					return is[i], nil
				}
			}
		}
		return nil, fmt.Errorf("want one of %s", want)
	}}
}

func text(spelling string) kind {
	return kind{`"` + spelling + `"`, func(r json.RawMessage) (any, error) {
		var s string
		if json.Unmarshal(r, &s) != nil || s == "" {
			return nil, errors.New("want a string that is not empty")
		}
		return s, nil
	}}
}

// number reads a JSON number or a string, which may be hexadecimal, and
// gives an int64.
func number(spelling string, low, high int64) kind {
	return kind{spelling, func(r json.RawMessage) (any, error) {
		n, err := strconv.ParseInt(strings.Trim(string(r), `"`), 0, 64)
		if err != nil || n < low || n > high {
			return nil, fmt.Errorf("want a number from %d (%#x) to %d (%#x)", low, low, high, high)
		}
		return n, nil
	}}
}

var (
	boolean = kind{"true|false", func(r json.RawMessage) (any, error) {
		var b bool
		if json.Unmarshal(r, &b) != nil {
			return nil, errors.New("want true or false")
		}
		return b, nil
	}}
	duration = kind{`"2s"`, func(r json.RawMessage) (any, error) {
		var s string
		if json.Unmarshal(r, &s) == nil {
			if d, err := time.ParseDuration(s); err == nil && d >= 0 {
				return d, nil
			}
		}
		return nil, errors.New(`want a duration like "500ms", "2s" or "1m"`)
	}}
	guid = kind{`"506b:4b03:00a1:0000"`, func(r json.RawMessage) (any, error) {
		var s string
		if json.Unmarshal(r, &s) != nil {
			return nil, errors.New(`want a string like "506b:4b03:00a1:0000"`)
		}
		return fabric.ParseGUID(s)
	}}
	address = kind{`"20.20.20.107"`, func(r json.RawMessage) (any, error) {
		var s string
		if json.Unmarshal(r, &s) == nil {
			if ip, err := netip.ParseAddr(s); err == nil && ip.Is4() {
				return ip, nil
			}
		}
		return nil, errors.New(`want an IPv4 address like "20.20.20.107"`)
	}}
	prefix = kind{`"0xfe80000000000000"`, func(r json.RawMessage) (any, error) {
		n, err := strconv.ParseUint(strings.Trim(string(r), `"`), 0, 64)
		if err != nil {
			return nil, errors.New(`want 64 bits like "0xfe80000000000000"`)
		}
		return n, nil
	}}
	pkey = number(`"0x8001"`, 1, 0xffff)
)

// list reads a JSON array of one kind.
func list[T any](of kind) kind {
	return kind{"[" + of.spelling + ",…]", func(r json.RawMessage) (any, error) {
		var raw []json.RawMessage
		if json.Unmarshal(r, &raw) != nil {
			return nil, errors.New("want a list: " + "[" + of.spelling + ",…]")
		}
		all := make([]T, 0, len(raw))
		for _, e := range raw {
			v, err := of.parse(e)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e, err)
			}
			all = append(all, v.(T))
		}
		return all, nil
	}}
}

package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	fromSyntax = "hosts:SUFFIX/PREFIXLENGTH or table:/FILE"
	hostsFile  = "/etc/hosts"
)

// parseFrom checks what AddressFrom= says, without looking anything up.
func parseFrom(v string) (string, *fault) {
	const hint = "write " + fromSyntax + ", such as AddressFrom=hosts:-ib0/24"
	kind, arg, _ := strings.Cut(v, ":")
	switch kind {
	case "hosts":
		name, length, found := strings.Cut(arg, "/")
		if !isName(name) {
			return "", bad(hint, "%s is no end of a host name", quote(name))
		}
		if !found {
			return "", bad("write the network's too, such as AddressFrom="+v+"/24", "no prefix length: /etc/hosts has none")
		}
		if n, err := strconv.Atoi(length); err != nil || !isDecimal(length) || n < 1 || n > 128 {
			return "", bad(hint, "%s is no prefix length", quote(length))
		}
		return v, nil
	case "table":
		if !path.IsAbs(arg) || path.Clean(arg) != arg {
			return "", bad("write the whole path, such as AddressFrom=table:/etc/ibup/nodes", "%s is no absolute path", quote(arg))
		}
		return v, nil
	}
	return "", bad(hint, "%s is unknown", quote(v))
}

func isName(s string) bool {
	return strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-._") == ""
}

// lookupFile is the file that an AddressFrom= value is looked up in.
func lookupFile(v string) string {
	kind, arg, _ := strings.Cut(v, ":")
	if kind == "hosts" {
		return hostsFile
	}
	return path.Clean("/" + arg)
}

// hostname is the node's name and where it was found.
type hostname struct {
	name, from string
}

// hostname finds the node's name: as given by the caller, by the kernel command
// line, by the file, and last by what somebody, DHCP perhaps, told the kernel.
func (t tree) hostname(given string, words []word) hostname {
	found := hostname{given, "the command line"}
	for _, w := range words {
		if w.key == "systemd.hostname" && given == "" {
			found = hostname{w.value, w.from.String()}
		}
	}
	for _, file := range []string{"/etc/hostname", "/proc/sys/kernel/hostname"} {
		name := t.small(file)
		if generic := name == "(none)" || strings.HasPrefix(name, "localhost"); found.name == "" && !generic {
			found = hostname{name, file}
		}
	}
	if found.name == "" || !isName(found.name) {
		return hostname{}
	}
	return found
}

// candidates are the names that a node's entry may have: with suffix behind the
// first label or behind all, with and without the domain.
func (h hostname) candidates(suffix string) []string {
	short, domain, qualified := strings.Cut(h.name, ".")
	if !qualified {
		return []string{short + suffix}
	}
	return []string{short + suffix, short + suffix + "." + domain, h.name + suffix}
}

// resolve looks up AddressFrom= and adds what it finds to the addresses.
func (t tree) resolve(c *Config, h hostname) *Error {
	v := c.Network.AddressFrom
	if v == "" {
		return nil
	}
	at := c.origin("Network.AddressFrom", 0)
	fail := func(o Origin, f *fault) *Error {
		return &Error{File: o.File, Line: o.Line, Iface: c.Name, Key: "Network.AddressFrom", Msg: f.msg, Hint: f.hint}
	}
	if h.name == "" {
		return fail(at, bad("write the node's name to /etc/hostname", "the node has no name to look up"))
	}
	kind, arg, _ := strings.Cut(v, ":")
	file, names, bits := lookupFile(v), h.candidates(""), ""
	if kind == "hosts" {
		var suffix string
		suffix, bits, _ = strings.Cut(arg, "/")
		names = h.candidates(suffix)
	}
	data, err := t.read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(at, bad("make it, or correct AddressFrom=", "%s does not exist", file))
	} else if err != nil {
		return fail(at, bad("correct AddressFrom=", "%s: %s", file, err))
	}
	found, f, line := lookup(string(data), names, bits)
	switch {
	case f != nil:
		return fail(Origin{file, line}, f)
	case len(found) == 0:
		entry := "ADDRESS " + names[0]
		if kind == "table" {
			entry = names[0] + " ADDRESS/PREFIXLENGTH"
		}
		return fail(at, bad("add a line \""+entry+"\"", "%s has no %s (the node's name %s is from %s)", file, names[0], h.name, h.from))
	}
	for _, p := range found {
		c.Network.Addresses = append(c.Network.Addresses, p)
		c.Origin["Network.Address"] = append(c.Origin["Network.Address"], Origin{file, line})
	}
	return nil
}

// lookup finds a node's line. With bits, the file is in the format of hosts(5) and
// the prefix length also tells the address family; without, lines are a name and
// its addresses with prefix length.
func lookup(text string, names []string, bits string) (found []netip.Prefix, f *fault, line int) {
	ours := func(name string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	}
	no := 0
	for l := range strings.Lines(text) {
		no++
		l, _, _ = strings.Cut(l, "#")
		fields := strings.Fields(l)
		if len(fields) == 0 {
			continue
		}
		name, values := fields[:1], fields[1:]
		if bits != "" {
			a, err := netip.ParseAddr(fields[0])
			// Debian writes the node's own name beside 127.0.1.1.
			if n, _ := strconv.Atoi(bits); err != nil || a.IsLoopback() || a.Is4() != (n <= 32) {
				continue
			}
			name, values = fields[1:], []string{fields[0] + "/" + bits}
		}
		if !slices.ContainsFunc(name, ours) {
			continue
		}
		var here []netip.Prefix
		for _, v := range values {
			p, f := parseInterfaceAddress(v)
			if f != nil {
				return nil, f, no
			}
			here = append(here, p)
		}
		switch {
		case len(here) == 0:
			return nil, bad("write "+fields[0]+" ADDRESS/PREFIXLENGTH", "%s has no address", fields[0]), no
		case found == nil:
			found, line = here, no
		case bits == "" || found[0] != here[0]:
			return nil, bad("keep one of the two", "%s is there already on line %d", name[0], line), no
		}
	}
	return found, nil, line
}

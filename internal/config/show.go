package config

import (
	"fmt"
	"strings"
)

// Row is one effective value, as `ibup config show` tells it.
type Row struct {
	Section string `json:"section"`
	Key     string `json:"key"`
	Value   string `json:"value"`  // as a file would say it; "": not set
	Origin  string `json:"origin"` // "default", "kernel command line", "/etc/ibup/ib0.conf:4"
	// Derived: the value was looked up for another key (AddressFrom) and does not
	// belong into a file beside it.
	Derived bool `json:"derived,omitempty"`
}

// Show lists every key in the order of the manual, a list with one row for each
// value.
func Show(c Config) []Row {
	var rows []Row
	for _, k := range keys() {
		values := k.get(&c)
		if len(values) == 0 {
			values = []string{""}
		}
		for i, v := range values {
			r := Row{Section: k.section, Key: k.name, Value: v, Origin: Origin{}.String()}
			if l := c.Origin[k.id()]; i < len(l) {
				r.Origin = l[i].String()
				r.Derived = k.id() == "Network.Address" && l[i].File == lookupFile(c.Network.AddressFrom)
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// Text is the rows of an interface for reading.
func Text(c Config) string {
	var b strings.Builder
	from := c.Path
	if from == "" {
		from = "no file"
	}
	fmt.Fprintf(&b, "%s (%s)\n", c.Name, from)
	if c.DracutOwnsAddress {
		b.WriteString("  dracut's ip= names it: in the initramfs, dracut gives the address\n")
	}
	section, width := "", 0
	rows := Show(c)
	for _, r := range rows {
		width = max(width, len(r.Value))
	}
	for _, r := range rows {
		if r.Section != section {
			section = r.Section
			fmt.Fprintf(&b, "[%s]\n", section)
		}
		value := r.Value
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(&b, "  %-11s  %-*s  %s\n", r.Key, width, value, r.Origin)
	}
	return b.String()
}

// Render is a file that says the same, without what is the default anyway.
func Render(c Config) string {
	var b strings.Builder
	usual := map[string]string{}
	for _, r := range Show(Default(c.Name)) {
		usual[r.Section+"."+r.Key] = r.Value
	}
	section := ""
	for _, r := range Show(c) {
		if r.Derived || r.Value == usual[r.Section+"."+r.Key] {
			continue
		}
		if r.Section != section {
			if section != "" {
				b.WriteByte('\n')
			}
			section = r.Section
			fmt.Fprintf(&b, "[%s]\n", section)
		}
		fmt.Fprintf(&b, "%s=%s\n", r.Key, r.Value)
	}
	return b.String()
}

package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// key is one setting. Files, the kernel command line, `config show` and the
// check of the manual pages all go by the one table below.
type key struct {
	section, name string
	arg           string // ibup.<arg>= on the kernel command line
	list          bool   // may be repeated; an empty value takes back those before
	syntax        string // what a value looks like, for hints and manual

	set   func(c *Config, v string) *fault // v is not empty
	unset func(c *Config)
	get   func(c *Config) []string // in the spelling that set takes; "" or nothing: unset
}

func (k *key) id() string { return k.section + "." + k.name }

// sections in the order of the manual.
var sections = [...]string{"Match", "IPoIB", "Network", "Verify", "Fallback", "Boot"}

// keys lists every setting in the order of the manual.
func keys() []key {
	return []key{
		{section: "Match", name: "PortGUID", arg: "guid", syntax: "0x506b4b0300a1b2c2",
			set:   func(c *Config, v string) (f *fault) { c.Match.PortGUID, f = parseGUID(v); return },
			unset: func(c *Config) { c.Match.PortGUID = 0 },
			get:   func(c *Config) []string { return unless(c.Match.PortGUID == 0, "0x%016x", c.Match.PortGUID) }},
		{section: "Match", name: "PCI", arg: "pci", syntax: "0000:3b:00.0",
			set:   func(c *Config, v string) (f *fault) { c.Match.PCI, f = parseBDF(v); return },
			unset: func(c *Config) { c.Match.PCI = "" },
			get:   func(c *Config) []string { return one(c.Match.PCI) }},
		{section: "Match", name: "Device", arg: "device", syntax: "mlx5_0",
			set:   func(c *Config, v string) (f *fault) { c.Match.Device, f = parseDevice(v); return },
			unset: func(c *Config) { c.Match.Device = "" },
			get:   func(c *Config) []string { return one(c.Match.Device) }},
		{section: "Match", name: "Port", arg: "port", syntax: "1",
			set:   func(c *Config, v string) (f *fault) { c.Match.Port, f = parsePort(v); return },
			unset: func(c *Config) { c.Match.Port = 0 },
			get:   func(c *Config) []string { return unless(c.Match.Port == 0, "%d", c.Match.Port) }},

		{section: "IPoIB", name: "PKey", arg: "pkey", syntax: "0x8001",
			set:   func(c *Config, v string) (f *fault) { c.IPoIB.PKey, f = parsePKey(v); return },
			unset: func(c *Config) { c.IPoIB.PKey = parentPKey },
			get:   func(c *Config) []string { return unless(false, "0x%04x", c.IPoIB.PKey) }},
		{section: "IPoIB", name: "Mode", arg: "mode", syntax: "datagram|connected",
			set:   func(c *Config, v string) (f *fault) { c.IPoIB.Mode, f = parseMode(v); return },
			unset: func(c *Config) { c.IPoIB.Mode = ModeKeep },
			get:   func(c *Config) []string { return one(string(c.IPoIB.Mode)) }},
		{section: "IPoIB", name: "MTU", arg: "mtu", syntax: "4092",
			set:   func(c *Config, v string) (f *fault) { c.IPoIB.MTU, f = parseMTU(v); return },
			unset: func(c *Config) { c.IPoIB.MTU = 0 },
			get:   func(c *Config) []string { return unless(c.IPoIB.MTU == 0, "%d", c.IPoIB.MTU) }},

		{section: "Network", name: "Address", arg: "address", list: true, syntax: "20.20.20.109/24",
			set: func(c *Config, v string) *fault {
				p, f := parseInterfaceAddress(v)
				if f == nil {
					c.Network.Addresses = append(c.Network.Addresses, p)
				}
				return f
			},
			unset: func(c *Config) { c.Network.Addresses = nil },
			get:   func(c *Config) []string { return stringsOf(c.Network.Addresses) }},
		{section: "Network", name: "AddressFrom", arg: "addressfrom", syntax: "hosts:-ib0/24|table:/etc/ibup/nodes",
			set:   func(c *Config, v string) (f *fault) { c.Network.AddressFrom, f = parseFrom(v); return },
			unset: func(c *Config) { c.Network.AddressFrom = "" },
			get:   func(c *Config) []string { return one(c.Network.AddressFrom) }},
		{section: "Network", name: "Gateway", arg: "gateway", syntax: "20.20.20.1",
			set:   func(c *Config, v string) (f *fault) { c.Network.Gateway, f = parseHost(v); return },
			unset: func(c *Config) { c.Network.Gateway = noAddr },
			get: func(c *Config) []string {
				return unless(!c.Network.Gateway.IsValid(), "%s", c.Network.Gateway)
			}},
		{section: "Network", name: "Route", arg: "route", list: true, syntax: routeSyntax,
			set: func(c *Config, v string) *fault {
				r, f := parseRoute(v)
				if f == nil {
					if r.Dev == c.Name {
						r.Dev = ""
					}
					c.Network.Routes = append(c.Network.Routes, r)
				}
				return f
			},
			unset: func(c *Config) { c.Network.Routes = nil },
			get:   func(c *Config) []string { return stringsOf(c.Network.Routes) }},
		{section: "Network", name: "DHCP", arg: "dhcp", syntax: "no",
			set:   func(_ *Config, v string) *fault { return parseDHCP(v) },
			unset: func(*Config) {},
			get:   func(*Config) []string { return one("no") }},

		{section: "Verify", name: "Ping", arg: "ping", list: true, syntax: "20.20.20.107",
			set: func(c *Config, v string) *fault {
				a, f := parseHost(v)
				if f == nil {
					c.Verify.Ping = append(c.Verify.Ping, a)
				}
				return f
			},
			unset: func(c *Config) { c.Verify.Ping = nil },
			get:   func(c *Config) []string { return stringsOf(c.Verify.Ping) }},

		{section: "Fallback", name: "Route", arg: "fallback", list: true, syntax: fallbackSyntax,
			set: func(c *Config, v string) *fault {
				r, f := parseFallback(c.Name, v)
				if f == nil {
					c.Fallback.Routes = append(c.Fallback.Routes, r)
				}
				return f
			},
			unset: func(c *Config) { c.Fallback.Routes = nil },
			get:   func(c *Config) []string { return stringsOf(c.Fallback.Routes) }},
		{section: "Fallback", name: "Persist", arg: "persist", syntax: "yes|no",
			set:   func(c *Config, v string) (f *fault) { c.Fallback.Persist, f = parseBool(v); return },
			unset: func(c *Config) { c.Fallback.Persist = false },
			get:   func(c *Config) []string { return one(yesNo(c.Fallback.Persist)) }},

		{section: "Boot", name: "Timeout", arg: "timeout", syntax: "60s",
			set:   func(c *Config, v string) (f *fault) { c.Boot.Timeout, f = parseTimeout(v); return },
			unset: func(c *Config) { c.Boot.Timeout = defaultTimeout },
			get:   func(c *Config) []string { return one(spellDuration(c.Boot.Timeout)) }},
		{section: "Boot", name: "Watch", arg: "watch", syntax: "until-up|always|never",
			set:   func(c *Config, v string) (f *fault) { c.Boot.Watch, f = parseWatch(v); return },
			unset: func(c *Config) { c.Boot.Watch = WatchUntilUp },
			get:   func(c *Config) []string { return one(string(c.Boot.Watch)) }},
	}
}

const defaultTimeout = 60 * time.Second

// Default is the configuration of an interface of which nothing is said: it
// exists and is up, without an address.
func Default(name string) Config {
	return Config{
		Name:   name,
		IPoIB:  IPoIB{PKey: parentPKey},
		Boot:   Boot{Timeout: defaultTimeout, Watch: WatchUntilUp},
		Origin: map[string][]Origin{},
	}
}

// apply gives one value to a setting and notes where it came from. An empty
// value takes back what was given before.
func (k *key) apply(c *Config, v string, from Origin) *fault {
	if v == "" {
		k.unset(c)
		delete(c.Origin, k.id())
		return nil
	}
	if k.list && len(c.Origin[k.id()]) >= maxValues {
		return bad("write fewer", "more than %d values", maxValues)
	}
	f := k.set(c, v)
	switch {
	case f != nil:
	case k.list:
		c.Origin[k.id()] = append(c.Origin[k.id()], from)
	default:
		c.Origin[k.id()] = []Origin{from}
	}
	return f
}

// maxValues bounds a list, so that no file makes the checks of all pairs slow.
const maxValues = 64

func (c *Config) origin(id string, i int) Origin {
	if l := c.Origin[id]; i < len(l) {
		return l[i]
	}
	return Origin{File: c.Path}
}

func one(s string) []string { return []string{s} }

func unless(unset bool, format string, v any) []string {
	if unset {
		return one("")
	}
	return one(fmt.Sprintf(format, v))
}

func stringsOf[T fmt.Stringer](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// spellDuration writes whole seconds as such, since that is how people count here.
func spellDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10) + "ms"
}

func keyNames(all []key, section string) []string {
	var out []string
	for _, k := range all {
		if k.section == section {
			out = append(out, k.name)
		}
	}
	return out
}

func findKey(all []key, match func(key) bool) *key {
	if i := slices.IndexFunc(all, match); i >= 0 {
		return &all[i]
	}
	return nil
}

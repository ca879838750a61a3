package config

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Every spelling that is taken, and the one in which it is shown. An empty value
// then takes it back.
func TestSpellings(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"Match.PortGUID", "506b4b0300a1b2c2", "0x506b4b0300a1b2c2"},
		{"Match.PortGUID", "0X506B4B0300A1B2C2", "0x506b4b0300a1b2c2"},
		{"Match.PortGUID", "506b:4b03:00a1:b2c2", "0x506b4b0300a1b2c2"},
		{"Match.PortGUID", "50:6B:4b:03:00:a1:b2:c2", "0x506b4b0300a1b2c2"},
		{"Match.PCI", "3B:00.0", "0000:3b:00.0"},
		{"Match.PCI", "10000:e1:00.1", "10000:e1:00.1"},
		{"Match.Device", "ibp59s0", "ibp59s0"},
		{"Match.Port", "2", "2"},
		{"IPoIB.PKey", "0x8001", "0x8001"},
		{"IPoIB.PKey", "0X800A", "0x800a"},
		{"IPoIB.PKey", "0xffff", "0xffff"},
		{"IPoIB.Mode", "connected", "connected"},
		{"IPoIB.MTU", "2044", "2044"},
		{"IPoIB.MTU", "72", "72"},
		{"Network.Address", "20.20.20.109/24", "20.20.20.109/24"},
		{"Network.Address", "20.20.20.0/31", "20.20.20.0/31"},
		{"Network.Address", "20.20.20.255/32", "20.20.20.255/32"},
		{"Network.Address", "FD00:0::6D/64", "fd00::6d/64"},
		{"Network.AddressFrom", "hosts:.ib/24", "hosts:.ib/24"},
		{"Network.AddressFrom", "table:/etc/ibup/nodes", "table:/etc/ibup/nodes"},
		{"Network.Gateway", "fe80::1", "fe80::1"},
		{"Network.Route", "20.20.30.0/24", "20.20.30.0/24"},
		{"Network.Route", "20.20.30.7 metric 5 via 20.20.20.1", "20.20.30.7/32 via 20.20.20.1 metric 5"},
		{"Network.Route", "0.0.0.0/0\tvia  20.20.20.1", "default via 20.20.20.1"},
		{"Network.Route", "default via fd00::1", "default via fd00::1"},
		{"Network.Route", "default dev eno1", "default dev eno1"},
		{"Network.Route", "20.20.30.0/24 dev ib0", "20.20.30.0/24"},
		{"Network.DHCP", "off", "no"},
		{"Verify.Ping", "fd00::6b", "fd00::6b"},
		{"Fallback.Route", "20.20.20.0/24 dev eno1 metric 4294967295", "20.20.20.0/24 dev eno1 metric 4294967295"},
		{"Fallback.Persist", "True", "yes"},
		{"Fallback.Persist", "1", "yes"},
		{"Boot.Timeout", "90", "90s"},
		{"Boot.Timeout", "1min 30s", "90s"},
		{"Boot.Timeout", "1m30s", "90s"},
		{"Boot.Timeout", "1h", "3600s"},
		{"Boot.Timeout", "1500ms", "1500ms"},
		{"Boot.Watch", "never", "never"},
	} {
		k := findKey(keys(), func(k key) bool { return k.id() == c.key })
		cfg, usual := Default("ib0"), Default("ib0")
		if f := k.apply(&cfg, c.value, Origin{}); f != nil {
			t.Errorf("%s=%s: %+v", c.key, c.value, f)
		} else if got := k.get(&cfg); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s=%s: %q, want %q", c.key, c.value, got, c.want)
		}
		if f := k.apply(&cfg, "", Origin{}); f != nil || !slices.Equal(k.get(&cfg), k.get(&usual)) || len(cfg.Origin) > 0 {
			t.Errorf("%s= does not take it back: %+v", c.key, cfg)
		}
	}
}

// A gateway may be on a network that only a route makes known.
func TestGatewayOnLink(t *testing.T) {
	for _, text := range []string{
		"[Network]\nAddress=20.20.20.109/32\nRoute=20.20.20.1\nGateway=20.20.20.1\n",
		"[Network]\nAddress=fd00::6d/64\nGateway=fe80::1\n",
		"[Network]\nRoute=20.20.30.0/24 via 10.0.0.1 dev eno1\n",
	} {
		failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": text}), "")
	}
}

func TestErrorsAs(t *testing.T) {
	_, err := Load(machine(t, map[string]string{"etc/ibup/ib0.conf": "x"}), "")
	var list Errors
	var one *Error
	if !errors.As(err, &list) || !errors.As(err, &one) || one != list[0] || one.Line != 1 {
		t.Errorf("%#v", err)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"PortGUID", "PCI", "Device", "Port", "MTU"}
	for word, want := range map[string]string{
		"PortGuid": "PortGUID", "portgid": "PortGUID", "Prot": "Port", "pic": "PCI", "Devcie": "Device", "xyz": "", "": "", "M": "",
		strings.Repeat("x", 4000): "",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("%s: %q, want %q", clip(word), got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"Route", "Route", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

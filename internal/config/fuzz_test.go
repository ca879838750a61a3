package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// printable fails when an error could do something to a terminal, or fill it.
func printable(t *testing.T, errs Errors) {
	t.Helper()
	for _, e := range errs {
		if s := e.Error(); strings.ContainsFunc(s, control) || len(s) > 1000 || e.Msg == "" {
			t.Errorf("%q", s)
		}
	}
}

// Whatever the file is, reading it ends, in few errors with a line each; and when
// there is none, what Render makes of the result reads the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(goodConf))
	for _, c := range badFiles {
		f.Add([]byte(c.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const path = "/etc/ibup/ib0.conf"
		c, errs := parse("ib0", path, data)
		errs = append(errs, check(&c, errs)...)
		printable(t, errs)
		last := bytes.Count(data, []byte("\n")) + 1
		for _, e := range errs {
			if e.Line < 1 || e.Line > last || e.File != path || e.Iface != "ib0" {
				t.Errorf("%+v in a file of %d lines", e, last)
			}
		}
		if len(errs) > maxErrors+1+4*maxValues { // the checks of lists come on top
			t.Errorf("%d errors", len(errs))
		}
		if len(errs) > 0 {
			return
		}
		text := Render(c)
		again, errs := parse("ib0", path, []byte(text))
		again.Origin = c.Origin
		if len(errs) > 0 || !reflect.DeepEqual(again, c) {
			t.Errorf("%v\ngot  %+v\nwant %+v\nfile\n%s", errs, again, c, text)
		}
	})
}

// Whatever the command line is, there is an answer, and every interface in it is
// one that the kernel could have.
func FuzzCmdline(f *testing.F) {
	for _, s := range []string{
		"BOOT_IMAGE=/vmlinuz ro quiet", `a="`, `"`, `""=""`, "ibup.ib1.route=\"default via 20.20.20.1\" -- x", "ibup.address=20.20.20.109/24,fd00::1/64 ibup=0",
		"ip=[fd00::1]::[fd00::2]:64:n:ib0:none ib.pkey=ib0.8001", "ip=[:]:::::ib0", "ibup.fallback=20.20.20.0/24,via,10.20.0.1,dev,eno1 ibup.debug=2", "ibup.route=,",
		"ibup.addressfrom=hosts:-ib0/24 systemd.hostname=n", "ibup.ib0..mtu=1 ibup..mtu=1", "rd.ibup=0 rd.ibup.x",
	} {
		f.Add(s)
	}
	root := machine(f, map[string]string{"etc/ibup/ib0.conf": goodConf})
	f.Fuzz(func(t *testing.T, cmdline string) {
		set, err := Load(root, cmdline)
		errs, _ := err.(Errors)
		printable(t, errs)
		for _, c := range set.Interfaces {
			if !validName(c.Name) || c.IPoIB.PKey&fullMember == 0 || c.Boot.Timeout <= 0 || c.Boot.Watch == "" {
				t.Errorf("%+v", c)
			}
		}
		if len(set.Interfaces) == 0 && len(set.Refused) == 0 {
			t.Error("the interface that has a file is neither there nor refused")
		}
	})
}

// Splitting agrees with the kernel's next_arg, quotes and all.
func TestSplit(t *testing.T) {
	for s, want := range map[string][]word{
		"":                  nil,
		" \t\n":             nil,
		"a b=c":             {{key: "a"}, {key: "b", value: "c", valued: true}},
		`a="b c" d`:         {{key: "a", value: "b c", valued: true}, {key: "d"}},
		`"a=b c" d`:         {{key: "a", value: "b c", valued: true}, {key: "d"}},
		`"a b" c`:           {{key: "a b"}, {key: "c"}},
		`a=b"c d"e f`:       {{key: "a", value: `b"c d"e`, valued: true}, {key: "f"}},
		`a="`:               {{key: "a", valued: true, open: true}},
		`a="b c`:            {{key: "a", value: "b c", valued: true, open: true}},
		`"`:                 {{key: "", open: true}},
		"a=b=c":             {{key: "a", value: "b=c", valued: true}},
		"a -- b":            {{key: "a"}},
		"a --b":             {{key: "a"}, {key: "--b"}},
		"a=\x00b":           {{key: "a", valued: true}, {key: "b"}},
		"quiet\n":           {{key: "quiet"}},
		"x=\"\" \"\" \"=\"": {{key: "x", valued: true}, {key: ""}, {key: "", valued: true}},
	} {
		if got := split(s, Origin{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", s, got, want)
		}
	}
}

package config

import (
	"os"
	"strings"
	"testing"
)

func page(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/man/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// examples are the indented blocks of a page's EXAMPLES.
func examples(t *testing.T, text string) (out []string) {
	t.Helper()
	_, text, _ = strings.Cut(text, "\n.SH EXAMPLES\n")
	for block := range strings.SplitSeq(text, "\n.nf\n.RS\n") {
		if block, _, found := strings.Cut(block, "\n.RE\n.fi\n"); found {
			out = append(out, strings.ReplaceAll(block, `\-`, "-"))
		}
	}
	if len(out) < 2 {
		t.Fatalf("%d examples", len(out))
	}
	return out
}

// The manual of the files has every key in its section, with its name on the
// command line and whether it may be repeated, and nothing else; its examples are
// without mistakes.
func TestManualOfFiles(t *testing.T) {
	var want, got []string
	for _, k := range keys() {
		line := "[" + strings.ToUpper(k.section) + "] " + k.name + `= " (" ibup.` + k.arg + "= "
		if k.list {
			want = append(want, line+`") repeatable"`)
		} else {
			want = append(want, line+")")
		}
	}
	section := ""
	text := page(t, "ibup.conf.5")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if s, found := strings.CutPrefix(line, ".SH "); found {
			section = s
		}
		if s, found := strings.CutPrefix(line, ".BR "); found && strings.Contains(s, `" (" ibup.`) {
			got = append(got, section+" "+s)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range examples(t, text) {
		failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": e, "etc/hosts": "20.20.20.109 n-ib0", "etc/hostname": "n"}), "")
	}
}

// The manual of the command line has every setting.
func TestManualOfCmdline(t *testing.T) {
	var want []string
	for _, k := range keys() {
		line := "ibup." + k.arg + "=\t[" + k.section + "] " + k.name + "="
		if k.list {
			line += "\tlist"
		}
		want = append(want, line)
	}
	text := page(t, "ibup-cmdline.7")
	_, table, _ := strings.Cut(text, ".TS\nlb l l.\n")
	table, _, _ = strings.Cut(table, "\n.TE\n")
	if table != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", table, strings.Join(want, "\n"))
	}
	for _, e := range examples(t, text) {
		set := failsWith(t, machine(t, nil), e)
		if names(set) != "ib0" || len(set.Interfaces[0].Origin) == 0 {
			t.Errorf("%+v", set)
		}
	}
}

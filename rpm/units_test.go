// Package rpm holds what a package installs besides the program: units, preset,
// example configuration. Only tests are Go.
package rpm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ibup/internal/config"
)

// known reads the settings of systemd 219, "Section.Name" a line.
func known(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("testdata/systemd-219.txt")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			m[line] = true
		}
	}
	return m
}

type setting struct {
	line             int
	key, name, value string // key is "Section.Name"
}

// parse reads a unit as systemd does: a comment is a line that begins with # or
// ;, and nothing else is.
func parse(t *testing.T, data []byte) []setting {
	t.Helper()
	var out []setting
	section, n := "", 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || section == "" {
			t.Fatalf("line %d: %q is no setting", n, line)
		}
		out = append(out, setting{n, section + "." + name, name, value})
	}
	return out
}

// faults are what systemd 219 would ignore, misread or refuse in a unit.
func faults(t *testing.T, data []byte, known map[string]bool) []string {
	t.Helper()
	values := map[string][]string{
		"Type":    {"simple", "forking", "oneshot", "dbus", "notify", "idle"},
		"Restart": {"no", "on-success", "on-failure", "on-abnormal", "on-watchdog", "on-abort", "always"},
	}
	var out []string
	oneshot, restart := false, false
	for _, s := range parse(t, data) {
		if !known[s.key] {
			out = append(out, s.key+" is unknown to systemd 219")
		}
		if strings.ContainsAny(s.value, "#;") {
			out = append(out, s.key+": what stands behind the value is no comment but part of it")
		}
		if v := values[s.name]; v != nil && !slices.Contains(v, s.value) {
			out = append(out, s.key+"="+s.value+" is unknown to systemd 219")
		}
		if strings.HasPrefix(s.name, "Exec") && !strings.HasPrefix(strings.TrimLeft(s.value, "-@"), "/") {
			out = append(out, s.key+": systemd 219 knows absolute paths only, behind - or @")
		}
		oneshot = oneshot || s.key == "Service.Type" && s.value == "oneshot"
		restart = restart || s.key == "Service.Restart" && s.value != "no"
	}
	if oneshot && restart {
		out = append(out, "systemd 219 refuses a oneshot with Restart=")
	}
	return out
}

func units(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("systemd/*.service")
	if err != nil || len(names) != 3 {
		t.Fatalf("units %v, %v", names, err)
	}
	m := map[string][]byte{}
	for _, name := range names {
		if m[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestSystemd219(t *testing.T) {
	known := known(t)
	for name, data := range units(t) {
		for _, f := range faults(t, data, known) {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// The check above finds what it is for.
func TestFaults(t *testing.T) {
	known := known(t)
	for text, want := range map[string]string{
		"[Unit]\nStartLimitIntervalSec=5\n":                 "Unit.StartLimitIntervalSec is unknown",
		"[Service]\nType=exec\n":                            "Service.Type=exec is unknown",
		"[Service]\nTimeoutStartSec=30 # long\n":            "no comment",
		"[Service]\nExecStart=+/bin/true\n":                 "absolute paths only",
		"[Service]\nExecStart=ibup up\n":                    "absolute paths only",
		"[Service]\nType=oneshot\nRestart=on-abnormal\n":    "refuses a oneshot",
		"[Service]\nStateDirectory=ibup\n":                  "Service.StateDirectory is unknown",
		"[Service]\nProtectKernelModules=no\nType=notify\n": "Service.ProtectKernelModules is unknown",
	} {
		got := faults(t, []byte(text), known)
		if len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := faults(t, []byte("# a\n[Service]\n; b\nType=notify\nExecStart=-/bin/true\n"), known); len(got) != 0 {
		t.Errorf("a good unit has faults: %q", got)
	}
}

// The ordering that boots depend on; each line was paid for by somebody.
func TestOrdering(t *testing.T) {
	has := func(unit string, data []byte, key, word string) bool {
		for _, s := range parse(t, data) {
			if s.key == key && slices.Contains(strings.Fields(s.value), word) {
				return true
			}
		}
		return false
	}
	u := units(t)
	for _, tt := range []struct {
		unit, key, word string
		want            bool
	}{
		{"ibup@.service", "Unit.DefaultDependencies", "no", true},
		{"ibup@.service", "Unit.Before", "initrd.target", true},
		{"ibup@.service", "Unit.Conflicts", "shutdown.target", true},
		{"ibup@.service", "Unit.Before", "shutdown.target", true},
		{"ibup@.service", "Service.Type", "notify", true},
		// The fallback's Ethernet comes up behind network-pre.target.
		{"ibup@.service", "Unit.Before", "network-pre.target", false},
		{"ibup.service", "Unit.Before", "network-pre.target", false},
		{"ibup-wait.service", "Unit.Before", "network-pre.target", false},
		// Being pulled out must not end the bring-up.
		{"ibup@.service", "Unit.BindsTo", "sys-bus-pci-devices-%i.device", false},
		{"ibup-wait.service", "Unit.Before", "network-online.target", true},
		{"ibup-wait.service", "Unit.Before", "remote-fs-pre.target", true},
		{"ibup-wait.service", "Unit.Wants", "remote-fs-pre.target", true},
		{"ibup-wait.service", "Install.WantedBy", "network-online.target", true},
	} {
		if has(tt.unit, u[tt.unit], tt.key, tt.word) != tt.want {
			t.Errorf("%s: %s with %s is %t, want %t", tt.unit, tt.key, tt.word, !tt.want, tt.want)
		}
	}
	preset, err := os.ReadFile("systemd/90-ibup.preset")
	if err != nil || !bytes.Contains(preset, []byte("\nenable ibup-wait.service\n")) {
		t.Errorf("preset: %q, %v", preset, err)
	}
}

// What this machine's systemd says of the units.
func TestAnalyzeVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("IBUP_CI") == "1" {
			t.Fatal("no systemd-analyze")
		}
		t.Skip("no systemd-analyze")
	}
	dir := t.TempDir()
	for name, data := range units(t) {
		// It wants the program to exist.
		data = bytes.ReplaceAll(data, []byte("/usr/sbin/ibup"), []byte("/bin/true"))
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// The example does nothing as it is; with its settings made active it is right,
// and it leaves out none.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("ibup-example.conf")
	if err != nil {
		t.Fatal(err)
	}
	active := regexp.MustCompile(`(?m)^#(\[\w+\]|\w+=.*)$`).ReplaceAllString(string(data), "$1")
	dir := filepath.Join(t.TempDir(), "etc/ibup")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, shown := range map[string]bool{string(data): false, active: true} {
		if err := os.WriteFile(filepath.Join(dir, "ib0.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		// The lookup of AddressFrom= needs a node that has a name and an entry.
		etc := filepath.Dir(dir)
		err := errors.Join(
			os.WriteFile(filepath.Join(etc, "hostname"), []byte("node109\n"), 0o644),
			os.WriteFile(filepath.Join(etc, "hosts"), []byte("20.20.21.109 node109-ib0\n"), 0o644),
		)
		if err != nil {
			t.Fatal(err)
		}
		set, err := config.Load(filepath.Dir(etc), "")
		if err != nil || len(set.Interfaces) != 1 {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, row := range config.Show(set.Interfaces[0]) {
			if fromFile := strings.Contains(row.Origin, "ib0.conf"); fromFile != shown && row.Key != "DHCP" && !row.Derived {
				t.Errorf("%s.%s is from the file: %t, want %t", row.Section, row.Key, fromFile, shown)
			}
		}
	}
}

// Package rules holds the udev rule. Only tests are Go.
package rules

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const file = "60-ibup.rules"

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("IBUP_CI") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// term is KEY{attribute}op"value".
type term struct{ key, attr, op, value string }

var termRE = regexp.MustCompile(`^([A-Z_]+)(?:\{([^}]*)\})?(==|!=|\+=|:=|=)"([^"]*)"$`)

// rules reads a rules file the way udev 219 does: a comment is a line that
// begins with #, all else is terms and commas.
func rules(text string) ([][]term, error) {
	var out [][]term
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var rule []term
		for _, word := range regexp.MustCompile(`,\s*`).Split(line, -1) {
			m := termRE.FindStringSubmatch(word)
			if m == nil {
				return nil, fmt.Errorf("line %d: %q is no term", n, word)
			}
			rule = append(rule, term{m[1], m[2], m[3], m[4]})
		}
		out = append(out, rule)
	}
	return out, nil
}

// keys219 are the keys of add_rule in udev 219's src/udev/udev-rules.c that are
// still keys today (WAIT_FOR went).
var keys219 = []string{"ACTION", "DEVPATH", "KERNEL", "SUBSYSTEM", "DRIVER", "ATTR", "SECLABEL", "KERNELS", "SUBSYSTEMS",
	"DRIVERS", "ATTRS", "TAGS", "ENV", "TAG", "PROGRAM", "RESULT", "IMPORT", "TEST", "RUN", "LABEL", "GOTO", "NAME",
	"SYMLINK", "OWNER", "GROUP", "MODE", "OPTIONS"}

// matches tells whether a rule wants anything for a device, by the match terms
// the rule uses.
func matches(t *testing.T, rule []term, action, subsystem, vendor, class string, physfn bool) bool {
	t.Helper()
	for _, m := range rule {
		var got string
		switch {
		case m.op != "==" && m.op != "!=":
			continue
		case m.key == "TEST" && m.value == "physfn":
			if physfn != (m.op == "==") {
				return false
			}
			continue
		case m.key == "ACTION":
			got = action
		case m.key == "SUBSYSTEM":
			got = subsystem
		case m.key == "ATTR" && m.attr == "vendor":
			got = vendor
		case m.key == "ATTR" && m.attr == "class":
			got = class
		default:
			t.Fatalf("the test does not know the match %v", m)
		}
		hit := slices.ContainsFunc(strings.Split(m.value, "|"), func(p string) bool {
			ok, err := filepath.Match(p, got)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		if hit != (m.op == "==") {
			return false
		}
	}
	return true
}

func TestRule(t *testing.T) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rules(string(data))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d rules, %v", len(all), err)
	}
	rule := all[0]
	for _, m := range rule {
		if !slices.Contains(keys219, m.key) {
			t.Errorf("udev 219 does not know %s", m.key)
		}
		if m.key == "RUN" || m.key == "PROGRAM" || m.key == "IMPORT" {
			t.Errorf("%s works inside udevd, which kills it", m.key)
		}
		if m.key == "DRIVER" || m.key == "DRIVERS" {
			t.Error("no driver is bound at the add event")
		}
	}
	for _, tt := range []struct {
		name, action, subsystem, vendor, class string
		physfn, want                           bool
	}{
		{"InfiniBand", "add", "pci", "0x15b3", "0x020700", false, true},
		{"Ethernet or VPI", "add", "pci", "0x15b3", "0x020000", false, true},
		{"VF on its host", "add", "pci", "0x15b3", "0x020700", true, false},
		{"BlueField's DMA function", "add", "pci", "0x15b3", "0x080100", false, false},
		{"bridge of the vendor", "add", "pci", "0x15b3", "0x060400", false, false},
		{"another vendor's NIC", "add", "pci", "0x8086", "0x020000", false, false},
		{"a GPU", "add", "pci", "0x10de", "0x030200", false, false},
		{"removal", "remove", "pci", "0x15b3", "0x020700", false, false},
		{"driver bound", "bind", "pci", "0x15b3", "0x020700", false, false},
		{"change", "change", "pci", "0x15b3", "0x020700", false, false},
		{"a device below the function", "add", "net", "0x15b3", "0x020700", false, false},
	} {
		if got := matches(t, rule, tt.action, tt.subsystem, tt.vendor, tt.class, tt.physfn); got != tt.want {
			t.Errorf("%s: matches %t, want %t", tt.name, got, tt.want)
		}
	}
	for _, want := range []term{{"TAG", "", "+=", "systemd"}, {"ENV", "SYSTEMD_WANTS", "+=", "ibup@$kernel.service"}} {
		if !slices.Contains(rule, want) {
			t.Errorf("no %v", want)
		}
	}
}

func TestTrailingCommentIsNoComment(t *testing.T) {
	if _, err := rules(`ACTION=="add", TAG+="systemd" # now` + "\n"); err == nil {
		t.Error("taken for a comment")
	}
}

// udevadm's own check, where it has one (systemd 254 and later).
func TestUdevadmVerify(t *testing.T) {
	udevadm, err := exec.LookPath("udevadm")
	if err != nil {
		skip(t, "no udevadm")
	}
	out, err := exec.Command(udevadm, "--version").Output()
	if v, verr := strconv.Atoi(strings.Fields(string(out) + " 0")[0]); err != nil || verr != nil || v < 254 {
		t.Skipf("udevadm %s has no verify; TestUdevadmTest asks it in another way", strings.TrimSpace(string(out)))
	}
	if out, err := exec.Command(udevadm, "verify", "--resolve-names=never", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The machine's udev runs the rule on a PCI function of the machine, with that
// function's vendor and class in place of Mellanox', in a mount namespace of
// our own.
func TestUdevadmTest(t *testing.T) {
	udevadm, err := exec.LookPath("udevadm")
	if err != nil {
		skip(t, "no udevadm")
	}
	if os.Geteuid() != 0 {
		skip(t, "needs root")
	}
	devices, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil || len(devices) == 0 {
		skip(t, "no PCI device on this machine")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // never unlocked: the thread and its namespace end with the test
	const dir = "/run/udev/rules.d"
	err = errors.Join(
		os.MkdirAll(dir, 0o755),
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", dir, "tmpfs", 0, ""),
	)
	if err != nil {
		t.Fatal(err)
	}
	attr := func(name string) string {
		b, err := os.ReadFile(filepath.Join(devices[0], name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	wants := "SYSTEMD_WANTS=ibup@" + filepath.Base(devices[0]) + ".service"
	run := func(rule string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(rule), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(udevadm, "test", "--action=add", devices[0]).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, dir+"/"+file+":") {
				t.Errorf("udev says %s", line)
			}
		}
		return string(out)
	}
	if out := run(string(text)); strings.Contains(out, "ibup@") {
		t.Errorf("wants ibup for a foreign device:\n%s", out)
	}
	same := strings.NewReplacer("0x15b3", attr("vendor"), "0x0207*", attr("class")[:6]+"*").Replace(string(text))
	if out := run(same); !strings.Contains(out, wants+"\n") || !strings.Contains(out, ":systemd:") {
		t.Errorf("lacks %s:\n%s", wants, out)
	}
}

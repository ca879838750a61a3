package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"ibup/internal/bringup"
	"ibup/internal/config"
)

// call runs the program with an empty environment.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(string) string { return "" }, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"", exitUsage, "", "Usage:"},
		{"help", exitUp, "Usage:", ""},
		{"-h", exitUp, "Usage:", ""},
		{"version", exitUp, "ibup ", ""},
		{"--version", exitUp, "ibup ", ""},
		{"version now", exitUsage, "", "version takes no arguments"},
		{"plot", exitUsage, "", `there is no command "plot"; there are: up, down, status, config, wait, version, help`},
		{"help nonsense", exitUsage, "", `there is no command "nonsense"`},
		{"up --devise x", exitUsage, "", "-devise; see: ibup help up"},
		{"up --device 3b:00.0", exitUsage, "", "a PCI address looks like 0000:3b:00.0"},
		{"up --timeout -1s", exitUsage, "", "is negative"},
		{"up --timeout soon", exitUsage, "", "invalid"},
		{"up nosuch0", exitUsage, "", "nosuch0 is not configured; there are: "},
		{"status nosuch0", exitUsage, "", "nosuch0 is not configured"},
		{"config", exitUsage, "", "config needs one of: check, show"},
		{"config edit", exitUsage, "", "config needs one of: check, show"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			code, stdout, stderr := call(t, strings.Fields(tt.args)...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("code %d, stdout %q, stderr %q; want %d, %q, %q", code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
			}
			if tt.stdout == "" && stdout != "" || tt.stderr == "" && stderr != "" {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
		})
	}
}

// Every command has a help with an example that names it, for every flag a line.
func TestHelp(t *testing.T) {
	for _, c := range commands() {
		for _, args := range [][]string{{"help", c.name}, {c.name, "--help"}, {c.name, "-h"}} {
			code, stdout, stderr := call(t, args...)
			if code != exitUp || stderr != "" || !strings.HasPrefix(stdout, "Usage: ibup "+c.name) {
				t.Errorf("%v: code %d, %q, %q", args, code, stdout, stderr)
			}
			if c.name != "version" && !regexp.MustCompile(`Examples?:\n  ibup `+c.name).MatchString(stdout) {
				t.Errorf("%v has no example:\n%s", args, stdout)
			}
		}
	}
}

// A configuration with a mistake is told with file and line, and exit code 2.
func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	etc := filepath.Join(dir, "etc/ibup")
	if err := os.MkdirAll(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("ib0.conf", "[Network]\nAddress=20.20.20.109/24\n")
	if code, stdout, _ := call(t, "config", "check", "--root", dir); code != exitUp || !strings.Contains(stdout, "ib0") {
		t.Errorf("good: %d, %q", code, stdout)
	}
	if code, stdout, _ := call(t, "config", "show", "ib0", "--root", dir); code != exitUp || !strings.Contains(stdout, "20.20.20.109/24") || !strings.Contains(stdout, "/etc/ibup/ib0.conf:2") {
		t.Errorf("show: %d, %q", code, stdout)
	}
	write("ib1.conf", "[Network]\nAdress=20.20.21.109/24\n")
	code, stdout, stderr := call(t, "config", "check", "--root", dir)
	if code != exitUsage || !strings.Contains(stderr, "/etc/ibup/ib1.conf:2") || !strings.Contains(stderr, "Address") {
		t.Errorf("bad: %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = call(t, "config", "check", "--json", "--root", dir)
	var findings []config.Finding
	if err := json.Unmarshal([]byte(stdout), &findings); code != exitUsage || err != nil || len(findings) == 0 {
		t.Errorf("JSON: %d, %v, %q", code, err, stdout)
	}
}

// A machine without a card is left alone without a word.
func TestNothingToDo(t *testing.T) {
	s, err := look(t.Context())
	if err != nil {
		t.Skipf("no sysfs here: %v", err)
	}
	set, err := config.Load(root, "")
	if err != nil || !nothingToDo(set, s) {
		t.Skip("this machine has a card or a configuration")
	}
	for _, args := range [][]string{{"up"}, {"up", "--device", "0000:01:00.0"}, {"up", "--dry-run"}, {"wait"}} {
		start := time.Now()
		if code, stdout, stderr := call(t, args...); code != exitUp || stdout+stderr != "" {
			t.Errorf("%v: %d, %q, %q; want 0 and silence", args, code, stdout, stderr)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%v took %v", args, d)
		}
	}
}

func TestExitCodes(t *testing.T) {
	asked, unasked := config.Default("ib0"), config.Default("ib0")
	asked.Path = "/etc/ibup/ib0.conf"
	ethernet := &bringup.Reason{Code: bringup.PortEthernet}
	tests := []struct {
		c    config.Config
		out  bringup.Outcome
		want int
	}{
		{asked, bringup.Outcome{Verdict: bringup.IsUp}, exitUp},
		{asked, bringup.Outcome{Verdict: bringup.Fallback, Reason: ethernet}, exitFallback},
		{asked, bringup.Outcome{Verdict: bringup.Failed, Reason: ethernet}, exitFailed},
		{unasked, bringup.Outcome{Verdict: bringup.Failed, Reason: ethernet}, exitUp},
		{unasked, bringup.Outcome{Verdict: bringup.Failed, Reason: &bringup.Reason{Code: bringup.NoCable}}, exitFailed},
		{asked, bringup.Outcome{Interrupted: true}, exitInterrupted},
	}
	for _, tt := range tests {
		if got := exitCode(tt.c, tt.out); got != tt.want {
			t.Errorf("exitCode(%q, %+v) = %d; want %d", tt.c.Path, tt.out, got, tt.want)
		}
	}
	for _, tt := range []struct {
		codes []int
		want  int
	}{
		{nil, exitUp}, {[]int{0, 0}, exitUp}, {[]int{0, 3}, exitFallback}, {[]int{3, 1, 0}, exitFailed}, {[]int{1, exitInterrupted}, exitInterrupted},
	} {
		if got := worst(tt.codes); got != tt.want {
			t.Errorf("worst(%v) = %d; want %d", tt.codes, got, tt.want)
		}
	}
}

func TestLog(t *testing.T) {
	reason := &bringup.Reason{Code: bringup.NoSM, Summary: "no subnet manager", Evidence: []string{"state INIT"}, Remedy: "start one"}
	events := []bringup.Event{
		{Iface: "ib0", Kind: bringup.StepBegin, Step: bringup.Step{Kind: bringup.SetUp, Link: "ib0", Why: "it is down"}},
		{Iface: "ib0", Kind: bringup.StepEnd, Step: bringup.Step{Kind: bringup.SetUp, Link: "ib0"}, Took: 5 * time.Millisecond, Err: errors.New("device or resource busy")},
		{Iface: "ib0", Kind: bringup.Waiting, Reason: reason},
		{Iface: "ib0", Kind: bringup.Settled, Verdict: bringup.Fallback, Reason: reason},
	}
	var out, kmsg bytes.Buffer
	l := &logger{out: &out, prefixed: true, kmsg: &kmsg, begun: time.Now()}
	for _, e := range events {
		l.event(e)
	}
	want := `<4>ib0: could not set up ib0 step=set-up took=0.005s error="device or resource busy"
<5>ib0: waiting: no subnet manager code=IB-SM-ABSENT
<4>ib0: on the fallback: no subnet manager verdict=fallback code=IB-SM-ABSENT after=0.000s
<5>ib0: evidence: state INIT
<5>ib0: remedy: start one
`
	got := regexp.MustCompile(`after=[0-9.]+s`).ReplaceAllString(out.String(), "after=0.000s")
	if got != want {
		t.Errorf("log:\n%s\nwant:\n%s", got, want)
	}
	if n := strings.Count(kmsg.String(), "ibup: ib0: "); n != 5 {
		t.Errorf("%d records in the kernel log:\n%s", n, kmsg.String())
	}
	// With ibup.debug=1, and on a terminal, the steps too.
	out.Reset()
	l = &logger{out: &out, steps: true}
	l.event(events[0])
	if got, want := out.String(), "ib0: set up ib0 step=set-up why=\"it is down\"\n"; got != want {
		t.Errorf("log %q; want %q", got, want)
	}
}

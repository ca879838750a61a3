package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"ibup/internal/bringup"
)

// Levels of syslog(3), which systemd takes from the front of a line.
const (
	levelErr     = 3
	levelWarning = 4
	levelNotice  = 5
	levelInfo    = 6
)

// logger writes a line for each event: what a person reads first, then key=value.
type logger struct {
	mu       sync.Mutex
	out      io.Writer
	prefixed bool      // "<6>" in front: the reader is systemd
	kmsg     io.Writer // nil: none
	steps    bool      // steps too
	begun    time.Time
}

// newLogger logs to stderr, and in an initramfs what matters to the kernel log as
// well: it is on the console and outlives the initramfs.
func (a *app) newLogger(debug int, initrd bool) *logger {
	l := &logger{
		out: a.stderr,
		// systemd 219 does not set JOURNAL_STREAM yet.
		prefixed: a.env("JOURNAL_STREAM") != "" || a.env("NOTIFY_SOCKET") != "",
		begun:    time.Now(),
	}
	l.steps = debug > 0 || !l.prefixed
	if initrd {
		if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
			l.kmsg = f
		}
	}
	return l
}

func (l *logger) line(level int, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix := ""
	if l.prefixed {
		prefix = fmt.Sprintf("<%d>", level)
	}
	fmt.Fprintf(l.out, "%s%s\n", prefix, text)
	if l.kmsg != nil && (level <= levelNotice || l.steps) {
		// One write is one record; the kernel cuts it at some 1000 bytes.
		fmt.Fprintf(l.kmsg, "<%d>ibup: %.900s\n", level, text)
	}
}

// event logs an event of a run.
func (l *logger) event(e bringup.Event) {
	switch e.Kind {
	case bringup.StepBegin:
		if l.steps {
			l.line(levelInfo, fmt.Sprintf("%s: %s step=%s%s", e.Iface, e.Step, e.Step.Kind, pair("why", e.Step.Why)))
		}
	case bringup.StepEnd:
		switch {
		case e.Err != nil:
			l.line(levelWarning, fmt.Sprintf("%s: could not %s step=%s took=%s%s", e.Iface, e.Step, e.Step.Kind, took(e.Took), pair("error", e.Err.Error())))
		case l.steps && e.Took > time.Second:
			l.line(levelInfo, fmt.Sprintf("%s: done step=%s took=%s", e.Iface, e.Step.Kind, took(e.Took)))
		}
	case bringup.Waiting:
		l.line(levelNotice, fmt.Sprintf("%s: waiting: %s code=%s", e.Iface, e.Reason.Summary, e.Reason.Code))
	case bringup.Noted:
		l.line(levelWarning, fmt.Sprintf("%s: %s code=%s%s", e.Iface, e.Reason.Summary, e.Reason.Code, pair("remedy", e.Reason.Remedy)))
	case bringup.Trouble:
		l.line(levelWarning, fmt.Sprintf("%s: %v", e.Iface, e.Err))
	case bringup.Settled:
		l.verdict(e)
	}
}

func (l *logger) verdict(e bringup.Event) {
	after := took(time.Since(l.begun))
	switch e.Verdict {
	case bringup.IsUp:
		l.line(levelNotice, fmt.Sprintf("%s: up verdict=up after=%s", e.Iface, after))
		return
	case bringup.Fallback:
		l.line(levelWarning, fmt.Sprintf("%s: on the fallback: %s verdict=fallback code=%s after=%s", e.Iface, e.Reason.Summary, e.Reason.Code, after))
	default:
		l.line(levelErr, fmt.Sprintf("%s: failed: %s verdict=failed code=%s after=%s", e.Iface, e.Reason.Summary, e.Reason.Code, after))
	}
	for _, x := range e.Reason.Evidence {
		l.line(levelNotice, fmt.Sprintf("%s: evidence: %s", e.Iface, x))
	}
	if e.Reason.Remedy != "" {
		l.line(levelNotice, fmt.Sprintf("%s: remedy: %s", e.Iface, e.Reason.Remedy))
	}
}

func took(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

// pair is " key=value", quoted where needed; "" without a value.
func pair(key, value string) string {
	if value == "" {
		return ""
	}
	if strings.ContainsAny(value, " \t\n\"=") {
		value = strconv.Quote(value)
	}
	return " " + key + "=" + value
}

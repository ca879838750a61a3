package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kill is a moment at which the command is to die.
type kill struct {
	when string // "begin", "end", "module", "" never
	n    int
	seen int // modules so far
}

func parseKill(s string) (kill, error) {
	if s == "" {
		return kill{}, nil
	}
	when, n, _ := strings.Cut(s, ":")
	k := kill{when: when}
	var err error
	if k.n, err = strconv.Atoi(n); err != nil || k.n < 1 || when != "begin" && when != "end" && when != "module" {
		return k, fmt.Errorf("-kill %q: not begin:N, end:N or module:N", s)
	}
	return k, nil
}

// now tells at a system call's entry or exit whether the moment has come.
func (k *kill) now(c call, entry bool) bool {
	var from, to string
	switch c.nr {
	case unix.SYS_RENAME:
		from, to = c.text(c.args[0]), c.text(c.args[1])
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		from, to = c.text(c.args[1]), c.text(c.args[3])
	case unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE:
		if k.when == "module" && entry {
			if k.seen++; k.seen == k.n {
				pid := c.t.pid
				time.AfterFunc(50*time.Millisecond, func() { _ = unix.Kill(pid, unix.SIGKILL) })
				c.t.report.Killed = true
			}
		}
		return false
	}
	if !strings.HasPrefix(to, "/run/ibup/") || filepath.Ext(to) != ".json" {
		return false
	}
	switch k.when {
	case "begin":
		return !entry && journal(to).steps() == k.n
	case "end":
		j := journal(from)
		return entry && j.steps() >= k.n && j.ended(k.n)
	}
	return false
}

// runs is what counts here of a journal.
type runs struct {
	Runs  []struct{ PID int }
	Steps []struct {
		Run int
		End int64
	}
}

func journal(path string) runs {
	var j runs
	if b, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(b, &j) // half a file has no steps
	}
	return j
}

// last are the steps of the last run.
func (j runs) last() []int64 {
	var ends []int64
	for _, s := range j.Steps {
		if s.Run == len(j.Runs) {
			ends = append(ends, s.End)
		}
	}
	return ends
}

func (j runs) steps() int { return len(j.last()) }

func (j runs) ended(n int) bool { return j.last()[n-1] != 0 }

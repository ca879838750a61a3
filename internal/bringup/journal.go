package bringup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is where journals are. /run survives the switch from the initramfs.
const Dir = "/run/ibup"

// JournalVersion is the version of the file's form. A reader refuses others.
const JournalVersion = 1

// Journal is what all runs of this boot did for one interface, in
// /run/ibup/<iface>.json. Times are since boot, in nanoseconds. It is written
// anew, atomically, before and after every step.
type Journal struct {
	Version   int    `json:"version"`
	Interface string `json:"interface"`
	BootID    string `json:"boot_id"`
	// Runs are the processes, the last one last.
	Runs    []RunInfo  `json:"runs"`
	Verdict Verdict    `json:"verdict"` // "" while the last run has none
	Reason  *Reason    `json:"reason,omitempty"`
	Notes   []Reason   `json:"notes,omitempty"`
	Target  TargetInfo `json:"target"`
	MTU     MTUResult  `json:"mtu"`
	Facts   Facts      `json:"facts"`
	Steps   []Entry    `json:"steps"`   // in the order begun
	History []Change   `json:"history"` // of what the runs waited for and came to
}

// RunInfo is one process's time at the interface.
type RunInfo struct {
	PID     int           `json:"pid"`
	Begin   time.Duration `json:"begin"`
	End     time.Duration `json:"end,omitempty"` // 0: it runs, or was killed
	Initrd  bool          `json:"initrd,omitempty"`
	Watches bool          `json:"watches,omitempty"` // stays after a fallback
}

// TargetInfo is the interface a run found or made, and what it sits on.
type TargetInfo struct {
	Place
	Device string `json:"device,omitempty"`
	GUID   string `json:"guid,omitempty"`
	Link   string `json:"link,omitempty"`
	Index  int    `json:"index,omitempty"`
}

// Entry is one step of a run: written when it begins, and again when it ends.
type Entry struct {
	N     int           `json:"n"` // from 1, over all runs
	Run   int           `json:"run"`
	Step  Step          `json:"step"`
	Text  string        `json:"text"` // the step in words
	Begin time.Duration `json:"begin"`
	End   time.Duration `json:"end,omitempty"` // 0: it has not ended, or ibup was killed
	Err   string        `json:"err,omitempty"`
}

// Change is a moment at which the answer to "what is it doing" changed.
type Change struct {
	At      time.Duration `json:"at"`
	Verdict Verdict       `json:"verdict,omitempty"`
	Code    Code          `json:"code,omitempty"` // what is waited for
	Summary string        `json:"summary,omitempty"`
}

// Limits keep a journal that runs for months small; the oldest goes first.
const (
	maxRuns    = 16
	maxEntries = 300
	maxHistory = 200
)

func (j *Journal) begin(step Step, now time.Duration) int {
	n := 1
	if len(j.Steps) > 0 {
		n = j.Steps[len(j.Steps)-1].N + 1
	}
	j.Steps = append(j.Steps, Entry{N: n, Run: len(j.Runs), Step: step, Text: step.String(), Begin: now})
	j.Steps = j.Steps[max(0, len(j.Steps)-maxEntries):]
	return n
}

func (j *Journal) end(n int, err error, now time.Duration) {
	for i := range j.Steps {
		if e := &j.Steps[i]; e.N == n {
			e.End = now
			if err != nil {
				e.Err = err.Error()
			}
		}
	}
}

// note adds to the history unless it says the same as the last entry.
func (j *Journal) note(c Change) bool {
	if n := len(j.History); n > 0 {
		if last := j.History[n-1]; last.Verdict == c.Verdict && last.Code == c.Code {
			return false
		}
	}
	j.History = append(j.History, c)
	j.History = j.History[max(0, len(j.History)-maxHistory):]
	return true
}

// Watching tells whether the run that is under way stays after a fallback.
func (j *Journal) Watching() bool {
	return len(j.Runs) > 0 && j.Runs[len(j.Runs)-1].Watches
}

// Alive tells whether the run that wrote the journal is still at it: a verdict
// that an earlier process left behind is not the answer of this one.
func (j *Journal) Alive() bool {
	if len(j.Runs) == 0 {
		return false
	}
	r := j.Runs[len(j.Runs)-1]
	return r.End == 0 && unix.Kill(r.PID, 0) != unix.ESRCH
}

// Store is the directory of journals.
type Store struct {
	Dir    string
	BootID string
}

// NewStore is this machine's.
func NewStore() Store {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return Store{Dir: Dir, BootID: strings.TrimSpace(string(id))}
}

func (s Store) path(iface string) string { return filepath.Join(s.Dir, iface+".json") }

// ErrNoJournal: nothing was done for the interface in this boot.
var ErrNoJournal = errors.New("no journal")

// Read reads an interface's journal. One of another boot is none.
func (s Store) Read(iface string) (*Journal, error) {
	b, err := os.ReadFile(s.path(iface))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", iface, ErrNoJournal)
	}
	if err != nil {
		return nil, err
	}
	j := &Journal{}
	if err := json.Unmarshal(b, j); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(iface), err)
	}
	if j.Version != JournalVersion {
		return nil, fmt.Errorf("%s: written by another version of ibup (form %d, not %d)", s.path(iface), j.Version, JournalVersion)
	}
	if j.BootID != s.BootID || j.Interface != iface {
		return nil, fmt.Errorf("%s: %w", iface, ErrNoJournal)
	}
	return j, nil
}

// Write replaces an interface's journal. Whoever writes has its lock.
func (s Store) Write(j *Journal) error {
	b, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return fmt.Errorf("journal of %s: %w", j.Interface, err)
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	// A reader sees the old one or the new one. No fsync: /run is memory.
	tmp := filepath.Join(s.Dir, "."+j.Interface+".json.new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.path(j.Interface))
}

// Remove forgets an interface.
func (s Store) Remove(iface string) error {
	err := os.Remove(s.path(iface))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Held are the ports that the interfaces with a journal were given.
func (s Store) Held() map[string]Place {
	held := map[string]Place{}
	files, _ := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		if j, err := s.Read(name); err == nil && j.Facts.Place != (Place{}) {
			held[name] = j.Facts.Place
		}
	}
	return held
}

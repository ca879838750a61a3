package host

import (
	"strconv"
	"strings"
	"time"
)

// maxLines bounds what is kept; a card in trouble repeats itself.
const maxLines = 4000

// says is what the kernel log has told so far.
type says struct {
	lines    []KernelLine
	attempts map[string]*attempt // by BDF: the last time the driver tried it
	barless  map[string]bool     // functions that have lost a BAR
}

// attempt is one run of mlx5_core's probe on a function, and how the card fared
// after it.
type attempt struct {
	at      time.Duration
	err     string // the first line that said why
	errno   int
	waiting bool
	ended   bool // the driver has given up
	dying   bool
}

// add takes in the next line of the log.
func (s *says) add(at time.Duration, text string) {
	l, ok := classify(text)
	if !ok {
		return
	}
	l.At = at
	if s.barless == nil {
		s.barless = map[string]bool{}
		s.attempts = map[string]*attempt{}
	}
	switch l.Kind {
	case BARLost:
		s.barless[l.BDF] = true
	case BARAssigned:
		if !s.barless[l.BDF] {
			return // every function has such lines; they matter after a failure only
		}
	}
	if len(s.lines) >= maxLines {
		// Snapshots hold the old array, so it is replaced and not shifted.
		s.lines = append(make([]KernelLine, 0, maxLines), s.lines[maxLines/4:]...)
	}
	s.lines = append(s.lines, l)
	if l.BDF != "" {
		s.track(l)
	}
}

// track follows the probe of a function. There is no line that says a probe has
// succeeded: it is one that did not fail after it began.
func (s *says) track(l KernelLine) {
	a := s.attempts[l.BDF]
	begin := func() {
		a = &attempt{at: l.At}
		s.attempts[l.BDF] = a
	}
	if a == nil || a.ended {
		switch l.Kind {
		case Enabling, FirmwareWait, FirmwareTimeout, NoBAR, ProbeError, Removed:
			begin()
		}
	}
	switch l.Kind {
	case Enumerated:
		delete(s.attempts, l.BDF) // plugged in again: nothing of the past holds
	case FirmwareVersion:
		begin()
		if strings.Contains(l.Text, "65535.65535") { // registers read all ones
			a.err, a.dying = l.Text, true
		}
	case FirmwareWait:
		a.waiting = true
	case FirmwareTimeout, NoBAR, ProbeError, Removed:
		a.waiting = false
		if a.err == "" {
			a.err = l.Text
		}
	case ProbeFailed:
		// The verdict of mlx5_core, and after it the driver core's.
		if a == nil {
			begin()
		}
		a.waiting, a.ended = false, true
		if a.err == "" {
			a.err = l.Text
		}
		if n := errnoOf(l.Text); n != 0 {
			a.errno = n
		}
	case Health:
		if a == nil {
			begin()
		}
		a.dying = true
	case Recovered:
		if a != nil {
			a.dying = false
		}
	}
}

// probe is what the log tells of f's last probe, unless the machine shows that it
// is over: a driver that has given up is not bound, so to a bound function an
// earlier failure no longer applies.
func (s *says) probe(f PCIFunction) *Probe {
	a := s.attempts[f.BDF]
	if a == nil {
		return nil
	}
	p := &Probe{At: a.at, Err: a.err, Errno: a.errno, Waiting: a.waiting, Dying: a.dying}
	if f.Driver != "" && a.ended {
		p.Err, p.Errno = "", 0
	}
	if len(f.IB) > 0 {
		p.Err, p.Errno, p.Waiting = "", 0, false
	}
	return p
}

// errnoOf takes the positive number of "… failed with error[ code][:] -N".
func errnoOf(text string) int {
	_, after, ok := strings.Cut(text, "failed with error")
	if !ok {
		return 0
	}
	after = strings.TrimPrefix(after, " code")
	after = strings.TrimPrefix(after, ":")
	num, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(after), "-"), " ")
	n, err := strconv.Atoi(num)
	if err != nil || n < 0 || n > 4095 {
		return 0
	}
	return n
}

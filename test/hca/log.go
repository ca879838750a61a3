package hca

import (
	"fmt"
	"time"
)

// How much is remembered.
const (
	logSize       = 512
	maxViolations = 100
)

// logEntry is one command in the log.
type logEntry struct {
	at       time.Time
	op       Opcode
	opMod    uint16
	what     string // the object or register, where that helps
	status   Status
	delivery uint8
	note     string // "hung", "injected"
}

func (e logEntry) String() string {
	s := fmt.Sprintf("%s %v(%#x) op_mod %#x", e.at.Format("15:04:05.000000"), e.op, uint16(e.op), e.opMod)
	if e.what != "" {
		s += " " + e.what
	}
	switch {
	case e.note == noteHung:
		return s + ": never answered"
	case e.delivery != deliveryOK:
		s += fmt.Sprintf(": delivery status %#x", e.delivery)
	default:
		s += fmt.Sprintf(": %v", e.status)
	}
	if e.note != "" {
		s += " (" + e.note + ")"
	}
	return s
}

const (
	noteHung     = "hung"
	noteInjected = "injected"
	noteUnknown  = "not implemented"
)

// commandLog is a ring of the last commands, their count, and what drivers did
// wrong.
type commandLog struct {
	ring       []logEntry
	next       int
	counts     map[Opcode]int
	unknown    map[Opcode]int
	violations []string
	omitted    int
}

func (l *commandLog) add(e logEntry) {
	if l.counts == nil {
		l.counts, l.unknown = map[Opcode]int{}, map[Opcode]int{}
	}
	l.counts[e.op]++
	if e.note == noteUnknown {
		l.unknown[e.op]++
	}
	if len(l.ring) < logSize {
		l.ring = append(l.ring, e)
		return
	}
	l.ring[l.next] = e
	l.next = (l.next + 1) % logSize
}

// LastCommands returns the last n firmware commands, oldest first, a line
// each: time, name, operation modifier, status.
func (h *HCA) LastCommands(n int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &h.log
	n = min(n, len(l.ring))
	lines := make([]string, 0, n)
	for i := len(l.ring) - n; i < len(l.ring); i++ {
		lines = append(lines, l.ring[(l.next+i)%len(l.ring)].String())
	}
	return lines
}

// CommandCounts returns how often each command was executed since New.
func (h *HCA) CommandCounts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return countsByName(h.log.counts)
}

// UnknownCommands returns the commands that were answered with "bad operation"
// because this adapter does not carry them out, and how often.
func (h *HCA) UnknownCommands() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return countsByName(h.log.unknown)
}

func countsByName(m map[Opcode]int) map[string]int {
	r := make(map[string]int, len(m))
	for op, n := range m {
		r[op.String()] = n
	}
	return r
}

// Violations returns what drivers did that the hardware's interface does not
// allow, oldest first. A healthy driver leaves it empty.
func (h *HCA) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := append([]string(nil), h.log.violations...)
	if h.log.omitted > 0 {
		v = append(v, fmt.Sprintf("and %d more", h.log.omitted))
	}
	return v
}

func (h *HCA) violation(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	h.cfg.Logf("%s: violation: %s", h.cfg.Name, s)
	if len(h.log.violations) == maxViolations {
		h.log.omitted++
		return
	}
	h.log.violations = append(h.log.violations, s)
}

// Objects returns how many objects of each kind the driver holds, without the
// kinds of which there are none; "page" counts the memory pages given to the
// firmware. After the driver has gone the map is empty.
func (h *HCA) Objects() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fw.objects()
}

func (f *firmware) objects() map[string]int {
	all := map[string]int{
		f.uars.kind: len(f.uars.items), f.eqs.kind: len(f.eqs.items), f.cqs.kind: len(f.cqs.items),
		f.pds.kind: len(f.pds.items), f.xrcds.kind: len(f.xrcds.items), f.domains.kind: len(f.domains.items),
		f.counters.kind: len(f.counters.items), f.mkeys.kind: len(f.mkeys.items),
		f.srqs.kind: len(f.srqs.items), f.qps.kind: len(f.qps.items), "page": f.pages.held(),
	}
	for _, members := range f.groups {
		all["MCG member"] += len(members)
	}
	for kind, n := range all {
		if n == 0 {
			delete(all, kind)
		}
	}
	return all
}

// DriverVersion returns what the driver called itself with
// SET_DRIVER_VERSION, such as "Linux,mlx5_core,6.1.0".
func (h *HCA) DriverVersion() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.driver
}

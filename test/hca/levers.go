package hca

import (
	"time"

	"ibup/test/fabric"
)

// levers are the faults a test has asked for. They outlive resets.
type levers struct {
	version   version
	initUntil time.Time // the firmware is initializing until then
	initStuck bool      // or for ever
	dead      bool
	stuck     bool
	stuckAt   uint32
	syndrome  uint8
	faults    map[Opcode]*fault
	power     pciPower
	heat      int // degrees Celsius
}

// fault is what happens to a command instead of its execution.
type fault struct {
	status Status
	left   int // how many more times; negative: always
	hang   bool
}

func (l *levers) initializing(now time.Time) bool {
	return l.initStuck || now.Before(l.initUntil)
}

// take returns the fault that is to happen to this command, if any.
func (l *levers) take(op Opcode) *fault {
	f := l.faults[op]
	if f == nil || f.left == 0 {
		return nil
	}
	if f.left > 0 {
		f.left--
	}
	return f
}

// SetLinkType configures the port as InfiniBand or Ethernet, as mlxconfig
// does: it takes effect when the firmware starts next, at a reset of the
// function or at ENABLE_HCA. The class code follows as soon as no driver is
// bound, so that a rescan of the bus sees it.
func (h *HCA) SetLinkType(t fabric.LinkType) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.port != nil {
		if err := h.port.SetLink(t); err != nil {
			return err
		}
	}
	h.info.Link = t
	h.showLink()
	return nil
}

// SetInitializing makes the firmware report that it is still initializing, for
// d from now on; a negative d means for ever, zero ends it.
func (h *HCA) SetInitializing(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levers.initStuck = d < 0
	h.levers.initUntil = time.Now().Add(max(d, 0))
}

// SetDead makes every read give all ones and every write vanish, as on a card
// that no longer answers. One that comes back has started anew.
func (h *HCA) SetDead(dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.levers.dead && !dead {
		h.reset()
	}
	h.levers.dead = dead
}

// SetStuckHealth stops the health counter, as firmware that hangs does.
func (h *HCA) SetStuckHealth(stuck bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levers.stuckAt = h.healthCounter()
	h.levers.stuck = stuck
}

// SetHealthSyndrome sets the syndrome in the health buffer (health.c,
// MLX5_HEALTH_SYNDR_*: 1 firmware error, 7 irisc, 0x10 high temperature); 0 is
// good health.
func (h *HCA) SetHealthSyndrome(synd uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levers.syndrome = synd
}

// SetFirmwareVersion changes the version that drivers read, written
// major.minor.subminor.
func (h *HCA) SetFirmwareVersion(s string) error {
	v, err := parseVersion(s)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.levers.version = v
	return nil
}

// FailCommand answers the next n executions of op with status; a negative n
// means all of them, zero ends it.
func (h *HCA) FailCommand(op Opcode, status Status, n int) {
	h.setFault(op, fault{status: status, left: n})
}

// HangCommand never answers the next n executions of op; a negative n means
// all of them, zero ends it.
func (h *HCA) HangCommand(op Opcode, n int) {
	h.setFault(op, fault{hang: true, left: n})
}

func (h *HCA) setFault(op Opcode, f fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.levers.faults == nil {
		h.levers.faults = map[Opcode]*fault{}
	}
	h.levers.faults[op] = &f
}

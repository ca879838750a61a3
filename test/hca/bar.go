package hca

import (
	"encoding/binary"
	"fmt"
	"time"

	"ibup/test/vfiouser"
)

const (
	uarPageSize = 4096
	// firstUAR is the first page of BAR 0 that ALLOC_UAR hands out; what is
	// below holds the initialization segment and the MSI-X table.
	firstUAR = 8
	segEnd   = 0x5000

	// The MSI-X table and pending bits lie where the real card has them.
	msixTable = 0x2000
	msixPBA   = 0x4000

	cmdifRevision = 5
	logCmdqSize   = 5 // 32 entries
	logCmdqStride = 6 // of 64 bytes
	hwID          = 0x20d
	coreClockKHz  = 78125
)

// Interface states of the initialization segment (nic_interface, health.c).
const (
	nicFull     = 0
	nicDisabled = 1
)

// ReadRegion implements [vfiouser.Device].
func (h *HCA) ReadRegion(region int, off uint64, p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.levers.dead { // nobody answers on the bus: it floats high
		for i := range p {
			p[i] = 0xff
		}
		return nil
	}
	switch region {
	case vfiouser.RegionConfig:
		return h.conf.Read(off, p)
	case vfiouser.RegionBAR0:
		for i := range p { // byte by byte: drivers read a byte of the health buffer
			word := h.segment((off + uint64(i)) &^ 3)
			p[i] = byte(word >> (8 * (3 - (off+uint64(i))&3)))
		}
		return nil
	}
	return fmt.Errorf("hca: %s: read of region %d, which it does not have", h.cfg.Name, region)
}

// WriteRegion implements [vfiouser.Device].
func (h *HCA) WriteRegion(region int, off uint64, p []byte) error {
	h.mu.Lock()
	defer h.unlock()
	if h.levers.dead {
		return nil
	}
	switch region {
	case vfiouser.RegionConfig:
		flr, err := h.conf.Write(off, p)
		if flr {
			h.reset()
		}
		return err
	case vfiouser.RegionBAR0:
		h.writeBAR(off, p)
		return nil
	}
	return fmt.Errorf("hca: %s: write to region %d, which it does not have", h.cfg.Name, region)
}

// segment returns the word of the initialization segment at off; what is not
// there reads as zero.
func (h *HCA) segment(off uint64) uint32 {
	if off >= segEnd {
		return 0
	}
	if read, ok := segmentWords[off]; ok {
		return read(h)
	}
	return 0
}

var segmentWords = map[uint64]func(*HCA) uint32{
	segFwRev:        func(h *HCA) uint32 { return uint32(h.levers.version.minor)<<16 | uint32(h.levers.version.major) },
	segCmdifRev:     func(h *HCA) uint32 { return cmdifRevision<<16 | uint32(h.levers.version.sub) },
	segCmdqAddrHigh: func(h *HCA) uint32 { return uint32(h.fw.cmdqAddr >> 32) },
	segCmdqAddrLow: func(h *HCA) uint32 {
		return uint32(h.fw.cmdqAddr) | uint32(h.fw.nicState)<<8 | logCmdqSize<<4 | logCmdqStride
	},
	segInitializing: func(h *HCA) uint32 {
		if h.levers.initializing(time.Now()) {
			return 1 << 31
		}
		return 0
	},
	segHealth + healthFwVer: func(h *HCA) uint32 {
		v := h.levers.version
		return uint32(v.major)<<24 | uint32(v.minor)<<16 | uint32(v.sub)
	},
	segHealth + healthHwID: func(*HCA) uint32 { return hwID },
	segHealth + healthSynd: func(h *HCA) uint32 { return uint32(h.levers.syndrome) << 16 },
	segCmdExecTime:         func(h *HCA) uint32 { return isegTimeout(h.cfg.CommandTimeout) },
	segCmdqInitTime: func(h *HCA) uint32 {
		if h.cfg.CommandTimeout == 0 {
			return 0 // not supported: the driver keeps its own for both
		}
		return isegTimeout(fwInitTimeout)
	},
	segTimerHigh:   func(h *HCA) uint32 { return uint32(h.timer() >> 32) },
	segTimerLow:    func(h *HCA) uint32 { return uint32(h.timer()) },
	segHealthCount: (*HCA).healthCounter,
}

// fwInitTimeout is the driver's own limit for the end of initialization.
const fwInitTimeout = 2 * time.Second

// isegTimeout encodes a duration for cmd_exec_to and cmd_q_init_to: unit in
// bits 31:29, 0 being milliseconds, value in 19:0 (lib/tout.c).
func isegTimeout(d time.Duration) uint32 { return uint32(d.Milliseconds()) & 0xfffff }

// timer is the free-running clock of the core.
func (h *HCA) timer() uint64 {
	return uint64(time.Since(h.start)) * coreClockKHz / 1000000
}

// healthCounter must differ whenever the driver looks, about every two
// seconds; the hardware's counts in steps of about 10 ms.
func (h *HCA) healthCounter() uint32 {
	if h.levers.stuck {
		return h.levers.stuckAt
	}
	return uint32(time.Since(h.start)/(10*time.Millisecond)) & 0xffffff
}

// writeBAR takes a write to BAR 0 of 1 to 8 bytes.
func (h *HCA) writeBAR(off uint64, p []byte) {
	if off < segEnd {
		for ; len(p) >= 4; off, p = off+4, p[4:] {
			h.writeSegment(off, binary.BigEndian.Uint32(p))
		}
		return
	}
	page, reg := off/uarPageSize, off%uarPageSize
	if _, ok := h.fw.uars.get(uint32(page)); !ok {
		h.violation("doorbell at BAR offset %#x: UAR %#x is not allocated", off, page)
		return
	}
	switch {
	case reg == uarEQArm && len(p) == 4, reg == uarEQ && len(p) == 4:
		h.eqDoorbell(binary.BigEndian.Uint32(p), reg == uarEQArm)
	case reg == uarCQ || reg == uarCQ+4:
		if v, ok := h.doorbell64(off, p); ok {
			h.cqDoorbell(uint32(page), uint32(v>>32), uint32(v))
		}
	case reg >= uarBF && reg%bfBufferSize < 8: // what follows in the buffer is in memory too
		if v, ok := h.doorbell64(off, p); ok {
			h.sqDoorbell(uint32(page), uint32(v)>>8)
		}
	case reg >= uarBF:
	default:
		h.violation("write of %d bytes at offset %#x of a UAR, where there is no doorbell", len(p), reg)
	}
}

// doorbell64 returns a 64-bit doorbell when it is complete: a 32-bit host, or a
// bus in between, may write it in two halves.
func (h *HCA) doorbell64(off uint64, p []byte) (uint64, bool) {
	switch {
	case len(p) >= 8 && off%8 == 0:
		return binary.BigEndian.Uint64(p), true
	case len(p) == 4 && off%8 == 0:
		h.fw.dbHalf[off] = binary.BigEndian.Uint32(p)
	case len(p) == 4 && off%8 == 4:
		high, ok := h.fw.dbHalf[off-4]
		delete(h.fw.dbHalf, off-4)
		return uint64(high)<<32 | uint64(binary.BigEndian.Uint32(p)), ok
	default:
		h.violation("doorbell of %d bytes at BAR offset %#x", len(p), off)
	}
	return 0, false
}

// writeSegment takes a word written to the initialization segment.
func (h *HCA) writeSegment(off uint64, v uint32) {
	switch off {
	case segCmdqAddrHigh:
		h.fw.cmdqAddr = uint64(v)<<32 | h.fw.cmdqAddr&0xffffffff
	case segCmdqAddrLow:
		h.fw.cmdqAddr = h.fw.cmdqAddr&^uint64(0xffffffff) | uint64(v&0xfffff000)
		h.setNICState(uint8(v >> 8 & 7))
	case segCmdDoorbell:
		h.commandDoorbell(v)
	case 0x400c: // clr_intx: there is no INTx
	default:
		h.violation("write of %#x to offset %#x of the initialization segment", v, off)
	}
}

// setNICState is how a driver that shuts down takes the device off the bus:
// nothing is left of it afterwards.
func (h *HCA) setNICState(s uint8) {
	if s == nicDisabled && h.fw.nicState != nicDisabled {
		addr := h.fw.cmdqAddr
		h.reset()
		h.fw.cmdqAddr = addr
	}
	h.fw.nicState = s
}

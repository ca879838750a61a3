package hca

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"time"
)

// maxCommand bounds a command's input and output. The largest that drivers use
// are page lists of some thousand entries.
const maxCommand = 1 << 20

// request is one command under execution.
type request struct {
	op      Opcode
	opMod   uint16
	in, out []byte
	what    string // for the log: the object or register
}

// name notes for the log what the command is about: the first object it names.
func (r *request) name(kind string, id uint32) {
	if r.what == "" {
		r.made(kind, id)
	}
}

// made notes the object that the command makes.
func (r *request) made(kind string, id uint32) { r.what = fmt.Sprintf("%s %#x", kind, id) }

// entry is a command queue entry as read from memory, with its place.
type entry struct {
	addr uint64
	slot int
	raw  [ceSize]byte
}

func (e *entry) inLen() uint32  { return binary.BigEndian.Uint32(e.raw[ceInLen:]) }
func (e *entry) outLen() uint32 { return binary.BigEndian.Uint32(e.raw[ceOutLen:]) }
func (e *entry) inPtr() uint64  { return binary.BigEndian.Uint64(e.raw[ceInPtr:]) }
func (e *entry) outPtr() uint64 { return binary.BigEndian.Uint64(e.raw[ceOutPtr:]) }

// commandDoorbell executes the commands whose slots are in the vector. They
// run here, in the order of their slots, while the driver's write is still
// under way: none takes long enough to be worth a goroutine.
func (h *HCA) commandDoorbell(vector uint32) {
	if h.levers.initializing(time.Now()) {
		h.violation("command doorbell %#x while the firmware is initializing", vector)
		return
	}
	for ; vector != 0; vector &= vector - 1 {
		h.command(bits.TrailingZeros32(vector))
	}
}

func (h *HCA) command(slot int) {
	e := entry{addr: h.fw.cmdqAddr + uint64(slot)<<logCmdqStride, slot: slot}
	if !h.dmaRead(e.addr, e.raw[:]) {
		return
	}
	if e.raw[ceStatus]&1 == 0 {
		h.violation("doorbell for command slot %d, which the device does not own", slot)
		return
	}
	log := logEntry{at: time.Now()}
	r, delivery := h.fetch(&e)
	log.op, log.opMod, log.delivery = r.op, r.opMod, delivery
	eq := h.subscriber(eventCommand) // as it was: the EQ's own creation is polled for
	if delivery == deliveryOK {
		if f := h.levers.take(r.op); f == nil {
			log.status, log.note = h.execute(r)
		} else if f.hang {
			log.note = noteHung
			h.log.add(log)
			return
		} else {
			log.status, log.note = f.status, noteInjected
			clear(r.out)
		}
		outStatus.set(r.out, uint64(log.status))
		if log.status != StatusOK {
			h.cfg.Logf("%s: %v op_mod %#x %s: %v", h.cfg.Name, r.op, r.opMod, r.what, log.status)
		}
	} else {
		h.violation("%v: delivery status %#x", r.op, delivery)
	}
	log.what = r.what
	h.log.add(log)
	h.complete(&e, r, delivery, eq)
}

// execute looks the command up and carries it out.
func (h *HCA) execute(r *request) (Status, string) {
	c, ok := commands[r.op]
	switch {
	case !ok || c.run == nil:
		return StatusBadOp, noteUnknown
	case c.phase >= phaseEnabled && !h.fw.enabled, c.phase >= phaseInit && !h.fw.initialized:
		h.violation("%v before the HCA is ready for it", r.op)
		return StatusBadSysState, ""
	case len(r.in) < c.in:
		h.violation("%v with %d bytes of input, it needs %d", r.op, len(r.in), c.in)
		return StatusBadInputLen, ""
	case len(r.out) < c.out:
		h.violation("%v with %d bytes of output, it needs %d", r.op, len(r.out), c.out)
		return StatusBadOutputLen, ""
	}
	return c.run(h, r), ""
}

// fetch gathers the input of a command.
func (h *HCA) fetch(e *entry) (*request, byte) {
	r := &request{in: make([]byte, ceInline), out: make([]byte, ceInline)}
	copy(r.in, e.raw[ceIn:])
	r.op, r.opMod = Opcode(inOpcode.u16(r.in)), inOpMod.u16(r.in)
	var xor byte
	for _, b := range e.raw {
		xor ^= b
	}
	switch {
	case xor != 0xff:
		return r, deliverySignature
	case e.raw[ceType] != cmdTypePCI:
		return r, deliveryDescriptor
	case e.inLen() < 8 || e.inLen() > maxCommand:
		return r, deliveryInLen
	case e.outLen() < 8 || e.outLen() > maxCommand:
		return r, deliveryOutLen
	case e.inLen() > ceInline && e.inPtr()%mboxAlign != 0:
		return r, deliveryInPtr
	case e.outLen() > ceInline && e.outPtr()%mboxAlign != 0:
		return r, deliveryOutPtr
	}
	r.out = make([]byte, max(e.outLen(), ceInline))
	if e.inLen() <= ceInline {
		return r, deliveryOK
	}
	in := make([]byte, ceInline, e.inLen())
	copy(in, r.in)
	delivery := h.walk(e, e.inPtr(), int(e.inLen()), deliveryInPtr, func(_ uint64, block *[mboxSize]byte, n int) {
		in = append(in, block[:n]...)
	})
	r.in = in
	return r, delivery
}

// walk visits the mailbox blocks of a message of length bytes and checks their
// numbers and tokens.
func (h *HCA) walk(e *entry, addr uint64, length int, badPtr byte, visit func(addr uint64, block *[mboxSize]byte, n int)) byte {
	var block [mboxSize]byte
	for i, left := uint32(0), length-ceInline; left > 0; i, left = i+1, left-mboxData {
		switch {
		case addr%mboxAlign != 0 || !h.dmaRead(addr, block[:]):
			return badPtr
		case binary.BigEndian.Uint32(block[mboxBlockNum:]) != i:
			return deliveryBlockNum
		case block[mboxToken] != e.raw[ceToken]:
			return deliveryToken
		}
		next := binary.BigEndian.Uint64(block[mboxNext:])
		visit(addr, &block, min(left, mboxData))
		addr = next
	}
	return deliveryOK
}

// complete writes the output, gives the entry back to the driver and, once the
// driver has an EQ for it, tells it so.
func (h *HCA) complete(e *entry, r *request, delivery byte, eq *eventQueue) {
	outLen := int(e.outLen())
	if delivery == deliveryOK && outLen > ceInline {
		rest := r.out[ceInline:]
		delivery = h.walk(e, e.outPtr(), outLen, deliveryOutPtr, func(addr uint64, block *[mboxSize]byte, n int) {
			n = copy(block[:mboxData], rest[:min(n, len(rest))])
			rest = rest[n:]
			sign(block)
			h.dmaWrite(addr, block[:])
		})
	}
	copy(e.raw[ceOut:ceOut+ceInline], r.out[:ceInline])
	e.raw[ceStatus] = delivery << 1
	e.raw[ceSig] = 0
	var xor byte
	for _, b := range e.raw {
		xor ^= b
	}
	e.raw[ceSig] = ^xor
	// The driver polls the last byte: it comes last.
	h.dmaWrite(e.addr+ceOut, e.raw[ceOut:ceStatus])
	h.dmaWrite(e.addr+ceStatus, e.raw[ceStatus:])
	if eq != nil && h.fw.eqs.items[eq.id] == eq { // not when the command destroyed it
		h.commandEvent(eq, e.slot)
	}
}

// sign computes the two signatures of a mailbox block (cmd.c,
// verify_block_sig).
func sign(block *[mboxSize]byte) {
	block[mboxCtrlSig], block[mboxSig] = 0, 0
	var ctrl, all byte
	for _, b := range block[mboxReserved:mboxCtrlSig] {
		ctrl ^= b
	}
	block[mboxCtrlSig] = ^ctrl
	for _, b := range block[:mboxSig] {
		all ^= b
	}
	block[mboxSig] = ^all
}

// dmaRead and dmaWrite reach guest memory; an address that is not mapped is the
// driver's mistake.
func (h *HCA) dmaRead(addr uint64, p []byte) bool {
	if h.bus == nil {
		return false
	}
	if err := h.bus.ReadDMA(addr, p); err != nil {
		h.violation("DMA read of %d bytes at %#x: %v", len(p), addr, err)
		return false
	}
	return true
}

func (h *HCA) dmaWrite(addr uint64, p []byte) bool {
	if h.bus == nil {
		return false
	}
	if err := h.bus.WriteDMA(addr, p); err != nil {
		h.violation("DMA write of %d bytes at %#x: %v", len(p), addr, err)
		return false
	}
	return true
}

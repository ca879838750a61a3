package hca

import "encoding/binary"

// Event types (mlx5_event in device.h).
const (
	eventCompletion  = 0x00
	eventCQError     = 0x04
	eventPortChange  = 0x09
	eventCommand     = 0x0a
	eventPageRequest = 0x0b
	eventSRQLimit    = 0x14
	eventPortModule  = 0x16
	eventTempWarning = 0x17
	eventGeneral     = 0x22
)

// eqe is the 28 bytes of data of an event queue entry (ev_data in device.h).
type eqe [28]byte

func (e *eqe) be32(off int, v uint32) { binary.BigEndian.PutUint32(e[off:], v) }

// eventQueue is an EQ. The driver arms it with its consumer index; an armed
// queue that has something to say interrupts once.
type eventQueue struct {
	object
	ctx    [contextSize]byte
	buf    pageList
	log    uint
	events [256]bool
	vector int
	pi, ci uint32
	armed  bool
	full   bool // an event was lost: said once
}

func (h *HCA) createEQ(r *request) Status {
	ctx := r.in[eqContext:]
	q := &eventQueue{log: uint(eqcLogSize.get(ctx)), vector: int(eqcIntr.get(ctx))}
	copy(q.ctx[:], ctx)
	if q.vector >= h.cfg.Vectors {
		h.violation("CREATE_EQ for vector %d of %d", q.vector, h.cfg.Vectors)
		return StatusBadParam
	}
	if _, ok := lookup(h, &h.fw.uars, eqcUAR.u32(ctx), r); !ok {
		return StatusBadResource
	}
	var ok bool
	q.buf, ok = h.pageList(r, eqeSize<<q.log, uint(eqcLogPage.get(ctx)), uint(eqcPageOffset.get(ctx)), r.in[pasOffset:])
	if !ok {
		return StatusBadParam
	}
	for i := range q.events { // four 64-bit words, each with its low bit last
		word := binary.BigEndian.Uint64(r.in[eqEventBitmask+i/64*8:])
		q.events[i] = word>>(i%64)&1 != 0
	}
	s := h.checkSubscriptions(q)
	if s != StatusOK {
		return s
	}
	id, ok := h.fw.eqs.add(q)
	if !ok {
		return StatusNoResources
	}
	q.id = id
	r.made(h.fw.eqs.kind, id)
	object8.set(r.out, uint64(id))
	ref(&h.fw.uars, eqcUAR.u32(ctx), +1)
	return StatusOK
}

// checkSubscriptions refuses a second EQ for an event: only one can have it.
func (h *HCA) checkSubscriptions(q *eventQueue) Status {
	for t, want := range q.events {
		if want && t != eventCompletion && h.subscriber(byte(t)) != nil {
			h.violation("CREATE_EQ subscribes to event %#x, which EQ %d has", t, h.subscriber(byte(t)).id)
			return StatusBadParam
		}
	}
	return StatusOK
}

func (h *HCA) destroyEQ(r *request) Status {
	id := object8.u32(r.in)
	q, ok := lookup(h, &h.fw.eqs, id, r)
	if !ok {
		return StatusBadResource
	}
	if q.refs != 0 {
		h.violation("DESTROY_EQ %d, which %d CQs still use", id, q.refs)
		return StatusBadResState
	}
	delete(h.fw.eqs.items, id)
	ref(&h.fw.uars, eqcUAR.u32(q.ctx[:]), -1)
	return StatusOK
}

func (h *HCA) queryEQ(r *request) Status {
	q, ok := lookup(h, &h.fw.eqs, object8.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	copy(r.out[eqContext:], q.ctx[:])
	eqcConsumer.set(r.out[eqContext:], uint64(q.ci))
	eqcProducer.set(r.out[eqContext:], uint64(q.pi))
	return StatusOK
}

// subscriber returns the EQ that gets events of a type, or nil.
func (h *HCA) subscriber(typ byte) *eventQueue {
	for _, q := range h.fw.eqs.items {
		if q.events[typ] {
			return q
		}
	}
	return nil
}

// eqDoorbell takes a consumer index; arm asks for an interrupt when there is
// more than that.
func (h *HCA) eqDoorbell(v uint32, arm bool) {
	q, ok := h.fw.eqs.get(v >> 24)
	if !ok {
		h.violation("doorbell for EQ %d, which does not exist", v>>24)
		return
	}
	ci := v & 0xffffff
	if (ci-q.ci)&0xffffff > (q.pi-q.ci)&0xffffff {
		h.violation("EQ %d: consumer index %#x is not between %#x and the producer's %#x", q.id, ci, q.ci, q.pi&0xffffff)
	}
	q.ci = ci
	if arm {
		q.armed = true
		h.fire(q)
	}
}

// fire interrupts if the queue is armed and not empty.
func (h *HCA) fire(q *eventQueue) {
	if q.armed && q.pi&0xffffff != q.ci {
		q.armed = false
		if h.bus != nil {
			h.bus.Interrupt(q.vector)
		}
	}
}

// event tells the subscriber of an event of it; without one it is lost.
func (h *HCA) event(typ, subType byte, data eqe) {
	if q := h.subscriber(typ); q != nil {
		h.post(q, typ, subType, data)
	}
}

// commandEvent reports a command as complete (mlx5_eqe_cmd).
func (h *HCA) commandEvent(q *eventQueue, slot int) {
	var e eqe
	e.be32(0, 1<<slot)
	h.post(q, eventCommand, 0, e)
}

// post writes an entry into an event queue, its owner bit last.
func (h *HCA) post(q *eventQueue, typ, subType byte, data eqe) {
	if (q.pi-q.ci)&0xffffff >= 1<<q.log {
		if !q.full {
			h.violation("EQ %d overflowed: event %#x is lost", q.id, typ)
		}
		q.full = true
		return
	}
	q.full = false
	var raw [eqeSize]byte
	raw[eqeType], raw[eqeSubType] = typ, subType
	copy(raw[eqeData:], data[:])
	raw[eqeOwner] = byte(q.pi >> q.log & 1)
	off := uint64(q.pi) & (1<<q.log - 1) * eqeSize
	h.writeBuf(&q.buf, off, raw[:eqeOwner])
	h.writeBuf(&q.buf, off+eqeOwner, raw[eqeOwner:])
	q.pi++
	h.fire(q)
}

package hca

import "encoding/binary"

// completionQueue is a CQ. A driver that wants an event arms it with the index
// of the completion it has not seen yet.
type completionQueue struct {
	object
	ctx    [contextSize]byte
	buf    pageList
	log    uint
	stride uint64 // 64, or 128 with the entry in the second half
	eqn    uint32
	uar    uint32
	dbr    uint64
	pi     uint32
	ci     uint32 // as last read from the doorbell record
	armed  bool
	failed bool // overflowed
}

func (h *HCA) createCQ(r *request) Status {
	ctx := r.in[cqContext:]
	q := &completionQueue{
		log: uint(cqcLogSize.get(ctx)), stride: cqeSize,
		eqn: cqcEQN.u32(ctx), uar: cqcUAR.u32(ctx), dbr: cqcDBR.get(ctx),
	}
	copy(q.ctx[:], ctx)
	if cqcCQESize.is(ctx) {
		q.stride = 2 * cqeSize
	}
	if _, ok := lookup(h, &h.fw.eqs, q.eqn, r); !ok {
		return StatusBadResource
	}
	if _, ok := lookup(h, &h.fw.uars, q.uar, r); !ok {
		return StatusBadResource
	}
	if q.log > 22 || q.dbr == 0 || q.dbr%8 != 0 {
		h.violation("CREATE_CQ of 2^%d entries, doorbell record at %#x", q.log, q.dbr)
		return StatusBadParam
	}
	var ok bool
	q.buf, ok = h.pageList(r, q.stride<<q.log, uint(cqcLogPage.get(ctx)), uint(cqcPageOffset.get(ctx)), r.in[pasOffset:])
	if !ok {
		return StatusBadParam
	}
	if s := create(&h.fw.cqs, q, r); s != StatusOK {
		return s
	}
	ref(&h.fw.eqs, q.eqn, +1)
	ref(&h.fw.uars, q.uar, +1)
	return StatusOK
}

func (h *HCA) destroyCQ(r *request) Status {
	q, s := destroy(h, &h.fw.cqs, r)
	if s == StatusOK {
		ref(&h.fw.eqs, q.eqn, -1)
		ref(&h.fw.uars, q.uar, -1)
	}
	return s
}

func (h *HCA) queryCQ(r *request) Status {
	q, ok := lookup(h, &h.fw.cqs, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	h.consumed(q)
	copy(r.out[cqContext:], q.ctx[:])
	cqcProducer.set(r.out[cqContext:], uint64(q.pi))
	cqcConsumer.set(r.out[cqContext:], uint64(q.ci))
	return StatusOK
}

// modifyCQ takes moderation, which only thins events out: every event is sent
// here. Resizing (op_mod 1) is not carried out: cq_resize is not announced.
func (h *HCA) modifyCQ(r *request) Status {
	q, ok := lookup(h, &h.fw.cqs, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	if r.opMod != 0 {
		h.violation("MODIFY_CQ with op_mod %d", r.opMod)
		return StatusBadParam
	}
	in := r.in[cqContext:]
	switch sel := binary.BigEndian.Uint32(r.in[modifyCQSelect:]); {
	case sel&1 != 0: // MLX5_CQ_MODIFY_PERIOD
		cqcPeriod.set(q.ctx[:], cqcPeriod.get(in))
		fallthrough
	case sel&2 != 0: // MLX5_CQ_MODIFY_COUNT
		cqcMaxCount.set(q.ctx[:], cqcMaxCount.get(in))
	}
	return StatusOK
}

// cqDoorbell arms a CQ: the command word has a sequence number in 29:28, bit 24
// for "solicited only", and the consumer index. Packets on the fabric carry no
// solicited event bit, so every completion counts as solicited.
func (h *HCA) cqDoorbell(page, cmd, cqn uint32) {
	q, ok := h.fw.cqs.get(cqn & 0xffffff)
	if !ok {
		h.violation("doorbell for CQ %#x, which does not exist", cqn)
		return
	}
	if page != q.uar {
		h.violation("doorbell for CQ %#x at UAR %#x, its own is %#x", cqn, page, q.uar)
		return
	}
	q.armed = true
	if ci := cmd & 0xffffff; ci != q.pi&0xffffff { // something came before the driver armed it
		h.fireCQ(q)
	}
}

func (h *HCA) fireCQ(q *completionQueue) {
	if !q.armed {
		return
	}
	q.armed = false
	if eq, ok := h.fw.eqs.get(q.eqn); ok {
		var e eqe
		e.be32(24, q.id) // mlx5_eqe_comp.cqn
		h.post(eq, eventCompletion, 0, e)
	}
}

// consumed updates the consumer index from the doorbell record.
func (h *HCA) consumed(q *completionQueue) {
	if v, ok := h.record(q.dbr); ok {
		q.ci = v & 0xffffff
	}
}

// cqe is a completion queue entry under construction.
type cqe [cqeSize]byte

func (e *cqe) be32(off int, v uint32) { binary.BigEndian.PutUint32(e[off:], v) }

func (e *cqe) be16(off int, v uint16) { binary.BigEndian.PutUint16(e[off:], v) }

// postCQE writes a completion, its owner bit last. A full queue is an error
// of the driver's that ends the queue (mlx5_eqe_cq_err, syndrome 1: overrun).
func (h *HCA) postCQE(cqn uint32, opcode byte, e cqe) {
	q, ok := h.fw.cqs.get(cqn)
	if !ok || q.failed {
		return
	}
	if (q.pi-q.ci)&0xffffff >= 1<<q.log {
		h.consumed(q)
	}
	if (q.pi-q.ci)&0xffffff >= 1<<q.log && !cqcOI.is(q.ctx[:]) {
		h.violation("CQ %#x overflowed", q.id)
		q.failed = true
		var ev eqe
		ev.be32(0, q.id)
		ev[11] = 1
		h.event(eventCQError, 0, ev)
		return
	}
	if opcode != cqeReqErr && opcode != cqeRespErr { // they have the syndrome there
		binary.BigEndian.PutUint64(e[cqeTimestamp:], h.timer())
	}
	e[cqeOpOwner] = opcode<<4 | byte(q.pi>>q.log&1)
	off := uint64(q.pi)&(1<<q.log-1)*q.stride + q.stride - cqeSize
	h.writeBuf(&q.buf, off, e[:cqeOpOwner])
	h.writeBuf(&q.buf, off+cqeOpOwner, e[cqeOpOwner:])
	q.pi++
	h.fireCQ(q)
}

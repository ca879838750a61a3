package hca

import (
	"slices"
	"time"

	"ibup/test/fabric"
)

// queuePair is a QP: a datagram QP (UD, or QP0 and QP1 of the port), or the one
// that drivers register memory with.
type queuePair struct {
	object
	ctx    [qpcSize]byte // as created and modified; the state is below
	typ    uint64
	state  uint64
	pd     uint32
	uar    uint32
	cqSend uint32
	cqRecv uint32
	dbr    uint64

	buf   pageList
	hasSQ bool
	sqOff uint64
	sqLog uint // basic blocks
	sq    uint16
	psn   uint32

	hasRQ  bool
	rq     receiveQueue
	shared *sharedQueue

	attached int // multicast groups
}

func (q *queuePair) path() []byte { return q.ctx[qpcPath:] }

func (q *queuePair) qkey() uint32 { return qpcQKey.u32(q.ctx[:]) }

// qpTypes are the service types that are carried out.
var qpTypes = map[uint64]string{qpUD: "UD", qpSMI: "QP0", qpGSI: "QP1", qpUMR: "UMR"}

func (h *HCA) createQP(r *request) Status {
	ctx := r.in[qpContext:]
	q := &queuePair{
		typ: qpcType.get(ctx), pd: qpcPD.u32(ctx), uar: qpcUAR.u32(ctx),
		cqSend: qpcCQSend.u32(ctx), cqRecv: qpcCQRecv.u32(ctx), dbr: qpcDBR.get(ctx),
		hasSQ: !qpcNoSQ.is(ctx), sqLog: uint(qpcLogSQSize.get(ctx)),
	}
	copy(q.ctx[:], ctx)
	name, known := qpTypes[q.typ]
	if !known {
		return StatusBadParam
	}
	if s := h.checkQP(q, r); s != StatusOK {
		return s
	}
	size := uint64(0)
	if q.hasRQ {
		q.rq.log, q.rq.logStride = uint(qpcLogRQSize.get(ctx)), uint(qpcLogRQStride.get(ctx))+4
		q.rq.dbr = q.dbr
		size = 1 << (q.rq.log + q.rq.logStride)
	}
	if q.hasSQ {
		q.sqOff = size
		size += wqeBB << q.sqLog
	}
	var ok bool
	q.buf, ok = h.pageList(r, size, uint(qpcLogPage.get(ctx)), uint(qpcPageOffset.get(ctx)), r.in[pasOffset:])
	if !ok {
		return StatusBadParam
	}
	q.rq.buf = q.buf
	if s := create(&h.fw.qps, q, r); s != StatusOK {
		return s
	}
	r.made(name+" QP", q.id)
	h.refQP(q, +1)
	return StatusOK
}

// checkQP looks up what a QP refers to.
func (h *HCA) checkQP(q *queuePair, r *request) Status {
	ok := true
	has := func(found bool) { ok = ok && found }
	if q.typ != qpUMR { // works in the protection domain of what it registers
		_, found := lookup(h, &h.fw.pds, q.pd, r)
		has(found)
	}
	_, found := lookup(h, &h.fw.uars, q.uar, r)
	has(found)
	if q.hasSQ {
		_, found = lookup(h, &h.fw.cqs, q.cqSend, r)
		has(found)
	}
	switch qpcRQType.get(q.ctx[:]) {
	case rqOwn:
		q.hasRQ = true
	case rqShared:
		q.shared, found = lookup(h, &h.fw.srqs, qpcSRQN.u32(q.ctx[:]), r)
		has(found)
	}
	if q.hasRQ || q.shared != nil {
		_, found = lookup(h, &h.fw.cqs, q.cqRecv, r)
		has(found)
	}
	switch {
	case !ok:
		return StatusBadResource
	case (q.hasSQ || q.hasRQ) && (q.dbr == 0 || q.dbr%8 != 0):
		h.violation("CREATE_QP with a doorbell record at %#x", q.dbr)
		return StatusBadParam
	case q.typ == qpSMI || q.typ == qpGSI:
		for _, o := range h.fw.qps.items {
			if o.typ == q.typ {
				h.violation("CREATE_QP of a second %s", qpTypes[q.typ])
				return StatusBadResState
			}
		}
	}
	return StatusOK
}

func (h *HCA) refQP(q *queuePair, n int) {
	if q.typ != qpUMR {
		ref(&h.fw.pds, q.pd, n)
	}
	ref(&h.fw.uars, q.uar, n)
	if q.hasSQ {
		ref(&h.fw.cqs, q.cqSend, n)
	}
	if q.hasRQ || q.shared != nil {
		ref(&h.fw.cqs, q.cqRecv, n)
	}
	if q.shared != nil {
		q.shared.refs += n
	}
}

func (h *HCA) destroyQP(r *request) Status {
	q, s := destroy(h, &h.fw.qps, r)
	if s != StatusOK {
		return s
	}
	if q.attached > 0 {
		h.violation("DESTROY_QP of QP %#x, attached to %d multicast groups", q.id, q.attached)
		for gid, members := range h.fw.groups {
			h.fw.groups[gid] = slices.DeleteFunc(members, func(o *queuePair) bool { return o == q })
		}
	}
	h.refQP(q, -1)
	return StatusOK
}

func (h *HCA) queryQP(r *request) Status {
	q, ok := lookup(h, &h.fw.qps, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	ctx := r.out[qpContext:]
	copy(ctx, q.ctx[:])
	qpcState.set(ctx, q.state)
	qpcHwSQ.set(ctx, uint64(q.sq))
	qpcSendPSN.set(ctx, uint64(q.psn))
	if q.hasRQ {
		qpcHwRQ.set(ctx, uint64(q.rq.head))
		qpcSwRQ.set(ctx, uint64(q.rq.head+h.posted(&q.rq)))
	}
	return StatusOK
}

// A transition is what a modify command does: only from some states.
type transition struct {
	from []uint64
	to   uint64
}

var transitions = map[Opcode]transition{
	RST2INITQP:  {[]uint64{qpReset}, qpInit},
	INIT2INITQP: {[]uint64{qpInit}, qpInit},
	INIT2RTRQP:  {[]uint64{qpInit}, qpRTR},
	RTR2RTSQP:   {[]uint64{qpRTR}, qpRTS},
	RTS2RTSQP:   {[]uint64{qpRTS}, qpRTS},
	SQERR2RTSQP: {[]uint64{qpSQErr}, qpRTS},
	ToERRQP:     {[]uint64{qpReset, qpInit, qpRTR, qpRTS, qpSQErr, qpSQD, qpErr}, qpErr},
	ToRSTQP:     {[]uint64{qpReset, qpInit, qpRTR, qpRTS, qpSQErr, qpSQD, qpErr}, qpReset},
}

var qpStateNames = [qpStates]string{"RST", "INIT", "RTR", "RTS", "SQER", "SQD", "ERR"}

func (h *HCA) modifyQP(r *request) Status {
	q, ok := lookup(h, &h.fw.qps, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	t := transitions[r.op]
	if !slices.Contains(t.from, q.state) {
		h.violation("%v of QP %#x in state %s", r.op, q.id, qpStateNames[q.state])
		return StatusBadQPState
	}
	if t.to != qpErr && t.to != qpReset {
		if s := h.modifyParams(q, r); s != StatusOK {
			return s
		}
	}
	q.state = t.to
	switch t.to {
	case qpReset:
		q.sq, q.rq.head = 0, 0
	case qpErr:
		h.flushErrors()
	}
	return StatusOK
}

// modifyParams takes the parameters of a modify command: those that the
// transition requires and those that the mask selects.
func (h *HCA) modifyParams(q *queuePair, r *request) Status {
	in := r.in[qpContext:]
	mask := uint32(field(0<<8 | 32).get(r.in[qpOptParamMask:]))
	first := r.op == RST2INITQP
	if st := qpcType.get(in); st != q.typ {
		h.violation("%v says service type %#x, QP %#x has %#x", r.op, st, q.id, q.typ)
		return StatusBadParam
	}
	if first || mask&optPKeyIndex != 0 {
		i := adsPKeyIndex.get(in[qpcPath:])
		if i >= pkeyEntries {
			h.violation("%v with P_Key index %d", r.op, i)
			return StatusBadIndex
		}
		adsPKeyIndex.set(q.path(), i)
	}
	if first || mask&optQKey != 0 {
		qpcQKey.set(q.ctx[:], qpcQKey.get(in))
	}
	if first {
		if p := adsPort.get(in[qpcPath:]); p != 1 {
			h.violation("%v for port %d", r.op, p)
			return StatusBadParam
		}
		adsPort.set(q.path(), 1)
		set := qpcCounterSet.get(in)
		if _, ok := h.fw.counters.get(uint32(set)); !ok && set != 0 {
			h.violation("%v with Q counter %d, which does not exist", r.op, set)
			return StatusBadResource
		}
		qpcCounterSet.set(q.ctx[:], set)
	}
	if r.op == RTR2RTSQP {
		q.psn = qpcSendPSN.u32(in)
	}
	return StatusOK
}

// flushInterval is how often the receive queues of QPs in error are looked at.
const flushInterval = 10 * time.Millisecond

// flushErrors completes the requests of QPs in error. Receive requests are
// posted without a doorbell, and drivers post one to an error queue to learn
// that it is drained: as long as there is such a QP its record is looked at.
func (h *HCA) flushErrors() {
	again := false
	for _, q := range h.fw.qps.items {
		if q.state == qpErr {
			h.flushSQ(q)
			h.flushRQ(q)
			again = again || q.hasRQ
		}
	}
	if !again {
		return
	}
	fw := h.fw
	if fw.flusher != nil {
		fw.flusher.Reset(flushInterval)
		return
	}
	fw.flusher = time.AfterFunc(flushInterval, func() {
		h.mu.Lock()
		defer h.unlock()
		if h.fw == fw {
			h.flushErrors()
		}
	})
}

func (h *HCA) flushRQ(q *queuePair) {
	for q.hasRQ && h.posted(&q.rq) > 0 {
		w, ok := h.pop(&q.rq)
		if !ok {
			return
		}
		h.failReceive(q, w, syndFlush)
	}
}

// attachMCG makes a QP a member of a multicast group on this port.
func (h *HCA) attachMCG(r *request) Status {
	q, ok := lookup(h, &h.fw.qps, object24.u32(r.in), r)
	gid := fabric.GID(r.in[mcgGID:])
	switch {
	case !ok:
		return StatusBadResource
	case q.typ != qpUD || gid[0] != 0xff:
		h.violation("ATTACH_TO_MCG of %s QP %#x to %x", qpTypes[q.typ], q.id, gid)
		return StatusBadParam
	case slices.Contains(h.fw.groups[gid], q):
		h.violation("ATTACH_TO_MCG of QP %#x, which is attached to %x already", q.id, gid)
		return StatusBadResState
	}
	h.fw.groups[gid] = append(h.fw.groups[gid], q)
	q.attached++
	return StatusOK
}

func (h *HCA) detachMCG(r *request) Status {
	q, ok := lookup(h, &h.fw.qps, object24.u32(r.in), r)
	gid := fabric.GID(r.in[mcgGID:])
	switch {
	case !ok:
		return StatusBadResource
	case !slices.Contains(h.fw.groups[gid], q):
		h.violation("DETACH_FROM_MCG of QP %#x, which is not attached to %x", q.id, gid)
		return StatusBadResState
	}
	h.fw.groups[gid] = slices.DeleteFunc(h.fw.groups[gid], func(o *queuePair) bool { return o == q })
	if len(h.fw.groups[gid]) == 0 {
		delete(h.fw.groups, gid)
	}
	q.attached--
	return StatusOK
}

package hca

import "encoding/binary"

// minStride is the least a shared queue's entry holds: the link to the next
// and one data segment.
const minStride = 5

// createRMP makes a receive memory pool, which is what a basic SRQ is from
// ISSI 1 on.
func (h *HCA) createRMP(r *request) Status {
	ctx := r.in[rmpContext : rmpContext+rmpcSize]
	wq := ctx[rmpcWQ:]
	q := &sharedQueue{op: CreateRMP, ctx: append([]byte(nil), ctx...), pd: wqPD.u32(wq)}
	q.log, q.logStride = uint(wqLogSize.get(wq)), uint(wqLogStride.get(wq))
	q.dbr, q.limit = wqDBR.get(wq), wqLWM.u16(wq)
	return h.addShared(q, r, uint(wqLogPage.get(wq)), uint(wqPageOffset.get(wq)))
}

// createSRQ makes an SRQ or an XRC SRQ.
func (h *HCA) createSRQ(r *request) Status {
	ctx := r.in[srqContext : srqContext+contextSize]
	q := &sharedQueue{
		op: r.op, ctx: append([]byte(nil), ctx...),
		pd: srqcPD.u32(ctx), cqn: srqcCQN.u32(ctx), xrcd: srqcXRCD.u32(ctx),
		hasCQ: r.op == CreateXRCSRQ,
	}
	q.log, q.logStride = uint(srqcLogSize.get(ctx)), uint(srqcLogStride.get(ctx))+4
	q.dbr, q.limit = srqcDBR.get(ctx)&^3, srqcLWM.u16(ctx)
	if q.hasCQ {
		if _, ok := lookup(h, &h.fw.cqs, q.cqn, r); !ok {
			return StatusBadResource
		}
		if _, ok := lookup(h, &h.fw.xrcds, q.xrcd, r); !ok {
			return StatusBadResource
		}
	}
	return h.addShared(q, r, uint(srqcLogPage.get(ctx)), uint(srqcPageOffset.get(ctx)))
}

func (h *HCA) addShared(q *sharedQueue, r *request, logPage, offset uint) Status {
	if _, ok := lookup(h, &h.fw.pds, q.pd, r); !ok {
		return StatusBadResource
	}
	if q.log > 15 || q.logStride < minStride || q.logStride > 9 || q.dbr == 0 {
		h.violation("%v: 2^%d entries of 2^%d bytes, doorbell record at %#x", r.op, q.log, q.logStride, q.dbr)
		return StatusBadParam
	}
	var ok bool
	q.buf, ok = h.pageList(r, 1<<(q.log+q.logStride), logPage, offset, r.in[pasOffset:])
	if !ok {
		return StatusBadParam
	}
	if s := create(&h.fw.srqs, q, r); s != StatusOK {
		return s
	}
	h.refShared(q, +1)
	return StatusOK
}

func (h *HCA) refShared(q *sharedQueue, n int) {
	ref(&h.fw.pds, q.pd, n)
	if q.hasCQ {
		ref(&h.fw.cqs, q.cqn, n)
		ref(&h.fw.xrcds, q.xrcd, n)
	}
}

func (h *HCA) destroySRQ(r *request) Status {
	q, s := destroy(h, &h.fw.srqs, r)
	if s == StatusOK {
		h.refShared(q, -1)
	}
	return s
}

func (h *HCA) queryRMP(r *request) Status {
	q, ok := lookup(h, &h.fw.srqs, object24.u32(r.in), r)
	if !ok || q.op != CreateRMP {
		return StatusBadResource
	}
	ctx := r.out[rmpContext:]
	copy(ctx, q.ctx)
	state := uint64(rmpReady)
	if q.errored {
		state = rmpError
	}
	rmpcState.set(ctx, state)
	wqLWM.set(ctx[rmpcWQ:], uint64(q.limit))
	wqHwCounter.set(ctx[rmpcWQ:], uint64(q.head))
	return StatusOK
}

func (h *HCA) querySRQ(r *request) Status {
	q, ok := lookup(h, &h.fw.srqs, object24.u32(r.in), r)
	if !ok || q.op == CreateRMP {
		return StatusBadResource
	}
	ctx := r.out[srqContext:]
	copy(ctx, q.ctx)
	srqcLWM.set(ctx, uint64(q.limit))
	srqcWQECount.set(ctx, uint64(h.posted(&q.receiveQueue)))
	return StatusOK
}

// modifyRMP changes the state or the low watermark.
func (h *HCA) modifyRMP(r *request) Status {
	q, ok := lookup(h, &h.fw.srqs, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	ctx := r.in[rmpContext:]
	q.errored = rmpcState.get(ctx) == rmpError
	q.limit = wqLWM.u16(ctx[rmpcWQ:])
	return StatusOK
}

// armSRQ asks for an event when fewer than so many requests are left.
func (h *HCA) armSRQ(r *request) Status {
	q, ok := lookup(h, &h.fw.srqs, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	q.limit = binary.BigEndian.Uint16(r.in[armLWM:])
	return StatusOK
}

package hca

import "encoding/binary"

// A pageList is a buffer in guest memory, made of pages of one size.
type pageList struct {
	pages []uint64
	shift uint
	start uint64 // offset of the buffer in its first page
	size  uint64
}

// pageList checks and takes the page list of a queue of size bytes: logPage is
// relative to 4 KiB, offset counts in 1/64 of a page (mlx5_ib, mem.c).
func (h *HCA) pageList(r *request, size uint64, logPage, offset uint, pas []byte) (pageList, bool) {
	l := pageList{shift: 12 + logPage, size: size}
	if l.shift > 40 || size > 1<<32 {
		h.violation("%v: pages of 2^%d bytes, queue of %d", r.op, l.shift, size)
		return l, false
	}
	l.start = uint64(offset) << (l.shift - 6)
	n := (l.start + size + 1<<l.shift - 1) >> l.shift
	if have := uint64(len(pas) / 8); have < n {
		h.violation("%v: a queue of %d bytes needs %d pages of 2^%d, the list has %d", r.op, size, n, l.shift, have)
		return l, false
	}
	l.pages = make([]uint64, n)
	for i := range l.pages {
		p := binary.BigEndian.Uint64(pas[8*i:])
		if p == 0 || p&(1<<l.shift-1) != 0 {
			h.violation("%v: page %d of the list is %#x, not aligned to 2^%d", r.op, i, p, l.shift)
			return l, false
		}
		l.pages[i] = p
	}
	return l, true
}

// chunk returns the bus address of offset off and how many bytes follow it
// without a break.
func (l *pageList) chunk(off uint64) (addr, n uint64) {
	off += l.start
	in := off & (1<<l.shift - 1)
	return l.pages[off>>l.shift] + in, 1<<l.shift - in
}

// readBuf and writeBuf copy from and to a queue; the range lies inside it.
func (h *HCA) readBuf(l *pageList, off uint64, p []byte) bool {
	for len(p) > 0 {
		addr, n := l.chunk(off)
		n = min(n, uint64(len(p)))
		if !h.dmaRead(addr, p[:n]) {
			return false
		}
		off, p = off+n, p[n:]
	}
	return true
}

func (h *HCA) writeBuf(l *pageList, off uint64, p []byte) bool {
	for len(p) > 0 {
		addr, n := l.chunk(off)
		n = min(n, uint64(len(p)))
		if !h.dmaWrite(addr, p[:n]) {
			return false
		}
		off, p = off+n, p[n:]
	}
	return true
}

// record reads a doorbell record: a counter in guest memory.
func (h *HCA) record(addr uint64) (uint32, bool) {
	var b [4]byte
	ok := h.dmaRead(addr, b[:])
	return binary.BigEndian.Uint32(b[:]), ok
}

// A receiveWQE is a receive work request taken from a queue.
type receiveWQE struct {
	counter uint16 // for the completion: its index, or the queue's count
	raw     []byte // data segments
	pd      uint32
}

// receiveQueue is a queue of receive requests: a QP's own, in order.
type receiveQueue struct {
	buf       pageList
	off       uint64 // of the queue in its buffer
	log       uint   // number of entries
	logStride uint   // bytes of an entry
	dbr       uint64
	head      uint16
}

// posted returns how many requests wait.
func (h *HCA) posted(q *receiveQueue) uint16 {
	v, ok := h.record(q.dbr)
	if !ok {
		return 0
	}
	return uint16(v) - q.head
}

// pop takes the oldest request.
func (h *HCA) pop(q *receiveQueue) (receiveWQE, bool) {
	if h.posted(q) == 0 {
		return receiveWQE{}, false
	}
	w := receiveWQE{counter: q.head, raw: make([]byte, 1<<q.logStride)}
	index := uint64(q.head) & (1<<q.log - 1)
	q.head++
	return w, h.readBuf(&q.buf, q.off+index<<q.logStride, w.raw)
}

// sharedQueue is an SRQ, an XRC SRQ or an RMP: a linked list of requests that
// several QPs take from. Each entry begins with the index of the next
// (mlx5_wqe_srq_next_seg in mlx5_ib's srq code).
type sharedQueue struct {
	receiveQueue
	object
	op      Opcode // what created it
	ctx     []byte
	pd      uint32
	cqn     uint32 // of an XRC SRQ, which completes to its own CQ
	xrcd    uint32
	hasCQ   bool
	current uint16 // index of the next entry
	limit   uint16 // low watermark, 0 when not armed
	errored bool
}

// popShared takes the oldest request.
func (h *HCA) popShared(q *sharedQueue) (receiveWQE, bool) {
	if q.errored || h.posted(&q.receiveQueue) == 0 {
		return receiveWQE{}, false
	}
	w := receiveWQE{counter: q.current, raw: make([]byte, 1<<q.logStride), pd: q.pd}
	index := uint64(q.current) & (1<<q.log - 1)
	if !h.readBuf(&q.buf, index<<q.logStride, w.raw) {
		return w, false
	}
	q.current = binary.BigEndian.Uint16(w.raw[srqNextWQE:])
	q.head++
	w.raw = w.raw[wqeDS:]
	if q.limit != 0 && h.posted(&q.receiveQueue) < q.limit {
		q.limit = 0
		h.queueEvent(eventSRQLimit, q.id)
	}
	return w, true
}

// queueEvent raises an event about a QP or an SRQ (mlx5_eqe_qp_srq).
func (h *HCA) queueEvent(typ byte, number uint32) {
	var e eqe
	e.be32(24, number)
	h.event(typ, 0, e)
}

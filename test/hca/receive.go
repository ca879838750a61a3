package hca

import (
	"encoding/binary"

	"ibup/test/fabric"
)

// maxMTU is the largest IB MTU.
const maxMTU = 4096

// Receive implements [fabric.Endpoint].
func (h *HCA) Receive(p fabric.Packet) {
	h.mu.Lock()
	defer h.unlock()
	if h.levers.dead || h.bus == nil {
		return
	}
	h.receive(p)
}

// receive gives a packet to the queues that it is for.
func (h *HCA) receive(p fabric.Packet) {
	multicast := isMulticast(p.DLID)
	if p.DestQP != fabric.QP0 && h.info.State != fabric.StateActive {
		return
	}
	h.count.received(&p, multicast)
	switch {
	case multicast && p.GRH != nil:
		for _, q := range h.fw.groups[p.GRH.DGID] {
			h.deliver(q, p)
		}
	case multicast:
	case p.DestQP == fabric.QP0 && h.answerSMP(p):
	case p.DestQP == fabric.QP0:
		h.deliverType(qpSMI, p)
	case p.DestQP == fabric.QP1:
		h.deliverType(qpGSI, p)
	default:
		if q, ok := h.fw.qps.get(p.DestQP); ok && q.typ == qpUD {
			h.deliver(q, p)
		}
	}
}

func (h *HCA) deliverType(typ uint64, p fabric.Packet) {
	for _, q := range h.fw.qps.items {
		if q.typ == typ {
			h.deliver(q, p)
			return
		}
	}
}

// loopback gives a multicast packet to the other members on this port. The
// sender does not get its own (IBA 10.5.2.1): what block_lb_mc asks for is
// never done otherwise.
func (h *HCA) loopback(from *queuePair, p fabric.Packet) {
	if p.GRH == nil {
		return
	}
	for _, q := range h.fw.groups[p.GRH.DGID] {
		if q != from {
			h.deliver(q, p)
		}
	}
}

// deliver puts a packet into the next receive buffer of a QP, if the QP may
// have it (IBA 9.6, 10.9).
func (h *HCA) deliver(q *queuePair, p fabric.Packet) {
	if q.state < qpRTR || q.state == qpErr || !h.pkeyAllowed(q, p.PKey) || !h.qkeyAllowed(q, p.QKey) {
		return
	}
	var w receiveWQE
	var ok bool
	if q.shared != nil {
		w, ok = h.popShared(q.shared)
	} else if q.hasRQ {
		w, ok = h.pop(&q.rq)
		w.pd = q.pd
	}
	if !ok {
		if c, has := h.fw.counters.get(qpcCounterSet.u32(q.ctx[:])); has {
			c.outOfBuffer++
		}
		return
	}
	if synd := h.scatter(q, w, p); synd != 0 {
		h.violation("QP %#x: receive request %#x fails with syndrome %#x", q.id, w.counter, synd)
		h.failReceive(q, w, synd)
		q.state = qpErr
		h.flushErrors()
		return
	}
	var e cqe
	e.be16(cqeSLID, p.SLID)
	flags := uint32(p.SL)<<24 | p.SrcQP&0xffffff
	if p.GRH != nil {
		flags |= 1 << 28 // MLX5_GRH_IN_BUFFER
	}
	e.be32(cqeFlagsRQPN, flags)
	e.be32(cqeByteCount, uint32(grhSize+len(p.Payload)))
	e.be32(cqeOpQPN, q.id)
	e.be16(cqeWQECounter, w.counter)
	e.be32(cqeSRQN, qpcUserIndex.u32(q.ctx[:]))
	opcode := byte(cqeRespSend)
	switch {
	case p.Opcode == fabric.OpcodeUDSendImm:
		opcode = cqeRespSendImm
		e.be32(cqeImm, p.Imm)
	case q.typ == qpGSI:
		e.be32(cqeImm, uint32(p.PKey))
	}
	h.postCQE(q.cqRecv, opcode, e)
}

// failReceive completes a receive request with an error.
func (h *HCA) failReceive(q *queuePair, w receiveWQE, synd byte) {
	var e cqe
	e.be32(cqeSRQN, qpcUserIndex.u32(q.ctx[:]))
	e[cqeErrSyndrome] = synd
	e.be32(cqeOpQPN, q.id)
	e.be16(cqeWQECounter, w.counter)
	h.postCQE(q.cqRecv, cqeRespErr, e)
}

// scatter writes a packet, after the 40 bytes that are for its GRH, to the data
// segments of a receive request.
func (h *HCA) scatter(q *queuePair, w receiveWQE, p fabric.Packet) byte {
	data := append(grhBytes(p), p.Payload...)
	for segs := w.raw; len(data) > 0; segs = segs[wqeDS:] {
		if len(segs) < wqeDS {
			return syndLocalLength
		}
		n := int(binary.BigEndian.Uint32(segs))
		key, addr := binary.BigEndian.Uint32(segs[4:]), binary.BigEndian.Uint64(segs[8:])
		if key == lkeyInvalid && n == 0 {
			return syndLocalLength
		}
		n = min(n, len(data))
		if !h.access(key, w.pd, qpcReserveLKey.is(q.ctx[:]), addr, data[:n], true) {
			return syndLocalProt
		}
		data = data[n:]
	}
	return 0
}

// grhBytes is the GRH as it lies in a receive buffer (IBA 8.3); zeros when the
// packet has none.
func grhBytes(p fabric.Packet) []byte {
	b := make([]byte, grhSize, grhSize+len(p.Payload))
	if p.GRH == nil {
		return b
	}
	binary.BigEndian.PutUint32(b, 6<<28|uint32(p.GRH.TrafficClass)<<20|p.GRH.FlowLabel&0xfffff)
	binary.BigEndian.PutUint16(b[4:], uint16(12+8+len(p.Payload)+4)) // BTH, DETH, ICRC
	b[6], b[7] = 0x1b, p.GRH.HopLimit
	copy(b[8:], p.GRH.SGID[:])
	copy(b[24:], p.GRH.DGID[:])
	return b
}

// pkey returns an entry of the P_Key table, 0 beyond its end.
func (h *HCA) pkey(i uint64) uint16 {
	if i < uint64(len(h.info.PKeys)) {
		return h.info.PKeys[i]
	}
	return 0
}

// pkeyAllowed checks a packet's P_Key against the QP's, or, for QP1, against
// the table (IBA 10.9.3); QP0 has none.
func (h *HCA) pkeyAllowed(q *queuePair, key uint16) bool {
	switch q.typ {
	case qpSMI:
		return true
	case qpGSI:
		for _, k := range h.info.PKeys {
			if pkeysMatch(k, key) {
				return true
			}
		}
	default:
		if pkeysMatch(h.pkey(adsPKeyIndex.get(q.path())), key) {
			return true
		}
	}
	h.count.pkeyViolations++
	return false
}

// pkeysMatch reports whether two P_Keys are of one partition and not both
// limited members.
func pkeysMatch(a, b uint16) bool {
	return a&0x7fff == b&0x7fff && a&0x7fff != 0 && (a|b)&fabric.FullMembership != 0
}

func (h *HCA) qkeyAllowed(q *queuePair, key uint32) bool {
	want := q.qkey()
	switch q.typ {
	case qpSMI:
		return true
	case qpGSI:
		want = fabric.GSIQKey
	}
	if key != want {
		h.count.qkeyViolations++
	}
	return key == want
}

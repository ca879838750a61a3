package hca

import (
	"encoding/binary"

	"ibup/test/fabric"
)

// sqDoorbell executes the send requests of a QP that its doorbell announces.
func (h *HCA) sqDoorbell(page, qpn uint32) {
	q, ok := h.fw.qps.get(qpn)
	switch {
	case !ok || !q.hasSQ:
		h.violation("doorbell for the send queue of QP %#x, which does not exist", qpn)
	case page != q.uar:
		h.violation("doorbell for QP %#x at UAR %#x, its own is %#x", qpn, page, q.uar)
	case q.state == qpRTS:
		h.sendAll(q)
	case q.state == qpErr || q.state == qpSQErr:
		h.flushSQ(q)
	default:
		h.violation("doorbell for the send queue of QP %#x in state %s", qpn, qpStateNames[q.state])
	}
}

// sendWQE is a send request as read from its queue.
type sendWQE struct {
	index  uint16 // in basic blocks
	blocks uint16
	raw    []byte
}

func (w *sendWQE) opcode() byte { return w.raw[wqeOpcode+3] }

func (w *sendWQE) signaled() bool { return w.raw[wqeFmCeSe]&wqeCQUpdate != 0 }

// nextWQE reads the oldest request of the send queue and takes it off.
func (h *HCA) nextWQE(q *queuePair) (*sendWQE, bool) {
	v, ok := h.record(q.dbr + 4)
	if !ok || uint16(v) == q.sq {
		return nil, false
	}
	if n := uint16(v) - q.sq; uint32(n) > 1<<q.sqLog {
		h.violation("QP %#x: %d blocks posted to a send queue of %d", q.id, n, 1<<q.sqLog)
		q.sq = uint16(v)
		return nil, false
	}
	w := &sendWQE{index: q.sq, raw: make([]byte, wqeBB)}
	if !h.readSQ(q, q.sq, w.raw) {
		return nil, false
	}
	head := binary.BigEndian.Uint32(w.raw[wqeOpcode:])
	qpnDS := binary.BigEndian.Uint32(w.raw[wqeQPNDS:])
	ds := int(qpnDS & 0x3f)
	if uint16(head>>8) != q.sq || qpnDS>>8 != q.id || ds == 0 {
		h.violation("QP %#x: request %#x has index %#x, QP %#x, %d segments", q.id, q.sq, uint16(head>>8), qpnDS>>8, ds)
	}
	ds = max(ds, 1)
	w.blocks = uint16((ds*wqeDS + wqeBB - 1) / wqeBB)
	if n := ds * wqeDS; n > wqeBB {
		w.raw = make([]byte, n)
		if !h.readSQ(q, q.sq, w.raw) {
			return nil, false
		}
	} else {
		w.raw = w.raw[:n]
	}
	q.sq += w.blocks
	return w, true
}

// readSQ reads from a send queue, which is a ring.
func (h *HCA) readSQ(q *queuePair, block uint16, p []byte) bool {
	size := uint64(wqeBB) << q.sqLog
	off := uint64(block) * wqeBB & (size - 1)
	n := min(size-off, uint64(len(p)))
	if !h.readBuf(&q.buf, q.sqOff+off, p[:n]) {
		return false
	}
	return n == uint64(len(p)) || len(p) <= int(size) && h.readBuf(&q.buf, q.sqOff, p[n:])
}

func (h *HCA) sendAll(q *queuePair) {
	for q.state == qpRTS {
		w, ok := h.nextWQE(q)
		if !ok {
			return
		}
		synd := h.send(q, w)
		if synd != 0 {
			// A datagram QP's send queue stops and waits for SQERR2RTS.
			h.violation("QP %#x: send request %#x fails with syndrome %#x", q.id, w.index, synd)
			q.state = qpSQErr
			h.completeSend(q, w, synd)
			h.flushSQ(q)
			return
		}
		if w.signaled() {
			h.completeSend(q, w, 0)
		}
	}
}

// flushSQ completes all send requests with an error.
func (h *HCA) flushSQ(q *queuePair) {
	for q.hasSQ {
		w, ok := h.nextWQE(q)
		if !ok {
			return
		}
		h.completeSend(q, w, syndFlush)
	}
}

func (h *HCA) completeSend(q *queuePair, w *sendWQE, synd byte) {
	var e cqe
	e.be32(cqeOpQPN, uint32(w.opcode())<<24|q.id)
	e.be16(cqeWQECounter, w.index)
	if synd != 0 {
		e[cqeErrSyndrome] = synd
		h.postCQE(q.cqSend, cqeReqErr, e)
		return
	}
	h.postCQE(q.cqSend, cqeReq, e)
}

// send carries out one request and returns its syndrome, 0 for success.
func (h *HCA) send(q *queuePair, w *sendWQE) byte {
	switch op := w.opcode(); {
	case op == opcodeNOP:
		return 0
	case op == opcodeUMR && q.typ == qpUMR:
		return h.umr(w)
	case (op == opcodeSend || op == opcodeSendImm) && q.typ != qpUMR:
		return h.sendDatagram(q, w)
	}
	return syndLocalQPOp
}

// sendDatagram builds the packet of a datagram and queues it.
func (h *HCA) sendDatagram(q *queuePair, w *sendWQE) byte {
	av := w.raw[wqeCtrlSize:]
	if len(av) < avBaseSize {
		return syndLocalQPOp
	}
	dqp := binary.BigEndian.Uint32(av[avDQP:])
	data := av[avBaseSize:]
	if dqp&avExtended != 0 {
		if len(av) < avSize {
			return syndLocalQPOp
		}
		data = av[avSize:]
	}
	payload, synd := h.gather(q, data)
	if synd != 0 {
		return synd
	}
	if len(payload) > h.info.MTU {
		return syndLocalLength
	}
	p := fabric.Packet{
		SLID: h.info.LID, DLID: binary.BigEndian.Uint16(av[avRLID:]), SL: av[avRateSL] & 0xf,
		Opcode: fabric.OpcodeUDSend, PKey: h.pkey(adsPKeyIndex.get(q.path())),
		DestQP: dqp & 0xffffff, PSN: q.psn, QKey: binary.BigEndian.Uint32(av[avQKey:]), SrcQP: h.sourceQP(q),
		Payload: payload,
	}
	if p.QKey>>31 != 0 { // the QP's own instead (IBA 10.2.5)
		p.QKey = q.qkey()
	}
	if w.opcode() == opcodeSendImm {
		p.Opcode, p.Imm = fabric.OpcodeUDSendImm, binary.BigEndian.Uint32(w.raw[wqeImm:])
	}
	if dqp&avExtended != 0 {
		p.GRH = h.grh(av)
	}
	q.psn = (q.psn + 1) & 0xffffff
	h.transmit(q, p)
	return 0
}

// sourceQP is the QP number that a packet carries.
func (h *HCA) sourceQP(q *queuePair) uint32 {
	switch n := qpcDETHSQPN.u32(q.ctx[:]); {
	case q.typ == qpSMI:
		return fabric.QP0
	case q.typ == qpGSI:
		return fabric.QP1
	case n != 0:
		return n
	}
	return q.id
}

// grh makes the global route header that an address vector asks for.
func (h *HCA) grh(av []byte) *fabric.GRH {
	v := binary.BigEndian.Uint32(av[avGIDFlow:])
	if v&avGRHPresent == 0 {
		return nil
	}
	return &fabric.GRH{
		TrafficClass: av[avTClass], FlowLabel: v & 0xfffff, HopLimit: av[avHopLimit],
		SGID: h.gid(int(v >> 20 & 0xff)), DGID: fabric.GID(av[avRGID:]),
	}
}

// gather collects the data segments of a send request.
func (h *HCA) gather(q *queuePair, segs []byte) ([]byte, byte) {
	var out []byte
	for len(segs) >= wqeDS {
		n := binary.BigEndian.Uint32(segs)
		if n&dsInline != 0 {
			n &= dsInlineMask
			if int(n)+4 > len(segs) {
				return nil, syndLocalQPOp
			}
			out = append(out, segs[4:4+n]...)
			segs = segs[min(len(segs), (int(n)+4+wqeDS-1)/wqeDS*wqeDS):]
			continue
		}
		if len(out)+int(n) > maxMTU {
			return nil, syndLocalLength
		}
		part := make([]byte, n)
		key, addr := binary.BigEndian.Uint32(segs[4:]), binary.BigEndian.Uint64(segs[8:])
		if !h.access(key, q.pd, qpcReserveLKey.is(q.ctx[:]), addr, part, false) {
			return nil, syndLocalProt
		}
		out = append(out, part...)
		segs = segs[wqeDS:]
	}
	return out, 0
}

// transmit sends a packet to the wire, to queues of this port, or to both.
func (h *HCA) transmit(q *queuePair, p fabric.Packet) {
	management := p.DestQP == fabric.QP0
	switch {
	case p.PKey&^fabric.FullMembership == 0 && !management, // no such P_Key
		h.info.State != fabric.StateActive && !management:
		h.count.xmitDiscards++
		return
	}
	multicast := isMulticast(p.DLID)
	h.count.sent(&p, multicast)
	switch {
	case multicast:
		h.loopback(q, p)
		h.outbox = append(h.outbox, p)
	case p.DLID == h.info.LID || management && p.DLID == fabric.PermissiveLID:
		h.receive(p)
	default:
		h.outbox = append(h.outbox, p)
	}
}

func isMulticast(lid uint16) bool {
	return lid >= fabric.MulticastLID && lid != fabric.PermissiveLID
}

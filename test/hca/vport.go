package hca

import (
	"encoding/binary"

	"ibup/test/fabric"
)

// The port as the virtual port commands show it.

// subnetTimeout is PortInfo.SubnetTimeOut: 4.096 us * 2^18, about a second.
const subnetTimeout = 18

// defaultCapMask is PortInfo.CapabilityMask as a ConnectX-5 has it before
// anybody adds to it: traps, SL mapping, system image GUID, cable information,
// extended speeds, CapabilityMask2, vendor class, notices, client reregistration.
const defaultCapMask = 0x2650e848

// ownVport refuses queries for the virtual ports of other functions.
func (h *HCA) ownVport(r *request) bool {
	if vportOther.is(r.in) {
		h.violation("%v for virtual port %d, which this function does not manage", r.op, vportNumber.get(r.in))
		return false
	}
	if p := vportPort.get(r.in); p > 1 {
		h.violation("%v for port %d", r.op, p)
		return false
	}
	return true
}

func (h *HCA) queryHCAVport(r *request) Status {
	if !h.ownVport(r) {
		return StatusBadParam
	}
	h.refresh()
	c := r.out[vportContext:]
	hvHasSMI.setBool(c, h.hasSMI())
	hvPhysState.set(c, uint64(h.info.Phys))
	hvPortState.set(c, uint64(h.info.State))
	hvVportState.set(c, uint64(h.info.State))
	hvSystemGUID.set(c, uint64(h.cfg.NodeGUID))
	hvPortGUID.set(c, uint64(h.cfg.PortGUID))
	hvNodeGUID.set(c, uint64(h.cfg.NodeGUID))
	hvCapMask.set(c, uint64(h.info.CapMask))
	hvCapMaskSelect.set(c, 0xffffffff) // all of them may be changed
	hvLID.set(c, uint64(h.info.LID))
	hvSubnetTimeout.set(c, subnetTimeout)
	hvSMLID.set(c, uint64(h.info.SMLID))
	hvSMSL.set(c, uint64(h.info.SMSL))
	hvQKeyViol.set(c, uint64(h.count.qkeyViolations))
	hvPKeyViol.set(c, uint64(h.count.pkeyViolations))
	return StatusOK
}

// hasSMI: a virtual function has no QP0 of its own.
func (h *HCA) hasSMI() bool { return h.cfg.DeviceID != deviceConnectX5VF }

// modifyHCAVport changes the capability mask, the one thing a function may
// change of its own port.
func (h *HCA) modifyHCAVport(r *request) Status {
	if !h.ownVport(r) {
		return StatusBadParam
	}
	c := r.in[vportContext:]
	if sel := hvFieldSelect.get(c); sel != 0 {
		h.violation("MODIFY_HCA_VPORT_CONTEXT selects %#x of its own port", sel)
		return StatusBadParam
	}
	sel := hvCapMaskSelect.u32(c)
	h.setCapMask(h.info.CapMask&^sel | hvCapMask.u32(c)&sel)
	return StatusOK
}

func (h *HCA) setCapMask(m uint32) {
	h.info.CapMask = m
	if h.port != nil {
		h.port.SetCapMask(m)
	}
}

// gid returns an entry of the GID table. Only the first has a GUID; the others
// are the prefix alone, as on a card.
func (h *HCA) gid(i int) fabric.GID {
	var g fabric.GID
	binary.BigEndian.PutUint64(g[:], h.info.Prefix)
	if i == 0 {
		binary.BigEndian.PutUint64(g[8:], uint64(h.cfg.PortGUID))
	}
	return g
}

// entries answers a query for one entry of a table, or for all of them.
func (h *HCA) entries(r *request, total, size int, put func(i int, b []byte)) (int, Status) {
	first, n := int(vportIndex.get(r.in)), 1
	if first == allEntries {
		first, n = 0, total
	}
	if !h.ownVport(r) {
		return 0, StatusBadParam
	}
	if first >= total {
		h.violation("%v for entry %d of %d", r.op, first, total)
		return 0, StatusBadIndex
	}
	if len(r.out) < vportListData+n*size {
		return 0, StatusBadOutputLen
	}
	for i := range n {
		put(first+i, r.out[vportListData+i*size:])
	}
	return n, StatusOK
}

func (h *HCA) queryHCAVportGID(r *request) Status {
	h.refresh()
	n, s := h.entries(r, gidEntries, 16, func(i int, b []byte) {
		g := h.gid(i)
		copy(b, g[:])
	})
	gidsNum.set(r.out, uint64(n))
	return s
}

func (h *HCA) queryHCAVportPKey(r *request) Status {
	h.refresh()
	_, s := h.entries(r, pkeyEntries, pkeyEntrySize, func(i int, b []byte) {
		binary.BigEndian.PutUint32(b, uint32(h.pkey(uint64(i))))
	})
	return s
}

func (h *HCA) queryVportState(r *request) Status {
	up := uint64(0)
	if h.info.Phys == fabric.PhysLinkUp {
		up = 1
	}
	vportStateAdmin.set(r.out, 1)
	vportStateOper.set(r.out, up)
	return StatusOK
}

// queryNICVport is asked on an Ethernet port only. The MAC address is made of
// the port GUID as EUI-64 rules have it.
func (h *HCA) queryNICVport(r *request) Status {
	if !h.ownVport(r) {
		return StatusBadParam
	}
	c := r.out[nicVportContext:]
	g := uint64(h.cfg.PortGUID)
	nicSystemGUID.set(c, uint64(h.cfg.NodeGUID))
	nicPortGUID.set(c, g)
	nicNodeGUID.set(c, uint64(h.cfg.NodeGUID))
	nicMTU.set(c, 1500)
	nicPermanentAddrHigh.set(c, g>>48)
	nicPermanentAddrLow.set(c, g>>40&0xff<<24|g&0xffffff)
	return StatusOK
}

// portCounters count what goes through the port; octets include headers and
// ICRC, as PortXmitData does.
type portCounters struct {
	tx, rx         [2]traffic // unicast, multicast
	xmitDiscards   uint64
	pkeyViolations uint16
	qkeyViolations uint16
	linkDowned     uint8
}

type traffic struct{ packets, octets uint64 }

func (t *traffic) add(p *fabric.Packet) {
	const lrh, bth, deth, icrc, imm = 8, 12, 8, 4, 4
	n := lrh + bth + deth + icrc + (len(p.Payload)+3)&^3
	if p.GRH != nil {
		n += grhSize
	}
	if p.Opcode == fabric.OpcodeUDSendImm {
		n += imm
	}
	t.packets++
	t.octets += uint64(n)
}

func (c *portCounters) sent(p *fabric.Packet, multicast bool)     { c.tx[b2i(multicast)].add(p) }
func (c *portCounters) received(p *fabric.Packet, multicast bool) { c.rx[b2i(multicast)].add(p) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sum(t [2]traffic) traffic {
	return traffic{t[0].packets + t[1].packets, t[0].octets + t[1].octets}
}

func (h *HCA) queryVportCounter(r *request) Status {
	if !h.ownVport(r) {
		return StatusBadParam
	}
	for off, t := range map[int]traffic{
		vcRxUnicast: h.count.rx[0], vcRxMulticast: h.count.rx[1],
		vcTxUnicast: h.count.tx[0], vcTxMulticast: h.count.tx[1],
		vcTxErrors: {packets: h.count.xmitDiscards},
	} {
		binary.BigEndian.PutUint64(r.out[off:], t.packets)
		binary.BigEndian.PutUint64(r.out[off+8:], t.octets)
	}
	if counterClear.is(r.in) {
		h.count = portCounters{}
	}
	return StatusOK
}

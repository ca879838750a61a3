package hca

import (
	"encoding/binary"

	"ibup/test/fabric"
)

// Management datagrams: what MAD_IFC and the port's own subnet management
// agent answer (IBA 13.4, 14.2, 16.1).

// MAD header, byte offsets (IBA 13.4.2), and where attributes begin.
const (
	madClass     = 1
	madMethod    = 3
	madStatus    = 4
	madAttribute = 16
	madModifier  = 20
	madData      = 64 // of SMPs and of performance management

	classSMLID    = 0x01
	classPM       = 0x04
	classSMDirect = 0x81

	methodGet      = 0x01
	methodSet      = 0x02
	methodResponse = 0x80

	madUnsupportedMethod    = 2 << 2 // status field, bits 4:2
	madUnsupportedAttribute = 3 << 2
	madInvalidValue         = 7 << 2
	madDirectionBit         = 1 << 15 // of directed route SMPs: response
)

// An attribute fills the data of a response from the modifier of a request; it
// returns a status.
type attribute func(h *HCA, modifier uint32, data []byte) uint16

var smAttributes = map[uint16]attribute{
	0x10: (*HCA).nodeDescription,
	0x11: (*HCA).nodeInfo,
	0x14: (*HCA).guidInfo,
	0x15: (*HCA).portInfo,
	0x16: (*HCA).pkeyTable,
}

var pmAttributes = map[uint16]attribute{
	0x01: (*HCA).pmClassPortInfo,
	0x12: (*HCA).pmPortCounters,
	0x1d: (*HCA).pmPortCountersExt,
}

// madIfc answers a MAD that the driver passes on.
func (h *HCA) madIfc(r *request) Status {
	if p := madIfcPort.get(r.in); p != 1 {
		h.violation("MAD_IFC for port %d", p)
		return StatusBadParam
	}
	h.refresh()
	mad := r.in[madIfcMAD : madIfcMAD+madSize]
	copy(r.out[madIfcMAD:], h.answerMAD(mad))
	return StatusOK
}

// answerMAD returns the response to a request.
func (h *HCA) answerMAD(mad []byte) []byte {
	out := make([]byte, madSize)
	copy(out, mad)
	out[madMethod] = mad[madMethod]&0x7f | methodResponse
	if mad[madMethod] == methodSet {
		out[madMethod] = methodGet | methodResponse
	}
	var table map[uint16]attribute
	switch mad[madClass] {
	case classSMLID, classSMDirect:
		table = smAttributes
	case classPM:
		table = pmAttributes
	}
	get, ok := table[binary.BigEndian.Uint16(mad[madAttribute:])]
	status := uint16(0)
	switch {
	case !ok:
		status = madUnsupportedAttribute
	case mad[madMethod] == methodSet && mad[madClass] != classPM:
		// The fabric's SM sets ports without MADs; nobody else may.
		status = madUnsupportedMethod
	default:
		data := out[madData : madData+64]
		if mad[madClass] == classPM {
			data = out[madData:]
		}
		clear(data)
		status = get(h, binary.BigEndian.Uint32(mad[madModifier:]), data)
	}
	if mad[madClass] == classSMDirect {
		status |= madDirectionBit
	}
	binary.BigEndian.PutUint16(out[madStatus:], status)
	return out
}

// answerSMP lets the port's agent answer an SMP from the wire. What is not for
// the agent, responses for instance, goes to QP0.
func (h *HCA) answerSMP(p fabric.Packet) bool {
	if len(p.Payload) != madSize {
		return false
	}
	m := p.Payload[madMethod]
	c := p.Payload[madClass]
	attr := binary.BigEndian.Uint16(p.Payload[madAttribute:])
	const smInfo = 0x20 // a subnet manager's, not the agent's
	if m != methodGet && m != methodSet || c != classSMLID && c != classSMDirect || attr == smInfo {
		return false
	}
	answer := p
	answer.SLID, answer.DLID = h.info.LID, p.SLID
	answer.DestQP, answer.SrcQP = p.SrcQP, fabric.QP0
	answer.GRH = nil
	answer.Payload = h.answerMAD(p.Payload)
	h.count.sent(&answer, false)
	if answer.DLID == h.info.LID { // asked from this port
		h.deliverType(qpSMI, answer)
	} else {
		h.outbox = append(h.outbox, answer)
	}
	return true
}

func (h *HCA) nodeDescription(_ uint32, b []byte) uint16 {
	copy(b, h.desc[:])
	return 0
}

// nodeInfo: IBA table 156 (NodeInfo).
func (h *HCA) nodeInfo(_ uint32, b []byte) uint16 {
	b[0], b[1] = 1, 1 // base and class version
	b[2], b[3] = 1, 1 // channel adapter with one port
	binary.BigEndian.PutUint64(b[4:], uint64(h.cfg.NodeGUID))
	binary.BigEndian.PutUint64(b[12:], uint64(h.cfg.NodeGUID))
	binary.BigEndian.PutUint64(b[20:], uint64(h.cfg.PortGUID))
	binary.BigEndian.PutUint16(b[28:], pkeyEntries)
	binary.BigEndian.PutUint16(b[30:], h.cfg.DeviceID)
	binary.BigEndian.PutUint32(b[36:], 1<<24|ieeeVendorID) // local port, vendor
	return 0
}

// guidInfo: 8 GUIDs to a block.
func (h *HCA) guidInfo(block uint32, b []byte) uint16 {
	if block >= gidEntries/8 {
		return madInvalidValue
	}
	binary.BigEndian.PutUint64(b, uint64(h.cfg.PortGUID))
	return 0
}

// pkeyTable: 32 P_Keys to a block.
func (h *HCA) pkeyTable(block uint32, b []byte) uint16 {
	if block &= 0xffff; block >= pkeyEntries/32 {
		return madInvalidValue
	}
	for i := range 32 {
		binary.BigEndian.PutUint16(b[2*i:], h.pkey(uint64(block)*32+uint64(i)))
	}
	return 0
}

// mtuCodes are the codes of IB MTUs (IBA 14.2.5.6, MTUCap).
var mtuCodes = map[int]byte{256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}

// portInfo: IBA 14.2.5.6, byte offsets there divided by 8.
func (h *HCA) portInfo(port uint32, b []byte) uint16 {
	if port > 1 {
		return madInvalidValue
	}
	const (
		width4X    = 2
		widths     = 3 // 1X, 4X
		speedQDR   = 4
		speeds     = 7
		speedEDR   = 2 // extended
		extSpeeds  = 3
		vls0to3    = 3
		lidPerPort = 0
	)
	i := &h.info
	mtu := mtuCodes[i.MTU]
	binary.BigEndian.PutUint64(b[8:], i.Prefix)
	binary.BigEndian.PutUint16(b[16:], i.LID)
	binary.BigEndian.PutUint16(b[18:], i.SMLID)
	const extendedSpeeds = 1 << 14 // IsExtendedSpeedsSupported
	binary.BigEndian.PutUint32(b[20:], i.CapMask|extendedSpeeds)
	b[28] = 1
	b[29], b[30], b[31] = widths, widths, width4X
	b[32] = speeds<<4 | byte(i.State)
	b[33] = byte(i.Phys)<<4 | byte(fabric.PhysPolling)
	b[34] = lidPerPort
	b[35] = speedQDR<<4 | speeds
	b[36] = mtu<<4 | i.SMSL
	b[37] = vls0to3 << 4
	b[41] = mtu
	b[43] = vls0to3 << 4
	binary.BigEndian.PutUint16(b[46:], h.count.pkeyViolations)
	binary.BigEndian.PutUint16(b[48:], h.count.qkeyViolations)
	b[50] = gidEntries
	b[51] = subnetTimeout
	b[62], b[63] = speedEDR<<4|extSpeeds, extSpeeds
	return 0
}

func (h *HCA) pmClassPortInfo(_ uint32, b []byte) uint16 {
	const extendedWidth = 1 << 9 // IB_PMA_CLASS_CAP_EXT_WIDTH
	b[0], b[1] = 1, 1
	binary.BigEndian.PutUint16(b[2:], extendedWidth)
	return 0
}

// pmPortCounters: IBA table 238, saturating.
func (h *HCA) pmPortCounters(_ uint32, b []byte) uint16 {
	tx, rx := sum(h.count.tx), sum(h.count.rx)
	b[1] = 1
	b[7] = h.count.linkDowned
	binary.BigEndian.PutUint16(b[14:], uint16(min(h.count.xmitDiscards, 0xffff)))
	for off, v := range map[int]uint64{24: tx.octets / 4, 28: rx.octets / 4, 32: tx.packets, 36: rx.packets} {
		binary.BigEndian.PutUint32(b[off:], uint32(min(v, 0xffffffff)))
	}
	return 0
}

// pmPortCountersExt: IBA table 257.
func (h *HCA) pmPortCountersExt(_ uint32, b []byte) uint16 {
	c := &h.count
	tx, rx := sum(c.tx), sum(c.rx)
	b[1] = 1
	for i, v := range []uint64{
		tx.octets / 4, rx.octets / 4, tx.packets, rx.packets,
		c.tx[0].packets, c.rx[0].packets, c.tx[1].packets, c.rx[1].packets,
	} {
		binary.BigEndian.PutUint64(b[8+8*i:], v)
	}
	return 0
}

package hca

import (
	"encoding/binary"
	"fmt"

	"ibup/test/fabric"
)

// A register is one that ACCESS_REG reads or writes: its number (MLX5_REG_* in
// driver.h), its length in bytes, and what reading and writing do. What is nil
// is refused.
type register struct {
	name  string
	size  int
	read  func(h *HCA, b []byte) // b holds what the driver sent
	write func(h *HCA, b []byte)
}

// accessReg carries out ACCESS_REG. The register's content is answered after a
// write too.
func (h *HCA) accessReg(r *request) Status {
	id := regID.u16(r.in)
	reg, ok := h.registers[id]
	r.what = fmt.Sprintf("register %#x", id)
	if ok {
		r.what = reg.name
	}
	do := reg.write
	if r.opMod == regRead {
		do = reg.read
	}
	b := make([]byte, max(reg.size, len(r.in)-regData))
	copy(b, r.in[regData:])
	switch {
	case do == nil:
		return StatusBadParam // as firmware answers for a register it does not have
	case len(r.in)-regData < min(reg.size, 4):
		h.violation("ACCESS_REG %s with %d bytes, it has %d", reg.name, len(r.in)-regData, reg.size)
		return StatusBadInputLen
	}
	do(h, b)
	copy(r.out[regData:], b)
	return StatusOK
}

// registerTable returns the registers by number.
func registerTable() map[uint16]register {
	return map[uint16]register{
		0x5001: {"PCAP", 0x14, nil, (*HCA).writePCAP},
		0x5002: {"PMLP", 0x40, (*HCA).readPMLP, nil},
		0x5003: {"PMTU", 0x10, (*HCA).readPMTU, (*HCA).keep},
		0x5004: {"PTYS", 0x40, (*HCA).readPTYS, (*HCA).keep},
		0x5006: {"PAOS", 0x10, (*HCA).readPAOS, (*HCA).keep},
		0x5008: {"PPCNT", 0x100, (*HCA).readPPCNT, nil},
		0x500f: {"PVLC", 0x10, (*HCA).readPVLC, nil},
		0x5012: {"PMAOS", 0x10, (*HCA).readPMAOS, (*HCA).keep},
		0x507f: {"PCAM", 0x50, (*HCA).readPCAM, nil},
		0x6001: {"NODE_DESC", nodeDescSize, (*HCA).readNodeDesc, (*HCA).writeNodeDesc},
		0x7004: {"HOST_ENDIANNESS", 0x10, nil, (*HCA).keep},
		0x902d: {"MRTC", 0x10, nil, (*HCA).keep},
		0x9050: {"MPEIN", 0x30, (*HCA).readMPEIN, nil},
		0x907f: {"MCAM", 0x48, (*HCA).readMCAM, nil},
		0xc00e: {"DTOR", 0x40, (*HCA).readDTOR, nil},
	}
}

// keep accepts a register without consequences.
func (h *HCA) keep([]byte) {}

const nodeDescSize = 64

func (h *HCA) readNodeDesc(b []byte)  { copy(b, h.desc[:]) }
func (h *HCA) writeNodeDesc(b []byte) { copy(h.desc[:], b) }

// writePCAP changes PortInfo.CapabilityMask (port.c, mlx5_reg_pcap, where the
// driver has it in caps_127_96).
func (h *HCA) writePCAP(b []byte) { h.setCapMask(binary.BigEndian.Uint32(b[4:])) }

// Link speeds and widths of PTYS (mlx5_ifc_ptys_reg_bits; port.h).
const (
	ptysEthProtocol  = 1 << 2
	ptysWidth4X      = 4
	ptysSpeedEDR     = 32
	ptysIBSpeeds     = 1 | 2 | 4 | 8 | 16 | 32 // SDR to EDR
	ptysIBWidths     = 1 | 2 | 4
	ptysEth100G      = 1 << 20 // 100GBASE-CR4
	ptysEthSpeeds    = ptysEth100G
	ptysConnectorDAC = 5

	ptysProtoMask  field = 0x01d<<8 | 3
	ptysEthCap     field = 0x060<<8 | 32
	ptysWidthCap   field = 0x080<<8 | 16
	ptysIBCap      field = 0x090<<8 | 16
	ptysEthAdmin   field = 0x0c0<<8 | 32
	ptysWidthAdmin field = 0x0e0<<8 | 16
	ptysIBAdmin    field = 0x0f0<<8 | 16
	ptysEthOper    field = 0x120<<8 | 32
	ptysWidthOper  field = 0x140<<8 | 16
	ptysIBOper     field = 0x150<<8 | 16
	ptysConnector  field = 0x17c<<8 | 4
)

func (h *HCA) readPTYS(b []byte) {
	up := h.info.Phys == fabric.PhysLinkUp
	if ptysProtoMask.get(b) == ptysEthProtocol {
		ptysEthCap.set(b, ptysEthSpeeds)
		ptysEthAdmin.set(b, ptysEthSpeeds)
		ptysConnector.set(b, ptysConnectorDAC)
		if up {
			ptysEthOper.set(b, ptysEth100G)
		}
		return
	}
	ptysWidthCap.set(b, ptysIBWidths)
	ptysIBCap.set(b, ptysIBSpeeds)
	ptysWidthAdmin.set(b, ptysIBWidths)
	ptysIBAdmin.set(b, ptysIBSpeeds)
	// Without a link a card still reports its best; 0 would be no valid width.
	ptysWidthOper.set(b, ptysWidth4X)
	ptysIBOper.set(b, ptysSpeedEDR)
}

// readPMTU: mlx5_ifc_pmtu_reg_bits. An InfiniBand port tells IB MTUs.
func (h *HCA) readPMTU(b []byte) {
	mtu := uint64(h.info.MTU)
	if h.fw.link == fabric.LinkEthernet {
		mtu = 10000
	}
	for _, f := range []field{0x020<<8 | 16, 0x040<<8 | 16, 0x060<<8 | 16} { // max, admin, oper
		f.set(b, mtu)
	}
}

// readPVLC: mlx5_ifc_pvlc_reg_bits, 4 data VLs (mlx5_ib, MLX5_VL_HW_0_3).
func (h *HCA) readPVLC(b []byte) {
	const vl0to3 = 4
	for _, f := range []field{0x03c<<8 | 4, 0x05c<<8 | 4, 0x07c<<8 | 4} { // cap, admin, operational
		f.set(b, vl0to3)
	}
}

// readPAOS: mlx5_ifc_paos_reg_bits, administrative and operational state.
func (h *HCA) readPAOS(b []byte) {
	oper := uint64(2)
	if h.info.Phys == fabric.PhysLinkUp {
		oper = 1
	}
	field(0x014<<8|4).set(b, 1)
	field(0x01c<<8|4).set(b, oper)
}

// readPMLP: mlx5_ifc_pmlp_reg_bits, four lanes of module 0.
func (h *HCA) readPMLP(b []byte) {
	field(0x018<<8|8).set(b, 4)
	for lane := range 4 {
		binary.BigEndian.PutUint32(b[4+4*lane:], uint32(lane)<<16)
	}
}

// readPMAOS: mlx5_ifc_pmaos_reg_bits, the module is enabled and plugged.
func (h *HCA) readPMAOS(b []byte) {
	field(0x014<<8|4).set(b, 1)
	field(0x01c<<8|4).set(b, 1)
}

// PPCNT (mlx5_ifc_ppcnt_reg_bits) and its group for InfiniBand
// (mlx5_ifc_ib_port_cntrs_grp_data_layout_bits).
const (
	ppcntGroup      field = 0x01a<<8 | 6
	ppcntIB               = 0x20
	ppcntData             = 0x08
	ibcLinkDowned   field = 0x018<<8 | 8
	ibcXmitDiscards field = 0x050<<8 | 16
)

func (h *HCA) readPPCNT(b []byte) {
	clear(b[ppcntData:])
	if ppcntGroup.get(b) == ppcntIB {
		c := b[ppcntData:]
		ibcLinkDowned.set(c, uint64(h.count.linkDowned))
		ibcXmitDiscards.set(c, min(h.count.xmitDiscards, 0xffff))
	}
}

// readPCAM: mlx5_ifc_pcam_reg_bits. Of the registers 5000 to 507f it has those
// of the table, of the features none.
func (h *HCA) readPCAM(b []byte) { h.registerMask(b[0x08:0x18], 0x5000) }

// readMCAM: mlx5_ifc_mcam_reg_bits; features: slot power (MPEIN).
func (h *HCA) readMCAM(b []byte) {
	const pciStatusAndPower field = 0x06e<<8 | 1
	group := b[3]
	clear(b[8:])
	if group == 0 {
		h.registerMask(b[0x08:0x18], 0x9000)
	}
	pciStatusAndPower.set(b[0x28:], 1)
}

// registerMask sets, in a 128-bit mask whose last bit is the first register,
// the bits of the registers there are from base on.
func (h *HCA) registerMask(mask []byte, base uint16) {
	for id := range h.registers {
		if id >= base && id < base+128 {
			i := int(id - base)
			mask[len(mask)-1-i/8] |= 1 << (i % 8)
		}
	}
}

// readMPEIN: mlx5_ifc_mpein_reg_bits, a PCIe x16 link of generation 3, and the
// slot's power.
func (h *HCA) readMPEIN(b []byte) {
	field(0x068<<8|8).set(b, 16)
	field(0x070<<8|16).set(b, 1<<2)
	field(0x0cd<<8|3).set(b, uint64(h.levers.power.status))
	field(0x0f4<<8|12).set(b, uint64(h.levers.power.watts))
}

// readDTOR: mlx5_ifc_dtor_reg_bits, timeouts in milliseconds. They are about the
// driver's own (lib/tout.c): only the command timeout is a matter of Config.
func (h *HCA) readDTOR(b []byte) {
	for off, ms := range map[int]uint32{
		0x04: 2000,   // PCIe toggle
		0x14: 2000,   // health poll
		0x18: 60000,  // full crdump
		0x1c: 60000,  // firmware reset
		0x20: 2000,   // flush on error
		0x24: 5000,   // PCI sync update
		0x28: 3000,   // teardown
		0x2c: 5000,   // FSM reactivate
		0x30: 5000,   // reclaim pages
		0x34: 120000, // reclaim pages of VFs
	} {
		binary.BigEndian.PutUint32(b[off:], ms)
	}
}

package hca

import (
	"maps"

	"ibup/test/fabric"
)

const (
	capBytes = 0x100  // mlx5_ifc_cmd_hca_cap_bits; EL7's driver exchanges no more
	capUnion = 0x1000 // mlx5_ifc_hca_cap_union_bits

	capGeneral = 0 // capability types (mlx5_cap_type in device.h), op_mod >> 1
)

// A capability is a field of mlx5_ifc_cmd_hca_cap_bits with its value.
type capability struct {
	name  string
	field field
	value uint64
}

// generalCaps is what the device can do: less than a card, but nothing that is
// not carried out. Everything not listed is zero.
var generalCaps = []capability{
	{"vhca_id", 0x030<<8 | 16, 0},

	// Sizes, as a ConnectX-5 has them.
	{"log_max_srq_sz", 0x080<<8 | 8, 15},
	{"log_max_qp_sz", 0x088<<8 | 8, 15},
	{"log_max_qp", 0x09b<<8 | 5, 18}, // the drivers' profile asks for 18 and warns of less
	{"log_max_srq", 0x0ab<<8 | 5, 18},
	{"max_sgl_for_optimized_performance", 0x0c0<<8 | 8, 32},
	{"log_max_cq_sz", 0x0c8<<8 | 8, 22},
	{"log_max_cq", 0x0db<<8 | 5, 24},
	{"log_max_eq_sz", 0x0e0<<8 | 8, 22},
	{"log_max_mkey", 0x0ea<<8 | 6, 24},
	{"log_max_eq", 0x0fc<<8 | 4, 7},
	{"max_indirection", 0x100<<8 | 8, 4},
	{"log_max_mrw_sz", 0x109<<8 | 7, 64},
	{"log_max_klm_list_size", 0x11a<<8 | 6, 16},
	{"log_max_ra_req_qp", 0x14a<<8 | 6, 4},
	{"log_max_ra_res_qp", 0x15a<<8 | 6, 4},
	{"gid_table_size", 0x170<<8 | 16, 0},  // gidEntries (vport.c, mlx5_get_gid_table_len)
	{"pkey_table_size", 0x190<<8 | 16, 0}, // pkeyEntries (device.h, mlx5_to_sw_pkey_sz)
	{"local_ca_ack_delay", 0x1ab<<8 | 5, 16},
	{"num_ports", 0x1b8<<8 | 8, 1},
	{"log_max_msg", 0x1c3<<8 | 5, 30},
	{"max_tc", 0x1cc<<8 | 4, 8},
	{"stat_rate_support", 0x1e0<<8 | 16, 0x7ff},
	{"log_pg_sz", 0x258<<8 | 8, 12},
	{"max_wqe_sz_sq", 0x290<<8 | 16, 1024},
	{"max_wqe_sz_rq", 0x2b0<<8 | 16, 512},
	{"max_qp_mcg", 0x2e7<<8 | 25, 240},
	{"log_max_mcg", 0x318<<8 | 8, 21},
	{"log_max_transport_domain", 0x323<<8 | 5, 16},
	{"log_max_pd", 0x32b<<8 | 5, 23},
	{"log_max_xrcd", 0x33b<<8 | 5, 24},
	{"log_max_rmp", 0x383<<8 | 5, 18},
	{"log_max_wq_sz", 0x3db<<8 | 5, 15},
	{"max_qp_cnt", 0x186<<8 | 10, 128}, // Q counters
	{"uar_sz", 0x24a<<8 | 6, 5},
	{"log_bf_reg_size", 0x26b<<8 | 5, logBFRegister},
	{"num_of_uars_per_page", 0x520<<8 | 32, 1},
	{"device_frequency_mhz", 0x4c0<<8 | 32, coreClockKHz / 1000},
	{"device_frequency_khz", 0x4e0<<8 | 32, coreClockKHz},

	// Transport.
	{"xrc", 0x23c<<8 | 1, 1},           // mlx5_ib does not load without
	{"ud", 0x23d<<8 | 1, 1},            // uc and rc: not carried out
	{"set_deth_sqpn", 0x238<<8 | 1, 1}, // GSI MADs are sent by ordinary QPs, one per P_Key
	{"block_lb_mc", 0x228<<8 | 1, 1},
	{"pkv", 0x237<<8 | 1, 1}, // P_Key and Q_Key violations are counted
	{"qkv", 0x236<<8 | 1, 1},
	{"compact_address_vector", 0x200<<8 | 1, 1},
	{"cqe_version", 0x1fc<<8 | 4, 1},
	{"cq_oi", 0x220<<8 | 1, 1},
	{"cq_moderation", 0x222<<8 | 1, 1},
	{"cd", 0x22c<<8 | 1, 0},
	{"roce", 0x21d<<8 | 1, 0},
	{"atomic", 0x21e<<8 | 1, 0},
	{"eth_net_offloads", 0x21c<<8 | 1, 0},
	{"nic_flow_table", 0x1a6<<8 | 1, 0},
	{"uc", 0x23e<<8 | 1, 0},
	{"rc", 0x23f<<8 | 1, 0},
	{"ipoib_enhanced_offloads", 0x203<<8 | 1, 0}, // needs TIS, TIR, RQ, SQ, flow tables
	{"ipoib_basic_offloads", 0x204<<8 | 1, 0},    // checksums and LSO on UD QPs

	// The driver fills its cache of memory regions, 6100 CREATE_MKEY per
	// function, only where a region's size can be changed afterwards. Saying
	// that it cannot costs nothing that IPoIB uses (fast registration for
	// NFS/RDMA and the like goes) and saves half a second per load.
	{"umr_modify_entity_size_disabled", 0x207<<8 | 1, 1},
	{"umr_modify_atomic_disabled", 0x208<<8 | 1, 1},

	// Without BlueField the driver does not test for write combining, which
	// would be 2048 single writes over the socket at each load. Its registers
	// are where log_bf_reg_size says, for plain doorbells.
	{"bf", 0x260<<8 | 1, 0},

	// How the port is asked about: by virtual port commands, or, with ib_virt
	// 0, by MAD_IFC.
	{"ib_virt", 0x1a2<<8 | 1, 1},
	{"vport_group_manager", 0x1a0<<8 | 1, 0},
	{"eswitch_manager", 0x1a7<<8 | 1, 0},
	{"port_type", 0x1b6<<8 | 2, 0}, // set by newCapabilities
	{"vport_counters", 0x181<<8 | 1, 1},
	{"ports_check", 0x1b2<<8 | 1, 1},

	// Register access, events, the rest.
	{"pcam_reg", 0x1aa<<8 | 1, 1},
	{"mcam_reg", 0x1a9<<8 | 1, 1},
	{"port_module_event", 0x1b0<<8 | 1, 1},
	{"temp_warn_event", 0x1d0<<8 | 1, 1},
	{"general_notification_event", 0x1d2<<8 | 1, 1},
	{"fast_teardown", 0x0fb<<8 | 1, 1},
	{"force_teardown", 0x110<<8 | 1, 1},
	{"driver_version", 0x261<<8 | 1, 1},
	{"cmdif_checksum", 0x210<<8 | 2, 0},
	{"log_uar_page_sz", 0x490<<8 | 16, 0},
	{"cache_line_128byte", 0x164<<8 | 1, 0},
}

const (
	logBFRegister = 9 // two buffers of 256 bytes, used in turn
	bfBufferSize  = 1 << logBFRegister / 2
)

func knownCap(name string) bool {
	for _, c := range generalCaps {
		if c.name == name {
			return true
		}
	}
	return false
}

// capabilities are the maximum and, as the driver may change it, the current
// value of each type of capability.
type capabilities struct{ max, current map[uint16][]byte }

func (h *HCA) newCapabilities(link fabric.LinkType) capabilities {
	general := make([]byte, capUnion)
	for _, c := range generalCaps {
		v := c.value
		if c.name == "port_type" {
			v = uint64(link)
		}
		if o, ok := h.cfg.Caps[c.name]; ok {
			v = o
		}
		c.field.set(general, v)
	}
	max := map[uint16][]byte{capGeneral: general}
	return capabilities{max: max, current: maps.Clone(max)}
}

// queryHCACap answers with the maximum or, op_mod bit 0, the current values.
func (h *HCA) queryHCACap(r *request) Status {
	set := h.fw.caps.max
	if r.opMod&1 == 1 {
		set = h.fw.caps.current
	}
	caps, ok := set[r.opMod>>1]
	switch {
	case capOther.is(r.in):
		h.violation("QUERY_HCA_CAP of another function (%d)", capFunctionID.u16(r.in))
		return StatusBadParam
	case !ok:
		h.violation("QUERY_HCA_CAP of type %#x, which the general capabilities do not announce", r.opMod>>1)
		return StatusBadParam
	}
	copy(r.out[hdr:], caps)
	return StatusOK
}

// setHCACap takes the current values. A driver sends back what it has read
// with a few changes; none may claim what the maximum does not have.
func (h *HCA) setHCACap(r *request) Status {
	typ := r.opMod >> 1
	caps, ok := h.fw.caps.max[typ]
	if !ok {
		h.violation("SET_HCA_CAP of type %#x, which the device does not have", typ)
		return StatusBadParam
	}
	if h.fw.initialized {
		h.violation("SET_HCA_CAP after INIT_HCA")
		return StatusBadSysState
	}
	for _, c := range generalCaps {
		if v := c.field.get(r.in[hdr:]); typ == capGeneral && v > c.field.get(caps) {
			h.violation("SET_HCA_CAP sets %s to %d, the maximum is %d", c.name, v, c.field.get(caps))
			return StatusBadParam
		}
	}
	now := make([]byte, capUnion)
	copy(now, r.in[hdr:])
	h.fw.caps.current[typ] = now
	return StatusOK
}

// capability returns the current value of a general capability.
func (h *HCA) capability(f field) uint64 { return f.get(h.fw.caps.current[capGeneral]) }

package hca

// Command mailboxes (mlx5_ifc.h). Every input starts with mbox_in, every
// output with mbox_out; the fields below are bit<<8 | width.
const (
	inOpcode field = 0x000<<8 | 16
	inOpMod  field = 0x030<<8 | 16

	outStatus field = 0x000<<8 | 8 // then a syndrome, which is always 0 here

	hdr       = 0x10  // bytes before the payload of most commands
	pasOffset = 0x110 // page list of CREATE_EQ, CREATE_CQ, CREATE_QP, CREATE_RMP, CREATE_XRC_SRQ, ...
)

// Most commands name their object, and most creations return it, in the same
// place: 24 bits, or 8 where the number space is that small.
const (
	object24 field = 0x048<<8 | 24 // create_cq_out.cqn, query_qp_in.qpn, dealloc_pd_in.pd, ...
	object8  field = 0x058<<8 | 8  // create_eq_out.eq_number, dealloc_q_counter_in.counter_set_id
)

// Function control.
const (
	hcaFunctionID field = 0x050<<8 | 16 // enable_hca_in.function_id, also disable_hca_in

	teardownProfile field = 0x050<<8 | 16 // teardown_hca_in.profile
	teardownState   field = 0x07f<<8 | 1  // teardown_hca_out.state

	issiCurrent   field = 0x050<<8 | 16 // query_issi_out, set_issi_in.current_issi
	issiSupported field = 0x360<<8 | 32 // query_issi_out.supported_issi_dw0

	capOther      field = 0x040<<8 | 1  // query_hca_cap_in.other_function
	capFunctionID field = 0x050<<8 | 16 // query_hca_cap_in.function_id

	pagesFunctionID field = 0x050<<8 | 16 // query_pages_out, manage_pages_in.function_id
	pagesNum        field = 0x060<<8 | 32 // query_pages_out.num_pages
	pagesInEntries  field = 0x060<<8 | 32 // manage_pages_in.input_num_entries
	pagesOutEntries field = 0x040<<8 | 32 // manage_pages_out.output_num_entries

	adapterVendor field = 0x148<<8 | 24 // query_adapter_out: query_adapter_param_block.ieee_vendor_id
	adapterPSID         = 0x100         // vsd_contd_psid, 16 bytes

	driverVersionText = 0x10 // set_driver_version_in.driver_version, 64 bytes
)

// Teardown profiles (mlx5_ifc.h).
const (
	teardownGraceful = 0
	teardownForce    = 1
	teardownFast     = 2
)

// Operation modifiers of QUERY_PAGES and MANAGE_PAGES (mlx5_ifc.h,
// pagealloc.c).
const (
	pagesBoot    = 1
	pagesInit    = 2
	pagesRegular = 3

	pagesCantGive = 0
	pagesGive     = 1
	pagesTake     = 2
)

// Contexts within their commands: byte offsets.
const (
	eqContext      = 0x10 // create_eq_in.eq_context_entry
	eqEventBitmask = 0x58 // create_eq_in.event_bitmask, 4 x 64 bits, low word first
	cqContext      = 0x10 // create_cq_in.cq_context
	mkeyContext    = 0x10 // create_mkey_in.memory_key_mkey_entry
	mkeyTransCount = 0x60 // create_mkey_in.translations_octword_actual_size
	qpContext      = 0x18 // create_qp_in.qpc, also of the modify commands and query_qp_out
	qpcSize        = 0xe8 // mlx5_ifc_qpc_bits
	qpOptParamMask = 0x10 // of the modify commands
	rmpContext     = 0x20 // create_rmp_in.ctx
	rmpcSize       = 0xf0 // mlx5_ifc_rmpc_bits
	srqContext     = 0x10 // create_xrc_srq_in.xrc_srq_context_entry, create_srq_in
	contextSize    = 0x40 // of an EQ, CQ, SRQ or memory key
	modifyCQSelect = 0x0c // modify_cq_in.modify_field_select
	armLWM         = 0x0e // arm_rq_in.lwm, arm_xrc_srq_in.lwm, 16 bits
	mcgGID         = 0x10 // attach_to_mcg_in.multicast_gid, also detach
	madIfcMAD      = 0x10 // mad_ifc_in.mad, mad_ifc_out.response_mad_packet
	madSize        = 256
)

// ACCESS_REG.
const (
	regID   field = 0x050<<8 | 16 // access_register_in.register_id
	regData       = 0x10          // register_data
	regRead       = 1             // op_mod: 1 reads, 0 writes
)

// MAD_IFC.
const madIfcPort field = 0x058<<8 | 8 // mad_ifc_in.port

// Virtual port queries.
const (
	vportOther  field = 0x040<<8 | 1
	vportPort   field = 0x04c<<8 | 4
	vportNumber field = 0x050<<8 | 16
	vportIndex  field = 0x070<<8 | 16 // query_hca_vport_gid_in.gid_index, ..._pkey_in.pkey_index

	gidsNum field = 0x060<<8 | 16 // query_hca_vport_gid_out.gids_num

	vportContext  = 0x10  // query_hca_vport_context_out, modify_hca_vport_context_in
	vportCtxSize  = 0x200 // mlx5_ifc_hca_vport_context_bits
	vportListData = 0x10  // first GID or P_Key of an answer
	pkeyEntrySize = 4     // mlx5_ifc_pkey_bits
	allEntries    = 0xffff

	vportStateAdmin field = 0x078<<8 | 4 // query_vport_state_out.admin_state
	vportStateOper  field = 0x07c<<8 | 4 // query_vport_state_out.state

	counterClear field = 0x0c0<<8 | 1 // query_vport_counter_in.clear, query_q_counter_in.clear
	qCounterSet  field = 0x0f8<<8 | 8 // query_q_counter_in.counter_set_id
)

// query_vport_counter_out: pairs of 64-bit packets and octets, byte offsets.
const (
	vcTxErrors    = 0x20
	vcRxUnicast   = 0x30
	vcTxUnicast   = 0x40
	vcRxMulticast = 0x50
	vcTxMulticast = 0x60
)

// query_q_counter_out.out_of_buffer.
const qcOutOfBuffer field = 0x180<<8 | 32

// query_special_contexts_out.
const (
	specialReservedLKey field = 0x060<<8 | 32
	specialNullMKey     field = 0x080<<8 | 32
)

// A virtual NIC's context (mlx5_ifc_nic_vport_context_bits) within
// query_nic_vport_context_out.
const (
	nicVportContext            = 0x10
	nicVportSize               = 0x100
	nicSystemGUID        field = 0x140<<8 | 64
	nicPortGUID          field = 0x180<<8 | 64
	nicNodeGUID          field = 0x1c0<<8 | 64
	nicMTU               field = 0x130<<8 | 16
	nicPermanentAddrHigh field = 0x7b0<<8 | 16
	nicPermanentAddrLow  field = 0x7c0<<8 | 32
)

package hca

// EQ context (mlx5_ifc_eqc_bits).
const (
	eqcPageOffset field = 0x054<<8 | 6
	eqcLogSize    field = 0x063<<8 | 5
	eqcUAR        field = 0x068<<8 | 24
	eqcIntr       field = 0x0b4<<8 | 12
	eqcLogPage    field = 0x0c3<<8 | 5
	eqcConsumer   field = 0x148<<8 | 24
	eqcProducer   field = 0x168<<8 | 24
)

// CQ context (mlx5_ifc_cqc_bits).
const (
	cqcCQESize    field = 0x008<<8 | 3
	cqcOI         field = 0x00e<<8 | 1
	cqcPageOffset field = 0x054<<8 | 6
	cqcLogSize    field = 0x063<<8 | 5
	cqcUAR        field = 0x068<<8 | 24
	cqcPeriod     field = 0x084<<8 | 12
	cqcMaxCount   field = 0x090<<8 | 16
	cqcEQN        field = 0x0a0<<8 | 32
	cqcLogPage    field = 0x0c3<<8 | 5
	cqcConsumer   field = 0x148<<8 | 24
	cqcProducer   field = 0x168<<8 | 24
	cqcDBR        field = 0x1c0<<8 | 64
)

// Memory key context (mlx5_ifc_mkc_bits).
const (
	mkcFree       field = 0x001<<8 | 1
	mkcModeHigh   field = 0x003<<8 | 3 // access_mode_4_2
	mkcLocalWrite field = 0x014<<8 | 1
	mkcLocalRead  field = 0x015<<8 | 1
	mkcModeLow    field = 0x016<<8 | 2 // access_mode_1_0
	mkcVariant    field = 0x038<<8 | 8 // mkey_7_0
	mkcLength64   field = 0x060<<8 | 1
	mkcPD         field = 0x068<<8 | 24
	mkcStart      field = 0x080<<8 | 64
	mkcLen        field = 0x0c0<<8 | 64
	mkcLogPage    field = 0x1db<<8 | 5
)

// Access modes of a memory key (mlx5_ifc.h, MLX5_MKC_ACCESS_MODE_*).
const (
	mkeyPA  = 0 // addresses are bus addresses
	mkeyMTT = 1 // a list of pages
)

// QP context (mlx5_ifc_qpc_bits).
const (
	qpcState       field = 0x000<<8 | 4
	qpcType        field = 0x008<<8 | 8
	qpcPD          field = 0x028<<8 | 24
	qpcLogRQSize   field = 0x049<<8 | 4
	qpcLogRQStride field = 0x04d<<8 | 3
	qpcNoSQ        field = 0x050<<8 | 1
	qpcLogSQSize   field = 0x051<<8 | 4
	qpcReserveLKey field = 0x05b<<8 | 1
	qpcCounterSet  field = 0x060<<8 | 8
	qpcUAR         field = 0x068<<8 | 24
	qpcUserIndex   field = 0x088<<8 | 24
	qpcLogPage     field = 0x0a3<<8 | 5
	qpcPath              = 0x18 // primary_address_path, byte offset
	qpcSendPSN     field = 0x3c8<<8 | 24
	qpcCQSend      field = 0x3e8<<8 | 24
	qpcDETHSQPN    field = 0x408<<8 | 24
	qpcPageOffset  field = 0x494<<8 | 6
	qpcCQRecv      field = 0x4e8<<8 | 24
	qpcDBR         field = 0x500<<8 | 64
	qpcQKey        field = 0x540<<8 | 32
	qpcRQType      field = 0x565<<8 | 3
	qpcSRQN        field = 0x568<<8 | 24
	qpcHwSQ        field = 0x5a0<<8 | 16
	qpcHwRQ        field = 0x5c0<<8 | 32
	qpcSwRQ        field = 0x5e0<<8 | 32
)

// Address path (mlx5_ifc_ads_bits), relative to qpcPath.
const (
	adsPKeyIndex field = 0x010<<8 | 16
	adsPort      field = 0x128<<8 | 8
)

// QP states (mlx5_qp_state in qp.h).
const (
	qpReset  = 0
	qpInit   = 1
	qpRTR    = 2
	qpRTS    = 3
	qpSQErr  = 4
	qpSQD    = 5
	qpErr    = 6
	qpStates = 7
)

// QP service types (MLX5_QP_ST_* in qp.h).
const (
	qpUD  = 0x2
	qpSMI = 0x7
	qpGSI = 0x8
	qpUMR = 0xc
)

// Receive queue types (qp.h).
const (
	rqOwn    = 0
	rqShared = 1
	rqNone   = 3
)

// Optional parameters of the QP modify commands (MLX5_QP_OPTPAR_* in qp.h).
const (
	optPKeyIndex = 1 << 4
	optQKey      = 1 << 5
)

// Work queue (mlx5_ifc_wq_bits) within rmpc, and the receive memory pool
// (mlx5_ifc_rmpc_bits) around it.
const (
	rmpcState    field = 0x008<<8 | 4
	rmpcWQ             = 0x30 // byte offset
	wqPageOffset field = 0x02b<<8 | 5
	wqLWM        field = 0x030<<8 | 16
	wqPD         field = 0x048<<8 | 24
	wqDBR        field = 0x080<<8 | 64
	wqHwCounter  field = 0x0c0<<8 | 32
	wqLogStride  field = 0x10c<<8 | 4
	wqLogPage    field = 0x113<<8 | 5
	wqLogSize    field = 0x11b<<8 | 5
)

// RMP states (mlx5_ifc.h, MLX5_RMPC_STATE_*).
const (
	rmpReady = 1
	rmpError = 3
)

// SRQ and XRC SRQ contexts (mlx5_ifc_srqc_bits, mlx5_ifc_xrc_srqc_bits): the
// fields used here are in the same places, but for the doorbell record, of
// which the XRC form keeps two bits for itself.
const (
	srqcLogSize    field = 0x004<<8 | 4
	srqcLogStride  field = 0x025<<8 | 3
	srqcXRCD       field = 0x028<<8 | 24
	srqcPageOffset field = 0x040<<8 | 6
	srqcCQN        field = 0x048<<8 | 24
	srqcLogPage    field = 0x082<<8 | 6
	srqcPD         field = 0x0c8<<8 | 24
	srqcLWM        field = 0x0e0<<8 | 16
	srqcWQECount   field = 0x0f0<<8 | 16
	srqcDBR        field = 0x140<<8 | 64
)

// Port as the driver sees it (mlx5_ifc_hca_vport_context_bits).
const (
	hvFieldSelect   field = 0x000<<8 | 32
	hvHasSMI        field = 0x101<<8 | 1
	hvPhysState     field = 0x110<<8 | 4
	hvPortState     field = 0x118<<8 | 4
	hvVportState    field = 0x11c<<8 | 4
	hvSystemGUID    field = 0x140<<8 | 64
	hvPortGUID      field = 0x180<<8 | 64
	hvNodeGUID      field = 0x1c0<<8 | 64
	hvCapMask       field = 0x200<<8 | 32
	hvCapMaskSelect field = 0x220<<8 | 32
	hvLID           field = 0x300<<8 | 16
	hvSubnetTimeout field = 0x31b<<8 | 5
	hvSMLID         field = 0x320<<8 | 16
	hvSMSL          field = 0x330<<8 | 4
	hvQKeyViol      field = 0x340<<8 | 16
	hvPKeyViol      field = 0x350<<8 | 16
)

// MTT entry (mlx5_ifc_mtt_bits): the address, with two permission bits.
const mttAddress = ^uint64(0xff)

package hca

// What the device and the host share in memory and in BAR 0. Offsets are
// bytes unless the type is field.

// Initialization segment (mlx5_init_seg in device.h).
const (
	segFwRev        = 0x000 // minor, major
	segCmdifRev     = 0x004 // command interface revision, firmware sub-minor
	segCmdqAddrHigh = 0x010
	segCmdqAddrLow  = 0x014 // address 31:12, interface state 10:8, log size 7:4, log stride 3:0
	segCmdDoorbell  = 0x018
	segInitializing = 0x1fc
	segHealth       = 0x200 // health_buffer, 64 bytes
	segCmdExecTime  = 0xff8 // cmd_exec_to
	segCmdqInitTime = 0xffc // cmd_q_init_to
	segTimerHigh    = 0x1000
	segTimerLow     = 0x1004
	segHealthCount  = 0x1010
)

// Health buffer (health_buffer in device.h), relative to segHealth.
const (
	healthFwVer = 0x30
	healthHwID  = 0x34
	healthSynd  = 0x3c // irisc index, syndrome, extended syndrome
)

// UAR page: doorbells (doorbell.h; eq.c for the EQ's).
const (
	uarCQ    = 0x20  // 8 bytes: sequence, command, consumer index; CQ number
	uarEQArm = 0x40  // 4 bytes: EQ number, consumer index
	uarEQ    = 0x48  // the same without arming
	uarBF    = 0x800 // BlueField registers up to the end of the page
)

// Command queue entry (mlx5_cmd_layout in device.h), 64 bytes.
const (
	ceType     = 0x00
	ceInLen    = 0x04
	ceInPtr    = 0x08
	ceIn       = 0x10 // 16 bytes of input
	ceOut      = 0x20 // 16 bytes of output
	ceOutPtr   = 0x30
	ceOutLen   = 0x38
	ceToken    = 0x3c
	ceSig      = 0x3d
	ceStatus   = 0x3f // delivery status 7:1, ownership 0
	ceSize     = 0x40
	ceInline   = 16
	cmdTypePCI = 7 // MLX5_PCI_CMD_XPORT
)

// Command mailbox block (mlx5_cmd_prot_block in device.h), 576 bytes.
const (
	mboxData     = 512
	mboxReserved = 0x200
	mboxNext     = 0x230
	mboxBlockNum = 0x238
	mboxToken    = 0x23d
	mboxCtrlSig  = 0x23e
	mboxSig      = 0x23f
	mboxSize     = 0x240
	mboxAlign    = 512
)

// Delivery status of a command (cmd.c).
const (
	deliveryOK         = 0x00
	deliverySignature  = 0x01
	deliveryToken      = 0x02
	deliveryBlockNum   = 0x03
	deliveryOutPtr     = 0x04
	deliveryInPtr      = 0x05
	deliveryInLen      = 0x07
	deliveryOutLen     = 0x08
	deliveryDescriptor = 0x10
)

// Event queue entry (mlx5_eqe in device.h), 64 bytes.
const (
	eqeType    = 0x01
	eqeSubType = 0x03
	eqeData    = 0x20
	eqeOwner   = 0x3f
	eqeSize    = 0x40
)

// Completion queue entry (mlx5_cqe64, mlx5_err_cqe in device.h), 64 bytes.
const (
	cqeSLID       = 0x16
	cqeFlagsRQPN  = 0x18 // 29:28 GRH, 27:24 SL, 23:0 source QP
	cqeSRQN       = 0x20
	cqeImm        = 0x24 // immediate data, or the P_Key for QP1
	cqeByteCount  = 0x2c
	cqeTimestamp  = 0x30
	cqeOpQPN      = 0x38 // 31:24 send opcode, 23:0 QP
	cqeWQECounter = 0x3c
	cqeOpOwner    = 0x3f // 7:4 opcode, 0 owner
	cqeSize       = 0x40

	cqeErrSyndrome = 0x37
)

// Completion opcodes (cq.h).
const (
	cqeReq         = 0
	cqeRespSend    = 2
	cqeRespSendImm = 3
	cqeReqErr      = 13
	cqeRespErr     = 14
)

// Completion syndromes (cq.h).
const (
	syndLocalLength = 0x01
	syndLocalQPOp   = 0x02
	syndLocalProt   = 0x04
	syndFlush       = 0x05
)

// Send work queue entry (qp.h): control, address vector and data segments.
const (
	wqeBB       = 64 // basic block: what the send counter counts
	wqeDS       = 16
	wqeOpcode   = 0x00 // 23:8 index, 7:0 opcode
	wqeQPNDS    = 0x04 // 31:8 QP, 5:0 size in 16-byte units
	wqeFmCeSe   = 0x0b
	wqeImm      = 0x0c
	wqeCtrlSize = 0x10

	wqeCQUpdate = 2 << 2 // MLX5_WQE_CTRL_CQ_UPDATE

	avQKey       = 0x00
	avDQP        = 0x08 // 31 extended, 23:0 destination QP
	avRateSL     = 0x0c
	avRLID       = 0x0e
	avTClass     = 0x1a
	avHopLimit   = 0x1b
	avGIDFlow    = 0x1c // 30 GRH present, 27:20 source GID index, 19:0 flow label
	avRGID       = 0x20
	avSize       = 0x30
	avBaseSize   = 0x10
	avExtended   = 1 << 31
	avGRHPresent = 1 << 30

	dsInline      = 1 << 31
	dsInlineMask  = 0x3ff
	lkeyInvalid   = 0x100 // MLX5_INVALID_LKEY ends a receive list
	srqNextWQE    = 0x02  // mlx5_wqe_srq_next_seg.next_wqe_index
	opcodeNOP     = 0x00
	opcodeSend    = 0x0a
	opcodeSendImm = 0x0b
	opcodeUMR     = 0x25
)

// grhSize is what a datagram's receive buffer has in front of the payload.
const grhSize = 40

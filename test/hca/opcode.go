package hca

import "fmt"

// Opcode is the number of a firmware command (MLX5_CMD_OP_* in mlx5_ifc.h).
type Opcode uint16

// Commands that this device knows, whether it carries them out or not.
const (
	QueryHCACap            Opcode = 0x100
	QueryAdapter           Opcode = 0x101
	InitHCA                Opcode = 0x102
	TeardownHCA            Opcode = 0x103
	EnableHCA              Opcode = 0x104
	DisableHCA             Opcode = 0x105
	QueryPages             Opcode = 0x107
	ManagePages            Opcode = 0x108
	SetHCACap              Opcode = 0x109
	QueryISSI              Opcode = 0x10a
	SetISSI                Opcode = 0x10b
	SetDriverVersion       Opcode = 0x10d
	CreateMKey             Opcode = 0x200
	QueryMKey              Opcode = 0x201
	DestroyMKey            Opcode = 0x202
	QuerySpecialContexts   Opcode = 0x203
	CreateEQ               Opcode = 0x301
	DestroyEQ              Opcode = 0x302
	QueryEQ                Opcode = 0x303
	CreateCQ               Opcode = 0x400
	DestroyCQ              Opcode = 0x401
	QueryCQ                Opcode = 0x402
	ModifyCQ               Opcode = 0x403
	CreateQP               Opcode = 0x500
	DestroyQP              Opcode = 0x501
	RST2INITQP             Opcode = 0x502
	INIT2RTRQP             Opcode = 0x503
	RTR2RTSQP              Opcode = 0x504
	RTS2RTSQP              Opcode = 0x505
	SQERR2RTSQP            Opcode = 0x506
	ToERRQP                Opcode = 0x507
	ToRSTQP                Opcode = 0x50a
	QueryQP                Opcode = 0x50b
	MADIFC                 Opcode = 0x50d
	INIT2INITQP            Opcode = 0x50e
	CreateSRQ              Opcode = 0x700
	DestroySRQ             Opcode = 0x701
	QuerySRQ               Opcode = 0x702
	ArmRQ                  Opcode = 0x703
	CreateXRCSRQ           Opcode = 0x705
	DestroyXRCSRQ          Opcode = 0x706
	QueryXRCSRQ            Opcode = 0x707
	ArmXRCSRQ              Opcode = 0x708
	CreateDCT              Opcode = 0x710
	QueryESWFunctions      Opcode = 0x740
	QueryVportState        Opcode = 0x750
	ModifyVportState       Opcode = 0x751
	QueryESWVportContext   Opcode = 0x752
	ModifyESWVportContext  Opcode = 0x753
	QueryNICVportContext   Opcode = 0x754
	ModifyNICVportContext  Opcode = 0x755
	QueryROCEAddress       Opcode = 0x760
	SetROCEAddress         Opcode = 0x761
	QueryHCAVportContext   Opcode = 0x762
	ModifyHCAVportContext  Opcode = 0x763
	QueryHCAVportGID       Opcode = 0x764
	QueryHCAVportPKey      Opcode = 0x765
	QueryVNICEnv           Opcode = 0x76f
	QueryVportCounter      Opcode = 0x770
	AllocQCounter          Opcode = 0x771
	DeallocQCounter        Opcode = 0x772
	QueryQCounter          Opcode = 0x773
	AllocPD                Opcode = 0x800
	DeallocPD              Opcode = 0x801
	AllocUAR               Opcode = 0x802
	DeallocUAR             Opcode = 0x803
	ConfigIntModeration    Opcode = 0x804
	AccessReg              Opcode = 0x805
	AttachToMCG            Opcode = 0x806
	DetachFromMCG          Opcode = 0x807
	NOP                    Opcode = 0x80d
	AllocXRCD              Opcode = 0x80e
	DeallocXRCD            Opcode = 0x80f
	AllocTransportDomain   Opcode = 0x816
	DeallocTransportDomain Opcode = 0x817
	QueryCongStatus        Opcode = 0x822
	QueryCongParams        Opcode = 0x824
	SetL2TableEntry        Opcode = 0x829
	SetWOLROL              Opcode = 0x830
	QueryWOLROL            Opcode = 0x831
	QueryLAG               Opcode = 0x842
	CreateTIR              Opcode = 0x900
	DestroyTIR             Opcode = 0x902
	CreateSQ               Opcode = 0x904
	DestroySQ              Opcode = 0x906
	CreateRQ               Opcode = 0x908
	DestroyRQ              Opcode = 0x90a
	CreateRMP              Opcode = 0x90c
	ModifyRMP              Opcode = 0x90d
	DestroyRMP             Opcode = 0x90e
	QueryRMP               Opcode = 0x90f
	CreateTIS              Opcode = 0x912
	DestroyTIS             Opcode = 0x914
	CreateRQT              Opcode = 0x916
	DestroyRQT             Opcode = 0x918
	SetFlowTableRoot       Opcode = 0x92f
	CreateFlowTable        Opcode = 0x930
	DestroyFlowTable       Opcode = 0x931
	CreateFlowGroup        Opcode = 0x933
	SetFlowTableEntry      Opcode = 0x936
	AllocFlowCounter       Opcode = 0x939
	CreateGeneralObject    Opcode = 0xa00
	CreateUCTX             Opcode = 0xa04
	CreateUMEM             Opcode = 0xa08
)

// String gives the name mlx5_core prints, without the number.
func (op Opcode) String() string {
	if c, ok := commands[op]; ok {
		return c.name
	}
	return fmt.Sprintf("opcode %#x", uint16(op))
}

// Status is the first byte of a command's output (MLX5_CMD_STAT_* in
// device.h).
type Status uint8

// Command statuses; the error the driver makes of each is in cmd.c,
// cmd_status_to_err.
const (
	StatusOK           Status = 0x00
	StatusInternal     Status = 0x01
	StatusBadOp        Status = 0x02
	StatusBadParam     Status = 0x03
	StatusBadSysState  Status = 0x04
	StatusBadResource  Status = 0x05
	StatusBusy         Status = 0x06
	StatusLimit        Status = 0x08
	StatusBadResState  Status = 0x09
	StatusBadIndex     Status = 0x0a
	StatusNoResources  Status = 0x0f
	StatusBadQPState   Status = 0x10
	StatusBadInputLen  Status = 0x50
	StatusBadOutputLen Status = 0x51
)

// String gives the words mlx5_core prints for the status.
func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %#x", uint8(s))
}

var statusNames = map[Status]string{
	StatusOK:           "OK",
	StatusInternal:     "internal error",
	StatusBadOp:        "bad operation",
	StatusBadParam:     "bad parameter",
	StatusBadSysState:  "bad system state",
	StatusBadResource:  "bad resource",
	StatusBusy:         "resource busy",
	StatusLimit:        "limits exceeded",
	StatusBadResState:  "bad resource state",
	StatusBadIndex:     "bad index",
	StatusNoResources:  "no resources",
	StatusBadQPState:   "bad QP state",
	StatusBadInputLen:  "bad input length",
	StatusBadOutputLen: "bad output length",
}

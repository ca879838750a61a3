package hca

// phase is how far the driver must have come for a command.
type phase uint8

const (
	phaseAny     phase = iota
	phaseEnabled       // after ENABLE_HCA
	phaseInit          // after INIT_HCA
)

// command is one row of the command table: what it needs and what it does. A
// row without run names a command that is answered with "bad operation".
type command struct {
	name    string
	phase   phase
	in, out int // bytes of input and output it needs at least
	run     func(*HCA, *request) Status
}

// Sizes of mailboxes that are not plain headers (mlx5_ifc.h).
const (
	ctxIn    = 0x110 // contexts with a page list, empty
	modifyQP = 0x110
)

// commands is the table of firmware commands. It is never written to.
var commands = map[Opcode]command{
	QueryHCACap:      {"QUERY_HCA_CAP", phaseEnabled, hdr, hdr + capBytes, (*HCA).queryHCACap},
	SetHCACap:        {"SET_HCA_CAP", phaseEnabled, hdr + capBytes, hdr, (*HCA).setHCACap},
	QueryAdapter:     {"QUERY_ADAPTER", phaseEnabled, hdr, 0x110, (*HCA).queryAdapter},
	EnableHCA:        {"ENABLE_HCA", phaseAny, hdr, 0, (*HCA).enableHCA},
	DisableHCA:       {"DISABLE_HCA", phaseAny, hdr, 0, (*HCA).disableHCA},
	InitHCA:          {"INIT_HCA", phaseEnabled, hdr, 0, (*HCA).initHCA},
	TeardownHCA:      {"TEARDOWN_HCA", phaseEnabled, hdr, 0, (*HCA).teardownHCA},
	QueryPages:       {"QUERY_PAGES", phaseEnabled, hdr, hdr, (*HCA).queryPages},
	ManagePages:      {"MANAGE_PAGES", phaseEnabled, hdr, hdr, (*HCA).managePages},
	QueryISSI:        {"QUERY_ISSI", phaseEnabled, hdr, 0x70, (*HCA).queryISSI},
	SetISSI:          {"SET_ISSI", phaseEnabled, hdr, 0, (*HCA).setISSI},
	SetDriverVersion: {"SET_DRIVER_VERSION", phaseInit, 0x50, 0, (*HCA).setDriverVersion},
	NOP:              {"NOP", phaseAny, 0, 0, (*HCA).nop},

	CreateMKey:           {"CREATE_MKEY", phaseInit, ctxIn, hdr, (*HCA).createMKey},
	QueryMKey:            {"QUERY_MKEY", phaseInit, hdr, hdr + contextSize, (*HCA).queryMKey},
	DestroyMKey:          {"DESTROY_MKEY", phaseInit, hdr, 0, (*HCA).destroyMKey},
	QuerySpecialContexts: {"QUERY_SPECIAL_CONTEXTS", phaseInit, hdr, hdr, (*HCA).querySpecialContexts},

	CreateEQ:  {"CREATE_EQ", phaseInit, ctxIn, hdr, (*HCA).createEQ},
	DestroyEQ: {"DESTROY_EQ", phaseInit, hdr, 0, (*HCA).destroyEQ},
	QueryEQ:   {"QUERY_EQ", phaseInit, hdr, hdr + contextSize, (*HCA).queryEQ},

	CreateCQ:  {"CREATE_CQ", phaseInit, ctxIn, hdr, (*HCA).createCQ},
	DestroyCQ: {"DESTROY_CQ", phaseInit, hdr, 0, (*HCA).destroyCQ},
	QueryCQ:   {"QUERY_CQ", phaseInit, hdr, hdr + contextSize, (*HCA).queryCQ},
	ModifyCQ:  {"MODIFY_CQ", phaseInit, ctxIn, 0, (*HCA).modifyCQ},

	CreateQP:    {"CREATE_QP", phaseInit, ctxIn, hdr, (*HCA).createQP},
	DestroyQP:   {"DESTROY_QP", phaseInit, hdr, 0, (*HCA).destroyQP},
	QueryQP:     {"QUERY_QP", phaseInit, hdr, qpContext + qpcSize, (*HCA).queryQP},
	RST2INITQP:  {"RST2INIT_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	INIT2INITQP: {"INIT2INIT_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	INIT2RTRQP:  {"INIT2RTR_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	RTR2RTSQP:   {"RTR2RTS_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	RTS2RTSQP:   {"RTS2RTS_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	SQERR2RTSQP: {"SQERR2RTS_QP", phaseInit, modifyQP, 0, (*HCA).modifyQP},
	ToERRQP:     {"2ERR_QP", phaseInit, hdr, 0, (*HCA).modifyQP},
	ToRSTQP:     {"2RST_QP", phaseInit, hdr, 0, (*HCA).modifyQP},

	CreateRMP:     {"CREATE_RMP", phaseInit, ctxIn, hdr, (*HCA).createRMP},
	ModifyRMP:     {"MODIFY_RMP", phaseInit, ctxIn, 0, (*HCA).modifyRMP},
	DestroyRMP:    {"DESTROY_RMP", phaseInit, hdr, 0, (*HCA).destroySRQ},
	QueryRMP:      {"QUERY_RMP", phaseInit, hdr, rmpContext + rmpcSize, (*HCA).queryRMP},
	CreateSRQ:     {"CREATE_SRQ", phaseInit, ctxIn, hdr, (*HCA).createSRQ},
	DestroySRQ:    {"DESTROY_SRQ", phaseInit, hdr, 0, (*HCA).destroySRQ},
	QuerySRQ:      {"QUERY_SRQ", phaseInit, hdr, srqContext + contextSize, (*HCA).querySRQ},
	ArmRQ:         {"ARM_RQ", phaseInit, hdr, 0, (*HCA).armSRQ},
	CreateXRCSRQ:  {"CREATE_XRC_SRQ", phaseInit, ctxIn, hdr, (*HCA).createSRQ},
	DestroyXRCSRQ: {"DESTROY_XRC_SRQ", phaseInit, hdr, 0, (*HCA).destroySRQ},
	QueryXRCSRQ:   {"QUERY_XRC_SRQ", phaseInit, hdr, srqContext + contextSize, (*HCA).querySRQ},
	ArmXRCSRQ:     {"ARM_XRC_SRQ", phaseInit, hdr, 0, (*HCA).armSRQ},

	QueryVportState:       {"QUERY_VPORT_STATE", phaseInit, hdr, hdr, (*HCA).queryVportState},
	ModifyVportState:      {"MODIFY_VPORT_STATE", phaseInit, hdr, 0, (*HCA).nop},
	QueryNICVportContext:  {"QUERY_NIC_VPORT_CONTEXT", phaseInit, hdr, hdr + nicVportSize, (*HCA).queryNICVport},
	ModifyNICVportContext: {"MODIFY_NIC_VPORT_CONTEXT", phaseInit, 0x100, 0, (*HCA).nop},
	QueryHCAVportContext:  {"QUERY_HCA_VPORT_CONTEXT", phaseInit, hdr, hdr + vportCtxSize, (*HCA).queryHCAVport},
	ModifyHCAVportContext: {"MODIFY_HCA_VPORT_CONTEXT", phaseInit, hdr + vportCtxSize, 0, (*HCA).modifyHCAVport},
	QueryHCAVportGID:      {"QUERY_HCA_VPORT_GID", phaseInit, hdr, hdr + 16, (*HCA).queryHCAVportGID},
	QueryHCAVportPKey:     {"QUERY_HCA_VPORT_PKEY", phaseInit, hdr, hdr + pkeyEntrySize, (*HCA).queryHCAVportPKey},
	QueryVportCounter:     {"QUERY_VPORT_COUNTER", phaseInit, 0x20, 0x210, (*HCA).queryVportCounter},

	AllocQCounter:          {"ALLOC_Q_COUNTER", phaseInit, hdr, hdr, (*HCA).allocQCounter},
	DeallocQCounter:        {"DEALLOC_Q_COUNTER", phaseInit, hdr, 0, (*HCA).deallocQCounter},
	QueryQCounter:          {"QUERY_Q_COUNTER", phaseInit, 0x20, 0x100, (*HCA).queryQCounter},
	AllocPD:                {"ALLOC_PD", phaseInit, hdr, hdr, (*HCA).allocPD},
	DeallocPD:              {"DEALLOC_PD", phaseInit, hdr, 0, (*HCA).deallocPD},
	AllocUAR:               {"ALLOC_UAR", phaseInit, hdr, hdr, (*HCA).allocUAR},
	DeallocUAR:             {"DEALLOC_UAR", phaseInit, hdr, 0, (*HCA).deallocUAR},
	AllocXRCD:              {"ALLOC_XRCD", phaseInit, hdr, hdr, (*HCA).allocXRCD},
	DeallocXRCD:            {"DEALLOC_XRCD", phaseInit, hdr, 0, (*HCA).deallocXRCD},
	AllocTransportDomain:   {"ALLOC_TRANSPORT_DOMAIN", phaseInit, hdr, hdr, (*HCA).allocDomain},
	DeallocTransportDomain: {"DEALLOC_TRANSPORT_DOMAIN", phaseInit, hdr, 0, (*HCA).deallocDomain},
	AttachToMCG:            {"ATTACH_TO_MCG", phaseInit, 0x20, 0, (*HCA).attachMCG},
	DetachFromMCG:          {"DETACH_FROM_MCG", phaseInit, 0x20, 0, (*HCA).detachMCG},
	AccessReg:              {"ACCESS_REG", phaseEnabled, hdr, hdr, (*HCA).accessReg},
	MADIFC:                 {"MAD_IFC", phaseInit, hdr + madSize, hdr + madSize, (*HCA).madIfc},

	CreateDCT:             {name: "CREATE_DCT"},
	QueryESWFunctions:     {name: "QUERY_ESW_FUNCTIONS"},
	QueryESWVportContext:  {name: "QUERY_ESW_VPORT_CONTEXT"},
	ModifyESWVportContext: {name: "MODIFY_ESW_VPORT_CONTEXT"},
	QueryROCEAddress:      {name: "QUERY_ROCE_ADDRESS"},
	SetROCEAddress:        {name: "SET_ROCE_ADDRESS"},
	QueryVNICEnv:          {name: "QUERY_VNIC_ENV"},
	ConfigIntModeration:   {name: "CONFIG_INT_MODERATION"},
	QueryCongStatus:       {name: "QUERY_CONG_STATUS"},
	QueryCongParams:       {name: "QUERY_CONG_PARAMS"},
	SetL2TableEntry:       {name: "SET_L2_TABLE_ENTRY"},
	SetWOLROL:             {name: "SET_WOL_ROL"},
	QueryWOLROL:           {name: "QUERY_WOL_ROL"},
	QueryLAG:              {name: "QUERY_LAG"},
	CreateTIR:             {name: "CREATE_TIR"},
	DestroyTIR:            {name: "DESTROY_TIR"},
	CreateSQ:              {name: "CREATE_SQ"},
	DestroySQ:             {name: "DESTROY_SQ"},
	CreateRQ:              {name: "CREATE_RQ"},
	DestroyRQ:             {name: "DESTROY_RQ"},
	CreateTIS:             {name: "CREATE_TIS"},
	DestroyTIS:            {name: "DESTROY_TIS"},
	CreateRQT:             {name: "CREATE_RQT"},
	DestroyRQT:            {name: "DESTROY_RQT"},
	SetFlowTableRoot:      {name: "SET_FLOW_TABLE_ROOT"},
	CreateFlowTable:       {name: "CREATE_FLOW_TABLE"},
	DestroyFlowTable:      {name: "DESTROY_FLOW_TABLE"},
	CreateFlowGroup:       {name: "CREATE_FLOW_GROUP"},
	SetFlowTableEntry:     {name: "SET_FLOW_TABLE_ENTRY"},
	AllocFlowCounter:      {name: "ALLOC_FLOW_COUNTER"},
	CreateGeneralObject:   {name: "CREATE_GENERAL_OBJECT"},
	CreateUCTX:            {name: "CREATE_UCTX"},
	CreateUMEM:            {name: "CREATE_UMEM"},
}

func (h *HCA) nop(*request) Status { return StatusOK }

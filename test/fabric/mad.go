package fabric

// MADSize is the length of every management datagram (IBA 13.4.1).
const MADSize = 256

// Field is a component of a MAD or of an attribute: Width bits from bit Bit
// on, counted from the most significant bit of the first byte as the
// specification's tables do. Comp is its bit in an SA ComponentMask, or -1.
type Field struct {
	Name       string
	Bit, Width int
	Comp       int
}

// Get reads a field of at most 64 bits.
func (f Field) Get(b []byte) (v uint64) {
	for i := f.Bit; i < f.Bit+f.Width; {
		n := min(8-i%8, f.Bit+f.Width-i) // bits to take of this byte
		v = v<<n | uint64(b[i/8]>>(8-i%8-n))&(1<<n-1)
		i += n
	}
	return v
}

// Put writes a field of at most 64 bits; bits of v beyond Width are ignored.
func (f Field) Put(b []byte, v uint64) {
	for i := f.Bit + f.Width; i > f.Bit; {
		n := min((i-1)%8+1, i-f.Bit)
		shift := (8 - i%8) % 8
		mask := byte(1<<n-1) << shift
		b[(i-1)/8] = b[(i-1)/8]&^mask | byte(v)<<shift&mask
		v >>= n
		i -= n
	}
}

// GetGID and PutGID are for fields of 128 bits, which are aligned to bytes.
func (f Field) GetGID(b []byte) GID    { return GID(b[f.Bit/8:][:16]) }
func (f Field) PutGID(b []byte, g GID) { copy(b[f.Bit/8:][:16], g[:]) }

// in says whether a ComponentMask has the field.
func (f Field) in(mask uint64) bool { return f.Comp >= 0 && mask>>f.Comp&1 != 0 }

// equal compares one field of two records.
func (f Field) equal(a, b []byte) bool {
	if f.Width == 128 {
		return f.GetGID(a) == f.GetGID(b)
	}
	return f.Get(a) == f.Get(b)
}

func maskOf(fields ...Field) (m uint64) {
	for _, f := range fields {
		m |= 1 << f.Comp
	}
	return m
}

// Common MAD header (IBA 13.4.2).
var (
	MADBaseVersion  = Field{"BaseVersion", 0, 8, -1}
	MADMgmtClass    = Field{"MgmtClass", 8, 8, -1}
	MADClassVersion = Field{"ClassVersion", 16, 8, -1}
	MADMethod       = Field{"Method", 24, 8, -1}
	MADStatus       = Field{"Status", 32, 16, -1}
	MADTransaction  = Field{"TransactionID", 64, 64, -1}
	MADAttribute    = Field{"AttributeID", 128, 16, -1}
	MADModifier     = Field{"AttributeModifier", 160, 32, -1}
)

// SA header: RMPP, then the SA's own (IBA 13.6.2, 15.2.1.1); records follow.
var (
	saRMPPVersion   = Field{"RMPPVersion", 192, 8, -1}
	saSMKey         = Field{"SM_Key", 288, 64, -1}
	saComponentMask = Field{"ComponentMask", 384, 64, -1}
)

const saDataOffset = 56

// Methods (IBA 13.4.5, 15.2.2).
const (
	MethodGet      = 0x01
	MethodSet      = 0x02
	MethodGetTable = 0x12
	MethodDelete   = 0x15
	MethodResponse = 0x80 // bit

	methodSend        = 0x03
	methodTrap        = 0x05
	methodReport      = 0x06
	methodTrapRepress = 0x07

	madBaseVersion = 1
	saClassVersion = 2
	rmppVersion    = 1
)

// Management classes (IBA 13.4.4).
const (
	ClassSubnLID      = 0x01
	ClassSubnAdm      = 0x03
	ClassPerf         = 0x04
	ClassSubnDirected = 0x81
)

// Attributes of the SA (IBA 15.2.5, 13.4.8).
const (
	AttrClassPortInfo  = 0x0001
	AttrInformInfo     = 0x0003
	AttrPathRecord     = 0x0035
	AttrMCMemberRecord = 0x0038
)

// Status of a response: generic in the low byte (IBA 13.4.7), the SA's own in
// the high byte (IBA 15.2.3).
const (
	StatusOK                     = 0x0000
	StatusBadVersion             = 0x0004
	StatusMethodUnsupported      = 0x0008
	StatusAttributeUnsupported   = 0x000c
	StatusInvalidField           = 0x001c
	StatusNoResources            = 0x0100
	StatusReqInvalid             = 0x0200
	StatusNoRecords              = 0x0300
	StatusTooManyRecords         = 0x0400
	StatusReqInvalidGID          = 0x0500
	StatusInsufficientComponents = 0x0600
	StatusReqDenied              = 0x0700
)

// ClassPortInfo (IBA 13.4.8.1). Its last 27+5 bits of the second word are
// CapabilityMask2 and RespTimeValue.
var (
	cpiBaseVersion  = Field{"BaseVersion", 0, 8, -1}
	cpiClassVersion = Field{"ClassVersion", 8, 8, -1}
	cpiCapMask      = Field{"CapabilityMask", 16, 16, -1}
	cpiCapMask2     = Field{"CapabilityMask2", 32, 27, -1}
	cpiRespTime     = Field{"RespTimeValue", 59, 5, -1}
)

const (
	cpiUDMulticast     = 1 << 9  // SA: IsSubnetUDMulticastSupported (IBA 15.2.1.2)
	cpiSendOnlyFullMem = 1 << 12 // CapabilityMask2: IsSendOnlyFullMemberSupported
	cpiRespTimeValue   = 16      // 4.096 µs * 2^16: a quarter of a second
)

// MCMemberRecord (IBA 15.2.5.17).
var (
	mcMGID     = Field{"MGID", 0, 128, 0}
	mcPortGID  = Field{"PortGID", 128, 128, 1}
	mcQKey     = Field{"Q_Key", 256, 32, 2}
	mcMLID     = Field{"MLID", 288, 16, 3}
	mcMTUSel   = Field{"MTUSelector", 304, 2, 4}
	mcMTU      = Field{"MTU", 306, 6, 5}
	mcTClass   = Field{"TClass", 312, 8, 6}
	mcPKey     = Field{"P_Key", 320, 16, 7}
	mcRateSel  = Field{"RateSelector", 336, 2, 8}
	mcRate     = Field{"Rate", 338, 6, 9}
	mcLifeSel  = Field{"PacketLifeTimeSelector", 344, 2, 10}
	mcLife     = Field{"PacketLifeTime", 346, 6, 11}
	mcSL       = Field{"SL", 352, 4, 12}
	mcFlow     = Field{"FlowLabel", 356, 20, 13}
	mcHop      = Field{"HopLimit", 376, 8, 14}
	mcScope    = Field{"Scope", 384, 4, 15}
	mcJoin     = Field{"JoinState", 388, 4, 16}
	mcProxy    = Field{"ProxyJoin", 392, 1, 17}
	mcFixed    = []Field{mcQKey, mcTClass, mcSL, mcFlow, mcScope}         // equal in a group and a request to join it
	mcMatching = []Field{mcMGID, mcQKey, mcMLID, mcTClass, mcSL, mcScope} // a query selects by these
)

// PathRecord (IBA 15.2.5.16).
var (
	prDGID       = Field{"DGID", 64, 128, 2}
	prSGID       = Field{"SGID", 192, 128, 3}
	prDLID       = Field{"DLID", 320, 16, 4}
	prSLID       = Field{"SLID", 336, 16, 5}
	prFlow       = Field{"FlowLabel", 356, 20, 8}
	prHop        = Field{"HopLimit", 376, 8, 9}
	prTClass     = Field{"TClass", 384, 8, 10}
	prReversible = Field{"Reversible", 392, 1, 11}
	prNumbPath   = Field{"NumbPath", 393, 7, 12}
	prPKey       = Field{"P_Key", 400, 16, 13}
	prSL         = Field{"SL", 428, 4, 15}
	prMTUSel     = Field{"MTUSelector", 432, 2, 16}
	prMTU        = Field{"MTU", 434, 6, 17}
	prRateSel    = Field{"RateSelector", 440, 2, 18}
	prRate       = Field{"Rate", 442, 6, 19}
	prLifeSel    = Field{"PacketLifeTimeSelector", 448, 2, 20}
	prLife       = Field{"PacketLifeTime", 450, 6, 21}
)

// Selectors of MTU, rate and lifetime (IBA 15.2.5.16).
const (
	selGreater = 0
	selLess    = 1
	selEqual   = 2
	selBest    = 3
)

// NewMAD makes a request: a header, and zeros.
func NewMAD(class, method uint8, attr uint16, tid uint64) []byte {
	m := make([]byte, MADSize)
	MADBaseVersion.Put(m, madBaseVersion)
	MADMgmtClass.Put(m, uint64(class))
	MADClassVersion.Put(m, 1)
	if class == ClassSubnAdm {
		MADClassVersion.Put(m, saClassVersion)
		saRMPPVersion.Put(m, rmppVersion)
	}
	MADMethod.Put(m, uint64(method))
	MADTransaction.Put(m, tid)
	MADAttribute.Put(m, uint64(attr))
	return m
}

// responseTo returns the method of an answer. There is no "SetResp": Set is
// answered with GetResp (IBA 13.4.5, 15.2.2).
func responseTo(method uint8) uint8 {
	if method == MethodSet {
		method = MethodGet
	}
	return method | MethodResponse
}

// isRequest says whether b is a MAD that wants an answer: answers themselves
// and notices must not be answered (IBA 13.4.5).
func isRequest(b []byte) bool {
	if len(b) != MADSize || MADBaseVersion.Get(b) != madBaseVersion {
		return false
	}
	switch m := MADMethod.Get(b); m {
	case methodSend, methodTrap, methodReport, methodTrapRepress:
		return false
	default:
		return m&MethodResponse == 0
	}
}

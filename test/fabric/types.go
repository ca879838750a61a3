// Package fabric is an InfiniBand subnet in memory: a switch between any
// number of channel adapter ports, and the subnet manager and subnet
// administration (SA) that make the ports usable.
//
// Structures follow the InfiniBand Architecture Specification, volume 1;
// chapter numbers in the comments are those of release 1.3.
package fabric

// GUID is a 64-bit EUI-64 of a node or a port.
type GUID uint64

// GID is a 128-bit port or multicast group address: a subnet prefix or a
// multicast header, then a GUID or a group identifier (IBA 4.1).
type GID [16]byte

// Well-known values (IBA 3.5.10, 4.1.1, 13.4.8).
const (
	QP0             = 0          // subnet management
	QP1             = 1          // general services
	GSIQKey         = 0x80010000 // Q_Key of QP1
	DefaultPKey     = 0xffff     // full member of the default partition
	MulticastLID    = 0xc000     // first multicast LID
	PermissiveLID   = 0xffff     // "whoever is at the other end"
	FullMembership  = 0x8000     // bit of a P_Key
	OpcodeUDSend    = 0x64       // BTH opcode: UD SEND only
	OpcodeUDSendImm = 0x65       // BTH opcode: UD SEND only with immediate
)

// Packet is an InfiniBand packet reduced to what an endpoint or a switch
// decides by: fields of LRH, GRH, BTH and DETH, and the payload.
type Packet struct {
	SLID, DLID uint16
	SL         uint8
	GRH        *GRH // nil when the packet carries none
	Opcode     uint8
	PKey       uint16
	DestQP     uint32
	PSN        uint32
	QKey       uint32 // datagram opcodes only
	SrcQP      uint32 // datagram opcodes only
	Imm        uint32
	Payload    []byte // not to be changed by a receiver: it may be shared
}

// GRH is the Global Route Header (IBA 8.3), less the fields that are constant
// or derived.
type GRH struct {
	TrafficClass uint8
	FlowLabel    uint32
	HopLimit     uint8
	SGID, DGID   GID
}

// LinkType is what the port's firmware is configured to be.
type LinkType uint8

// Link types, with the values mlx5 uses for port_type (mlx5_ifc.h).
const (
	LinkInfiniBand LinkType = 0
	LinkEthernet   LinkType = 1
)

// State is the logical port state (PortInfo.PortState, IBA 14.2.5.6).
type State uint8

// Logical port states.
const (
	StateDown   State = 1
	StateInit   State = 2
	StateArmed  State = 3
	StateActive State = 4
)

// PhysState is PortInfo.PortPhysicalState.
type PhysState uint8

// Physical port states.
const (
	PhysPolling  PhysState = 2
	PhysDisabled PhysState = 3
	PhysLinkUp   PhysState = 5
)

// PortInfo is a copy of what is known of a port at one moment.
type PortInfo struct {
	GUID      GUID
	Prefix    uint64 // subnet prefix, 0xfe80000000000000 by default
	Link      LinkType
	State     State
	Phys      PhysState
	LID       uint16
	SMLID     uint16
	SMSL      uint8
	CapMask   uint32
	PKeys     []uint16 // the whole table, 0 where an entry is free
	MTU       int      // bytes: the port's largest, 2048 or 4096
	SMPresent bool
}

// Change says what happened to a port. The values are a set.
type Change uint32

// Changes of a port; a receiver re-reads [PortInfo].
const (
	ChangeState       Change = 1 << iota // logical or physical state
	ChangeLID                            // LID or SM LID
	ChangePKeys                          // the P_Key table
	ChangeGIDs                           // the subnet prefix
	ChangeReregister                     // the SM asks clients to join again
	ChangeLinkType                       // takes effect at the next firmware start
	ChangeCableModule                    // unplugged, high temperature, power
)

// Endpoint is what sits behind a port: an HCA or a host without one. The
// fabric calls it from its own goroutines, never while holding a lock, and for
// one port never twice at the same time.
type Endpoint interface {
	Receive(Packet)
	PortChanged(Change)
}

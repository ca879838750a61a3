// Package wire is the message format of the vfio-user protocol: what server
// and client share. Names and layouts follow docs/interop/vfio-user.rst of
// QEMU; structures that the protocol takes from linux/vfio.h keep its meaning.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Command numbers a message.
type Command uint16

// Commands. DMARead and DMAWrite go from server to client, all others from
// client to server.
const (
	Version            Command = 1
	DMAMap             Command = 2
	DMAUnmap           Command = 3
	DeviceGetInfo      Command = 4
	DeviceGetRegion    Command = 5
	DeviceGetRegionFDs Command = 6
	DeviceGetIRQ       Command = 7
	DeviceSetIRQs      Command = 8
	RegionRead         Command = 9
	RegionWrite        Command = 10
	DMARead            Command = 11
	DMAWrite           Command = 12
	DeviceReset        Command = 13
	RegionWriteMulti   Command = 15
)

// Header flags. The low four bits are the type: a command or a reply.
const (
	TypeMask    = 0xf
	TypeCommand = 0
	TypeReply   = 1
	FlagNoReply = 1 << 4
	FlagError   = 1 << 5
)

// The protocol version spoken here; the client may propose an older minor.
const (
	Major = 0
	Minor = 1
)

// PageSize is the only page size of DMA maps that is negotiated.
const PageSize = 4096

// Limits that both ends of this package announce.
const (
	HeaderSize = 16
	// MaxFDs is how many descriptors may accompany a message.
	MaxFDs = 16
	// MaxTransfer bounds the data of a region or DMA access.
	MaxTransfer = 128 << 10
	// MaxMaps bounds the DMA maps that exist at a time.
	MaxMaps = 65535
	// maxPayload leaves room for the fixed part in front of the data.
	maxPayload = MaxTransfer + 64
)

// ErrMalformed is wrapped by errors about messages that break the format.
var ErrMalformed = errors.New("malformed vfio-user message")

// Message is one message in either direction. Whoever holds it owns FDs.
type Message struct {
	ID      uint16
	Command Command
	Flags   uint32
	Errno   uint32 // of a reply with FlagError
	Payload []byte
	FDs     []int
}

// order: the protocol uses the byte order of the host.
var order = binary.NativeEndian

// VersionHeader starts the payload of Version; JSON and a NUL follow.
type VersionHeader struct{ Major, Minor uint16 }

// DMAMapping is the payload of DMAMap.
type DMAMapping struct {
	ArgSize, Flags     uint32
	Offset, Addr, Size uint64
}

// Flags of DMAMapping.
const (
	MapReadable = 1 << 0
	MapWritable = 1 << 1
)

// DMAUnmapping is the payload of DMAUnmap and of its reply.
type DMAUnmapping struct {
	ArgSize, Flags uint32
	Addr, Size     uint64
}

// UnmapAll in DMAUnmapping.Flags removes every map (VFIO_DMA_UNMAP_FLAG_ALL).
const UnmapAll = 1 << 1

// DeviceInfo is the payload of DeviceGetInfo.
type DeviceInfo struct{ ArgSize, Flags, Regions, IRQs uint32 }

// Flags of DeviceInfo.
const (
	DeviceResets = 1 << 0
	DevicePCI    = 1 << 1
)

// RegionInfo is the payload of DeviceGetRegion.
type RegionInfo struct {
	ArgSize, Flags, Index, CapOffset uint32
	Size, Offset                     uint64
}

// Flags of RegionInfo.
const (
	RegionReadable = 1 << 0
	RegionWritable = 1 << 1
)

// IRQInfo is the payload of DeviceGetIRQ.
type IRQInfo struct{ ArgSize, Flags, Index, Count uint32 }

// Flags of IRQInfo.
const (
	IRQEventFD  = 1 << 0
	IRQMaskable = 1 << 1
)

// IRQ indices of a PCI device.
const (
	IRQINTx = iota
	IRQMSI
	IRQMSIX
	IRQError
	IRQRequest
	NumIRQs
)

// IRQSet starts the payload of DeviceSetIRQs; with IRQDataBool a byte for each
// interrupt follows.
type IRQSet struct{ ArgSize, Flags, Index, Start, Count uint32 }

// Flags of IRQSet: one kind of data and one action.
const (
	IRQDataNone    = 1 << 0
	IRQDataBool    = 1 << 1
	IRQDataEventFD = 1 << 2
	IRQDataMask    = IRQDataNone | IRQDataBool | IRQDataEventFD
	IRQMask        = 1 << 3
	IRQUnmask      = 1 << 4
	IRQTrigger     = 1 << 5
	IRQActionMask  = IRQMask | IRQUnmask | IRQTrigger
)

// RegionAccess starts the payload of RegionRead, RegionWrite and of their
// replies; the data follows.
type RegionAccess struct {
	Offset        uint64
	Region, Count uint32
}

// OneWrite is an element of RegionWriteMulti, whose payload is the number of
// elements (64 bits) and the elements.
type OneWrite struct {
	RegionAccess
	Data [8]byte
}

// DMAAccess starts the payload of DMARead, DMAWrite and of their replies; the
// data follows.
type DMAAccess struct{ Addr, Count uint64 }

// Decode splits p into the fixed part T and what follows.
func Decode[T any](p []byte) (v T, rest []byte, err error) {
	n, err := binary.Decode(p, order, &v)
	if err != nil {
		return v, nil, fmt.Errorf("%w: payload of %d bytes is too short for %T", ErrMalformed, len(p), v)
	}
	return v, p[n:], nil
}

// Encode makes a payload of fixed parts and byte slices.
func Encode(parts ...any) []byte {
	var p []byte
	for _, part := range parts {
		var err error
		if p, err = binary.Append(p, order, part); err != nil {
			panic(err) // a part without a fixed size: wrong in every call
		}
	}
	return p
}

// Capabilities is what a peer announces in Version. Twin sockets and migration
// are neither offered nor asked for.
type Capabilities struct {
	MaxFDs        uint64 `json:"max_msg_fds"`
	MaxTransfer   uint64 `json:"max_data_xfer_size"`
	MaxMaps       uint64 `json:"max_dma_maps"`
	PageSizes     uint64 `json:"pgsizes"`
	WriteMultiple bool   `json:"write_multiple"`
}

// defaults are what holds for what a peer leaves out.
var defaults = Capabilities{MaxFDs: 1, MaxTransfer: 1 << 20, MaxMaps: 65535, PageSizes: PageSize}

type versionData struct {
	Capabilities Capabilities `json:"capabilities"`
}

// EncodeVersion makes the payload of Version.
func EncodeVersion(minor uint16, c Capabilities) []byte {
	data, err := json.Marshal(versionData{c})
	if err != nil {
		panic(err) // numbers and a boolean
	}
	return Encode(VersionHeader{Major, minor}, data, byte(0))
}

// DecodeVersion parses the payload of Version.
func DecodeVersion(p []byte) (VersionHeader, Capabilities, error) {
	v, data, err := Decode[VersionHeader](p)
	if err != nil {
		return v, Capabilities{}, err
	}
	d := versionData{defaults}
	if len(data) == 0 {
		return v, d.Capabilities, nil
	}
	text, found := bytes.CutSuffix(data, []byte{0})
	if !found {
		return v, d.Capabilities, fmt.Errorf("%w: version data does not end with NUL", ErrMalformed)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return v, d.Capabilities, fmt.Errorf("%w: version data: %v", ErrMalformed, err)
	}
	return v, d.Capabilities, nil
}

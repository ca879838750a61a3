package vfiouser

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// The protocol is described in QEMU's docs/interop/vfio-user.rst; the
// structures inside the messages are those of linux/vfio.h. All integers are
// little endian here, as they are on every host that QEMU's client runs on.

// Commands.
const (
	cmdVersion       = 1
	cmdDMAMap        = 2
	cmdDMAUnmap      = 3
	cmdGetInfo       = 4
	cmdGetRegionInfo = 5
	cmdGetRegionFDs  = 6
	cmdGetIRQInfo    = 7
	cmdSetIRQs       = 8
	cmdRegionRead    = 9
	cmdRegionWrite   = 10
	cmdReset         = 13
)

// Header: id u16, command u16, size u32 (with the header), flags u32, errno u32.
const (
	headerSize = 16

	flagReply   = 0x1
	flagTypes   = 0xf
	flagNoReply = 0x10
	flagError   = 0x20
)

// Limits that the server announces and keeps.
const (
	maxTransfer = 1 << 20
	maxMessage  = headerSize + accessSize + maxTransfer
	maxFDs      = 16
	maxMaps     = 1 << 16
)

// Sizes of the fixed parts of payloads.
const (
	versionSize    = 4  // major u16, minor u16, then JSON with a final NUL
	mapSize        = 32 // argsz, flags u32; offset, address, size u64
	unmapSize      = 24 // argsz, flags u32; address, size u64
	infoSize       = 16 // argsz, flags, regions, irqs u32
	regionInfoSize = 32 // argsz, flags, index, cap_offset u32; size, offset u64
	irqInfoSize    = 16 // argsz, flags, index, count u32
	setIRQsSize    = 20 // argsz, flags, index, start, count u32; data
	accessSize     = 16 // offset u64; region, count u32; data
)

// Flags inside payloads (linux/vfio.h).
const (
	mapRead  = 1 << 0
	mapWrite = 1 << 1
	unmapAll = 1 << 1

	deviceReset = 1 << 0
	devicePCI   = 1 << 1

	regionRead  = 1 << 0
	regionWrite = 1 << 1

	irqEventFD  = 1 << 0
	irqNoResize = 1 << 3

	irqDataNone      = 1 << 0
	irqDataBool      = 1 << 1
	irqDataEventFD   = 1 << 2
	irqActionMask    = 1 << 3
	irqActionUnmask  = 1 << 4
	irqActionTrigger = 1 << 5
)

// Interrupt indices of a PCI device (linux/vfio.h).
const (
	irqINTx = iota
	irqMSI
	irqMSIX
	irqError
	irqRequest
	numIRQs
)

// message is one request: header fields and payload. The descriptors are the
// receiver's to close.
type message struct {
	id, command uint16
	flags       uint32
	body        []byte
	fds         []int
}

// parseHeader checks what can be told without the payload.
func parseHeader(h []byte) (message, int, error) {
	le := binary.LittleEndian
	m := message{id: le.Uint16(h), command: le.Uint16(h[2:]), flags: le.Uint32(h[8:])}
	size := le.Uint32(h[4:])
	if size < headerSize || size > maxMessage {
		return m, 0, fmt.Errorf("message of %d bytes: %d to %d are allowed", size, headerSize, maxMessage)
	}
	if m.flags&flagTypes != 0 {
		return m, 0, fmt.Errorf("message of type %d: a client sends requests only", m.flags&flagTypes)
	}
	return m, int(size) - headerSize, nil
}

// reply encodes the answer to m: errno 0 with a body, or an error without.
func (m *message) reply(errno unix.Errno, body []byte) []byte {
	if errno != 0 {
		body = nil
	}
	b := make([]byte, headerSize, headerSize+len(body))
	le := binary.LittleEndian
	le.PutUint16(b, m.id)
	le.PutUint16(b[2:], m.command)
	le.PutUint32(b[4:], uint32(headerSize+len(body)))
	flags := uint32(flagReply)
	if errno != 0 {
		flags |= flagError
	}
	le.PutUint32(b[8:], flags)
	le.PutUint32(b[12:], uint32(errno))
	return append(b, body...)
}

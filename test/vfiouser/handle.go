package vfiouser

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// regionShift spreads the regions over the offsets that region infos give, as
// the kernel's vfio-pci does. No client uses them: accesses name the region.
const regionShift = 40

var errShort = errors.New("payload too short")

// handler answers one command. The errno goes to the client; an error ends the
// connection, because client and server no longer speak the same protocol.
type handler func(*session, *message) (body []byte, errno unix.Errno, err error)

// handlers by command, with the least payload each needs.
var handlers = map[uint16]struct {
	min int
	do  handler
}{
	cmdVersion:       {versionSize, (*session).version},
	cmdDMAMap:        {mapSize, (*session).dmaMap},
	cmdDMAUnmap:      {unmapSize, (*session).dmaUnmap},
	cmdGetInfo:       {infoSize, (*session).info},
	cmdGetRegionInfo: {regionInfoSize, (*session).regionInfo},
	cmdGetIRQInfo:    {irqInfoSize, (*session).irqInfo},
	cmdSetIRQs:       {setIRQsSize, (*session).setIRQs},
	cmdRegionRead:    {accessSize, (*session).read},
	cmdRegionWrite:   {accessSize, (*session).write},
	cmdReset:         {0, (*session).reset},
}

func (n *session) handle(m *message) ([]byte, unix.Errno, error) {
	h, ok := handlers[m.command]
	switch {
	case !ok: // cmdGetRegionFDs among them: every access is a message here
		return nil, unix.ENOTSUP, nil
	case n.ready == (m.command == cmdVersion):
		return nil, 0, errors.New("the version comes first, and once")
	case len(m.body) < h.min:
		return nil, 0, errShort
	}
	return h.do(n, m)
}

// capabilities is the JSON of a version message.
type capabilities struct {
	Capabilities struct {
		MaxFDs      int    `json:"max_msg_fds,omitempty"`
		MaxTransfer int    `json:"max_data_xfer_size,omitempty"`
		MaxMaps     int    `json:"max_dma_maps,omitempty"`
		PageSizes   uint64 `json:"pgsizes,omitempty"`
	} `json:"capabilities"`
}

func (n *session) version(m *message) ([]byte, unix.Errno, error) {
	le := binary.LittleEndian
	if major := le.Uint16(m.body); major != 0 {
		return nil, 0, fmt.Errorf("protocol version %d.%d: this server speaks 0.x", major, le.Uint16(m.body[2:]))
	}
	if text := bytes.TrimRight(m.body[versionSize:], "\x00"); len(text) > 0 {
		var theirs capabilities
		if err := json.Unmarshal(text, &theirs); err != nil {
			return nil, 0, fmt.Errorf("capabilities: %w", err)
		}
	}
	var ours capabilities
	ours.Capabilities.MaxFDs = maxFDs
	ours.Capabilities.MaxTransfer = maxTransfer
	ours.Capabilities.MaxMaps = maxMaps
	ours.Capabilities.PageSizes = 4096
	text, err := json.Marshal(ours)
	if err != nil {
		return nil, 0, err
	}
	n.ready = true
	body := make([]byte, versionSize)
	le.PutUint16(body[2:], min(1, le.Uint16(m.body[2:])))
	return append(append(body, text...), 0), 0, nil
}

func (n *session) dmaMap(m *message) ([]byte, unix.Errno, error) {
	le, fd := binary.LittleEndian, -1
	switch len(m.fds) {
	case 0:
	case 1:
		fd = m.fds[0] // mmap keeps the file, the descriptor is closed
	default:
		return nil, unix.EINVAL, nil
	}
	flags, offset := le.Uint32(m.body[4:]), le.Uint64(m.body[8:])
	return nil, n.bus.add(le.Uint64(m.body[16:]), le.Uint64(m.body[24:]), offset, fd, flags), nil
}

func (n *session) dmaUnmap(m *message) ([]byte, unix.Errno, error) {
	le := binary.LittleEndian
	if le.Uint32(m.body[4:])&unmapAll != 0 {
		n.bus.memory.clear()
		return m.body[:unmapSize], 0, nil
	}
	return m.body[:unmapSize], n.bus.remove(le.Uint64(m.body[8:]), le.Uint64(m.body[16:])), nil
}

func (n *session) info(*message) ([]byte, unix.Errno, error) {
	return words(infoSize, deviceReset|devicePCI, NumRegions, numIRQs), 0, nil
}

func (n *session) regionInfo(m *message) ([]byte, unix.Errno, error) {
	index := binary.LittleEndian.Uint32(m.body[8:])
	if index >= NumRegions {
		return nil, unix.EINVAL, nil
	}
	r, flags := n.regions[index], uint32(0)
	if r.Readable {
		flags |= regionRead
	}
	if r.Writable {
		flags |= regionWrite
	}
	body := words(regionInfoSize, flags, index, 0)
	body = binary.LittleEndian.AppendUint64(body, r.Size)
	return binary.LittleEndian.AppendUint64(body, uint64(index)<<regionShift), 0, nil
}

func (n *session) irqInfo(m *message) ([]byte, unix.Errno, error) {
	index := binary.LittleEndian.Uint32(m.body[8:])
	if index >= numIRQs {
		return nil, unix.EINVAL, nil
	}
	count := len(n.bus.fds[index]) // fixed when the session was made
	return words(irqInfoSize, irqEventFD|irqNoResize, index, uint32(count)), 0, nil
}

func (n *session) setIRQs(m *message) ([]byte, unix.Errno, error) {
	le := binary.LittleEndian
	flags, index := le.Uint32(m.body[4:]), le.Uint32(m.body[8:])
	start, count := le.Uint32(m.body[12:]), le.Uint32(m.body[16:])
	return nil, n.bus.set(index, start, count, flags, m.body[setIRQsSize:], m.fds), nil
}

// access decodes the fixed part of a region access and checks its range.
func (n *session) access(m *message, allowed func(Region) bool) (off uint64, region, count uint32, errno unix.Errno) {
	le := binary.LittleEndian
	off, region, count = le.Uint64(m.body), le.Uint32(m.body[8:]), le.Uint32(m.body[12:])
	if region >= NumRegions || count > maxTransfer {
		return 0, 0, 0, unix.EINVAL
	}
	r := n.regions[region]
	if !allowed(r) || uint64(count) > r.Size || off > r.Size-uint64(count) {
		return 0, 0, 0, unix.EINVAL
	}
	return off, region, count, 0
}

func (n *session) read(m *message) ([]byte, unix.Errno, error) {
	off, region, count, errno := n.access(m, func(r Region) bool { return r.Readable })
	if errno != 0 {
		return nil, errno, nil
	}
	body := make([]byte, accessSize+int(count))
	copy(body, m.body[:accessSize])
	if err := n.dev.ReadRegion(int(region), off, body[accessSize:]); err != nil {
		return nil, toErrno(err), nil
	}
	return body, 0, nil
}

func (n *session) write(m *message) ([]byte, unix.Errno, error) {
	off, region, count, errno := n.access(m, func(r Region) bool { return r.Writable })
	if errno != 0 {
		return nil, errno, nil
	}
	if len(m.body) < accessSize+int(count) {
		return nil, 0, errShort
	}
	if err := n.dev.WriteRegion(int(region), off, m.body[accessSize:][:count]); err != nil {
		return nil, toErrno(err), nil
	}
	return m.body[:accessSize], 0, nil
}

func (n *session) reset(*message) ([]byte, unix.Errno, error) {
	n.dev.Reset()
	return nil, 0, nil
}

// words encodes a payload that begins with its own size.
func words(size uint32, rest ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, size)
	for _, w := range rest {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

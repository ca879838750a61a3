package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

// dispatch carries out a request and returns the payload of the reply. An
// error that wraps wire.ErrMalformed ends the session, others are replied. A
// bare unix.Errno is a no that clients expect.
func (s *session) dispatch(m *wire.Message) ([]byte, error) {
	if s.attached == (m.Command == wire.Version) {
		return nil, fmt.Errorf("%w: VERSION comes first, and once", wire.ErrMalformed)
	}
	if n := len(m.FDs); n > 0 && m.Command != wire.DeviceSetIRQs && (m.Command != wire.DMAMap || n > 1) {
		return nil, fmt.Errorf("%w: %d descriptors", wire.ErrMalformed, n)
	}
	switch m.Command {
	case wire.Version:
		return s.version(m.Payload)
	case wire.DMAMap:
		return nil, s.dmaMap(m)
	case wire.DMAUnmap:
		return s.dmaUnmap(m.Payload)
	case wire.DeviceGetInfo:
		return s.deviceInfo(m.Payload)
	case wire.DeviceGetRegion:
		return s.regionInfo(m.Payload)
	case wire.DeviceGetIRQ:
		return s.irqInfo(m.Payload)
	case wire.DeviceSetIRQs:
		return nil, s.irqs.set(m)
	case wire.RegionRead:
		return s.regionRead(m.Payload)
	case wire.RegionWrite:
		return s.regionWrite(m.Payload)
	case wire.RegionWriteMulti:
		return s.regionWriteMulti(m.Payload)
	case wire.DeviceReset:
		s.dev.Reset()
		return nil, nil
	}
	// DEVICE_GET_REGION_IO_FDS, migration, and what later versions bring.
	return nil, unix.ENOTSUP
}

// errnoOf is what the client is told of an error.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// version agrees on a version and attaches the device.
func (s *session) version(p []byte) ([]byte, error) {
	v, caps, err := wire.DecodeVersion(p)
	if err != nil {
		return nil, err
	}
	if v.Major != wire.Major {
		return nil, fmt.Errorf("%w: protocol version %d.%d, not %d.x", wire.ErrMalformed, v.Major, v.Minor, wire.Major)
	}
	if caps.MaxTransfer == 0 {
		return nil, fmt.Errorf("%w: max_data_xfer_size 0", wire.ErrMalformed)
	}
	// QEMU takes the server's limit for accesses in both directions.
	s.remote.maxTransfer = int(min(caps.MaxTransfer, wire.MaxTransfer))
	s.multi = caps.WriteMultiple
	s.attached = true
	s.dev.Attach(s)
	s.regions = s.dev.Regions()
	return wire.EncodeVersion(min(v.Minor, wire.Minor), wire.Capabilities{
		MaxFDs: wire.MaxFDs, MaxTransfer: wire.MaxTransfer, MaxMaps: wire.MaxMaps,
		PageSizes: wire.PageSize, WriteMultiple: s.multi,
	}), nil
}

func (s *session) dmaMap(m *wire.Message) error {
	r, _, err := wire.Decode[wire.DMAMapping](m.Payload)
	if err != nil {
		return err
	}
	fd := -1
	if len(m.FDs) > 0 {
		fd = m.FDs[0]
	}
	return s.mem.add(r, fd)
}

func (s *session) dmaUnmap(p []byte) ([]byte, error) {
	r, _, err := wire.Decode[wire.DMAUnmapping](p)
	switch {
	case err != nil:
		return nil, err
	case r.Flags == wire.UnmapAll:
		s.mem.removeAll()
	case r.Flags != 0: // a dirty bitmap is wanted: migration
		return nil, fmt.Errorf("unmap flags %#x: %w", r.Flags, unix.ENOTSUP)
	default:
		if err := s.mem.remove(r.Addr, r.Size); err != nil {
			return nil, err
		}
	}
	return wire.Encode(r), nil
}

func (s *session) deviceInfo(p []byte) ([]byte, error) {
	r, _, err := wire.Decode[wire.DeviceInfo](p)
	if err != nil {
		return nil, err
	}
	return sized(r.ArgSize, wire.DeviceInfo{
		ArgSize: 16, Flags: wire.DevicePCI | wire.DeviceResets,
		Regions: NumRegions, IRQs: wire.NumIRQs,
	})
}

func (s *session) regionInfo(p []byte) ([]byte, error) {
	r, _, err := wire.Decode[wire.RegionInfo](p)
	if err != nil {
		return nil, err
	}
	if r.Index >= NumRegions {
		return nil, fmt.Errorf("region %d: %w", r.Index, unix.EINVAL)
	}
	region := s.regions[r.Index]
	info := wire.RegionInfo{ArgSize: 32, Index: r.Index, Size: region.Size}
	if region.Readable {
		info.Flags |= wire.RegionReadable
	}
	if region.Writable {
		info.Flags |= wire.RegionWritable
	}
	return sized(r.ArgSize, info)
}

func (s *session) irqInfo(p []byte) ([]byte, error) {
	r, _, err := wire.Decode[wire.IRQInfo](p)
	if err != nil {
		return nil, err
	}
	info := wire.IRQInfo{ArgSize: 16, Index: r.Index}
	switch r.Index {
	case wire.IRQMSIX:
		info.Count = uint32(len(s.irqs.vectors))
		info.Flags = wire.IRQEventFD
	case wire.IRQINTx, wire.IRQMSI, wire.IRQRequest:
	default:
		// No error reporting, to which the kernel's vfio-pci says the same:
		// QEMU warns of a count of zero.
		return nil, unix.EINVAL
	}
	return sized(r.ArgSize, info)
}

// sized encodes an answer if the client has room for it.
func sized(room uint32, v any) ([]byte, error) {
	p := wire.Encode(v)
	if int64(room) < int64(len(p)) {
		return nil, fmt.Errorf("argsz %d for a reply of %d bytes: %w", room, len(p), unix.EINVAL)
	}
	return p, nil
}

// checkAccess finds out whether an access is one that the device may see.
func (s *session) checkAccess(a wire.RegionAccess, write bool) error {
	if a.Region >= NumRegions {
		return fmt.Errorf("region %d: %w", a.Region, unix.EINVAL)
	}
	r := s.regions[a.Region]
	if a.Offset > r.Size || uint64(a.Count) > r.Size-a.Offset || a.Count > wire.MaxTransfer {
		return fmt.Errorf("access %#x+%#x of region %d, size %#x: %w", a.Offset, a.Count, a.Region, r.Size, unix.EINVAL)
	}
	if write && !r.Writable || !write && !r.Readable {
		return fmt.Errorf("access %#x+%#x of region %d: %w", a.Offset, a.Count, a.Region, unix.EACCES)
	}
	return nil
}

func (s *session) regionRead(p []byte) ([]byte, error) {
	a, _, err := wire.Decode[wire.RegionAccess](p)
	if err != nil {
		return nil, err
	}
	if err := s.checkAccess(a, false); err != nil {
		return nil, err
	}
	data := make([]byte, a.Count)
	if err := s.dev.ReadRegion(int(a.Region), a.Offset, data); err != nil {
		return nil, err
	}
	return wire.Encode(a, data), nil
}

func (s *session) regionWrite(p []byte) ([]byte, error) {
	a, data, err := wire.Decode[wire.RegionAccess](p)
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != uint64(a.Count) {
		return nil, fmt.Errorf("%w: %d bytes of data, count %d", wire.ErrMalformed, len(data), a.Count)
	}
	if err := s.write(a, data); err != nil {
		return nil, err
	}
	return wire.Encode(a), nil
}

func (s *session) write(a wire.RegionAccess, data []byte) error {
	if err := s.checkAccess(a, true); err != nil {
		return err
	}
	return s.dev.WriteRegion(int(a.Region), a.Offset, data)
}

// regionWriteMulti carries out several short writes. All are tried; the
// first error is the answer.
func (s *session) regionWriteMulti(p []byte) ([]byte, error) {
	if !s.multi {
		return nil, fmt.Errorf("REGION_WRITE_MULTI was not negotiated: %w", unix.ENOTSUP)
	}
	count, rest, err := wire.Decode[uint64](p)
	if err != nil {
		return nil, err
	}
	var first error
	for range count {
		var w wire.OneWrite
		if w, rest, err = wire.Decode[wire.OneWrite](rest); err != nil {
			return nil, err
		}
		if w.Count > uint32(len(w.Data)) {
			return nil, fmt.Errorf("%w: write of %d bytes among several", wire.ErrMalformed, w.Count)
		}
		if err := s.write(w.RegionAccess, w.Data[:w.Count]); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return wire.Encode(count), nil
}

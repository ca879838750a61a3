package vfiouser

import (
	"cmp"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

// memory is the guest memory that the client has mapped for the device.
type memory struct {
	remote *remote

	// mu is held for reading while a copy runs, so a map goes away only when
	// nobody uses it. It is not held for accesses by message: the client may
	// need the answer to an unmap before it can serve them.
	mu   sync.RWMutex
	maps []dmaMap // by address, disjoint
}

// dmaMap is a range of bus addresses.
type dmaMap struct {
	addr, size  uint64
	read, write bool
	bytes       []byte // nil: no descriptor came, messages are the way in
}

// end is the last address of the map; one past it may not fit in 64 bits.
func (m dmaMap) end() uint64 { return m.addr + m.size - 1 }

// byAddress places addr among sorted maps: equal when the map contains it.
func byAddress(m dmaMap, addr uint64) int {
	if addr >= m.addr && addr <= m.end() {
		return 0
	}
	return cmp.Compare(m.addr, addr)
}

// add maps a range. The descriptor, -1 for none, stays the caller's. Errors
// are of type unix.Errno.
func (mem *memory) add(r wire.DMAMapping, fd int) error {
	m := dmaMap{addr: r.Addr, size: r.Size, read: r.Flags&wire.MapReadable != 0, write: r.Flags&wire.MapWritable != 0}
	if m.size == 0 || m.end() < m.addr || (m.addr|m.size|r.Offset)%wire.PageSize != 0 {
		return fmt.Errorf("range %#x+%#x: %w", r.Addr, r.Size, unix.EINVAL)
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	// The first map that ends at or after the start is the only candidate for
	// an overlap, and the place to insert.
	i, _ := slices.BinarySearchFunc(mem.maps, m.addr, byAddress)
	if i < len(mem.maps) && mem.maps[i].addr <= m.end() {
		return fmt.Errorf("range %#x+%#x overlaps %#x+%#x: %w", r.Addr, r.Size, mem.maps[i].addr, mem.maps[i].size, unix.EEXIST)
	}
	if len(mem.maps) >= wire.MaxMaps {
		return fmt.Errorf("more than %d maps: %w", wire.MaxMaps, unix.ENOSPC)
	}
	if fd >= 0 {
		var err error
		if m.bytes, err = mapFile(fd, r.Offset, m.size, m.write); err != nil {
			return fmt.Errorf("range %#x+%#x: %w", r.Addr, r.Size, err)
		}
	}
	mem.maps = slices.Insert(mem.maps, i, m)
	return nil
}

// mapFile maps a part of a file that must be there: pages behind its end
// would fault.
func mapFile(fd int, offset, size uint64, write bool) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("fstat: %w", err)
	}
	if size > math.MaxInt || offset > math.MaxInt64 || st.Size < int64(offset) || uint64(st.Size)-offset < size {
		return nil, fmt.Errorf("offset %#x in a file of %#x bytes: %w", offset, st.Size, unix.EINVAL)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	p, err := unix.Mmap(fd, int64(offset), int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return p, nil
}

// remove unmaps the range, which must be one that was added. When it returns
// no copy uses the range.
func (mem *memory) remove(addr, size uint64) error {
	mem.mu.Lock()
	defer mem.mu.Unlock()
	i, found := slices.BinarySearchFunc(mem.maps, addr, byAddress)
	if !found || mem.maps[i].addr != addr || mem.maps[i].size != size {
		return fmt.Errorf("range %#x+%#x is not mapped as such: %w", addr, size, unix.ENOENT)
	}
	mem.maps[i].unmap()
	mem.maps = slices.Delete(mem.maps, i, i+1)
	return nil
}

func (mem *memory) removeAll() {
	mem.mu.Lock()
	defer mem.mu.Unlock()
	for _, m := range mem.maps {
		m.unmap()
	}
	mem.maps = nil
}

func (m dmaMap) unmap() {
	if m.bytes != nil {
		unix.Munmap(m.bytes)
	}
}

// access copies p to or from guest memory, map by map.
func (mem *memory) access(addr uint64, p []byte, write bool) error {
	for len(p) > 0 {
		n, err := mem.accessOne(addr, p, write)
		if err != nil {
			return err
		}
		if p = p[n:]; len(p) > 0 && addr+uint64(n) < addr {
			return fmt.Errorf("vfiouser: access beyond the last bus address")
		}
		addr += uint64(n)
	}
	return nil
}

// accessOne copies what lies in the map that contains addr.
func (mem *memory) accessOne(addr uint64, p []byte, write bool) (int, error) {
	mem.mu.RLock()
	i, found := slices.BinarySearchFunc(mem.maps, addr, byAddress)
	if !found {
		mem.mu.RUnlock()
		return 0, fmt.Errorf("vfiouser: bus address %#x is not mapped", addr)
	}
	m := mem.maps[i]
	if write && !m.write || !write && !m.read {
		mem.mu.RUnlock()
		return 0, fmt.Errorf("vfiouser: bus address %#x does not allow this access", addr)
	}
	// In terms of the last byte: a map may end with the address space.
	n := int(min(uint64(len(p))-1, m.end()-addr)) + 1
	if m.bytes == nil {
		mem.mu.RUnlock()
		return n, mem.remote.access(addr, p[:n], write)
	}
	defer mem.mu.RUnlock()
	guest := m.bytes[addr-m.addr:][:n]
	if write {
		return n, guardedCopy(guest, p[:n])
	}
	return n, guardedCopy(p[:n], guest)
}

// guardedCopy copies to or from a file mapping. A client that has truncated
// the file meanwhile is an error here, not the end of the process.
func guardedCopy(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		err = fmt.Errorf("vfiouser: guest memory is gone from under its map (fault at %#x)", fault.Addr())
	}()
	copy(dst, src)
	return nil
}

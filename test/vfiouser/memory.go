package vfiouser

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

// memory is the guest's memory as the client has mapped it for DMA: ranges of
// bus addresses that do not overlap, sorted.
type memory struct {
	mu   sync.RWMutex // held for reading while guest memory is copied
	maps []mapping
}

type mapping struct {
	addr, size uint64
	// data is nil for a range that the client did not back with a descriptor,
	// such as a ROM: a device has no business there.
	data     []byte
	writable bool
}

func (m *mapping) end() uint64 { return m.addr + m.size }

// find returns the index of the first map that ends behind addr.
func (m *memory) find(addr uint64) int {
	return sort.Search(len(m.maps), func(i int) bool { return m.maps[i].end() > addr })
}

// add maps size bytes at addr; fd is -1 when the range has no descriptor.
func (m *memory) add(addr, size, offset uint64, fd int, flags uint32) unix.Errno {
	if size == 0 || addr+size < addr {
		return unix.EINVAL
	}
	n := mapping{addr: addr, size: size, writable: flags&mapWrite != 0}
	if fd >= 0 {
		prot := 0
		if flags&mapRead != 0 {
			prot |= unix.PROT_READ
		}
		if n.writable {
			prot |= unix.PROT_WRITE
		}
		if size > 1<<46 || offset > 1<<62 {
			return unix.EINVAL
		}
		data, err := unix.Mmap(fd, int64(offset), int(size), prot, unix.MAP_SHARED)
		if err != nil {
			return toErrno(err)
		}
		n.data = data
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(addr)
	errno := unix.Errno(0)
	switch {
	case len(m.maps) >= maxMaps:
		errno = unix.ENOSPC
	case i < len(m.maps) && m.maps[i].addr < n.end():
		errno = unix.EEXIST
	}
	if errno != 0 {
		n.unmap()
		return errno
	}
	m.maps = append(m.maps, mapping{})
	copy(m.maps[i+1:], m.maps[i:])
	m.maps[i] = n
	return 0
}

// remove takes away every map inside the range. One that the range would cut
// in two is an error, and then nothing is removed.
func (m *memory) remove(addr, size uint64) unix.Errno {
	if addr+size < addr {
		return unix.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(addr)
	j := i
	for ; j < len(m.maps) && m.maps[j].addr < addr+size; j++ {
		if m.maps[j].addr < addr || m.maps[j].end() > addr+size {
			return unix.EINVAL
		}
	}
	for k := i; k < j; k++ {
		m.maps[k].unmap()
	}
	m.maps = append(m.maps[:i], m.maps[j:]...)
	return 0
}

func (m *memory) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.maps {
		m.maps[i].unmap()
	}
	m.maps = nil
}

func (m *mapping) unmap() {
	if m.data != nil {
		_ = unix.Munmap(m.data) // it was ours: the kernel has no reason to refuse
		m.data = nil
	}
}

// ReadDMA implements [Bus].
func (m *memory) ReadDMA(addr uint64, p []byte) error {
	return m.transfer(addr, p, false)
}

// WriteDMA implements [Bus].
func (m *memory) WriteDMA(addr uint64, p []byte) error {
	return m.transfer(addr, p, true)
}

func (m *memory) transfer(addr uint64, p []byte, write bool) (err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	// The client may have truncated the file behind a map: that is a fault in
	// the middle of copy, and the client's, not a reason to die.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = fmt.Errorf("vfiouser: DMA at %#x: %w", addr, e)
				return
			}
			panic(r)
		}
	}()
	for i := m.find(addr); len(p) > 0; i++ {
		if i >= len(m.maps) || m.maps[i].addr > addr {
			return fmt.Errorf("vfiouser: DMA at %#x: nothing is mapped there", addr)
		}
		t := &m.maps[i]
		switch {
		case t.data == nil:
			return fmt.Errorf("vfiouser: DMA at %#x: the client keeps this memory to itself", addr)
		case write && !t.writable:
			return fmt.Errorf("vfiouser: DMA at %#x: read-only memory", addr)
		}
		n := 0
		if at := t.data[addr-t.addr:]; write {
			n = copy(at, p)
		} else {
			n = copy(p, at)
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

func toErrno(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EIO
}

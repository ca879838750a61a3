package vfiouser

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"
)

// interrupts holds the event descriptors that the client gave for each
// interrupt. The client keeps the MSI-X table and its masks: a vector fires
// here whenever the device says so.
type interrupts struct {
	mu  sync.Mutex
	fds [numIRQs][]int // -1 where the client has set none
}

func newInterrupts(vectors int) *interrupts {
	t := &interrupts{}
	for index, n := range [numIRQs]int{irqINTx: 1, irqMSIX: vectors, irqError: 1, irqRequest: 1} {
		for range n {
			t.fds[index] = append(t.fds[index], -1)
		}
	}
	return t
}

// Interrupt implements [Bus].
func (t *interrupts) Interrupt(vector int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if vector >= 0 && vector < len(t.fds[irqMSIX]) {
		fire(t.fds[irqMSIX][vector])
	}
}

func fire(fd int) {
	if fd >= 0 {
		// A full counter (EAGAIN) means that the guest has an interrupt pending.
		_, _ = unix.Write(fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

// set is VFIO_DEVICE_SET_IRQS (linux/vfio.h). It keeps the descriptors it
// takes and nils them in fds; the others stay the caller's.
func (t *interrupts) set(index, start, count, flags uint32, data []byte, fds []int) unix.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index >= numIRQs {
		return unix.EINVAL
	}
	vectors := t.fds[index]
	if uint64(start)+uint64(count) > uint64(len(vectors)) {
		return unix.EINVAL
	}
	vectors = vectors[start : start+count]
	switch flags & (irqActionMask | irqActionUnmask | irqActionTrigger) {
	case irqActionMask, irqActionUnmask:
		return 0
	case irqActionTrigger:
	default:
		return unix.EINVAL
	}
	switch flags & (irqDataNone | irqDataBool | irqDataEventFD) {
	case irqDataNone:
		if count == 0 { // all of this index off
			drop(t.fds[index])
			return 0
		}
		for _, fd := range vectors {
			fire(fd)
		}
	case irqDataBool:
		if len(data) < int(count) {
			return unix.EINVAL
		}
		for i, fd := range vectors {
			if data[i] != 0 {
				fire(fd)
			}
		}
	case irqDataEventFD:
		// No descriptors at all: these vectors are off.
		if len(fds) != 0 && len(fds) != int(count) {
			return unix.EINVAL
		}
		for _, fd := range fds {
			if err := unix.SetNonblock(fd, true); err != nil {
				return toErrno(err)
			}
		}
		drop(vectors)
		for i := range fds {
			vectors[i], fds[i] = fds[i], -1
		}
	default:
		return unix.EINVAL
	}
	return 0
}

func drop(fds []int) {
	for i, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
			fds[i] = -1
		}
	}
}

func (t *interrupts) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.fds {
		drop(v)
	}
}

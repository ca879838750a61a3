package vfiouser

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

// interrupts are the MSI-X vectors of a session.
type interrupts struct {
	mu      sync.Mutex
	vectors []vector
}

type vector struct {
	fd      int // eventfd, -1 when the guest has not set the vector up
	masked  bool
	pending bool // fired while masked
}

func newInterrupts(n int) *interrupts {
	irqs := &interrupts{vectors: make([]vector, n)}
	for i := range irqs.vectors {
		irqs.vectors[i].fd = -1
	}
	return irqs
}

// fire is a message-signalled interrupt of the device.
func (irqs *interrupts) fire(n int) {
	irqs.mu.Lock()
	defer irqs.mu.Unlock()
	if n >= 0 && n < len(irqs.vectors) {
		irqs.vectors[n].fire()
	}
}

func (v *vector) fire() {
	switch {
	case v.masked:
		v.pending = true
	case v.fd >= 0:
		// An error means a full counter, so an interrupt is already under way,
		// or a descriptor that is none: the guest's loss alone.
		unix.Write(v.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (v *vector) unmask() {
	v.masked = false
	if v.pending {
		v.pending = false
		v.fire()
	}
}

func (v *vector) assign(fd int) {
	if v.fd >= 0 {
		unix.Close(v.fd)
	}
	v.fd = fd
}

// release forgets all vectors and closes their descriptors.
func (irqs *interrupts) release() {
	irqs.mu.Lock()
	defer irqs.mu.Unlock()
	for i := range irqs.vectors {
		irqs.vectors[i].assign(-1)
		irqs.vectors[i] = vector{fd: -1}
	}
}

// set carries out DEVICE_SET_IRQS. Descriptors that it keeps it takes out of
// the message.
func (irqs *interrupts) set(m *wire.Message) error {
	req, data, err := wire.Decode[wire.IRQSet](m.Payload)
	if err != nil {
		return err
	}
	kind, action := req.Flags&wire.IRQDataMask, req.Flags&wire.IRQActionMask
	if kind != wire.IRQDataEventFD && len(m.FDs) > 0 {
		return fmt.Errorf("%w: descriptors with interrupt flags %#x", wire.ErrMalformed, req.Flags)
	}
	if req.Index >= wire.NumIRQs {
		return fmt.Errorf("interrupt type %d: %w", req.Index, unix.EINVAL)
	}
	if kind == wire.IRQDataNone && action == wire.IRQTrigger && req.Start == 0 && req.Count == 0 {
		if req.Index == wire.IRQMSIX {
			irqs.release()
		}
		return nil
	}
	if req.Index != wire.IRQMSIX {
		return fmt.Errorf("interrupt type %d has no vectors: %w", req.Index, unix.EINVAL)
	}
	irqs.mu.Lock()
	defer irqs.mu.Unlock()
	if n := uint32(len(irqs.vectors)); req.Start > n || req.Count > n-req.Start {
		return fmt.Errorf("vectors %d+%d of %d: %w", req.Start, req.Count, n, unix.EINVAL)
	}
	vectors := irqs.vectors[req.Start:][:req.Count]
	switch {
	case kind == wire.IRQDataEventFD && action == wire.IRQTrigger:
		return assign(vectors, m)
	case kind == wire.IRQDataNone:
		data = nil
	case kind == wire.IRQDataBool && len(data) != len(vectors):
		return fmt.Errorf("%w: %d booleans for %d vectors", wire.ErrMalformed, len(data), len(vectors))
	case kind != wire.IRQDataBool:
		return fmt.Errorf("interrupt flags %#x: %w", req.Flags, unix.EINVAL)
	}
	for i := range vectors {
		if data != nil && data[i] == 0 {
			continue
		}
		switch action {
		case wire.IRQTrigger:
			vectors[i].fire()
		case wire.IRQMask:
			vectors[i].masked = true
		case wire.IRQUnmask:
			vectors[i].unmask()
		default:
			return fmt.Errorf("interrupt flags %#x: %w", req.Flags, unix.EINVAL)
		}
	}
	return nil
}

// assign gives each vector its eventfd; without descriptors it takes them away.
func assign(vectors []vector, m *wire.Message) error {
	if len(m.FDs) != 0 && len(m.FDs) != len(vectors) {
		return fmt.Errorf("%w: %d descriptors for %d vectors", wire.ErrMalformed, len(m.FDs), len(vectors))
	}
	for i := range vectors {
		fd := -1
		if len(m.FDs) > 0 {
			fd = m.FDs[i]
			// A client that lets its counter run full must not stop the device.
			if err := unix.SetNonblock(fd, true); err != nil {
				m.FDs = m.FDs[i:]
				return fmt.Errorf("eventfd: %w", err)
			}
		}
		vectors[i].assign(fd)
	}
	m.FDs = nil
	return nil
}

package vfiouser

import (
	"fmt"
	"time"

	"ibup/test/vfiouser/internal/wire"
)

// remoteTimeout is how long the client may take to answer; QEMU waits as long
// for its own messages.
const remoteTimeout = 5 * time.Second

// remote reaches guest memory that came without a descriptor: by messages to
// the client.
//
// QEMU answers them only while no thread of it waits for us: a device that
// makes such an access from within a region read, or in a write that the guest
// waits for, gets a time-out.
type remote struct {
	*wire.Caller
	maxTransfer int
}

// access copies p in pieces that the client accepts.
func (r *remote) access(addr uint64, p []byte, write bool) error {
	for len(p) > 0 {
		n := min(len(p), r.maxTransfer)
		if err := r.transfer(addr, p[:n], write); err != nil {
			return fmt.Errorf("vfiouser: guest memory at %#x: %w", addr, err)
		}
		addr, p = addr+uint64(n), p[n:]
	}
	return nil
}

func (r *remote) transfer(addr uint64, p []byte, write bool) error {
	head := wire.DMAAccess{Addr: addr, Count: uint64(len(p))}
	m := &wire.Message{Command: wire.DMARead, Payload: wire.Encode(head)}
	if write {
		m.Command, m.Payload = wire.DMAWrite, append(m.Payload, p...)
	}
	reply, err := r.Call(m)
	if err != nil || write {
		return err
	}
	got, data, err := wire.Decode[wire.DMAAccess](reply.Payload)
	if err != nil || got != head || len(data) != len(p) {
		return fmt.Errorf("%w: the reply does not match the request", wire.ErrMalformed)
	}
	copy(p, data)
	return nil
}

package vfiouser

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

// remoteTimeout is how long the client may take to answer; QEMU waits as long
// for its own messages.
const remoteTimeout = 5 * time.Second

var errDisconnected = errors.New("vfiouser: the client has disconnected")

// remote reaches guest memory that came without a descriptor: by messages to
// the client.
//
// QEMU answers them only while no thread of it waits for us: a device that
// makes such an access from within a region read, or in a write that the guest
// waits for, gets a time-out.
type remote struct {
	conn        *wire.Conn
	timeout     time.Duration
	maxTransfer int

	mu      sync.Mutex
	nextID  uint16
	waiting map[uint16]chan *wire.Message
	closed  chan struct{}
}

func newRemote(c *wire.Conn) *remote {
	return &remote{conn: c, timeout: remoteTimeout, waiting: map[uint16]chan *wire.Message{}, closed: make(chan struct{})}
}

// access copies p in pieces that the client accepts.
func (r *remote) access(addr uint64, p []byte, write bool) error {
	for len(p) > 0 {
		n := min(len(p), r.maxTransfer)
		if err := r.transfer(addr, p[:n], write); err != nil {
			return err
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
	reply, err := r.call(m)
	if err != nil {
		return fmt.Errorf("vfiouser: guest memory at %#x: %w", addr, err)
	}
	if write {
		return nil
	}
	got, data, err := wire.Decode[wire.DMAAccess](reply.Payload)
	if err != nil || got != head || len(data) != len(p) {
		return fmt.Errorf("vfiouser: guest memory at %#x: the reply does not match the request", addr)
	}
	copy(p, data)
	return nil
}

// call sends a command and waits for its reply.
func (r *remote) call(m *wire.Message) (*wire.Message, error) {
	reply := make(chan *wire.Message, 1)
	if err := r.register(m, reply); err != nil {
		return nil, err
	}
	defer r.forget(m.ID)
	if err := r.conn.Send(m); err != nil {
		return nil, err
	}
	timer := time.NewTimer(r.timeout)
	defer timer.Stop()
	select {
	case got := <-reply:
		if got.Flags&wire.FlagError != 0 {
			return nil, fmt.Errorf("refused by the client: %w", unix.Errno(got.Errno))
		}
		if got.Command != m.Command {
			return nil, fmt.Errorf("reply to command %d, not %d", got.Command, m.Command)
		}
		return got, nil
	case <-timer.C:
		return nil, fmt.Errorf("the client has not answered for %v", r.timeout)
	case <-r.closed:
		return nil, errDisconnected
	}
}

func (r *remote) register(m *wire.Message, reply chan *wire.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) > 1<<15 {
		return errors.New("too many accesses at a time")
	}
	for r.waiting[r.nextID] != nil {
		r.nextID++
	}
	m.ID = r.nextID
	r.nextID++
	r.waiting[m.ID] = reply
	return nil
}

func (r *remote) forget(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, id)
}

// deliver hands a reply to whom it is for. One that comes too late, or twice,
// is for nobody.
func (r *remote) deliver(m *wire.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.waiting[m.ID]; c != nil {
		c <- m // has room: the entry goes with the first reply
		delete(r.waiting, m.ID)
	}
}

// close ends all accesses, those to come included.
func (r *remote) close() { close(r.closed) }

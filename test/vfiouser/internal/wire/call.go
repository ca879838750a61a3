package wire

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrDisconnected is the error of calls whose connection has ended.
var ErrDisconnected = errors.New("the peer has disconnected")

// Caller makes calls: it sends commands and matches replies with them. Whoever
// receives on the connection gives it the replies.
type Caller struct {
	conn    *Conn
	timeout time.Duration

	mu      sync.Mutex
	nextID  uint16
	waiting map[uint16]chan *Message
	closed  chan struct{}
}

// NewCaller returns a Caller that gives up on a call after the time-out.
func NewCaller(c *Conn, timeout time.Duration) *Caller {
	return &Caller{conn: c, timeout: timeout, waiting: map[uint16]chan *Message{}, closed: make(chan struct{})}
}

// Call sends a command, whose ID it sets, and waits for the reply. An error
// that the peer replies is a unix.Errno, wrapped.
func (c *Caller) Call(m *Message) (*Message, error) {
	reply := make(chan *Message, 1)
	if err := c.register(m, reply); err != nil {
		return nil, err
	}
	defer c.forget(m.ID, reply)
	if err := c.conn.Send(m); err != nil {
		return nil, err
	}
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	select {
	case got := <-reply:
		switch {
		case got.Command != m.Command:
			return nil, fmt.Errorf("%w: reply to command %d, not %d", ErrMalformed, got.Command, m.Command)
		case got.Flags&FlagError != 0:
			return nil, fmt.Errorf("command %d refused: %w", m.Command, unix.Errno(got.Errno))
		}
		return got, nil
	case <-timer.C:
		return nil, fmt.Errorf("command %d not answered for %v", m.Command, c.timeout)
	case <-c.closed:
		return nil, ErrDisconnected
	}
}

func (c *Caller) register(m *Message, reply chan *Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 1<<15 {
		return errors.New("too many calls at a time")
	}
	for c.waiting[c.nextID] != nil {
		c.nextID++
	}
	m.ID = c.nextID
	c.nextID++
	c.waiting[m.ID] = reply
	return nil
}

func (c *Caller) forget(id uint16, reply chan *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[id] == reply {
		delete(c.waiting, id)
	}
}

// Deliver hands a reply to the call it is for. One that comes too late, or
// twice, is for nobody.
func (c *Caller) Deliver(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply := c.waiting[m.ID]; reply != nil {
		reply <- m // has room: the entry goes with the first reply
		delete(c.waiting, m.ID)
	}
}

// Close ends all calls, those to come included. It is called once.
func (c *Caller) Close() { close(c.closed) }

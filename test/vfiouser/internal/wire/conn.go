package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Conn carries messages over a UNIX stream socket. One goroutine may receive
// while any number send.
type Conn struct {
	// SendTimeout, if not zero, is how long a peer may refuse to read before a
	// Send fails. The connection is unusable afterwards.
	SendTimeout time.Duration

	conn *net.UnixConn
	oob  []byte // of the receiving goroutine
	mu   sync.Mutex
}

// NewConn takes over a connection.
func NewConn(c *net.UnixConn) *Conn {
	// Twice what is allowed, so that a few too many are seen, and closed.
	return &Conn{conn: c, oob: make([]byte, unix.CmsgSpace(2*MaxFDs*4))}
}

// Close ends the connection; calls in progress return.
func (c *Conn) Close() error { return c.conn.Close() }

// CloseFDs closes the descriptors that nobody has taken out of the message.
func (m *Message) CloseFDs() {
	for _, fd := range m.FDs {
		unix.Close(fd)
	}
	m.FDs = nil
}

// Receive returns the next message. The error wraps io.EOF when the peer has
// left between two messages.
func (c *Conn) Receive() (_ *Message, err error) {
	m := &Message{}
	defer func() {
		if err != nil {
			m.CloseFDs()
		}
	}()
	var head [HeaderSize]byte
	for n := 0; n < HeaderSize; {
		// Descriptors come with the first byte of the sender's write.
		k, err := c.readWithFDs(head[n:], m)
		if n += k; n > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	m.ID = order.Uint16(head[0:])
	m.Command = Command(order.Uint16(head[2:]))
	size := order.Uint32(head[4:])
	m.Flags = order.Uint32(head[8:])
	m.Errno = order.Uint32(head[12:])
	if size < HeaderSize || size > HeaderSize+maxPayload {
		return nil, fmt.Errorf("%w: command %d with a size of %d bytes", ErrMalformed, m.Command, size)
	}
	if t := m.Flags & TypeMask; t != TypeCommand && t != TypeReply {
		return nil, fmt.Errorf("%w: command %d is neither request nor reply (flags %#x)", ErrMalformed, m.Command, m.Flags)
	}
	m.Payload = make([]byte, size-HeaderSize)
	if _, err := io.ReadFull(c.conn, m.Payload); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	return m, nil
}

// readWithFDs reads once into p and adds the descriptors that came along to m.
func (c *Conn) readWithFDs(p []byte, m *Message) (int, error) {
	n, oobn, flags, _, err := c.conn.ReadMsgUnix(p, c.oob)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	controls, err := unix.ParseSocketControlMessage(c.oob[:oobn])
	if err != nil {
		return n, fmt.Errorf("%w: control data: %v", ErrMalformed, err)
	}
	for _, control := range controls {
		if fds, err := unix.ParseUnixRights(&control); err == nil {
			m.FDs = append(m.FDs, fds...)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 || len(m.FDs) > MaxFDs {
		return n, fmt.Errorf("%w: more than %d descriptors", ErrMalformed, MaxFDs)
	}
	return n, nil
}

// Send sends a message with its descriptors, which stay the caller's. It is
// one write where possible: QEMU does not accept a header in two parts.
func (c *Conn) Send(m *Message) error {
	p := make([]byte, HeaderSize, HeaderSize+len(m.Payload))
	order.PutUint16(p[0:], m.ID)
	order.PutUint16(p[2:], uint16(m.Command))
	order.PutUint32(p[4:], uint32(HeaderSize+len(m.Payload)))
	order.PutUint32(p[8:], m.Flags)
	order.PutUint32(p[12:], m.Errno)
	p = append(p, m.Payload...)
	var oob []byte
	if len(m.FDs) > 0 {
		oob = unix.UnixRights(m.FDs...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.SendTimeout > 0 {
		if err := c.conn.SetWriteDeadline(time.Now().Add(c.SendTimeout)); err != nil {
			return err
		}
	}
	n, _, err := c.conn.WriteMsgUnix(p, oob, nil)
	if err == nil && n < len(p) {
		_, err = c.conn.Write(p[n:])
	}
	if err != nil {
		err = fmt.Errorf("command %d not sent: %w", m.Command, err)
		if os.IsTimeout(err) {
			c.conn.Close() // half a message may be out
		}
	}
	return err
}

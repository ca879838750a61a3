package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Server serves one device on a UNIX socket.
type Server struct {
	Device Device
	// Failed, when set, is told why a connection ended, unless the client
	// simply left.
	Failed func(error)
}

// Serve accepts clients, one at a time, until ctx ends: a device has one bus.
// It closes l. A client that breaks the protocol loses its connection, and the
// next one is served. The error is nil when ctx ended, else the listener's.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("vfiouser: %w", err)
		}
		if err := s.serve(ctx, c); err != nil && ctx.Err() == nil && s.Failed != nil {
			s.Failed(err)
		}
	}
}

// bus is what the device sees of one connection.
type bus struct {
	*memory
	*interrupts
}

// session is one connection.
type session struct {
	dev     Device
	regions [NumRegions]Region
	bus     bus
	ready   bool // the version has been agreed on
}

func (s *Server) serve(ctx context.Context, c *net.UnixConn) error {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	n := &session{
		dev:     s.Device,
		regions: s.Device.Regions(),
		bus:     bus{&memory{}, newInterrupts(s.Device.Vectors())},
	}
	n.dev.Attach(n.bus)
	defer n.bus.memory.clear()
	defer n.bus.interrupts.clear()
	defer n.dev.Detach()
	for {
		m, err := receive(c)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("vfiouser: %w", err)
		}
		body, errno, err := n.handle(&m)
		drop(m.fds) // what handle kept is -1 by now
		if err != nil {
			return fmt.Errorf("vfiouser: command %d: %w", m.command, err)
		}
		if m.flags&flagNoReply != 0 {
			continue
		}
		if _, err := c.Write(m.reply(errno, body)); err != nil {
			return fmt.Errorf("vfiouser: %w", err)
		}
	}
}

// receive reads one request with its descriptors. io.EOF means that the client
// left between two messages.
func receive(c *net.UnixConn) (m message, err error) {
	var head [headerSize]byte
	var fds []int
	defer func() {
		if err != nil {
			drop(fds)
		}
	}()
	// Descriptors come with the first bytes of a message.
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	for got := 0; got < len(head); {
		n, on, flags, _, err := c.ReadMsgUnix(head[got:], oob)
		more, ferr := descriptors(oob[:on])
		fds = append(fds, more...)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return m, err
		case ferr != nil:
			return m, ferr
		case flags&unix.MSG_CTRUNC != 0 || len(fds) > maxFDs:
			return m, fmt.Errorf("more than %d descriptors in a message", maxFDs)
		case n == 0 && got == 0:
			return m, io.EOF
		case n == 0:
			return m, io.ErrUnexpectedEOF
		}
		got += n
	}
	m, size, err := parseHeader(head[:])
	if err != nil {
		return m, err
	}
	m.body = make([]byte, size)
	if _, err := io.ReadFull(c, m.body); err != nil {
		return m, fmt.Errorf("message cut short: %w", err)
	}
	m.fds = fds
	return m, nil
}

// descriptors takes the file descriptors out of control messages.
func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	var fds []int
	for i := range msgs {
		f, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // credentials, say: not ours
		}
		fds = append(fds, f...)
	}
	return fds, nil
}

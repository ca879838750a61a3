package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

const (
	// maxVectors is what an MSI-X capability can express.
	maxVectors = 2048
	// sendTimeout is how long a client may refuse to read.
	sendTimeout = 30 * time.Second
	// queueDepth is how many requests may wait for the device; with the limit
	// on a message it bounds the memory of a session.
	queueDepth = 512
)

// Server serves one device on a UNIX socket.
type Server struct {
	Device Device
	// Failed, when set, is told why a connection ended, unless the client
	// simply left, and which requests the client was refused. Calls come from
	// one goroutine.
	Failed func(error)
}

// Serve accepts clients, one at a time, until ctx ends: a device has one bus.
// What a client does wrong ends its connection only. Serve closes l; its error
// is nil when ctx has ended, else the listener's. All that a client has given
// is released when Serve returns.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	report := s.Failed
	if report == nil {
		report = func(error) {}
	}
	if n := s.Device.Vectors(); n < 0 || n > maxVectors {
		return fmt.Errorf("vfiouser: device with %d MSI-X vectors, allowed are 0 to %d", n, maxVectors)
	}
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("vfiouser: %w", err)
		}
		if err := newSession(c, s.Device, report).run(ctx); err != nil && ctx.Err() == nil {
			report(fmt.Errorf("vfiouser: connection ended: %w", err))
		}
	}
}

// session is the time of one client.
type session struct {
	dev    Device
	report func(error)
	conn   *wire.Conn
	remote *remote
	mem    *memory
	irqs   *interrupts
	// requests are read ahead of the device, which may wait, in the middle of
	// one, for a reply that comes in behind others.
	requests chan *wire.Message
	attached bool // a version has been agreed on
	multi    bool // and with it REGION_WRITE_MULTI
	regions  [NumRegions]Region
}

func newSession(u *net.UnixConn, dev Device, report func(error)) *session {
	conn := wire.NewConn(u)
	conn.SendTimeout = sendTimeout
	r := &remote{Caller: wire.NewCaller(conn, remoteTimeout)}
	return &session{
		dev: dev, report: report, conn: conn, remote: r,
		mem: &memory{remote: r}, irqs: newInterrupts(dev.Vectors()),
		requests: make(chan *wire.Message, queueDepth),
	}
}

// run serves the client until it leaves (nil), breaks the protocol, or ctx
// ends.
func (s *session) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.conn.Close() })()
	received := make(chan error, 1)
	go func() { received <- s.receive() }()

	var err error
	for m := range s.requests {
		if err = s.handle(m); err != nil {
			break
		}
	}
	s.conn.Close()
	for m := range s.requests { // until the receiver has noticed
		m.CloseFDs()
	}
	if e := <-received; err == nil {
		err = e
	}
	if s.attached {
		s.dev.Detach()
	}
	s.irqs.release()
	s.mem.removeAll()
	if hasLeft(err) {
		return nil
	}
	return err
}

// hasLeft tells the end of a client from its misdeeds. It may go without
// having read all replies.
func hasLeft(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// receive sorts what comes in into requests and replies, until it ends.
func (s *session) receive() error {
	defer close(s.requests)
	defer s.remote.Close()
	for {
		m, err := s.conn.Receive()
		if err != nil {
			return err
		}
		if m.Flags&wire.TypeMask == wire.TypeCommand {
			s.requests <- m
			continue
		}
		m.CloseFDs() // no reply has any
		s.remote.Deliver(m)
	}
}

// handle carries out a request and answers it. Its error ends the session.
func (s *session) handle(m *wire.Message) error {
	defer m.CloseFDs() // those that nobody has taken
	payload, err := s.dispatch(m)
	if errors.Is(err, wire.ErrMalformed) {
		return fmt.Errorf("command %d: %w", m.Command, err)
	}
	if _, expected := err.(unix.Errno); err != nil && !expected {
		s.report(fmt.Errorf("vfiouser: command %d refused: %w", m.Command, err))
	}
	if m.Flags&wire.FlagNoReply != 0 {
		return nil
	}
	reply := &wire.Message{ID: m.ID, Command: m.Command, Flags: wire.TypeReply, Payload: payload}
	if err != nil {
		reply.Flags |= wire.FlagError
		reply.Errno, reply.Payload = uint32(errnoOf(err)), nil
	}
	return s.conn.Send(reply)
}

// ReadDMA implements [Bus].
func (s *session) ReadDMA(addr uint64, p []byte) error { return s.mem.access(addr, p, false) }

// WriteDMA implements [Bus].
func (s *session) WriteDMA(addr uint64, p []byte) error { return s.mem.access(addr, p, true) }

// Interrupt implements [Bus].
func (s *session) Interrupt(vector int) { s.irqs.fire(vector) }

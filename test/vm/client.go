package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"ibup/test/vm/wire"
)

// socketPair returns a connection and the file for the child at its other end.
func socketPair(name string) (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	near := os.NewFile(uintptr(fds[0]), name)
	defer near.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		syscall.Close(fds[1])
		return nil, nil, err
	}
	return conn, os.NewFile(uintptr(fds[1]), name), nil
}

// client is the bench's end of the agent's serial line.
type client struct {
	conn  net.Conn
	ready chan struct{} // closed at the greeting

	mu      sync.Mutex
	out     *json.Encoder
	next    uint64
	waiting map[uint64]chan wire.Reply
	err     error
}

func newClient(conn net.Conn) *client {
	c := &client{conn: conn, ready: make(chan struct{}), out: json.NewEncoder(conn), waiting: map[uint64]chan wire.Reply{}}
	go c.receive()
	return c
}

func (c *client) receive() {
	in := json.NewDecoder(c.conn)
	greeted := false
	for {
		var r wire.Reply
		if err := in.Decode(&r); err != nil {
			c.close(fmt.Errorf("agent's line: %w", err))
			return
		}
		if r.ID == 0 {
			if !greeted {
				close(c.ready)
			}
			greeted = true
			continue
		}
		c.mu.Lock()
		ch := c.waiting[r.ID]
		delete(c.waiting, r.ID)
		c.mu.Unlock()
		if ch != nil {
			ch <- r
		}
	}
}

// close fails all requests, now and later, with err.
func (c *client) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.conn.Close()
	}
	for id, ch := range c.waiting {
		close(ch)
		delete(c.waiting, id)
	}
}

// send passes a request on; its reply arrives on the channel, which is closed
// instead when the line fails.
func (c *client) send(r wire.Request) (uint64, <-chan wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.next++
	r.ID = c.next
	ch := make(chan wire.Reply, 1)
	c.waiting[r.ID] = ch
	if err := c.out.Encode(r); err != nil {
		delete(c.waiting, r.ID)
		return 0, nil, fmt.Errorf("agent's line: %w", err)
	}
	return r.ID, ch, nil
}

func (c *client) receiveReply(ctx context.Context, ch <-chan wire.Reply) (wire.Reply, error) {
	select {
	case r, ok := <-ch:
		if !ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			return wire.Reply{}, c.err
		}
		if r.Error != "" {
			return r, errors.New(r.Error)
		}
		return r, nil
	case <-ctx.Done():
		return wire.Reply{}, ctx.Err()
	}
}

// do sends a request and waits for its reply.
func (c *client) do(ctx context.Context, r wire.Request) (wire.Reply, error) {
	_, ch, err := c.send(r)
	if err != nil {
		return wire.Reply{}, err
	}
	return c.receiveReply(ctx, ch)
}

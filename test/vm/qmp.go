package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
)

// qmp speaks the QEMU Machine Protocol, one command at a time.
type qmp struct {
	conn net.Conn
	busy sync.Mutex // held by the command in progress
	in   chan qmpMessage

	mu  sync.Mutex
	err error
}

type qmpMessage struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

func newQMP(conn net.Conn) *qmp {
	q := &qmp{conn: conn, in: make(chan qmpMessage, 1)}
	go q.receive()
	return q
}

func (q *qmp) receive() {
	defer close(q.in)
	d := json.NewDecoder(q.conn)
	for {
		var m qmpMessage
		if err := d.Decode(&m); err != nil {
			q.close(fmt.Errorf("QMP: %w", err))
			return
		}
		if m.Return != nil || m.Error != nil { // not the greeting, not an event
			q.in <- m
		}
	}
}

func (q *qmp) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
		q.conn.Close()
	}
}

func (q *qmp) handshake(ctx context.Context) error {
	_, err := q.execute(ctx, "qmp_capabilities", nil)
	return err
}

func (q *qmp) execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	q.busy.Lock()
	defer q.busy.Unlock()
	req := map[string]any{"execute": command}
	if arguments != nil {
		req["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(req); err != nil {
		return nil, fmt.Errorf("QMP %s: %w", command, err)
	}
	select {
	case m, ok := <-q.in:
		switch {
		case !ok:
			q.mu.Lock()
			defer q.mu.Unlock()
			return nil, fmt.Errorf("QMP %s: %w", command, q.err)
		case m.Error != nil:
			return nil, fmt.Errorf("QMP %s: %s", command, m.Error.Desc)
		}
		return m.Return, nil
	case <-ctx.Done():
		err := fmt.Errorf("QMP %s: %w", command, ctx.Err())
		q.close(err) // its answer would be taken for the next command's
		return nil, err
	}
}

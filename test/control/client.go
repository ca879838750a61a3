package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
)

// Args are a request's arguments by name.
type Args map[string]any

// Client talks to a [Server]. Its methods may be called from any goroutine.
type Client struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to the socket at path.
func Dial(path string) (*Client, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	return &Client{conn: c, in: bufio.NewReader(c)}, nil
}

// Do sends a command and waits for its reply. A command that was refused is an
// error with the server's words.
func (c *Client) Do(command string, args Args) (Reply, error) {
	request := map[string]any{}
	maps.Copy(request, args)
	request["do"] = command
	line, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("control: %s: %w", command, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("control: %s: %w", command, err)
	}
	answer, err := c.in.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("control: %s: no reply: %w", command, err)
	}
	var reply Reply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("control: %s: reply %q: %w", command, answer, err)
	}
	if reply["ok"] != true {
		return nil, errors.New("control: " + fmt.Sprint(reply["error"]))
	}
	return reply, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

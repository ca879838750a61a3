// Package control turns every lever of a fabric and its adapters while virtual
// machines run, from a program or a shell, over a UNIX socket.
//
// A request is one line with a JSON object, and so is its reply:
//
//	{"do":"sm","mode":"absent"}
//	{"ok":true}
//	{"do":"phys","port":"hca0","state":"Poling"}
//	{"error":"phys: state \"Poling\": want one of LinkUp, Polling, Disabled"}
//
// {"do":"help"} lists the commands with their arguments. Numbers may be written
// as JSON numbers or as strings, "0x8001"; durations as Go writes them, "2s".
// Requests on one connection are carried out one after the other.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
)

// HCA is what control needs of an adapter; [hca.HCA] has it.
type HCA interface {
	SetLinkType(fabric.LinkType) error
	SetInitializing(time.Duration)
	SetDead(bool)
	SetStuckHealth(bool)
	SetHealthSyndrome(uint8)
	SetFirmwareVersion(string) error
	FailCommand(hca.Opcode, hca.Status, int)
	HangCommand(hca.Opcode, int)
	ModuleEvent(hca.ModuleStatus, hca.ModuleErrorType)
	TemperatureWarning()
	SlotPower(hca.PCIPower, uint16)
	LastCommands(n int) []string
	Violations() []string
	Reset()
}

// adapter is an HCA and how to end what serves it.
type adapter struct {
	HCA
	kill func() error
}

// Server carries out commands. All methods may be called from any goroutine.
type Server struct {
	fabric *fabric.Fabric
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	hcas   map[string]adapter
	hosts  map[string]*fabric.Host
	open   map[interface{ Close() error }]bool // listeners and connections
	closed bool
}

// maxLine is the longest request in bytes.
const maxLine = 1 << 16

// New makes a server that has no socket yet: see [Server.Listen] and
// [Server.Do].
func New(f *fabric.Fabric) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		fabric: f, ctx: ctx, cancel: cancel,
		hcas:  map[string]adapter{},
		hosts: map[string]*fabric.Host{},
		open:  map[interface{ Close() error }]bool{},
	}
}

// AddHCA makes an adapter known by name. kill ends the connection to its
// virtual machine for good, as if the process that emulates it had died.
func (s *Server) AddHCA(name string, h HCA, kill func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hcas[name] = adapter{h, kill}
}

// RemoveHCA takes an adapter away.
func (s *Server) RemoveHCA(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hcas, name)
}

// AddHost makes a host known by the name of its port. Hosts, also those that
// were added by command, live as long as the fabric.
func (s *Server) AddHost(h *fabric.Host) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[h.Port().Config().Name] = h
}

// Listen serves the socket at path until Close.
func (s *Server) Listen(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if !s.track(l) {
		return errors.Join(net.ErrClosed, l.Close())
	}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed: a UNIX socket has no passing errors but exhausted files
			}
			if !s.track(c) {
				c.Close()
				return
			}
			s.wg.Go(func() {
				defer s.untrack(c)
				s.serve(c)
			})
		}
	})
	return nil
}

func (s *Server) track(c interface{ Close() error }) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[c] = true
	return true
}

func (s *Server) untrack(c interface{ Close() error }) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	c.Close()
}

// Close removes the sockets, ends what runs and waits for it.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	s.cancel()
	var errs []error
	for _, c := range open {
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

func (s *Server) serve(c net.Conn) {
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxLine)
	out := json.NewEncoder(c)
	for in.Scan() {
		if len(in.Bytes()) == 0 {
			continue
		}
		if out.Encode(s.Do(in.Bytes())) != nil {
			return
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		// The rest of the line would be taken for requests.
		_ = out.Encode(Reply{"error": fmt.Sprintf("request longer than %d bytes", maxLine)})
	}
}

// Reply is what a command answers: "ok" and its results, or "error".
type Reply map[string]any

// Do carries out one request: a JSON object.
func (s *Server) Do(request []byte) Reply {
	result, err := s.do(request)
	if err != nil {
		return Reply{"error": err.Error()}
	}
	if result == nil {
		result = Reply{}
	}
	result["ok"] = true
	return result
}

func (s *Server) do(request []byte) (Reply, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(request, &raw); err != nil {
		return nil, fmt.Errorf(`a request is an object like {"do":"help"}: %w`, err)
	}
	var name string
	if err := json.Unmarshal(raw["do"], &name); err != nil {
		return nil, errors.New(`"do" is missing or is no string: it names the command, and {"do":"help"} lists them`)
	}
	delete(raw, "do")
	table := commands()
	i := slices.IndexFunc(table, func(c command) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no command %q; there are: %s", name, strings.Join(names(table), ", "))
	}
	c := table[i]
	v, err := c.parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	result, err := c.run(s, v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return result, nil
}

func names(table []command) (all []string) {
	for _, c := range table {
		all = append(all, c.name)
	}
	return all
}

func (s *Server) hca(name string) (adapter, error) { return find(s, s.hcas, "HCA", name) }

func (s *Server) host(name string) (*fabric.Host, error) { return find(s, s.hosts, "host", name) }

func find[T any](s *Server, in map[string]T, what, name string) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := in[name]
	if !ok {
		have := strings.Join(slices.Sorted(maps.Keys(in)), ", ")
		if have == "" {
			have = "none"
		}
		return v, fmt.Errorf("no %s %q; there are: %s", what, name, have)
	}
	return v, nil
}

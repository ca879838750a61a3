package fabric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults of [Options].
const (
	DefaultPrefix    = 0xfe80000000000000 // IBA 4.1.1
	DefaultQueue     = 1024
	DefaultHOQLife   = 50 * time.Millisecond
	DefaultPKeyTable = 128
	maxUnicastLID    = 0xbfff // IBA 4.1.3
)

// Options configure a [Fabric]. The zero value is a healthy subnet: an SM is
// present, and every port is a full member of the default partition.
type Options struct {
	// SM is the subnet manager's mode at the start.
	SM SMMode
	// Prefix is the subnet prefix; 0 means DefaultPrefix.
	Prefix uint64
	// Queue is the number of packets that wait for a port's endpoint; 0 means
	// DefaultQueue.
	Queue int
	// HOQLife is how long a packet waits for room in that queue before it is
	// dropped: the head-of-queue lifetime of a switch (IBA 18.2.5.4); 0 means
	// DefaultHOQLife.
	HOQLife time.Duration
	// Logf, if not nil, is told what the SM and the SA do. It must not call
	// the fabric.
	Logf func(format string, args ...any)
}

// Fabric is one subnet. All methods may be called from any goroutine.
type Fabric struct {
	opts Options
	wg   sync.WaitGroup // the ports' delivery goroutines

	mu         sync.RWMutex
	closed     bool
	ports      []*Port // in the order of attachment, without the SM's own
	lids       map[uint16]*Port
	lidOf      map[GUID]uint16 // remembered when a port is gone: LIDs are stable
	partitions map[uint16]*Partition
	groups     map[GID]*group
	mlids      map[uint16]*group
	sm         smState
}

// ErrClosed is returned by a fabric or port that has been closed.
var ErrClosed = errors.New("fabric: closed")

// New starts a subnet without ports.
func New(opts Options) *Fabric {
	if opts.Prefix == 0 {
		opts.Prefix = DefaultPrefix
	}
	if opts.Queue <= 0 {
		opts.Queue = DefaultQueue
	}
	if opts.HOQLife <= 0 {
		opts.HOQLife = DefaultHOQLife
	}
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	f := &Fabric{
		opts:       opts,
		lids:       map[uint16]*Port{},
		lidOf:      map[GUID]uint16{},
		partitions: map[uint16]*Partition{},
		groups:     map[GID]*group{},
		mlids:      map[uint16]*group{},
	}
	def := defaultPartition()
	def.Everyone = Full
	f.partitions[DefaultPKey&^FullMembership] = &def
	f.startSM()
	return f
}

// Close ends every port and waits for the fabric's goroutines. It must not be
// called from an endpoint's methods.
func (f *Fabric) Close() {
	f.mu.Lock()
	f.closed = true
	f.sm.stopTimer()
	ports := append(slices.Clone(f.ports), f.sm.port)
	f.mu.Unlock()
	for _, p := range ports {
		p.Close()
	}
	f.wg.Wait()
}

// Attach adds a port; ep gets its packets and changes from then on. The link
// is up at once, and so is the port if there is an SM.
func (f *Fabric) Attach(cfg PortConfig, ep Endpoint) (*Port, error) {
	if cfg.GUID == 0 {
		return nil, errors.New("fabric: attach: a port on a subnet needs a GUID that is not 0")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("fabric: attach %v: %w", cfg.GUID, err)
	}
	p := f.newPort(cfg, ep)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fmt.Errorf("fabric: attach %v: %w", cfg.GUID, ErrClosed)
	}
	for _, o := range f.ports {
		switch {
		case o.cfg.GUID == cfg.GUID:
			return nil, fmt.Errorf("fabric: attach %v: port %q has this GUID already", cfg.GUID, o.cfg.Name)
		case o.cfg.Name == cfg.Name:
			return nil, fmt.Errorf("fabric: attach %v: port %v has the name %q already", cfg.GUID, o.cfg.GUID, cfg.Name)
		}
	}
	f.ports = append(f.ports, p)
	f.sweep()
	f.startPort(p)
	return p, nil
}

// Ports returns the attached ports in the order of their attachment.
func (f *Fabric) Ports() []*Port {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Clone(f.ports)
}

// Port finds a port by its name or its GUID, written as [ParseGUID] reads it.
// The error lists the ports there are.
func (f *Fabric) Port(name string) (*Port, error) {
	guid, guidErr := ParseGUID(name)
	var have []string
	for _, p := range f.Ports() {
		if p.cfg.Name == name || guidErr == nil && p.cfg.GUID == guid {
			return p, nil
		}
		have = append(have, fmt.Sprintf("%s (%v)", p.cfg.Name, p.cfg.GUID))
	}
	if have == nil {
		return nil, fmt.Errorf("fabric: no port %q: none is attached", name)
	}
	return nil, fmt.Errorf("fabric: no port %q; there are: %s", name, strings.Join(have, ", "))
}

// detach takes a closing port out of the subnet.
func (f *Fabric) detach(p *Port) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports = slices.DeleteFunc(f.ports, func(o *Port) bool { return o == p })
	if f.lids[p.lid] == p {
		delete(f.lids, p.lid)
	}
	f.leaveAll(p)
	p.state, p.base, p.phys = StateDown, StateDown, PhysDisabled // its owner may still ask
}

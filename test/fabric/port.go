package fabric

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// PortConfig is what a port is made of. Fields that are zero get the default
// given in brackets.
type PortConfig struct {
	Name      string // for people and the control socket [the GUID]
	GUID      GUID   // of the port
	NodeGUID  GUID   // of the channel adapter [GUID]
	Link      LinkType
	MaxMTU    int    // bytes: 256, 512, 1024, 2048 or 4096 [4096]
	Rate      Rate   // what the link runs at [Rate100]
	Prefix    uint64 // pins the subnet prefix for this port [the subnet's]
	CapMask   uint32 // PortInfo.CapabilityMask
	PKeyTable int    // number of entries [DefaultPKeyTable]
}

func (c PortConfig) withDefaults() (PortConfig, error) {
	if c.Name == "" {
		c.Name = c.GUID.String()
	}
	if c.NodeGUID == 0 {
		c.NodeGUID = c.GUID
	}
	if c.MaxMTU == 0 {
		c.MaxMTU = 4096
	}
	if c.Rate == 0 {
		c.Rate = Rate100
	}
	if c.PKeyTable == 0 {
		c.PKeyTable = DefaultPKeyTable
	}
	if _, err := mtuCode(c.MaxMTU); err != nil {
		return c, err
	}
	if c.Rate.Mbps() == 0 {
		return c, fmt.Errorf("rate code %d is not defined", c.Rate)
	}
	return c, nil
}

// Port is a channel adapter's port on the fabric.
type Port struct {
	fab *Fabric
	cfg PortConfig
	ep  Endpoint

	in      chan Packet
	wake    chan struct{} // one token: pending is not empty
	pending atomic.Uint32 // Changes not yet told
	stalled atomic.Bool   // the endpoint let a packet's lifetime pass
	done    chan struct{}
	once    sync.Once
	count   counters

	// Guarded by fab.mu.
	link      LinkType // what the running firmware is
	linkSet   LinkType // what it is configured to be
	phys      PhysState
	base      State // as the SM and the link have it
	state     State // as the lever leaves it
	override  State // 0: none
	lid       uint16
	smLID     uint16
	prefix    uint64
	prefixPin bool
	pkeys     []uint16
	pkeysPin  bool
	capMask   uint32
	smGen     int // the SM this port was set up by
	told      portState
}

func (f *Fabric) newPort(cfg PortConfig, ep Endpoint) *Port {
	p := &Port{
		fab: f, cfg: cfg, ep: ep,
		in:   make(chan Packet, f.opts.Queue),
		wake: make(chan struct{}, 1),
		done: make(chan struct{}),
		link: cfg.Link, linkSet: cfg.Link,
		phys: PhysLinkUp, base: StateInit, state: StateInit,
		prefix: DefaultPrefix, prefixPin: cfg.Prefix != 0,
		pkeys:   make([]uint16, cfg.PKeyTable),
		capMask: cfg.CapMask,
	}
	if p.prefixPin {
		p.prefix = cfg.Prefix
	}
	p.pkeys[0] = DefaultPKey // power-on value (IBA 10.9.1)
	p.untold()
	return p
}

func (f *Fabric) startPort(p *Port) { f.wg.Go(p.deliver) }

// deliver is the only caller of the endpoint's methods.
func (p *Port) deliver() {
	for {
		select { // changes first: they decide what a packet means
		case <-p.done:
			return
		case <-p.wake:
			p.ep.PortChanged(Change(p.pending.Swap(0)))
			continue
		default:
		}
		select {
		case <-p.done:
			return
		case <-p.wake:
			p.ep.PortChanged(Change(p.pending.Swap(0)))
		case pkt := <-p.in:
			p.stalled.Store(false)
			p.count.received(&pkt)
			p.ep.Receive(pkt)
		}
	}
}

// notify tells the endpoint, soon, of a change. It never blocks.
func (p *Port) notify(c Change) {
	if c == 0 {
		return
	}
	p.pending.Or(uint32(c))
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// enqueue hands pkt to the endpoint's goroutine. A full queue is waited for
// like a link without credits, once: an endpoint that let a packet's lifetime
// pass costs its senders no more time until it takes a packet again.
func (p *Port) enqueue(pkt Packet) {
	select {
	case p.in <- pkt:
		return
	case <-p.done:
		return
	default:
	}
	if p.stalled.Load() {
		p.count.drop(DropQueueFull)
		return
	}
	life := time.NewTimer(p.fab.opts.HOQLife)
	defer life.Stop()
	select {
	case p.in <- pkt:
	case <-p.done:
	case <-life.C:
		p.stalled.Store(true)
		p.count.drop(DropQueueFull)
	}
}

// Send puts a packet on the link. The fabric fills in SLID; everything else is
// the sender's. Packets between two ports stay in order. Send returns after at
// most [Options].HOQLife per destination; what is not delivered is counted.
//
// A multicast packet is not given back to the port that sent it: to replicate
// it to the sender's other QPs is the channel adapter's work (IBA 10.5).
func (p *Port) Send(pkt Packet) {
	p.fab.mu.RLock()
	pkt.SLID = p.lid
	to, why := p.fab.route(p, &pkt)
	p.fab.mu.RUnlock()
	p.count.sent(&pkt)
	if why != dropNone {
		p.count.drop(why)
		return
	}
	for _, d := range to {
		d.enqueue(pkt)
	}
}

// Info returns what is known of the port now.
func (p *Port) Info() PortInfo {
	p.fab.mu.RLock()
	defer p.fab.mu.RUnlock()
	return PortInfo{
		GUID: p.cfg.GUID, Prefix: p.prefix, Link: p.linkSet,
		State: p.state, Phys: p.phys, LID: p.lid, SMLID: p.smLID,
		CapMask: p.capMask, PKeys: slices.Clone(p.pkeys), MTU: p.cfg.MaxMTU,
		SMPresent: p.fab.sm.mode == SMPresent,
	}
}

// Config returns what the port was made of, with the defaults filled in.
func (p *Port) Config() PortConfig { return p.cfg }

// Counters returns the port's counters.
func (p *Port) Counters() Counters { return p.count.snapshot() }

// Close takes the port off the fabric. It may be called from anywhere, any
// number of times; it does not wait for a call of an endpoint's method that is
// running, but no other begins.
func (p *Port) Close() {
	p.once.Do(func() {
		close(p.done)
		p.fab.detach(p)
	})
}

// SetCapMask sets PortInfo.CapabilityMask, which is the port owner's.
func (p *Port) SetCapMask(m uint32) {
	p.fab.mu.Lock()
	defer p.fab.mu.Unlock()
	p.capMask = m
}

// SetPhys sets the physical port state: an unplugged cable is PhysPolling, a
// port that was switched off PhysDisabled. Anything but PhysLinkUp makes the
// port Down; it keeps its LID, as hardware does.
func (p *Port) SetPhys(s PhysState) error {
	switch s {
	case PhysPolling, PhysDisabled, PhysLinkUp:
	default:
		return fmt.Errorf("fabric: %s: physical state %d is none of Polling, Disabled, LinkUp", p.cfg.Name, s)
	}
	p.fab.change(func() { p.phys = s })
	return nil
}

// SetLogical forces the logical state whatever the link and the SM say, so
// that also pairs that should not exist can be shown; 0 ends it.
func (p *Port) SetLogical(s State) error {
	if s > StateActive {
		return fmt.Errorf("fabric: %s: logical state %d is none of Down, Init, Armed, Active, or 0 for what the SM decides", p.cfg.Name, s)
	}
	p.fab.change(func() { p.override = s })
	return nil
}

// SetPKeys pins the P_Key table: entries in order, 0 for a free one, the rest
// free. The SM leaves it alone until SetPKeys(nil).
func (p *Port) SetPKeys(table []uint16) error {
	if len(table) > p.cfg.PKeyTable {
		return fmt.Errorf("fabric: %s: %d P_Keys, the table has %d entries", p.cfg.Name, len(table), p.cfg.PKeyTable)
	}
	p.fab.change(func() {
		p.pkeysPin = table != nil
		if !p.pkeysPin {
			return
		}
		p.pkeys = make([]uint16, p.cfg.PKeyTable)
		copy(p.pkeys, table)
	})
	return nil
}

// SetPrefix pins the subnet prefix of this port, which its GIDs begin with;
// 0 gives it back to the SM.
func (p *Port) SetPrefix(prefix uint64) {
	p.fab.change(func() {
		p.prefixPin = prefix != 0
		if p.prefixPin {
			p.prefix = prefix
		}
	})
}

// SetLink configures the link type. Firmware takes it when it starts: see
// [Port.FirmwareStart].
func (p *Port) SetLink(t LinkType) error {
	if t != LinkInfiniBand && t != LinkEthernet {
		return errors.New("fabric: link type is neither InfiniBand nor Ethernet")
	}
	p.fab.change(func() { p.linkSet = t })
	return nil
}

// FirmwareStart is called by the port's owner when its firmware starts anew:
// the port begins at Init, without memberships, as the link type that is
// configured. The SM does not manage an Ethernet port.
func (p *Port) FirmwareStart() {
	p.fab.change(func() {
		p.fab.leaveAll(p)
		p.link = p.linkSet
		p.base, p.smGen = StateInit, 0
		if !p.pkeysPin {
			p.pkeys = make([]uint16, p.cfg.PKeyTable)
			p.pkeys[0] = DefaultPKey
		}
	})
}

// Notify raises changes that are not the fabric's own, such as
// ChangeCableModule, through the port's goroutine.
func (p *Port) Notify(c Change) { p.notify(c) }

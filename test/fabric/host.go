package fabric

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// HostConfig describes a [Host]. Zero values get the default in brackets.
type HostConfig struct {
	Name   string // [the GUID]
	GUID   GUID
	IP     netip.Addr // IPv4
	PKey   uint16     // the partition, membership bit ignored [0xffff]
	QPN    uint32     // of the IPoIB interface [0x48]
	MaxMTU int        // of the port [4096]
}

// Host is an IPoIB host without a guest: it joins its partition's broadcast
// group, answers ARP and ping, and can ping. It keeps trying to join, as a
// kernel does, whatever the SM and its partition do.
type Host struct {
	cfg  HostConfig
	port *Port

	mu        sync.Mutex
	silent    bool
	addresses map[netip.Addr]bool // its own and claimed ones
	neighbors map[netip.Addr]neighbor
	joinTID   uint64 // transaction of the last join
	joining   bool   // its answer has not come
	retry     *time.Timer
	closed    bool
	group     joinedGroup
	pings     map[uint16]bool // by sequence number: answered
	seq       uint16
	changed   chan struct{} // closed, and renewed, when any of this changes
}

type neighbor struct {
	linkAddress
	lid uint16
}

// joinedGroup is what the SA said of the broadcast group; mlid 0: not joined.
type joinedGroup struct {
	mlid uint16
	qkey uint32
	pkey uint16 // as in the port's table
	mtu  int    // IPoIB's: the group's less the header
}

const (
	joinRetry = time.Second            // as ib_ipoib's first backoff
	pingRetry = 500 * time.Millisecond // ARP and echo are sent again
)

// AddHost attaches a host to the fabric.
func (f *Fabric) AddHost(cfg HostConfig) (*Host, error) {
	if !cfg.IP.Is4() {
		return nil, fmt.Errorf("fabric: host %v: %v is not an IPv4 address", cfg.GUID, cfg.IP)
	}
	if cfg.PKey == 0 {
		cfg.PKey = DefaultPKey
	}
	if cfg.QPN == 0 {
		cfg.QPN = 0x48
	}
	if cfg.QPN == QP1 || cfg.QPN >= multicastQP {
		return nil, fmt.Errorf("fabric: host %v: QPN %#x is not one of a datagram QP", cfg.GUID, cfg.QPN)
	}
	h := &Host{
		cfg:       cfg,
		addresses: map[netip.Addr]bool{cfg.IP: true},
		neighbors: map[netip.Addr]neighbor{},
		pings:     map[uint16]bool{},
		changed:   make(chan struct{}),
	}
	h.mu.Lock() // the port's goroutine waits until port is set
	defer h.mu.Unlock()
	port, err := f.Attach(PortConfig{Name: cfg.Name, GUID: cfg.GUID, MaxMTU: cfg.MaxMTU}, h)
	if err != nil {
		return nil, err
	}
	h.port, h.cfg.Name = port, port.cfg.Name
	return h, nil
}

// Port returns the host's port, for its levers.
func (h *Host) Port() *Port { return h.port }

// IP returns the host's own address.
func (h *Host) IP() netip.Addr { return h.cfg.IP }

// Close takes the host off the fabric.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	if h.retry != nil {
		h.retry.Stop()
	}
	h.update()
	h.mu.Unlock()
	h.port.Close()
}

// SetAnswering makes a host that is down (false): its link stays, but it
// answers neither ARP nor ping.
func (h *Host) SetAnswering(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = !on
}

// Claim makes the host answer for a further address, for example one that
// somebody else has; Release ends it. Its own address cannot be released.
func (h *Host) Claim(ip netip.Addr) error {
	if !ip.Is4() {
		return fmt.Errorf("fabric: host %s: %v is not an IPv4 address", h.cfg.Name, ip)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addresses[ip] = true
	return nil
}

// Release undoes Claim.
func (h *Host) Release(ip netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ip != h.cfg.IP {
		delete(h.addresses, ip)
	}
}

// MTU returns the IPoIB MTU, the broadcast group's less 4, or 0 while the host
// has not joined.
func (h *Host) MTU() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.group.mtu
}

// WaitJoined waits until the host is a member of the broadcast group.
func (h *Host) WaitJoined(ctx context.Context) error {
	for {
		h.mu.Lock()
		joined, closed, changed := h.group.mlid != 0, h.closed, h.changed
		h.mu.Unlock()
		switch {
		case closed:
			return ErrClosed
		case joined:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			i := h.port.Info()
			return fmt.Errorf("fabric: host %s: not in the broadcast group of partition %#04x (port %v/%v): %w", h.cfg.Name, h.cfg.PKey, i.State, i.Phys, context.Cause(ctx))
		}
	}
}

// update wakes those who wait for a change. The caller holds h.mu.
func (h *Host) update() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// PortChanged joins again whenever what a membership hangs on has changed.
func (h *Host) PortChanged(c Change) {
	if c&(ChangeState|ChangeLID|ChangePKeys|ChangeGIDs|ChangeReregister) != 0 {
		h.join()
	}
}

// join asks the SA for membership in the broadcast group, and once more if
// there is no answer.
func (h *Host) join() {
	h.mu.Lock()
	pkt, ok := h.joinRequest()
	h.mu.Unlock()
	if ok {
		h.port.Send(pkt)
	}
}

func (h *Host) joinRequest() (Packet, bool) {
	if h.closed {
		return Packet{}, false
	}
	if h.retry != nil {
		h.retry.Stop()
	}
	h.group, h.joinTID, h.joining = joinedGroup{}, h.joinTID+1, false
	h.update()
	i := h.port.Info()
	key := keyOf(i.PKeys, h.cfg.PKey)
	if i.State != StateActive || key == 0 {
		return Packet{}, false // a change will come
	}
	h.joining, h.retry = true, time.AfterFunc(joinRetry, h.join)
	m := NewMAD(ClassSubnAdm, MethodSet, AttrMCMemberRecord, h.joinTID)
	saComponentMask.Put(m, maskOf(mcMGID, mcPortGID, mcPKey, mcJoin))
	rec := m[saDataOffset:]
	mcMGID.PutGID(rec, BroadcastMGID(h.cfg.PKey))
	mcPortGID.PutGID(rec, MakeGID(i.Prefix, i.GUID))
	mcPKey.Put(rec, uint64(h.cfg.PKey|FullMembership))
	mcJoin.Put(rec, JoinFullMember)
	return Packet{
		DLID: i.SMLID, SL: i.SMSL, Opcode: OpcodeUDSend, PKey: managementKey(i.PKeys),
		DestQP: QP1, SrcQP: QP1, QKey: GSIQKey, Payload: m,
	}, true
}

// keyOf returns the table's key of a partition, the full one if it has both
// (ib_find_cached_pkey does the same), or 0.
func keyOf(table []uint16, part uint16) (key uint16) {
	for _, k := range table {
		if k&^FullMembership == part&^FullMembership {
			key = max(key, k)
		}
	}
	return key
}

// managementKey is what requests to the SA are sent with: the default
// partition's, else the first (update_sm_ah in sa_query.c).
func managementKey(table []uint16) uint16 {
	if k := keyOf(table, DefaultPKey); k != 0 {
		return k
	}
	return table[0]
}

// Receive is the port's: answers of the SA, ARP and IP.
func (h *Host) Receive(pkt Packet) {
	h.mu.Lock()
	var answer *Packet
	if pkt.DestQP == QP1 {
		h.joinAnswer(pkt.Payload)
	} else if h.forMe(&pkt) {
		answer = h.handle(&pkt)
	}
	h.mu.Unlock()
	if answer != nil {
		h.port.Send(*answer)
	}
}

func (h *Host) joinAnswer(m []byte) {
	if !h.joining || len(m) != MADSize || MADMgmtClass.Get(m) != ClassSubnAdm || MADTransaction.Get(m) != h.joinTID ||
		MADMethod.Get(m) != MethodGet|MethodResponse || MADStatus.Get(m) != StatusOK {
		return // refused: the retry is on its way
	}
	h.retry.Stop()
	h.joining = false
	rec := m[saDataOffset:]
	h.group = joinedGroup{
		mlid: uint16(mcMLID.Get(rec)),
		qkey: uint32(mcQKey.Get(rec)),
		pkey: keyOf(h.port.Info().PKeys, h.cfg.PKey),
		mtu:  mtuOf(uint8(mcMTU.Get(rec))) - ipoibHeader,
	}
	h.update()
}

// forMe does the checks of a datagram QP (IBA 9.6.1): Q_Key and P_Key.
func (h *Host) forMe(pkt *Packet) bool {
	return h.group.mlid != 0 && !h.silent &&
		(pkt.Opcode == OpcodeUDSend || pkt.Opcode == OpcodeUDSendImm) &&
		(pkt.DestQP == h.cfg.QPN || pkt.DestQP == multicastQP && pkt.DLID == h.group.mlid) &&
		pkt.QKey == h.group.qkey && MatchPKeys(pkt.PKey, h.group.pkey) &&
		len(pkt.Payload) >= ipoibHeader
}

func (h *Host) handle(pkt *Packet) *Packet {
	body := pkt.Payload[ipoibHeader:]
	switch uint16(pkt.Payload[0])<<8 | uint16(pkt.Payload[1]) {
	case etherARP:
		if a, ok := parseARP(body); ok {
			return h.handleARP(pkt, a)
		}
	case etherIPv4:
		if e, ok := parseEcho(body); ok {
			return h.handleEcho(pkt, e)
		}
	}
	return nil
}

func (h *Host) handleARP(pkt *Packet, a arp) *Packet {
	from := neighbor{a.senderHW, pkt.SLID}
	if a.sender.IsValid() && !a.sender.IsUnspecified() {
		h.neighbors[a.sender] = from
		h.update()
	}
	if a.op != arpRequest || !h.addresses[a.targetIP] {
		return nil
	}
	return h.unicast(from, arp{
		op: arpReply, senderHW: h.linkAddress(), sender: a.targetIP, targetHW: a.senderHW, targetIP: a.sender,
	}.encode())
}

func (h *Host) handleEcho(pkt *Packet, e echo) *Packet {
	if !h.addresses[e.to] {
		return nil
	}
	if e.kind == icmpEchoReply {
		if _, waiting := h.pings[e.seq]; waiting && e.id == echoID {
			h.pings[e.seq] = true
			h.update()
		}
		return nil
	}
	// A datagram says where it is from; no ARP is needed to answer it.
	to := neighbor{linkAddress{qpn: pkt.SrcQP}, pkt.SLID}
	return h.unicast(to, echo{from: e.to, to: e.from, kind: icmpEchoReply, id: e.id, seq: e.seq, data: e.data}.encode())
}

func (h *Host) linkAddress() linkAddress {
	i := h.port.Info()
	return linkAddress{h.cfg.QPN, MakeGID(i.Prefix, i.GUID)}
}

func (h *Host) unicast(to neighbor, payload []byte) *Packet {
	return &Packet{
		DLID: to.lid, Opcode: OpcodeUDSend, PKey: h.group.pkey,
		DestQP: to.qpn, SrcQP: h.cfg.QPN, QKey: h.group.qkey, Payload: payload,
	}
}

func (h *Host) broadcast(payload []byte) *Packet {
	p := h.unicast(neighbor{linkAddress{qpn: multicastQP}, h.group.mlid}, payload)
	p.GRH = &GRH{SGID: h.linkAddress().gid, DGID: BroadcastMGID(h.cfg.PKey)}
	return p
}

// echoID tells a host's pings from other programs' in a capture; hosts have an
// address each, so it need not differ between them.
const echoID = 0x6962

// Ping sends an echo request with 56 bytes and waits for the answer; ARP and
// request are repeated until ctx ends. The error says how far it came.
func (h *Host) Ping(ctx context.Context, ip netip.Addr) error { return h.PingSize(ctx, ip, 56) }

// PingSize is Ping with a number of data bytes.
func (h *Host) PingSize(ctx context.Context, ip netip.Addr, size int) error {
	if err := h.WaitJoined(ctx); err != nil {
		return err
	}
	if most := h.MTU() - ipv4Header - icmpHeader; size < 0 || size > most {
		return fmt.Errorf("fabric: host %s: ping %v: %d bytes, the MTU leaves room for %d", h.cfg.Name, ip, size, most)
	}
	h.mu.Lock()
	h.seq++
	seq := h.seq
	h.pings[seq] = false
	delete(h.neighbors, ip) // ask anew: the peer may have been replaced
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.pings, seq)
	}()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i)
	}
	again := time.NewTicker(pingRetry)
	defer again.Stop()
	sent := 0 // what was sent last: 1 ARP, 2 echo request
	for {
		h.mu.Lock()
		to, known := h.neighbors[ip]
		done, closed, changed := h.pings[seq], h.closed, h.changed
		var pkt *Packet
		switch {
		case h.group.mlid == 0:
			sent = 0
		case known && sent < 2:
			sent = 2
			pkt = h.unicast(to, echo{from: h.cfg.IP, to: ip, kind: icmpEcho, id: echoID, seq: seq, data: data}.encode())
		case !known && sent < 1:
			sent = 1
			pkt = h.broadcast(arp{op: arpRequest, senderHW: h.linkAddress(), sender: h.cfg.IP, targetIP: ip}.encode())
		}
		h.mu.Unlock()
		if done {
			return nil
		}
		if closed {
			return ErrClosed
		}
		if pkt != nil {
			h.port.Send(*pkt)
		}
		select {
		case <-changed:
		case <-again.C:
			sent = 0
		case <-ctx.Done():
			what := "no ARP answer"
			if known {
				what = "no echo answer"
			}
			return fmt.Errorf("fabric: host %s: ping %v: %s: %w", h.cfg.Name, ip, what, context.Cause(ctx))
		}
	}
}

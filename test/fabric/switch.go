package fabric

import "sync/atomic"

// DropReason says why a packet was not delivered.
type DropReason uint8

// Reasons. Those that name the receiver are counted at the receiver's port.
const (
	dropNone             DropReason = iota
	DropSenderInactive              // the sending port is not Active
	DropReceiverInactive            // the receiving port is not Active
	DropNoRoute                     // no port has this LID, or no member listens to this MLID
	DropSenderPKey                  // the P_Key is not in the sender's table
	DropReceiverPKey                // no matching P_Key in the receiver's table
	DropMTU                         // payload larger than the MTU of one of the two ports
	DropQueueFull                   // the receiver did not take packets in time
	numDropReasons
)

var dropNames = [numDropReasons]string{
	"", "sender-inactive", "receiver-inactive", "no-route", "sender-pkey", "receiver-pkey", "mtu", "queue-full",
}

func (r DropReason) String() string {
	if r < numDropReasons {
		return dropNames[r]
	}
	return "unknown"
}

// Counters of a port. Data counts payload bytes.
type Counters struct {
	XmitPackets, XmitData uint64
	RcvPackets, RcvData   uint64
	Drops                 map[DropReason]uint64 // only reasons that occurred
}

type counters struct {
	xmitPackets, xmitData, rcvPackets, rcvData atomic.Uint64
	drops                                      [numDropReasons]atomic.Uint64
}

func (c *counters) sent(p *Packet) {
	c.xmitPackets.Add(1)
	c.xmitData.Add(uint64(len(p.Payload)))
}

func (c *counters) received(p *Packet) {
	c.rcvPackets.Add(1)
	c.rcvData.Add(uint64(len(p.Payload)))
}

func (c *counters) drop(r DropReason) { c.drops[r].Add(1) }

func (c *counters) snapshot() Counters {
	s := Counters{
		XmitPackets: c.xmitPackets.Load(), XmitData: c.xmitData.Load(),
		RcvPackets: c.rcvPackets.Load(), RcvData: c.rcvData.Load(),
		Drops: map[DropReason]uint64{},
	}
	for r := range c.drops {
		if n := c.drops[r].Load(); n != 0 {
			s.Drops[DropReason(r)] = n
		}
	}
	return s
}

// route finds the ports a packet goes to, or why it goes nowhere. The caller
// holds f.mu.
func (f *Fabric) route(src *Port, pkt *Packet) ([]*Port, DropReason) {
	management := pkt.DestQP == QP0
	if src.state != StateActive && !management {
		return nil, DropSenderInactive
	}
	if !management && !inTable(src.pkeys, pkt.PKey) {
		return nil, DropSenderPKey
	}
	if len(pkt.Payload) > src.cfg.MaxMTU {
		return nil, DropMTU
	}
	if pkt.DLID >= MulticastLID && pkt.DLID != PermissiveLID {
		return f.routeMulticast(src, pkt)
	}
	dst := f.lids[pkt.DLID]
	if dst == nil {
		return nil, DropNoRoute
	}
	if why := dst.refuses(pkt); why != dropNone {
		dst.count.drop(why)
		return nil, dropNone
	}
	return []*Port{dst}, dropNone
}

// routeMulticast replicates to the members that listen. The sender's port need
// not be a member: a switch forwards by its table alone.
func (f *Fabric) routeMulticast(src *Port, pkt *Packet) ([]*Port, DropReason) {
	g := f.mlids[pkt.DLID]
	if g == nil {
		return nil, DropNoRoute
	}
	to := make([]*Port, 0, len(g.members))
	for _, m := range g.members {
		if m.port == src || m.state&joinReceive == 0 {
			continue
		}
		if why := m.port.refuses(pkt); why != dropNone {
			m.port.count.drop(why)
			continue
		}
		to = append(to, m.port)
	}
	return to, dropNone
}

// refuses applies the receiver's checks (IBA 10.9.3 for the P_Key).
func (p *Port) refuses(pkt *Packet) DropReason {
	switch {
	case pkt.DestQP == QP0:
		return dropNone
	case p.state != StateActive:
		return DropReceiverInactive
	case !anyMatch(p.pkeys, pkt.PKey):
		return DropReceiverPKey
	case len(pkt.Payload) > p.cfg.MaxMTU:
		return DropMTU
	}
	return dropNone
}

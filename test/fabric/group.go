package fabric

import (
	"encoding/binary"
	"slices"
)

// JoinState bits of an MCMemberRecord (IBA 15.2.5.17).
const (
	JoinFullMember         = 1 << 0
	JoinNonMember          = 1 << 1
	JoinSendOnlyNonMember  = 1 << 2
	JoinSendOnlyFullMember = 1 << 3

	joinReceive = JoinFullMember | JoinNonMember
	joinKeeps   = JoinFullMember | JoinSendOnlyFullMember // what a group lives by
	joinAll     = 0xf
)

// defaultLife is PacketLifeTime: 4.096 µs * 2^18, about a second.
const defaultLife = 18

// group is a multicast group; its parameters are those of the MCMemberRecord.
type group struct {
	mgid    GID
	mlid    uint16
	qkey    uint32
	pkey    uint16 // with the full membership bit
	mtu     int    // bytes
	rate    Rate
	life    uint8
	tclass  uint8
	sl      uint8
	flow    uint32
	hop     uint8
	scope   uint8
	byAdmin bool     // made by the SM for a partition: never goes away by itself
	members []member // in the order of joining
}

type member struct {
	port  *Port
	state uint8 // JoinState
}

func (g *group) joined(p *Port) uint8 {
	for _, m := range g.members {
		if m.port == p {
			return m.state
		}
	}
	return 0
}

func (g *group) setJoined(p *Port, state uint8) {
	i := slices.IndexFunc(g.members, func(m member) bool { return m.port == p })
	switch {
	case i < 0 && state != 0:
		g.members = append(g.members, member{p, state})
	case i >= 0 && state != 0:
		g.members[i].state = state
	case i >= 0:
		g.members = slices.Delete(g.members, i, i+1)
	}
}

// BroadcastMGID returns the MGID of IPoIB's broadcast group of a partition:
// link-local scope, IPv4 signature, the P_Key with its membership bit
// (RFC 4391, section 4).
func BroadcastMGID(pkey uint16) GID {
	g := GID{0: 0xff, 1: 0x12, 2: 0x40, 3: 0x1b, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}
	binary.BigEndian.PutUint16(g[4:], pkey|FullMembership)
	return g
}

// addGroup gives g the lowest free MLID, false if there is none. The caller
// holds f.mu.
func (f *Fabric) addGroup(g *group) bool {
	for l := uint16(MulticastLID); l < PermissiveLID; l++ {
		if f.mlids[l] == nil {
			g.mlid = l
			f.mlids[l], f.groups[g.mgid] = g, g
			return true
		}
	}
	return false
}

func (f *Fabric) removeGroup(g *group) {
	delete(f.groups, g.mgid)
	delete(f.mlids, g.mlid)
}

// leave takes join states away from a member, and the group with its last one.
func (f *Fabric) leave(g *group, p *Port, state uint8) {
	g.setJoined(p, g.joined(p)&^state)
	if g.byAdmin {
		return
	}
	for _, m := range g.members {
		if m.state&joinKeeps != 0 {
			return
		}
	}
	f.removeGroup(g)
}

func (f *Fabric) leaveAll(p *Port) {
	for _, g := range f.groups {
		if g.joined(p) != 0 {
			f.leave(g, p, joinAll)
		}
	}
}

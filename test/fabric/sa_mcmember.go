package fabric

import (
	"cmp"
	"slices"
)

// member finds the port a request to join or leave is about. A third party
// cannot join for another port: that would need the SA's trust (IBA 15.4.1.2).
func (f *Fabric) member(r *saRequest) (p *Port, state uint8, status uint16) {
	if !r.has(mcMGID, mcPortGID, mcJoin) {
		return nil, 0, StatusInsufficientComponents
	}
	p = f.portByGID(mcPortGID.GetGID(r.rec))
	state = uint8(mcJoin.Get(r.rec))
	switch {
	case p == nil:
		return nil, 0, StatusReqInvalidGID
	case p != r.from:
		return nil, 0, StatusReqDenied
	case state == 0:
		return nil, 0, StatusReqInvalid
	}
	return p, state, StatusOK
}

// saJoin joins a port to a group, which is made if it does not exist and the
// request has what it takes (IBA 15.2.5.17).
func (f *Fabric) saJoin(r *saRequest) uint16 {
	p, state, status := f.member(r)
	if status != StatusOK {
		return status
	}
	g := f.groups[mcMGID.GetGID(r.rec)]
	if g == nil {
		g, status = f.createGroup(r, p, state)
	} else {
		status = mayJoin(r, p, g)
	}
	if status != StatusOK {
		return status
	}
	g.setJoined(p, g.joined(p)|state)
	fillMember(r.rec, g, p.gid(), g.joined(p))
	return StatusOK
}

// mayJoin checks a request against the group: what it names must be the
// group's, and the port must be able to receive what the group sends.
func mayJoin(r *saRequest, p *Port, g *group) uint16 {
	have := make([]byte, len(r.rec))
	fillMember(have, g, p.gid(), 0)
	for _, f := range mcFixed {
		if f.in(r.mask) && !f.equal(have, r.rec) {
			return StatusReqInvalid
		}
	}
	mtuOK := !r.has(mcMTUSel, mcMTU) || selects(mcMTUSel.Get(r.rec), mtuOf(uint8(mcMTU.Get(r.rec))), g.mtu)
	rateOK := !r.has(mcRateSel, mcRate) || selects(mcRateSel.Get(r.rec), Rate(mcRate.Get(r.rec)).Mbps(), g.rate.Mbps())
	switch {
	case mcPKey.in(r.mask) && (uint16(mcPKey.Get(r.rec))^g.pkey)&^FullMembership != 0,
		!isMember(p.pkeys, g.pkey),
		!mtuOK, !rateOK,
		p.cfg.MaxMTU < g.mtu,
		p.cfg.Rate.Mbps() < g.rate.Mbps():
		return StatusReqInvalid
	}
	return StatusOK
}

// createGroup makes the group of a first join. Needed are the components
// that describe one (IBA 15.2.5.17; the same that opensm wants), a membership
// that keeps a group, and a P_Key of the requester's.
func (f *Fabric) createGroup(r *saRequest, p *Port, state uint8) (*group, uint16) {
	if !r.has(mcQKey, mcTClass, mcPKey, mcFlow, mcSL) {
		return nil, StatusInsufficientComponents
	}
	g := &group{
		mgid:   mcMGID.GetGID(r.rec),
		qkey:   uint32(mcQKey.Get(r.rec)),
		pkey:   uint16(mcPKey.Get(r.rec)) | FullMembership,
		tclass: uint8(mcTClass.Get(r.rec)),
		sl:     uint8(mcSL.Get(r.rec)),
		flow:   uint32(mcFlow.Get(r.rec)),
		hop:    uint8(mcHop.Get(r.rec)),
		scope:  mcMGID.GetGID(r.rec)[1] & 0xf,
		life:   defaultLife,
	}
	switch {
	case !g.mgid.IsMulticast():
		return nil, StatusReqInvalidGID
	case state&joinKeeps == 0,
		!isMember(p.pkeys, g.pkey),
		mcScope.in(r.mask) && uint8(mcScope.Get(r.rec)) != g.scope:
		return nil, StatusReqInvalid
	}
	pt, ok := f.partitions[g.pkey&^FullMembership]
	if !ok { // a table that was pinned: the partition is the port's own idea
		def := defaultPartition()
		pt = &def
	}
	var mtuOK, rateOK bool
	g.mtu, mtuOK = r.chooseMTU(mcMTUSel, mcMTU, p.cfg.MaxMTU, pt.MTU)
	g.rate, rateOK = r.chooseRate(mcRateSel, mcRate, p.cfg.Rate, pt.Rate)
	if !mtuOK || !rateOK {
		return nil, StatusReqInvalid
	}
	if !f.addGroup(g) {
		return nil, StatusNoResources
	}
	return g, StatusOK
}

// saLeave takes join states away; they must be the port's.
func (f *Fabric) saLeave(r *saRequest) uint16 {
	p, state, status := f.member(r)
	if status != StatusOK {
		return status
	}
	g := f.groups[mcMGID.GetGID(r.rec)]
	if g == nil || g.joined(p)&state == 0 {
		return StatusReqInvalid
	}
	f.leave(g, p, state)
	fillMember(r.rec, g, p.gid(), g.joined(p))
	return StatusOK
}

// saGetMember answers with the one group that the components select.
func (f *Fabric) saGetMember(r *saRequest) uint16 {
	var found *group
	have := make([]byte, len(r.rec))
	for _, g := range f.groups {
		fillMember(have, g, GID{}, 0)
		differs := func(c Field) bool { return c.in(r.mask) && !c.equal(have, r.rec) }
		if slices.ContainsFunc(mcMatching, differs) || !isMember(r.from.pkeys, g.pkey) ||
			mcPKey.in(r.mask) && (uint16(mcPKey.Get(r.rec))^g.pkey)&^FullMembership != 0 {
			continue
		}
		if found != nil {
			return StatusTooManyRecords
		}
		found = g
	}
	if found == nil {
		return StatusNoRecords
	}
	// PortGID and JoinState of members are for trusted requests only.
	fillMember(r.rec, found, GID{}, 0)
	return StatusOK
}

func fillMember(rec []byte, g *group, port GID, state uint8) {
	clear(rec)
	code, _ := mtuCode(g.mtu)
	mcMGID.PutGID(rec, g.mgid)
	mcPortGID.PutGID(rec, port)
	for _, c := range []struct {
		f Field
		v uint64
	}{
		{mcQKey, uint64(g.qkey)}, {mcMLID, uint64(g.mlid)}, {mcPKey, uint64(g.pkey)},
		{mcMTUSel, selEqual}, {mcMTU, uint64(code)},
		{mcRateSel, selEqual}, {mcRate, uint64(g.rate)},
		{mcLifeSel, selEqual}, {mcLife, uint64(g.life)},
		{mcTClass, uint64(g.tclass)}, {mcSL, uint64(g.sl)}, {mcFlow, uint64(g.flow)}, {mcHop, uint64(g.hop)},
		{mcScope, uint64(g.scope)}, {mcJoin, uint64(state)},
	} {
		c.f.Put(rec, c.v)
	}
}

// GroupInfo is a multicast group as the SA has it.
type GroupInfo struct {
	MGID    GID
	MLID    uint16
	PKey    uint16
	MTU     int // bytes
	Rate    Rate
	QKey    uint32
	Members map[string]uint8 // JoinState by port name
}

// Groups returns the multicast groups in the order of their MLIDs.
func (f *Fabric) Groups() []GroupInfo {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]GroupInfo, 0, len(f.groups))
	for _, g := range f.groups {
		gi := GroupInfo{g.mgid, g.mlid, g.pkey, g.mtu, g.rate, g.qkey, map[string]uint8{}}
		for _, m := range g.members {
			gi.Members[m.port.cfg.Name] = m.state
		}
		all = append(all, gi)
	}
	slices.SortFunc(all, func(a, b GroupInfo) int { return cmp.Compare(a.MLID, b.MLID) })
	return all
}

package fabric

// saPath answers a PathRecord query for one path (IBA 15.2.5.16).
func (f *Fabric) saPath(r *saRequest) uint16 {
	src, status := f.endOfPath(r, prSGID, prSLID, r.from)
	if status != StatusOK {
		return status
	}
	if prDGID.in(r.mask) && prDGID.GetGID(r.rec).IsMulticast() {
		return f.saMulticastPath(r, src)
	}
	dst, status := f.endOfPath(r, prDGID, prDLID, nil)
	if status != StatusOK {
		return status
	}
	if src.lid == 0 || dst.lid == 0 || src.state != StateActive || dst.state != StateActive {
		return StatusNoRecords
	}
	pkey, ok := sharedPKey(src, dst, uint16(prPKey.Get(r.rec)), prPKey.in(r.mask))
	if !ok {
		return StatusNoRecords
	}
	limit := min(src.cfg.MaxMTU, dst.cfg.MaxMTU)
	mtu, ok := r.chooseMTU(prMTUSel, prMTU, limit, limit)
	if !ok {
		return StatusNoRecords
	}
	rateLimit := src.cfg.Rate
	if dst.cfg.Rate.Mbps() < rateLimit.Mbps() {
		rateLimit = dst.cfg.Rate
	}
	rate, ok := r.chooseRate(prRateSel, prRate, rateLimit, rateLimit)
	if !ok {
		return StatusNoRecords
	}
	fillPath(r.rec, pathRecord{src, dst.gid(), dst.lid, pkey, mtu, rate, uint8(prTClass.Get(r.rec)), 0, 0})
	return StatusOK
}

// saMulticastPath answers with a group's MLID and parameters.
func (f *Fabric) saMulticastPath(r *saRequest, src *Port) uint16 {
	g := f.groups[prDGID.GetGID(r.rec)]
	if g == nil || !isMember(src.pkeys, g.pkey) {
		return StatusNoRecords
	}
	fillPath(r.rec, pathRecord{src, g.mgid, g.mlid, g.pkey, g.mtu, g.rate, g.tclass, g.flow, g.hop})
	return StatusOK
}

type pathRecord struct {
	src    *Port
	dgid   GID
	dlid   uint16
	pkey   uint16
	mtu    int
	rate   Rate
	tclass uint8
	flow   uint32
	hop    uint8 // 0 inside a subnet: Linux then sends no GRH (ib_init_ah_attr_from_path)
}

func fillPath(rec []byte, p pathRecord) {
	clear(rec)
	code, _ := mtuCode(p.mtu) // a port's and a group's MTU have been checked
	prDGID.PutGID(rec, p.dgid)
	prSGID.PutGID(rec, p.src.gid())
	for _, c := range []struct {
		f Field
		v uint64
	}{
		{prDLID, uint64(p.dlid)}, {prSLID, uint64(p.src.lid)}, {prPKey, uint64(p.pkey)},
		{prReversible, 1}, {prNumbPath, 1},
		{prMTUSel, selEqual}, {prMTU, uint64(code)},
		{prRateSel, selEqual}, {prRate, uint64(p.rate)},
		{prLifeSel, selEqual}, {prLife, defaultLife},
		{prTClass, uint64(p.tclass)}, {prFlow, uint64(p.flow)}, {prHop, uint64(p.hop)},
	} {
		c.f.Put(rec, c.v)
	}
}

// endOfPath finds the port that a query's GID and LID name; both must name the
// same one. Without either it is deflt.
func (f *Fabric) endOfPath(r *saRequest, gid, lid Field, deflt *Port) (*Port, uint16) {
	var byGID, byLID *Port
	if gid.in(r.mask) {
		if byGID = f.portByGID(gid.GetGID(r.rec)); byGID == nil {
			return nil, StatusReqInvalidGID
		}
	}
	if lid.in(r.mask) {
		if byLID = f.lids[uint16(lid.Get(r.rec))]; byLID == nil {
			return nil, StatusNoRecords
		}
	}
	switch {
	case byGID != nil && byLID != nil && byGID != byLID:
		return nil, StatusNoRecords
	case byGID != nil:
		return byGID, StatusOK
	case byLID != nil:
		return byLID, StatusOK
	case deflt != nil:
		return deflt, StatusOK
	}
	return nil, StatusInsufficientComponents
}

func (f *Fabric) portByGID(g GID) *Port {
	if f.sm.port.gid() == g {
		return f.sm.port
	}
	for _, p := range f.ports {
		if p.gid() == g {
			return p
		}
	}
	return nil
}

// sharedPKey returns the P_Key that two ports can talk with: the one asked
// for, or the first of the source's table.
func sharedPKey(src, dst *Port, asked uint16, isAsked bool) (uint16, bool) {
	for _, k := range src.pkeys {
		if isAsked && k&^FullMembership != asked&^FullMembership || !anyMatch(dst.pkeys, k) {
			continue
		}
		if isAsked {
			return asked, true
		}
		return k, true
	}
	return 0, false
}

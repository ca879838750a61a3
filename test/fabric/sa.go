package fabric

// sa is the endpoint of the SM's port: subnet administration at QP1, as far as
// drivers/infiniband/core/sa_query.c and multicast.c use it.
type sa struct {
	fab *Fabric
	psn uint32
}

// saRequest is what a handler works on.
type saRequest struct {
	from *Port
	mask uint64 // ComponentMask
	rec  []byte // the attribute, 200 bytes: the request's, then the answer's
}

// saHandler runs under Fabric.mu, changes the record to the answer's and
// returns a status.
type saHandler func(*Fabric, *saRequest) uint16

// saAttributes says what the SA can do. GetTable is not there: its answers
// need RMPP, and no kernel consumer of the SA asks for tables.
var saAttributes = map[uint16]struct {
	name    string
	methods map[uint8]saHandler
}{
	AttrClassPortInfo: {"ClassPortInfo", map[uint8]saHandler{MethodGet: (*Fabric).saClassPortInfo}},
	AttrInformInfo:    {"InformInfo", map[uint8]saHandler{MethodSet: (*Fabric).saInformInfo}},
	AttrPathRecord:    {"PathRecord", map[uint8]saHandler{MethodGet: (*Fabric).saPath}},
	AttrMCMemberRecord: {"MCMemberRecord", map[uint8]saHandler{
		MethodGet: (*Fabric).saGetMember, MethodSet: (*Fabric).saJoin, MethodDelete: (*Fabric).saLeave}},
}

func (s *sa) PortChanged(Change) {}

// Receive answers a request. What is no MAD for QP1 is dropped, as hardware
// drops it.
func (s *sa) Receive(pkt Packet) {
	if pkt.DestQP != QP1 || pkt.QKey != GSIQKey {
		return
	}
	f := s.fab
	f.mu.Lock()
	answer := f.saAnswer(pkt.SLID, pkt.Payload)
	port, key := f.sm.port, f.sm.port.pkeys[0]
	f.mu.Unlock()
	if answer == nil {
		return
	}
	s.psn = (s.psn + 1) & 0xffffff
	port.Send(Packet{
		DLID: pkt.SLID, SL: pkt.SL, Opcode: OpcodeUDSend, PKey: key, PSN: s.psn,
		DestQP: pkt.SrcQP, QKey: GSIQKey, SrcQP: QP1, Payload: answer,
	})
}

// saAnswer returns the answer to a MAD from a LID, nil if there is to be none.
// The caller holds f.mu.
func (f *Fabric) saAnswer(from uint16, request []byte) []byte {
	port := f.lids[from]
	if f.sm.mode != SMPresent || f.sm.silent || port == nil || !isRequest(request) {
		return nil
	}
	m := append([]byte(nil), request...)
	status := f.saHandle(port, m)
	clear(m[saRMPPVersion.Bit/8 : saSMKey.Bit/8]) // one datagram: RMPP is not active
	saRMPPVersion.Put(m, rmppVersion)
	MADMethod.Put(m, uint64(responseTo(uint8(MADMethod.Get(m)))))
	MADStatus.Put(m, uint64(status))
	return m
}

func (f *Fabric) saHandle(from *Port, m []byte) (status uint16) {
	if MADMgmtClass.Get(m) != ClassSubnAdm || MADClassVersion.Get(m) != saClassVersion {
		return StatusBadVersion
	}
	attr, ok := saAttributes[uint16(MADAttribute.Get(m))]
	if !ok {
		return StatusAttributeUnsupported
	}
	method := uint8(MADMethod.Get(m))
	handle := attr.methods[method]
	if handle == nil {
		return StatusMethodUnsupported
	}
	status = handle(f, &saRequest{from, saComponentMask.Get(m), m[saDataOffset:]})
	f.opts.Logf("fabric: SA: %s: %s, method %#02x: status %#04x", from.cfg.Name, attr.name, method, status)
	return status
}

func (f *Fabric) saClassPortInfo(r *saRequest) uint16 {
	clear(r.rec)
	cpiBaseVersion.Put(r.rec, madBaseVersion)
	cpiClassVersion.Put(r.rec, saClassVersion)
	cpiCapMask.Put(r.rec, cpiUDMulticast)
	cpiCapMask2.Put(r.rec, cpiSendOnlyFullMem)
	cpiRespTime.Put(r.rec, cpiRespTimeValue)
	return StatusOK
}

// saInformInfo accepts a subscription to traps, of which this SA has none: the
// answer is the request's record (IBA 13.4.8.3).
func (f *Fabric) saInformInfo(*saRequest) uint16 { return StatusOK }

// choose picks the largest of values, which are ordered, that is not above
// limit and that a selector and its value allow; ok is false if there is none.
// Used for MTUs and rates (IBA 15.2.5.16).
func choose(values []int, limit int, selector uint64, asked int) (v int, ok bool) {
	for i := len(values) - 1; i >= 0; i-- {
		if v := values[i]; v <= limit && selects(selector, asked, v) {
			return v, true
		}
	}
	return 0, false
}

func selects(selector uint64, asked, v int) bool {
	switch selector {
	case selGreater:
		return v > asked
	case selLess:
		return v < asked
	case selEqual:
		return v == asked
	}
	return true // selBest
}

// chooseMTU returns an MTU in bytes and chooseRate a rate, for a record whose
// mask may or may not have the selector and the value.
func (r *saRequest) chooseMTU(sel, val Field, limit, deflt int) (int, bool) {
	if !sel.in(r.mask) || !val.in(r.mask) {
		return min(limit, deflt), true
	}
	return choose(mtuBytes[1:], limit, sel.Get(r.rec), mtuOf(uint8(val.Get(r.rec))))
}

func (r *saRequest) chooseRate(sel, val Field, limit, deflt Rate) (Rate, bool) {
	if !sel.in(r.mask) || !val.in(r.mask) {
		if deflt.Mbps() > limit.Mbps() {
			deflt = limit
		}
		return deflt, true
	}
	mbps, ok := choose(ratesByMbps(), limit.Mbps(), sel.Get(r.rec), Rate(val.Get(r.rec)).Mbps())
	return rateOf(mbps), ok
}

func (r *saRequest) has(fields ...Field) bool {
	want := maskOf(fields...)
	return r.mask&want == want
}

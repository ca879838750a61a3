package fabric

import (
	"testing"
	"time"
)

// ask sends an SA request from a probe and returns the answer, which must come.
func (p *probe) ask(t *testing.T, mad []byte) []byte {
	t.Helper()
	p.send(mad)
	pkt := p.next(t)
	if pkt.SrcQP != QP1 || pkt.DestQP != QP1 || pkt.QKey != GSIQKey || len(pkt.Payload) != MADSize {
		t.Fatalf("answer %+v", pkt)
	}
	if MADTransaction.Get(pkt.Payload) != MADTransaction.Get(mad) || uint8(MADMethod.Get(pkt.Payload)) != map[uint64]uint8{1: 0x81, 2: 0x81, 0x12: 0x92, 0x15: 0x95}[MADMethod.Get(mad)] {
		t.Fatalf("answer % x does not match the request", pkt.Payload[:24])
	}
	return pkt.Payload
}

func (p *probe) send(mad []byte) {
	p.port.Send(Packet{DLID: smLID, Opcode: OpcodeUDSend, PKey: DefaultPKey, DestQP: QP1, SrcQP: QP1, QKey: GSIQKey, Payload: mad})
}

// comp is one component of a request's record.
type comp struct {
	f Field
	v any // uint64-able int, or GID
}

func request(method uint8, attr uint16, comps ...comp) []byte {
	m := NewMAD(ClassSubnAdm, method, attr, 0x1234567890)
	var mask uint64
	for _, c := range comps {
		switch v := c.v.(type) {
		case GID:
			c.f.PutGID(m[saDataOffset:], v)
		case int:
			c.f.Put(m[saDataOffset:], uint64(v))
		default:
			panic("comp: int or GID")
		}
		mask |= maskOf(c.f)
	}
	saComponentMask.Put(m, mask)
	return m
}

// ipoibJoin is what ipoib_mcast_join asks for: four components for the
// broadcast group, and all of the group's for another one.
func ipoibJoin(port *Port, mgid GID, pkey int, more ...comp) []byte {
	i := port.Info()
	return request(MethodSet, AttrMCMemberRecord, append([]comp{
		{mcMGID, mgid}, {mcPortGID, MakeGID(i.Prefix, i.GUID)}, {mcPKey, pkey}, {mcJoin, JoinFullMember}}, more...)...)
}

func createComps() []comp {
	return []comp{{mcQKey, DefaultGroupQKey}, {mcMTUSel, selEqual}, {mcMTU, 4}, {mcTClass, 0},
		{mcRateSel, selEqual}, {mcRate, int(DefaultGroupRate)}, {mcSL, 0}, {mcFlow, 0}, {mcHop, 0}}
}

func mgid(last byte) GID {
	g := BroadcastMGID(DefaultPKey)
	g[2], g[3] = 0x60, 0x1b // IPv6 signature
	g[15] = last
	return g
}

func TestJoin(t *testing.T) {
	const a = GUID(0xa)
	bcast := BroadcastMGID(DefaultPKey)
	for _, c := range []struct {
		name   string
		cfg    PortConfig
		set    func(*testing.T, *Fabric)
		req    func(*Port) []byte
		status uint64
		mtu    uint64
	}{
		{name: "broadcast group", mtu: 4, req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff) }},
		{name: "4K group", mtu: 5,
			set: func(t *testing.T, f *Fabric) { must(t, f.SetPartition(0xffff, Partition{MTU: 4096, Everyone: Full})) },
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff) }},
		{name: "4K group, 2K port", status: StatusReqInvalid, cfg: PortConfig{MaxMTU: 2048},
			set: func(t *testing.T, f *Fabric) { must(t, f.SetPartition(0xffff, Partition{MTU: 4096, Everyone: Full})) },
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff) }},
		{name: "group faster than the port", status: StatusReqInvalid,
			set: func(t *testing.T, f *Fabric) {
				must(t, f.SetPartition(0xffff, Partition{Rate: Rate200, Everyone: Full}))
			},
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff) }},
		{name: "partition without IPoIB", status: StatusInsufficientComponents,
			set: func(t *testing.T, f *Fabric) {
				must(t, f.SetPartition(0xffff, Partition{NoIPoIB: true, Everyone: Full}))
			},
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff) }},
		{name: "partition the port is in", mtu: 4,
			set: func(t *testing.T, f *Fabric) { must(t, f.SetMember(0x8001, Full, a)) },
			req: func(p *Port) []byte { return ipoibJoin(p, BroadcastMGID(0x8001), 0x8001) }},
		{name: "limited member", mtu: 4,
			set: func(t *testing.T, f *Fabric) { must(t, f.SetMember(0x8001, Limited, a)) },
			req: func(p *Port) []byte { return ipoibJoin(p, BroadcastMGID(0x8001), 0x8001) }},
		{name: "partition the port is not in", status: StatusReqInvalid,
			set: func(t *testing.T, f *Fabric) { must(t, f.SetMember(0x8001, Full, 0xb)) },
			req: func(p *Port) []byte { return ipoibJoin(p, BroadcastMGID(0x8001), 0x8001) }},
		{name: "P_Key not the group's", status: StatusReqInvalid,
			set: func(t *testing.T, f *Fabric) { must(t, f.SetMember(0x8001, Full, a)) },
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0x8001) }},
		{name: "group made by its first member", mtu: 4,
			req: func(p *Port) []byte { return ipoibJoin(p, mgid(1), 0xffff, createComps()...) }},
		{name: "Linux's send-only join", mtu: 4, // join_state 3: see ipoib_mcast_join
			req: func(p *Port) []byte {
				m := ipoibJoin(p, mgid(2), 0xffff, createComps()...)
				mcJoin.Put(m[saDataOffset:], 3)
				return m
			}},
		{name: "send-only full member makes a group", mtu: 4,
			req: func(p *Port) []byte {
				m := ipoibJoin(p, mgid(2), 0xffff, createComps()...)
				mcJoin.Put(m[saDataOffset:], JoinSendOnlyFullMember)
				return m
			}},
		{name: "non-member does not", status: StatusReqInvalid,
			req: func(p *Port) []byte {
				m := ipoibJoin(p, mgid(2), 0xffff, createComps()...)
				mcJoin.Put(m[saDataOffset:], JoinSendOnlyNonMember)
				return m
			}},
		{name: "new group with few components", status: StatusInsufficientComponents,
			req: func(p *Port) []byte { return ipoibJoin(p, mgid(3), 0xffff) }},
		{name: "MTU of the group larger than the port's", status: StatusReqInvalid, cfg: PortConfig{MaxMTU: 1024},
			req: func(p *Port) []byte { return ipoibJoin(p, mgid(3), 0xffff, createComps()...) }},
		{name: "MTU selector greater", mtu: 5,
			req: func(p *Port) []byte {
				return ipoibJoin(p, mgid(3), 0xffff, append(createComps(), comp{mcMTUSel, selGreater})...)
			}},
		{name: "MTU selector less", mtu: 3,
			req: func(p *Port) []byte {
				return ipoibJoin(p, mgid(3), 0xffff, append(createComps(), comp{mcMTUSel, selLess})...)
			}},
		{name: "MTU selector against an existing group", status: StatusReqInvalid,
			req: func(p *Port) []byte {
				return ipoibJoin(p, bcast, 0xffff, comp{mcMTUSel, selGreater}, comp{mcMTU, 4})
			}},
		{name: "Q_Key of an existing group", status: StatusReqInvalid,
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff, comp{mcQKey, 0x1234}) }},
		{name: "unicast MGID", status: StatusReqInvalidGID,
			req: func(p *Port) []byte {
				return ipoibJoin(p, MakeGID(DefaultPrefix, a), 0xffff, createComps()...)
			}},
		{name: "no JoinState", status: StatusReqInvalid,
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff, comp{mcJoin, 0}) }},
		{name: "no PortGID", status: StatusInsufficientComponents,
			req: func(p *Port) []byte {
				return request(MethodSet, AttrMCMemberRecord, comp{mcMGID, bcast}, comp{mcJoin, JoinFullMember})
			}},
		{name: "unknown PortGID", status: StatusReqInvalidGID,
			req: func(p *Port) []byte { return ipoibJoin(p, bcast, 0xffff, comp{mcPortGID, MakeGID(1, a)}) }},
		{name: "for another port", status: StatusReqDenied,
			req: func(p *Port) []byte {
				return ipoibJoin(p, bcast, 0xffff, comp{mcPortGID, MakeGID(DefaultPrefix, 0xb)})
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, Options{})
			c.cfg.GUID, c.cfg.Name = a, "a"
			p := attach(t, f, c.cfg)
			attach(t, f, PortConfig{GUID: 0xb})
			if c.set != nil {
				c.set(t, f)
			}
			got := p.ask(t, c.req(p.port))
			if s := MADStatus.Get(got); s != c.status {
				t.Fatalf("status %#04x, want %#04x", s, c.status)
			}
			members := 0
			for _, g := range f.Groups() {
				members += len(g.Members)
			}
			if c.status != StatusOK {
				if members != 0 {
					t.Errorf("refused, but a group has members: %+v", f.Groups())
				}
				return
			}
			rec := got[saDataOffset:]
			if m := mcMTU.Get(rec); m != c.mtu || mcMLID.Get(rec) < MulticastLID || members != 1 {
				t.Errorf("MTU code %d, want %d; MLID %#x; %d members", m, c.mtu, mcMLID.Get(rec), members)
			}
		})
	}
}

func TestLeave(t *testing.T) {
	f := newFabric(t, Options{})
	a, b := attach(t, f, PortConfig{GUID: 0xa, Name: "a"}), attach(t, f, PortConfig{GUID: 0xb, Name: "b"})
	group := mgid(7)
	status := func(p *probe, mad []byte) uint64 { t.Helper(); return MADStatus.Get(p.ask(t, mad)) }
	leave := func(p *probe, g GID) uint64 {
		t.Helper()
		i := p.port.Info()
		return status(p, request(MethodDelete, AttrMCMemberRecord,
			comp{mcMGID, g}, comp{mcPortGID, MakeGID(i.Prefix, i.GUID)}, comp{mcJoin, JoinFullMember}))
	}
	expect := func(what string, got uint64, want uint64, groups int) {
		t.Helper()
		if got != want || len(f.Groups()) != groups {
			t.Fatalf("%s: status %#04x, want %#04x; %d groups, want %d", what, got, want, len(f.Groups()), groups)
		}
	}
	expect("a joins", status(a, ipoibJoin(a.port, group, 0xffff, createComps()...)), StatusOK, 2)
	expect("b joins", status(b, ipoibJoin(b.port, group, 0xffff)), StatusOK, 2)
	expect("a leaves", leave(a, group), StatusOK, 2)
	expect("a leaves again", leave(a, group), StatusReqInvalid, 2)
	expect("b leaves, the group goes", leave(b, group), StatusOK, 1)
	expect("b leaves what is not", leave(b, group), StatusReqInvalid, 1)
	expect("a joins broadcast", status(a, ipoibJoin(a.port, BroadcastMGID(0xffff), 0xffff)), StatusOK, 1)
	expect("a leaves broadcast, which stays", leave(a, BroadcastMGID(0xffff)), StatusOK, 1)

	expect("a joins", status(a, ipoibJoin(a.port, group, 0xffff, createComps()...)), StatusOK, 2)
	must(t, a.port.SetPhys(PhysPolling))
	expect("a's cable is pulled", StatusOK, StatusOK, 1)
}

func TestMulticast(t *testing.T) {
	f := newFabric(t, Options{})
	full, lim1, lim2 := attach(t, f, PortConfig{GUID: 1, Name: "full"}), attach(t, f, PortConfig{GUID: 2, Name: "lim1"}), attach(t, f, PortConfig{GUID: 3, Name: "lim2"})
	out := attach(t, f, PortConfig{GUID: 4, Name: "out"})
	must(t, f.SetMember(0x8001, Full, 1))
	must(t, f.SetMember(0x8001, Limited, 2, 3))
	var mlid uint16
	for _, p := range []*probe{full, lim1, lim2} {
		got := p.ask(t, ipoibJoin(p.port, BroadcastMGID(0x8001), 0x8001))
		if s := MADStatus.Get(got); s != 0 {
			t.Fatalf("join: status %#04x", s)
		}
		mlid = uint16(mcMLID.Get(got[saDataOffset:]))
	}
	full.port.Send(ud(mlid, 0x8001, "from full"))
	lim1.port.Send(ud(mlid, 0x0001, "from lim1"))
	out.port.Send(ud(mlid, 0x8001, "from out"))
	for _, c := range []struct {
		p    *probe
		want string
	}{{full, "from lim1"}, {lim1, "from full"}, {lim2, "from full"}} {
		if got := c.p.next(t); string(got.Payload) != c.want {
			t.Errorf("%s got %q, want %q", c.p.port.cfg.Name, got.Payload, c.want)
		}
	}
	checkDrops(t, lim2.port, DropReceiverPKey) // what lim1 sent
	checkDrops(t, out.port, DropSenderPKey)
	out.port.Send(ud(0xd000, DefaultPKey, "to nobody"))
	if n := out.port.Counters().Drops[DropNoRoute]; n != 1 {
		t.Errorf("%d drops without a route, want 1", n)
	}
}

func TestPath(t *testing.T) {
	const a, b = GUID(0xa), GUID(0xb)
	gid := func(g GUID) GID { return MakeGID(DefaultPrefix, g) }
	ipoib := func(dst GID, pkey int) []comp { // what path_rec_start asks for
		return []comp{{prDGID, dst}, {prSGID, gid(a)}, {prNumbPath, 1}, {prTClass, 0}, {prPKey, pkey}}
	}
	for _, c := range []struct {
		name      string
		set       func(*testing.T, *Fabric, *Port)
		comps     []comp
		status    uint64
		mtu, pkey uint64
	}{
		{name: "as IPoIB asks", comps: ipoib(gid(b), 0xffff), mtu: 4, pkey: 0xffff},
		{name: "by LID", comps: []comp{{prDLID, 3}}, mtu: 4, pkey: 0xffff},
		{name: "MTU selector", comps: append(ipoib(gid(b), 0xffff), comp{prMTUSel, selLess}, comp{prMTU, 3}), mtu: 2, pkey: 0xffff},
		{name: "MTU too large", comps: append(ipoib(gid(b), 0xffff), comp{prMTUSel, selEqual}, comp{prMTU, 5}), status: StatusNoRecords},
		{name: "rate too high", comps: append(ipoib(gid(b), 0xffff), comp{prRateSel, selGreater}, comp{prRate, int(Rate100)}), status: StatusNoRecords},
		{name: "nobody", comps: ipoib(gid(0xc), 0xffff), status: StatusReqInvalidGID},
		{name: "GID and LID differ", comps: append(ipoib(gid(b), 0xffff), comp{prDLID, 2}), status: StatusNoRecords},
		{name: "no destination", comps: []comp{{prSGID, gid(a)}}, status: StatusInsufficientComponents},
		{name: "P_Key not shared", comps: ipoib(gid(b), 0x8001), status: StatusNoRecords},
		{name: "P_Key of two limited members", comps: ipoib(gid(b), 0x8001), status: StatusNoRecords,
			set: func(t *testing.T, f *Fabric, _ *Port) { must(t, f.SetMember(0x8001, Limited, a, b)) }},
		{name: "P_Key of a full and a limited member", comps: ipoib(gid(b), 0x8001), mtu: 4, pkey: 0x8001,
			set: func(t *testing.T, f *Fabric, _ *Port) {
				must(t, f.SetMember(0x8001, Limited, a))
				must(t, f.SetMember(0x8001, Full, b))
			}},
		{name: "destination down", comps: ipoib(gid(b), 0xffff), status: StatusNoRecords,
			set: func(t *testing.T, _ *Fabric, p *Port) { must(t, p.SetPhys(PhysDisabled)) }},
		{name: "other prefix", comps: ipoib(gid(b), 0xffff), status: StatusReqInvalidGID,
			set: func(_ *testing.T, _ *Fabric, p *Port) { p.SetPrefix(0xfec0000000000000) }},
		{name: "a group", comps: ipoib(BroadcastMGID(0xffff), 0xffff), mtu: 4, pkey: 0xffff},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, Options{})
			p := attach(t, f, PortConfig{GUID: a})
			q := attach(t, f, PortConfig{GUID: b, MaxMTU: 2048})
			if c.set != nil {
				c.set(t, f, q.port)
			}
			got := p.ask(t, request(MethodGet, AttrPathRecord, c.comps...))
			if s := MADStatus.Get(got); s != c.status {
				t.Fatalf("status %#04x, want %#04x", s, c.status)
			}
			rec := got[saDataOffset:]
			if c.status == StatusOK && (prMTU.Get(rec) != c.mtu || prPKey.Get(rec) != c.pkey || prSLID.Get(rec) != 2 || prHop.Get(rec) != 0) {
				t.Errorf("MTU %d, P_Key %#04x, SLID %d, hop limit %d", prMTU.Get(rec), prPKey.Get(rec), prSLID.Get(rec), prHop.Get(rec))
			}
		})
	}
}

func TestSAOther(t *testing.T) {
	f := newFabric(t, Options{})
	p := attach(t, f, PortConfig{GUID: 1})
	got := p.ask(t, request(MethodGet, AttrClassPortInfo))
	if cpiClassVersion.Get(got[saDataOffset:]) != 2 || cpiCapMask2.Get(got[saDataOffset:])&cpiSendOnlyFullMem == 0 {
		t.Errorf("ClassPortInfo % x", got[saDataOffset:][:8])
	}
	group := p.ask(t, request(MethodGet, AttrMCMemberRecord, comp{mcMGID, BroadcastMGID(0xffff)}))
	if MADStatus.Get(group) != 0 || mcMLID.Get(group[saDataOffset:]) != MulticastLID {
		t.Errorf("Get(MCMemberRecord): status %#04x, MLID %#x", MADStatus.Get(group), mcMLID.Get(group[saDataOffset:]))
	}
	badVersion := request(MethodGet, AttrClassPortInfo)
	MADClassVersion.Put(badVersion, 1)
	for _, c := range []struct {
		name string
		mad  []byte
		want uint64
	}{
		{"InformInfo", request(MethodSet, AttrInformInfo), StatusOK},
		{"unknown attribute", request(MethodGet, 0x31), StatusAttributeUnsupported},
		{"GetTable", request(MethodGetTable, AttrPathRecord), StatusMethodUnsupported},
		{"class version", badVersion, StatusBadVersion},
		{"another class", NewMAD(ClassPerf, MethodGet, AttrClassPortInfo, 1), StatusBadVersion},
		{"no such group", request(MethodGet, AttrMCMemberRecord, comp{mcMGID, mgid(1)}), StatusNoRecords},
	} {
		if got := MADStatus.Get(p.ask(t, c.mad)); got != c.want {
			t.Errorf("%s: status %#04x, want %#04x", c.name, got, c.want)
		}
	}
	// Requests come back in order, so an answer to one of these would be seen
	// before the last one's.
	short, version, notice, answer := request(MethodGet, AttrPathRecord)[:255], request(MethodGet, AttrPathRecord), request(methodTrap, 2), request(MethodGet|MethodResponse, AttrPathRecord)
	MADBaseVersion.Put(version, 0x80)
	for _, m := range [][]byte{nil, short, version, notice, answer} {
		p.send(m)
	}
	last := request(MethodSet, AttrInformInfo)
	MADTransaction.Put(last, 99)
	p.ask(t, last)
}

func TestSASilent(t *testing.T) {
	f := newFabric(t, Options{})
	p := attach(t, f, PortConfig{GUID: 1})
	sa := func() uint64 { return f.sm.port.Counters().RcvPackets }
	ignored := func(why string) {
		t.Helper()
		before := sa()
		p.send(request(MethodGet, AttrClassPortInfo))
		p.send(request(MethodGet, AttrClassPortInfo))
		for end := time.Now().Add(deadline); sa() < before+2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the SA did not get the request")
			}
		}
		if x := f.sm.port.Counters().XmitPackets; x != 0 {
			t.Errorf("%s: the SA answered", why)
		}
	}
	f.SetSASilent(true)
	ignored("silent")
	must(t, f.SetSM(SMGone))
	f.SetSASilent(false)
	ignored("SM gone")
	must(t, f.SetSM(SMPresent))
	p.ask(t, request(MethodGet, AttrClassPortInfo))
}

func FuzzMAD(f *testing.F) {
	fab := New(Options{})
	f.Cleanup(fab.Close)
	port, err := fab.Attach(PortConfig{GUID: 1, MaxMTU: 2048}, &probe{packets: make(chan Packet, 1), changes: make(chan Change, 100)})
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range [][]byte{
		nil,
		request(MethodGet, AttrClassPortInfo),
		request(MethodSet, AttrInformInfo),
		ipoibJoin(port, BroadcastMGID(DefaultPKey), 0xffff),
		ipoibJoin(port, mgid(1), 0xffff, createComps()...),
		request(MethodDelete, AttrMCMemberRecord, comp{mcMGID, mgid(1)}, comp{mcPortGID, MakeGID(DefaultPrefix, 1)}, comp{mcJoin, 0xf}),
		request(MethodGet, AttrMCMemberRecord, comp{mcPKey, 0xffff}),
		request(MethodGet, AttrPathRecord, comp{prDLID, 1}, comp{prMTUSel, selLess}, comp{prMTU, 63}, comp{prRateSel, selBest}, comp{prRate, 63}),
		request(MethodGet, AttrPathRecord, comp{prDGID, MakeGID(DefaultPrefix, smGUID)}),
	} {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		fab.mu.Lock()
		defer fab.mu.Unlock()
		answer := fab.saAnswer(port.lid, m)
		if answer == nil {
			if isRequest(m) {
				t.Error("a request was not answered")
			}
			return
		}
		if len(answer) != MADSize || MADMethod.Get(answer)&MethodResponse == 0 || MADTransaction.Get(answer) != MADTransaction.Get(m) {
			t.Errorf("answer % x", answer)
		}
		for _, g := range fab.groups {
			if _, err := mtuCode(g.mtu); err != nil || g.mtu > 2048 || g.rate.Mbps() == 0 || !g.mgid.IsMulticast() {
				t.Errorf("group %+v", g)
			}
		}
	})
}

func TestField(t *testing.T) {
	for _, f := range []Field{{Bit: 0, Width: 64}, {Bit: 5, Width: 1}, {Bit: 356, Width: 20}, {Bit: 3, Width: 13}, {Bit: 32, Width: 27}, {Bit: 59, Width: 5}, {Bit: 7, Width: 2}} {
		for _, v := range []uint64{0, 1, 0x5555555555555555, 0xaaaaaaaaaaaaaaaa, 1<<64 - 1} {
			for _, fill := range []byte{0, 0xff} {
				b := make([]byte, 64)
				for i := range b {
					b[i] = fill
				}
				f.Put(b, v)
				if got, want := f.Get(b), v&(1<<f.Width-1); got != want {
					t.Errorf("%+v: put %#x, got %#x", f, want, got)
				}
				for bit := range len(b) * 8 { // and nothing beside it
					if inside := bit >= f.Bit && bit < f.Bit+f.Width; !inside && (b[bit/8]>>(7-bit%8)^fill)&1 != 0 {
						t.Errorf("%+v: put %#x changed bit %d", f, v, bit)
					}
				}
			}
		}
	}
}

package hca

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"ibup/test/fabric"
)

// pair is two adapters on a fabric, each with a UD QP.
type pair struct {
	fab *fabric.Fabric
	d   [2]*driver
	eq  [2]*testEQ
	cq  [2]*testCQ
	qp  [2]*testQP
	lid [2]uint16
}

// marked tells when a change has arrived that means nothing to an HCA, and with it
// all that came before.
type marked struct {
	*HCA
	marker chan struct{}
}

func (m marked) PortChanged(c fabric.Change) {
	m.HCA.PortChanged(c)
	if c&fabric.ChangeCableModule != 0 {
		m.marker <- struct{}{}
	}
}

func newPair(t *testing.T) *pair {
	p := &pair{fab: fabric.New(fabric.Options{})}
	t.Cleanup(p.fab.Close)
	for i := range p.d {
		d := newDriver(t, Config{Index: i})
		told := marked{d.h, make(chan struct{}, 1)}
		port, err := p.fab.Attach(fabric.PortConfig{GUID: d.h.Config().PortGUID}, told)
		if err != nil {
			t.Fatal(err)
		}
		d.h.Connect(port)
		d.start()
		// What Attach and the start have changed is told before a test looks for events.
		port.Notify(fabric.ChangeCableModule)
		<-told.marker
		p.d[i], p.eq[i] = d, d.newEQ(1)
		p.cq[i] = d.newCQ(p.eq[i])
		p.qp[i] = d.newQP(qpUD, p.cq[i], p.cq[i])
		ctx := d.must(cmd(QueryHCAVportContext, 0, hdr), hdr+vportCtxSize)
		p.lid[i] = hvLID.u16(ctx[vportContext:])
		if s := hvVportState.get(ctx[vportContext:]); s != uint64(fabric.StateActive) {
			t.Fatalf("port state %d", s)
		}
	}
	return p
}

// wait arms the CQ and waits for its interrupt and completion.
func (p *pair) wait(t *testing.T, i int) []byte {
	t.Helper()
	for {
		if c := p.cq[i].next(); c != nil {
			return c
		}
		p.cq[i].arm()
		select {
		case <-p.d[i].mem.irqs:
			for p.eq[i].next() != nil {
			}
			p.eq[i].arm()
		case <-time.After(5 * time.Second):
			t.Fatalf("no completion; violations %q %q", p.d[0].h.Violations(), p.d[1].h.Violations())
		}
	}
}

func TestDatagram(t *testing.T) {
	p := newPair(t)
	for _, n := range []int{0, 1, 20, 32, 33, 1000, 2044, 4096} {
		data := bytes.Repeat([]byte{byte(n), 0x55, 0xaa}, n/3+1)[:n]
		buf := p.d[1].alloc(2)
		p.qp[1].post(buf, 2*pageSize)
		p.qp[0].sendTo(message{lid: p.lid[1], qpn: p.qp[1].id, qkey: testQKey, data: data})
		if c := p.wait(t, 0); c[cqeOpOwner]>>4 != cqeReq {
			t.Fatalf("%d bytes: send completion %x", n, c)
		}
		c := p.wait(t, 1)
		if got := binary.BigEndian.Uint32(c[cqeByteCount:]); c[cqeOpOwner]>>4 != cqeRespSend || got != uint32(n+grhSize) {
			t.Fatalf("%d bytes: receive completion %x", n, c)
		}
		if src := binary.BigEndian.Uint32(c[cqeFlagsRQPN:]) & 0xffffff; src != p.qp[0].id {
			t.Errorf("source QP %#x, want %#x", src, p.qp[0].id)
		}
		if slid := binary.BigEndian.Uint16(c[cqeSLID:]); slid != p.lid[0] {
			t.Errorf("source LID %#x, want %#x", slid, p.lid[0])
		}
		if got := p.d[1].get(buf+grhSize, n); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: data differ", n)
		}
	}
	if got := sum(p.d[0].h.count.tx).packets; got != 8 {
		t.Errorf("%d packets counted", got)
	}
	for i, d := range p.d {
		d.object(DestroyQP, p.qp[i].id)
		d.object(DestroyCQ, p.cq[i].id)
		p.eq[i].destroy()
		d.stop()
	}
}

func TestKeysAreChecked(t *testing.T) {
	p := newPair(t)
	buf := p.d[1].alloc(1)
	p.qp[1].post(buf, pageSize)
	p.qp[0].sendTo(message{lid: p.lid[1], qpn: p.qp[1].id, qkey: testQKey + 1, data: []byte("wrong Q_Key")})
	p.qp[0].sendTo(message{lid: p.lid[1], qpn: p.qp[1].id, qkey: testQKey, data: []byte("right")})
	p.wait(t, 1)
	if got := p.d[1].get(buf+grhSize, 5); string(got) != "right" {
		t.Errorf("received %q", got)
	}
	ctx := p.d[1].must(cmd(QueryHCAVportContext, 0, hdr), hdr+vportCtxSize)
	if got := hvQKeyViol.get(ctx[vportContext:]); got != 1 {
		t.Errorf("%d Q_Key violations, want 1", got)
	}
	for _, tt := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true}, {0xffff, 0x7fff, true}, {0x7fff, 0x7fff, false},
		{0x8001, 0x8001, true}, {0x8001, 0x8002, false}, {0x8000, 0x8000, false},
	} {
		if pkeysMatch(tt.a, tt.b) != tt.want {
			t.Errorf("P_Keys %#x and %#x: want %v", tt.a, tt.b, tt.want)
		}
	}
}

func TestFlushInError(t *testing.T) {
	p := newPair(t)
	q := p.qp[0]
	q.post(p.d[0].alloc(1), pageSize)
	in := cmd(ToERRQP, 0, hdr)
	object24.set(in, uint64(q.id))
	p.d[0].must(in, hdr)
	flushed := func() {
		t.Helper()
		if c := p.wait(t, 0); c[cqeOpOwner]>>4 != cqeRespErr || c[cqeErrSyndrome] != syndFlush {
			t.Fatalf("completion %x", c)
		}
	}
	flushed()
	q.post(p.d[0].alloc(1), pageSize) // without a doorbell
	flushed()
	q.sendTo(message{lid: p.lid[1], qpn: 1, data: []byte("x")})
	if c := p.wait(t, 0); c[cqeOpOwner]>>4 != cqeReqErr || c[cqeErrSyndrome] != syndFlush {
		t.Fatalf("completion %x", c)
	}
	if v := p.d[0].h.Violations(); len(v) != 0 {
		t.Errorf("violations: %q", v)
	}
}

func TestMulticastLoopback(t *testing.T) {
	p := newPair(t)
	d := p.d[0]
	other := d.newQP(qpUD, p.cq[0], p.cq[0])
	gid := fabric.GID{0xff, 0x12, 0x40, 0x1b, 15: 1}
	for _, q := range []*testQP{p.qp[0], other} {
		in := cmd(AttachToMCG, 0, 0x20)
		object24.set(in, uint64(q.id))
		copy(in[mcgGID:], gid[:])
		d.must(in, hdr)
		q.post(d.alloc(1), pageSize)
	}
	p.qp[0].sendTo(message{lid: 0xc001, qpn: 0xffffff, qkey: testQKey, mgid: &gid, data: []byte("all")})
	var got []uint32
	for range 2 {
		c := p.wait(t, 0)
		if c[cqeOpOwner]>>4 == cqeRespSend {
			got = append(got, binary.BigEndian.Uint32(c[cqeOpQPN:])&0xffffff)
		}
	}
	if c := p.cq[0].next(); c != nil || !slices.Equal(got, []uint32{other.id}) {
		t.Errorf("received by %x, want %x only; then %x", got, other.id, c)
	}
}

func TestPortEvents(t *testing.T) {
	p := newPair(t)
	d := p.d[0]
	eq := d.newEQ(2, eventPortChange, eventPortModule, eventTempWarning)
	port, err := p.fab.Port(d.h.Config().PortGUID.String())
	if err != nil {
		t.Fatal(err)
	}
	next := func(typ, sub byte) {
		t.Helper()
		for {
			if e := eq.next(); e != nil {
				if e[eqeType] != typ || e[eqeSubType] != sub {
					t.Errorf("event %#x/%d, want %#x/%d", e[eqeType], e[eqeSubType], typ, sub)
				}
				return
			}
			eq.arm()
			select {
			case <-d.mem.irqs:
			case <-time.After(5 * time.Second):
				t.Fatalf("no event %#x/%d", typ, sub)
			}
		}
	}
	if err := port.SetPhys(fabric.PhysPolling); err != nil {
		t.Fatal(err)
	}
	next(eventPortChange, portDown)
	d.h.ModuleEvent(ModuleUnplugged, 0)
	next(eventPortModule, 0)
	d.h.TemperatureWarning()
	next(eventTempWarning, 0)
	if err := port.SetPKeys([]uint16{0xffff, 0x8001}); err != nil {
		t.Fatal(err)
	}
	next(eventPortChange, portPKey)
	in := cmd(QueryHCAVportPKey, 0, hdr)
	vportIndex.set(in, 1)
	if got := binary.BigEndian.Uint32(d.must(in, hdr+4)[hdr:]); got != 0x8001 {
		t.Errorf("P_Key %#x", got)
	}
}

func TestMADIFC(t *testing.T) {
	p := newPair(t)
	d := p.d[0]
	ask := func(class byte, attr uint16, modifier uint32) []byte {
		in := cmd(MADIFC, 3, hdr+madSize)
		madIfcPort.set(in, 1)
		mad := in[madIfcMAD:]
		mad[0], mad[madClass], mad[2], mad[madMethod] = 1, class, 1, methodGet
		binary.BigEndian.PutUint16(mad[madAttribute:], attr)
		binary.BigEndian.PutUint32(mad[madModifier:], modifier)
		out := d.must(in, hdr+madSize)[madIfcMAD:]
		if out[madMethod] != methodGet|methodResponse {
			t.Errorf("attribute %#x: method %#x", attr, out[madMethod])
		}
		return out
	}
	guid := uint64(d.h.Config().PortGUID)
	if got := ask(classSMLID, 0x11, 0)[madData:]; binary.BigEndian.Uint64(got[20:]) != guid || got[2] != 1 {
		t.Errorf("NodeInfo %x", got[:40])
	}
	if got := ask(classSMLID, 0x15, 1)[madData:]; binary.BigEndian.Uint16(got[16:]) != p.lid[0] || got[32]&0xf != 4 {
		t.Errorf("PortInfo %x", got[:64])
	}
	if got := ask(classSMLID, 0x16, 0)[madData:]; binary.BigEndian.Uint16(got) != 0xffff {
		t.Errorf("P_KeyTable %x", got[:8])
	}
	if got := ask(classSMLID, 0x14, 0)[madData:]; binary.BigEndian.Uint64(got) != guid {
		t.Errorf("GUIDInfo %x", got[:8])
	}
	if got := ask(classSMDirect, 0x10, 0); !bytes.HasPrefix(got[madData:], []byte("hca0 ConnectX-5")) || got[madStatus]>>7 != 1 {
		t.Errorf("NodeDescription %q, status %x", got[madData:madData+20], got[madStatus:madStatus+2])
	}
	if got := binary.BigEndian.Uint16(ask(classSMLID, 0xff90, 1)[madStatus:]); got != madUnsupportedAttribute {
		t.Errorf("vendor attribute: status %#x", got)
	}
	if got := ask(classPM, 0x01, 0)[madData:]; binary.BigEndian.Uint16(got[2:])>>9&1 != 1 {
		t.Errorf("ClassPortInfo %x", got[:8])
	}
}

package hca

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"ibup/test/fabric"
	"ibup/test/vfiouser"
)

var _ vfiouser.Device = (*HCA)(nil)
var _ fabric.Endpoint = (*HCA)(nil)
var _ FabricPort = (*fabric.Port)(nil)

// memory is a guest's RAM and interrupt controller.
type memory struct {
	mu   sync.Mutex
	ram  []byte
	irqs chan int
}

var errUnmapped = errors.New("no such address")

func newMemory() *memory { return &memory{ram: make([]byte, 1<<20), irqs: make(chan int, 1024)} }

func (m *memory) ReadDMA(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr > uint64(len(m.ram)) || uint64(len(m.ram))-addr < uint64(len(p)) {
		return errUnmapped
	}
	copy(p, m.ram[addr:])
	return nil
}

func (m *memory) WriteDMA(addr uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr > uint64(len(m.ram)) || uint64(len(m.ram))-addr < uint64(len(p)) {
		return errUnmapped
	}
	copy(m.ram[addr:], p)
	return nil
}

func (m *memory) Interrupt(v int) { m.irqs <- v }

// driver is a small host driver: it speaks to the device as mlx5_core does.
type driver struct {
	t     testing.TB
	h     *HCA
	mem   *memory
	cmdq  uint64
	free  uint64
	token byte
	uar   uint32
	pd    uint32
	mkey  uint32 // lkey of all memory
}

const pageSize = 4096

func newDriver(t testing.TB, cfg Config) *driver {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, h: h, mem: newMemory(), free: pageSize}
	h.Attach(d.mem)
	d.cmdq = d.alloc(1)
	d.write32(segCmdqAddrHigh, uint32(d.cmdq>>32))
	d.write32(segCmdqAddrLow, uint32(d.cmdq))
	return d
}

// alloc returns n fresh pages.
func (d *driver) alloc(n int) uint64 {
	a := d.free
	d.free += uint64(n) * pageSize
	if d.free > uint64(len(d.mem.ram)) {
		d.t.Fatal("the test's memory is used up")
	}
	return a
}

func (d *driver) read32(off uint64) uint32 {
	var b [4]byte
	if err := d.h.ReadRegion(vfiouser.RegionBAR0, off, b[:]); err != nil {
		d.t.Fatal(err)
	}
	return binary.BigEndian.Uint32(b[:])
}

func (d *driver) write32(off uint64, v uint32) {
	if err := d.h.WriteRegion(vfiouser.RegionBAR0, off, binary.BigEndian.AppendUint32(nil, v)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) write64(off uint64, high, low uint32) {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, high), low)
	if err := d.h.WriteRegion(vfiouser.RegionBAR0, off, b); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) put(addr uint64, p []byte) {
	if err := d.mem.WriteDMA(addr, p); err != nil {
		d.t.Fatal(err)
	}
}

func (d *driver) get(addr uint64, n int) []byte {
	p := make([]byte, n)
	if err := d.mem.ReadDMA(addr, p); err != nil {
		d.t.Fatal(err)
	}
	return p
}

// cmd is an input mailbox under construction.
func cmd(op Opcode, opMod uint16, size int) []byte {
	in := make([]byte, size)
	inOpcode.set(in, uint64(op))
	inOpMod.set(in, uint64(opMod))
	return in
}

// send puts a command into slot 0 and rings; it returns the entry afterwards.
func (d *driver) send(in []byte, outLen int) (entryAddr uint64, outBox uint64) {
	d.token++
	var e [ceSize]byte
	e[ceType] = cmdTypePCI
	binary.BigEndian.PutUint32(e[ceInLen:], uint32(len(in)))
	binary.BigEndian.PutUint32(e[ceOutLen:], uint32(outLen))
	copy(e[ceIn:ceIn+ceInline], in)
	if len(in) > ceInline {
		binary.BigEndian.PutUint64(e[ceInPtr:], d.mailbox(in[ceInline:], len(in)-ceInline))
	}
	if outLen > ceInline {
		outBox = d.mailbox(nil, outLen-ceInline)
		binary.BigEndian.PutUint64(e[ceOutPtr:], outBox)
	}
	e[ceToken], e[ceStatus] = d.token, 1
	var xor byte
	for _, b := range e {
		xor ^= b
	}
	e[ceSig] = ^xor
	d.put(d.cmdq, e[:])
	d.write32(segCmdDoorbell, 1)
	return d.cmdq, outBox
}

// mailbox makes a chain of blocks for n bytes.
func (d *driver) mailbox(data []byte, n int) uint64 {
	blocks := (n + mboxData - 1) / mboxData
	const stride = 1024
	base := d.alloc((blocks*stride + pageSize - 1) / pageSize)
	for i := range blocks {
		var b [mboxSize]byte
		copy(b[:mboxData], data[min(len(data), i*mboxData):])
		if i+1 < blocks {
			binary.BigEndian.PutUint64(b[mboxNext:], base+uint64(i+1)*stride)
		}
		binary.BigEndian.PutUint32(b[mboxBlockNum:], uint32(i))
		b[mboxToken] = d.token
		d.put(base+uint64(i)*stride, b[:])
	}
	return base
}

// run executes a command and returns its output and status.
func (d *driver) run(in []byte, outLen int) ([]byte, Status) {
	d.t.Helper()
	saved := d.free
	addr, box := d.send(in, outLen)
	e := d.get(addr, ceSize)
	if e[ceStatus] != 0 {
		d.t.Fatalf("%v: entry's last byte %#x", Opcode(inOpcode.get(in)), e[ceStatus])
	}
	var xor byte
	for _, b := range e {
		xor ^= b
	}
	if xor != 0xff {
		d.t.Fatalf("%v: wrong signature", Opcode(inOpcode.get(in)))
	}
	out := append([]byte(nil), e[ceOut:ceOut+ceInline]...)
	for box != 0 && len(out) < outLen {
		b := d.get(box, mboxSize)
		out = append(out, b[:min(mboxData, outLen-len(out))]...)
		box = binary.BigEndian.Uint64(b[mboxNext:])
	}
	d.free = saved
	return out, Status(outStatus.get(out))
}

// must is run for a command that has to succeed.
func (d *driver) must(in []byte, outLen int) []byte {
	d.t.Helper()
	out, s := d.run(in, outLen)
	if s != StatusOK {
		d.t.Fatalf("%v: %v; violations %q", Opcode(inOpcode.get(in)), s, d.h.Violations())
	}
	return out
}

func (d *driver) simple(op Opcode) []byte { return d.must(cmd(op, 0, hdr), hdr) }

func (d *driver) object(op Opcode, id uint32) {
	d.t.Helper()
	in := cmd(op, 0, hdr)
	object24.set(in, uint64(id))
	d.must(in, hdr)
}

// start brings the device from reset to where objects can be made.
func (d *driver) start() {
	d.t.Helper()
	d.write32(segCmdqAddrLow, uint32(d.cmdq)) // a reset forgets it
	d.simple(EnableHCA)
	issi := cmd(SetISSI, 0, hdr)
	issiCurrent.set(issi, 1)
	d.must(issi, hdr)
	for _, boot := range []uint16{pagesBoot, pagesInit} {
		n := int(pagesNum.get(d.must(cmd(QueryPages, boot, hdr), hdr)))
		give := cmd(ManagePages, pagesGive, hdr+8*n)
		pagesInEntries.set(give, uint64(n))
		for i := range n {
			binary.BigEndian.PutUint64(give[hdr+8*i:], d.alloc(1))
		}
		d.must(give, hdr)
		if boot == pagesBoot {
			caps := d.must(cmd(QueryHCACap, capGeneral<<1|1, hdr), hdr+capUnion)
			set := cmd(SetHCACap, capGeneral<<1, hdr+capUnion)
			copy(set[hdr:], caps[hdr:])
			d.must(set, hdr)
		}
	}
	d.simple(InitHCA)
	d.uar = object24.u32(d.simple(AllocUAR))
	d.pd = object24.u32(d.simple(AllocPD))
	key := cmd(CreateMKey, 0, ctxIn)
	ctx := key[mkeyContext:]
	mkcLocalRead.set(ctx, 1)
	mkcLocalWrite.set(ctx, 1)
	mkcLength64.set(ctx, 1)
	mkcPD.set(ctx, uint64(d.pd))
	mkcVariant.set(ctx, 0x5a)
	d.mkey = object24.u32(d.must(key, hdr))<<8 | 0x5a
}

// stop is start backwards.
func (d *driver) stop() {
	d.t.Helper()
	d.object(DestroyMKey, d.mkey>>8)
	d.object(DeallocPD, d.pd)
	d.object(DeallocUAR, d.uar)
	d.simple(TeardownHCA)
	for left := 1; left > 0; {
		take := cmd(ManagePages, pagesTake, hdr)
		pagesInEntries.set(take, 5)
		left = int(pagesOutEntries.get(d.must(take, hdr+8*5)))
	}
	d.simple(DisableHCA)
	if o := d.h.Objects(); len(o) != 0 {
		d.t.Errorf("objects left: %v", o)
	}
	if v := d.h.Violations(); len(v) != 0 {
		d.t.Errorf("violations: %q", v)
	}
}

// eq makes an event queue; it polls by owner bit.
type testEQ struct {
	d   *driver
	id  uint32
	buf uint64
	ci  uint32
	log uint
}

func (d *driver) newEQ(vector int, events ...int) *testEQ {
	d.t.Helper()
	q := &testEQ{d: d, buf: d.alloc(1), log: 6}
	for i := range 1 << q.log {
		d.put(q.buf+uint64(i)*eqeSize+eqeOwner, []byte{1})
	}
	in := cmd(CreateEQ, 0, ctxIn+8)
	ctx := in[eqContext:]
	eqcLogSize.set(ctx, uint64(q.log))
	eqcUAR.set(ctx, uint64(d.uar))
	eqcIntr.set(ctx, uint64(vector))
	for _, e := range events {
		in[eqEventBitmask+7-e/8] |= 1 << (e % 8)
	}
	binary.BigEndian.PutUint64(in[pasOffset:], q.buf)
	q.id = object8.u32(d.must(in, hdr))
	q.arm()
	return q
}

func (q *testEQ) arm() {
	q.d.write32(uint64(q.d.uar)*uarPageSize+uarEQArm, q.id<<24|q.ci&0xffffff)
}

// next returns the next event, or nil.
func (q *testEQ) next() []byte {
	raw := q.d.get(q.buf+uint64(q.ci)&(1<<q.log-1)*eqeSize, eqeSize)
	if raw[eqeOwner]&1 != byte(q.ci>>q.log&1) {
		return nil
	}
	q.ci++
	return raw
}

func (q *testEQ) destroy() {
	q.d.t.Helper()
	in := cmd(DestroyEQ, 0, hdr)
	object8.set(in, uint64(q.id))
	q.d.must(in, hdr)
}

// testCQ is a completion queue with 64 entries.
type testCQ struct {
	d   *driver
	id  uint32
	buf uint64
	dbr uint64
	ci  uint32
}

const testLogCQ = 6

func (d *driver) newCQ(eq *testEQ) *testCQ {
	d.t.Helper()
	q := &testCQ{d: d, buf: d.alloc(1), dbr: d.alloc(1)}
	for i := range 1 << testLogCQ {
		d.put(q.buf+uint64(i)*cqeSize+cqeOpOwner, []byte{0xf1})
	}
	in := cmd(CreateCQ, 0, ctxIn+8)
	ctx := in[cqContext:]
	cqcLogSize.set(ctx, testLogCQ)
	cqcUAR.set(ctx, uint64(d.uar))
	cqcEQN.set(ctx, uint64(eq.id))
	cqcDBR.set(ctx, q.dbr)
	binary.BigEndian.PutUint64(in[pasOffset:], q.buf)
	q.id = object24.u32(d.must(in, hdr))
	return q
}

func (q *testCQ) arm() {
	q.d.write64(uint64(q.d.uar)*uarPageSize+uarCQ, q.ci&0xffffff, q.id)
}

// next returns the next completion, or nil.
func (q *testCQ) next() []byte {
	raw := q.d.get(q.buf+uint64(q.ci)&(1<<testLogCQ-1)*cqeSize, cqeSize)
	if raw[cqeOpOwner]>>4 == 15 || raw[cqeOpOwner]&1 != byte(q.ci>>testLogCQ&1) {
		return nil
	}
	q.ci++
	q.d.put(q.dbr, binary.BigEndian.AppendUint32(nil, q.ci&0xffffff))
	return raw
}

// testQP is a datagram QP with 16 receive and 16 send requests.
type testQP struct {
	d    *driver
	id   uint32
	buf  uint64
	dbr  uint64
	typ  uint64
	sq   uint16
	rq   uint16
	send *testCQ
	recv *testCQ
}

const (
	testLogRQ = 4 // of 64 bytes: four segments
	testLogSQ = 5 // basic blocks, two to a request
	testSQOff = 64 << testLogRQ
	testQKey  = 0x0b1b
)

func (d *driver) newQP(typ uint64, send, recv *testCQ) *testQP {
	d.t.Helper()
	q := &testQP{d: d, buf: d.alloc(1), dbr: d.alloc(1), typ: typ, send: send, recv: recv}
	in := cmd(CreateQP, 0, ctxIn+8)
	ctx := in[qpContext:]
	qpcType.set(ctx, typ)
	qpcPD.set(ctx, uint64(d.pd))
	qpcLogRQSize.set(ctx, testLogRQ)
	qpcLogRQStride.set(ctx, 2)
	qpcLogSQSize.set(ctx, testLogSQ)
	qpcUAR.set(ctx, uint64(d.uar))
	qpcCQSend.set(ctx, uint64(send.id))
	qpcCQRecv.set(ctx, uint64(recv.id))
	qpcDBR.set(ctx, q.dbr)
	qpcUserIndex.set(ctx, 0xffffff)
	binary.BigEndian.PutUint64(in[pasOffset:], q.buf)
	q.id = object24.u32(d.must(in, hdr))
	for _, op := range []Opcode{RST2INITQP, INIT2RTRQP, RTR2RTSQP} {
		q.modify(op)
	}
	return q
}

func (q *testQP) modify(op Opcode) {
	q.d.t.Helper()
	in := cmd(op, 0, modifyQP)
	object24.set(in, uint64(q.id))
	ctx := in[qpContext:]
	qpcType.set(ctx, q.typ)
	qpcQKey.set(ctx, testQKey)
	adsPort.set(ctx[qpcPath:], 1)
	q.d.must(in, hdr)
}

// post gives a receive buffer.
func (q *testQP) post(addr uint64, n int) {
	seg := make([]byte, 64)
	binary.BigEndian.PutUint32(seg, uint32(n))
	binary.BigEndian.PutUint32(seg[4:], q.d.mkey)
	binary.BigEndian.PutUint64(seg[8:], addr)
	binary.BigEndian.PutUint32(seg[20:], lkeyInvalid)
	q.d.put(q.buf+uint64(q.rq%(1<<testLogRQ))*64, seg)
	q.rq++
	q.d.put(q.dbr, binary.BigEndian.AppendUint32(nil, uint32(q.rq)))
}

// message is what a test sends.
type message struct {
	lid  uint16
	qpn  uint32
	qkey uint32
	mgid *fabric.GID
	data []byte // inline when it fits into 32 bytes
}

// sendTo posts a request and rings the doorbell.
func (q *testQP) sendTo(m message) {
	wqe := make([]byte, 2*wqeBB)
	av := wqe[wqeCtrlSize:]
	binary.BigEndian.PutUint32(av[avQKey:], m.qkey)
	binary.BigEndian.PutUint32(av[avDQP:], m.qpn|avExtended)
	binary.BigEndian.PutUint16(av[avRLID:], m.lid)
	if m.mgid != nil {
		binary.BigEndian.PutUint32(av[avGIDFlow:], avGRHPresent)
		copy(av[avRGID:], m.mgid[:])
	}
	seg := av[avSize:]
	ds := (wqeCtrlSize + avSize) / wqeDS
	if len(m.data) <= 32 {
		binary.BigEndian.PutUint32(seg, dsInline|uint32(len(m.data)))
		copy(seg[4:], m.data)
		ds += (4 + len(m.data) + wqeDS - 1) / wqeDS
	} else {
		buf := q.d.alloc((len(m.data) + pageSize - 1) / pageSize)
		q.d.put(buf, m.data)
		binary.BigEndian.PutUint32(seg, uint32(len(m.data)))
		binary.BigEndian.PutUint32(seg[4:], q.d.mkey)
		binary.BigEndian.PutUint64(seg[8:], buf)
		ds++
	}
	binary.BigEndian.PutUint32(wqe[wqeOpcode:], uint32(q.sq)<<8|opcodeSend)
	binary.BigEndian.PutUint32(wqe[wqeQPNDS:], q.id<<8|uint32(ds))
	wqe[wqeFmCeSe] = wqeCQUpdate
	blocks := (ds*wqeDS + wqeBB - 1) / wqeBB
	for i := range blocks {
		at := uint64(q.sq+uint16(i)) % (1 << testLogSQ) * wqeBB
		q.d.put(q.buf+testSQOff+at, wqe[i*wqeBB:(i+1)*wqeBB])
	}
	q.sq += uint16(blocks)
	q.d.put(q.dbr+4, binary.BigEndian.AppendUint32(nil, uint32(q.sq)))
	q.d.write64(uint64(q.d.uar)*uarPageSize+uarBF, binary.BigEndian.Uint32(wqe), binary.BigEndian.Uint32(wqe[4:]))
}

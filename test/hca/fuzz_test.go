package hca

import (
	"encoding/binary"
	"testing"

	"ibup/test/fabric"
	"ibup/test/vfiouser"
)

// FuzzCommand sends a driver's commands with any content, one after the other,
// to a device that has one object of each kind: nothing may panic, and every
// command must be answered. A program is a sequence of: opcode, operation
// modifier, length of the input, length of the output (16 bits each, the
// lengths in units of 4 bytes), then the input behind its first 8 bytes.
func FuzzCommand(f *testing.F) {
	step := func(op Opcode, opMod uint16, in, out int, body ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(op))
		b = binary.BigEndian.AppendUint16(b, opMod)
		b = binary.BigEndian.AppendUint16(b, uint16(in/4))
		b = binary.BigEndian.AppendUint16(b, uint16(out/4))
		return append(b, append(body, make([]byte, max(0, in-8-len(body)))...)...)
	}
	for op, c := range commands {
		if c.run != nil {
			f.Add(step(op, 0, max(c.in, hdr), max(c.out, hdr)))
			f.Add(step(op, 1, max(c.in, hdr)+0x100, max(c.out, hdr), 0xff, 0xff, 0xff, 0xff))
		}
	}
	f.Add(append(step(ToERRQP, 0, hdr, hdr, 0, 0, 0, 0x48), step(DestroyQP, 0, hdr, hdr, 0, 0, 0, 0x48)...))
	f.Add(step(AccessReg, 1, hdr+0x40, hdr, 0, 0, 0x50, 0x04))
	f.Fuzz(func(t *testing.T, program []byte) {
		d := newDriver(t, Config{})
		d.start()
		eq := d.newEQ(1)
		cq := d.newCQ(eq)
		d.newQP(qpUD, cq, cq)
		for range 8 {
			if len(program) < 8 {
				return
			}
			in := cmd(Opcode(binary.BigEndian.Uint16(program)), binary.BigEndian.Uint16(program[2:]),
				max(8, int(binary.BigEndian.Uint16(program[4:])%0x800)*4))
			out := max(8, int(binary.BigEndian.Uint16(program[6:])%0x800)*4)
			n := copy(in[8:], program[8:])
			program = program[8+n:]
			before := d.free
			addr, _ := d.send(in, out)
			if last := d.get(addr, ceSize)[ceStatus]; last&1 != 0 {
				t.Fatalf("%v was not answered", Opcode(inOpcode.get(in)))
			}
			d.free = before
			if d.h.Objects()["QP"] > 0 { // let what was changed do its work
				d.write64(uint64(d.uar)*uarPageSize+uarBF, 0, 0x48<<8)
			}
		}
	})
}

// FuzzWrite writes anywhere in BAR 0 and configuration space.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0x18, 4, 0, 0, 0, 1})
	f.Add([]byte{0, 0, 0x80, 0x40, 4, 1, 0, 0, 1})
	f.Add([]byte{0, 0, 0x80, 0x20, 8, 0, 0, 0, 0, 0, 0, 0, 0x80})
	f.Add([]byte{0, 0, 0x88, 0x00, 8, 0, 0, 0, 0, 0, 0, 0x48, 4})
	f.Fuzz(func(t *testing.T, program []byte) {
		d := newDriver(t, Config{})
		d.start()
		eq := d.newEQ(1)
		cq := d.newCQ(eq)
		d.newQP(qpUD, cq, cq)
		for len(program) > 5 {
			off := uint64(binary.BigEndian.Uint32(program))
			n := min(1+int(program[4]%8), len(program)-5)
			p := program[5 : 5+n]
			program = program[5+n:]
			region, size := vfiouser.RegionBAR0, d.h.Config().BARSize
			if off>>31 == 1 {
				region, size = vfiouser.RegionConfig, 4096
			}
			off %= size - 8 // the server lets no other through
			if err := d.h.WriteRegion(region, off, p); err != nil {
				t.Fatal(err)
			}
			if err := d.h.ReadRegion(region, off, p); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzQueues lays any bytes into the send and the receive queue of a QP, and
// sends what is there, to the QP itself where the bytes say so.
func FuzzQueues(f *testing.F) {
	wqe := make([]byte, 2*wqeBB)
	binary.BigEndian.PutUint32(wqe[wqeOpcode:], opcodeSend)
	binary.BigEndian.PutUint32(wqe[wqeQPNDS:], 0x48<<8|5)
	av := wqe[wqeCtrlSize:]
	binary.BigEndian.PutUint32(av[avQKey:], testQKey)
	binary.BigEndian.PutUint32(av[avDQP:], 0x48|avExtended)
	binary.BigEndian.PutUint32(av[avSize:], dsInline|12)
	f.Add(uint16(2), uint16(1), wqe, []byte{0, 0, 0, 64})
	f.Fuzz(func(t *testing.T, sq, rq uint16, send, receive []byte) {
		d := newDriver(t, Config{})
		port := &loopPort{}
		d.h.Connect(port)
		d.start()
		cq := d.newCQ(d.newEQ(1))
		q := d.newQP(qpUD, cq, cq)
		d.put(q.buf, receive[:min(len(receive), testSQOff)])
		d.put(q.buf+testSQOff, send[:min(len(send), wqeBB<<testLogSQ)])
		d.put(q.dbr, binary.BigEndian.AppendUint32(nil, uint32(rq)))
		d.put(q.dbr+4, binary.BigEndian.AppendUint32(nil, uint32(sq)))
		d.write64(uint64(d.uar)*uarPageSize+uarBF, 0, q.id<<8)
		for _, p := range port.sent {
			d.h.Receive(p)
		}
	})
}

// loopPort is the port of a fabric of one: LID 0 is its own, too.
type loopPort struct{ sent []fabric.Packet }

func (p *loopPort) Info() fabric.PortInfo {
	return fabric.PortInfo{State: fabric.StateActive, Phys: fabric.PhysLinkUp, PKeys: []uint16{0xffff}, MTU: 4096}
}
func (p *loopPort) Send(pkt fabric.Packet)        { p.sent = append(p.sent, pkt) }
func (p *loopPort) SetCapMask(uint32)             {}
func (p *loopPort) SetLink(fabric.LinkType) error { return nil }
func (p *loopPort) FirmwareStart()                {}

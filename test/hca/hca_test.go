package hca

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/vfiouser"
)

func TestFieldsKeepTheirNeighbours(t *testing.T) {
	fields := []field{0<<8 | 1, 7<<8 | 1, 3<<8 | 5, 0x5b<<8 | 24, 0x40<<8 | 64, 0x1c3<<8 | 5, 0x10<<8 | 32}
	for _, f := range fields {
		for _, fill := range []byte{0, 0xff} {
			b := bytes.Repeat([]byte{fill}, 0x80)
			v := 0x5a5a5a5a5a5a5a5a & f.mask()
			f.set(b, v)
			if got := f.get(b); got != v {
				t.Errorf("field %#x: set %#x, got %#x", uint32(f), v, got)
			}
			back := uint64(0)
			if fill == 0xff {
				back = f.mask()
			}
			f.set(b, back)
			if !bytes.Equal(b, bytes.Repeat([]byte{fill}, 0x80)) {
				t.Errorf("field %#x changed what is around it", uint32(f))
			}
		}
	}
}

func TestInitializationSegment(t *testing.T) {
	d := newDriver(t, Config{Firmware: "16.28.1002"})
	for _, tt := range []struct {
		off  uint64
		want uint32
	}{
		{segFwRev, 28<<16 | 16},
		{segCmdifRev, 5<<16 | 1002},
		{segCmdqAddrHigh, 0},
		{segInitializing, 0},
		{segHealth + healthSynd, 0},
	} {
		if got := d.read32(tt.off); got != tt.want {
			t.Errorf("offset %#x: %#x, want %#x", tt.off, got, tt.want)
		}
	}
	before := d.read32(segHealthCount)
	deadline := time.Now().Add(5 * time.Second)
	for d.read32(segHealthCount) == before {
		if time.Now().After(deadline) {
			t.Fatal("the health counter stands still")
		}
		time.Sleep(time.Millisecond)
	}
	d.h.SetStuckHealth(true)
	stuck := d.read32(segHealthCount)
	time.Sleep(30 * time.Millisecond) // three steps of the counter
	if got := d.read32(segHealthCount); got != stuck {
		t.Errorf("the stuck health counter went from %d to %d", stuck, got)
	}
	d.h.SetInitializing(time.Hour)
	if d.read32(segInitializing)>>31 != 1 {
		t.Error("not initializing")
	}
	d.h.SetInitializing(0)
	if d.read32(segInitializing)>>31 != 0 {
		t.Error("initializing for ever")
	}
	d.h.SetDead(true)
	if got := d.read32(segFwRev); got != 0xffffffff {
		t.Errorf("a dead card reads %#x", got)
	}
}

func TestLifeCycleLeavesNothing(t *testing.T) {
	d := newDriver(t, Config{})
	for range 3 {
		d.start()
		eq := d.newEQ(1)
		cq := d.newCQ(eq)
		qp := d.newQP(qpUD, cq, cq)
		if got := d.h.Objects()["QP"]; got != 1 {
			t.Errorf("%d QPs, want 1", got)
		}
		d.object(DestroyQP, qp.id)
		d.object(DestroyCQ, cq.id)
		eq.destroy()
		d.stop()
	}
}

func TestRefusals(t *testing.T) {
	d := newDriver(t, Config{})
	if _, s := d.run(cmd(CreateEQ, 0, ctxIn), hdr); s != StatusBadSysState {
		t.Errorf("CREATE_EQ before INIT_HCA: %v", s)
	}
	d.start()
	eq := d.newEQ(1)
	cq := d.newCQ(eq)
	for _, tt := range []struct {
		name string
		in   []byte
		out  int
		want Status
	}{
		{"unknown opcode", cmd(0x7ff, 0, hdr), hdr, StatusBadOp},
		{"known, not carried out", cmd(CreateTIS, 0, 0x100), hdr, StatusBadOp},
		{"short input", cmd(CreateQP, 0, 0x40), hdr, StatusBadInputLen},
		{"short output", cmd(QueryHCAVportContext, 0, hdr), hdr, StatusBadOutputLen},
		{"no such object", cmd(DestroyQP, 0, hdr), hdr, StatusBadResource},
		{"CQ without an EQ", cmd(CreateCQ, 0, ctxIn+8), hdr, StatusBadResource},
		{"capability type", cmd(QueryHCACap, 1<<1, hdr), hdr + capUnion, StatusBadParam},
		{"register", cmd(AccessReg, regRead, hdr+4), hdr + 4, StatusBadParam},
	} {
		if _, s := d.run(tt.in, tt.out); s != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, s, tt.want)
		}
	}
	if got := d.h.UnknownCommands(); got["CREATE_TIS"] != 1 || got["opcode 0x7ff"] != 1 {
		t.Errorf("unknown commands: %v", got)
	}
	in := cmd(DestroyEQ, 0, hdr)
	object8.set(in, uint64(eq.id))
	if _, s := d.run(in, hdr); s != StatusBadResState {
		t.Errorf("DESTROY_EQ with CQ %d on it: %v", cq.id, s)
	}
	if v := d.h.Violations(); len(v) < 6 {
		t.Errorf("violations: %q", v)
	}
	last := d.h.LastCommands(1)
	if len(last) != 1 || !strings.Contains(last[0], "DESTROY_EQ(0x302)") || !strings.Contains(last[0], "bad resource state") {
		t.Errorf("last command: %q", last)
	}
}

func TestDeliveryStatus(t *testing.T) {
	d := newDriver(t, Config{})
	d.write32(segCmdqAddrLow, uint32(d.cmdq))
	for _, tt := range []struct {
		name  string
		spoil func(e []byte)
		want  byte
	}{
		{"signature", func(e []byte) { e[ceSig] ^= 1 }, deliverySignature},
		{"type", func(e []byte) { e[ceType] ^= 1; e[ceSig] ^= 1 }, deliveryDescriptor},
		{"input pointer", func(e []byte) { e[ceInPtr+7] ^= 8; e[ceSig] ^= 8 }, deliveryInPtr},
		{"output pointer", func(e []byte) { e[ceOutPtr+7] ^= 8; e[ceSig] ^= 8 }, deliveryOutPtr},
		{"token", func(e []byte) { e[ceToken] ^= 1; e[ceSig] ^= 1 }, deliveryToken},
	} {
		in := cmd(QueryPages, pagesBoot, 0x100)
		addr, _ := d.send(in, 0x100)
		e := d.get(addr, ceSize)
		e[ceStatus] = 1 // give it to the device again, without the answer
		clear(e[ceOut : ceOut+ceInline])
		e[ceSig] = 0
		var xor byte
		for _, b := range e {
			xor ^= b
		}
		e[ceSig] = ^xor
		tt.spoil(e)
		d.put(addr, e)
		d.write32(segCmdDoorbell, 1)
		if got := d.get(addr, ceSize)[ceStatus]; got != tt.want<<1 {
			t.Errorf("%s: last byte %#x, want %#x", tt.name, got, tt.want<<1)
		}
	}
}

func TestCommandEvents(t *testing.T) {
	d := newDriver(t, Config{})
	d.start()
	eq := d.newEQ(3, eventCommand)
	if e := eq.next(); e != nil {
		t.Fatalf("the EQ's own creation made event %x", e)
	}
	d.simple(NOP)
	e := eq.next()
	if e == nil || e[eqeType] != eventCommand || binary.BigEndian.Uint32(e[eqeData:]) != 1 {
		t.Fatalf("event %x", e)
	}
	if v := <-d.mem.irqs; v != 3 {
		t.Errorf("interrupt on vector %d, want 3", v)
	}
	d.simple(NOP) // not armed: an event but no interrupt
	if eq.next() == nil || len(d.mem.irqs) != 0 {
		t.Errorf("an EQ that is not armed: %d interrupts", len(d.mem.irqs))
	}
	d.simple(NOP)
	eq.arm() // one event behind: fires at once
	if len(d.mem.irqs) != 1 {
		t.Errorf("an EQ armed late: %d interrupts", len(d.mem.irqs))
	}
	for range 200 { // around the ring
		d.simple(NOP)
		for eq.next() != nil {
		}
		eq.arm()
		for len(d.mem.irqs) > 0 {
			<-d.mem.irqs
		}
	}
	eq.destroy()
	d.stop()
}

func TestFaults(t *testing.T) {
	d := newDriver(t, Config{})
	d.h.FailCommand(EnableHCA, StatusInternal, 1)
	if _, s := d.run(cmd(EnableHCA, 0, hdr), hdr); s != StatusInternal {
		t.Errorf("status %v", s)
	}
	d.start()
	d.h.HangCommand(NOP, 1)
	addr, _ := d.send(cmd(NOP, 0, hdr), hdr)
	if e := d.get(addr, ceSize); e[ceStatus] != 1 {
		t.Errorf("a command that hangs ended with %#x", e[ceStatus])
	}
	if last := d.h.LastCommands(1)[0]; !strings.HasSuffix(last, "never answered") {
		t.Errorf("log: %s", last)
	}
	d.simple(NOP)
	d.stop()
}

func TestLinkTypeTakesEffectAtTheNextStart(t *testing.T) {
	d := newDriver(t, Config{})
	portType := func() uint64 {
		caps := d.must(cmd(QueryHCACap, capGeneral<<1|1, hdr), hdr+capUnion)
		return field(0x1b6<<8 | 2).get(caps[hdr:])
	}
	classCode := func() byte {
		var b [1]byte
		if err := d.h.ReadRegion(vfiouser.RegionConfig, 0x0a, b[:]); err != nil {
			t.Fatal(err)
		}
		return b[0]
	}
	d.start()
	if got := portType(); got != 0 || classCode() != 7 {
		t.Errorf("port type %d, subclass %d", got, classCode())
	}
	if err := d.h.SetLinkType(fabric.LinkEthernet); err != nil {
		t.Fatal(err)
	}
	if got := portType(); got != 0 {
		t.Errorf("port type %d at once", got)
	}
	if classCode() != 7 {
		t.Errorf("subclass %d under a driver", classCode())
	}
	d.stop()
	if classCode() != 0 {
		t.Errorf("subclass %d without a driver", classCode())
	}
	d.start()
	if got := portType(); got != 1 {
		t.Errorf("port type %d after a new start", got)
	}
}

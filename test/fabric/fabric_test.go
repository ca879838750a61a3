package fabric

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// deadline is far beyond what anything here takes: only a failure meets it.
const deadline = 20 * time.Second

// probe is an endpoint that keeps what it gets.
type probe struct {
	port    *Port
	packets chan Packet
	changes chan Change
}

func attach(t *testing.T, f *Fabric, cfg PortConfig) *probe {
	t.Helper()
	p := &probe{packets: make(chan Packet, 100), changes: make(chan Change, 100)}
	port, err := f.Attach(cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	p.port = port
	return p
}

func (p *probe) Receive(pkt Packet)   { p.packets <- pkt }
func (p *probe) PortChanged(c Change) { p.changes <- c }

// waitChange collects changes until all of want have been seen.
func (p *probe) waitChange(t *testing.T, want Change) {
	t.Helper()
	var got Change
	for end := time.After(deadline); got&want != want; {
		select {
		case c := <-p.changes:
			got |= c
		case <-end:
			t.Fatalf("changes %#x, want %#x", got, want)
		}
	}
}

func (p *probe) next(t *testing.T) Packet {
	t.Helper()
	select {
	case pkt := <-p.packets:
		return pkt
	case <-time.After(deadline):
		t.Fatal("no packet")
		panic("unreachable")
	}
}

func newFabric(t *testing.T, opts Options) *Fabric {
	t.Helper()
	opts.Logf = t.Logf
	f := New(opts)
	t.Cleanup(f.Close)
	return f
}

func ud(dlid, pkey uint16, payload string) Packet {
	return Packet{DLID: dlid, Opcode: OpcodeUDSend, PKey: pkey, DestQP: 0x48, SrcQP: 0x49, QKey: DefaultGroupQKey, Payload: []byte(payload)}
}

func TestMatchPKeys(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false},
		{0x8001, 0x8001, true},
		{0x8001, 0x0001, true},
		{0x0001, 0x0001, false},
		{0x8001, 0x8002, false},
		{0x8001, 0x0002, false},
		{0x8000, 0x8000, false},
		{0x0000, 0x8000, false},
		{0x0000, 0x0000, false},
	} {
		if got := MatchPKeys(c.a, c.b); got != c.want {
			t.Errorf("MatchPKeys(%#04x, %#04x) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestUpdateTable(t *testing.T) {
	for _, c := range []struct {
		name       string
		have, want []uint16
		keys       map[uint16]uint16
	}{
		{"default first", []uint16{0, 0, 0}, []uint16{0xffff, 0x8001, 2}, map[uint16]uint16{1: 0x8001, 2: 2, 0x7fff: 0xffff}},
		{"stays where it is", []uint16{0xffff, 0x8001, 0x8002}, []uint16{0xffff, 0, 0x8002}, map[uint16]uint16{2: 0x8002, 0x7fff: 0xffff}},
		{"fills the gap", []uint16{0xffff, 0, 0x8002}, []uint16{0xffff, 0x8003, 0x8002}, map[uint16]uint16{2: 0x8002, 3: 0x8003, 0x7fff: 0xffff}},
		{"membership changes in place", []uint16{0xffff, 0x8001, 0}, []uint16{0xffff, 1, 0}, map[uint16]uint16{1: 1, 0x7fff: 0xffff}},
		{"a double goes", []uint16{1, 0x8001, 0}, []uint16{0x8001, 0, 0}, map[uint16]uint16{1: 0x8001}},
		{"no room", []uint16{0xffff, 0}, []uint16{0xffff, 0x8001}, map[uint16]uint16{1: 0x8001, 2: 0x8002, 0x7fff: 0xffff}},
	} {
		if got := updateTable(c.have, c.keys); !slices.Equal(got, c.want) {
			t.Errorf("%s: %#04x, want %#04x", c.name, got, c.want)
		}
	}
}

func TestGUID(t *testing.T) {
	want := GUID(0x506b4b0300a10000)
	for _, s := range []string{want.String(), "506b:4b03:00a1:0000", "0x506b4b0300a10000", "506b4b0300a10000"} {
		if g, err := ParseGUID(s); g != want || err != nil {
			t.Errorf("ParseGUID(%q) = %v, %v", s, g, err)
		}
	}
	for _, s := range []string{"", "0x", "506b:4b03:a1:0000", "506b:4b03:00a1", "hca0", "1506b4b0300a10000"} {
		if g, err := ParseGUID(s); err == nil {
			t.Errorf("ParseGUID(%q) = %v, want an error", s, g)
		}
	}
}

// TestEnforcement sends one packet each between two ports and says where it
// must be dropped.
func TestEnforcement(t *testing.T) {
	const a, b = GUID(0xa), GUID(0xb)
	for _, c := range []struct {
		name     string
		set      func(*testing.T, *Fabric, *Port, *Port)
		pkey     uint16
		size     int
		sender   DropReason
		receiver DropReason
	}{
		{name: "default partition", pkey: 0xffff, size: 4096},
		{name: "key not in sender's table", pkey: 0x8001, sender: DropSenderPKey},
		{name: "limited in a full table", pkey: 0x7fff, sender: DropSenderPKey},
		{name: "key not in receiver's table", pkey: 0x8001, receiver: DropReceiverPKey,
			set: func(t *testing.T, f *Fabric, _, _ *Port) { must(t, f.SetMember(0x8001, Full, a)) }},
		{name: "full to limited", pkey: 0x8001,
			set: func(t *testing.T, f *Fabric, _, _ *Port) {
				must(t, f.SetMember(0x8001, Full, a))
				must(t, f.SetMember(0x8001, Limited, b))
			}},
		{name: "limited to full", pkey: 0x0001,
			set: func(t *testing.T, f *Fabric, _, _ *Port) {
				must(t, f.SetMember(0x8001, Limited, a))
				must(t, f.SetMember(0x8001, Full, b))
			}},
		{name: "limited to limited", pkey: 0x0001, receiver: DropReceiverPKey,
			set: func(t *testing.T, f *Fabric, _, _ *Port) { must(t, f.SetMember(0x8001, Limited, a, b)) }},
		{name: "limited member sends as full", pkey: 0x8001, sender: DropSenderPKey,
			set: func(t *testing.T, f *Fabric, _, _ *Port) { must(t, f.SetMember(0x8001, Limited, a, b)) }},
		{name: "sender polling", pkey: 0xffff, sender: DropSenderInactive,
			set: func(t *testing.T, _ *Fabric, p, _ *Port) { must(t, p.SetPhys(PhysPolling)) }},
		{name: "receiver at init", pkey: 0xffff, receiver: DropReceiverInactive,
			set: func(t *testing.T, _ *Fabric, _, p *Port) { must(t, p.SetLogical(StateInit)) }},
		{name: "SM absent", pkey: 0xffff, sender: DropSenderInactive,
			set: func(t *testing.T, f *Fabric, _, _ *Port) { must(t, f.SetSM(SMAbsent)) }},
		{name: "SM gone", pkey: 0xffff,
			set: func(t *testing.T, f *Fabric, _, _ *Port) { must(t, f.SetSM(SMGone)) }},
		{name: "larger than the MTU", pkey: 0xffff, size: 4097, sender: DropMTU},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, Options{})
			pa, pb := attach(t, f, PortConfig{GUID: a}), attach(t, f, PortConfig{GUID: b})
			dlid := pb.port.Info().LID
			if c.set != nil {
				c.set(t, f, pa.port, pb.port)
			}
			pa.port.Send(ud(dlid, c.pkey, strings.Repeat("x", c.size)))
			if c.sender == dropNone && c.receiver == dropNone {
				if got := pb.next(t); got.SLID != pa.port.Info().LID || len(got.Payload) != c.size {
					t.Errorf("got %+v", got)
				}
			}
			checkDrops(t, pa.port, c.sender)
			checkDrops(t, pb.port, c.receiver)
		})
	}
}

func checkDrops(t *testing.T, p *Port, want DropReason) {
	t.Helper()
	expect := map[DropReason]uint64{}
	if want != dropNone {
		expect[want] = 1
	}
	if got := p.Counters().Drops; fmt.Sprint(got) != fmt.Sprint(expect) {
		t.Errorf("%s dropped %v, want %v", p.cfg.Name, got, expect)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoopbackAndOrder(t *testing.T) {
	f := newFabric(t, Options{})
	p := attach(t, f, PortConfig{GUID: 1})
	const n = 5000 // more than fits the queue
	go func() {
		for i := range n {
			pkt := ud(p.port.Info().LID, DefaultPKey, "")
			pkt.PSN = uint32(i)
			p.port.Send(pkt)
		}
	}()
	for i := range n {
		if got := p.next(t); got.PSN != uint32(i) {
			t.Fatalf("packet %d has PSN %d", i, got.PSN)
		}
	}
}

// stuck never returns from Receive until released.
type stuck struct{ release chan struct{} }

func (s stuck) Receive(Packet)     { <-s.release }
func (s stuck) PortChanged(Change) {}

func TestStalledReceiver(t *testing.T) {
	f := newFabric(t, Options{Queue: 4, HOQLife: time.Millisecond})
	a := attach(t, f, PortConfig{GUID: 1})
	s := stuck{make(chan struct{})}
	b, err := f.Attach(PortConfig{GUID: 2}, s)
	must(t, err)
	const n = 1000
	begin := time.Now()
	for range n {
		a.port.Send(ud(b.Info().LID, DefaultPKey, "x"))
	}
	if d := time.Since(begin); d > n*time.Millisecond/2 {
		t.Errorf("%d packets to a stuck endpoint took %v: each waited", n, d)
	}
	// 4 in the queue, and one perhaps in Receive.
	if got := b.Counters().Drops[DropQueueFull]; got != n-4 && got != n-5 {
		t.Errorf("dropped %d of %d", got, n)
	}
	close(s.release)
}

func TestAttachErrors(t *testing.T) {
	f := New(Options{})
	attach(t, f, PortConfig{GUID: 1, Name: "hca0"})
	for _, c := range []struct {
		cfg  PortConfig
		want string
	}{
		{PortConfig{}, "GUID"},
		{PortConfig{GUID: 1}, `"hca0" has this GUID already`},
		{PortConfig{GUID: 2, Name: "hca0"}, `the name "hca0" already`},
		{PortConfig{GUID: 2, MaxMTU: 1500}, "MTU 1500"},
		{PortConfig{GUID: 2, Rate: 1}, "rate code 1"},
	} {
		if _, err := f.Attach(c.cfg, &probe{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Attach(%+v): %v, want %q", c.cfg, err, c.want)
		}
	}
	if _, err := f.Port("hca1"); err == nil || !strings.Contains(err.Error(), "hca0 (0000:0000:0000:0001)") {
		t.Errorf("Port of an unknown name: %v", err)
	}
	f.Close()
	if _, err := f.Attach(PortConfig{GUID: 3}, &probe{}); err == nil {
		t.Error("a closed fabric took a port")
	}
}

func TestNoLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		f := New(Options{})
		f.SetSMLate(time.Hour)
		a, b := attach(t, f, PortConfig{GUID: 1}), attach(t, f, PortConfig{GUID: 2})
		a.port.Send(ud(b.port.Info().LID, DefaultPKey, "x"))
		b.port.Close()
		b.port.Close()
		if len(f.Ports()) != 1 {
			t.Error("a closed port is still there")
		}
		f.Close()
	}
	// The scheduler needs a moment to take finished goroutines off the count.
	for end := time.Now().Add(deadline); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

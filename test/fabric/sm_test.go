package fabric

import (
	"slices"
	"testing"
	"time"
)

func TestBringUp(t *testing.T) {
	f := newFabric(t, Options{})
	a := attach(t, f, PortConfig{GUID: 1})
	a.waitChange(t, ChangeState|ChangeLID|ChangeReregister)
	i := a.port.Info()
	if i.State != StateActive || i.Phys != PhysLinkUp || i.LID != 2 || i.SMLID != 1 || !i.SMPresent ||
		i.PKeys[0] != 0xffff || len(i.PKeys) != DefaultPKeyTable || i.MTU != 4096 || i.Prefix != DefaultPrefix {
		t.Errorf("%+v", i)
	}
	i.PKeys[0] = 0 // a copy
	if a.port.Info().PKeys[0] != 0xffff {
		t.Error("Info gave the port's own table away")
	}
}

func TestSMLate(t *testing.T) {
	f := newFabric(t, Options{SM: SMAbsent})
	a := attach(t, f, PortConfig{GUID: 1})
	if i := a.port.Info(); i.State != StateInit || i.LID != 0 || i.SMLID != 0 || i.SMPresent || i.PKeys[0] != DefaultPKey {
		t.Errorf("without an SM: %+v", i)
	}
	f.SetSMLate(20 * time.Millisecond)
	a.waitChange(t, ChangeState|ChangeLID|ChangeReregister)
	if i := a.port.Info(); i.State != StateActive || i.LID != 2 || i.SMLID != 1 || !i.SMPresent {
		t.Errorf("with the late SM: %+v", i)
	}

	f.SetSMLate(time.Hour)
	if s := a.port.Info().State; s != StateInit {
		t.Errorf("waiting for a late SM: %v", s)
	}
	must(t, f.SetSM(SMPresent)) // overtakes it
	if s := a.port.Info().State; s != StateActive {
		t.Errorf("SM is there early: %v", s)
	}
}

func TestSMGone(t *testing.T) {
	f := newFabric(t, Options{})
	a, b := attach(t, f, PortConfig{GUID: 1, Name: "a"}), attach(t, f, PortConfig{GUID: 2, Name: "b"})
	a.ask(t, ipoibJoin(a.port, BroadcastMGID(0xffff), 0xffff))
	must(t, f.SetSM(SMGone))
	if i := a.port.Info(); i.State != StateActive || i.LID != 2 || i.SMLID != 1 || i.SMPresent {
		t.Errorf("old port: %+v", i)
	}
	b.port.Send(ud(MulticastLID, DefaultPKey, "still forwarded"))
	a.next(t)
	c := attach(t, f, PortConfig{GUID: 3})
	if i := c.port.Info(); i.State != StateInit || i.LID != 0 {
		t.Errorf("new port: %+v", i)
	}
	must(t, b.port.SetPhys(PhysPolling))
	must(t, b.port.SetPhys(PhysLinkUp))
	if i := b.port.Info(); i.State != StateInit || i.LID != 3 {
		t.Errorf("port whose link bounced: %+v", i)
	}

	a.drain()
	must(t, f.SetSM(SMPresent))
	a.waitChange(t, ChangeReregister)
	if i := a.port.Info(); i.LID != 2 {
		t.Errorf("LID %d from the new SM, want the old one, 2", i.LID)
	}
	if g := f.Groups(); len(g) != 1 || len(g[0].Members) != 0 {
		t.Errorf("a new SM knows of members: %+v", g)
	}
}

func (p *probe) drain() {
	for {
		select {
		case <-p.changes:
		default:
			return
		}
	}
}

func TestPortLevers(t *testing.T) {
	f := newFabric(t, Options{})
	a := attach(t, f, PortConfig{GUID: 1})
	for _, c := range []struct {
		name  string
		do    func() error
		want  Change
		state State
		phys  PhysState
	}{
		{"start", func() error { return nil }, ChangeState | ChangeReregister, StateActive, PhysLinkUp},
		{"cable out", func() error { return a.port.SetPhys(PhysPolling) }, ChangeState, StateDown, PhysPolling},
		{"disabled", func() error { return a.port.SetPhys(PhysDisabled) }, ChangeState, StateDown, PhysDisabled},
		{"cable in", func() error { return a.port.SetPhys(PhysLinkUp) }, ChangeState | ChangeReregister, StateActive, PhysLinkUp},
		{"logical Init", func() error { return a.port.SetLogical(StateInit) }, ChangeState, StateInit, PhysLinkUp},
		{"logical Armed", func() error { return a.port.SetLogical(StateArmed) }, ChangeState, StateArmed, PhysLinkUp},
		{"logical free", func() error { return a.port.SetLogical(0) }, ChangeState, StateActive, PhysLinkUp},
		{"prefix", func() error { a.port.SetPrefix(0xfec0 << 48); return nil }, ChangeGIDs, StateActive, PhysLinkUp},
		{"P_Keys", func() error { return a.port.SetPKeys([]uint16{0x7fff, 0, 0x8002}) }, ChangePKeys, StateActive, PhysLinkUp},
		{"P_Keys free", func() error { return a.port.SetPKeys(nil) }, ChangePKeys, StateActive, PhysLinkUp},
		{"link type", func() error { return a.port.SetLink(LinkEthernet) }, ChangeLinkType, StateActive, PhysLinkUp},
		{"cable event", func() error { a.port.Notify(ChangeCableModule); return nil }, ChangeCableModule, StateActive, PhysLinkUp},
		{"reregister", func() error { f.Reregister(); return nil }, ChangeReregister, StateActive, PhysLinkUp},
	} {
		must(t, c.do())
		a.waitChange(t, c.want)
		if i := a.port.Info(); i.State != c.state || i.Phys != c.phys || i.LID != 2 {
			t.Errorf("%s: %v %v LID %d, want %v %v LID 2", c.name, i.State, i.Phys, i.LID, c.state, c.phys)
		}
	}
	for _, err := range []error{a.port.SetPhys(1), a.port.SetLogical(9), a.port.SetLink(7), a.port.SetPKeys(make([]uint16, 129)), f.SetSM(9),
		f.SetPartition(0x8000, Partition{}), f.SetPartition(0x8001, Partition{MTU: 1500}), f.SetPartition(0x8001, Partition{Rate: 1})} {
		if err == nil {
			t.Error("a bad value was accepted")
		}
	}
}

func TestPinnedTable(t *testing.T) {
	f := newFabric(t, Options{})
	a := attach(t, f, PortConfig{GUID: 1, PKeyTable: 4})
	for _, c := range []struct {
		name string
		do   func() error
		want []uint16
	}{
		{"pinned", func() error { return a.port.SetPKeys([]uint16{0, 0xffff}) }, []uint16{0, 0xffff, 0, 0}},
		{"the SM leaves it alone", func() error { return f.SetMember(0x8001, Full, 1) }, []uint16{0, 0xffff, 0, 0}},
		{"given back: what is right stays in its place", func() error { return a.port.SetPKeys(nil) }, []uint16{0x8001, 0xffff, 0, 0}},
		{"limited", func() error { return f.SetMember(0x8001, Limited, 1) }, []uint16{1, 0xffff, 0, 0}},
		{"removed", func() error { f.RemovePartition(0x8001); return nil }, []uint16{0, 0xffff, 0, 0}},
		{"out of the default partition", func() error { return f.SetMember(0xffff, NotMember, 1) }, []uint16{0, 0, 0, 0}},
	} {
		must(t, c.do())
		if got := a.port.Info().PKeys; !slices.Equal(got, c.want) {
			t.Errorf("%s: %#04x, want %#04x", c.name, got, c.want)
		}
	}
}

func TestEthernetPort(t *testing.T) {
	f := newFabric(t, Options{})
	a := attach(t, f, PortConfig{GUID: 1})
	must(t, a.port.SetLink(LinkEthernet))
	if i := a.port.Info(); i.Link != LinkEthernet || i.LID != 2 {
		t.Errorf("configured only: %+v", i)
	}
	a.port.FirmwareStart()
	if i := a.port.Info(); i.LID != 0 || i.SMLID != 0 {
		t.Errorf("started as Ethernet: %+v", i)
	}
	must(t, a.port.SetLink(LinkInfiniBand))
	a.port.FirmwareStart()
	if i := a.port.Info(); i.LID != 2 || i.State != StateActive {
		t.Errorf("started as InfiniBand: %+v", i)
	}
}

func TestGroupParametersChange(t *testing.T) {
	f := newFabric(t, Options{})
	a := attach(t, f, PortConfig{GUID: 1})
	a.waitChange(t, ChangeReregister)
	a.ask(t, ipoibJoin(a.port, BroadcastMGID(0xffff), 0xffff))
	must(t, f.SetPartition(0xffff, Partition{MTU: 4096, QKey: 0x1b1b, Everyone: Full}))
	a.waitChange(t, ChangeReregister)
	if g := f.Groups()[0]; g.MTU != 4096 || g.QKey != 0x1b1b || g.MLID != MulticastLID {
		t.Errorf("%+v", g)
	}
}

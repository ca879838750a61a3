package fabric

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// SMMode says what there is of a subnet manager.
type SMMode uint8

// SM modes.
const (
	// SMPresent: ports become Active and the SA answers.
	SMPresent SMMode = iota
	// SMAbsent: there never was one. Ports stay at Init without a LID.
	SMAbsent
	// SMGone: it vanished. Ports stay as they were and remember the SM's LID,
	// the switch forwards, the SA does not answer; new ports stay at Init.
	SMGone
)

func (m SMMode) String() string {
	switch m {
	case SMPresent:
		return "present"
	case SMAbsent:
		return "absent"
	case SMGone:
		return "gone"
	}
	return "unknown"
}

const (
	smLID  = 1
	smGUID = GUID(0x0002c90300000001)
)

type smState struct {
	mode   SMMode
	gen    int  // counts SMs: each has to set up all ports
	silent bool // the SA answers nothing
	late   *time.Timer
	port   *Port // of the node the SM and the SA run on
}

func (s *smState) stopTimer() {
	if s.late != nil {
		s.late.Stop()
		s.late = nil
	}
}

// startSM makes the SM's own port, which has LID 1 and is not one of Ports.
func (f *Fabric) startSM() {
	cfg, _ := PortConfig{Name: "sm", GUID: smGUID}.withDefaults()
	p := f.newPort(cfg, &sa{fab: f})
	p.base, p.state, p.lid, p.smLID, p.prefix = StateActive, StateActive, smLID, smLID, f.opts.Prefix
	f.sm = smState{mode: f.opts.SM, gen: 1, port: p}
	f.lidOf[smGUID], f.lids[smLID] = smLID, p
	f.change(func() {})
	f.startPort(p)
}

// change makes a change and lets the SM see it.
func (f *Fabric) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	f.sweep()
}

// SetSM sets the SM's mode. A mode that becomes SMPresent is a new SM: it knows
// of no multicast members and asks all clients to register again.
func (f *Fabric) SetSM(m SMMode) error {
	if m > SMGone {
		return errors.New("fabric: SM mode is none of present, absent, gone")
	}
	f.change(func() { f.setSM(m) })
	return nil
}

// SetSMLate makes the SM absent now and present after d.
func (f *Fabric) SetSMLate(d time.Duration) {
	f.change(func() {
		f.setSM(SMAbsent)
		var t *time.Timer
		t = time.AfterFunc(d, func() {
			f.change(func() {
				if f.sm.late == t && !f.closed { // not overtaken by another SetSM
					f.setSM(SMPresent)
				}
			})
		})
		f.sm.late = t
	})
}

func (f *Fabric) setSM(m SMMode) {
	f.sm.stopTimer()
	if f.sm.mode == m {
		return
	}
	f.opts.Logf("fabric: SM %v -> %v", f.sm.mode, m)
	f.sm.mode = m
	switch m {
	case SMPresent:
		f.sm.gen++
		f.clearGroups()
	case SMAbsent:
		f.clearGroups()
	}
}

// SM returns the SM's mode.
func (f *Fabric) SM() SMMode {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.sm.mode
}

// SetSASilent makes the SA drop every request while the SM goes on.
func (f *Fabric) SetSASilent(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sm.silent = silent
}

// Reregister asks the clients of all active ports to register again, as an SM
// does after a failover (IBA 14.4.11).
func (f *Fabric) Reregister() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.ports {
		if p.state == StateActive {
			p.notify(ChangeReregister)
		}
	}
}

// SetSubnetPrefix changes the prefix of all ports that do not have their own.
func (f *Fabric) SetSubnetPrefix(prefix uint64) {
	f.change(func() {
		f.opts.Prefix = prefix
		f.sm.port.prefix = prefix
	})
}

func (f *Fabric) clearGroups() {
	clear(f.groups)
	clear(f.mlids)
}

// sweep is the SM's work after any change: it brings every port and the
// partitions' groups to what they ought to be, and notifies. The caller holds
// f.mu.
func (f *Fabric) sweep() {
	if f.sm.mode == SMPresent {
		f.sweepGroups()
	}
	for _, p := range f.ports {
		p.notify(f.sweepPort(p))
	}
}

func (f *Fabric) sweepPort(p *Port) (c Change) {
	switch {
	case p.phys != PhysLinkUp:
		if p.base != StateDown && f.sm.mode == SMPresent {
			f.leaveAll(p) // the SM sees a port vanish and forgets its memberships
		}
		p.base = StateDown
	case p.link == LinkEthernet:
		p.base, p.lid, p.smLID = StateActive, 0, 0
	case f.sm.mode == SMPresent:
		c |= f.setUpPort(p)
	case f.sm.mode == SMAbsent:
		p.base, p.lid, p.smLID, p.smGen = StateInit, 0, 0, 0
	case p.base == StateDown: // SMGone, and the link came back
		p.base = StateInit
	}
	p.state = p.base
	if p.override != 0 {
		p.state = p.override
	}
	if p.told.lid != p.lid {
		if f.lids[p.told.lid] == p {
			delete(f.lids, p.told.lid)
		}
		if p.lid != 0 {
			f.lids[p.lid] = p
		}
	}
	return c | p.untold()
}

// setUpPort is what a sweep does to a port with a link: Init, then Armed, then
// Active, in one go; a port or an SM that is new reregisters its clients.
func (f *Fabric) setUpPort(p *Port) (c Change) {
	p.lid, p.smLID = f.lidFor(p.cfg.GUID), smLID
	if !p.prefixPin {
		p.prefix = f.opts.Prefix
	}
	if !p.pkeysPin {
		want := map[uint16]uint16{}
		for part, pt := range f.partitions {
			switch pt.membership(p.cfg.GUID) {
			case Full:
				want[part] = part | FullMembership
			case Limited:
				want[part] = part
			}
		}
		p.pkeys = updateTable(p.pkeys, want)
	}
	if p.base != StateActive || p.smGen != f.sm.gen {
		p.base, p.smGen = StateActive, f.sm.gen
		c |= ChangeReregister
		f.opts.Logf("fabric: SM: %s is Active, LID %d", p.cfg.Name, p.lid)
	}
	return c
}

// lidFor returns the GUID's LID: the one it ever had, or the lowest free.
func (f *Fabric) lidFor(g GUID) uint16 {
	if l, ok := f.lidOf[g]; ok {
		return l
	}
	taken := map[uint16]bool{}
	for _, l := range f.lidOf {
		taken[l] = true
	}
	for l := uint16(smLID); l <= maxUnicastLID; l++ {
		if !taken[l] {
			f.lidOf[g] = l
			return l
		}
	}
	return 0
}

// sweepGroups makes the broadcast groups agree with the partitions, the
// default partition's first so that it has the first MLID.
func (f *Fabric) sweepGroups() {
	for _, g := range f.groups {
		if part := g.pkey &^ FullMembership; g.byAdmin && (f.partitions[part] == nil || f.partitions[part].NoIPoIB) {
			f.removeGroup(g)
		}
	}
	var parts []uint16
	for part, pt := range f.partitions {
		if !pt.NoIPoIB {
			parts = append(parts, part)
		}
	}
	slices.SortFunc(parts, func(a, b uint16) int { return cmp.Compare((a+1)&0x7fff, (b+1)&0x7fff) })
	for _, part := range parts {
		pt := f.partitions[part]
		g := f.groups[BroadcastMGID(part)]
		if g == nil {
			g = &group{mgid: BroadcastMGID(part), pkey: part | FullMembership, scope: 2, life: defaultLife}
			if !f.addGroup(g) {
				continue
			}
		}
		g.byAdmin = true
		if g.mtu == pt.MTU && g.rate == pt.Rate && g.qkey == pt.QKey {
			continue
		}
		g.mtu, g.rate, g.qkey = pt.MTU, pt.Rate, pt.QKey
		for _, m := range g.members {
			m.port.notify(ChangeReregister)
		}
	}
}

// portState is what the endpoint was last told of.
type portState struct {
	state  State
	phys   PhysState
	link   LinkType
	lid    uint16
	smLID  uint16
	prefix uint64
	pkeys  []uint16
}

// untold returns what changed since the last call.
func (p *Port) untold() (c Change) {
	now := portState{p.state, p.phys, p.linkSet, p.lid, p.smLID, p.prefix, p.pkeys}
	was := p.told
	p.told = now
	if was.state != now.state || was.phys != now.phys {
		c |= ChangeState
	}
	if was.lid != now.lid || was.smLID != now.smLID {
		c |= ChangeLID
	}
	if was.link != now.link {
		c |= ChangeLinkType
	}
	if was.prefix != now.prefix {
		c |= ChangeGIDs
	}
	if !slices.Equal(was.pkeys, now.pkeys) {
		c |= ChangePKeys
	}
	return c
}

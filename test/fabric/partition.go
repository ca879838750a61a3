package fabric

import (
	"fmt"
	"maps"
)

// Membership of a port in a partition.
type Membership uint8

// Memberships.
const (
	NotMember Membership = iota
	Limited
	Full
)

// Defaults of the group that carries IPoIB's broadcasts.
const (
	DefaultGroupMTU  = 2048
	DefaultGroupQKey = 0x0b1b
	DefaultGroupRate = Rate10
)

// Partition is what the SM knows of a partition: its members, and the
// parameters of the IPoIB broadcast group it makes for it. Zero values of MTU,
// Rate and QKey mean the defaults above.
type Partition struct {
	MTU      int // bytes
	Rate     Rate
	QKey     uint32
	Everyone Membership          // of ports that Members does not name
	Members  map[GUID]Membership // by port GUID
	NoIPoIB  bool                // no broadcast group, as without opensm's "ipoib" flag
}

func defaultPartition() Partition {
	return Partition{MTU: DefaultGroupMTU, Rate: DefaultGroupRate, QKey: DefaultGroupQKey}
}

func (pt *Partition) membership(g GUID) Membership {
	if m, ok := pt.Members[g]; ok {
		return m
	}
	return pt.Everyone
}

// SetPartition makes or replaces the partition of pkey, whose membership bit
// is ignored. Ports' tables follow. When the broadcast group's parameters
// change, its members are asked to join again.
func (f *Fabric) SetPartition(pkey uint16, pt Partition) error {
	part := pkey &^ FullMembership
	if part == 0 {
		return fmt.Errorf("fabric: P_Key %#04x is invalid: partition 0 does not exist", pkey)
	}
	if pt.MTU == 0 {
		pt.MTU = DefaultGroupMTU
	}
	if pt.Rate == 0 {
		pt.Rate = DefaultGroupRate
	}
	if pt.QKey == 0 {
		pt.QKey = DefaultGroupQKey
	}
	if _, err := mtuCode(pt.MTU); err != nil {
		return fmt.Errorf("fabric: partition %#04x: %w", pkey, err)
	}
	if pt.Rate.Mbps() == 0 {
		return fmt.Errorf("fabric: partition %#04x: rate code %d is not defined", pkey, pt.Rate)
	}
	pt.Members = maps.Clone(pt.Members)
	f.change(func() { f.partitions[part] = &pt })
	return nil
}

// Partition returns the partition of pkey, and whether it exists.
func (f *Fabric) Partition(pkey uint16) (Partition, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	pt := f.partitions[pkey&^FullMembership]
	if pt == nil {
		return defaultPartition(), false
	}
	c := *pt
	c.Members = maps.Clone(pt.Members)
	return c, true
}

// RemovePartition removes a partition and its broadcast group.
func (f *Fabric) RemovePartition(pkey uint16) {
	f.change(func() { delete(f.partitions, pkey&^FullMembership) })
}

// SetMember gives ports a membership in the partition of pkey, which is made
// with the defaults if there is none.
func (f *Fabric) SetMember(pkey uint16, m Membership, guids ...GUID) error {
	pt, _ := f.Partition(pkey)
	if pt.Members == nil {
		pt.Members = map[GUID]Membership{}
	}
	for _, g := range guids {
		pt.Members[g] = m
	}
	return f.SetPartition(pkey, pt)
}

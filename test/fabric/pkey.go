package fabric

import "slices"

// MatchPKeys says whether two P_Keys may communicate: the same partition, at
// least one of the two a full member, and neither the invalid partition 0
// (IBA 10.9.1, 10.9.3).
func MatchPKeys(a, b uint16) bool {
	return a&^FullMembership == b&^FullMembership &&
		a&^FullMembership != 0 &&
		(a|b)&FullMembership != 0
}

func inTable(table []uint16, key uint16) bool {
	return key&^FullMembership != 0 && slices.Contains(table, key)
}

func anyMatch(table []uint16, key uint16) bool {
	return slices.ContainsFunc(table, func(k uint16) bool { return MatchPKeys(k, key) })
}

// isMember says whether a table has a key of the partition, full or limited.
func isMember(table []uint16, key uint16) bool {
	return key&^FullMembership != 0 &&
		slices.ContainsFunc(table, func(k uint16) bool { return k&^FullMembership == key&^FullMembership })
}

// updateTable returns table changed to hold exactly the keys of want, which
// maps partitions to the key with its membership. A partition keeps the entry
// it has: consumers cache indices. The default partition prefers entry 0,
// because IPoIB's parent interface takes its P_Key from there. Keys that find
// no room are left out.
func updateTable(table []uint16, want map[uint16]uint16) []uint16 {
	t := slices.Clone(table)
	left := make([]uint16, 0, len(want))
	placed := map[uint16]bool{}
	for i, k := range t {
		key, ok := want[k&^FullMembership]
		if !ok || placed[k&^FullMembership] {
			t[i] = 0
			continue
		}
		t[i] = key
		placed[k&^FullMembership] = true
	}
	for part, key := range want {
		if !placed[part] {
			left = append(left, key)
		}
	}
	// 0x7fff sorts last by number; it goes first.
	slices.SortFunc(left, func(a, b uint16) int {
		return int(a+1)&0x7fff - int(b+1)&0x7fff
	})
	for i := range t {
		if len(left) == 0 {
			break
		}
		if t[i] == 0 {
			t[i], left = left[0], left[1:]
		}
	}
	return t
}

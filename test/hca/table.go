package hca

// A table holds the objects of one kind that a driver has created, by number.
type table[T any] struct {
	kind        string
	first, last uint32
	next        uint32
	items       map[uint32]T
}

func newTable[T any](kind string, first, last uint32) table[T] {
	return table[T]{kind: kind, first: first, last: last, next: first, items: map[uint32]T{}}
}

// add gives v the next free number; it fails when all are in use. Numbers are
// not reused at once, so that a driver that uses a stale one is found out.
func (t *table[T]) add(v T) (uint32, bool) {
	if uint32(len(t.items)) > t.last-t.first {
		return 0, false
	}
	for {
		id := t.next
		if t.next++; t.next > t.last {
			t.next = t.first
		}
		if _, used := t.items[id]; !used {
			t.items[id] = v
			return id, true
		}
	}
}

func (t *table[T]) get(id uint32) (T, bool) {
	v, ok := t.items[id]
	return v, ok
}

// plain is an object that is no more than its number and its users.
type plain struct{ object }

// object is what all objects have in common.
type object struct {
	id   uint32
	refs int // other objects that refer to this one
}

func (o *object) base() *object { return o }

type based interface{ base() *object }

// create adds v to t and puts its number into the answer.
func create[T based](t *table[T], v T, r *request) Status {
	id, ok := t.add(v)
	if !ok {
		return StatusNoResources
	}
	v.base().id = id
	r.made(t.kind, id)
	object24.set(r.out, uint64(id))
	return StatusOK
}

// destroy removes the object that the command names.
func destroy[T based](h *HCA, t *table[T], r *request) (T, Status) {
	id := object24.u32(r.in)
	r.name(t.kind, id)
	v, ok := t.get(id)
	switch {
	case !ok:
		h.violation("%v of %s %#x, which does not exist", r.op, t.kind, id)
		return v, StatusBadResource
	case v.base().refs != 0:
		h.violation("%v of %s %#x, which %d objects still use", r.op, t.kind, id, v.base().refs)
		return v, StatusBadResState
	}
	delete(t.items, id)
	return v, StatusOK
}

// lookup finds the object with the number id for a command that names it.
func lookup[T any](h *HCA, t *table[T], id uint32, r *request) (T, bool) {
	r.name(t.kind, id)
	v, ok := t.get(id)
	if !ok {
		h.violation("%v names %s %#x, which does not exist", r.op, t.kind, id)
	}
	return v, ok
}

// ref counts users of the object with the number id.
func ref[T based](t *table[T], id uint32, n int) {
	if v, ok := t.get(id); ok {
		v.base().refs += n
	}
}

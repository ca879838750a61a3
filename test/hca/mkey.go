package hca

import "encoding/binary"

// Reserved keys that QUERY_SPECIAL_CONTEXTS tells of.
const (
	reservedLKey = 0x100ff // addresses are bus addresses; for queues that allow it
	nullMKey     = 0x101ff
)

// memoryKey gives a range of addresses a meaning.
type memoryKey struct {
	object
	ctx   [contextSize]byte
	mode  uint64
	pd    uint32
	key   uint32 // index and variant: what work requests name
	start uint64
	len   uint64
	all   bool // length64: no bounds
	free  bool
	shift uint
	pages []uint64 // of mkeyMTT
}

func (h *HCA) createMKey(r *request) Status {
	ctx := r.in[mkeyContext:]
	k := &memoryKey{
		mode: mkcModeHigh.get(ctx)<<2 | mkcModeLow.get(ctx),
		pd:   mkcPD.u32(ctx), start: mkcStart.get(ctx), len: mkcLen.get(ctx),
		all: mkcLength64.is(ctx), free: mkcFree.is(ctx), shift: uint(mkcLogPage.get(ctx)),
	}
	copy(k.ctx[:], ctx)
	if !k.free { // a free key gets its PD with the UMR that takes it into use
		if _, ok := lookup(h, &h.fw.pds, k.pd, r); !ok {
			return StatusBadResource
		}
	}
	if k.mode == mkeyMTT && !k.free {
		if s := h.takeMTTs(k, r); s != StatusOK {
			return s
		}
	}
	if s := create(&h.fw.mkeys, k, r); s != StatusOK {
		return s
	}
	k.key = k.id<<8 | mkcVariant.u32(ctx)
	ref(&h.fw.pds, k.pd, +1)
	return StatusOK
}

// takeMTTs reads the translation list of a key: an octword holds two entries.
// A key may be made without one, to be filled by a UMR.
func (h *HCA) takeMTTs(k *memoryKey, r *request) Status {
	n := uint64(binary.BigEndian.Uint32(r.in[mkeyTransCount:])) * 2
	if n == 0 {
		return StatusOK
	}
	list := r.in[pasOffset:]
	pages := (k.start&(1<<k.shift-1) + k.len + 1<<k.shift - 1) >> k.shift
	if k.shift < 12 || n < pages || uint64(len(list)/8) < pages {
		h.violation("CREATE_MKEY: %d bytes in pages of 2^%d need %d entries, %d announced, %d sent",
			k.len, k.shift, pages, n, len(list)/8)
		return StatusBadParam
	}
	k.pages = make([]uint64, pages)
	for i := range k.pages {
		k.pages[i] = binary.BigEndian.Uint64(list[8*i:]) & mttAddress
	}
	return StatusOK
}

func (h *HCA) destroyMKey(r *request) Status {
	k, s := destroy(h, &h.fw.mkeys, r)
	if s == StatusOK {
		ref(&h.fw.pds, k.pd, -1)
	}
	return s
}

func (h *HCA) queryMKey(r *request) Status {
	k, ok := lookup(h, &h.fw.mkeys, object24.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	copy(r.out[mkeyContext:], k.ctx[:])
	return StatusOK
}

func (h *HCA) querySpecialContexts(r *request) Status {
	if len(r.out) >= 0x20 {
		specialNullMKey.set(r.out, nullMKey)
	}
	specialReservedLKey.set(r.out, reservedLKey)
	return StatusOK
}

// access copies between p and the memory that key, used by a queue of
// protection domain pd, gives at addr. It reports whether the key allows that.
func (h *HCA) access(key, pd uint32, reserved bool, addr uint64, p []byte, write bool) bool {
	if key == reservedLKey && reserved {
		return h.dma(addr, p, write)
	}
	k, ok := h.fw.mkeys.get(key >> 8)
	permission := mkcLocalRead
	if write {
		permission = mkcLocalWrite
	}
	n := uint64(len(p))
	switch {
	case !ok || k.key != key || k.free:
		h.violation("memory key %#x does not exist", key)
		return false
	case k.pd != pd:
		h.violation("memory key %#x of PD %#x used in PD %#x", key, k.pd, pd)
		return false
	case !permission.is(k.ctx[:]):
		h.violation("memory key %#x does not permit %s", key, map[bool]string{true: "writing", false: "reading"}[write])
		return false
	case !k.all && (addr < k.start || n > k.len || addr-k.start > k.len-n):
		h.violation("memory key %#x: %d bytes at %#x are outside of it", key, n, addr)
		return false
	case k.mode == mkeyPA:
		return h.dma(addr, p, write)
	case k.mode != mkeyMTT:
		h.violation("memory key %#x has access mode %d, which is not carried out", key, k.mode)
		return false
	}
	page := uint64(1)<<k.shift - 1
	for off := addr - k.start&^page; len(p) > 0; {
		i, in := off>>k.shift, off&page
		if i >= uint64(len(k.pages)) {
			h.violation("memory key %#x has no translation for %#x", key, addr)
			return false
		}
		n := min(uint64(len(p)), page+1-in)
		if !h.dma(k.pages[i]+in, p[:n], write) {
			return false
		}
		off, p = off+n, p[n:]
	}
	return true
}

func (h *HCA) dma(addr uint64, p []byte, write bool) bool {
	if write {
		return h.dmaWrite(addr, p)
	}
	return h.dmaRead(addr, p)
}

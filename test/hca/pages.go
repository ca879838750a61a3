package hca

import "encoding/binary"

// Pages of host memory that the firmware asks for. It keeps nothing in them,
// but drivers must give them and get every one of them back.
const (
	bootPages = 4
	initPages = 8
	pageMask  = 4096 - 1
)

// pageStore holds the pages that the driver has given.
type pageStore struct {
	order []uint64
	known map[uint64]bool
}

func newPageStore() pageStore { return pageStore{known: map[uint64]bool{}} }

func (s *pageStore) held() int { return len(s.order) }

// take removes up to n pages and returns them.
func (s *pageStore) take(n int) []uint64 {
	n = min(n, len(s.order))
	out := s.order[len(s.order)-n:]
	s.order = s.order[:len(s.order)-n]
	for _, p := range out {
		delete(s.known, p)
	}
	return out
}

func (h *HCA) queryPages(r *request) Status {
	var n int
	switch r.opMod {
	case pagesBoot:
		n = bootPages
	case pagesInit:
		n = initPages
	case pagesRegular:
	default:
		h.violation("QUERY_PAGES with op_mod %d", r.opMod)
		return StatusBadParam
	}
	pagesNum.set(r.out, uint64(n))
	return StatusOK
}

func (h *HCA) managePages(r *request) Status {
	n := int(pagesInEntries.u32(r.in))
	if f := pagesFunctionID.u16(r.in); f != 0 {
		h.violation("MANAGE_PAGES for function %d", f)
		return StatusBadParam
	}
	switch r.opMod {
	case pagesCantGive:
		return StatusOK
	case pagesGive:
		return h.givePages(r, n)
	case pagesTake:
		room := (len(r.out) - hdr) / 8
		if n > room {
			h.violation("MANAGE_PAGES takes %d pages, the output has room for %d", n, room)
			return StatusBadOutputLen
		}
		taken := h.fw.pages.take(n)
		pagesOutEntries.set(r.out, uint64(len(taken)))
		for i, p := range taken {
			binary.BigEndian.PutUint64(r.out[hdr+8*i:], p)
		}
		return StatusOK
	}
	h.violation("MANAGE_PAGES with op_mod %d", r.opMod)
	return StatusBadParam
}

func (h *HCA) givePages(r *request, n int) Status {
	if (len(r.in)-hdr)/8 < n {
		h.violation("MANAGE_PAGES gives %d pages in %d bytes", n, len(r.in))
		return StatusBadInputLen
	}
	for i := range n {
		p := binary.BigEndian.Uint64(r.in[hdr+8*i:])
		if p&pageMask != 0 || h.fw.pages.known[p] {
			h.violation("MANAGE_PAGES gives page %#x, which is not aligned or given already", p)
			return StatusBadParam
		}
		h.fw.pages.known[p] = true
		h.fw.pages.order = append(h.fw.pages.order, p)
	}
	return StatusOK
}

// RequestPages makes the firmware ask the driver for n more pages, as it does
// when it needs memory at run time; with a negative n it offers pages back. It
// does nothing before the driver has an EQ for such requests.
func (h *HCA) RequestPages(n int) {
	h.mu.Lock()
	defer h.unlock()
	var e eqe
	e.be32(4, uint32(int32(n))) // mlx5_eqe_page_req.num_pages
	h.event(eventPageRequest, 0, e)
}

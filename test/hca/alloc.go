package hca

// The simple objects: numbers that the driver allocates and gives back.

// uar is a page of doorbells in BAR 0; its number is the page's.
type uar struct{ object }

// qCounter is a set of queue counters.
type qCounter struct {
	object
	outOfBuffer uint32
}

func (h *HCA) allocPD(r *request) Status   { return create(&h.fw.pds, &plain{}, r) }
func (h *HCA) allocXRCD(r *request) Status { return create(&h.fw.xrcds, &plain{}, r) }
func (h *HCA) allocUAR(r *request) Status  { return create(&h.fw.uars, &uar{}, r) }

func (h *HCA) allocDomain(r *request) Status { return create(&h.fw.domains, &plain{}, r) }

func (h *HCA) deallocPD(r *request) Status {
	_, s := destroy(h, &h.fw.pds, r)
	return s
}

func (h *HCA) deallocXRCD(r *request) Status {
	_, s := destroy(h, &h.fw.xrcds, r)
	return s
}

func (h *HCA) deallocUAR(r *request) Status {
	_, s := destroy(h, &h.fw.uars, r)
	return s
}

func (h *HCA) deallocDomain(r *request) Status {
	_, s := destroy(h, &h.fw.domains, r)
	return s
}

func (h *HCA) allocQCounter(r *request) Status {
	c := &qCounter{}
	id, ok := h.fw.counters.add(c)
	if !ok {
		return StatusNoResources
	}
	c.id = id
	object8.set(r.out, uint64(id))
	return StatusOK
}

func (h *HCA) deallocQCounter(r *request) Status {
	id := object8.u32(r.in)
	c, ok := lookup(h, &h.fw.counters, id, r)
	if !ok {
		return StatusBadResource
	}
	if c.refs != 0 {
		h.violation("DEALLOC_Q_COUNTER %d, which %d QPs still use", id, c.refs)
		return StatusBadResState
	}
	delete(h.fw.counters.items, id)
	return StatusOK
}

// queryQCounter knows one error that can happen here: no receive buffer.
func (h *HCA) queryQCounter(r *request) Status {
	c, ok := lookup(h, &h.fw.counters, qCounterSet.u32(r.in), r)
	if !ok {
		return StatusBadResource
	}
	qcOutOfBuffer.set(r.out, uint64(c.outOfBuffer))
	if counterClear.is(r.in) {
		c.outOfBuffer = 0
	}
	return StatusOK
}

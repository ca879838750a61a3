package hca

import "bytes"

// Commands about the function as a whole.

// supportedISSI is a bit mask of interface specific step sequence ids: 0 and 1.
const supportedISSI = 3

// ieeeVendorID is the OUI that QUERY_ADAPTER and NodeInfo report.
const ieeeVendorID = 0x2c9

// enableHCA starts the firmware's work for this function. A link type that was
// configured since the last start takes effect.
func (h *HCA) enableHCA(r *request) Status {
	if h.fw.enabled {
		h.violation("ENABLE_HCA of an enabled HCA")
		return StatusBadSysState
	}
	if f := hcaFunctionID.u16(r.in); f != 0 {
		h.violation("ENABLE_HCA of function %d", f)
		return StatusBadParam
	}
	if h.port != nil {
		h.port.FirmwareStart()
		h.port.SetCapMask(defaultCapMask)
	}
	h.refresh()
	h.fw.link = h.info.Link
	h.fw.caps = h.newCapabilities(h.fw.link)
	h.fw.enabled = true
	return StatusOK
}

func (h *HCA) disableHCA(*request) Status {
	if !h.fw.enabled {
		h.violation("DISABLE_HCA of an HCA that is not enabled")
		return StatusBadSysState
	}
	if left := h.fw.objects(); len(left) > 0 {
		h.violation("DISABLE_HCA with objects left: %v", left)
	}
	h.fw.enabled, h.fw.initialized = false, false
	h.showLink()
	return StatusOK
}

func (h *HCA) initHCA(*request) Status {
	if h.fw.initialized {
		h.violation("INIT_HCA of an initialized HCA")
		return StatusBadSysState
	}
	if n := h.fw.pages.held(); n < bootPages+initPages {
		h.violation("INIT_HCA with %d pages given, %d were asked for", n, bootPages+initPages)
		return StatusBadSysState
	}
	h.fw.initialized = true
	return StatusOK
}

// teardownHCA ends INIT_HCA's state. The graceful profile expects the driver
// to have destroyed its objects; the others are for a host that goes down.
func (h *HCA) teardownHCA(r *request) Status {
	profile := teardownProfile.get(r.in)
	if !h.fw.initialized {
		h.violation("TEARDOWN_HCA of an HCA that is not initialized")
		return StatusBadSysState
	}
	switch profile {
	case teardownGraceful:
		left := h.fw.objects()
		delete(left, "page") // they are taken back afterwards
		if len(left) > 0 {
			h.violation("TEARDOWN_HCA with objects left: %v", left)
		}
		h.fw.initialized = false
	case teardownFast: // what follows is the interface state "disabled"
		teardownState.set(r.out, 0)
	case teardownForce:
		h.fw.initialized = false
		teardownState.set(r.out, 0)
	default:
		h.violation("TEARDOWN_HCA with profile %d", profile)
		return StatusBadParam
	}
	return StatusOK
}

func (h *HCA) queryISSI(r *request) Status {
	issiCurrent.set(r.out, uint64(h.fw.issi))
	issiSupported.set(r.out, supportedISSI)
	return StatusOK
}

func (h *HCA) setISSI(r *request) Status {
	issi := issiCurrent.u16(r.in)
	if issi > 15 || supportedISSI>>issi&1 == 0 {
		h.violation("SET_ISSI %d, which is not supported", issi)
		return StatusBadParam
	}
	h.fw.issi = issi
	return StatusOK
}

func (h *HCA) queryAdapter(r *request) Status {
	adapterVendor.set(r.out, ieeeVendorID)
	copy(r.out[adapterPSID:], h.cfg.BoardID)
	return StatusOK
}

func (h *HCA) setDriverVersion(r *request) Status {
	text, _, _ := bytes.Cut(r.in[driverVersionText:driverVersionText+64], []byte{0})
	h.driver = string(text)
	return StatusOK
}

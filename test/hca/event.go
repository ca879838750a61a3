package hca

import "ibup/test/fabric"

// Subtypes of eventPortChange (MLX5_PORT_CHANGE_SUBTYPE_* in device.h).
const (
	portDown        = 1
	portActive      = 4
	portInitialized = 5
	portLID         = 6
	portPKey        = 7
	portGUID        = 8
	portReregister  = 9
)

// PortChanged implements [fabric.Endpoint].
func (h *HCA) PortChanged(c fabric.Change) {
	h.mu.Lock()
	defer h.unlock()
	h.portEvents(c)
}

// portEvents tells the driver of changes. State goes last when the port comes
// up, so that what belongs to it is there, and first when it goes down.
func (h *HCA) portEvents(c fabric.Change) {
	was := h.info.State
	h.refresh()
	h.showLink()
	if h.info.State == fabric.StateDown && was != fabric.StateDown {
		h.count.linkDowned++
	}
	down := h.info.State == fabric.StateDown
	if c&fabric.ChangeState != 0 && down {
		h.portEvent(portDown)
	}
	for _, e := range []struct {
		change fabric.Change
		sub    byte
	}{
		{fabric.ChangeLID, portLID},
		{fabric.ChangePKeys, portPKey},
		{fabric.ChangeGIDs, portGUID},
	} {
		if c&e.change != 0 {
			h.portEvent(e.sub)
		}
	}
	if c&fabric.ChangeState != 0 && !down {
		if h.info.State == fabric.StateActive {
			h.portEvent(portActive)
		} else {
			h.portEvent(portInitialized)
		}
	}
	if c&fabric.ChangeReregister != 0 {
		h.portEvent(portReregister)
	}
}

// portEvent raises one (mlx5_eqe_port_state). An Ethernet port knows up and
// down only.
func (h *HCA) portEvent(sub byte) {
	if h.fw.link == fabric.LinkEthernet && sub != portDown && sub != portActive {
		return
	}
	var e eqe
	e[8] = 1 << 4 // port 1
	h.event(eventPortChange, sub, e)
}

// ModuleStatus is what a cable event reports (port.h,
// port_module_event_status_type).
type ModuleStatus uint8

// Module statuses.
const (
	ModulePlugged   ModuleStatus = 1
	ModuleUnplugged ModuleStatus = 2
	ModuleError     ModuleStatus = 3
	ModuleDisabled  ModuleStatus = 4
)

// ModuleErrorType goes with [ModuleError] (port.h,
// port_module_event_error_type).
type ModuleErrorType uint8

// Module errors.
const (
	ModulePowerBudgetExceeded ModuleErrorType = 0
	ModuleLongRange           ModuleErrorType = 1
	ModuleBusStuck            ModuleErrorType = 2
	ModuleNoEEPROM            ModuleErrorType = 3
	ModuleUnknownIdentifier   ModuleErrorType = 5
	ModuleHighTemperature     ModuleErrorType = 6
	ModuleBadCable            ModuleErrorType = 7
	ModulePCIePower           ModuleErrorType = 12
)

// ModuleEvent tells the driver about the cable; what counts as an error is
// only looked at with [ModuleError].
func (h *HCA) ModuleEvent(s ModuleStatus, e ModuleErrorType) {
	h.mu.Lock()
	defer h.unlock()
	var d eqe // mlx5_eqe_port_module
	d[1], d[3], d[6] = 0, byte(s), byte(e)
	h.event(eventPortModule, 0, d)
}

// TemperatureWarning tells the driver that the chip is too hot.
func (h *HCA) TemperatureWarning() {
	h.mu.Lock()
	defer h.unlock()
	var d eqe // mlx5_eqe_temp_warning: bit 0 of the low word is the chip
	d[15] = 1
	h.event(eventTempWarning, 0, d)
}

// PCIPower is what the card found out about the slot's power (events.c).
type PCIPower uint8

// Slot power statuses.
const (
	PowerUnknown      PCIPower = 0
	PowerSufficient   PCIPower = 1
	PowerInsufficient PCIPower = 2
)

type pciPower struct {
	status PCIPower
	watts  uint16
}

// SlotPower tells the driver about the slot's power: drivers log it.
func (h *HCA) SlotPower(s PCIPower, watts uint16) {
	h.mu.Lock()
	defer h.unlock()
	h.levers.power = pciPower{s, watts}
	const pciPowerChange = 5 // MLX5_GENERAL_SUBTYPE_PCI_POWER_CHANGE_EVENT
	h.event(eventGeneral, pciPowerChange, eqe{})
}

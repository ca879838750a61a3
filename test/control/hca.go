package control

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
)

// moduleEvent is a cable event with its cause.
type moduleEvent struct {
	status hca.ModuleStatus
	cause  hca.ModuleErrorType
}

func hcaCommands() []command {
	on := func(do func(adapter, values) error) func(*Server, values) (Reply, error) {
		return func(s *Server, v values) (Reply, error) {
			h, err := s.hca(get[string](v, "hca"))
			if err != nil {
				return nil, err
			}
			return nil, do(h, v)
		}
	}
	name := arg{"hca", text("NAME"), false}
	flag := arg{"on", boolean, false}
	times := arg{"times", number("1", -1, 1<<31), true}
	return []command{
		{"link", []arg{name, {"type", choice([]string{"InfiniBand", "Ethernet"}, []fabric.LinkType{fabric.LinkInfiniBand, fabric.LinkEthernet}), false}},
			"the port type; it counts from the next start of the firmware",
			on(func(h adapter, v values) error { return h.SetLinkType(get[fabric.LinkType](v, "type")) })},
		{"initializing", []arg{name, {"for", duration, true}},
			`the firmware is still initializing, for a while or, without "for", for ever; "0s" ends it`,
			on(func(h adapter, v values) error { h.SetInitializing(or(v, "for", time.Duration(-1))); return nil })},
		{"dead", []arg{name, flag}, "all reads give ones, as on a card that fell off the bus",
			on(func(h adapter, v values) error { h.SetDead(get[bool](v, "on")); return nil })},
		{"stuck-health", []arg{name, flag}, "the health counter stands still",
			on(func(h adapter, v values) error { h.SetStuckHealth(get[bool](v, "on")); return nil })},
		{"health-syndrome", []arg{name, {"syndrome", number("1", 0, 0xff), false}}, "the syndrome in the health buffer; 0 is good health",
			on(func(h adapter, v values) error { h.SetHealthSyndrome(uint8(get[int64](v, "syndrome"))); return nil })},
		{"firmware", []arg{name, {"version", text("16.35.2000"), false}}, "the firmware version drivers read",
			on(func(h adapter, v values) error { return h.SetFirmwareVersion(get[string](v, "version")) })},
		{"fail-command", []arg{name, {"command", opcode(), false}, {"status", status(), false}, times},
			"answers the next executions of a firmware command with a status; times -1 is always, 0 ends it",
			on(func(h adapter, v values) error {
				h.FailCommand(get[hca.Opcode](v, "command"), get[hca.Status](v, "status"), int(or(v, "times", int64(1))))
				return nil
			})},
		{"hang-command", []arg{name, {"command", opcode(), false}, times},
			"never answers the next executions of a firmware command; times -1 is always, 0 ends it",
			on(func(h adapter, v values) error {
				h.HangCommand(get[hca.Opcode](v, "command"), int(or(v, "times", int64(1))))
				return nil
			})},
		{"module", []arg{name, {"event", choice(
			[]string{"plugged", "unplugged", "disabled", "high-temperature", "power-budget", "bad-cable", "no-eeprom", "pcie-power"},
			[]moduleEvent{{hca.ModulePlugged, 0}, {hca.ModuleUnplugged, 0}, {hca.ModuleDisabled, 0}, {hca.ModuleError, hca.ModuleHighTemperature},
				{hca.ModuleError, hca.ModulePowerBudgetExceeded}, {hca.ModuleError, hca.ModuleBadCable}, {hca.ModuleError, hca.ModuleNoEEPROM}, {hca.ModuleError, hca.ModulePCIePower}}), false}},
			"the firmware tells of the cable module; the link is the port's: see phys",
			on(func(h adapter, v values) error {
				e := get[moduleEvent](v, "event")
				h.ModuleEvent(e.status, e.cause)
				return nil
			})},
		{"temperature", []arg{name}, "the firmware warns that the chip is too hot",
			on(func(h adapter, _ values) error { h.TemperatureWarning(); return nil })},
		{"slot-power", []arg{name, {"power", choice([]string{"unknown", "sufficient", "insufficient"}, []hca.PCIPower{hca.PowerUnknown, hca.PowerSufficient, hca.PowerInsufficient}), false},
			{"watts", number("25", 0, 0xfff), true}}, "the firmware tells of the slot's power",
			on(func(h adapter, v values) error {
				h.SlotPower(get[hca.PCIPower](v, "power"), uint16(get[int64](v, "watts")))
				return nil
			})},
		{"reset", []arg{name}, "resets the function, as at an FLR",
			on(func(h adapter, _ values) error { h.Reset(); return nil })},
		{"kill", []arg{name}, "ends the connection to the virtual machine for good, as if the emulator had died",
			on(func(h adapter, _ values) error { return h.kill() })},
		{"log", []arg{name, {"last", number("20", 1, 512), true}}, "the last firmware commands, and what the driver did wrong", showLog},
	}
}

func showLog(s *Server, v values) (Reply, error) {
	h, err := s.hca(get[string](v, "hca"))
	if err != nil {
		return nil, err
	}
	return Reply{"commands": h.LastCommands(int(or(v, "last", int64(20)))), "violations": h.Violations()}, nil
}

// opcode is a firmware command by its name in mlx5_ifc.h or its number.
func opcode() kind {
	return named(`"ENABLE_HCA"`, 0xfff, func(n uint64) (hca.Opcode, string) {
		op := hca.Opcode(n)
		return op, op.String()
	})
}

// status is a command status as the driver prints it, with dashes for spaces,
// or its number.
func status() kind {
	return named(`"bad-parameter"`, 0xff, func(n uint64) (hca.Status, string) {
		st := hca.Status(n)
		return st, strings.ReplaceAll(st.String(), " ", "-")
	})
}

// named reads a value by the name it has, or by its number up to high. A value
// that nobody has named is called by its number, "opcode 0x123".
func named[T any](spelling string, high uint64, at func(uint64) (T, string)) kind {
	return kind{spelling, func(r json.RawMessage) (any, error) {
		s := strings.Trim(string(r), `"`)
		if n, err := strconv.ParseUint(s, 0, 64); err == nil && n <= high {
			v, _ := at(n)
			return v, nil
		}
		var all []string
		for n := range high + 1 {
			v, name := at(n)
			if strings.EqualFold(name, s) {
				return v, nil
			}
			if !strings.Contains(name, "0x") {
				all = append(all, name)
			}
		}
		return nil, fmt.Errorf("want a number up to %#x or one of %s", high, strings.Join(all, ", "))
	}}
}

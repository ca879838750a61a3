package bringup

import (
	"fmt"
	"slices"
	"strings"

	"ibup/internal/host"
)

// needed are the modules without which there is no IPoIB interface, in the order
// in which they are loaded.
func needed() []string { return []string{"ib_core", "mlx5_core", "mlx5_ib", "ib_ipoib"} }

// pickPort finds the port, as far as it exists.
func (v *view) pickPort() *Step {
	place, reason := pick(v.cfg, v.s.Snapshot, v.s.Claims, v.s.Facts.Place)
	if reason != nil {
		return wait(reason)
	}
	v.place = place
	for i := range v.s.PCI {
		if v.s.PCI[i].BDF == place.BDF {
			v.fn = &v.s.PCI[i]
		}
	}
	for i := range v.s.IB {
		if d := &v.s.IB[i]; d.BDF == place.BDF && (v.dev == nil || portOf(d, place.Port) != nil) {
			v.dev = d
			v.port = portOf(d, place.Port)
		}
	}
	return nil
}

func portOf(d *host.IBDevice, num int) *host.Port {
	for i := range d.Ports {
		if d.Ports[i].Num == num {
			return &d.Ports[i]
		}
	}
	return nil
}

// function refuses a function on which no driver can work.
func (v *view) function() *Step {
	f := v.fn
	switch {
	case f.Dead:
		return wait(because(PCIDead, v.kernelSays(f.BDF), "pci", v.pci()))
	case f.Driver != "" && f.Driver != driverName:
		return wait(because(PCIDriver, overrideText(*f), "pci", v.pci(), "driver", f.Driver))
	case f.Driver == "" && f.Override != "" && f.Override != driverName:
		return wait(because(PCIDriver, overrideText(*f), "pci", v.pci(), "driver", f.Override))
	case !f.BAR0 && f.Driver == "":
		return wait(because(PCINoBAR, v.kernelSays(f.BDF), "pci", v.pci()))
	}
	return nil
}

func overrideText(f host.PCIFunction) []string {
	if f.Override == "" {
		return nil
	}
	return []string{fmt.Sprintf("/sys/bus/pci/devices/%s/driver_override is %s", f.BDF, f.Override)}
}

// modules has the stack loaded, in order.
func (v *view) modules() *Step {
	var absent, coming []string
	for _, name := range needed() {
		i := slices.IndexFunc(v.s.Modules, func(m host.Module) bool { return m.Name == name })
		switch {
		case i < 0:
			absent = append(absent, name)
		case v.s.Modules[i].State == "coming":
			coming = append(coming, name)
		}
	}
	// A module that is on its way keeps those that build on it waiting; its
	// driver may be waiting for firmware.
	if len(coming) > 0 {
		return wait(v.loading(coming))
	}
	if len(absent) == 0 {
		return nil
	}
	if v.s.ModulesDisabled {
		return wait(because(ModDisabled, nil, "module", strings.Join(absent, ", ")))
	}
	plan := v.s.Facts.Modules
	if plan.Problem != nil {
		return wait(plan.Problem)
	}
	// One that is built in and has no parameter is in no list of the kernel.
	if len(plan.Load) == 0 {
		return nil
	}
	return &Step{Kind: LoadModules, Modules: plan.Load, Why: "not in the kernel: " + strings.Join(absent, ", ")}
}

func (v *view) loading(names []string) *Reason {
	if r := v.firmware(); r != nil {
		return r
	}
	return because(ModLoading, v.kernelSays(v.fn.BDF), "module", strings.Join(names, ", "))
}

// firmware is the reason when the driver waits for firmware, of this function or
// of another one before it: probes go one by one. The kernel log says so after 20 s
// only, on kernels before 5.2 never.
func (v *view) firmware() *Reason {
	if v.awaitsFirmware(*v.fn) {
		return because(FWWait, v.kernelSays(v.fn.BDF), "pci", v.fn.BDF)
	}
	for _, f := range v.s.PCI {
		if v.awaitsFirmware(f) && v.fn.Driver == "" {
			return because(FWWait, v.kernelSays(f.BDF), "pci", f.BDF+" (before "+v.fn.BDF+")")
		}
	}
	return nil
}

func (v *view) awaitsFirmware(f host.PCIFunction) bool {
	if p := f.Probe; p != nil && (p.Waiting || p.Dying) {
		return p.Waiting // a driver that has given its card up has no interrupts either
	}
	// One that has failed before may be failing in the same way.
	return f.Starting && v.bindError(f) == ""
}

// probe has the driver take the function.
func (v *view) probe() *Step {
	f := v.fn
	if r := v.firmware(); r != nil && v.dev == nil {
		return wait(r)
	}
	if f.Driver != "" {
		if f.Probe != nil && f.Probe.Dying && v.dev == nil {
			return wait(because(FWDying, v.kernelSays(f.BDF), "pci", v.pci()))
		}
		if err := v.bindError(*f); f.Starting && err != "" && v.dev == nil {
			return wait(v.probeReason(err)) // what it said last time, until it says more
		}
		return nil
	}
	until := v.s.Facts.Unbound[f.BDF] + probeGrace
	if v.s.Now < until && (f.Probe == nil || f.Probe.Err == "") {
		step := wait(because(ProbeWait, nil, "pci", v.pci()))
		step.Until = until
		return step
	}
	why := "no driver has taken it"
	if f.Probe != nil && f.Probe.Err != "" {
		why = "the last probe failed: " + f.Probe.Err
	}
	return &Step{Kind: BindDriver, BDF: f.BDF, Why: why}
}

// bindError is how the last probe that ended has failed; "" when it has not. The
// log forgets it as soon as the driver begins again, the attempts do not.
func (v *view) bindError(f host.PCIFunction) string {
	if f.Probe != nil && f.Probe.Err != "" {
		return f.Probe.Err
	}
	return v.s.Facts.Attempts[Step{Kind: BindDriver, BDF: f.BDF}.key()].Err
}

// probeReason tells why a function that was probed in vain has no driver.
func (v *view) probeReason(err string) *Reason {
	f := v.fn
	evidence := v.kernelSays(f.BDF)
	if p := f.Probe; p != nil && p.Err != "" {
		err = p.Err
		if isFirmware(p.Err) {
			return because(FWTimeout, evidence, "pci", v.pci(), "bdf", f.BDF)
		}
	}
	return because(ProbeFailed, evidence, "pci", v.pci(), "error", err, "bdf", f.BDF)
}

// isFirmware goes by the text: the error number changed from -16 to -110 in 6.9.
func isFirmware(line string) bool {
	return strings.Contains(line, "Firmware over") || strings.Contains(line, "initializing")
}

// device waits for the InfiniBand device and its port.
func (v *view) device() *Step {
	switch {
	case v.dev == nil:
		return wait(because(DeviceAbsent, v.kernelSays(v.fn.BDF), "pci", v.pci()))
	case v.port == nil:
		return wait(noMatch(v.cfg, candidates(v.s.Snapshot)))
	}
	return nil
}

// linkLayer refuses an Ethernet port.
func (v *view) linkLayer() *Step {
	switch v.port.LinkLayer {
	case "InfiniBand":
		return nil
	case "Ethernet":
		return wait(ethernetReason(candidate{v.place, v.fn, v.dev, v.port}))
	}
	return wait(because(FWSilent, v.kernelSays(v.fn.BDF), "pci", v.pci()))
}

func ethernetReason(c candidate) *Reason {
	evidence := []string{
		fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/link_layer is Ethernet", c.dev.Name, c.Port),
		fmt.Sprintf("PCI class 0x%06x", c.fn.Class),
	}
	for _, n := range c.fn.Net {
		evidence = append(evidence, "its network interface is "+n)
	}
	return because(PortEthernet, evidence, "port", portText(c.dev, c.port), "bdf", c.BDF, "num", fmt.Sprint(c.Port))
}

// portText names a port in the ways a person may know it.
func portText(d *host.IBDevice, p *host.Port) string {
	return fmt.Sprintf("%s port %d (%s)", d.Name, p.Num, d.BDF)
}

// netdev finds the port's own IPoIB interface.
func (v *view) netdev() *Step {
	for i := range v.s.Links {
		l := &v.s.Links[i]
		if l.Type == host.TypeInfiniBand && l.Parent == 0 && l.BDF == v.place.BDF && l.DevPort == v.place.Port-1 {
			v.parent, v.link = l, l
			return nil
		}
	}
	evidence := v.kernelSays(v.place.BDF, v.dev.Name)
	return wait(because(NetdevAbsent, evidence, "port", portText(v.dev, v.port)))
}

// sayAtMost is how many kernel lines a reason quotes.
const sayAtMost = 4

// kernelSays quotes the last lines of the kernel log about a function, device or
// interface that tell of something wrong.
func (v *view) kernelSays(about ...string) []string {
	var out []string
	for _, l := range slices.Backward(v.s.KernelSays) {
		if len(out) == sayAtMost {
			break
		}
		switch l.Kind {
		case host.Enumerated, host.Enabling, host.FirmwareVersion, host.BARAssigned, host.Renamed, host.Cable,
			host.LinkReady, host.LinkNotReady, host.Other:
			continue
		}
		for _, a := range about {
			if a != "" && (l.BDF == a || l.Device == a || l.Link == a || l.Module == a) {
				out = append(out, fmt.Sprintf("kernel, %.3f s: %s", l.At.Seconds(), l.Text))
				break
			}
		}
	}
	slices.Reverse(out)
	return out
}

// inFlight is the reason while an act has not returned.
func (v *view) inFlight(step Step) *Reason {
	if v.fn != nil && (step.Kind == LoadModules || step.Kind == BindDriver) {
		if r := v.firmware(); r != nil {
			return r
		}
	}
	switch step.Kind {
	case LoadModules:
		return because(ModLoading, v.kernelSays(v.place.BDF), "module", strings.Join(step.Modules, ", "))
	case BindDriver:
		if a, tried := v.s.Facts.Attempts[step.key()]; tried && a.Err != "" {
			return v.probeReason(a.Err)
		}
		return because(ProbeWait, v.kernelSays(step.BDF), "pci", step.BDF)
	case Verify:
		if last := v.s.Facts.Verified; last != nil && !last.OK {
			return v.silentPeer()
		}
	}
	return because(TimeUp, nil, "link", v.cfg.Name, "step", step.String())
}

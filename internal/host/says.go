package host

import (
	"strings"
	"time"
)

// KernelLine is a line of the kernel log about an HCA, the stack's modules, or
// an IPoIB interface. What the line says it is about is in the other fields, ""
// where it does not say.
type KernelLine struct {
	At     time.Duration // since boot
	Kind   Kind
	BDF    string // PCI function
	Device string // InfiniBand device, "mlx5_0"
	Link   string // network interface
	Module string // kernel module
	Text   string // as the kernel wrote it
}

// Kind is what a kernel line is a sign of.
type Kind string

// Kinds of kernel lines, with an example each.
const (
	// mlx5_core reaching the card, in the order of a probe.
	Enumerated      Kind = "enumerated"       // pci 0000:3b:00.0: [15b3:1017] type 00 class 0x020700
	BARLost         Kind = "bar-lost"         // pci 0000:3b:00.0: BAR 0: no space for [mem size 0x02000000 64bit pref]
	BARAssigned     Kind = "bar-assigned"     // … BAR 0: assigned […], after a failure for the same function
	Enabling        Kind = "enabling"         // mlx5_core 0000:3b:00.0: enabling device (0000 -> 0002)
	FirmwareVersion Kind = "firmware-version" // … firmware version: 16.35.2000
	FirmwareWait    Kind = "firmware-wait"    // … Waiting for FW initialization, timeout abort in 100s
	FirmwareTimeout Kind = "firmware-timeout" // … Firmware over 120000 MS in pre-initializing state, aborting
	NoBAR           Kind = "no-bar"           // … Missing registers BAR, aborting
	ProbeError      Kind = "probe-error"      // … enable hca failed
	ProbeFailed     Kind = "probe-failed"     // … mlx5_load_one failed with error code -5
	Removed         Kind = "removed"          // … device is being removed, stop waiting for FW initialization
	// Firmware commands.
	Command        Kind = "command"         // … SET_HCA_CAP(0x109) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x155842)
	CommandTimeout Kind = "command-timeout" // … ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource
	// A running card.
	Health      Kind = "health"      // … device's health compromised - reached miss count
	Recovered   Kind = "recovered"   // … health recovery succeeded
	Cable       Kind = "cable"       // … Port module event: module 0, Cable plugged
	CableError  Kind = "cable-error" // … Port module event[error]: module 0, Cable error, Power budget exceeded
	Power       Kind = "power"       // … Detected insufficient power on the PCIe slot (27W).
	Temperature Kind = "temperature" // … High temperature on sensors with bit set 0 1
	IOMMU       Kind = "iommu"       // pci 0000:81:00.2: Failed to add to iommu group 52: -16
	// mlx5_ib, ib_core, ib_ipoib.
	IBRegister   Kind = "ib-register"    // infiniband mlx5_0: Couldn't register device with driver model
	IBMad        Kind = "ib-mad"         // infiniband mlx5_0: Couldn't open port 1
	DefaultPKey  Kind = "default-pkey"   // Couldn't find index for default PKey
	IPoIBFailed  Kind = "ipoib-failed"   // mlx5_1, 1: ipoib_intf_alloc failed -12
	PKeyNotFound Kind = "pkey-not-found" // ib0.8001: P_Key 0x8001 is not found
	PKeyInvalid  Kind = "pkey-invalid"   // ib0: P_Key 0x8000 is Invalid
	JoinFailed   Kind = "join-failed"    // ib0: multicast join failed for ff12:401b:…, status -22
	NoConnected  Kind = "no-connected"   // ib0: Setting Connected Mode failed, not supported by this device
	LinkNotReady Kind = "link-not-ready" // ADDRCONF(NETDEV_UP): ib0: link is not ready
	LinkReady    Kind = "link-ready"     // ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready
	Renamed      Kind = "renamed"        // mlx5_core 0000:3b:00.0 ibs22f0: renamed from ib0
	// The module loader.
	LoaderKilled    Kind = "loader-killed"     // workqueue: Failed to create a rescuer kthread for wq "ipoib_wq": -EINTR
	SymbolVersion   Kind = "symbol-version"    // mlx5_core: disagrees about version of symbol mlxfw_firmware_flash
	UnknownSymbol   Kind = "unknown-symbol"    // mlx5_core: Unknown symbol mlxfw_firmware_flash (err -22)
	NoSymbolVersion Kind = "no-symbol-version" // mlx5_ib: no symbol version for ib_register_device
	Vermagic        Kind = "vermagic"          // mlx5_core: version magic '…' should be '…'
	Parameter       Kind = "parameter"         // ib_ipoib: unknown parameter 'x' ignored
	Blacklisted     Kind = "blacklisted"       // Module mlx5_ib is blacklisted
	Signature       Kind = "signature"         // mlx5_core: loading of module with unavailable key is rejected
	Lockdown        Kind = "lockdown"          // Lockdown: modprobe: unsigned module loading is restricted; see …
	// Other is any further line of mlx5_core or the InfiniBand core.
	Other Kind = "other"
)

// rule names the kind of a line by a part of its text.
type rule struct {
	part string
	kind Kind
}

// driverRules are for lines of mlx5_core about a function, first match wins.
// The texts are those of kernels 3.10 to 6.12 and MLNX_OFED 4.6 to 24.
var driverRules = []rule{
	{"enabling device (", Enabling},
	{"firmware version: ", FirmwareVersion},
	{"stop waiting for FW", Removed},
	{"Waiting for FW ", FirmwareWait},
	{" state, aborting", FirmwareTimeout}, // Firmware over N MS in … state
	{"Missing registers BAR", NoBAR},
	{"can't enable device", NoBAR},
	{"failed with error code", ProbeFailed}, // mlx5_{pci_init,load_one,init_one} …
	{"probe with driver mlx5_core failed", ProbeFailed},
	{"Will cause a leak of a command", CommandTimeout},
	{" failed, status ", Command},
	{"health recovery succeeded", Recovered},
	{"health recovery failed", Health},
	{"health compromised", Health},
	{"health recovery flow", Health}, // starting …, … aborted
	{"handling bad device here", Health},
	{"Fatal error ", Health},
	{"synd 0x", Health},
	{"PCI slot is unavailable", Health},
	{"NIC IFC still ", Health},
	{"Port module event[error]", CableError},
	{"Port module event", Cable},
	{"insufficient power on the PCIe slot", Power},
	{"High temperature on sensors", Temperature},
	{"IPoIB enhanced offloads are not supported", Other},
	{"renamed from ", Renamed},
	{"Failed to add to iommu group", IOMMU},
	// What ends a probe:
	{", aborting", ProbeError}, // error requesting BARs, Couldn't get PCI resources, Cannot enable PCI device, …
	{"enable hca failed", ProbeError},
	{"init hca failed", ProbeError},
	{"query hca failed", ProbeError},
	{"failed to allocate boot pages", ProbeError},
	{"failed to allocate init pages", ProbeError},
	{"hca_cap failed", ProbeError}, // handle_hca_cap, set_hca_cap
	{"handle_hca_cap_", ProbeError},
	{"set_hca_ctrl failed", ProbeError},
	{"alloc irq vectors failed", ProbeError},
	{"Failed to alloc IRQs", ProbeError},
	{"Failed to create EQs", ProbeError},
	{"Failed to alloc completion EQs", ProbeError},
	{"Failed to start pages and async EQs", ProbeError},
	{"Failed to init flow steering", ProbeError},
	{"Driver cmdif rev(", ProbeError},
	{"does not support command interface version", ProbeError},
}

// deviceRules are for lines "infiniband mlx5_0: …" of ib_core and mlx5_ib.
var deviceRules = []rule{
	{"Couldn't create ib_mad", IBMad},
	{"Couldn't open port", IBMad},
	{"Couldn't start port", IBMad},
	{"Couldn't ", IBRegister},
	{"mr cache init failed", IBRegister},
	{"ipoib_intf_alloc failed", IPoIBFailed},
}

// linkRules are for lines "ib0: …" and "mlx5_0: …" of ib_ipoib. They are whole
// enough to know the line by.
var linkRules = []rule{
	{": ipoib_intf_alloc failed", IPoIBFailed},
	{"failed to initialize port ", IPoIBFailed},
	{"couldn't register ipoib port ", IPoIBFailed},
	{"failed to initialize device: ", IPoIBFailed},
	{"failed to allocate device WQ", IPoIBFailed},
	{"failed to init HW resource", IPoIBFailed},
	{"failed to create receive CQ", IPoIBFailed},
	{"failed to create send CQ", IPoIBFailed},
	{"Setting Connected Mode failed", NoConnected},
	{"multicast join failed for ", JoinFailed},
	{"ib_sa_join_multicast failed", JoinFailed},
	{"couldn't attach QP to multicast group", JoinFailed},
}

// moduleRules are for lines "MODULE: …" of the module loader.
var moduleRules = []rule{
	{": disagrees about version of symbol ", SymbolVersion},
	{": Unknown symbol ", UnknownSymbol},
	{": no symbol version for ", NoSymbolVersion},
	{": version magic '", Vermagic},
	{": unknown parameter '", Parameter},
	{": Unknown parameter `", Parameter},
	{"' invalid for parameter `", Parameter},
	{" is blacklisted", Blacklisted},        // Module mlx5_ib is blacklisted: module_blacklist=
	{"oading of module with un", Signature}, // unavailable key, unsupported crypto
	{"oading of unsigned module is rejected", Signature},
}

func match(rules []rule, text string) (Kind, bool) {
	for _, r := range rules {
		if strings.Contains(text, r.part) {
			return r.kind, true
		}
	}
	return "", false
}

// classify tells what a line of the kernel log is about; false for the many lines
// that are not about the stack.
func classify(text string) (KernelLine, bool) {
	l := KernelLine{Text: text}
	first, rest, _ := strings.Cut(text, " ")
	second, body, _ := strings.Cut(rest, ": ")
	bdf, link, _ := strings.Cut(second, " ")
	switch {
	case first == "infiniband":
		// infiniband mlx5_0: Couldn't …
		l.Device = second
		l.Kind = Other
		if k, ok := match(deviceRules, body); ok {
			l.Kind = k
		}
		return l, true
	case first == "mlx5_core" && IsBDF(bdf):
		// mlx5_core 0000:3b:00.0[ ib0]: [func:line:(pid N): ]…
		l.BDF, l.Link, l.Module = bdf, link, first
		l.Kind = Other
		if k, ok := match(driverRules, body); ok {
			l.Kind = k
		} else if k, ok := match(linkRules, body); ok {
			l.Kind = k
		}
		if l.Kind == NoBAR && strings.Contains(body, "can't enable device") {
			l.Kind = BARLost // the driver's "Cannot enable PCI device" follows
		}
		return l, true
	case strings.HasPrefix(text, "mlx5_core: probe of "):
		// mlx5_core: probe of 0000:3b:00.0 failed with error -12
		l.BDF, _, _ = strings.Cut(strings.TrimPrefix(text, "mlx5_core: probe of "), " ")
		l.Module, l.Kind = "mlx5_core", ProbeFailed
		return l, IsBDF(l.BDF)
	case IsBDF(second):
		// pci 0000:3b:00.0: BAR 0: no space for …, also pcieport, nvidia
		l.BDF = second
		switch {
		case strings.HasPrefix(body, "[15b3:") && strings.Contains(body, "] type "):
			l.Kind = Enumerated
		case strings.Contains(body, "no space"), strings.Contains(body, "failed to assign"),
			strings.Contains(body, "can't claim"), strings.Contains(body, "can't assign"),
			strings.Contains(body, "not assigned"), strings.Contains(body, "not claimed"),
			strings.Contains(body, "conflicts with"), strings.Contains(body, "error updating ("):
			l.Kind = BARLost
		case strings.Contains(body, ": assigned"):
			l.Kind = BARAssigned
		case strings.Contains(body, "Failed to add to iommu group"):
			l.Kind = IOMMU
		}
		return l, l.Kind != ""
	}
	switch {
	case strings.HasPrefix(text, `workqueue: Failed to create a rescuer kthread for wq "`):
		l.Kind = LoaderKilled
		return l, strings.Contains(text, "-EINTR") || strings.Contains(text, "-4")
	case strings.HasPrefix(text, "Lockdown: "):
		l.Kind = Lockdown
		return l, strings.Contains(text, "module")
	case strings.Contains(text, "Couldn't find index for default PKey"):
		l.Kind = DefaultPKey
		return l, true
	case strings.Contains(text, "ADDRCONF(NETDEV_"):
		return addrconf(l)
	case strings.HasPrefix(rest, "P_Key 0x"):
		l.Link, l.Kind = strings.TrimSuffix(first, ":"), PKeyNotFound
		if strings.HasSuffix(text, "Invalid") {
			l.Kind = PKeyInvalid
		}
		return l, true
	}
	if k, ok := match(moduleRules, text); ok {
		l.Kind = k
		if m, ok := strings.CutSuffix(first, ":"); ok {
			l.Module = m
		} else if k == Blacklisted {
			l.Module, _, _ = strings.Cut(rest, " ")
			return l, first == "Module"
		}
		return l, true
	}
	if k, ok := match(linkRules, text); ok {
		l.Kind = k
		name := strings.TrimRight(first, ":,")
		if k == IPoIBFailed && !strings.HasSuffix(text, "device WQ") && !strings.HasSuffix(text, "HW resource") {
			l.Device = name
		} else {
			l.Link = name
		}
		return l, true
	}
	if strings.HasPrefix(text, "mlx5_") || strings.HasPrefix(text, "mlx_compat") {
		l.Kind = Other
		return l, true
	}
	return l, false
}

// addrconf reads "[IPv6: ]ADDRCONF(NETDEV_UP): ib0: link is not ready".
func addrconf(l KernelLine) (KernelLine, bool) {
	_, after, _ := strings.Cut(l.Text, "): ")
	name, what, _ := strings.Cut(after, ": ")
	l.Link = name
	switch what {
	case "link is not ready":
		l.Kind = LinkNotReady
	case "link becomes ready":
		l.Kind = LinkReady
	default:
		return l, false
	}
	return l, true
}

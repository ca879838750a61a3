package bringup

import (
	"slices"
	"strings"
)

// Code names a reason for ever: scripts and `ibup explain` use it.
type Code string

// Codes in the order in which things depend on each other: the first that holds
// is the one reported.
const (
	PrivilegeMissing Code = "IB-PRIVILEGE"

	PCIAbsent   Code = "IB-PCI-ABSENT"
	PCIDead     Code = "IB-PCI-DEAD"
	PCINoBAR    Code = "IB-PCI-NO-BAR"
	PCIDriver   Code = "IB-PCI-DRIVER"
	PCIUnknown  Code = "IB-PCI-UNKNOWN"
	FWWait      Code = "IB-FW-WAIT"
	FWTimeout   Code = "IB-FW-TIMEOUT"
	FWSilent    Code = "IB-FW-SILENT"
	FWDying     Code = "IB-FW-DYING"
	ProbeFailed Code = "IB-PROBE-FAILED"
	ProbeWait   Code = "IB-PROBE-WAIT"

	ModMissing  Code = "IB-MOD-MISSING"
	ModBlocked  Code = "IB-MOD-BLOCKED"
	ModRefused  Code = "IB-MOD-REFUSED"
	ModDisabled Code = "IB-MOD-DISABLED"
	ModLoading  Code = "IB-MOD-LOADING"

	DeviceAbsent Code = "IB-DEVICE-ABSENT"
	PortEthernet Code = "IB-PORT-ETHERNET"
	PortUnknown  Code = "IB-PORT-UNKNOWN"
	PortTaken    Code = "IB-PORT-TAKEN"
	NetdevAbsent Code = "IB-NETDEV-ABSENT"
	ChildRefused Code = "IB-CHILD-REFUSED"
	NameTaken    Code = "IB-NAME-TAKEN"
	RenameUnsafe Code = "IB-RENAME-UNSAFE"
	UdevPending  Code = "IB-UDEV-PENDING"

	VFNoGUID     Code = "IB-VF-NO-GUID"
	PortDisabled Code = "IB-PORT-DISABLED"
	NoCable      Code = "IB-CABLE"
	LinkTraining Code = "IB-LINK-TRAINING"
	NoSM         Code = "IB-SM-ABSENT"
	SMSlow       Code = "IB-SM-SLOW"
	PKeyAbsent   Code = "IB-PKEY-ABSENT"
	GroupJoin    Code = "IB-GROUP-JOIN"
	Unstable     Code = "IB-CARRIER-UNSTABLE"

	AddrElsewhere Code = "IB-ADDR-ELSEWHERE"
	AddrDuplicate Code = "IB-ADDR-DUPLICATE"
	AddrTentative Code = "IB-ADDR-TENTATIVE"
	RouteRefused  Code = "IB-ROUTE-REFUSED"
	PeerNoARP     Code = "IB-PEER-NO-ARP"
	PeerNoEcho    Code = "IB-PEER-NO-ECHO"
	Refused       Code = "IB-REFUSED"
	TimeUp        Code = "IB-TIME-UP"
	InUse         Code = "IB-IN-USE"

	// Notes: these never hold anything up.
	ModeImpossible Code = "IB-MODE-IMPOSSIBLE"
	MTULimited     Code = "IB-MTU-LIMITED"
	PKeyLimited    Code = "IB-PKEY-LIMITED"
)

// Reason is why an interface is not up, for a person at night. Evidence are
// facts to check, as the machine shows them.
type Reason struct {
	Code     Code     `json:"code"`
	Summary  string   `json:"summary"`
	Evidence []string `json:"evidence,omitempty"`
	Remedy   string   `json:"remedy,omitempty"`
	// Pointless: no waiting will help, somebody has to do something.
	Pointless bool `json:"pointless,omitempty"`
}

// Page is what there is to say about a Code. {name} stands for what the case
// fills in.
type Page struct {
	Summary, Remedy string
	Pointless       bool
}

// Pages returns every code with its page.
func Pages() map[Code]Page {
	m := make(map[Code]Page, len(pages))
	for c, p := range pages {
		m[c] = p
	}
	return m
}

// because makes the reason of a code. fill are pairs of a placeholder's name and
// its text.
func because(c Code, evidence []string, fill ...string) *Reason {
	p := pages[c]
	for i := 0; i+1 < len(fill); i += 2 {
		fill[i] = "{" + fill[i] + "}"
	}
	r := strings.NewReplacer(fill...)
	evidence = slices.DeleteFunc(slices.Clone(evidence), func(s string) bool { return s == "" })
	return &Reason{Code: c, Summary: r.Replace(p.Summary), Evidence: evidence, Remedy: r.Replace(p.Remedy), Pointless: p.Pointless}
}

// The table. A summary says what is wrong in one line; a remedy what to do, the
// likely thing first. Where two causes look the same it says both and how to
// tell.
var pages = map[Code]Page{
	PrivilegeMissing: {
		Summary:   "not allowed to {what}",
		Remedy:    "run ibup as root, with CAP_NET_ADMIN and CAP_SYS_MODULE",
		Pointless: true,
	},
	PCIAbsent: {
		Summary: "no PCI function {want}",
		Remedy: "If others are listed, bus numbers have moved, as they do when a card is added: name the port by PortGUID= instead of PCI=. " +
			"If none is, the card is not seen on the bus: power off (not reboot), reseat it, look for it in the firmware's setup; a riser, a slot's bifurcation or a lack of lanes can hide it",
		Pointless: true,
	},
	PCIDead: {
		Summary:   "{pci} has fallen off the bus: its configuration space reads all ones",
		Remedy:    "Power the node off and on (a reboot may not reset the card). If it comes back dead, reseat it or try another slot; the kernel log before this tells of AER errors or a hot-unplug",
		Pointless: true,
	},
	PCINoBAR: {
		Summary: "{pci} has no memory window: BAR 0 is not assigned",
		Remedy: "Cards with large BARs (GPUs) have used up the address space. Enable \"Above 4G Decoding\" / \"MMIO High\" in the firmware's setup; " +
			"else boot once with pci=realloc, or with pci=realloc=off if it is on already; else move the card to a slot under another root port",
		Pointless: true,
	},
	PCIDriver: {
		Summary:   "{pci} belongs to the driver {driver}, not to mlx5_core",
		Remedy:    "Somebody gave this function away, vfio-pci to a virtual machine for example. Name another port in [Match], or clear driver_override and bind mlx5_core",
		Pointless: true,
	},
	PCIUnknown: {
		Summary: "mlx5_core is loaded but does not know {pci} (device id {id})",
		Remedy: "The driver is older than the card. Install a newer kernel or an MLNX_OFED/DOCA driver for this kernel " +
			"(CentOS 7's own knows ConnectX-4 to ConnectX-6 Dx, not ConnectX-6 Lx or ConnectX-7)",
		Pointless: true,
	},
	FWWait: {
		Summary: "the firmware of {pci} is still starting; the driver waits for it",
		Remedy:  "Wait. If it takes minutes: power off and on; if that does not help, the firmware on the card is damaged: burn it again with mstflint",
	},
	FWTimeout: {
		Summary: "the firmware of {pci} did not start in the driver's time; tried again through the bind file",
		Remedy:  "Power off and on. If it happens at every boot the firmware on the card is damaged or in recovery mode (mstflint -d {bdf} q): burn it again",
	},
	FWSilent: {
		Summary: "the firmware of {pci} does not answer: reading the port takes seconds",
		Remedy:  "Look for \"cmd_exec timeout\" and \"health compromised\" in the kernel log. Power off and on; a reset of the function alone (mlxfwreset) may do",
	},
	FWDying: {
		Summary: "the driver has given {pci} up: its firmware has stopped or the slot has lost it",
		Remedy:  "The driver may recover it by itself within a minute. If not: power off and on; check power and cooling of the slot",
	},
	ProbeFailed: {
		Summary: "mlx5_core could not start {pci}: {error}",
		Remedy: "The kernel line says what failed. \"-12\": no memory or no vectors, or the loading process was killed in the middle; \"-5\", \"-22\": the firmware refused a command, often one too old for this driver (mstflint -d {bdf} q tells the version); " +
			"otherwise power off and on",
	},
	ProbeWait: {
		Summary: "mlx5_core has not taken {pci} yet",
		Remedy:  "See /sys/bus/pci/drivers_autoprobe (must be 1) and the kernel log",
	},
	ModMissing: {
		Summary: "module {module} is not there for kernel {kernel}",
		Remedy: "{hint}In the initramfs: rebuild it with the modules in (dracut -f --add-drivers \"mlx5_core mlx5_ib ib_ipoib\"). In the system: install the kernel's full module package, " +
			"or MLNX_OFED for this kernel, or boot the kernel they were built for; then depmod -a",
		Pointless: true,
	},
	ModBlocked: {
		Summary:   "module {module} must not be loaded: {where} forbids it",
		Remedy:    "Remove that line if this node shall have InfiniBand (and rebuild the initramfs, which has a copy of modprobe.d)",
		Pointless: true,
	},
	ModRefused: {
		Summary: "the kernel refused to load {module}: {error}",
		Remedy: "\"Invalid argument\" or \"disagrees about version of symbol\": modules of two families are mixed (inbox and MLNX_OFED); the kernel log names the symbol: bring all of them from one. " +
			"\"Key was rejected\" or \"Operation not permitted\": Secure Boot refuses the signature. \"Unknown symbol\": built for another kernel",
		Pointless: true,
	},
	ModDisabled: {
		Summary:   "loading modules is switched off (kernel.modules_disabled=1) and {module} is not loaded",
		Remedy:    "It stays off until the next boot. Load the modules earlier in the boot (initramfs), or find who sets kernel.modules_disabled",
		Pointless: true,
	},
	ModLoading: {
		Summary: "loading {module}: the kernel has not finished yet",
		Remedy:  "A driver waits for its cards while it is loaded; the kernel log tells which one it waits for",
	},
	DeviceAbsent: {
		Summary: "mlx5_core has taken {pci} but there is no InfiniBand device below it",
		Remedy: "mlx5_ib has not registered it. Two causes look alike: the firmware is too old for this driver (kernel log: \"mlx5_ib … failed\", \"upgrade\"), " +
			"or mlx5_ib's start was interrupted (\"-12\" with \"-EINTR\" or after a stop of the initramfs): then unbind and bind the driver, or reboot",
	},
	PortEthernet: {
		Summary:   "{port} is in Ethernet mode: no InfiniBand interface can exist on it",
		Remedy:    "Change the mode in the card and power-cycle: mstconfig -d {bdf} set LINK_TYPE_P{num}=1 (1 InfiniBand, 2 Ethernet). An Ethernet-only card cannot be changed. If another port was meant, name it in [Match]",
		Pointless: true,
	},
	PortUnknown: {
		Summary:   "no port matches {want}",
		Remedy:    "The ports there are, are listed; correct [Match] in {file}. After a card was replaced its GUID is a new one",
		Pointless: true,
	},
	PortTaken: {
		Summary:   "every InfiniBand port is claimed by another interface's file",
		Remedy:    "Remove {file}, or name a port in its [Match]",
		Pointless: true,
	},
	NetdevAbsent: {
		Summary: "{port} has no IPoIB interface although ib_ipoib is loaded",
		Remedy: "ib_ipoib has tried once and given up; the kernel log tells why (\"couldn't register ipoib port\", \"ipoib_intf_alloc failed\"). " +
			"If nothing else uses it: modprobe -r ib_ipoib && modprobe ib_ipoib. On RHEL 7 kernels ipoib_enhanced=0 avoids the accelerated path",
	},
	ChildRefused: {
		Summary: "the kernel refused a child of {parent} with P_Key {pkey}: {error}",
		Remedy:  "\"Name not unique\": the parent has this key itself. \"Invalid argument\": the key is 0x0000 or 0x8000, or {parent} is a child itself",
	},
	NameTaken: {
		Summary:   "the name {name} is taken by {holder}",
		Remedy:    "ibup renames no interface that is in use or is not its business. Give that one another name (udev rule, .link file or ifcfg of the other interface), or this file",
		Pointless: true,
	},
	RenameUnsafe: {
		Summary:   "{link} is up and in use; this kernel renames only interfaces that are down, so it cannot become {name} now",
		Remedy:    "Pin the name at creation with a udev rule (ATTR{type}==\"32\", last 8 bytes of the address), or take {link} down at a quiet moment: ip link set {link} down",
		Pointless: true,
	},
	UdevPending: {
		Summary: "udev has not finished with {link}; a rename now would be undone",
		Remedy:  "If it lasts: a rule of udev hangs (udevadm monitor, journalctl -u systemd-udevd)",
	},
	VFNoGUID: {
		Summary:   "{port} is a virtual function without a GUID",
		Remedy:    "Set node and port GUID on the physical function (ip link set PF vf N node_guid …, port_guid …), then unbind and bind the VF",
		Pointless: true,
	},
	PortDisabled: {
		Summary: "{port} is switched off (phys_state Disabled)",
		Remedy: "Not a cable: somebody disabled the port, or a driver was restarted halfway. ibportstate {lid} {num} enable from another node, or mlxlink -d {bdf} --port_state UP; " +
			"else unbind and bind the driver, or reboot",
	},
	NoCable: {
		Summary: "{port} has no link (phys_state {phys}): no cable, or nothing alive at its other end",
		Remedy: "Seat the cable at both ends, look at the switch port's light, try another cable or port. " +
			"If the switch shows a link but no light here, the speeds or the cable type do not fit (mlxlink -d {bdf} -m reads the module)",
	},
	LinkTraining: {
		Summary: "the link of {port} is still training (phys_state {phys})",
		Remedy:  "Some seconds are normal. If it stays: bad cable or dirty optics, or a speed the other end cannot do",
	},
	NoSM: {
		Summary: "{port} has a link but no subnet manager has configured it (state INIT)",
		Remedy: "Two causes: no subnet manager runs in the fabric (then other nodes are in INIT too: start opensm, or the SM of the switch), " +
			"or it runs and does not see this port (other nodes are ACTIVE: look in its log for this GUID; a heavy sweep may do)",
	},
	SMSlow: {
		Summary: "the subnet manager has begun with {port} but not made it ACTIVE (state {state})",
		Remedy:  "A sweep takes seconds. If it stays ARMED, the SM fails at some other port of the fabric: look in its log",
	},
	PKeyAbsent: {
		Summary: "P_Key {pkey} is not in the table of {port}",
		Remedy: "The subnet manager gives out the keys: add port GUID {guid} to the partition (opensm: partitions.conf, then SIGHUP). " +
			"The interface comes up by itself when the key arrives",
	},
	GroupJoin: {
		Summary: "{port} is ACTIVE but {link} has not joined its broadcast group",
		Remedy: "Two causes: the subnet administrator does not answer (then other nodes fail too; the kernel retries at up to 16 s intervals), " +
			"or it refuses the join (kernel log: \"multicast join failed … status\"; rate, MTU or Q_Key of the group do not fit this port, or no ipoib flag for this partition in the SM's partitions.conf)",
	},
	Unstable: {
		Summary: "{link} has carrier but not for long enough yet",
		Remedy:  "A carrier that comes and goes: a bad cable, or a subnet manager that sweeps again and again",
	},
	AddrElsewhere: {
		Summary:   "{address} is already on {holder}",
		Remedy:    "An address belongs to one interface. Remove it there (ip addr del {address} dev {holder}) and from the file that puts it there, or from {file}",
		Pointless: true,
	},
	AddrDuplicate: {
		Summary:   "another node uses {address}: duplicate address detection failed on {link}",
		Remedy:    "Find the other node (ip neigh, arping -D) and give one of the two another address",
		Pointless: true,
	},
	AddrTentative: {
		Summary: "{link} still checks that nobody else has {address}",
		Remedy:  "Takes about a second after carrier",
	},
	RouteRefused: {
		Summary: "the kernel refused the route {route}: {error}",
		Remedy:  "\"Network is unreachable\": the gateway is in no network of {link}: correct Route=, Gateway= or Address= in {file}",
	},
	PeerNoARP: {
		Summary: "{peer} does not answer at all over {link} (no neighbour entry)",
		Remedy: "Two causes: {peer} is down or has another address; or it is in another partition, or only a limited member of this one like this node (two limited members never hear each other). " +
			"If other nodes reach it, it is the partition. Its broadcast group must be the same one: compare P_Key at both ends",
	},
	PeerNoEcho: {
		Summary: "{peer} is there (it answered ARP) but does not answer pings",
		Remedy:  "A firewall at {peer} drops ICMP, or its answer takes another way (route or address at {peer}), or the two ends differ in MTU. Name a peer in Ping= that answers, or allow echo there",
	},
	Refused: {
		Summary: "could not {step}: {error}",
		Remedy:  "It is tried again. The kernel log may say more",
	},
	InUse: {
		Summary:   "{link} {what}: it is not taken down",
		Remedy:    "Unmount that first",
		Pointless: true,
	},
	TimeUp: {
		Summary: "the time for {link} is over; the next step was: {step}",
		Remedy:  "Nothing is known to be wrong: the machine or the kernel was slow. If it happens again, raise Timeout= in [Boot]",
	},
	ModeImpossible: {
		Summary: "{link} cannot do connected mode; it stays in datagram mode",
		Remedy:  "ConnectX-4 and later run enhanced IPoIB, which has datagram only. {hint}",
	},
	MTULimited: {
		Summary: "{link}: MTU {asked} asked for, {effective} is what it got; limited by {limit}",
		Remedy:  "{hint}",
	},
	PKeyLimited: {
		Summary: "this node is only a limited member of partition {pkey}",
		Remedy:  "Limited members reach full members only. If peers do not answer, ask for full membership in the subnet manager's partitions.conf",
	},
}

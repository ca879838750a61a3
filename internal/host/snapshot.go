// Package host is a read-only view of a machine: its mlx5 PCI functions,
// InfiniBand ports, network interfaces, modules and kernel log at one moment.
// It reads from a root directory, so that a captured machine is the same thing
// as a live one. It decides nothing and changes nothing.
package host

import (
	"net/netip"
	"time"
)

// Snapshot is everything a decision may depend on.
type Snapshot struct {
	Kernel  string        // release, as uname -r
	Uptime  time.Duration // since boot
	Initrd  bool          // running from an initramfs (/etc/initrd-release)
	PCI     []PCIFunction // Mellanox/NVIDIA network functions, sorted by BDF
	IB      []IBDevice    // /sys/class/infiniband, sorted by name
	Links   []Link        // all network interfaces, by index
	Routes  []Route       // main table, IPv4 and IPv6
	Modules []Module      // the InfiniBand stack's modules that exist in the kernel
	Mounts  []Mount       // root and network file systems
	// ModulesDisabled is kernel.modules_disabled.
	ModulesDisabled bool
	// KernelSays are the lines of the kernel log about HCAs, their modules and
	// interfaces, oldest first. Not to be changed: snapshots share them.
	KernelSays []KernelLine
	// Incomplete names what could not be read and why (no permission, no
	// netlink): a reader shows "unknown" there, never "absent".
	Incomplete []Gap
}

// Gap is something that could not be observed.
type Gap struct{ What, Why string }

// PCIFunction is a function of vendor 0x15b3 with class 0x0207xx or 0x0200xx.
type PCIFunction struct {
	BDF      string // "0000:3b:00.0"
	Vendor   uint16
	Device   uint16
	Class    uint32 // 24 bits: 0x020700 InfiniBand, 0x020000 Ethernet
	Driver   string // "" when none is bound
	PhysFn   string // BDF of the physical function, when this is a VF
	NumVFs   int
	BAR0     bool     // firmware or kernel has assigned BAR 0
	Dead     bool     // configuration space reads all ones: fallen off the bus
	IB       []string // names of InfiniBand devices below it
	Net      []string // names of network interfaces below it
	Probe    *Probe   // what the kernel log says of the last driver probe, nil when nothing
	Override string   // driver_override, "" when unset
	// Starting: mlx5_core has the function but no interrupt vectors on it yet. It is
	// in its probe, before or in the firmware's start; the driver link is there all
	// that time (really_probe in drivers/base/dd.c).
	Starting bool
}

// Probe is the last thing the kernel log tells of a driver binding this
// function.
type Probe struct {
	At    time.Duration // since boot
	Err   string        // the decisive line, as the kernel wrote it; "" when fine
	Errno int           // positive errno of "probe ... failed with error -N", 0 when unknown
	// Waiting: the driver is waiting for firmware ("pre-initializing",
	// "Waiting for FW initialization").
	Waiting bool
	Dying   bool // "device's health compromised", "PCI slot is unavailable"
}

// IBDevice is one device of /sys/class/infiniband.
type IBDevice struct {
	Name     string // "mlx5_0", or renamed "ibp59s0"
	BDF      string // parent PCI function; "" for a soft device
	NodeGUID uint64
	Firmware string // fw_ver
	BoardID  string
	HCAType  string // "MT4119"
	NodeDesc string
	Ports    []Port
}

// Port is one port of an IBDevice.
type Port struct {
	Num       int    // 1-based
	GUID      uint64 // from gids/0; 0 when not set
	LinkLayer string // "InfiniBand" or "Ethernet"
	State     string // "DOWN", "INIT", "ARMED", "ACTIVE"
	PhysState string // "Polling", "Disabled", "LinkUp", …
	LID       uint16
	SMLID     uint16
	Rate      string // "100 Gb/sec (4X EDR)"
	PKeys     []uint16
}

// Link is one network interface.
type Link struct {
	Name    string
	Index   int
	Type    int // ARPHRD: 1 Ethernet, 32 InfiniBand
	Addr    HWAddr
	Up      bool // IFF_UP
	Carrier bool // IFF_LOWER_UP/operstate; false while not Up
	MTU     int
	Parent  int    // ifindex of the parent, 0 when none
	BDF     string // PCI parent of this interface or of the interface it is a child of
	DevPort int    // 0-based port; from dev_id on old kernels
	Kind    string // rtnl link kind, "" when none
	Driver  string // ethtool driver name where known: "ib_ipoib", "mlx5_core[ib_ipoib]"
	// IPoIB only (Type 32):
	PKey uint16 // with the full-membership bit as the kernel shows it
	Mode string // "datagram", "connected", "" unknown
	// Addresses on it.
	Addrs []Addr
}

// HWAddr is a link-layer address: 6 bytes on Ethernet, 20 on IPoIB, of which
// only the last 8, the port GUID, are stable. Its text is "80:00:02:…".
type HWAddr []byte

// Addr is an address of an interface.
type Addr struct {
	Prefix    netip.Prefix
	Tentative bool // IPv6 duplicate address detection still runs
	DADFailed bool
}

// Route is one route of the main table.
type Route struct {
	Dest   netip.Prefix // 0.0.0.0/0 and ::/0 for default
	Via    netip.Addr   // invalid when on-link
	Dev    string       // "" for one that leads nowhere (unreachable, blackhole)
	Metric int
	Proto  int
}

// Module is a module of the InfiniBand stack as /sys/module shows it.
type Module struct {
	Name       string
	State      string // "live", "coming", "going", "builtin"
	RefCount   int
	SrcVersion string
	Version    string
	Holders    []string
}

// Mount is a mounted file system that may depend on the network, or root.
type Mount struct {
	Source, Target, FSType, Options string
}

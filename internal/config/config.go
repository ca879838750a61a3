// Package config turns /etc/ibup/<iface>.conf and the kernel command line into
// one checked [Config] per interface. What it returns is complete: nobody
// else looks at files or the command line to learn what the user wants.
package config

import (
	"net/netip"
	"time"
)

// Set is the whole wish of a machine.
type Set struct {
	// Interfaces are sorted so that a configuration that names its port comes
	// before one that takes the first free port. Without any file there is one
	// entry, the default: "ib0" exists and is up, without an address.
	Interfaces []Config
	// StandAside is rd.ibup=0 (initramfs) or ibup=0: load and change nothing.
	StandAside bool
	// Debug is ibup.debug: 0 quiet, 1 steps, 2 every observation.
	Debug int
	// Refused are the interfaces that have a file or settings with errors and so
	// are not in Interfaces: nothing of what was asked for them is done.
	Refused []string
}

// Config is what one interface shall be.
type Config struct {
	Name     string // interface name: at most 15 bytes, the file's name less ".conf"
	Path     string // the file; "" when there is none
	Match    Match
	IPoIB    IPoIB
	Network  Network
	Verify   Verify
	Fallback Fallback
	Boot     Boot
	// DracutOwnsAddress: this is the initramfs and dracut's ip= names the
	// interface. Then dracut gives the address, Network and Verify are empty, and
	// ibup delivers a link that is ready.
	DracutOwnsAddress bool
	// Origin tells for each "Section.Key" that is not a default where its values
	// came from, one entry for each value.
	Origin map[string][]Origin
}

// Origin is where a value came from: a file of the machine (without root) and
// a line, or the kernel command line (File "/proc/cmdline", Line 0).
type Origin struct {
	File string
	Line int
}

// Match picks the InfiniBand port. Zero values match any; the port GUID wins
// over PCI, PCI over Device.
type Match struct {
	PortGUID uint64 // 0: any
	PCI      string // full BDF "0000:3b:00.0"; "": any
	Device   string // "mlx5_0"; "": any
	Port     int    // 1-based; 0: any
}

// Mode is an IPoIB transport mode as the kernel spells it in sysfs.
type Mode string

// IPoIB modes. ModeKeep leaves what is there.
const (
	ModeKeep      Mode = ""
	ModeDatagram  Mode = "datagram"
	ModeConnected Mode = "connected"
)

// IPoIB says what kind of interface it is.
type IPoIB struct {
	// PKey is the partition with the full-membership bit set. 0xffff, the
	// default, means the parent interface itself and not a child.
	PKey uint16
	Mode Mode
	MTU  int // bytes; 0 leaves the kernel's value
}

// Network is the interface's addressing.
type Network struct {
	Addresses []netip.Prefix // address and prefix length, in the file's order
	// AddressFrom is where more addresses were looked up, "hosts:-ib0/24" or
	// "table:/etc/ibup/nodes"; they are in Addresses, behind the file's own.
	AddressFrom string
	Gateway     netip.Addr // invalid: none
	Routes      []Route
}

// Route is one route. Via may be invalid (on-link); Dev is "" for "this
// interface"; Metric 0 is the kernel's default.
type Route struct {
	Dest   netip.Prefix
	Via    netip.Addr
	Dev    string
	Metric int
}

// Verify says what must work before the interface counts as up.
type Verify struct {
	Ping []netip.Addr // all must answer; empty: carrier and addresses suffice
}

// Fallback keeps the node reachable while InfiniBand does not work.
type Fallback struct {
	Routes  []Route // Dev is never empty here
	Persist bool    // also as a block in network-scripts/route-<dev>
}

// Watch says what the service does after its first verdict.
type Watch string

// Watch values.
const (
	WatchUntilUp Watch = "until-up" // on the fallback: keep trying; ends when up
	WatchAlways  Watch = "always"   // also notices a later loss
	WatchNever   Watch = "never"    // one verdict, then the end
)

// Boot bounds the bring-up.
type Boot struct {
	Timeout time.Duration // from the start of `ibup up` to the fallback; default 60 s
	Watch   Watch
}

package hca

import (
	"fmt"
	"time"

	"ibup/test/fabric"
)

// Config says what kind of adapter to build. The zero value is a healthy
// ConnectX-5 with an InfiniBand port.
type Config struct {
	// Name stands for the function in messages; default "hca<Index>".
	Name string
	// Index distinguishes adapters: the default GUIDs are made of it.
	Index int
	// NodeGUID is also the system image GUID; default 0x506b4b0300a10000 +
	// Index<<8. PortGUID is the port's; default the same, as on single-port
	// cards.
	NodeGUID, PortGUID fabric.GUID
	// NoGUID leaves both GUIDs zero: a virtual function that nobody has given
	// one. Such a function has no port on a fabric and stays Down.
	NoGUID bool
	// VendorID and DeviceID are PCI's; default 15b3:1017, ConnectX-5. 1018 is
	// its virtual function: the driver decides by the number.
	VendorID, DeviceID uint16
	// SubsystemID goes with subsystem vendor 15b3; default 0x0008.
	SubsystemID uint16
	// Link is the port's protocol as long as no fabric port says otherwise.
	Link fabric.LinkType
	// Firmware is the version, major.minor.subminor; default 16.35.2000.
	Firmware string
	// BoardID is the PSID, at most 16 characters; default MT_0000000010.
	BoardID string
	// NodeDescription is the IB node description until the host sets one;
	// default "<Name> ConnectX-5".
	NodeDescription string
	// BARSize is the size of BAR 0 in bytes, a power of two of at least 1 MiB;
	// default 32 MiB. One that exceeds the bridge's window cannot be assigned,
	// which is a fault to test.
	BARSize uint64
	// Vectors is the number of MSI-X vectors, 1 to 512; default 32.
	Vectors int
	// CommandTimeout is how long the firmware asks drivers to wait for a
	// command (initialization segment, cmd_exec_to; drivers before Linux 5.16
	// do not look). 0: the driver's own 60 s.
	CommandTimeout time.Duration
	// Caps overrides general device capabilities, by the names of
	// mlx5_ifc_cmd_hca_cap_bits that caps.go lists.
	Caps map[string]uint64
	// Logf, if not nil, is told of violations and of refused commands.
	Logf func(format string, args ...any)
}

// Limits of a Config.
const (
	minBARSize  = 1 << 20
	pkeyEntries = 128 // pkey_table_size; the drivers use no more
	gidEntries  = 8   // gid_table_size
	maxVectors  = 512
)

func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = fmt.Sprintf("hca%d", c.Index)
	}
	if c.NodeGUID == 0 {
		c.NodeGUID = 0x506b4b0300a10000 + fabric.GUID(c.Index)<<8
	}
	if c.PortGUID == 0 {
		c.PortGUID = c.NodeGUID
	}
	if c.NoGUID {
		c.NodeGUID, c.PortGUID = 0, 0
	}
	if c.VendorID == 0 {
		c.VendorID = vendorMellanox
	}
	if c.DeviceID == 0 {
		c.DeviceID = deviceConnectX5
	}
	if c.SubsystemID == 0 {
		c.SubsystemID = 0x0008
	}
	if c.Firmware == "" {
		c.Firmware = "16.35.2000"
	}
	if c.BoardID == "" {
		c.BoardID = "MT_0000000010"
	}
	if c.NodeDescription == "" {
		c.NodeDescription = c.Name + " ConnectX-5"
	}
	if c.BARSize == 0 {
		c.BARSize = 32 << 20
	}
	if c.Vectors == 0 {
		c.Vectors = 32
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	switch {
	case c.BARSize < minBARSize || c.BARSize&(c.BARSize-1) != 0:
		return c, fmt.Errorf("hca: %s: BAR size %#x is no power of two of at least %#x", c.Name, c.BARSize, minBARSize)
	case c.Vectors < 1 || c.Vectors > maxVectors:
		return c, fmt.Errorf("hca: %s: %d MSI-X vectors, allowed are 1 to %d", c.Name, c.Vectors, maxVectors)
	case len(c.BoardID) > 16:
		return c, fmt.Errorf("hca: %s: board id %q is longer than 16 characters", c.Name, c.BoardID)
	case len(c.NodeDescription) > nodeDescSize:
		return c, fmt.Errorf("hca: %s: node description %q is longer than %d characters", c.Name, c.NodeDescription, nodeDescSize)
	}
	return c, nil
}

// version is a firmware version as the initialization segment has it.
type version struct{ major, minor, sub uint16 }

func parseVersion(s string) (version, error) {
	var v version
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &v.major, &v.minor, &v.sub); n != 3 || err != nil {
		return v, fmt.Errorf("hca: firmware version %q is not major.minor.subminor", s)
	}
	return v, nil
}

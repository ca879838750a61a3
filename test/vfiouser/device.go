// Package vfiouser serves a PCI device, written in Go, to a virtual machine
// monitor over the vfio-user protocol (version 0.1, as QEMU's vfio-user-pci
// client from release 10.1 on speaks it).
package vfiouser

// Region indices of a PCI device (linux/vfio.h).
const (
	RegionBAR0   = 0
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8
	NumRegions   = 9
)

// Region describes one address range of the device. A Size of zero means that
// the device does not have it.
type Region struct {
	Size     uint64
	Readable bool
	Writable bool
}

// Device is a PCI function. The server calls it from one goroutine, the
// connection's; what the device does on its own goroutines it guards itself.
type Device interface {
	// Regions returns the device's regions, indexed as above.
	Regions() [NumRegions]Region
	// Vectors returns the number of MSI-X vectors.
	Vectors() int
	// ReadRegion fills p from the region at off, WriteRegion writes p there.
	// The range lies inside the region: the server has checked it.
	ReadRegion(region int, off uint64, p []byte) error
	WriteRegion(region int, off uint64, p []byte) error
	// Attach gives the device its bus when a client has connected; Detach
	// takes it away: after it returns the device touches the bus no more.
	Attach(Bus)
	Detach()
	// Reset is a function-level or bus reset.
	Reset()
}

// Bus is the guest side of a device: memory and interrupts. All methods may be
// called from any goroutine.
type Bus interface {
	// ReadDMA and WriteDMA copy guest memory. An address that no map covers
	// is an error, as on a real bus with an IOMMU.
	ReadDMA(addr uint64, p []byte) error
	WriteDMA(addr uint64, p []byte) error
	// Interrupt fires an MSI-X vector; one that the guest has not set up is
	// silently dropped.
	Interrupt(vector int)
}

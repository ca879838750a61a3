package pci

import "fmt"

// Type 0 configuration header (PCI Express Base 4.0, 7.5.1.1 and 7.5.1.2).
const (
	regVendorID          = 0x00
	regDeviceID          = 0x02
	regCommand           = 0x04
	regStatus            = 0x06
	regRevision          = 0x08
	regClass             = 0x09
	regCacheLineSize     = 0x0c
	regBAR0              = 0x10
	regSubsystemVendorID = 0x2c
	regSubsystemDeviceID = 0x2e
	regCapabilities      = 0x34
	regInterruptLine     = 0x3c
)

// Bits of the header.
const (
	commandMemory      = 1 << 1
	commandMaster      = 1 << 2
	commandParity      = 1 << 6
	commandSERR        = 1 << 8
	commandINTxDisable = 1 << 10
	statusCapabilities = 1 << 4
	barWide            = 2 << 1
	barPrefetchable    = 1 << 3
	barTypeBits        = 0xf
)

// header returns the registers in front of the capabilities. There is neither
// an I/O BAR, so no I/O enable, nor an interrupt pin.
func header(f Function) ([]register, error) {
	if f.Class > 0xffffff {
		return nil, fmt.Errorf("pci: class %#x has more than 24 bits", f.Class)
	}
	regs := []register{
		{regVendorID, 2, uint64(f.VendorID), 0},
		{regDeviceID, 2, uint64(f.DeviceID), 0},
		{regCommand, 2, 0, commandMemory | commandMaster | commandParity | commandSERR | commandINTxDisable},
		{regRevision, 1, uint64(f.Revision), 0},
		{regClass, 2, uint64(f.Class), 0},
		{regClass + 2, 1, uint64(f.Class >> 16), 0},
		{regCacheLineSize, 1, 0, 0xff},
		{regSubsystemVendorID, 2, uint64(f.SubsystemVendorID), 0},
		{regSubsystemDeviceID, 2, uint64(f.SubsystemDeviceID), 0},
		{regInterruptLine, 1, 0, 0xff},
	}
	upper := false // the BAR is the upper half of the one before
	for i, b := range f.BARs {
		switch {
		case upper && b.Size != 0:
			return nil, fmt.Errorf("pci: BAR %d is the upper half of the one before", i)
		case upper || b.Size == 0:
			upper = false
			continue
		case b.Size < 128 || b.Size&(b.Size-1) != 0:
			return nil, fmt.Errorf("pci: BAR %d has a size of %#x, no power of two of at least 128", i, b.Size)
		case b.Wide && i == len(f.BARs)-1:
			return nil, fmt.Errorf("pci: BAR %d has no room for an upper half", i)
		case !b.Wide && b.Size > 1<<31:
			return nil, fmt.Errorf("pci: BAR %d of %#x bytes needs 64 bits", i, b.Size)
		}
		r := register{offset: regBAR0 + 4*i, size: 4, writable: ^(b.Size - 1)}
		if b.Wide {
			r.size, r.value, upper = 8, barWide, true
		}
		if b.Prefetchable {
			r.value |= barPrefetchable
		}
		regs = append(regs, r)
	}
	return regs, nil
}

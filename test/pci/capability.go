package pci

import (
	"encoding/binary"
	"fmt"
)

// Where the capabilities are: as on a ConnectX.
const (
	capPower   = 0x40
	capVPD     = 0x48
	capExpress = 0x60
	capMSIX    = 0x9c
	capVendor  = 0xc0
	extSerial  = 0x100
)

// Capability IDs (PCI Code and ID Assignment Specification 1.11, 2 and 3).
const (
	idPower   = 0x01
	idVPD     = 0x03
	idVendor  = 0x09
	idExpress = 0x10
	idMSIX    = 0x11
	idSerial  = 0x0003
)

// link is the head of a capability: its ID and where the next one is.
func link(at int, id, next uint64) register { return register{at, 2, id | next<<8, 0} }

// Power management (PCI Bus Power Management 1.2, 3.2).
const (
	powerCapabilities = 0x02
	powerControl      = 0x04

	powerVersion3    = 3
	powerNoSoftReset = 1 << 3 // D3hot to D0 keeps the state
	powerStateBits   = 3
)

// powerRegisters: D0 and D3hot, no PME.
func powerRegisters(next uint64) []register {
	return []register{
		link(capPower, idPower, next),
		{capPower + powerCapabilities, 2, powerVersion3, 0},
		{capPower + powerControl, 2, powerNoSoftReset, powerStateBits},
	}
}

// MSIX is the MSI-X capability. Where the table and the pending bits are is
// for the capability to say and for the device to honour, or for a client that
// keeps them itself, as QEMU does.
type MSIX struct {
	Vectors    int // 1 to 2048
	Table, PBA Location
}

// Location is a place in the memory of a BAR.
type Location struct {
	BAR    int
	Offset uint64 // a multiple of 8
}

// MSI-X (PCI Express Base 4.0, 7.7.2).
const (
	msixControl = 0x02
	msixTable   = 0x04
	msixPBA     = 0x08

	msixControlMask   = 1 << 14
	msixControlEnable = 1 << 15
	msixEntrySize     = 16
	maxVectors        = 2048
)

func (m MSIX) registers(bars [6]BAR, next uint64) ([]register, error) {
	if m.Vectors < 1 || m.Vectors > maxVectors {
		return nil, fmt.Errorf("pci: %d MSI-X vectors, allowed are 1 to %d", m.Vectors, maxVectors)
	}
	table, err := m.Table.encode(bars, uint64(m.Vectors)*msixEntrySize)
	if err != nil {
		return nil, fmt.Errorf("pci: MSI-X table: %w", err)
	}
	pba, err := m.PBA.encode(bars, uint64(m.Vectors+63)/64*8)
	if err != nil {
		return nil, fmt.Errorf("pci: MSI-X pending bits: %w", err)
	}
	return []register{
		link(capMSIX, idMSIX, next),
		{capMSIX + msixControl, 2, uint64(m.Vectors - 1), msixControlEnable | msixControlMask},
		{capMSIX + msixTable, 4, table, 0},
		{capMSIX + msixPBA, 4, pba, 0},
	}, nil
}

func (l Location) encode(bars [6]BAR, size uint64) (uint64, error) {
	if l.BAR < 0 || l.BAR >= len(bars) {
		return 0, fmt.Errorf("there is no BAR %d", l.BAR)
	}
	if l.Offset%8 != 0 || l.Offset > 1<<32-8 || l.Offset > bars[l.BAR].Size || size > bars[l.BAR].Size-l.Offset {
		return 0, fmt.Errorf("%#x+%#x does not fit in BAR %d of %#x bytes in steps of 8", l.Offset, size, l.BAR, bars[l.BAR].Size)
	}
	return l.Offset | uint64(l.BAR), nil
}

// VendorSpecific is a vendor specific capability: after the head and a byte with
// its length, 32-bit registers that are the device's own, called with their
// offset in the capability.
type VendorSpecific struct {
	Length int // bytes, a multiple of 4
	Read   func(offset int) uint32
	Write  func(offset int, v uint32)
}

// Vendor specific capability (PCI Express Base 4.0, 7.9.4).
const (
	vendorLength    = 0x02
	vendorRegisters = 0x04
	vendorMax       = 0x100 - capVendor
)

func (v VendorSpecific) registers(next uint64) ([]register, error) {
	if v.Length < vendorRegisters || v.Length > vendorMax || v.Length%4 != 0 {
		return nil, fmt.Errorf("pci: vendor specific capability of %d bytes, allowed are %d to %d in steps of 4", v.Length, vendorRegisters, vendorMax)
	}
	return []register{
		link(capVendor, idVendor, next),
		{capVendor + vendorLength, 1, uint64(v.Length), 0},
	}, nil
}

// vendorAt returns the register of the vendor specific capability that an
// access of n bytes at off is to; only whole ones are registers.
func (c *Config) vendorAt(off uint64, n int) (offset int, ok bool) {
	if c.vendor == nil || n != 4 || off%4 != 0 || off < capVendor+vendorRegisters || off >= uint64(capVendor+c.vendor.Length) {
		return 0, false
	}
	return int(off) - capVendor, true
}

// Device Serial Number (PCI Express Base 4.0, 7.9.3).
const (
	serialLower = 0x04
	extVersion1 = 1 << 16
)

// serialRegisters: the only extended capability, so there is no next.
func serialRegisters(n uint64) []register {
	return []register{
		{extSerial, 4, idSerial | extVersion1, 0},
		{extSerial + serialLower, 8, n, 0},
	}
}

// canFLR says whether function-level reset is implemented.
func (c *Config) canFLR() bool {
	return c.data[capExpress] == idExpress &&
		binary.LittleEndian.Uint32(c.data[capExpress+expressDeviceCap:])&deviceCapFLR != 0
}

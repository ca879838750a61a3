// Package pci models the configuration space of an emulated PCI Express
// function: a type 0 header, base address registers that can be sized, and the
// capabilities that a network adapter has.
package pci

import (
	"encoding/binary"
	"fmt"
)

// Size is the size of a PCI Express function's configuration space in bytes.
const Size = 4096

// Class codes (base class, sub-class, programming interface) of the adapters
// in question (PCI Code and ID Assignment Specification 1.11, 1.3).
const (
	ClassEthernet   = 0x020000
	ClassInfiniBand = 0x020700
)

// Function says what a function looks like to the software that finds it. The
// optional parts are absent when nil or zero.
type Function struct {
	VendorID, DeviceID                   uint16
	SubsystemVendorID, SubsystemDeviceID uint16
	Revision                             uint8
	Class                                uint32 // 24 bits
	BARs                                 [6]BAR
	PowerManagement                      bool
	Express                              *Express
	MSIX                                 *MSIX
	VPD                                  *VPD
	VendorSpecific                       *VendorSpecific
	SerialNumber                         uint64 // Device Serial Number, an EUI-64
}

// BAR is a memory base address register. A Size of zero means there is none.
type BAR struct {
	Size         uint64 // bytes, a power of two of at least 128
	Wide         bool   // 64 bits: the next BAR holds the upper half
	Prefetchable bool
}

// Config is the configuration space of a function. It has no lock of its own.
type Config struct {
	initial, data, writable [Size]byte
	vpd                     []byte
	vendor                  *VendorSpecific
}

// register is a little-endian field: where it is, what it holds after a reset,
// and which of its bits software may change.
type register struct {
	offset, size int // size in bytes: 1, 2, 4 or 8
	value        uint64
	writable     uint64
}

// New returns the configuration space of f after a reset. The error says what
// about f is impossible.
func New(f Function) (*Config, error) {
	c := &Config{}
	regs, err := header(f)
	if err != nil {
		return nil, err
	}
	// The capability chain: each function links its part to what follows.
	next := uint64(0)
	if f.VendorSpecific != nil {
		more, err := f.VendorSpecific.registers(next)
		if err != nil {
			return nil, err
		}
		regs, next, c.vendor = append(regs, more...), capVendor, f.VendorSpecific
	}
	if f.MSIX != nil {
		more, err := f.MSIX.registers(f.BARs, next)
		if err != nil {
			return nil, err
		}
		regs, next = append(regs, more...), capMSIX
	}
	if f.Express != nil {
		more, err := f.Express.registers(next)
		if err != nil {
			return nil, err
		}
		regs, next = append(regs, more...), capExpress
	}
	if f.VPD != nil {
		if c.vpd, err = f.VPD.encode(); err != nil {
			return nil, err
		}
		regs, next = append(regs, vpdRegisters(next)...), capVPD
	}
	if f.PowerManagement {
		regs, next = append(regs, powerRegisters(next)...), capPower
	}
	if f.SerialNumber != 0 {
		regs = append(regs, serialRegisters(f.SerialNumber)...)
	}
	if next != 0 {
		regs = append(regs,
			register{regCapabilities, 1, next, 0},
			register{regStatus, 2, statusCapabilities, 0})
	}
	for _, r := range regs {
		put(c.initial[r.offset:], r.size, r.value)
		put(c.writable[r.offset:], r.size, r.writable)
	}
	c.Reset()
	return c, nil
}

func put(p []byte, size int, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p[:size], b[:])
}

// Reset is a conventional or function-level reset.
func (c *Config) Reset() { c.data = c.initial }

// SetClass changes the class code, which a card whose port takes on another
// protocol does.
func (c *Config) SetClass(class uint32) {
	for i := range 3 {
		c.data[regClass+i], c.initial[regClass+i] = byte(class>>(8*i)), byte(class>>(8*i))
	}
}

// Read fills p from the configuration space at off.
func (c *Config) Read(off uint64, p []byte) error {
	if err := check(off, p); err != nil {
		return err
	}
	copy(p, c.data[off:])
	if at, ok := c.vendorAt(off, len(p)); ok {
		binary.LittleEndian.PutUint32(p, c.vendor.Read(at))
	}
	return nil
}

// Write writes p at off, as far as the bits there can be written. It reports
// whether software has asked for a function-level reset: that is the caller's
// to carry out, with Reset as a part of it.
func (c *Config) Write(off uint64, p []byte) (reset bool, err error) {
	if err := check(off, p); err != nil {
		return false, err
	}
	if at, ok := c.vendorAt(off, len(p)); ok {
		c.vendor.Write(at, binary.LittleEndian.Uint32(p))
		return false, nil
	}
	for i, b := range p {
		at := int(off) + i
		c.data[at] = c.data[at]&^c.writable[at] | b&c.writable[at]
		switch at {
		case capVPD + vpdAddress + 1:
			c.vpdAccess()
		case capExpress + expressDeviceControl + 1:
			reset = reset || b&(deviceControlFLR>>8) != 0 && c.canFLR()
		}
	}
	return reset, nil
}

func check(off uint64, p []byte) error {
	if off > Size || uint64(len(p)) > Size-off {
		return fmt.Errorf("pci: access %#x+%#x is outside the configuration space", off, len(p))
	}
	return nil
}

// BusMaster says whether the function may access memory and send interrupts.
func (c *Config) BusMaster() bool { return c.command()&commandMaster != 0 }

// MemoryEnabled says whether the function answers to accesses of its BARs.
func (c *Config) MemoryEnabled() bool { return c.command()&commandMemory != 0 }

func (c *Config) command() uint16 { return binary.LittleEndian.Uint16(c.data[regCommand:]) }

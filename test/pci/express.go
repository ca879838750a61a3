package pci

import "fmt"

// Express is the PCI Express capability of an endpoint.
type Express struct {
	Speed LinkSpeed // of the link, which runs at its best
	Width int       // lanes: 1, 2, 4, 8 or 16
	// FLR says whether the function implements function-level reset.
	FLR bool
}

// LinkSpeed is a transfer rate per lane.
type LinkSpeed uint8

// Link speeds (PCI Express Base 4.0, 7.5.3.6 and 7.5.3.18).
const (
	Speed2500MT LinkSpeed = 1 + iota
	Speed5GT
	Speed8GT
	Speed16GT
)

// PCI Express capability (PCI Express Base 4.0, 7.5.3).
const (
	expressFlags          = 0x02
	expressDeviceCap      = 0x04
	expressDeviceControl  = 0x08
	expressLinkCap        = 0x0c
	expressLinkControl    = 0x10
	expressLinkStatus     = 0x12
	expressDeviceCap2     = 0x24
	expressDeviceControl2 = 0x28
	expressLinkCap2       = 0x2c
	expressLinkControl2   = 0x30
)

// Bits of the PCI Express capability.
const (
	flagsVersion2 = 2 // and type 0, an endpoint

	payload512            = 2 // in MaxPayload fields
	deviceCapExtendedTag  = 1 << 5
	deviceCapRoleBased    = 1 << 15
	deviceCapFLR          = 1 << 28
	deviceControlWritable = 0x79ff // not aux power, phantom functions, FLR
	deviceControlRelaxed  = 1 << 4
	deviceControlNoSnoop  = 1 << 11
	deviceControlRead512  = 2 << 12
	deviceControlFLR      = 1 << 15 // reads as zero

	linkWidthShift      = 4
	linkControlWritable = 0xcb // ASPM, RCB, common clock, extended sync
	linkStatusSlotClock = 1 << 12

	deviceCap2Timeouts     = 0x1f // ranges A to D, can be disabled
	deviceControl2Writable = 0x1f
	linkSpeedsShift        = 1 // LinkCap2 has a bit for each speed
	linkTargetBits         = 0xf
)

func (e Express) registers(next uint64) ([]register, error) {
	if e.Speed < Speed2500MT || e.Speed > Speed16GT {
		return nil, fmt.Errorf("pci: link speed %d is not known", e.Speed)
	}
	if w := e.Width; w < 1 || w > 16 || w&(w-1) != 0 {
		return nil, fmt.Errorf("pci: link with %d lanes", e.Width)
	}
	speed := uint64(e.Speed)
	link32 := speed | uint64(e.Width)<<linkWidthShift
	capable := uint64(payload512 | deviceCapExtendedTag | deviceCapRoleBased)
	if e.FLR {
		capable |= deviceCapFLR
	}
	const at = capExpress
	return []register{
		link(at, idExpress, next),
		{at + expressFlags, 2, flagsVersion2, 0},
		{at + expressDeviceCap, 4, capable, 0},
		{at + expressDeviceControl, 2, deviceControlRelaxed | deviceControlNoSnoop | deviceControlRead512, deviceControlWritable},
		{at + expressLinkCap, 4, link32, 0},
		{at + expressLinkControl, 2, 0, linkControlWritable},
		{at + expressLinkStatus, 2, link32 | linkStatusSlotClock, 0},
		{at + expressDeviceCap2, 4, deviceCap2Timeouts, 0},
		{at + expressDeviceControl2, 2, 0, deviceControl2Writable},
		{at + expressLinkCap2, 4, (1<<speed - 1) << linkSpeedsShift, 0},
		{at + expressLinkControl2, 2, speed, linkTargetBits},
	}, nil
}

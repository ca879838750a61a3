package pci

import (
	"encoding/binary"
	"fmt"
)

// VPD is vital product data: what lspci -vv shows as product name and
// read-only fields.
type VPD struct {
	Name   string     // product name
	Fields []VPDField // such as part number (PN) and serial number (SN)
}

// VPDField is a read-only field: a keyword of two characters and up to 255
// bytes of text.
type VPDField struct{ Keyword, Value string }

// The capability (PCI Express Base 4.0, 7.9.19): software writes an address
// and waits until the flag, its top bit, changes.
const (
	vpdAddress = 0x02
	vpdData    = 0x04

	vpdFlag        = 1 << 15
	vpdAddressBits = vpdFlag - 1
)

// Resources of the data (PCI Local Bus 3.0, appendix I).
const (
	vpdTagName     = 0x82
	vpdTagReadOnly = 0x90
	vpdTagEnd      = 0x78
	vpdChecksum    = "RV"
)

func vpdRegisters(next uint64) []register {
	return []register{
		link(capVPD, idVPD, next),
		{capVPD + vpdAddress, 2, 0, vpdFlag | vpdAddressBits},
	}
}

// encode makes the data, which ends with a checksum over all before it.
func (v VPD) encode() ([]byte, error) {
	var fields []byte
	for _, f := range v.Fields {
		if len(f.Keyword) != 2 || len(f.Value) > 0xff {
			return nil, fmt.Errorf("pci: VPD field %q: keyword of 2 characters and up to 255 bytes are allowed", f.Keyword)
		}
		fields = append(append(fields, f.Keyword...), byte(len(f.Value)))
		fields = append(fields, f.Value...)
	}
	fields = append(fields, vpdChecksum+"\x01"...)
	if len(v.Name)+len(fields) > vpdAddressBits-8 {
		return nil, fmt.Errorf("pci: VPD of %d bytes is too long", len(v.Name)+len(fields))
	}
	p := append(vpdResource(vpdTagName, len(v.Name)), v.Name...)
	p = append(p, vpdResource(vpdTagReadOnly, len(fields)+1)...)
	p = append(p, fields...)
	var sum byte
	for _, b := range p {
		sum += b
	}
	return append(p, -sum, vpdTagEnd), nil
}

func vpdResource(tag byte, size int) []byte {
	return binary.LittleEndian.AppendUint16([]byte{tag}, uint16(size))
}

// vpdAccess carries out the access that a write to the upper byte of the
// address starts. The data is read-only: a write is over at once.
func (c *Config) vpdAccess() {
	if c.vpd == nil {
		return
	}
	address := c.data[capVPD+vpdAddress:]
	a := binary.LittleEndian.Uint16(address)
	binary.LittleEndian.PutUint16(address, a^vpdFlag)
	if a&vpdFlag != 0 {
		return
	}
	var word [4]byte
	if int(a) < len(c.vpd) {
		copy(word[:], c.vpd[a:])
	}
	copy(c.data[capVPD+vpdData:], word[:])
}

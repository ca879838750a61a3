package hca

import "encoding/binary"

// A field is a bit range of a big-endian structure: its first bit, counted
// from the most significant bit of the first byte as mlx5_ifc.h counts, times
// 256, plus its width in bits.
type field uint32

func (f field) bit() uint { return uint(f >> 8) }

func (f field) width() uint { return uint(f & 0xff) }

// mask is the largest value the field can hold.
func (f field) mask() uint64 { return 1<<f.width() - 1 }

// get reads the field, which lies inside b: callers have checked the length of
// what a driver sent.
func (f field) get(b []byte) uint64 {
	first, last := f.bit()/8, (f.bit()+f.width()-1)/8
	if f.width() == 64 {
		return binary.BigEndian.Uint64(b[first:])
	}
	var v uint64
	for _, x := range b[first : last+1] {
		v = v<<8 | uint64(x)
	}
	return v >> (8*(last+1) - f.bit() - f.width()) & f.mask()
}

// set writes the field and leaves the bits around it alone.
func (f field) set(b []byte, v uint64) {
	first, last := f.bit()/8, (f.bit()+f.width()-1)/8
	if f.width() == 64 {
		binary.BigEndian.PutUint64(b[first:], v)
		return
	}
	shift := 8*(last+1) - f.bit() - f.width()
	v = v & f.mask() << shift
	m := f.mask() << shift
	for i := last; ; i-- {
		b[i] = b[i]&^byte(m) | byte(v)
		m, v = m>>8, v>>8
		if i == first {
			return
		}
	}
}

// u32, u16 and is are get with the type most callers want.
func (f field) u32(b []byte) uint32 { return uint32(f.get(b)) }

func (f field) u16(b []byte) uint16 { return uint16(f.get(b)) }

func (f field) is(b []byte) bool { return f.get(b) != 0 }

// setBool sets a one-bit field.
func (f field) setBool(b []byte, v bool) {
	var x uint64
	if v {
		x = 1
	}
	f.set(b, x)
}

package unpack

import (
	"encoding/binary"
	"math/bits"
)

// xxhash64 is XXH64 with seed 0, of which a Zstandard frame's checksum is the low
// half (xxHash specification 0.1.1).
func xxhash64(b []byte) uint64 {
	const (
		p1 uint64 = 0x9e3779b185ebca87
		p2 uint64 = 0xc2b2ae3d27d4eb4f
		p3 uint64 = 0x165667b19e3779f9
		p4 uint64 = 0x85ebca77c2b2ae63
		p5 uint64 = 0x27d4eb2f165667c5
	)
	round := func(acc, in uint64) uint64 { return bits.RotateLeft64(acc+in*p2, 31) * p1 }
	h, n := p5, uint64(len(b))
	if len(b) >= 32 {
		lane := [4]uint64{0, p2, 0, 0}
		lane[0] += p1
		lane[0] += p2
		lane[3] -= p1
		for ; len(b) >= 32; b = b[32:] {
			for i := range lane {
				lane[i] = round(lane[i], binary.LittleEndian.Uint64(b[8*i:]))
			}
		}
		h = bits.RotateLeft64(lane[0], 1) + bits.RotateLeft64(lane[1], 7) + bits.RotateLeft64(lane[2], 12) + bits.RotateLeft64(lane[3], 18)
		for _, l := range lane {
			h = (h^round(0, l))*p1 + p4
		}
	}
	h += n
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^round(0, binary.LittleEndian.Uint64(b)), 27)*p1 + p4
	}
	if len(b) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(b))*p1, 23)*p2 + p3
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*p5, 11) * p1
	}
	h = (h ^ h>>33) * p2
	h = (h ^ h>>29) * p3
	return h ^ h>>32
}

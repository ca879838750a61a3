package unpack

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
)

// The .xz format, version 1.0.4: a stream header, blocks of LZMA2 with a check
// each, an index. The kernel's build packs modules as one block with a CRC-32.
const (
	xzMagic = "\xfd7zXZ\x00"
	xzLZMA2 = 0x21
)

// Checks by their identifier in the stream header.
const (
	xzNone  = 0
	xzCRC32 = 1
	xzCRC64 = 4
)

func xzCorrupt(what string) error { return fmt.Errorf("xz: %w: %s", errCorrupt, what) }

// XZ unpacks an .xz file.
func XZ(b []byte, limit int) ([]byte, error) {
	if len(b) < 12 || string(b[:6]) != xzMagic {
		return nil, xzCorrupt("no xz header")
	}
	if crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) || b[6] != 0 || b[7]&0xf0 != 0 {
		return nil, xzCorrupt("stream header")
	}
	check := b[7]
	checkSize := [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[check]
	out := make([]byte, 0, min(6*len(b), limit)) // modules shrink to a fifth
	for b = b[12:]; ; {
		if len(b) == 0 {
			return nil, xzCorrupt("ends early")
		}
		if b[0] == 0 {
			return out, nil // the index: no more blocks
		}
		size, err := xzBlock(b)
		if err != nil {
			return nil, err
		}
		start := len(out)
		var rest []byte
		if out, rest, err = lzma2(out, b[size:], limit); err != nil {
			return nil, err
		}
		used := len(b) - size - len(rest)
		b = rest
		pad := -used & 3
		if len(b) < pad+checkSize {
			return nil, xzCorrupt("ends early")
		}
		if err := xzVerify(check, out[start:], b[pad:]); err != nil {
			return nil, err
		}
		b = b[pad+checkSize:]
	}
}

// xzBlock reads a block's header and returns its size. The size of the dictionary
// in it does not matter: the whole output is one.
func xzBlock(b []byte) (size int, err error) {
	size = (int(b[0]) + 1) * 4
	if len(b) < size {
		return 0, xzCorrupt("ends early")
	}
	h := b[:size-4]
	if crc32.ChecksumIEEE(h) != binary.LittleEndian.Uint32(b[size-4:]) {
		return 0, xzCorrupt("block header")
	}
	flags := h[1]
	h = h[2:]
	for _, present := range []byte{0x40, 0x80} { // packed and unpacked size
		if flags&present != 0 {
			_, n := binary.Uvarint(h)
			if n <= 0 {
				return 0, xzCorrupt("block header")
			}
			h = h[n:]
		}
	}
	if flags&0x3f != 0 || len(h) < 3 || h[0] != xzLZMA2 || h[1] != 1 {
		return 0, fmt.Errorf("xz: packed with a filter that modules are not packed with")
	}
	return size, nil
}

// xzVerify compares a block's check; SHA-256 and the reserved kinds, which the
// kernel does not know either, are passed over.
func xzVerify(check byte, data, sum []byte) error {
	ok := true
	switch check {
	case xzCRC32:
		ok = crc32.ChecksumIEEE(data) == binary.LittleEndian.Uint32(sum)
	case xzCRC64:
		ok = crc64.Checksum(data, crc64.MakeTable(crc64.ECMA)) == binary.LittleEndian.Uint64(sum)
	}
	if !ok {
		return xzCorrupt("checksum")
	}
	return nil
}

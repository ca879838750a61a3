package unpack

import (
	"encoding/binary"
	"fmt"
)

// Zstandard, RFC 8878: frames of blocks; a block is literals, Huffman coded, and
// sequences, each "copy so many literals, then so many bytes from so far back",
// FSE coded. Section numbers below are the RFC's.
const (
	zstdMagic     = 0xfd2fb528
	zstdSkippable = 0x184d2a50 // and the 15 numbers after it
	zstdMaxBlock  = 128 << 10
)

func zstdCorrupt(what string) error { return fmt.Errorf("zstd: %w: %s", errCorrupt, what) }

// Zstd unpacks a .zst file. A file that needs a dictionary is refused.
func Zstd(b []byte, limit int) ([]byte, error) {
	var out []byte
	for first := true; len(b) > 0 || first; first = false {
		if len(b) < 8 {
			return nil, zstdCorrupt("ends early")
		}
		magic := binary.LittleEndian.Uint32(b)
		if magic&^15 == zstdSkippable {
			n := uint64(binary.LittleEndian.Uint32(b[4:]))
			if n > uint64(len(b)-8) {
				return nil, zstdCorrupt("ends early")
			}
			b = b[8+n:]
			continue
		}
		if magic != zstdMagic {
			return nil, zstdCorrupt("no zstd header")
		}
		f := zstdFrame{in: b[4:], out: out, start: len(out), limit: limit, reps: [3]int{1, 4, 8}}
		if err := f.decode(); err != nil {
			return nil, err
		}
		b, out = f.in, f.out
	}
	return out, nil
}

// zstdFrame is a frame being decoded. Tables outlive a block: the next one may
// say "the same again".
type zstdFrame struct {
	in, out []byte // what is left, and what is there of this and earlier frames
	start   int    // of this frame in out
	limit   int

	huffman           *huffman
	lits, offs, match *fse
	reps              [3]int
}

// take cuts n bytes from the input; false when there are fewer.
func take(b *[]byte, n int) ([]byte, bool) {
	if n < 0 || n > len(*b) {
		return nil, false
	}
	head := (*b)[:n]
	*b = (*b)[n:]
	return head, true
}

// decode reads the frame's header (3.1.1.1) and its blocks.
func (f *zstdFrame) decode() error {
	flags, ok := take(&f.in, 1)
	if !ok {
		return zstdCorrupt("ends early")
	}
	single, checksum := flags[0]&0x20 != 0, flags[0]&4 != 0
	if flags[0]&8 != 0 {
		return zstdCorrupt("reserved bit")
	}
	window := 1
	if single {
		window = 0
	}
	dictID := [4]int{0, 1, 2, 4}[flags[0]&3]
	content := [4]int{0, 2, 4, 8}[flags[0]>>6]
	if content == 0 && single {
		content = 1
	}
	h, ok := take(&f.in, window+dictID+content)
	if !ok {
		return zstdCorrupt("ends early")
	}
	for _, id := range h[window : window+dictID] {
		if id != 0 {
			return fmt.Errorf("zstd: packed with a dictionary")
		}
	}
	size := littleEndian(h[window+dictID:])
	if content == 2 {
		size += 256
	}
	if content > 0 && size > uint64(f.limit-f.start) {
		return ErrTooLarge
	}
	// Modules shrink to a quarter: a size that is a lie costs little memory.
	f.out = append(make([]byte, 0, len(f.out)+min(int(size), len(f.in)*16, f.limit)), f.out...)
	for last := false; !last; {
		var err error
		if last, err = f.block(); err != nil {
			return err
		}
	}
	if content > 0 && uint64(len(f.out)-f.start) != size {
		return zstdCorrupt("size")
	}
	if checksum {
		sum, ok := take(&f.in, 4)
		if !ok {
			return zstdCorrupt("ends early")
		}
		if uint32(xxhash64(f.out[f.start:])) != binary.LittleEndian.Uint32(sum) {
			return zstdCorrupt("checksum")
		}
	}
	return nil
}

func littleEndian(b []byte) uint64 {
	var n uint64
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}

// block decodes one block (3.1.1.2).
func (f *zstdFrame) block() (last bool, err error) {
	h, ok := take(&f.in, 3)
	if !ok {
		return false, zstdCorrupt("ends early")
	}
	head := int(littleEndian(h))
	last = head&1 != 0
	size := head >> 3
	if size > zstdMaxBlock {
		return false, zstdCorrupt("block size")
	}
	if len(f.out)+size > f.limit && head>>1&3 < 2 {
		return false, ErrTooLarge
	}
	switch head >> 1 & 3 {
	case 0: // as it is
		b, ok := take(&f.in, size)
		if !ok {
			return false, zstdCorrupt("ends early")
		}
		f.out = append(f.out, b...)
	case 1: // one byte many times
		b, ok := take(&f.in, 1)
		if !ok {
			return false, zstdCorrupt("ends early")
		}
		for range size {
			f.out = append(f.out, b[0])
		}
	case 2:
		b, ok := take(&f.in, size)
		if !ok {
			return false, zstdCorrupt("ends early")
		}
		literals, rest, err := f.literals(b)
		if err != nil {
			return false, err
		}
		if err := f.sequences(literals, rest); err != nil {
			return false, err
		}
	default:
		return false, zstdCorrupt("block type")
	}
	return last, nil
}

// literals decodes the first section of a block (3.1.1.3.1) and returns what is
// behind it.
func (f *zstdFrame) literals(b []byte) (literals, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, zstdCorrupt("ends early")
	}
	kind, format := b[0]&3, b[0]>>2&3
	if kind < 2 { // raw, or one byte many times
		n, shift := 1, 3
		switch format {
		case 1:
			n, shift = 2, 4
		case 3:
			n, shift = 3, 4
		}
		h, ok := take(&b, n)
		if !ok {
			return nil, nil, zstdCorrupt("ends early")
		}
		size := int(littleEndian(h) >> shift)
		if size > zstdMaxBlock {
			return nil, nil, zstdCorrupt("literals size")
		}
		if kind == 0 {
			if literals, ok = take(&b, size); !ok {
				return nil, nil, zstdCorrupt("ends early")
			}
			return literals, b, nil
		}
		one, ok := take(&b, 1)
		if !ok {
			return nil, nil, zstdCorrupt("ends early")
		}
		literals = make([]byte, size)
		for i := range literals {
			literals[i] = one[0]
		}
		return literals, b, nil
	}
	n := [4]int{3, 3, 4, 5}[format]
	bits := [4]int{10, 10, 14, 18}[format]
	h, ok := take(&b, n)
	if !ok {
		return nil, nil, zstdCorrupt("ends early")
	}
	sizes := littleEndian(h) >> 4
	size := int(sizes & (1<<bits - 1))
	packed, ok := take(&b, int(sizes>>bits))
	if !ok || size > zstdMaxBlock {
		return nil, nil, zstdCorrupt("literals size")
	}
	if kind == 2 {
		if f.huffman, packed, err = readHuffman(packed); err != nil {
			return nil, nil, err
		}
	}
	if f.huffman == nil {
		return nil, nil, zstdCorrupt("no Huffman table to repeat")
	}
	streams := 4
	if format == 0 {
		streams = 1
	}
	literals, err = f.huffman.decode(packed, size, streams)
	return literals, b, err
}

// Codes of literal and match lengths (3.1.1.3.2.1.1): base and extra bits. The
// codes before them are the length itself, less 3 for a match.
var (
	litBase   = [20]int{16, 18, 20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
	litBits   = [20]uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	matchBase = [21]int{35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539}
	matchBits = [21]uint8{1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
)

// Distributions for blocks that bring none (3.1.1.3.2.2).
var (
	litDefault = []int8{4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
		-1, -1, -1, -1}
	offDefault   = []int8{1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1}
	matchDefault = []int8{1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1}
)

// sequences decodes the second section of a block (3.1.1.3.2) and carries it out.
func (f *zstdFrame) sequences(literals, b []byte) error {
	count, b, err := sequenceCount(b)
	if err != nil {
		return err
	}
	if count == 0 {
		if len(b) > 0 {
			return zstdCorrupt("bytes behind the literals")
		}
		return f.emit(literals, 0, 0)
	}
	modes, ok := take(&b, 1)
	if !ok || modes[0]&3 != 0 {
		return zstdCorrupt("sequence modes")
	}
	if f.lits, b, err = readTable(f.lits, modes[0]>>6, b, litDefault, 6, 9, 35); err != nil {
		return err
	}
	if f.offs, b, err = readTable(f.offs, modes[0]>>4&3, b, offDefault, 5, 8, 31); err != nil {
		return err
	}
	if f.match, b, err = readTable(f.match, modes[0]>>2&3, b, matchDefault, 6, 9, 52); err != nil {
		return err
	}
	r, ok := newBackward(b)
	if !ok {
		return zstdCorrupt("sequences")
	}
	lit, off, match := f.lits.start(r), f.offs.start(r), f.match.start(r)
	end := len(f.out) + zstdMaxBlock
	for i := range count {
		offCode := f.offs.symbol(off)
		offValue := 1<<offCode + r.read(offCode)
		matchLen := int(f.match.symbol(match))
		if matchLen >= 32 {
			matchLen = matchBase[matchLen-32] + r.read(matchBits[matchLen-32])
		} else {
			matchLen += 3
		}
		litLen := int(f.lits.symbol(lit))
		if litLen >= 16 {
			litLen = litBase[litLen-16] + r.read(litBits[litLen-16])
		}
		if i < count-1 {
			lit, match, off = f.lits.next(lit, r), f.match.next(match, r), f.offs.next(off, r)
		}
		if r.left < 0 || litLen > len(literals) || len(f.out)+litLen+matchLen > end {
			return zstdCorrupt("sequence")
		}
		if err := f.emit(literals[:litLen], matchLen, f.offset(offValue, litLen)); err != nil {
			return err
		}
		literals = literals[litLen:]
	}
	if r.left != 0 || len(f.out)+len(literals) > end {
		return zstdCorrupt("sequences")
	}
	return f.emit(literals, 0, 0)
}

func sequenceCount(b []byte) (int, []byte, error) {
	n := 1
	if len(b) > 0 && b[0] >= 128 {
		n = 2
	}
	if len(b) > 0 && b[0] == 255 {
		n = 3
	}
	h, ok := take(&b, n)
	if !ok {
		return 0, nil, zstdCorrupt("ends early")
	}
	switch n {
	case 1:
		return int(h[0]), b, nil
	case 2:
		return int(h[0]-128)<<8 + int(h[1]), b, nil
	}
	return int(h[1]) + int(h[2])<<8 + 0x7f00, b, nil
}

// offset turns an offset value into a distance (3.1.1.5): 1 to 3 name one of the
// last three, shifted by one when no literals come before.
func (f *zstdFrame) offset(value, litLen int) int {
	r := &f.reps
	if value > 3 {
		*r = [3]int{value - 3, r[0], r[1]}
		return r[0]
	}
	which := value - 1
	if litLen == 0 {
		which++
	}
	switch which {
	case 0:
	case 1:
		*r = [3]int{r[1], r[0], r[2]}
	case 2:
		*r = [3]int{r[2], r[0], r[1]}
	case 3:
		*r = [3]int{r[0] - 1, r[0], r[1]}
	}
	return r[0]
}

// emit appends literals, and then matchLen bytes from offset bytes back.
func (f *zstdFrame) emit(literals []byte, matchLen, offset int) error {
	if len(f.out)+len(literals)+matchLen > f.limit {
		return ErrTooLarge
	}
	f.out = append(f.out, literals...)
	if matchLen == 0 {
		return nil
	}
	from := len(f.out) - offset
	if offset <= 0 || from < f.start {
		return zstdCorrupt("offset")
	}
	// A match may reach into what it writes: then what is there repeats itself.
	for matchLen > 0 {
		n := min(matchLen, len(f.out)-from)
		f.out = append(f.out, f.out[from:from+n]...)
		matchLen -= n
	}
	return nil
}

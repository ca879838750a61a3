package unpack

import "fmt"

// LZMA2, as the .xz format uses it: chunks, each a few bytes of header and LZMA
// data of its own range coder, or data as it is. LZMA itself follows the LZMA
// specification (7-Zip, 2015); names are its names.
const (
	lzmaStates     = 12
	lzmaPosStates  = 16
	lzmaProbInit   = 1 << 10
	lzmaTopRange   = 1 << 24
	lzmaMinMatch   = 2
	lzmaAlignBits  = 4
	lzmaFirstModel = 4  // distance slots with reverse bit trees
	lzmaEndModel   = 14 // and the first with direct bits
)

func lzmaCorrupt(what string) error { return fmt.Errorf("xz: %w: %s", errCorrupt, what) }

// lzma2 decodes one LZMA2 stream into out, whose older part is no dictionary for
// it. It returns what is behind the stream.
func lzma2(out, b []byte, limit int) (_, rest []byte, err error) {
	d := &lzma{out: out, dict: len(out)}
	needDict, needProps, needState := true, true, true
	for {
		head, ok := take(&b, 1)
		if !ok {
			return nil, nil, lzmaCorrupt("ends early")
		}
		control := head[0]
		if control == 0 {
			return d.out, b, nil
		}
		lzma := control >= 0x80
		reset := control >> 5 & 3 // of state, and properties, and dictionary
		if !lzma && control > 2 || needDict && control != 1 && !(lzma && reset == 3) {
			return nil, nil, lzmaCorrupt("chunk")
		}
		if control == 1 || lzma && reset == 3 {
			d.dict, needDict = len(d.out), false
		}
		sizes, ok := take(&b, 2)
		if !ok {
			return nil, nil, lzmaCorrupt("ends early")
		}
		size := int(sizes[0])<<8 + int(sizes[1]) + 1
		if lzma {
			size += int(control&0x1f) << 16
		}
		if len(d.out)+size > limit {
			return nil, nil, ErrTooLarge
		}
		if !lzma {
			data, ok := take(&b, size)
			if !ok {
				return nil, nil, lzmaCorrupt("ends early")
			}
			d.out = append(d.out, data...)
			continue
		}
		packed, ok := take(&b, 2)
		if !ok {
			return nil, nil, lzmaCorrupt("ends early")
		}
		n := int(packed[0])<<8 + int(packed[1]) + 1
		if reset >= 2 {
			props, ok := take(&b, 1)
			if !ok || !d.properties(props[0]) {
				return nil, nil, lzmaCorrupt("properties")
			}
			needProps = false
		}
		if reset >= 1 && !needProps {
			d.reset()
			needState = false
		}
		data, ok := take(&b, n)
		if !ok || needProps || needState {
			return nil, nil, lzmaCorrupt("chunk")
		}
		if err := d.chunk(data, size); err != nil {
			return nil, nil, err
		}
	}
}

// prob is the probability, out of 2048, that a bit is 0.
type prob = uint16

// lzma is the decoder's state between chunks.
type lzma struct {
	out  []byte
	dict int // where the dictionary begins in out

	lc, lp, pb uint
	state      int
	rep        [4]uint32 // last distances, less 1

	isMatch, isRep0Long           [lzmaStates * lzmaPosStates]prob
	isRep, isRep0, isRep1, isRep2 [lzmaStates]prob
	slot                          [4][64]prob
	special                       [128]prob
	align                         [1 << lzmaAlignBits]prob
	matchLen, repLen              lengths
	literal                       []prob

	// The range coder, of the present chunk.
	in          []byte
	at          int
	width, code uint32
}

type lengths struct {
	choice, choice2 prob
	low, mid        [lzmaPosStates][8]prob
	high            [256]prob
}

// properties takes lc, lp and pb from their byte.
func (d *lzma) properties(b byte) bool {
	if b >= 9*5*5 {
		return false
	}
	d.lc, d.lp, d.pb = uint(b%9), uint(b/9%5), uint(b/45)
	return d.lc+d.lp <= 4 // LZMA2's own bound
}

func (d *lzma) reset() {
	d.state, d.rep = 0, [4]uint32{}
	d.literal = make([]prob, 0x300<<(d.lc+d.lp))
	for _, probs := range [][]prob{
		d.isMatch[:], d.isRep0Long[:], d.isRep[:], d.isRep0[:], d.isRep1[:], d.isRep2[:],
		d.slot[0][:], d.slot[1][:], d.slot[2][:], d.slot[3][:], d.special[:], d.align[:], d.literal,
	} {
		for i := range probs {
			probs[i] = lzmaProbInit
		}
	}
	d.matchLen.reset()
	d.repLen.reset()
}

func (l *lengths) reset() {
	l.choice, l.choice2 = lzmaProbInit, lzmaProbInit
	for i := range l.low {
		for j := range l.low[i] {
			l.low[i][j], l.mid[i][j] = lzmaProbInit, lzmaProbInit
		}
	}
	for i := range l.high {
		l.high[i] = lzmaProbInit
	}
}

// chunk decodes size bytes from the LZMA data b, all of which must be used.
func (d *lzma) chunk(b []byte, size int) error {
	if len(b) < 5 || b[0] != 0 {
		return lzmaCorrupt("range coder")
	}
	d.in, d.at = b, 5
	d.width, d.code = 0xffffffff, uint32(b[1])<<24|uint32(b[2])<<16|uint32(b[3])<<8|uint32(b[4])
	for end := len(d.out) + size; len(d.out) < end; {
		pos := (len(d.out) - d.dict) & (1<<d.pb - 1)
		if d.bit(&d.isMatch[d.state<<4|pos]) == 0 {
			d.byte()
			continue
		}
		n := d.copy(pos)
		from := len(d.out) - int(d.rep[0]) - 1
		if from < d.dict || len(d.out)+n > end {
			return lzmaCorrupt("match")
		}
		// A match may reach into what it writes: then what is there repeats itself.
		for n > 0 {
			k := min(n, len(d.out)-from)
			d.out = append(d.out, d.out[from:from+k]...)
			n -= k
		}
		if d.at > len(d.in) {
			break
		}
	}
	d.normalize()
	if d.at != len(d.in) || d.code != 0 {
		return lzmaCorrupt("range coder")
	}
	return nil
}

// normalize keeps the width above 2^24. Behind the end it reads zeroes; that it
// went there is seen when the chunk is done.
func (d *lzma) normalize() {
	if d.width < lzmaTopRange {
		d.width <<= 8
		d.code <<= 8
		if d.at < len(d.in) {
			d.code |= uint32(d.in[d.at])
		}
		d.at++
	}
}

// bit decodes one bit and adapts its probability.
func (d *lzma) bit(p *prob) uint32 {
	d.normalize()
	bound := d.width >> 11 * uint32(*p)
	if d.code < bound {
		d.width = bound
		*p += (1<<11 - *p) >> 5
		return 0
	}
	d.width -= bound
	d.code -= bound
	*p -= *p >> 5
	return 1
}

// tree decodes a number, highest bit first.
func (d *lzma) tree(probs []prob) uint32 {
	m, size := uint32(1), uint32(len(probs))
	for m < size {
		m = m<<1 | d.bit(&probs[m])
	}
	return m - size
}

// reverse decodes a number of n bits, lowest bit first.
func (d *lzma) reverse(probs []prob, n int) uint32 {
	m, v := uint32(1), uint32(0)
	for i := range n {
		b := d.bit(&probs[m])
		m = m<<1 | b
		v |= b << i
	}
	return v
}

// direct decodes n bits of even chance, highest first.
func (d *lzma) direct(n int) uint32 {
	var v uint32
	for range n {
		d.normalize()
		d.width >>= 1
		d.code -= d.width
		borrow := d.code >> 31 // 1 if it was below the half: the bit is 0
		d.code += d.width & -borrow
		v = v<<1 | (1 - borrow)
	}
	return v
}

// byte decodes a literal. After a match it is coded by how it differs from the
// byte that the match would have gone on with.
func (d *lzma) byte() {
	pos := uint(len(d.out) - d.dict)
	var before byte
	if pos > 0 {
		before = d.out[len(d.out)-1]
	}
	ctx := pos&(1<<d.lp-1)<<d.lc + uint(before)>>(8-d.lc)
	probs := d.literal[0x300*ctx:][:0x300]
	m := uint32(1)
	if from := len(d.out) - int(d.rep[0]) - 1; d.state >= 7 && from >= d.dict {
		match := uint32(d.out[from])
		for m < 0x100 {
			match <<= 1
			want := match & 0x100
			b := d.bit(&probs[0x100+want+m])
			m = m<<1 | b
			if want>>8 != b {
				break
			}
		}
	}
	for m < 0x100 {
		m = m<<1 | d.bit(&probs[m])
	}
	d.out = append(d.out, byte(m))
	switch {
	case d.state < 4:
		d.state = 0
	case d.state < 10:
		d.state -= 3
	default:
		d.state -= 6
	}
}

// copy decodes a match: it puts the distance into rep[0] and returns the length.
func (d *lzma) copy(pos int) int {
	old := d.state
	after := func(fresh, later int) {
		d.state = later
		if old < 7 {
			d.state = fresh
		}
	}
	if d.bit(&d.isRep[old]) == 0 {
		d.rep = [4]uint32{0, d.rep[0], d.rep[1], d.rep[2]}
		n := d.length(&d.matchLen, pos)
		after(7, 10)
		d.rep[0] = d.distance(n)
		return n
	}
	if d.bit(&d.isRep0[old]) == 0 {
		if d.bit(&d.isRep0Long[old<<4|pos]) == 0 {
			after(9, 11)
			return 1
		}
	} else {
		which := 1
		if d.bit(&d.isRep1[old]) == 1 {
			which = 2 + int(d.bit(&d.isRep2[old]))
		}
		dist := d.rep[which]
		copy(d.rep[1:which+1], d.rep[:which])
		d.rep[0] = dist
	}
	n := d.length(&d.repLen, pos)
	after(8, 11)
	return n
}

func (d *lzma) length(l *lengths, pos int) int {
	if d.bit(&l.choice) == 0 {
		return lzmaMinMatch + int(d.tree(l.low[pos][:]))
	}
	if d.bit(&l.choice2) == 0 {
		return lzmaMinMatch + 8 + int(d.tree(l.mid[pos][:]))
	}
	return lzmaMinMatch + 16 + int(d.tree(l.high[:]))
}

// distance decodes a match's distance, less 1. The mark for "the end", all ones,
// is not used in LZMA2 and is too far back to be taken for a match.
func (d *lzma) distance(length int) uint32 {
	slot := d.tree(d.slot[min(length-lzmaMinMatch, 3)][:])
	if slot < lzmaFirstModel {
		return slot
	}
	n := int(slot>>1) - 1
	dist := (2 | slot&1) << n
	if slot < lzmaEndModel {
		return dist + d.reverse(d.special[dist-slot:], n)
	}
	dist += d.direct(n-lzmaAlignBits) << lzmaAlignBits
	return dist + d.reverse(d.align[:], lzmaAlignBits)
}

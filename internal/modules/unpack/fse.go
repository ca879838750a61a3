package unpack

import (
	"encoding/binary"
	"math/bits"
)

// backward reads bits from the end of a buffer to its beginning. The highest set
// bit of the last byte marks the end and is not data (RFC 8878, 4.1).
type backward struct {
	b    []byte
	left int // bits; negative when more were read than there are, which read as 0
}

func newBackward(b []byte) (*backward, bool) {
	if len(b) == 0 || b[len(b)-1] == 0 {
		return nil, false
	}
	return &backward{b, len(b)*8 - 8 + bits.Len8(b[len(b)-1]) - 1}, true
}

// read takes the next n bits, at most 32.
func (r *backward) read(n uint8) int {
	v := r.peek(n)
	r.left -= int(n)
	return v
}

func (r *backward) peek(n uint8) int {
	at := r.left - int(n)
	if at < 0 {
		if r.left <= 0 {
			return 0
		}
		return r.peek(uint8(r.left)) << -at
	}
	i := at >> 3
	var v uint64
	if i+8 <= len(r.b) {
		v = binary.LittleEndian.Uint64(r.b[i:])
	} else {
		v = littleEndian(r.b[i:])
	}
	return int(v >> (at & 7) & (1<<n - 1))
}

// fse is a decoding table of finite state entropy (4.1): a state is an index.
type fse struct {
	log   uint8
	table []fseState
}

type fseState struct {
	symbol, bits uint8
	base         uint16
}

func (t *fse) start(r *backward) int       { return r.read(t.log) }
func (t *fse) symbol(s int) uint8          { return t.table[s].symbol }
func (t *fse) next(s int, r *backward) int { return int(t.table[s].base) + r.read(t.table[s].bits) }

// newFSE builds the table of a distribution: for each symbol its probability out
// of 1<<log, -1 for "less than one".
func newFSE(probs []int16, log uint8) (*fse, bool) {
	size := 1 << log
	t := &fse{log, make([]fseState, size)}
	next := make([]int, len(probs))
	high := size
	for s, p := range probs {
		next[s] = int(p)
		if p == -1 {
			next[s] = 1
			high--
			if high < 0 {
				return nil, false
			}
			t.table[high].symbol = uint8(s)
		}
	}
	pos, step := 0, size>>1+size>>3+3
	for s, p := range probs {
		for range max(p, 0) {
			t.table[pos].symbol = uint8(s)
			for pos = (pos + step) & (size - 1); pos >= high && high > 0; {
				pos = (pos + step) & (size - 1)
			}
		}
	}
	for i := range t.table {
		e := &t.table[i]
		n := next[e.symbol]
		if n == 0 {
			return nil, false
		}
		next[e.symbol]++
		e.bits = log + 1 - uint8(bits.Len(uint(n)))
		e.base = uint16(n<<e.bits - size)
	}
	return t, true
}

// readFSE reads a distribution (4.1.1) and builds its table; it returns what is
// behind it.
func readFSE(b []byte, maxLog uint8, maxSymbol int) (*fse, []byte, error) {
	var at int // in bits, from the front
	read := func(n int) int {
		var v uint64
		if i := at >> 3; i < len(b) {
			v = littleEndian(b[i:min(i+8, len(b))])
		}
		v = v >> (at & 7) & (1<<n - 1)
		at += n
		return int(v)
	}
	log := uint8(read(4)) + 5
	if log > maxLog {
		return nil, nil, zstdCorrupt("table size")
	}
	var probs []int16
	for left := 1 << log; left > 0; {
		if len(probs) > maxSymbol || at > len(b)*8 {
			return nil, nil, zstdCorrupt("table")
		}
		// A value is 0 to left+1; the smaller ones take one bit less.
		n := bits.Len(uint(left + 1))
		v := read(n)
		low, small := v&(1<<(n-1)-1), 1<<n-1-(left+1)
		if low < small {
			v = low
			at--
		} else if v >= 1<<(n-1) {
			v -= small
		}
		p := v - 1
		probs = append(probs, int16(p))
		left -= max(p, -p)
		if p == 0 {
			for more := 3; more == 3; {
				more = read(2)
				probs = append(probs, make([]int16, more)...)
				if len(probs) > maxSymbol+1 {
					return nil, nil, zstdCorrupt("table")
				}
			}
		}
	}
	used := (at + 7) / 8
	if used > len(b) || len(probs) > maxSymbol+1 {
		return nil, nil, zstdCorrupt("table")
	}
	t, ok := newFSE(probs, log)
	if !ok {
		return nil, nil, zstdCorrupt("table")
	}
	return t, b[used:], nil
}

// readTable gives the table for one of a sequence's three codes, by its mode: the
// default one, one symbol only, a new one, or the last block's.
func readTable(last *fse, mode byte, b []byte, probs []int8, log, maxLog uint8, maxSymbol int) (*fse, []byte, error) {
	switch mode {
	case 0:
		wide := make([]int16, len(probs))
		for i, p := range probs {
			wide[i] = int16(p)
		}
		t, _ := newFSE(wide, log)
		return t, b, nil
	case 1:
		s, ok := take(&b, 1)
		if !ok || int(s[0]) > maxSymbol {
			return nil, nil, zstdCorrupt("table")
		}
		return &fse{0, []fseState{{symbol: s[0]}}}, b, nil
	case 2:
		return readFSE(b, maxLog, maxSymbol)
	}
	if last == nil {
		return nil, nil, zstdCorrupt("no table to repeat")
	}
	return last, b, nil
}

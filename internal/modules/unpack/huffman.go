package unpack

import "math/bits"

// huffman is a decoding table of Huffman codes (RFC 8878, 4.2), indexed by the
// next log bits.
type huffman struct {
	log   uint8
	table []huffmanCode
}

type huffmanCode struct{ symbol, bits uint8 }

// readHuffman reads a table's description, weights of the symbols, and returns
// what is behind it.
func readHuffman(b []byte) (*huffman, []byte, error) {
	head, ok := take(&b, 1)
	if !ok {
		return nil, nil, zstdCorrupt("ends early")
	}
	var weights []uint8
	if n := int(head[0]); n >= 128 { // four bits each
		n -= 127
		packed, ok := take(&b, (n+1)/2)
		if !ok {
			return nil, nil, zstdCorrupt("ends early")
		}
		for i := range n {
			weights = append(weights, packed[i/2]>>(4-i%2*4)&15)
		}
	} else {
		packed, ok := take(&b, n)
		if !ok {
			return nil, nil, zstdCorrupt("ends early")
		}
		var err error
		if weights, err = readWeights(packed); err != nil {
			return nil, nil, err
		}
	}
	h, ok := newHuffman(weights)
	if !ok {
		return nil, nil, zstdCorrupt("Huffman table")
	}
	return h, b, nil
}

// readWeights decodes weights that two FSE states give in turns, until the bits
// are used up (4.2.1.2).
func readWeights(b []byte) ([]uint8, error) {
	t, b, err := readFSE(b, 6, 255)
	if err != nil {
		return nil, err
	}
	r, ok := newBackward(b)
	if !ok {
		return nil, zstdCorrupt("Huffman weights")
	}
	var weights []uint8
	this, other := t.start(r), t.start(r)
	for len(weights) < 254 {
		weights = append(weights, t.symbol(this))
		this = t.next(this, r)
		if r.left < 0 {
			return append(weights, t.symbol(other)), nil
		}
		this, other = other, this
	}
	return nil, zstdCorrupt("Huffman weights")
}

// newHuffman builds the table. The weight of the last symbol is not written: it is
// what is missing to a power of two.
func newHuffman(weights []uint8) (*huffman, bool) {
	const maxLog = 11
	var sum int
	for _, w := range weights {
		if w > maxLog {
			return nil, false
		}
		sum += 1 << w >> 1
	}
	log := bits.Len(uint(sum))
	missing := 1<<log - sum
	if sum == 0 || log > maxLog || missing&(missing-1) != 0 || len(weights) > 255 {
		return nil, false
	}
	weights = append(weights, uint8(bits.Len(uint(missing))))
	h := &huffman{uint8(log), make([]huffmanCode, 0, 1<<log)}
	for w := 1; w <= log; w++ { // longest codes first
		for s, sw := range weights {
			if int(sw) == w {
				for range 1 << w >> 1 {
					h.table = append(h.table, huffmanCode{uint8(s), uint8(log + 1 - w)})
				}
			}
		}
	}
	return h, len(h.table) == 1<<log
}

// decode reads size symbols from one stream, or from four of a quarter each whose
// lengths come first.
func (h *huffman) decode(b []byte, size, streams int) ([]byte, error) {
	out := make([]byte, 0, size)
	if streams == 1 {
		return h.stream(out, b, size)
	}
	lengths, ok := take(&b, 6)
	if !ok || size < 6 {
		return nil, zstdCorrupt("literals")
	}
	quarter := (size + 3) / 4
	var err error
	for i := range 3 {
		s, ok := take(&b, int(lengths[2*i])|int(lengths[2*i+1])<<8)
		if !ok {
			return nil, zstdCorrupt("literals")
		}
		if out, err = h.stream(out, s, quarter); err != nil {
			return nil, err
		}
	}
	return h.stream(out, b, size-3*quarter)
}

func (h *huffman) stream(out, b []byte, n int) ([]byte, error) {
	r, ok := newBackward(b)
	if !ok || n < 0 {
		return nil, zstdCorrupt("literals")
	}
	for range n {
		c := h.table[r.peek(h.log)]
		r.left -= int(c.bits)
		out = append(out, c.symbol)
	}
	if r.left != 0 {
		return nil, zstdCorrupt("literals")
	}
	return out, nil
}

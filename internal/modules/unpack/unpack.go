// Package unpack reads module files as distributions pack them: gzip, xz and
// Zstandard, into memory and nothing else. The two formats that the standard
// library lacks are read here: the common packages for them are made for streams
// and for packing too, and with the cryptography they pull in they are half a
// megabyte, a tenth of the whole program. In the tests they are what these readers
// are held against.
package unpack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// Limit bounds what a file may unpack to. The largest module of the InfiniBand
// stack, mlx5_core with its debugging sections, is about 60 MB.
const Limit = 256 << 20

// ErrTooLarge is an archive of more than the limit.
var ErrTooLarge = errors.New("unpacks to more than is sensible for a module")

// errCorrupt is wrapped by what is wrong with an archive.
var errCorrupt = errors.New("damaged archive")

// Gzip unpacks a .gz file (RFC 1952).
func Gzip(b []byte, limit int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return readAll(nil, z, limit)
}

// readAll appends what r gives to out, up to limit bytes in total.
func readAll(out []byte, r io.Reader, limit int) ([]byte, error) {
	buf := bytes.NewBuffer(out)
	if _, err := buf.ReadFrom(io.LimitReader(r, int64(limit-len(out))+1)); err != nil {
		return nil, err
	}
	if buf.Len() > limit {
		return nil, ErrTooLarge
	}
	return buf.Bytes(), nil
}

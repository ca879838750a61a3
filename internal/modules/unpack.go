package modules

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// maxImage bounds an unpacked module. The largest of the stack, mlx5_core with its
// debugging sections, is about 60 MB.
const maxImage = 256 << 20

var errTooLarge = errors.New("unpacks to more than 256 MiB")

// unpack reads a module file into memory.
func unpack(f io.Reader, c Compression) ([]byte, error) {
	// The xz decoder reads byte by byte, which on a file is a system call each.
	var r io.Reader = bufio.NewReaderSize(f, 64<<10)
	switch c {
	case Plain:
	case Gzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case XZ:
		z, err := xz.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxImage))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("unknown compression %q", c)
	}
	var image bytes.Buffer
	n, err := image.ReadFrom(io.LimitReader(r, maxImage+1))
	if err != nil {
		return nil, err
	}
	if n > maxImage {
		return nil, errTooLarge
	}
	return image.Bytes(), nil
}

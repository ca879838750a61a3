package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/klauspost/compress/zstd"
)

// extractVmlinux writes the ELF kernel that a bzImage carries compressed. QEMU
// boots it directly (PVH), and the guest is spared five to six seconds of
// decompression under TCG.
func (c *Cache) extractVmlinux(ctx context.Context, bzImage, out string) error {
	image, err := os.ReadFile(bzImage)
	if err != nil {
		return err
	}
	payload, err := bzPayload(image)
	if err != nil {
		return fmt.Errorf("%s: %w", bzImage, err)
	}
	var kernel []byte
	switch {
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")): // zstd
		r, err := zstd.NewReader(bytes.NewReader(payload))
		if err != nil {
			return err
		}
		defer r.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(r); err != nil {
			return fmt.Errorf("%s: %w", bzImage, err)
		}
		kernel = b.Bytes()
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")):
		// With a filter for x86 code, which Go's decoders do not know.
		xz := treeProgram(c.guestTree(), "usr/bin/xz")
		cmd := exec.CommandContext(ctx, xz[0], append(xz[1:], "-dc", "--single-stream")...)
		cmd.Stdin = bytes.NewReader(payload)
		if kernel, err = cmd.Output(); err != nil {
			return fmt.Errorf("%s: xz: %w", bzImage, err)
		}
	default:
		return fmt.Errorf("%s: unknown compression % x", bzImage, payload[:min(6, len(payload))])
	}
	if !bytes.HasPrefix(kernel, []byte("\x7fELF")) {
		return fmt.Errorf("%s: its payload is no ELF file", bzImage)
	}
	return os.WriteFile(out, kernel, 0o644)
}

// bzPayload returns the compressed kernel: the x86 boot protocol (2.08 and
// later) gives its place in the protected-mode code behind the setup sectors.
func bzPayload(image []byte) ([]byte, error) {
	const (
		setupSects    = 0x1f1
		magic         = 0x202
		payloadOffset = 0x248
		payloadLength = 0x24c
	)
	if len(image) < 0x250 || string(image[magic:magic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	sects := int(image[setupSects])
	if sects == 0 {
		sects = 4
	}
	off := (sects+1)*512 + int(binary.LittleEndian.Uint32(image[payloadOffset:]))
	n := int(binary.LittleEndian.Uint32(image[payloadLength:]))
	if off+n > len(image) || n < 8 {
		return nil, errors.New("the payload lies outside the file")
	}
	return image[off : off+n-4], nil // the last four bytes are the unpacked size
}

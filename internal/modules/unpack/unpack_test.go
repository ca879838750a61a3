package unpack

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	ref "github.com/ulikunitz/xz/lzma"
)

type format struct {
	name   string
	unpack func([]byte, int) ([]byte, error)
	pack   func(testing.TB, []byte) []byte
}

// formats are ours to unpack, and others' to pack.
func formats() []format {
	closing := func(t testing.TB, b *bytes.Buffer, w io.WriteCloser, err error, data []byte) []byte {
		if err == nil {
			_, err = w.Write(data)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	all := []format{{"gzip", Gzip, func(t testing.TB, data []byte) []byte {
		var b bytes.Buffer
		return closing(t, &b, gzip.NewWriter(&b), nil, data)
	}}}
	for check, block := range map[byte]int64{xz.CRC32: 1 << 40, xz.CRC64: 30_000, xz.SHA256: 1 << 40} {
		all = append(all, format{fmt.Sprintf("xz check %d", check), XZ, func(t testing.TB, data []byte) []byte {
			var b bytes.Buffer
			w, err := xz.WriterConfig{CheckSum: check, BlockSize: block}.NewWriter(&b)
			return closing(t, &b, w, err, data)
		}})
	}
	for level := zstd.SpeedFastest; level <= zstd.SpeedBestCompression; level++ {
		for _, o := range []struct {
			name string
			opts []zstd.EOption
		}{
			{"", nil},
			{", one segment", []zstd.EOption{zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false)}},
			{", small window", []zstd.EOption{zstd.WithWindowSize(1 << 10), zstd.WithEncoderPadding(512)}},
		} {
			all = append(all, format{"zstd " + level.String() + o.name, Zstd, func(t testing.TB, data []byte) []byte {
				var b bytes.Buffer
				w, err := zstd.NewWriter(&b, append(o.opts, zstd.WithEncoderLevel(level), zstd.WithZeroFrames(true))...)
				return closing(t, &b, w, err, data)
			}})
		}
	}
	return all
}

// samples have what makes encoders take every path: nothing, repeats, noise,
// words, tables of near-equal records as in an ELF file, and all of these in turn.
func samples() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 150_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	words := strings.Fields("mlx5_core ib_register_device module_layout __this_module .gnu.linkonce .rela.text mutex_lock vermagic= depends=")
	var text, table bytes.Buffer
	for text.Len() < 200_000 {
		text.WriteString(words[r.IntN(len(words))])
		text.WriteByte(byte(r.IntN(3)))
	}
	for i := range 12_000 {
		fmt.Fprintf(&table, "%c\x00\x00\x00%04x\x00\x00\x02\x00\x00\x00", byte(i), r.IntN(4000))
	}
	skewed := make([]byte, 100_000)
	for i := range skewed {
		skewed[i] = byte(r.ExpFloat64() * 6)
	}
	return map[string][]byte{
		"empty": {}, "one byte": {7}, "short": []byte("ELF"),
		"zeroes": make([]byte, 300_000), "noise": noise, "text": text.Bytes(), "table": table.Bytes(), "skewed": skewed,
		"mixed": bytes.Join([][]byte{text.Bytes()[:50_000], make([]byte, 70_000), noise[:5000], table.Bytes()[:120_000], skewed[:30_000], text.Bytes()}, nil),
	}
}

func TestUnpack(t *testing.T) {
	for _, f := range formats() {
		for name, want := range samples() {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				packed := f.pack(t, want)
				got, err := f.unpack(packed, Limit)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
				}
				if len(want) == 0 {
					return
				}
				if got, err := f.unpack(packed, len(want)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("with just the limit it needs: %d bytes, %v", len(got), err)
				}
				if _, err := f.unpack(packed, len(want)-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("beyond the limit: %v", err)
				}
			})
		}
	}
}

// TestUnpackDamaged wants an error, or the right content, of an archive that was
// cut or has a bit turned over. Only a format with a checksum can promise it.
func TestUnpackDamaged(t *testing.T) {
	want := samples()["mixed"][40_000:140_000]
	r := rand.New(rand.NewPCG(3, 4))
	for _, f := range formats() {
		if strings.Contains(f.name, "one segment") || strings.Contains(f.name, "check 10") {
			continue // no checksum, or one that is not looked at
		}
		packed := f.pack(t, want)
		for range 20 {
			n := r.IntN(len(packed))
			if got, err := f.unpack(packed[:n], Limit); err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%s cut at %d of %d: %d bytes and no error", f.name, n, len(packed), len(got))
			}
			bad := bytes.Clone(packed)
			bad[n] ^= 1 << r.IntN(8)
			if got, err := f.unpack(bad, Limit); err == nil && !bytes.Equal(got, want) {
				t.Fatalf("%s with byte %d of %d turned over: other content and no error", f.name, n, len(packed))
			}
		}
	}
}

func TestUnpackOther(t *testing.T) {
	frame := func(s string) string { return "28b52ffd" + s }
	tests := []struct {
		name   string
		unpack func([]byte, int) ([]byte, error)
		hex    string
		want   string
		ok     bool
	}{
		{"zstd: two frames and a skippable one", Zstd, frame("2003190000616263") + "5a2a4d180200000000ff" + frame("2003190000646566"), "abcdef", true},
		{"zstd: no checksum, no size", Zstd, frame("0000190000616263"), "abc", true},
		{"zstd: one byte many times", Zstd, frame("20051b000078")[:0] + frame("20052b000078"), "xxxxx", true},
		{"zstd: dictionary", Zstd, frame("210703190000616263"), "", false},
		{"zstd: reserved bit", Zstd, frame("2803190000616263"), "", false},
		{"zstd: block type", Zstd, frame("20031f0000616263"), "", false},
		{"zstd: size is a lie", Zstd, frame("2004190000616263"), "", false},
		{"zstd: size of 2^63", Zstd, frame("e000000000000000801900006162630000000000"), "", false},
		{"zstd: skippable to the end of the world", Zstd, "5a2a4d18ffffffff", "", false},
		{"zstd: empty", Zstd, "", "", false},
		{"zstd: another magic", Zstd, "7f454c4602010100", "", false},
		{"xz: empty", XZ, "", "", false},
		{"xz: ELF", XZ, "7f454c460201010000000000", "", false},
		{"gzip: ELF", Gzip, "7f454c460201010000000000", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := hex.DecodeString(tt.hex)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tt.unpack(b, Limit)
			if (err == nil) != tt.ok || string(got) != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// FuzzZstd holds the decoder against the common one.
func FuzzZstd(f *testing.F) {
	for _, fm := range formats() {
		if strings.HasPrefix(fm.name, "zstd") {
			for _, s := range samples() {
				f.Add(fm.pack(f, s[:min(len(s), 2000)]))
			}
		}
	}
	common, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<20))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Zstd(b, 1<<20)
		if err != nil {
			return
		}
		if len(got) > 1<<20 {
			t.Fatalf("%d bytes", len(got))
		}
		want, err := common.DecodeAll(b, nil)
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("%d bytes, the common decoder has %d", len(got), len(want))
		}
	})
}

// FuzzXZ does the same. The bytes are the LZMA2 stream: behind a checksum a fuzzer
// does not get far.
func FuzzXZ(f *testing.F) {
	for _, s := range samples() {
		var b bytes.Buffer
		w, err := ref.NewWriter2(&b)
		if err == nil {
			_, err = w.Write(s[:min(len(s), 2000)])
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _, err := lzma2(nil, b, 1<<20)
		if err != nil {
			return
		}
		if len(got) > 1<<20 {
			t.Fatalf("%d bytes", len(got))
		}
		r, err := ref.Reader2Config{DictCap: 1 << 20}.NewReader2(bytes.NewReader(b))
		if err != nil {
			return
		}
		want, err := io.ReadAll(r)
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("%d bytes, the common decoder has %d", len(got), len(want))
		}
	})
}

func BenchmarkUnpack(b *testing.B) {
	data := samples()["mixed"]
	for _, f := range formats() {
		if f.name == "gzip" || f.name == "zstd better" || f.name == "xz check 1" {
			packed := f.pack(b, data)
			b.Run(f.name, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := f.unpack(packed, Limit); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

package vfiouser

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
	"ibup/test/vfiouser/vfiousertest"
)

func TestAccessAcrossMaps(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	low, err := c.ShareMemory(0x10000, 0x2000)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.KeepMemory(0x12000, make([]byte, 0x1000), true); err != nil {
		t.Fatal(err)
	}
	high, err := c.ShareMemory(0x13000, 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 0x2800)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := bus.WriteDMA(0x11000, data); err != nil {
		t.Fatal(err)
	}
	got := append(append(append([]byte{}, low[0x1000:]...), c.Kept(0x12000, 0x1000)...), high[:0x800]...)
	if !bytes.Equal(got, data) {
		t.Error("what was written across maps is not in the memory")
	}
	back := make([]byte, len(data))
	if err := bus.ReadDMA(0x11000, back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("what was written across maps cannot be read: %v", err)
	}
	if err := bus.WriteDMA(0x13800, data[:0x801]); err == nil || !strings.Contains(err.Error(), "0x14000 is not mapped") {
		t.Errorf("a write beyond the last map: %v", err)
	}
	if err := bus.ReadDMA(0xfff8, back[:16]); err == nil || !strings.Contains(err.Error(), "0xfff8 is not mapped") {
		t.Errorf("a read before the first map: %v", err)
	}
	if err := bus.ReadDMA(0xfff8, nil); err != nil {
		t.Errorf("a read of nothing: %v", err)
	}
}

// TestLastAddress is about ranges whose end does not fit in 64 bits.
func TestLastAddress(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	const addr = 1<<64 - 0x1000
	p, err := c.ShareMemory(addr, 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.WriteDMA(1<<64-4, []byte("last")); err != nil || string(p[0xffc:]) != "last" {
		t.Errorf("write to the last address: %v, %q", err, p[0xffc:])
	}
	if _, err := c.ShareMemory(0, 0x1000); err != nil {
		t.Fatal(err)
	}
	if err := bus.WriteDMA(1<<64-4, []byte("wraparound")); err == nil {
		t.Error("a write beyond the last address goes on at the first")
	}
}

func TestOverlapAndUnmap(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	for _, addr := range []uint64{0x40000, 0x10000, 0x30000} { // in no order
		if _, err := c.ShareMemory(addr, 0x8000); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct{ addr, size uint64 }{
		{0x10000, 0x8000}, {0x12000, 0x1000}, {0xf000, 0x2000}, {0x17000, 0x2000}, {0x8000, 0x80000}, {0x2f000, 0x2000},
	} {
		if _, err := c.ShareMemory(r.addr, int(r.size)); !errors.Is(err, unix.EEXIST) {
			t.Errorf("map of %#x+%#x: %v, want EEXIST", r.addr, r.size, err)
		}
	}
	if _, err := c.ShareMemory(0x18000, 0x18000); err != nil {
		t.Errorf("map of the room between: %v", err)
	}
	for _, r := range []struct{ addr, size uint64 }{{0x30000, 0x4000}, {0x31000, 0x8000}, {0x30000, 0x18000}} {
		if err := c.Unmap(r.addr, r.size); !errors.Is(err, unix.ENOENT) {
			t.Errorf("unmap of %#x+%#x: %v, want ENOENT", r.addr, r.size, err)
		}
	}
	if err := c.Unmap(0x30000, 0x8000); err != nil {
		t.Error(err)
	}
	p := make([]byte, 4)
	if err := bus.ReadDMA(0x30000, p); err == nil {
		t.Error("what was unmapped can be read")
	}
	if err := bus.ReadDMA(0x40000, p); err != nil {
		t.Errorf("its neighbour cannot: %v", err)
	}
	if err := c.UnmapAll(); err != nil {
		t.Error(err)
	}
	if err := bus.ReadDMA(0x40000, p); err == nil {
		t.Error("memory can be read after all was unmapped")
	}
}

func TestReadOnlyMemory(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	f, err := vfiousertest.NewMemory(0x2000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("rom"), 0x1000); err != nil {
		t.Fatal(err)
	}
	if err := c.MapFile(0xf0000, 0x1000, f, 0x1000, false); err != nil {
		t.Fatal(err)
	}
	if err := c.KeepMemory(0xf1000, []byte(strings.Repeat("k", 0x1000)), false); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 3)
	if err := bus.ReadDMA(0xf0000, p); err != nil || string(p) != "rom" {
		t.Errorf("read: %q, %v", p, err)
	}
	if err := bus.ReadDMA(0xf1000, p); err != nil || string(p) != "kkk" {
		t.Errorf("read of kept memory: %q, %v", p, err)
	}
	for _, addr := range []uint64{0xf0000, 0xf1000} {
		if err := bus.WriteDMA(addr, p); err == nil || !strings.Contains(err.Error(), "does not allow") {
			t.Errorf("write to %#x: %v", addr, err)
		}
	}
	if err := c.MapFile(0x0, 0x1000, f, 0x2000, false); !errors.Is(err, unix.EINVAL) {
		t.Errorf("map behind the end of the file: %v, want EINVAL", err)
	}
}

// TestTruncatedFile takes the memory away from under a map: the copy fails,
// the process lives.
func TestTruncatedFile(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	f, err := vfiousertest.NewMemory(0x4000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.MapFile(0, 0x4000, f, 0, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0x2000); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 0x1000)
	if err := bus.ReadDMA(0x1000, p); err != nil {
		t.Errorf("what is left of the file: %v", err)
	}
	if err := bus.ReadDMA(0x1800, p); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("read: %v", err)
	}
	if err := bus.WriteDMA(0x2000, p); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("write: %v", err)
	}
	if err := c.Reset(); err != nil {
		t.Errorf("the server after it: %v", err)
	}
}

// TestUnmapDuringCopies remaps memory while the device copies: each copy finds
// the map or fails, and none finds a hole in the address space.
func TestUnmapDuringCopies(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	f, err := vfiousertest.NewMemory(0x10000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			p := make([]byte, 0x2000)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, err := range []error{bus.ReadDMA(0x4000, p), bus.WriteDMA(0x4000, p)} {
					if err != nil && !strings.Contains(err.Error(), "not mapped") {
						t.Errorf("copy: %v", err)
						return
					}
				}
			}
		})
	}
	for range 100 {
		if err := c.MapFile(0, 0x10000, f, 0, true); err != nil {
			t.Fatal(err)
		}
		if err := c.Unmap(0, 0x10000); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

// TestKeptMemory has the device reach memory by messages: from its own
// goroutine and in the middle of a request, in pieces, and several at a time.
func TestKeptMemory(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	const size = 3*wire.MaxTransfer + 0x1000
	if err := c.KeepMemory(0x100000, make([]byte, size), true); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcde"), size/15)
	if err := bus.WriteDMA(0x100000, data); err != nil || !bytes.Equal(c.Kept(0x100000, len(data)), data) {
		t.Fatalf("write in pieces: %v", err)
	}
	back := make([]byte, len(data))
	if err := bus.ReadDMA(0x100000, back); err != nil || !bytes.Equal(back, data) {
		t.Fatalf("read in pieces: %v", err)
	}
	if err := c.Write(RegionBAR0, regRead, le64(0x100000)); err != nil {
		t.Fatal(err)
	}
	if got := b.register(regData, 8); got != "01234567" {
		t.Errorf("in the middle of a request the device has read %q", got)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := make([]byte, 15)
			for k := range 50 {
				at := uint64(15 * (i + 8*k))
				if err := bus.ReadDMA(0x100000+at, p); err != nil || !bytes.Equal(p, data[at:][:15]) {
					t.Errorf("at %#x: %q, %v", at, p, err)
				}
			}
		})
	}
	wg.Wait()
	if err := c.Unmap(0x100000, size); err != nil {
		t.Error(err)
	}
	if err := bus.ReadDMA(0x100000, back); err == nil {
		t.Error("what was unmapped can be read")
	}
}

// TestSilentClient maps memory without a descriptor and does not answer for it.
func TestSilentClient(t *testing.T) {
	b := serve(t)
	c := dialRaw(t, b)
	defer c.Close()
	if err := c.Send(&wire.Message{Command: wire.Version, Payload: []byte(version)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Send(&wire.Message{Command: wire.DMAMap, Payload: wire.Encode(wire.DMAMapping{Flags: wire.MapReadable, Size: 0x1000})}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	bus := await(t, b.attached, "the device to be attached")
	read := make(chan error)
	start := func() *wire.Message {
		t.Helper()
		go func() { read <- bus.ReadDMA(0, make([]byte, 8)) }()
		m, err := c.Receive()
		if err != nil || m.Command != wire.DMARead {
			t.Fatalf("asked for %+v, %v", m, err)
		}
		return m
	}
	for _, tc := range []struct {
		name   string
		answer func(*wire.Message)
		want   string
	}{
		{"refusal", func(m *wire.Message) { m.Flags |= wire.FlagError; m.Errno = uint32(unix.EPERM) }, "operation not permitted"},
		{"other command", func(m *wire.Message) { m.Command = wire.DMAWrite }, "reply to command"},
		{"short", func(m *wire.Message) {}, "does not match"},
		{"other address", func(m *wire.Message) { m.Payload = append(wire.Encode(wire.DMAAccess{Addr: 8, Count: 8}), le64(1)...) }, "does not match"},
	} {
		m := start()
		stray := *m
		stray.ID, stray.Flags = m.ID+1000, wire.TypeReply // for nobody
		m.Flags = wire.TypeReply
		tc.answer(m)
		for _, m := range []*wire.Message{&stray, m, m} { // and once more than wanted
			if err := c.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := await(t, read, "the read to end"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an error about %q", tc.name, err, tc.want)
		}
	}
	start()
	c.Close()
	if err := await(t, read, "the read to end"); !errors.Is(err, wire.ErrDisconnected) {
		t.Errorf("read from a client that has left: %v", err)
	}
	await(t, b.detached, "the device to be detached")
}

func TestCallTimeout(t *testing.T) {
	client, server := socketPair(t)
	defer client.Close()
	defer server.Close()
	calls := wire.NewCaller(server, 1)
	if _, err := calls.Call(&wire.Message{Command: wire.DMARead}); err == nil || !strings.Contains(err.Error(), "not answered") {
		t.Errorf("a call that nobody answers: %v", err)
	}
}

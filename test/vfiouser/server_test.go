package vfiouser

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
	"ibup/test/vfiouser/vfiousertest"
)

// TestDriver does what a driver in a guest does: finds the device, gives it
// memory, has it copy, and is interrupted.
func TestDriver(t *testing.T) {
	b := serve(t)
	c, _ := b.connect(t)

	id := make([]byte, 4)
	if err := c.Read(RegionConfig, 0, id); err != nil || !bytes.Equal(id, []byte{0x34, 0x12, 0x78, 0x56}) {
		t.Fatalf("vendor and device %x, %v", id, err)
	}
	for region, want := range b.Regions() {
		size, readable, writable, err := c.RegionInfo(region)
		if err != nil || (Region{size, readable, writable}) != want {
			t.Errorf("region %d: size %#x, readable %v, writable %v, %v; want %+v", region, size, readable, writable, err, want)
		}
	}
	if n, err := c.Vectors(); err != nil || n != b.Vectors() {
		t.Errorf("%d vectors, %v; want %d", n, err, b.Vectors())
	}
	mem, err := c.ShareMemory(0x100000, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	irqs, err := c.EnableVectors(0, 3)
	if err != nil {
		t.Fatal(err)
	}

	copy(mem[0x1000:], "request!")
	if err := c.Post(RegionBAR0, regRead, le64(0x101000)); err != nil {
		t.Fatal(err)
	}
	if err := c.Post(RegionBAR0, regWrite, le64(0x102000)); err != nil {
		t.Fatal(err)
	}
	if err := c.Post(RegionBAR0, regFire, []byte{2}); err != nil {
		t.Fatal(err)
	}
	if n, err := irqs[2].Wait(patience); err != nil || n != 1 {
		t.Fatalf("%d interrupts, %v", n, err)
	}
	if got := string(mem[0x2000:0x2008]); got != "request!" {
		t.Errorf("the device has copied %q", got)
	}
	for i, irq := range irqs {
		if n, err := irq.Count(); err != nil || n != 0 {
			t.Errorf("vector %d: %d more interrupts, %v", i, n, err)
		}
	}
	p := make([]byte, 8)
	if err := c.Read(RegionBAR0, regData, p); err != nil || string(p) != "request!" {
		t.Errorf("the data register reads %q, %v", p, err)
	}
	if err := c.Reset(); err != nil {
		t.Error(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resets != 1 || b.lastErr != nil {
		t.Errorf("%d resets, want 1; error of the last copy: %v", b.resets, b.lastErr)
	}
}

func TestServeErrors(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Device: manyVectors{newTestDevice(t)}}
	if err := s.Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "2049 MSI-X vectors") {
		t.Errorf("a device with 2049 vectors: %v", err)
	}
	s.Device = newTestDevice(t)
	if err := s.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a listener that is closed: %v", err)
	}
}

type manyVectors struct{ *testDevice }

func (manyVectors) Vectors() int { return 2049 }

func TestWriteMulti(t *testing.T) {
	b := serve(t)
	c, _ := b.connect(t)
	err := c.WriteMulti(
		vfiousertest.OneWrite{Region: RegionBAR0, Offset: 0x10, Data: []byte("one")},
		vfiousertest.OneWrite{Region: RegionBAR0, Offset: 0x20, Data: []byte("tw")},
		vfiousertest.OneWrite{Region: RegionBAR0, Offset: 0x30, Data: []byte("thethird")})
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 0x40)
	if err := c.Read(RegionBAR0, 0, p); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(".", "\x00").Replace("................one.............tw..............thethird........")
	if string(p) != want {
		t.Errorf("registers %q, want %q", p, want)
	}
	// One that fails does not keep the others from being done.
	err = c.WriteMulti(
		vfiousertest.OneWrite{Region: RegionBAR0 + 2, Offset: 0, Data: []byte("no")},
		vfiousertest.OneWrite{Region: RegionBAR0, Offset: 0x10, Data: []byte("ONE")})
	if got := b.register(0x10, 3); !errors.Is(err, unix.EACCES) || got != "ONE" {
		t.Errorf("error %v, want EACCES; the other write: %q", err, got)
	}
}

func TestSecondClient(t *testing.T) {
	b := serve(t)
	first, bus := b.connect(t)
	if _, err := first.ShareMemory(0x1000, 0x1000); err != nil {
		t.Fatal(err)
	}
	connected := make(chan *vfiousertest.Client, 1)
	go func() {
		c, err := vfiousertest.Dial(b.socket)
		if err != nil {
			t.Error(err)
		}
		connected <- c
	}()
	if err := bus.ReadDMA(0x1000, make([]byte, 8)); err != nil {
		t.Errorf("while another client waits: %v", err)
	}
	select {
	case <-b.attached:
		t.Error("the device has two buses")
	default:
	}
	first.Close()
	await(t, b.detached, "the device to be detached")
	await(t, b.attached, "the second client's turn")
	if c := await(t, connected, "the second client"); c != nil {
		defer c.Close()
		if _, err := c.ShareMemory(0x1000, 0x1000); err != nil {
			t.Errorf("the first client's map is still there: %v", err)
		}
	}
	if err := bus.ReadDMA(0x1000, make([]byte, 8)); err == nil {
		t.Error("the first client's memory can be read after it has left")
	}
	bus.Interrupt(0)
	if len(b.failed) > 0 {
		t.Errorf("a client that leaves is a failure: %v", <-b.failed)
	}
}

func TestContextEnds(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	if _, err := c.ShareMemory(0x1000, 0x1000); err != nil {
		t.Fatal(err)
	}
	b.stop()
	if err := await(t, b.served, "Serve to return"); err != nil {
		t.Errorf("Serve: %v", err)
	}
	select {
	case <-b.detached:
	default:
		t.Error("Serve has returned before the device was detached")
	}
	if err := c.Reset(); err == nil {
		t.Error("the client is still served")
	}
	if err := bus.ReadDMA(0x1000, make([]byte, 8)); err == nil {
		t.Error("guest memory is still mapped")
	}
	if _, err := net.Dial("unix", b.socket); err == nil {
		t.Error("the socket still takes connections")
	}
	if len(b.failed) > 0 {
		t.Errorf("the end is reported as a failure: %v", <-b.failed)
	}
}

// raw is a client that does as it is told.
type raw struct {
	*wire.Conn
	u *net.UnixConn
}

func dialRaw(t testing.TB, b *bench) raw {
	t.Helper()
	u, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return raw{wire.NewConn(u), u}
}

// version is a payload that the server agrees to.
var version = string(wire.EncodeVersion(0, wire.Capabilities{MaxTransfer: 4096, WriteMultiple: true}))

func TestVersion(t *testing.T) {
	b := serve(t)
	for _, tc := range []struct {
		name, payload string
		minor         uint16
		multi         bool
	}{
		{"as QEMU", "\x00\x00\x00\x00" + `{"capabilities":{"migration":{"pgsize":4096,"max_bitmap_size":268435456},` +
			`"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,"max_dma_maps":65535,"write_multiple":true}}` + "\x00", 0, true},
		{"no data", "\x00\x00\x01\x00", 1, false},
		{"a later minor", "\x00\x00\x07\x00" + `{"capabilities":{"twin_socket":{"supported":true}}}` + "\x00", 1, false},
	} {
		c := dialRaw(t, b)
		if err := c.Send(&wire.Message{ID: 77, Command: wire.Version, Payload: []byte(tc.payload)}); err != nil {
			t.Fatal(err)
		}
		m, err := c.Receive()
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		v, caps, err := wire.DecodeVersion(m.Payload)
		if err != nil || m.ID != 77 || m.Flags != wire.TypeReply || v.Major != 0 || v.Minor != tc.minor || caps.WriteMultiple != tc.multi {
			t.Errorf("%s: reply %+v, version %v, %+v, %v", tc.name, m, v, caps, err)
		}
		if bytes.Contains(m.Payload, []byte("twin")) || bytes.Contains(m.Payload, []byte("migr")) {
			t.Errorf("%s: %s", tc.name, m.Payload)
		}
		// QEMU's buffer for the reply is as long as its request.
		if tc.name == "as QEMU" && len(m.Payload) > len(tc.payload) {
			t.Errorf("%s: reply of %d bytes to %d", tc.name, len(m.Payload), len(tc.payload))
		}
		c.Close()
	}
}

// TestMalformed sends what ends a connection, with the reason, and finds the
// server well afterwards.
func TestMalformed(t *testing.T) {
	b := serve(t)
	memory, err := vfiousertest.NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	fd := int(memory.Fd())
	fds := func(n int) (all []int) {
		for range n {
			all = append(all, fd)
		}
		return all
	}
	for _, tc := range []struct {
		name    string
		greet   bool // with a VERSION before
		message wire.Message
		want    string
	}{
		{"no version", false, wire.Message{Command: wire.DeviceReset}, "comes first"},
		{"version twice", true, wire.Message{Command: wire.Version, Payload: []byte(version)}, "comes first, and once"},
		{"major version", false, wire.Message{Command: wire.Version, Payload: []byte{1, 0, 0, 0}}, "version 1.0"},
		{"short version", false, wire.Message{Command: wire.Version, Payload: []byte{0}}, "too short"},
		{"no NUL", false, wire.Message{Command: wire.Version, Payload: []byte("\x00\x00\x00\x00{}")}, "NUL"},
		{"no JSON", false, wire.Message{Command: wire.Version, Payload: []byte("\x00\x00\x00\x00{]\x00")}, "version data"},
		{"no transfers", false, wire.Message{Command: wire.Version, Payload: wire.EncodeVersion(0, wire.Capabilities{})}, "max_data_xfer_size"},
		{"neither request nor reply", true, wire.Message{Command: wire.DeviceReset, Flags: 2}, "neither"},
		{"short map", true, wire.Message{Command: wire.DMAMap, Payload: make([]byte, 31)}, "too short"},
		{"short unmap", true, wire.Message{Command: wire.DMAUnmap, Payload: make([]byte, 23)}, "too short"},
		{"short device info", true, wire.Message{Command: wire.DeviceGetInfo}, "too short"},
		{"short region info", true, wire.Message{Command: wire.DeviceGetRegion}, "too short"},
		{"short interrupt info", true, wire.Message{Command: wire.DeviceGetIRQ}, "too short"},
		{"short interrupt set", true, wire.Message{Command: wire.DeviceSetIRQs, Payload: make([]byte, 19)}, "too short"},
		{"short read", true, wire.Message{Command: wire.RegionRead, Payload: make([]byte, 15)}, "too short"},
		{"write without its data", true, wire.Message{Command: wire.RegionWrite, Payload: wire.Encode(wire.RegionAccess{Count: 4})}, "count 4"},
		{"fewer writes than said", true, wire.Message{Command: wire.RegionWriteMulti, Payload: wire.Encode(uint64(1<<63), wire.OneWrite{})}, "too short"},
		{"write too long among several", true, wire.Message{Command: wire.RegionWriteMulti,
			Payload: wire.Encode(uint64(1), wire.OneWrite{RegionAccess: wire.RegionAccess{Count: 9}})}, "9 bytes"},
		{"descriptor with a read", true, wire.Message{Command: wire.RegionRead, Payload: make([]byte, 16), FDs: fds(1)}, "1 descriptors"},
		{"two descriptors with a map", true, wire.Message{Command: wire.DMAMap, Payload: make([]byte, 32), FDs: fds(2)}, "2 descriptors"},
		{"too many descriptors", true, wire.Message{Command: wire.DeviceSetIRQs, FDs: fds(17)}, "more than 16"},
		{"far too many descriptors", true, wire.Message{Command: wire.DeviceSetIRQs, FDs: fds(200)}, "more than 16"},
		{"descriptors that do not match", true, wire.Message{Command: wire.DeviceSetIRQs, FDs: fds(2),
			Payload: wire.Encode(wire.IRQSet{Flags: wire.IRQDataEventFD | wire.IRQTrigger, Index: wire.IRQMSIX, Count: 3})}, "2 descriptors for 3"},
		{"descriptors with booleans", true, wire.Message{Command: wire.DeviceSetIRQs, FDs: fds(1),
			Payload: wire.Encode(wire.IRQSet{Flags: wire.IRQDataBool | wire.IRQTrigger, Index: wire.IRQMSIX, Count: 1}, true)}, "descriptors with"},
		{"booleans that do not match", true, wire.Message{Command: wire.DeviceSetIRQs,
			Payload: wire.Encode(wire.IRQSet{Flags: wire.IRQDataBool | wire.IRQTrigger, Index: wire.IRQMSIX, Count: 2}, true)}, "1 booleans for 2"},
		{"message too long", true, wire.Message{Command: wire.RegionWrite, Payload: make([]byte, wire.MaxTransfer+1024)}, "size of"},
	} {
		c := dialRaw(t, b)
		if tc.greet {
			if err := c.Send(&wire.Message{Command: wire.Version, Payload: []byte(version)}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Receive(); err != nil {
				t.Fatal(err)
			}
		}
		// An error means that the server has closed early, which is its right.
		_ = c.Send(&tc.message)
		if m, err := c.Receive(); err == nil {
			t.Errorf("%s: answered with %+v", tc.name, m)
		}
		c.Close()
		if err := await(t, b.failed, "a failure: "+tc.name); !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: failure %v, want one about %q", tc.name, err, tc.want)
		}
	}
	for _, half := range []string{"\x01", "\x01\x00\x01\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00half"} {
		c := dialRaw(t, b)
		if _, err := c.u.Write([]byte(half)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := await(t, b.failed, "a failure"); !strings.Contains(err.Error(), "unexpected EOF") {
			t.Errorf("%d bytes of a message: failure %v", len(half), err)
		}
	}
	c, _ := b.connect(t)
	if err := c.Reset(); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestRefused sends what the server says no to and goes on.
func TestRefused(t *testing.T) {
	b := serve(t)
	c := dialRaw(t, b)
	defer c.Close()
	if err := c.Send(&wire.Message{Command: wire.Version, Payload: []byte("\x00\x00\x01\x00")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); err != nil {
		t.Fatal(err)
	}
	msix := func(flags, start, count uint32) []byte {
		return wire.Encode(wire.IRQSet{Flags: flags, Index: wire.IRQMSIX, Start: start, Count: count})
	}
	region := func(region uint32, off uint64, count uint32) []byte {
		return wire.Encode(wire.RegionAccess{Offset: off, Region: region, Count: count})
	}
	for _, tc := range []struct {
		name    string
		command wire.Command
		payload []byte
		want    unix.Errno
	}{
		{"region descriptors", wire.DeviceGetRegionFDs, make([]byte, 16), unix.ENOTSUP},
		{"dirty pages", 14, nil, unix.ENOTSUP},
		{"a command of the future", 99, nil, unix.ENOTSUP},
		{"several writes, not negotiated", wire.RegionWriteMulti, make([]byte, 8), unix.ENOTSUP},
		{"device info without room", wire.DeviceGetInfo, wire.Encode(wire.DeviceInfo{ArgSize: 15}), unix.EINVAL},
		{"region info without room", wire.DeviceGetRegion, wire.Encode(wire.RegionInfo{ArgSize: 31}), unix.EINVAL},
		{"region 9", wire.DeviceGetRegion, wire.Encode(wire.RegionInfo{ArgSize: 32, Index: 9}), unix.EINVAL},
		{"error interrupt", wire.DeviceGetIRQ, wire.Encode(wire.IRQInfo{ArgSize: 16, Index: wire.IRQError}), unix.EINVAL},
		{"interrupt type 5", wire.DeviceSetIRQs, wire.Encode(wire.IRQSet{Flags: wire.IRQDataNone | wire.IRQTrigger, Index: 5}), unix.EINVAL},
		{"INTx", wire.DeviceSetIRQs, wire.Encode(wire.IRQSet{Flags: wire.IRQDataNone | wire.IRQTrigger, Index: wire.IRQINTx, Count: 1}), unix.EINVAL},
		{"vector 8", wire.DeviceSetIRQs, msix(wire.IRQDataNone|wire.IRQTrigger, 8, 1), unix.EINVAL},
		{"vectors beyond all", wire.DeviceSetIRQs, msix(wire.IRQDataNone|wire.IRQTrigger, 1, 1<<32-1), unix.EINVAL},
		{"two actions", wire.DeviceSetIRQs, msix(wire.IRQDataNone|wire.IRQMask|wire.IRQUnmask, 0, 1), unix.EINVAL},
		{"no data flag", wire.DeviceSetIRQs, msix(wire.IRQTrigger, 0, 1), unix.EINVAL},
		{"eventfd for a mask", wire.DeviceSetIRQs, msix(wire.IRQDataEventFD|wire.IRQMask, 0, 1), unix.EINVAL},
		{"read of region 9", wire.RegionRead, region(9, 0, 4), unix.EINVAL},
		{"read behind the end", wire.RegionRead, region(RegionConfig, 4093, 4), unix.EINVAL},
		{"read at the end of numbers", wire.RegionRead, region(RegionConfig, 1<<64-1, 4), unix.EINVAL},
		{"read of more than negotiated", wire.RegionRead, region(RegionBAR0, 0, wire.MaxTransfer+1), unix.EINVAL},
		{"read of an absent region", wire.RegionRead, region(RegionROM, 0, 1), unix.EINVAL},
		{"write to a read-only region", wire.RegionWrite, append(region(RegionBAR0+2, 0, 1), 1), unix.EACCES},
		{"write that the device refuses", wire.RegionWrite, append(region(RegionBAR0, regFail, 1), 1), unix.EIO},
		{"map of nothing", wire.DMAMap, wire.Encode(wire.DMAMapping{Addr: 0x1000}), unix.EINVAL},
		{"map beyond the end", wire.DMAMap, wire.Encode(wire.DMAMapping{Addr: 1<<64 - 0x1000, Size: 0x2000}), unix.EINVAL},
		{"half a page", wire.DMAMap, wire.Encode(wire.DMAMapping{Addr: 0x1000, Size: 0x800}), unix.EINVAL},
		{"unmap of what is not there", wire.DMAUnmap, wire.Encode(wire.DMAUnmapping{Addr: 0x1000, Size: 0x1000}), unix.ENOENT},
		{"unmap with a bitmap", wire.DMAUnmap, wire.Encode(wire.DMAUnmapping{Flags: 1}), unix.ENOTSUP},
	} {
		if err := c.Send(&wire.Message{ID: 7, Command: tc.command, Payload: tc.payload}); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		m, err := c.Receive()
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if m.ID != 7 || m.Command != tc.command || m.Flags != wire.TypeReply|wire.FlagError || unix.Errno(m.Errno) != tc.want || len(m.Payload) != 0 {
			t.Errorf("%s: reply %+v, want errno %d, %v", tc.name, m, tc.want, tc.want)
		}
	}
	// A posted write gets no reply, not even a refusal: what comes next is the
	// answer to what was asked next.
	for _, m := range []wire.Message{
		{ID: 1, Command: wire.RegionWrite, Flags: wire.FlagNoReply, Payload: append(region(RegionBAR0+2, 0, 1), 1)},
		{ID: 2, Command: wire.RegionWrite, Flags: wire.FlagNoReply, Payload: append(region(RegionBAR0, 0, 1), 1)},
		{ID: 3, Command: wire.DeviceReset},
	} {
		if err := c.Send(&m); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := c.Receive(); err != nil || m.ID != 3 || m.Flags != wire.TypeReply {
		t.Errorf("after posted writes: %+v, %v", m, err)
	}
}

// TestNoDescriptorLeak counts this process's descriptors over many clients,
// good and bad.
func TestNoDescriptorLeak(t *testing.T) {
	b := serve(t)
	memory, err := vfiousertest.NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	fd := int(memory.Fd())
	visits := []func(c raw){
		func(raw) {}, // leaves at once
		func(c raw) { // leaves with a descriptor under way
			_ = c.Send(&wire.Message{Command: wire.DMAMap, Payload: make([]byte, 32), FDs: []int{fd}})
		},
		func(c raw) { // descriptors for vectors, twice
			for range 2 {
				_ = c.Send(&wire.Message{Command: wire.DeviceSetIRQs, FDs: []int{fd, fd, fd},
					Payload: wire.Encode(wire.IRQSet{Flags: wire.IRQDataEventFD | wire.IRQTrigger, Index: wire.IRQMSIX, Start: 1, Count: 3})})
			}
		},
		func(c raw) { // a map, the same again, and one with a wrong size
			for _, size := range []uint64{4096, 4096, 8192} {
				_ = c.Send(&wire.Message{Command: wire.DMAMap, FDs: []int{fd},
					Payload: wire.Encode(wire.DMAMapping{Flags: wire.MapReadable, Addr: 0x10000, Size: size})})
			}
		},
		func(c raw) { // too many
			_ = c.Send(&wire.Message{Command: wire.DeviceSetIRQs, FDs: []int{
				fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd, fd}})
		},
	}
	count := func() int {
		t.Helper()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	var before int
	for i := range 1000 + len(visits) {
		if i == len(visits) {
			before = count()
		}
		c := dialRaw(t, b)
		if err := c.Send(&wire.Message{Command: wire.Version, Payload: []byte(version)}); err != nil {
			t.Fatal(err)
		}
		visits[i%len(visits)](c)
		c.Close()
		await(t, b.attached, "the device to be attached")
		await(t, b.detached, "the device to be detached")
	}
	// The last session may be closing what it had: a client after it waits.
	c, _ := b.connect(t)
	c.Close()
	await(t, b.detached, "the device to be detached")
	b.stop()
	await(t, b.served, "Serve to return")
	if after := count(); after > before {
		t.Errorf("%d descriptors were open, now %d", before, after)
	}
}

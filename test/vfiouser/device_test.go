package vfiouser

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"ibup/test/pci"
	"ibup/test/vfiouser/vfiousertest"
)

// patience is for what takes no time unless the machine is busy.
const patience = 30 * time.Second

const (
	barSize = 64 << 10
	// regRead and regWrite take a bus address: 8 bytes are copied from there
	// to regData, or the other way round, before the write is over.
	regRead  = 0x100
	regWrite = 0x108
	regData  = 0x110
	// regFire takes the number of a vector.
	regFire = 0x118
	// regFail refuses every write.
	regFail = 0x120
)

// testDevice has registers in BAR 0, a read-only BAR 2, and what a driver
// does with them in memory.
type testDevice struct {
	mu       sync.Mutex
	config   *pci.Config
	bar      [barSize]byte
	bus      Bus
	resets   int
	lastErr  error     // of the last copy
	attached chan Bus  // one for each Attach
	detached chan bool // one for each Detach
}

func newTestDevice(t testing.TB) *testDevice {
	c, err := pci.New(pci.Function{
		VendorID: 0x1234, DeviceID: 0x5678, Class: pci.ClassEthernet,
		BARs: [6]pci.BAR{0: {Size: barSize, Wide: true}, 2: {Size: 4096}},
		MSIX: &pci.MSIX{Vectors: 8, Table: pci.Location{Offset: 0x2000}, PBA: pci.Location{Offset: 0x3000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &testDevice{config: c, attached: make(chan Bus, 2000), detached: make(chan bool, 2000)}
}

func (d *testDevice) Regions() [NumRegions]Region {
	return [NumRegions]Region{
		RegionBAR0:     {Size: barSize, Readable: true, Writable: true},
		RegionBAR0 + 2: {Size: 4096, Readable: true},
		RegionConfig:   {Size: pci.Size, Readable: true, Writable: true},
	}
}

func (d *testDevice) Vectors() int { return 8 }

func (d *testDevice) ReadRegion(region int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch region {
	case RegionConfig:
		return d.config.Read(off, p)
	case RegionBAR0:
		copy(p, d.bar[off:])
	}
	return nil
}

func (d *testDevice) WriteRegion(region int, off uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if region == RegionConfig {
		_, err := d.config.Write(off, p)
		return err
	}
	copy(d.bar[off:], p)
	if len(p) > 8 {
		return nil
	}
	value := binary.LittleEndian.Uint64(append(append([]byte{}, p...), make([]byte, 8)...))
	switch off {
	case regRead:
		d.lastErr = d.bus.ReadDMA(value, d.bar[regData:][:8])
	case regWrite:
		d.lastErr = d.bus.WriteDMA(value, d.bar[regData:][:8])
	case regFire:
		d.bus.Interrupt(int(value))
	case regFail:
		return errors.New("the device does not like that")
	}
	return nil
}

func (d *testDevice) Attach(b Bus) {
	d.mu.Lock()
	d.bus = b
	d.mu.Unlock()
	d.attached <- b
}

func (d *testDevice) Detach() {
	d.mu.Lock()
	d.bus = nil
	d.mu.Unlock()
	d.detached <- true
}

func (d *testDevice) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	d.config.Reset()
}

// register returns n bytes of BAR 0.
func (d *testDevice) register(off, n int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.bar[off:][:n])
}

// bench is a served device.
type bench struct {
	*testDevice
	socket string
	failed chan error // what Server.Failed was told
	served chan error // what Serve returned
	stop   context.CancelFunc
}

func serve(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		testDevice: newTestDevice(t), socket: filepath.Join(t.TempDir(), "device"),
		failed: make(chan error, 5000), served: make(chan error, 1),
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	server := Server{Device: b.testDevice, Failed: func(err error) { b.failed <- err }}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.served <- server.Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		await(t, done, "Serve to return")
	})
	return b
}

// connect returns a client and the bus that it is for the device.
func (b *bench) connect(t testing.TB) (*vfiousertest.Client, Bus) {
	t.Helper()
	c, err := vfiousertest.Dial(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, await(t, b.attached, "the device to be attached")
}

func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
		panic("unreachable")
	}
}

func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

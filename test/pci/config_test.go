package pci

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// adapter is a function with every part.
func adapter() Function {
	return Function{
		VendorID: 0x15b3, DeviceID: 0x1017, SubsystemVendorID: 0x15b3, SubsystemDeviceID: 8,
		Class:           ClassInfiniBand,
		BARs:            [6]BAR{0: {Size: 32 << 20, Wide: true, Prefetchable: true}},
		PowerManagement: true,
		Express:         &Express{Speed: Speed8GT, Width: 16, FLR: true},
		MSIX:            &MSIX{Vectors: 32, Table: Location{0, 0x2000}, PBA: Location{0, 0x4000}},
		VPD:             &VPD{Name: "an adapter", Fields: []VPDField{{"PN", "MCX555A"}, {"SN", "MT1234X"}}},
		SerialNumber:    0x0002c90300a10000,
	}
}

func newConfig(t testing.TB, f Function) *Config {
	t.Helper()
	c, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Config) get(t testing.TB, off, size int) uint64 {
	t.Helper()
	var b [8]byte
	if err := c.Read(uint64(off), b[:size]); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (c *Config) set(t testing.TB, off, size int, v uint64) bool {
	t.Helper()
	var b [8]byte
	put(b[:], size, v)
	reset, err := c.Write(uint64(off), b[:size])
	if err != nil {
		t.Fatal(err)
	}
	return reset
}

// The numbers are those of the specifications, not of the constants: this is
// what a driver reads.
func TestRegistersAtReset(t *testing.T) {
	c := newConfig(t, adapter())
	for _, r := range []struct {
		name      string
		off, size int
		want      uint64
	}{
		{"vendor and device", 0x00, 4, 0x101715b3},
		{"command", 0x04, 2, 0},
		{"status", 0x06, 2, 0x10},
		{"revision and class", 0x08, 4, 0x02070000},
		{"header type", 0x0e, 1, 0},
		{"BAR 0", 0x10, 8, 0xc},
		{"BAR 2", 0x18, 8, 0},
		{"subsystem", 0x2c, 4, 0x000815b3},
		{"interrupt pin", 0x3d, 1, 0},
		{"MSI-X control", 0x9e, 2, 31},
		{"MSI-X table", 0xa0, 4, 0x2000},
		{"MSI-X PBA", 0xa4, 4, 0x4000},
		{"link capabilities: 8 GT/s x16", 0x6c, 4, 0x103},
		{"link status", 0x72, 2, 0x1103},
		{"serial number header", 0x100, 4, 0x00010003},
		{"serial number", 0x104, 8, 0x0002c90300a10000},
	} {
		if got := c.get(t, r.off, r.size); got != r.want {
			t.Errorf("%s: %#x, want %#x", r.name, got, r.want)
		}
	}
}

// walk returns the offsets of the capabilities by ID, in the order of the
// chain.
func walk(t testing.TB, c *Config) (ids []byte) {
	if c.get(t, 6, 2)&0x10 == 0 {
		return nil
	}
	for at := c.get(t, 0x34, 1); at != 0; at = c.get(t, int(at)+1, 1) {
		if at < 0x40 || at%4 != 0 || len(ids) > 48 {
			t.Fatalf("capability chain leads to %#x after %x", at, ids)
		}
		ids = append(ids, byte(c.get(t, int(at), 1)))
	}
	return ids
}

func TestCapabilityChain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Function)
		want   []byte
	}{
		{"all", func(*Function) {}, []byte{1, 3, 0x10, 0x11}},
		{"no VPD", func(f *Function) { f.VPD = nil }, []byte{1, 0x10, 0x11}},
		{"no MSI-X", func(f *Function) { f.MSIX = nil }, []byte{1, 3, 0x10}},
		{"only Express", func(f *Function) { f.PowerManagement, f.VPD, f.MSIX = false, nil, nil }, []byte{0x10}},
		{"none", func(f *Function) { f.PowerManagement, f.VPD, f.MSIX, f.Express = false, nil, nil, nil }, nil},
	} {
		f := adapter()
		tc.change(&f)
		if got := walk(t, newConfig(t, f)); !bytes.Equal(got, tc.want) {
			t.Errorf("%s: chain %x, want %x", tc.name, got, tc.want)
		}
	}
}

func TestBARSizing(t *testing.T) {
	f := adapter()
	f.BARs[2] = BAR{Size: 4096}
	f.BARs[4] = BAR{Size: 1 << 40, Wide: true}
	c := newConfig(t, f)
	for _, b := range []struct {
		off, size   int
		flags, want uint64
	}{
		{0x10, 8, 0xc, 32 << 20},
		{0x18, 4, 0, 4096},
		{0x1c, 4, 0, 0},
		{0x20, 8, 4, 1 << 40},
	} {
		c.set(t, b.off, 4, 0xffffffff)
		if b.size == 8 {
			c.set(t, b.off+4, 4, 0xffffffff)
		}
		got := c.get(t, b.off, b.size)
		if got&0xf != b.flags {
			t.Errorf("BAR at %#x has type bits %#x, want %#x", b.off, got&0xf, b.flags)
		}
		size := -(got &^ 0xf)
		if b.size == 4 {
			size = uint64(-uint32(got &^ 0xf))
		}
		if size != b.want {
			t.Errorf("BAR at %#x sizes to %#x, want %#x", b.off, size, b.want)
		}
	}
	c.set(t, 0x10, 8, 0x8_0200_0000)
	if got := c.get(t, 0x10, 8); got != 0x8_0200_000c {
		t.Errorf("BAR 0 holds %#x after an address was written", got)
	}
}

func TestCommand(t *testing.T) {
	c := newConfig(t, adapter())
	for _, tc := range []struct {
		write, read    uint64
		memory, master bool
	}{
		{0xffff, 0x0546, true, true},
		{2, 2, true, false},
		{4, 4, false, true},
		{0, 0, false, false},
	} {
		c.set(t, 4, 2, tc.write)
		if got := c.get(t, 4, 2); got != tc.read || c.MemoryEnabled() != tc.memory || c.BusMaster() != tc.master {
			t.Errorf("command %#x reads %#x, memory %v, master %v; want %+v", tc.write, got, c.MemoryEnabled(), c.BusMaster(), tc)
		}
	}
}

func TestReset(t *testing.T) {
	c := newConfig(t, adapter())
	before := c.data
	c.set(t, 4, 2, 6)
	c.set(t, 0x10, 8, 0x8_0200_0000)
	c.set(t, 0x9e, 2, 0x8000)
	if got := c.get(t, 0x9e, 2); got != 0x801f {
		t.Fatalf("MSI-X control %#x, want enabled with 32 vectors", got)
	}
	c.Reset()
	if c.data != before {
		t.Error("a reset leaves something of what was written")
	}
}

func TestFunctionLevelReset(t *testing.T) {
	c := newConfig(t, adapter())
	const control = 0x68
	if c.set(t, control, 2, 0x2810) {
		t.Error("a write without the bit asks for a reset")
	}
	if !c.set(t, control, 2, 0xa810) {
		t.Error("the bit does not ask for a reset")
	}
	if got := c.get(t, control, 2); got != 0x2810 {
		t.Errorf("device control %#x after it: the bit must read as zero", got)
	}
	f := adapter()
	f.Express.FLR = false
	if newConfig(t, f).set(t, control, 2, 0x8000) {
		t.Error("a function without FLR is reset by it")
	}
	f.Express = nil
	if newConfig(t, f).set(t, control, 2, 0x8000) {
		t.Error("a function without PCI Express is reset by FLR")
	}
}

// readVPD reads as drivers/pci/vpd.c does.
func readVPD(t testing.TB, c *Config, n int) []byte {
	var p []byte
	for a := 0; a < n; a += 4 {
		c.set(t, 0x4a, 2, uint64(a))
		if c.get(t, 0x4a, 2) != uint64(a)|0x8000 {
			t.Fatalf("VPD access at %d does not end", a)
		}
		p = binary.LittleEndian.AppendUint32(p, uint32(c.get(t, 0x4c, 4)))
	}
	return p
}

func TestVPD(t *testing.T) {
	c := newConfig(t, adapter())
	p := readVPD(t, c, 64)
	want := "\x82\x0a\x00an adapter\x90\x18\x00PN\x07MCX555ASN\x07MT1234XRV\x01"
	if !strings.HasPrefix(string(p), want) {
		t.Fatalf("VPD %q, want %q and a checksum", p, want)
	}
	var sum byte
	for _, b := range p[:len(want)+1] {
		sum += b
	}
	if sum != 0 || p[len(want)+1] != 0x78 {
		t.Errorf("sum %#x, want 0; end tag %#x, want 0x78", sum, p[len(want)+1])
	}
	c.set(t, 0x4c, 4, 0xffffffff)
	c.set(t, 0x4a, 2, 0x8000)
	if c.get(t, 0x4a, 2)&0x8000 != 0 {
		t.Error("a VPD write does not end")
	}
	if !bytes.Equal(readVPD(t, c, 64), p) {
		t.Error("VPD can be written")
	}
}

func TestImpossibleFunctions(t *testing.T) {
	for want, change := range map[string]func(*Function){
		"24 bits":          func(f *Function) { f.Class = 1 << 24 },
		"power of two":     func(f *Function) { f.BARs[0].Size = 3 << 20 },
		"at least 128":     func(f *Function) { f.BARs[0].Size = 64 },
		"upper half":       func(f *Function) { f.BARs[1].Size = 4096 },
		"no room":          func(f *Function) { f.BARs[5] = BAR{Size: 4096, Wide: true} },
		"needs 64 bits":    func(f *Function) { f.BARs[2].Size = 1 << 32 },
		"vectors":          func(f *Function) { f.MSIX.Vectors = 2049 },
		"no BAR 6":         func(f *Function) { f.MSIX.Table.BAR = 6 },
		"fit in BAR 0":     func(f *Function) { f.MSIX.PBA.Offset = 32<<20 - 4 },
		"fit in BAR 2":     func(f *Function) { f.MSIX.Table.BAR = 2 },
		"lanes":            func(f *Function) { f.Express.Width = 3 },
		"link speed":       func(f *Function) { f.Express.Speed = 0 },
		"keyword of 2":     func(f *Function) { f.VPD.Fields[0].Keyword = "PNX" },
		"VPD of 40":        func(f *Function) { f.VPD.Name = strings.Repeat("x", 40000) },
		"up to 255 bytes ": func(f *Function) { f.VPD.Fields[0].Value = strings.Repeat("x", 256) },
	} {
		f := adapter()
		change(&f)
		if _, err := New(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}

func TestAccessOutside(t *testing.T) {
	c := newConfig(t, adapter())
	for _, a := range []struct {
		off uint64
		n   int
	}{{4095, 2}, {4096, 1}, {1<<64 - 1, 2}, {0, 4097}} {
		if err := c.Read(a.off, make([]byte, a.n)); err == nil {
			t.Errorf("read %#x+%d succeeds", a.off, a.n)
		}
		if _, err := c.Write(a.off, make([]byte, a.n)); err == nil {
			t.Errorf("write %#x+%d succeeds", a.off, a.n)
		}
	}
	if err := c.Read(0, make([]byte, Size)); err != nil {
		t.Errorf("read of everything: %v", err)
	}
}

// FuzzAccess writes what it likes, wherever: identity, capabilities and the
// meaning of sizes must survive, and what is read must be what the masks allow.
func FuzzAccess(f *testing.F) {
	f.Add([]byte{0x04, 0, 2, 0xff, 0xff, 0x10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0x69, 0, 1, 0x80, 0x4a, 0, 4, 0, 0, 0, 0})
	f.Add([]byte{0xff, 0x0f, 1, 1, 0x00, 0x10, 4, 1, 1, 1, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		c := newConfig(t, adapter())
		fresh := c.data
		for len(ops) > 3 {
			off, n := uint64(binary.LittleEndian.Uint16(ops)), int(ops[2])
			ops = ops[3:]
			n = min(n, len(ops))
			_, err := c.Write(off, ops[:n])
			if inside := off+uint64(n) <= Size; inside != (err == nil) {
				t.Fatalf("write %#x+%d: %v", off, n, err)
			}
			ops = ops[n:]
		}
		for i := range c.data {
			if i >= 0x4c && i < 0x50 {
				continue // VPD data follow the address
			}
			if (c.data[i]^fresh[i])&^c.writable[i] != 0 {
				t.Errorf("byte %#x has become %#x, writable bits %#x", i, c.data[i], c.writable[i])
			}
		}
		if got := walk(t, c); !bytes.Equal(got, []byte{1, 3, 0x10, 0x11}) {
			t.Errorf("capability chain %x", got)
		}
		c.Reset()
		if c.data != fresh {
			t.Error("a reset leaves something of what was written")
		}
	})
}

func TestVendorSpecificRegistersAreTheDevices(t *testing.T) {
	regs := map[int]uint32{4: 0x11223344}
	c, err := New(Function{VendorSpecific: &VendorSpecific{
		Length: 0x18,
		Read:   func(off int) uint32 { return regs[off] },
		Write:  func(off int, v uint32) { regs[off] = v },
	}})
	if err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	read := func(off uint64) uint32 {
		t.Helper()
		if err := c.Read(off, b[:]); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint32(b[:])
	}
	if got := read(capVendor); got != 0x180009 {
		t.Errorf("head %#x", got)
	}
	if got := read(capVendor + 4); got != 0x11223344 {
		t.Errorf("register %#x", got)
	}
	if _, err := c.Write(capVendor+0x14, []byte{1, 0, 0, 0}); err != nil || read(capVendor+0x14) != 1 {
		t.Errorf("written register %#x, %v", regs[0x14], err)
	}
	if got := read(capVendor + 0x18); got != 0 {
		t.Errorf("behind the capability %#x", got)
	}
	if _, err := New(Function{VendorSpecific: &VendorSpecific{Length: 0x19}}); err == nil {
		t.Error("an odd length is taken")
	}
}

func TestSetClassOutlivesAReset(t *testing.T) {
	c, err := New(Function{Class: ClassInfiniBand, Revision: 3})
	if err != nil {
		t.Fatal(err)
	}
	c.SetClass(ClassEthernet)
	for range 2 {
		var b [4]byte
		if err := c.Read(regRevision, b[:]); err != nil {
			t.Fatal(err)
		}
		if got := binary.LittleEndian.Uint32(b[:]); got != ClassEthernet<<8|3 {
			t.Errorf("class and revision %#x", got)
		}
		c.Reset()
	}
}

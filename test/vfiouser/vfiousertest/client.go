// Package vfiousertest is a vfio-user client for tests: what a virtual machine
// monitor does, without the machine.
package vfiousertest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
)

// timeout is how long a server may take to answer.
const timeout = 30 * time.Second

// Client is a connection to a server. Its methods may be called from any
// goroutine.
type Client struct {
	conn   *wire.Conn
	caller *wire.Caller
	done   chan struct{} // closed when the connection has ended

	mu     sync.Mutex
	shared [][]byte // mapped here and by the server
	kept   []keptMemory
}

// keptMemory is memory that the server reaches by messages only.
type keptMemory struct {
	addr uint64
	data []byte
}

// Dial connects to a server and agrees on a version with it.
func Dial(socket string) (*Client, error) {
	u, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	conn := wire.NewConn(u)
	c := &Client{conn: conn, caller: wire.NewCaller(conn, timeout), done: make(chan struct{})}
	go c.receive()
	if _, err := c.call(wire.Version, wire.EncodeVersion(wire.Minor, wire.Capabilities{
		MaxFDs: wire.MaxFDs, MaxTransfer: wire.MaxTransfer, MaxMaps: wire.MaxMaps,
		PageSizes: wire.PageSize, WriteMultiple: true,
	})); err != nil {
		c.Close()
		return nil, fmt.Errorf("version: %w", err)
	}
	return c, nil
}

// Close disconnects. The memory that ShareMemory has returned is gone then.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.shared {
		unix.Munmap(p)
	}
	c.shared = nil
	return err
}

// receive delivers replies and serves the memory that c keeps.
func (c *Client) receive() {
	defer close(c.done)
	defer c.caller.Close()
	for {
		m, err := c.conn.Receive()
		if err != nil {
			return
		}
		if m.Flags&wire.TypeMask == wire.TypeReply {
			c.caller.Deliver(m)
			continue
		}
		reply := &wire.Message{ID: m.ID, Command: m.Command, Flags: wire.TypeReply}
		if reply.Payload, err = c.access(m); err != nil {
			reply.Flags |= wire.FlagError
			reply.Errno = uint32(unix.EFAULT)
		}
		if c.conn.Send(reply) != nil {
			return
		}
	}
}

// access serves DMA_READ and DMA_WRITE.
func (c *Client) access(m *wire.Message) ([]byte, error) {
	a, data, err := wire.Decode[wire.DMAAccess](m.Payload)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.find(a)
	switch {
	case at != nil && m.Command == wire.DMARead:
		return wire.Encode(a, at), nil
	case at != nil && m.Command == wire.DMAWrite && uint64(len(data)) == a.Count:
		copy(at, data)
		return wire.Encode(a), nil
	}
	return nil, fmt.Errorf("command %d at %#x+%#x", m.Command, a.Addr, a.Count)
}

// find returns the kept memory of an access, nil if there is none.
func (c *Client) find(a wire.DMAAccess) []byte {
	for _, k := range c.kept {
		if size := uint64(len(k.data)); a.Addr >= k.addr && a.Count <= size && a.Addr-k.addr <= size-a.Count {
			return k.data[a.Addr-k.addr:][:a.Count]
		}
	}
	return nil
}

// Kept returns a copy of n bytes of memory given to KeepMemory, nil if it is
// none.
func (c *Client) Kept(addr uint64, n int) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.find(wire.DMAAccess{Addr: addr, Count: uint64(n)}))
}

func (c *Client) call(cmd wire.Command, payload []byte, fds ...int) ([]byte, error) {
	reply, err := c.caller.Call(&wire.Message{Command: cmd, Payload: payload, FDs: fds})
	if err != nil {
		return nil, err
	}
	return reply.Payload, nil
}

// ShareMemory makes size bytes of memory the guest's at a bus address and
// gives the server a descriptor of it. Size and address are multiples of 4096.
func (c *Client) ShareMemory(addr uint64, size int) ([]byte, error) {
	f, err := NewMemory(size)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if err := c.MapFile(addr, uint64(size), f, 0, true); err != nil {
		unix.Munmap(p)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared = append(c.shared, p)
	return p, nil
}

// NewMemory returns a file in memory, of size zero bytes.
func NewMemory(size int) (*os.File, error) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "guest memory")
	if err := f.Truncate(int64(size)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// MapFile maps a part of a file for the device.
func (c *Client) MapFile(addr, size uint64, f *os.File, offset uint64, writable bool) error {
	_, err := c.call(wire.DMAMap, mapping(addr, size, offset, writable), int(f.Fd()))
	return err
}

func mapping(addr, size, offset uint64, writable bool) []byte {
	m := wire.DMAMapping{ArgSize: 32, Flags: wire.MapReadable, Offset: offset, Addr: addr, Size: size}
	if writable {
		m.Flags |= wire.MapWritable
	}
	return wire.Encode(m)
}

// KeepMemory maps p for the device without a descriptor: the server asks for
// each access. p belongs to the client until it is closed; Kept looks into it.
func (c *Client) KeepMemory(addr uint64, p []byte, writable bool) error {
	c.mu.Lock()
	c.kept = append(c.kept, keptMemory{addr, p})
	c.mu.Unlock()
	_, err := c.call(wire.DMAMap, mapping(addr, uint64(len(p)), 0, writable))
	return err
}

// Unmap takes a map away from the device.
func (c *Client) Unmap(addr, size uint64) error {
	_, err := c.call(wire.DMAUnmap, wire.Encode(wire.DMAUnmapping{ArgSize: 24, Addr: addr, Size: size}))
	return err
}

// UnmapAll takes all maps away.
func (c *Client) UnmapAll() error {
	_, err := c.call(wire.DMAUnmap, wire.Encode(wire.DMAUnmapping{ArgSize: 24, Flags: wire.UnmapAll}))
	return err
}

// Read fills p from a region of the device.
func (c *Client) Read(region int, off uint64, p []byte) error {
	a := wire.RegionAccess{Offset: off, Region: uint32(region), Count: uint32(len(p))}
	reply, err := c.call(wire.RegionRead, wire.Encode(a))
	if err != nil {
		return err
	}
	got, data, err := wire.Decode[wire.RegionAccess](reply)
	if err == nil && (got != a || len(data) != len(p)) {
		err = fmt.Errorf("reply %+v with %d bytes to %+v", got, len(data), a)
	}
	copy(p, data)
	return err
}

// Write writes p to a region of the device and waits until that is done.
func (c *Client) Write(region int, off uint64, p []byte) error {
	a := wire.RegionAccess{Offset: off, Region: uint32(region), Count: uint32(len(p))}
	_, err := c.call(wire.RegionWrite, wire.Encode(a, p))
	return err
}

// Post writes p to a region of the device and does not wait, as a CPU does.
func (c *Client) Post(region int, off uint64, p []byte) error {
	a := wire.RegionAccess{Offset: off, Region: uint32(region), Count: uint32(len(p))}
	return c.conn.Send(&wire.Message{Command: wire.RegionWrite, Flags: wire.FlagNoReply, Payload: wire.Encode(a, p)})
}

// OneWrite is one of several writes of up to 8 bytes.
type OneWrite struct {
	Region int
	Offset uint64
	Data   []byte
}

// WriteMulti does several writes with one message.
func (c *Client) WriteMulti(writes ...OneWrite) error {
	payload := wire.Encode(uint64(len(writes)))
	for _, w := range writes {
		one := wire.OneWrite{RegionAccess: wire.RegionAccess{Offset: w.Offset, Region: uint32(w.Region), Count: uint32(len(w.Data))}}
		copy(one.Data[:], w.Data)
		payload = append(payload, wire.Encode(one)...)
	}
	_, err := c.call(wire.RegionWriteMulti, payload)
	return err
}

// Reset resets the device.
func (c *Client) Reset() error {
	_, err := c.call(wire.DeviceReset, nil)
	return err
}

// RegionInfo returns size and access rights of a region.
func (c *Client) RegionInfo(region int) (size uint64, readable, writable bool, err error) {
	p, err := c.call(wire.DeviceGetRegion, wire.Encode(wire.RegionInfo{ArgSize: 32, Index: uint32(region)}))
	if err != nil {
		return 0, false, false, err
	}
	info, _, err := wire.Decode[wire.RegionInfo](p)
	return info.Size, info.Flags&wire.RegionReadable != 0, info.Flags&wire.RegionWritable != 0, err
}

// Vectors returns how many MSI-X vectors the device has.
func (c *Client) Vectors() (int, error) {
	p, err := c.call(wire.DeviceGetIRQ, wire.Encode(wire.IRQInfo{ArgSize: 16, Index: wire.IRQMSIX}))
	if err != nil {
		return 0, err
	}
	info, _, err := wire.Decode[wire.IRQInfo](p)
	return int(info.Count), err
}

// Interrupt receives what one MSI-X vector fires.
type Interrupt struct {
	f  *os.File
	fd int // f's; asking f for it would make it blocking
}

// EnableVectors sets up count vectors from first on.
func (c *Client) EnableVectors(first, count int) ([]*Interrupt, error) {
	var irqs []*Interrupt
	var fds []int
	for range count {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, fmt.Errorf("eventfd: %w", err)
		}
		irqs, fds = append(irqs, &Interrupt{os.NewFile(uintptr(fd), "eventfd"), fd}), append(fds, fd)
	}
	_, err := c.call(wire.DeviceSetIRQs, irqSet(wire.IRQDataEventFD|wire.IRQTrigger, first, count), fds...)
	return irqs, err
}

// DisableVectors takes back what EnableVectors has set up; a count of zero
// stands for all vectors.
func (c *Client) DisableVectors(first, count int) error {
	flags := uint32(wire.IRQDataEventFD | wire.IRQTrigger)
	if count == 0 {
		flags = wire.IRQDataNone | wire.IRQTrigger
	}
	_, err := c.call(wire.DeviceSetIRQs, irqSet(flags, first, count))
	return err
}

// MaskVector makes the device hold back a vector's interrupts, or send what it
// has held back.
func (c *Client) MaskVector(vector int, masked bool) error {
	action := uint32(wire.IRQUnmask)
	if masked {
		action = wire.IRQMask
	}
	_, err := c.call(wire.DeviceSetIRQs, irqSet(wire.IRQDataNone|action, vector, 1))
	return err
}

// Trigger fires those of the vectors from first on for which it holds true.
func (c *Client) Trigger(first int, which ...bool) error {
	_, err := c.call(wire.DeviceSetIRQs, append(irqSet(wire.IRQDataBool|wire.IRQTrigger, first, len(which)), wire.Encode(which)...))
	return err
}

func irqSet(flags uint32, first, count int) []byte {
	return wire.Encode(wire.IRQSet{ArgSize: 20, Flags: flags, Index: wire.IRQMSIX, Start: uint32(first), Count: uint32(count)})
}

// Wait waits for an interrupt and returns how many have come since the last
// Wait; the error is os.ErrDeadlineExceeded when none has after d.
func (i *Interrupt) Wait(d time.Duration) (uint64, error) {
	if err := i.f.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	var b [8]byte
	if _, err := io.ReadFull(i.f, b[:]); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// Count returns how many interrupts have come since the last Wait or Count.
func (i *Interrupt) Count() (uint64, error) {
	var b [8]byte
	_, err := unix.Read(i.fd, b[:])
	if err == unix.EAGAIN {
		return 0, nil
	}
	return binary.NativeEndian.Uint64(b[:]), err
}

// Fill makes the counter as full as it gets: writes to it that wait do not
// end before the next Wait or Count.
func (i *Interrupt) Fill() error {
	_, err := unix.Write(i.fd, binary.NativeEndian.AppendUint64(nil, 1<<64-2))
	return err
}

// Close closes this end of the vector.
func (i *Interrupt) Close() error { return i.f.Close() }

package vfiouser

import (
	"bytes"
	"context"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibup/test/vfiouser/internal/wire"
	"ibup/test/vfiouser/vfiousertest"
)

// unixPair returns the two ends of a connection.
func unixPair(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

func socketPair(t testing.TB) (client, server *wire.Conn) {
	c, s := unixPair(t)
	return wire.NewConn(c), wire.NewConn(s)
}

// stream is messages as they go over the socket.
func stream(t testing.TB, messages ...wire.Message) []byte {
	t.Helper()
	client, server := unixPair(t)
	defer server.Close()
	conn := wire.NewConn(client)
	var all []byte
	for _, m := range messages {
		if err := conn.Send(&m); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, wire.HeaderSize+len(m.Payload))
		if _, err := server.Read(p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p...)
	}
	client.Close()
	return all
}

// FuzzServer gives a session a stream of bytes with some descriptors at its
// beginning. Whatever it is, the session ends with the stream, the device is
// attached and detached as often, and nothing of the client is left.
func FuzzServer(f *testing.F) {
	greeting := wire.Message{Command: wire.Version, Payload: []byte(version)}
	access := func(off uint64, data []byte) wire.Message {
		return wire.Message{Command: wire.RegionWrite, Payload: wire.Encode(wire.RegionAccess{Offset: off, Count: uint32(len(data))}, data)}
	}
	memory := wire.Message{Command: wire.DMAMap, Payload: wire.Encode(wire.DMAMapping{Flags: 3, Addr: 0x1000, Size: 0x1000})}
	irqs := func(flags, start, count uint32) wire.Message {
		return wire.Message{Command: wire.DeviceSetIRQs, Payload: wire.Encode(wire.IRQSet{Flags: flags, Index: wire.IRQMSIX, Start: start, Count: count})}
	}
	for _, seed := range []struct {
		fds      uint8
		messages []wire.Message
	}{
		{0, []wire.Message{greeting, {Command: wire.Version, Payload: []byte(version)}}},
		{1, []wire.Message{memory, access(regRead, le64(0x1000)), access(regWrite, le64(0x1ffc)),
			{Command: wire.DMAUnmap, Payload: wire.Encode(wire.DMAUnmapping{Addr: 0x1000, Size: 0x1000})}}},
		{0, []wire.Message{memory, access(regRead, le64(0x1000)),
			{Command: wire.DMARead, Flags: wire.TypeReply, Payload: wire.Encode(wire.DMAAccess{Addr: 0x1000, Count: 8}, le64(7))},
			{Command: wire.DMAUnmap, Payload: wire.Encode(wire.DMAUnmapping{Flags: wire.UnmapAll})}}},
		{3, []wire.Message{irqs(wire.IRQDataEventFD|wire.IRQTrigger, 1, 3), access(regFire, []byte{2}),
			irqs(wire.IRQDataNone|wire.IRQMask, 2, 1), access(regFire, []byte{2}), irqs(wire.IRQDataNone|wire.IRQUnmask, 2, 1),
			irqs(wire.IRQDataNone|wire.IRQTrigger, 0, 0)}},
		{0, []wire.Message{{Command: wire.DeviceGetInfo, Payload: wire.Encode(wire.DeviceInfo{ArgSize: 16})},
			{Command: wire.DeviceGetRegion, Payload: wire.Encode(wire.RegionInfo{ArgSize: 32, Index: RegionConfig})},
			{Command: wire.DeviceGetIRQ, Payload: wire.Encode(wire.IRQInfo{ArgSize: 16, Index: wire.IRQMSIX})},
			{Command: wire.RegionRead, Payload: wire.Encode(wire.RegionAccess{Region: RegionConfig, Count: 64})},
			{Command: wire.RegionWriteMulti, Flags: wire.FlagNoReply, Payload: wire.Encode(uint64(1), wire.OneWrite{RegionAccess: wire.RegionAccess{Count: 8}})},
			{Command: wire.DeviceReset}}},
	} {
		f.Add(seed.fds, stream(f, seed.messages...))
	}
	prefix := stream(f, greeting)
	f.Fuzz(func(t *testing.T, fds uint8, in []byte) {
		client, server := unixPair(t)
		defer client.Close()
		d := newTestDevice(t)
		s := newSession(server, d, func(error) {})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.run(context.Background()) // any error will do
		}()
		go func() { // replies fill the socket otherwise
			var sink bytes.Buffer
			_, _ = sink.ReadFrom(client)
		}()
		send(t, client, prefix, in, int(fds%20))
		await(t, ended, "the session to end")
		if len(d.attached) != len(d.detached) {
			t.Errorf("attached %d times, detached %d times", len(d.attached), len(d.detached))
		}
		if len(s.mem.maps) != 0 {
			t.Errorf("maps left: %+v", s.mem.maps)
		}
		for i, v := range s.irqs.vectors {
			if v.fd != -1 {
				t.Errorf("vector %d has descriptor %d left", i, v.fd)
			}
		}
	})
}

// send writes both streams, the second with descriptors, and ends. Errors mean
// that the server has had enough.
func send(t *testing.T, client *net.UnixConn, prefix, in []byte, fds int) {
	if err := client.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = client.Write(prefix)
	if fds > 0 && len(in) > 0 {
		f, err := vfiousertest.NewMemory(0x1000)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var all []int
		for range fds {
			all = append(all, int(f.Fd()))
		}
		n, _, _ := client.WriteMsgUnix(in, unix.UnixRights(all...), nil)
		in = in[max(n, 0):]
	}
	_, _ = client.Write(in)
	_ = client.CloseWrite()
}

// Package udev receives device events: from the kernel, as it sends them, or
// from udevd, after its rules have run. It is what libudev's monitor is, and as
// strict: a message counts only if the kernel vouches that its sender was the
// kernel itself or a process of root.
//
//	m, err := udev.Open(udev.Kernel)
//	// scan sysfs now: whatever happens from here on is in the socket
//	for {
//		ev, err := m.Receive(ctx)
//		switch {
//		case errors.Is(err, udev.ErrOverrun):
//			// events were lost: scan sysfs again
//		case err != nil:
//			return err
//		default:
//			fmt.Println(ev.Action, ev.Subsystem, ev.Devpath)
//		}
//	}
//
// Sources: lib/kobject_uevent.c of the kernel for the kernel's format,
// libudev-monitor.c of systemd 219 to 257 for udevd's.
package udev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// Action is what happened to a device.
type Action string

// Actions the kernel knows (kobject_actions). Linux 3.10 sends no Bind and no
// Unbind, so a driver taking a device can go unannounced there.
const (
	Add     Action = "add"
	Remove  Action = "remove"
	Change  Action = "change"
	Move    Action = "move"
	Online  Action = "online"
	Offline Action = "offline"
	Bind    Action = "bind"
	Unbind  Action = "unbind"
)

// Event is one device event.
type Event struct {
	Action    Action
	Devpath   string            // below /sys, beginning with '/': "/devices/pci0000:00/0000:00:01.0"
	Subsystem string            // "pci", "net", "infiniband"; "" if the message names none
	Seqnum    uint64            // the kernel's event counter; has gaps, other namespaces count too
	Env       map[string]string // every property, those above included
}

// errMalformed is wrapped by every refusal of a message for its content.
var errMalformed = errors.New("malformed event")

// parseKernel reads "action@devpath\0KEY=value\0…\0".
func parseKernel(b []byte) (Event, error) {
	header, props, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return Event{}, fmt.Errorf("%w: header does not end", errMalformed)
	}
	action, path, ok := bytes.Cut(header, []byte("@"))
	if !ok || len(action) == 0 || len(path) == 0 || path[0] != '/' {
		return Event{}, fmt.Errorf("%w: header is not action@/devpath", errMalformed)
	}
	ev, err := parseProperties(props)
	if err != nil {
		return Event{}, err
	}
	if string(ev.Action) != string(action) || ev.Devpath != string(path) {
		return Event{}, fmt.Errorf("%w: header and properties disagree", errMalformed)
	}
	return ev, nil
}

// udevd's messages begin with "libudev\0", a magic in network order, and in the
// host's order: size of the header, offset and length of the properties. Four
// words for socket filters follow, which a receiver does not need.
const (
	udevPrefix = "libudev\x00"
	udevMagic  = 0xfeedcafe
	udevHeader = 40
)

// parseUdev reads a message in udevd's format.
func parseUdev(b []byte) (Event, error) {
	if len(b) < udevHeader || string(b[:8]) != udevPrefix {
		return Event{}, fmt.Errorf("%w: no libudev header", errMalformed)
	}
	if binary.BigEndian.Uint32(b[8:]) != udevMagic {
		return Event{}, fmt.Errorf("%w: wrong magic", errMalformed)
	}
	size := uint64(binary.NativeEndian.Uint32(b[12:]))
	off := uint64(binary.NativeEndian.Uint32(b[16:]))
	n := uint64(binary.NativeEndian.Uint32(b[20:]))
	if size < udevHeader || off < size || off+n > uint64(len(b)) {
		return Event{}, fmt.Errorf("%w: properties outside the message", errMalformed)
	}
	return parseProperties(b[off : off+n])
}

// parseProperties reads "KEY=value\0" records. A value may contain '='. A record
// that is no assignment is left out, as libudev does: drivers may send any
// string, and an event must not be lost over it.
func parseProperties(b []byte) (Event, error) {
	if len(b) == 0 || b[len(b)-1] != 0 {
		return Event{}, fmt.Errorf("%w: properties do not end", errMalformed)
	}
	env := make(map[string]string, bytes.Count(b, []byte{0}))
	for len(b) > 0 {
		var rec []byte
		rec, b, _ = bytes.Cut(b, []byte{0})
		if k, v, ok := bytes.Cut(rec, []byte("=")); ok && len(k) > 0 {
			env[string(k)] = string(v)
		}
	}
	ev := Event{
		Action:    Action(env["ACTION"]),
		Devpath:   env["DEVPATH"],
		Subsystem: env["SUBSYSTEM"],
		Env:       env,
	}
	if ev.Action == "" || ev.Devpath == "" || ev.Devpath[0] != '/' {
		return Event{}, fmt.Errorf("%w: no ACTION or no DEVPATH", errMalformed)
	}
	var err error
	if ev.Seqnum, err = strconv.ParseUint(env["SEQNUM"], 10, 64); err != nil {
		return Event{}, fmt.Errorf("%w: SEQNUM=%q", errMalformed, env["SEQNUM"])
	}
	return ev, nil
}

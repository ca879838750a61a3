package fabric

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String writes a GUID as sysfs does: 506b:4b03:00a1:0000.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// ParseGUID reads the sysfs form or a hexadecimal number, with or without 0x.
func ParseGUID(s string) (GUID, error) {
	h := strings.TrimPrefix(s, "0x")
	if groups := strings.Split(s, ":"); len(groups) == 4 {
		h = ""
		for _, g := range groups {
			if len(g) != 4 {
				return 0, fmt.Errorf("GUID %q: want four groups of four hexadecimal digits, as in 506b:4b03:00a1:0000", s)
			}
			h += g
		}
	}
	v, err := strconv.ParseUint(h, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("GUID %q: want 506b:4b03:00a1:0000 or 0x506b4b0300a10000", s)
	}
	return GUID(v), nil
}

// MakeGID puts a port's GID together.
func MakeGID(prefix uint64, guid GUID) (g GID) {
	binary.BigEndian.PutUint64(g[:8], prefix)
	binary.BigEndian.PutUint64(g[8:], uint64(guid))
	return g
}

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// IsMulticast says whether the GID names a group (IBA 4.1.1).
func (g GID) IsMulticast() bool { return g[0] == 0xff }

// gid returns the port's GID 0. The caller holds fab.mu.
func (p *Port) gid() GID { return MakeGID(p.prefix, p.cfg.GUID) }

func (s State) String() string {
	switch s {
	case StateDown:
		return "Down"
	case StateInit:
		return "Init"
	case StateArmed:
		return "Armed"
	case StateActive:
		return "Active"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

func (s PhysState) String() string {
	switch s {
	case PhysPolling:
		return "Polling"
	case PhysDisabled:
		return "Disabled"
	case PhysLinkUp:
		return "LinkUp"
	}
	return "PhysState(" + strconv.Itoa(int(s)) + ")"
}

func (t LinkType) String() string {
	switch t {
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return "LinkType(" + strconv.Itoa(int(t)) + ")"
}

package host

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

const ibClass = "sys/class/infiniband"

// devices reads /sys/class/infiniband.
func (r *Reader) devices(ctx context.Context, s *Snapshot) error {
	names, err := r.tree.list(ibClass)
	if err != nil {
		s.gap("InfiniBand devices", err)
	}
	before := r.ports
	r.ports = map[portKey]*portMemory{} // forgets ports that are gone
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &r.tree
		d := IBDevice{
			Name:     name,
			Firmware: t.text(ibClass, name, "fw_ver"),
			BoardID:  t.text(ibClass, name, "board_id"),
			HCAType:  t.text(ibClass, name, "hca_type"),
			NodeDesc: t.text(ibClass, name, "node_desc"),
		}
		d.NodeGUID, _ = parseGUID(t.text(ibClass, name, "node_guid"))
		if target, err := os.Readlink(t.path(ibClass, name)); err == nil {
			d.BDF = lastBDF(target)
		}
		ports, err := t.list(ibClass, name, "ports")
		if err != nil {
			s.gap("ports of "+name, err)
		}
		for _, p := range ports {
			num, err := strconv.Atoi(p)
			if err != nil || num < 1 {
				continue
			}
			key := portKey{name, d.NodeGUID, num}
			p, m := r.port(s, key, before[key])
			d.Ports = append(d.Ports, p)
			r.ports[key] = m
		}
		sort.Slice(d.Ports, func(i, j int) bool { return d.Ports[i].Num < d.Ports[j].Num })
		s.IB = append(s.IB, d)
	}
	return nil
}

// slow is when an attribute's read shows that the firmware does not answer. Each
// such read may take the driver's whole command timeout, 60 s, so the rest of the
// port is left out.
const slow = 2 * time.Second

// portKey is a port of one piece of hardware; another card may get the name.
type portKey struct {
	device   string
	nodeGUID uint64
	num      int
}

// portMemory is what a reader remembers of a port between snapshots. On a live
// machine each attribute is half a dozen firmware commands, each P_Key is one, and
// the bring-up loop takes many snapshots: most of a port is read anew only when its
// state has changed or some time has passed.
type portMemory struct {
	port Port
	at   time.Time // of the last full reading
	used int       // P_Key entries up to the last one in use
	size int
}

// stale is how old a remembered LID or rate may be.
const stale = 5 * time.Second

// port reads one port, given what is remembered of it, nil when nothing is. It
// returns what to remember for the next time.
func (r *Reader) port(s *Snapshot, key portKey, m *portMemory) (Port, *portMemory) {
	dir := fmt.Sprintf("%s/%s/ports/%d", ibClass, key.device, key.num)
	what := fmt.Sprintf("port %s/%d", key.device, key.num)
	gone := false
	attr := func(name string) string {
		if gone {
			return ""
		}
		start := time.Now()
		text, err := r.tree.attr(dir, name)
		if took := time.Since(start); took > slow {
			gone = true
			s.Incomplete = append(s.Incomplete, Gap{what, fmt.Sprintf("reading %s took %v: the firmware does not answer", name, took.Round(time.Second))})
		} else if err != nil {
			s.gap(what+": "+name, err)
		}
		return text
	}
	state := afterColon(attr("state"))
	if r.live && m != nil && m.port.State == state && time.Since(m.at) < stale {
		p := m.port
		if state == "DOWN" { // the only state with more than one physical state
			p.PhysState = afterColon(attr("phys_state"))
		}
		if !gone {
			p.PKeys = r.pkeys(dir, m)
		}
		m.port = p
		return p, m
	}
	p := Port{Num: key.num, State: state}
	p.LinkLayer = attr("link_layer")
	p.PhysState = afterColon(attr("phys_state"))
	p.LID = parseLID(attr("lid"))
	p.SMLID = parseLID(attr("sm_lid"))
	p.Rate = attr("rate")
	if gone {
		return p, nil
	}
	// An invalid entry of the table reads EINVAL: no GUID then.
	p.GUID, _ = parseGUID(r.tree.text(dir, "gids/0"))
	names, err := r.tree.list(dir, "pkeys")
	if err != nil {
		s.gap(what+": pkeys", err)
	}
	m = &portMemory{at: time.Now(), used: len(names), size: len(names)}
	p.PKeys = r.pkeys(dir, m)
	m.port = p
	return p, m
}

// pkeys reads a port's P_Key table without its empty entries: the part that was in
// use and what follows it up to two empty entries in a row, since a subnet manager
// fills the table from the front.
func (r *Reader) pkeys(dir string, m *portMemory) []uint16 {
	var keys []uint16
	used := 0
	for i, empty := 0, 0; i < m.size && (i < m.used || empty < 2); i++ {
		key := uint16(r.tree.uint(16, dir, "pkeys", strconv.Itoa(i)))
		if key == 0 {
			empty++
			continue
		}
		empty = 0
		keys = append(keys, key)
		used = i + 1
	}
	m.used = used
	return keys
}

// afterColon takes the name of "4: ACTIVE".
func afterColon(s string) string {
	if _, name, ok := strings.Cut(s, ": "); ok {
		return name
	}
	return s
}

func parseLID(s string) uint16 {
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// parseGUID takes the last 64 bits of a GUID or GID in the kernel's notation,
// groups of four hexadecimal digits: "0002:c903:00a1:b2c3".
func parseGUID(s string) (uint64, bool) {
	groups := strings.Split(s, ":")
	if len(groups) != 4 && len(groups) != 8 {
		return 0, false
	}
	var guid uint64
	for i, g := range groups {
		n, err := strconv.ParseUint(g, 16, 16)
		if err != nil || len(g) != 4 {
			return 0, false
		}
		if i >= len(groups)-4 {
			guid = guid<<16 | n
		}
	}
	return guid, true
}

package host

import (
	"context"
	"fmt"
	"os"
	"slices"
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
			d.Ports = append(d.Ports, r.port(s, name, num))
		}
		slices.SortFunc(d.Ports, func(a, b Port) int { return a.Num - b.Num })
		s.IB = append(s.IB, d)
	}
	return nil
}

// slow is when an attribute's read shows that the firmware does not answer. Each
// such read may take the driver's whole command timeout, 60 s, so the rest of the
// port is left out.
const slow = 2 * time.Second

// port reads one port. Most attributes cost the driver firmware commands.
func (r *Reader) port(s *Snapshot, dev string, num int) Port {
	dir := fmt.Sprintf("%s/%s/ports/%d", ibClass, dev, num)
	what := fmt.Sprintf("port %s/%d", dev, num)
	p := Port{Num: num}
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
	p.LinkLayer = attr("link_layer")
	p.State = afterColon(attr("state"))
	p.PhysState = afterColon(attr("phys_state"))
	p.LID = parseLID(attr("lid"))
	p.SMLID = parseLID(attr("sm_lid"))
	p.Rate = attr("rate")
	if gone {
		return p
	}
	// An invalid entry of the table reads EINVAL: no GUID then.
	p.GUID, _ = parseGUID(r.tree.text(dir, "gids/0"))
	p.PKeys = r.pkeys(dir, p.State)
	return p
}

// keyWindow is what is remembered of a port's P_Key table between snapshots.
type keyWindow struct {
	state string // of the port when the whole table was read
	used  int    // entries up to the last one in use
	size  int
}

// pkeys reads a port's P_Key table without its empty entries. Each of the
// usually 128 entries is a firmware command, so the whole table is read only at
// first and when the port has changed its state. In between it is the used part
// and spare entries behind it: a subnet manager fills the table from the front.
func (r *Reader) pkeys(dir, state string) []uint16 {
	const spare = 8
	w, known := r.keys[dir]
	if !known || w.state != state {
		names, err := r.tree.list(dir, "pkeys")
		if err != nil || len(names) == 0 {
			return nil
		}
		w = keyWindow{state: state, used: len(names), size: len(names)}
	}
	var keys []uint16
	limit, used := min(w.used+spare, w.size), 0
	for i := range limit {
		key := uint16(r.tree.uint(16, dir, "pkeys", strconv.Itoa(i)))
		if key != 0 {
			keys = append(keys, key)
			used = i + 1
		}
	}
	w.used = used
	r.keys[dir] = w
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

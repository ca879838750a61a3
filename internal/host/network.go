package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
)

// NetDump is what only netlink can tell of a machine's network: links with kind
// and addresses, and the main table's routes. As JSON it is a captured machine's
// NetFile; Link's BDF and DevPort are not part of it, sysfs has them.
type NetDump struct {
	Links  []Link
	Routes []Route
}

// NetReader dumps the network. Where it fails, sysfs stands in for the links.
type NetReader interface {
	ReadNet(ctx context.Context) (NetDump, error)
}

// netFile is the NetReader of a captured machine.
type netFile string

func (path netFile) ReadNet(context.Context) (NetDump, error) {
	var d NetDump
	b, err := readFile(string(path), 16<<20)
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return NetDump{}, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// ARPHRD values of Link.Type (linux/if_arp.h).
const (
	TypeEthernet   = 1
	TypeInfiniBand = 32
)

const netClass = "sys/class/net"

// network fills in links and routes.
func (r *Reader) network(ctx context.Context, s *Snapshot) {
	dump, err := r.net.ReadNet(ctx)
	if err != nil {
		s.gap("addresses and routes", err)
		dump = NetDump{Links: r.sysfsLinks(s)}
	}
	links := dump.Links
	byIndex := make(map[int]int, len(links))
	for i := range links {
		byIndex[links[i].Index] = i
		r.fromSysfs(&links[i])
	}
	// A child has the PCI parent and the port of the interface it sits on.
	for i := range links {
		l := &links[i]
		for p, hops := l.Parent, 0; l.BDF == "" && p != 0 && hops < 8; hops++ {
			j, ok := byIndex[p]
			if !ok {
				break
			}
			l.BDF = links[j].BDF
			if l.Type == TypeInfiniBand && links[j].Type == TypeInfiniBand {
				l.DevPort = links[j].DevPort
			}
			p = links[j].Parent
		}
		sort.Slice(l.Addrs, func(i, j int) bool { return l.Addrs[i].Prefix.Compare(l.Addrs[j].Prefix) < 0 })
	}
	// Not slices.SortFunc: it compiles to 20 kB more for each of such large types.
	sort.Slice(links, func(i, j int) bool { return links[i].Index < links[j].Index })
	sort.Slice(dump.Routes, func(i, j int) bool {
		a, b := dump.Routes[i], dump.Routes[j]
		return cmp.Or(a.Dest.Compare(b.Dest), a.Metric-b.Metric, a.Via.Compare(b.Via), cmp.Compare(a.Dev, b.Dev)) < 0
	})
	s.Links, s.Routes = links, dump.Routes
}

// fromSysfs adds what netlink does not tell.
func (r *Reader) fromSysfs(l *Link) {
	t := &r.tree
	if target, err := os.Readlink(t.path(netClass, l.Name)); err == nil {
		l.BDF = lastBDF(target)
	}
	if l.Driver == "" && l.Type != TypeInfiniBand {
		l.Driver = t.base(netClass, l.Name, "device/driver")
	}
	if l.Type != TypeInfiniBand {
		return
	}
	// dev_id says the same on kernels before 3.15 (RHEL before 7.9); where there
	// is a dev_port, reading dev_id earns a warning in the kernel log.
	if port, err := t.attr(netClass, l.Name, "dev_port"); err == nil {
		l.DevPort, _ = strconv.Atoi(port)
	} else {
		l.DevPort = int(t.uint(16, netClass, l.Name, "dev_id"))
	}
	// Children made through netlink have neither file; netlink has told theirs.
	if key := t.uint(16, netClass, l.Name, "pkey"); key != 0 {
		l.PKey = uint16(key)
	}
	if mode := t.text(netClass, l.Name, "mode"); mode != "" {
		l.Mode = mode
	}
}

// sysfsLinks is the list of links as far as /sys/class/net has it.
func (r *Reader) sysfsLinks(s *Snapshot) []Link {
	const up = 1 // IFF_UP
	t := &r.tree
	names, err := t.list(netClass)
	if err != nil {
		s.gap("network interfaces", err)
	}
	var links []Link
	for _, name := range names {
		index, err := strconv.Atoi(t.text(netClass, name, "ifindex"))
		if err != nil {
			continue // bonding_masters is a file
		}
		l := Link{
			Name:  name,
			Index: index,
			Type:  int(t.uint(16, netClass, name, "type")),
			MTU:   int(t.uint(31, netClass, name, "mtu")),
			Up:    t.uint(32, netClass, name, "flags")&up != 0,
			// EINVAL while the interface is down
			Carrier: t.text(netClass, name, "carrier") == "1",
		}
		l.Addr.UnmarshalText([]byte(t.text(netClass, name, "address")))
		if parent := int(t.uint(31, netClass, name, "iflink")); parent != index {
			l.Parent = parent
		}
		links = append(links, l)
	}
	return links
}

// MarshalText writes "80:00:02:…".
func (a HWAddr) MarshalText() ([]byte, error) {
	var b bytes.Buffer
	for i, octet := range a {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x", octet)
	}
	return b.Bytes(), nil
}

// String is the address as ip(8) shows it.
func (a HWAddr) String() string {
	b, _ := a.MarshalText()
	return string(b)
}

// UnmarshalText reads what MarshalText writes; an empty text is no address.
func (a *HWAddr) UnmarshalText(text []byte) error {
	*a = nil
	if len(text) == 0 {
		return nil
	}
	var addr HWAddr
	for _, octet := range strings.Split(string(text), ":") {
		b, err := hex.DecodeString(octet)
		if err != nil || len(b) != 1 {
			return fmt.Errorf("%q is no link-layer address", text)
		}
		addr = append(addr, b[0])
	}
	*a = addr
	return nil
}

package config

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Severity of a finding.
type Severity string

// Severities.
const (
	Bad     Severity = "error"   // the interface is not configured
	Warning Severity = "warning" // it is, but perhaps not as was meant
)

// Finding is what `ibup config check` says about one place.
type Finding struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // 0: the file as a whole, or the command line
	Iface    string   `json:"interface,omitempty"`
	Key      string   `json:"key,omitempty"`
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy,omitempty"`
}

func (f Finding) String() string {
	text := Error{f.File, f.Line, f.Iface, f.Key, f.Text, f.Remedy}
	if f.Severity == Bad {
		return text.Error()
	}
	where := Origin{f.File, f.Line}.String() + ": "
	return where + string(f.Severity) + ": " + strings.TrimPrefix(text.Error(), where)
}

// Check reads the configuration below root and tells what is wrong and what
// will probably not do what was meant: errors first, then by file and line.
func Check(root, cmdline string) []Finding {
	return Source{Root: root, Cmdline: cmdline}.Check()
}

// Check is [Check] with a host name.
func (s Source) Check() []Finding {
	l := &linter{loader: s.load()}
	for _, e := range l.errs {
		l.found = append(l.found, Finding{Bad, e.File, e.Line, e.Iface, e.Key, e.Msg, e.Hint})
	}
	if l.set.StandAside {
		l.warn(Origin{File: procCmdline}, "", "", "take it out", "ibup=0 or rd.ibup=0: ibup does nothing at all")
	}
	l.unread()
	for _, d := range l.drafts {
		if len(d.errs) > 0 {
			continue
		}
		l.c = &d.Config
		for _, lint := range []func(){l.match, l.partition, l.ping, l.fallback, l.persist, l.boot} {
			lint()
		}
		l.before = append(l.before, l.c)
	}
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		if a.Severity != b.Severity {
			return strings.Compare(string(a.Severity), string(b.Severity)) // "error" is before "warning"
		}
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return l.found
}

type linter struct {
	*loader
	c      *Config   // the interface at hand
	before []*Config // those done already
	found  []Finding
}

func (l *linter) warn(at Origin, iface, key, remedy, format string, args ...any) {
	l.found = append(l.found, Finding{Warning, at.File, at.Line, iface, key, fmt.Sprintf(format, args...), remedy})
}

// on warns about the i-th value of a key; with i < 0 about the interface.
func (l *linter) on(key string, i int, remedy, format string, args ...any) {
	at := Origin{File: l.c.Path}
	if i >= 0 {
		at = l.c.origin(key, i)
	}
	if at.File == "" {
		at.File = procCmdline
	}
	l.warn(at, l.c.Name, key, remedy, format, args...)
}

// unread finds files that somebody may take for configuration.
func (l *linter) unread() {
	entries, _ := os.ReadDir(l.tree.path(Dir)) // an error was told already
	for _, e := range entries {
		name, more, found := strings.Cut(e.Name(), suffix)
		if found && (more != "" || strings.HasPrefix(name, ".")) {
			l.warn(Origin{File: Dir + "/" + clip(e.Name())}, "", "", "remove it, or name it "+clip(name)+suffix, "is not read: the name does not end in %s, or begins with a dot", suffix)
		}
	}
}

func (l *linter) match() {
	m := l.c.Match
	counts := matchKey(m)
	switch counts {
	case "Match.PCI", "Match.Device":
		l.on(counts, 0, "use PortGUID=, which `ibup status` shows", "may be another port when a card is added or moved")
	case "":
		if len(l.drafts) > 1 && l.c.Path != "" {
			l.on("", -1, "add [Match] PortGUID=, which `ibup status` shows", "names no port and takes the first free one; which that is changes when a card is added")
		}
	}
	for _, id := range []string{"Match.PCI", "Match.Device", "Match.Port"} {
		idle := counts == "Match.PortGUID" || counts == "Match.PCI" && id == "Match.Device"
		if len(l.c.Origin[id]) > 0 && id != counts && idle {
			l.on(id, 0, "remove it", "is not used: %s= decides", strings.TrimPrefix(counts, "Match."))
		}
	}
	if l.c.Path == "" && l.files > 0 {
		l.on("", -1, "make "+Dir+"/"+l.c.Name+suffix, "%s has no file: it is made only because the command line names it", l.c.Name)
	}
}

func (l *linter) partition() {
	parent, hex, found := strings.Cut(l.c.Name, ".")
	if n, err := strconv.ParseUint(hex, 16, 16); found && err == nil && isIPoIBName(parent) && uint16(n)|fullMember != l.c.IPoIB.PKey {
		l.on("IPoIB.PKey", len(l.c.Origin["IPoIB.PKey"])-1, fmt.Sprintf("write PKey=0x%04x, or name it otherwise", n|fullMember),
			"the name %s stands for partition 0x%04x, but the interface is on 0x%04x", l.c.Name, n|fullMember, l.c.IPoIB.PKey)
	}
	if l.c.IPoIB.Mode == ModeConnected {
		l.on("IPoIB.Mode", 0, "use datagram, or load ib_ipoib with ipoib_enhanced=0", "most ConnectX-4 and later refuse connected mode (enhanced IPoIB)")
	}
	if n := l.c.IPoIB.MTU; l.c.IPoIB.Mode != ModeConnected && n > 2044 && n <= 2048 {
		l.on("IPoIB.MTU", 0, "write MTU=2044", "%d does not fit into an InfiniBand MTU of 2048, of which 4 bytes are the IPoIB header", n)
	}
	for i, p := range l.c.Network.Addresses {
		for _, o := range l.before {
			if slices.ContainsFunc(o.Network.Addresses, func(q netip.Prefix) bool { return p.Masked() == q.Masked() }) {
				l.on("Network.Address", i, "give each interface a network of its own, or set arp_ignore=1 and arp_announce=2", "%s is on the network %s too: either may answer for the other, and only one is used for sending", o.Name, p.Masked())
			}
		}
	}
}

// networks are the destinations that the interface serves.
func (l *linter) networks(six bool) (out []netip.Prefix) {
	n := l.c.Network
	for _, p := range n.Addresses {
		out = append(out, p.Masked())
	}
	for _, r := range n.Routes {
		out = append(out, r.Dest)
	}
	if n.Gateway.IsValid() {
		out = append(out, everywhere(n.Gateway))
	}
	return slices.DeleteFunc(out, func(p netip.Prefix) bool { return p.Addr().Is6() != six })
}

func (l *linter) ping() {
	for i, a := range l.c.Verify.Ping {
		switch nets := l.networks(a.Is6()); {
		case len(nets) == 0:
			l.on("Verify.Ping", i, "add Address=, or leave Ping= out", "nothing here gives the interface an IPv%d address to ask %s from", family(a), a)
		case !slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(a) }):
			l.on("Verify.Ping", i, "write a machine on the interface's network", "%s is not reached through %s", a, l.c.Name)
		}
	}
}

func (l *linter) fallback() {
	routes := l.c.Fallback.Routes
	if len(routes) == 0 && len(l.c.Network.Addresses) > 0 {
		l.on("Fallback.Route", -1, "add [Fallback] Route="+l.c.Network.Addresses[0].Masked().String()+" via GATEWAY dev INTERFACE metric 200",
			"no fallback: while InfiniBand does not work, the node does not reach %s", l.c.Network.Addresses[0].Masked())
	}
	links, _ := os.ReadDir(l.tree.path("/sys/class/net")) // absent where an image is built
	var names []string
	for _, e := range links {
		names = append(names, e.Name())
	}
	for i, r := range routes {
		if nets := l.networks(r.Dest.Addr().Is6()); len(nets) > 0 && !slices.ContainsFunc(nets, r.Dest.Overlaps) {
			l.on("Fallback.Route", i, "write a network of "+l.c.Name, "%s is no network of %s: this is no way around it", r.Dest, l.c.Name)
		}
		if r.Metric == 0 && r.Dest.Addr().Is4() {
			l.on("Fallback.Route", i, "add metric 200", "without metric it is as good as InfiniBand's own route")
		}
		if len(names) > 0 && !slices.Contains(names, r.Dev) && !l.tree.initramfs() {
			l.on("Fallback.Route", i, didYouMean(r.Dev, names), "there is no interface %s now", r.Dev)
		}
	}
}

// scripts is where initscripts look for route files.
const scripts = "/etc/sysconfig/network-scripts"

func (l *linter) persist() {
	if !l.c.Fallback.Persist {
		return
	}
	if len(l.c.Fallback.Routes) == 0 {
		l.on("Fallback.Persist", 0, "add Route=, or leave it out", "there is no Route= to keep")
	} else if !l.tree.exists(scripts) && !l.tree.initramfs() {
		l.on("Fallback.Persist", 0, "set Persist=no; NetworkManager keeps the route with nmcli", "there is no %s: this system keeps its network elsewhere", scripts)
	}
}

// slowest is how long ib_ipoib may wait before it asks a late SM again
// (IPOIB_MAX_BACKOFF_SECONDS), and a few seconds for the rest.
const slowest = 20 * time.Second

func (l *linter) boot() {
	if t := l.c.Boot.Timeout; t < slowest {
		l.on("Boot.Timeout", 0, "write at least Timeout="+spellDuration(slowest), "%s is short: the driver may wait 16 s before it asks a late subnet manager again", spellDuration(t))
	}
	if at, named := l.wishes.dracut[l.c.Name]; named && len(l.c.Network.Addresses) > 0 {
		l.warn(at, l.c.Name, "ip", "", "names %s: in the initramfs dracut gives it the address, and ibup's Address=, Route= and Ping= count only afterwards", l.c.Name)
	}
}

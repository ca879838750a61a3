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

// Reader takes snapshots of one machine. It is not for concurrent use: it
// remembers what it has read of the kernel log, so that a second snapshot costs
// only what is new.
type Reader struct {
	tree  tree
	net   NetReader
	log   kernelLog
	live  bool // reading a port costs the firmware something
	ports map[portKey]*portMemory
}

// Files of a captured machine that hold what has no file on a live one. They are
// relative to the captured root.
const (
	NetFile    = "ibup/net.json" // a NetDump
	KernelFile = "ibup/kmsg"     // records as /dev/kmsg gives them, each ended by a newline
)

// New returns a reader of the machine below root: "/" is this one, with netlink
// and /dev/kmsg; any other directory is a captured one.
func New(root string) *Reader {
	r := &Reader{tree: tree{root: root}}
	if root == "/" {
		r.live = true
		r.net = Netlink{}
		r.log.open = openKmsg
	} else {
		r.net = netFile(r.tree.path(NetFile))
		r.log.open = fileKmsg(r.tree.path(KernelFile))
	}
	return r
}

// Close releases the kernel log.
func (r *Reader) Close() error { return r.log.close() }

// Read takes a snapshot. What cannot be read is in Snapshot.Incomplete; an error
// means that there is no machine to see (no sysfs) or that ctx has ended. It
// needs no privilege, but without root the kernel log may be hidden. Equal
// machines give equal snapshots: everything is sorted.
func (r *Reader) Read(ctx context.Context) (Snapshot, error) {
	var s Snapshot
	if _, err := os.ReadDir(r.tree.path("sys")); err != nil || !r.tree.exists("sys/class") {
		return s, fmt.Errorf("host: no sysfs at %s", r.tree.path("sys"))
	}
	r.system(&s)
	r.functions(&s)
	if err := r.devices(ctx, &s); err != nil {
		return s, err
	}
	r.network(ctx, &s)
	r.modules(&s)
	r.mounts(&s)
	r.kernelLog(&s)
	for i := range s.PCI {
		f := &s.PCI[i]
		for _, d := range s.IB {
			if d.BDF == f.BDF {
				f.IB = append(f.IB, d.Name)
			}
		}
		for _, l := range s.Links {
			if l.BDF == f.BDF && l.Parent == 0 {
				f.Net = append(f.Net, l.Name)
			}
		}
		slices.Sort(f.Net)
		f.Starting = f.Starting && len(f.IB) == 0
		f.Probe = r.log.probe(*f)
	}
	return s, ctx.Err()
}

// gap notes what could not be observed.
func (s *Snapshot) gap(what string, err error) {
	s.Incomplete = append(s.Incomplete, Gap{what, why(err)})
}

func (r *Reader) system(s *Snapshot) {
	t := &r.tree
	s.Kernel = t.text("proc/sys/kernel/osrelease")
	s.Uptime = parseUptime(t.text("proc/uptime"))
	s.Initrd = t.exists("etc/initrd-release")
	s.ModulesDisabled = t.text("proc/sys/kernel/modules_disabled") == "1"
}

// parseUptime reads /proc/uptime, "350735.47 234388.90".
func parseUptime(text string) time.Duration {
	up, _, _ := strings.Cut(text, " ")
	sec, err := strconv.ParseFloat(up, 64)
	if err != nil || sec < 0 || sec > 1e9 {
		return 0
	}
	return time.Duration(sec * float64(time.Second))
}

func (r *Reader) functions(s *Snapshot) {
	t := &r.tree
	const dir = "sys/bus/pci/devices"
	bdfs, err := t.list(dir)
	if err != nil {
		s.gap("PCI functions", err)
	}
	for _, bdf := range bdfs {
		if t.uint(16, dir, bdf, "vendor") != mellanox {
			continue
		}
		class := uint32(t.uint(24, dir, bdf, "class"))
		if c := class >> 8; c != classInfiniBand && c != classEthernet {
			continue
		}
		f := PCIFunction{
			BDF:      bdf,
			Vendor:   mellanox,
			Device:   uint16(t.uint(16, dir, bdf, "device")),
			Class:    class,
			Driver:   t.base(dir, bdf, "driver"),
			PhysFn:   t.base(dir, bdf, "physfn"),
			NumVFs:   int(t.uint(16, dir, bdf, "sriov_numvfs")),
			BAR0:     assigned(t.text(dir, bdf, "resource")),
			Override: t.text(dir, bdf, "driver_override"),
		}
		if f.Override == "(null)" {
			f.Override = ""
		}
		f.Starting = f.Driver == "mlx5_core" && !t.exists(dir, bdf, "msi_irqs")
		dead, err := r.dead(t.path(dir, bdf, "config"))
		if err != nil {
			s.gap("PCI configuration space of "+bdf, err)
		}
		f.Dead = dead
		s.PCI = append(s.PCI, f)
	}
}

const (
	mellanox        = 0x15b3
	classInfiniBand = 0x0207
	classEthernet   = 0x0200
)

// assigned tells whether the first line of a `resource` file, "start end flags",
// is an address range that the kernel has placed. A BAR that found no space is all
// zeroes, or carries IORESOURCE_UNSET (include/linux/ioport.h).
func assigned(resource string) bool {
	const unset = 0x20000000
	line, _, _ := strings.Cut(resource, "\n")
	var n [3]uint64
	fields := strings.Fields(line)
	if len(fields) != len(n) {
		return false
	}
	for i, f := range fields {
		v, err := strconv.ParseUint(f, 0, 64)
		if err != nil {
			return false
		}
		n[i] = v
	}
	return n[0] != 0 && n[1] > n[0] && n[2] != 0 && n[2]&unset == 0
}

// dead tells whether a function's configuration space reads all ones. The vendor
// alone does not show it: a virtual function's vendor is always ffff (PCIe SR-IOV
// 3.4.1.1), its command and status words are not.
func (r *Reader) dead(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var b [8]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		return false, err
	}
	return b == [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, nil
}

// Package vm runs Debian kernels and small Debian systems in QEMU, without
// KVM, and lets a test act inside them: commands with their output and exit
// status, files, kernel uevents and log, PCI hot add of emulated HCAs.
//
// A machine always ends: with the test, at its time limit, or when its kernel
// panics (panic=-1, oops=panic, -no-reboot).
package vm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"ibup/test/image"
)

// Options describes a machine. The zero value of a field means its default.
type Options struct {
	Name     string   // in messages, and the guest's host name; "bench"
	Kernel   string   // a name of [image.KernelNames]; "6.12"
	Systemd  bool     // a whole Debian with systemd, else busybox and udev
	RDMACore bool     // with rdma-core's udev rules (always there with Systemd)
	NFS      bool     // with NFS modules, client and server (always there with Systemd)
	Modules  []string // more kernel modules
	MemMB    int      // 512, with Systemd 1024
	CPUs     int      // 1

	// HCAs are sockets of vfio-user servers whose devices are there at boot,
	// each below a PCIe root port of its own. HotplugSlots is the number of
	// free root ports for [VM.HotAdd]. With TightSlots the bridge windows of
	// these cannot hold an HCA's BAR 0, as on a mainboard short of MMIO space.
	HCAs         []string
	HotplugSlots int
	TightSlots   bool

	NICs []NIC

	// PredictableNames lets udev rename network interfaces (ib0 becomes
	// ibp1s0); without it net.ifnames=0 is on the kernel command line.
	PredictableNames bool
	Append           string      // more kernel command line
	Files            image.Files // laid over the guest's file system

	Boot  time.Duration // wall time until the agent must be there; 5 min
	Limit time.Duration // wall time after which the machine is killed; 10 min
}

// NIC is an Ethernet interface (virtio-net).
type NIC struct {
	Name string // in the guest, by a udev .link file; "" leaves it alone
	MAC  string // 52:54:00:12:34:NN by default
	// Network is a QEMU netdev without its id. By default a network of the
	// machine's own, "user,net=10.20.0.0/24,host=10.20.0.1", whose gateway
	// answers ARP and ping.
	Network string
}

func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "bench")
	o.Kernel = cmp.Or(o.Kernel, "6.12")
	mem := 512
	if o.Systemd {
		mem = 1024
	}
	o.MemMB = cmp.Or(o.MemMB, mem)
	o.CPUs = cmp.Or(o.CPUs, 1)
	o.Boot = cmp.Or(o.Boot, 5*time.Minute)
	o.Limit = cmp.Or(o.Limit, 10*time.Minute)
	nics := make([]NIC, len(o.NICs))
	for i, n := range o.NICs {
		n.MAC = cmp.Or(n.MAC, fmt.Sprintf("52:54:00:12:34:%02x", i))
		n.Network = cmp.Or(n.Network, "user,net=10.20.0.0/24,host=10.20.0.1")
		nics[i] = n
	}
	o.NICs = nics
	return o
}

func (o Options) guest() image.Guest {
	return image.Guest{Kernel: o.Kernel, Systemd: o.Systemd, RDMACore: o.RDMACore, NFS: o.NFS, Modules: o.Modules}
}

// commandLine is the kernel's. norandmaps makes exec under TCG two to three
// times cheaper; the second group keeps a guest that gets little of a busy
// machine from drawing wrong conclusions from it; the rest saves boot time that
// no scenario is about.
func (o Options) commandLine() string {
	args := []string{
		"console=ttyS0", "panic=-1", "oops=panic", "loglevel=5", "norandmaps",
		"no_timer_check", "tsc=reliable", "nowatchdog", "rcupdate.rcu_cpu_stall_suppress=1",
		"nokaslr", "mitigations=off", "cryptomgr.notests", "random.trust_cpu=on", "lsm=yama", "audit=0",
		"printk.devkmsg=on", "log_buf_len=1M",
	}
	if o.Systemd {
		args = append(args, "systemd.show_status=false")
	}
	if !o.PredictableNames {
		args = append(args, "net.ifnames=0")
	}
	if o.Append != "" {
		args = append(args, o.Append)
	}
	return strings.Join(args, " ")
}

// overlay is the part of the guest's file system that is this machine's own.
func (o Options) overlay(agent string) image.Files {
	t := image.Files{}
	t.Add(image.AgentPath, image.File{From: agent, Mode: 0o755})
	t.Add("/etc/hostname", image.Text(o.Name+"\n"))
	if o.Systemd {
		t["/init"] = image.File{Link: "/usr/lib/systemd/systemd"}
	} else {
		t["/init"] = image.File{Link: image.AgentPath}
	}
	for i, n := range o.NICs {
		if n.Name != "" {
			t.Add(fmt.Sprintf("/etc/systemd/network/10-bench%d.link", i),
				image.Text(fmt.Sprintf("[Match]\nMACAddress=%s\n[Link]\nName=%s\n", n.MAC, n.Name)))
		}
	}
	for name, f := range o.Files {
		t.Add(name, f)
	}
	return t
}

// BAR 0 of a ConnectX is 32 MiB, 64-bit and prefetchable.
const slotWindow = "64M"

// qemuArgs is QEMU's command line; file descriptors 3 and 4 are QMP and the
// agent's serial line, 5 is the initrd.
func (o Options) qemuArgs(kernel, initrd string) []string {
	mem := fmt.Sprintf("%dM", o.MemMB)
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", fmt.Sprint(o.CPUs), "-m", mem,
		"-M", "q35,memory-backend=m0,usb=off,sata=off,smbus=off,vmport=off",
		// A vfio-user server maps the guest's memory, so it has to be shared.
		"-object", "memory-backend-memfd,id=m0,share=on,size=" + mem,
		"-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot",
		"-chardev", "socket,id=qmp,fd=3", "-mon", "chardev=qmp,mode=control",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=agent,fd=4", "-serial", "chardev:agent",
		"-kernel", kernel, "-initrd", initrd, "-append", o.commandLine(),
	}
	for i := range len(o.HCAs) + o.HotplugSlots {
		window := slotWindow
		if o.TightSlots && i >= len(o.HCAs) {
			window = "1M"
		}
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d,addr=%#x,pref64-reserve=%s,io-reserve=0",
			slot(i), i+1, i+1, 0x10+i, window))
	}
	for i, socket := range o.HCAs {
		args = append(args, "-device", hcaDevice(i, socket))
	}
	for i, n := range o.NICs {
		args = append(args, "-netdev", n.netdev(i), "-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,romfile=", i, n.MAC))
	}
	return args
}

func (n NIC) netdev(i int) string {
	kind, rest, _ := strings.Cut(n.Network, ",")
	s := fmt.Sprintf("%s,id=net%d", kind, i)
	if rest != "" {
		s += "," + rest
	}
	return s
}

func slot(i int) string { return fmt.Sprintf("slot%d", i) }

// hcaDevice is the JSON form of a -device and of QMP's device_add.
func hcaDevice(i int, socket string) string {
	b, _ := json.Marshal(hcaProperties(i, socket)) // strings: cannot fail
	return string(b)
}

func hcaProperties(i int, socket string) map[string]any {
	return map[string]any{
		"driver": "vfio-user-pci",
		"id":     fmt.Sprintf("hca%d", i),
		"bus":    slot(i),
		"socket": map[string]string{"type": "unix", "path": socket},
	}
}

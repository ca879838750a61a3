package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// oneKernel is for what the kernels do alike.
var oneKernel = []string{"6.12"}

const (
	cardPath  = "/sys/bus/pci/devices/0000:01:00.0"
	coreAttrs = "/sys/bus/pci/drivers/mlx5_core"
)

// rescan takes the card off the bus and lets the kernel find it again.
func (m *machine) rescan() {
	m.b.t.Helper()
	m.sh("echo 1 > " + cardPath + "/remove; echo 1 > /sys/bus/pci/rescan")
}

// logHas waits for a line of the kernel log that matches an extended regular
// expression.
func (m *machine) logHas(expr string, limit time.Duration) {
	m.b.t.Helper()
	m.until(limit, fmt.Sprintf("dmesg | grep -Eq '%s'", expr))
}

// Drivers that leave give back every object and page, and the card is as good
// as new 20 times.
func TestBenchCardComesAndGoes(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		b.host("20.20.20.107", 0)
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		empty := func(after string) {
			t.Helper()
			if o := c.Objects(); len(o) != 0 {
				t.Errorf("objects after %s: %v", after, o)
			}
		}
		m.sh("echo 0000:01:00.0 > " + coreAttrs + "/unbind")
		empty("unbind")
		m.sh("echo 0000:01:00.0 > " + coreAttrs + "/bind")
		for i := range 20 {
			m.until(time.Minute, "test -e /sys/class/net/ib0")
			m.sh("echo 1 > " + cardPath + "/remove")
			empty(fmt.Sprintf("removal %d", i+1))
			m.sh("echo 1 > /sys/bus/pci/rescan")
		}
		m.until(time.Minute, "test -e /sys/class/net/ib0")
		m.sh("ip addr add 20.20.20.109/24 dev ib0 && ip link set ib0 up")
		m.carrier("ib0", "1", time.Minute)
		m.ping3("20.20.20.107")
		m.sh("modprobe -r ib_ipoib mlx5_ib mlx5_core")
		empty("rmmod")
	})
}

// Two cards of one machine reach each other; packets larger than the MTU are
// fragments on the way.
func TestBenchTwoCards(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		one, two := b.card(hca.Config{}), b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, CPUs: 2, HCAs: []string{one.Socket, two.Socket}})
		m.loadStack()
		m.until(time.Minute, "test -e /sys/class/net/ib0 -a -e /sys/class/net/ib1")
		m.sh(`ip netns add far && ip link set ib1 netns far
			ip addr add 10.9.0.1/24 dev ib0 && ip link set ib0 up
			ip -n far addr add 10.9.0.2/24 dev ib1 && ip -n far link set ib1 up`)
		m.carrier("ib0", "1", time.Minute)
		m.until(time.Minute, "ip -n far link show ib1 | grep -q LOWER_UP")
		for _, size := range []int{56, 2000, 60000} {
			m.ping3("10.9.0.2", fmt.Sprintf("-s %d", size))
		}
	})
}

func TestBenchEightCards(t *testing.T) {
	kernels(t, oneKernel, func(t *testing.T, kernel string) {
		b := newBench(t)
		const n = 8
		var sockets []string
		want := map[string]bool{}
		for range n {
			c := b.card(hca.Config{})
			sockets = append(sockets, c.Socket)
			want[c.Config().PortGUID.String()] = true
		}
		m := b.boot(vm.Options{Kernel: kernel, MemMB: 1024, HCAs: sockets})
		m.loadStack()
		m.until(time.Minute, fmt.Sprintf("test -e /sys/class/net/ib%d", n-1))
		for i := range n {
			m.sh("ip link set ib%d up", i)
		}
		for i := range n {
			m.carrier(fmt.Sprintf("ib%d", i), "1", time.Minute)
			address := strings.ReplaceAll(m.sh("cat /sys/class/net/ib%d/address", i), ":", "")
			guid, err := fabric.ParseGUID("0x" + address[len(address)-16:])
			if err != nil || !want[guid.String()] {
				t.Errorf("ib%d has the address %s, which is no card's or another's too (%v)", i, address, err)
			}
			delete(want, guid.String())
		}
	})
}

// What a card tells about its cable, its temperature and its slot is in the
// kernel log.
func TestBenchCardEvents(t *testing.T) {
	kernels(t, oneKernel, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`Port module event|High temperature|insufficient power`)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		for _, e := range []struct {
			raise func()
			want  string
		}{
			{func() { c.ModuleEvent(hca.ModuleUnplugged, 0) }, "Port module event: module 0, Cable unplugged"},
			{func() { c.ModuleEvent(hca.ModulePlugged, 0) }, "Port module event: module 0, Cable plugged"},
			{func() { c.ModuleEvent(hca.ModuleError, hca.ModuleHighTemperature) }, "Cable error, High Temperature"},
			{c.TemperatureWarning, "High temperature on sensors"},
			{func() { c.SlotPower(hca.PowerInsufficient, 25) }, `insufficient power on the PCIe slot .25W`},
		} {
			e.raise()
			m.logHas(e.want, 10*time.Second)
		}
		c.RequestPages(5)
		m.until(10*time.Second, "grep -q '^17$' /sys/class/infiniband/*/fw_pages")
		c.RequestPages(-5)
		m.until(10*time.Second, "grep -q '^12$' /sys/class/infiniband/*/fw_pages")
	})
}

// The same card with its port configured as Ethernet is another device.
func TestBenchEthernetPort(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`Missing eth_net_offloads capability`) // there is no Ethernet data path
		c := b.card(hca.Config{Link: fabric.LinkEthernet})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.loadStack()
		m.until(time.Minute, "grep -q Ethernet /sys/class/infiniband/*/ports/1/link_layer")
		if got := m.sh("cat " + cardPath + "/class"); got != "0x020000" {
			t.Errorf("class %s", got)
		}
		m.fails("test -e /sys/class/net/ib0")
		if err := c.SetLinkType(fabric.LinkInfiniBand); err != nil {
			t.Fatal(err)
		}
		m.rescan()
		m.until(time.Minute, "test -e /sys/class/net/ib0")
		if got := m.sh("cat " + cardPath + "/class"); got != "0x020700" {
			t.Errorf("class %s", got)
		}
		m.sh("ip link set ib0 up")
		m.carrier("ib0", "1", time.Minute)
	})
}

// A virtual function without a GUID is there and stays down.
func TestBenchFunctionWithoutGUID(t *testing.T) {
	kernels(t, oneKernel, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{DeviceID: 0x1018, NoGUID: true})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.loadStack()
		m.until(time.Minute, "test -e /sys/class/net/ib0")
		m.sh("ip link set ib0 up")
		if got := m.sh("cat /sys/class/infiniband/*/node_guid /sys/class/infiniband/*/ports/1/state"); got != "0000:0000:0000:0000\n1: DOWN" {
			t.Errorf("GUID and state: %q", got)
		}
		if got := m.sh("cat /sys/class/net/ib0/carrier"); got != "0" {
			t.Errorf("carrier %s", got)
		}
	})
}

// Firmware that is late, that refuses and that hangs: the driver says so, and a
// new try works.
func TestBenchFirmwareFaults(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`ENABLE_HCA|enable hca failed|INIT_HCA|init hca failed|init_one failed|failed with error`)
		c := b.card(hca.Config{CommandTimeout: 3 * time.Second})
		c.FailCommand(hca.EnableHCA, hca.StatusInternal, 1) // udev may load mlx5_core at once
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.loadStack() // succeeds: a loader's success says nothing about the probe
		m.logHas(`ENABLE_HCA\(0x104\).*failed, status internal error\(0x1\)`, 10*time.Second)
		m.fails("test -e " + cardPath + "/driver")
		c.HangCommand(hca.InitHCA, 1)
		m.rescan()
		m.logHas(`INIT_HCA\(0x102\) timeout`, time.Minute)
		m.fails("test -e " + cardPath + "/driver")
		c.SetInitializing(3 * time.Second)
		m.rescan()
		m.until(time.Minute, "test -e /sys/class/net/ib0")
		m.sh("ip link set ib0 up")
		m.carrier("ib0", "1", time.Minute)
	})
}

// A card that stops, one that answers with ones, and one that is gone.
func TestBenchCardDies(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`0000:0[12]:00.0: `) // it has much to say
		one, two := b.card(hca.Config{}), b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{one.Socket, two.Socket}})
		m.loadStack()
		m.until(time.Minute, "test -e /sys/class/net/ib1")
		one.SetStuckHealth(true)
		m.logHas("01:00.0: .*health compromised - reached miss count", time.Minute)
		one.SetStuckHealth(false)
		one.SetDead(true)
		m.logHas("01:00.0: .*Fatal error 1 detected", time.Minute)
		m.until(time.Minute, "test ! -e /sys/class/net/ib0")
		if err := two.Kill(); err != nil {
			t.Fatal(err)
		}
		m.logHas("02:00.0: .*Fatal error 1 detected", time.Minute)
		m.until(time.Minute, "test ! -e /sys/class/net/ib1")
		one.SetDead(false) // its driver waits for that, up to a minute
		m.logHas("01:00.0: .*health recovery succeeded", 90*time.Second)
		m.until(time.Minute, "test -e /sys/class/net/ib0")
	})
}

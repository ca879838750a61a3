package scenarios

import (
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// The card is there at boot and nobody has loaded anything.
func TestUpCardAtBoot(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	m := b.story("6.12", c)
	m.ibup(0, "up")
	m.ping3("20.20.20.107")
	m.ibup(0, "wait")
}

// The subnet manager comes 20 s late: ibup waits and says what for.
func TestUpSMLate(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.host("20.20.20.107", 0)
		b.setSM(fabric.SMAbsent)
		c := b.card(hca.Config{})
		m := b.story(kernel, c)
		p := m.service("")
		m.reason("ib0", "IB-SM-ABSENT", time.Minute)
		// The late one: 20 s from now.
		b.Fabric.SetSMLate(20 * time.Second)
		m.finish(p, 0)
		m.ping3("20.20.20.107")
		if got := m.sh("ip route show proto 73"); got != "" {
			t.Errorf("a fallback within the time: %s", got)
		}
	})
}

// A partition's key arrives late; the child is there before it and has its
// address when it works.
func TestUpPKeyLate(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.allow(`P_Key 0x8001 is (not found|not assigned)`)
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}}, map[string]string{
		"ib0.8001": "[IPoIB]\nPKey=0x8001\n[Network]\nAddress=20.20.21.109/24\n[Verify]\nPing=20.20.21.107\n",
	}))
	p := m.service("")
	m.reason("ib0.8001", "IB-PKEY-ABSENT", time.Minute)
	b.partition(0x8001, fabric.Partition{Everyone: fabric.Full})
	b.host("20.20.21.107", 0x8001)
	m.finish(p, 0)
	m.ping3("20.20.21.107")
	if got := m.sh("cat /sys/class/net/ib0.8001/pkey"); got != "0x8001" {
		t.Errorf("pkey = %s", got)
	}
}

// The wanted name is taken: by an interface of another kind that nobody uses,
// and by the interface of another port.
func TestUpNameTaken(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c0, c1 := b.card(hca.Config{}), b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c0.Socket, c1.Socket}}, map[string]string{
		// The second card's port shall be ib0, which the kernel gives to the first.
		"ib0": strings.Replace(storyConf, "[Network]", "[Match]\nPCI=0000:02:00.0\n[Network]", 1),
	}))
	m.loadStack()
	m.until(time.Minute, "test -e /sys/class/net/ib1")
	first := m.sh("basename $(readlink /sys/class/net/ib0/device)")
	m.ibup(0, "up")
	m.ping3("20.20.20.107")
	if got := m.sh("basename $(readlink /sys/class/net/ib0/device)"); got != "0000:02:00.0" || got == first {
		t.Errorf("ib0 is on %s, was on %s", got, first)
	}
	if got := m.sh("ls -d /sys/class/net/ib*"); len(strings.Fields(got)) != 2 {
		t.Errorf("interfaces: %s", got)
	}
}

// An Ethernet card has the name: that one is left alone, and the reason says so.
func TestUpNameTakenByEthernet(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}, NICs: []vm.NIC{{Name: "ib0"}}},
		map[string]string{"ib0": storyConf}))
	out := m.ibup(1, "up")
	if !strings.Contains(out, "IB-NAME-TAKEN") {
		t.Errorf("ibup up:\n%s", out)
	}
	if got := m.sh("cat /sys/class/net/ib0/type"); got != "1" {
		t.Errorf("type of ib0 = %s: it was renamed away", got)
	}
}

// ib0 was set up by hand: it is adopted and not touched.
func TestUpAdopted(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	m := b.story("6.1", c)
	m.ib0("20.20.20.109/24")
	m.sh("ip addr add 192.0.2.9/24 dev ib0")
	m.until(time.Minute, "! ip addr show dev ib0 | grep tentative")
	before := m.sh("cat /sys/class/net/ib0/carrier_changes /sys/class/net/ib0/ifindex; ip addr show dev ib0; ip route")
	m.sh("ip monitor link address route dev ib0 >/tmp/monitor 2>&1 & echo $! >/tmp/monitor.pid; sleep 0.2")
	m.ibup(0, "up")
	m.sh("kill $(cat /tmp/monitor.pid)")
	if got := m.sh("cat /tmp/monitor"); got != "" {
		t.Errorf("rtnetlink saw:\n%s", got)
	}
	if after := m.sh("cat /sys/class/net/ib0/carrier_changes /sys/class/net/ib0/ifindex; ip addr show dev ib0; ip route"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if j := m.journal("ib0"); len(j.Steps) != 1 || j.Steps[0].Step.Kind != "verify" {
		t.Errorf("steps: %+v", j.Steps)
	}
}

// Running up again when all is up: no netlink write, little CPU.
func TestUpAgainChangesNothing(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	m := b.story("6.1", c)
	m.ibup(0, "up")
	m.until(time.Minute, "! ip addr show dev ib0 | grep tentative")
	m.sh("ip monitor link address route dev ib0 >/tmp/monitor 2>&1 & echo $! >/tmp/monitor.pid; sleep 0.2")
	for range 3 {
		m.ibup(0, "up")
	}
	m.sh("kill $(cat /tmp/monitor.pid)")
	if got := m.sh("cat /tmp/monitor"); got != "" {
		t.Errorf("rtnetlink saw:\n%s", got)
	}
	if out := m.ibup(0, "up --dry-run"); !strings.Contains(out, "ib0: nothing to change") {
		t.Errorf("dry run:\n%s", out)
	}
}

// Connected mode, where the hardware can, and the MTU that goes with it.
func TestUpConnectedMode(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.allow("multicast packet drops")
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}}, map[string]string{
		"ib0": "[IPoIB]\nMode=connected\nMTU=32768\n[Network]\nAddress=20.20.20.109/24\n",
	}))
	m.ibup(0, "up")
	if got := m.sh("cat /sys/class/net/ib0/mode /sys/class/net/ib0/mtu"); got != "connected\n32768" {
		t.Errorf("mode and MTU: %q", got)
	}
}

// A group of 2048 bytes limits an MTU of 4092, which is told; one of 4096 does not.
func TestUpMTULimited(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}}, map[string]string{
		"ib0": "[IPoIB]\nMTU=4092\n[Network]\nAddress=20.20.20.109/24\n",
	}))
	out := m.ibup(0, "up")
	if !strings.Contains(out, "IB-MTU-LIMITED") {
		t.Errorf("ibup up:\n%s", out)
	}
	if j := m.journal("ib0"); j.MTU.Asked != 4092 || j.MTU.Effective != 2044 || j.MTU.LimitedBy != "group" {
		t.Errorf("MTU: %+v", j.MTU)
	}
	if out := m.ibup(0, "status"); !strings.Contains(out, "2044 (asked 4092, limited by the broadcast group)") {
		t.Errorf("status:\n%s", out)
	}
	// It is not asked for again.
	m.ibup(0, "up")
	n := 0
	for _, s := range m.journal("ib0").Steps {
		if s.Step.Kind == "set-mtu" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("asked for %d times", n)
	}
}

// udev renames the interface after the kernel named it; it gets its name back.
func TestUpRenamedByUdev(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		b.host("20.20.20.107", 0)
		m := b.boot(b.withIbup(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}, PredictableNames: true}, map[string]string{"ib0": storyConf}))
		m.ibup(0, "up")
		m.sh("udevadm settle")
		m.ping3("20.20.20.107")
		if got := m.sh("ls -d /sys/class/net/ib*"); got != "/sys/class/net/ib0" {
			t.Errorf("interfaces: %s", got)
		}
		m.ibup(0, "status")
	})
}

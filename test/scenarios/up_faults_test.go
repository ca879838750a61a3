package scenarios

import (
	"strings"
	"testing"
	"time"

	"ibup/test/hca"
	"ibup/test/vm"
)

// A peer that does not answer: the interface has carrier and still does not
// work. When the peer is back, so is ib0.
func TestUpPeerSilent(t *testing.T) {
	parallel(t)
	b := newBench(t)
	peer := b.host("20.20.20.107", 0)
	peer.SetAnswering(false)
	c := b.card(hca.Config{})
	m := b.story("6.1", c)
	p := m.service("--timeout 10s")
	if j := m.verdict("ib0", "fallback", 2*time.Minute); j.Reason.Code != "IB-PEER-NO-ARP" {
		t.Errorf("reason: %+v", j.Reason)
	}
	m.overEthernet("20.20.20.107")
	peer.SetAnswering(true)
	m.finish(p, 0)
	m.overInfiniBand("20.20.20.107")
	m.ping3("20.20.20.107")
}

// A firmware command fails once and the driver gives the card up: ibup has it try
// again through its bind file.
func TestUpProbeRetried(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow("mlx5_core")
		b.host("20.20.20.107", 0)
		c := b.card(hca.Config{})
		c.FailCommand(hca.EnableHCA, hca.StatusInternal, 1)
		m := b.story(kernel, c)
		if out := m.ibup(0, "up"); !strings.Contains(out, "step=bind-driver") {
			t.Errorf("ibup up:\n%s", out)
		}
		m.ping3("20.20.20.107")
	})
}

// The bridge has no room for the card's BAR 0: the fallback at once.
func TestUpNoBAR(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.allow("mlx5_core|BAR")
	c := b.card(hca.Config{})
	m := b.storyIn(vm.Options{Kernel: "6.1", NICs: []vm.NIC{{Name: "eno1"}}, HotplugSlots: 1, TightSlots: true})
	if err := m.HotAdd(b.ctx, c.Socket); err != nil {
		t.Fatal(err)
	}
	m.until(time.Minute, "cat /sys/bus/pci/devices/*/vendor | grep 0x15b3")
	if out := m.ibup(3, "up"); !strings.Contains(out, "IB-PCI-NO-BAR") {
		t.Errorf("ibup up:\n%s", out)
	}
	m.overEthernet("20.20.20.107")
}

// The card dies while ib0 is up, and somebody watches: the fallback.
func TestUpCardDies(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.allow("mlx5|infiniband|ib0")
	b.host("20.20.20.107", 0)
	c := b.card(hca.Config{})
	o := vm.Options{Kernel: "6.1", NICs: []vm.NIC{{Name: "eno1"}}, HCAs: []string{c.Socket}}
	m := b.boot(b.withIbup(o, map[string]string{"ib0": storyConf + storyFallback + "[Boot]\nWatch=always\n"}))
	m.eno1()
	m.service("")
	m.verdict("ib0", "up", time.Minute)
	m.overInfiniBand("20.20.20.107")
	c.SetDead(true)
	j := m.verdict("ib0", "fallback", 3*time.Minute)
	t.Logf("reason: %+v", j.Reason)
	if !strings.HasPrefix(j.Reason.Code, "IB-PCI-") && !strings.HasPrefix(j.Reason.Code, "IB-FW-") {
		t.Errorf("reason: %+v", j.Reason)
	}
	m.overEthernet("20.20.20.107")
	c.SetDead(false)
}

// No card at all, but a plan for that: the fallback at once, and down takes it
// back.
func TestUpNoCard(t *testing.T) {
	parallel(t)
	b := newBench(t)
	m := b.story("6.1")
	if out := m.ibup(3, "up"); !strings.Contains(out, "IB-PCI-ABSENT") {
		t.Errorf("ibup up:\n%s", out)
	}
	m.overEthernet("20.20.20.107")
	m.ibup(0, "down ib0")
	if got := m.sh("ip route show proto 73"); got != "" {
		t.Errorf("down has left %s", got)
	}
}

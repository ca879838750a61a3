package scenarios

import (
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// The port's own interface and a partition's, each with a file and a name of its
// own; taking one down leaves the other alone.
func TestUpParentAndChild(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.partition(0x8001, fabric.Partition{Everyone: fabric.Full})
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	b.host("20.20.21.107", 0x8001)
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.12", HCAs: []string{c.Socket}}, map[string]string{
		"ib0":     storyConf,
		"storage": "[IPoIB]\nPKey=0x8001\n[Network]\nAddress=20.20.21.109/24\n[Verify]\nPing=20.20.21.107\n",
	}))
	m.ibup(0, "up")
	m.ping3("20.20.20.107")
	m.ping3("20.20.21.107")
	if got := m.sh("cat /sys/class/net/storage/pkey; ls /sys/class/net"); !strings.HasPrefix(got, "0x8001") || strings.Contains(got, "ib0.8001") {
		t.Errorf("storage: %s", got)
	}
	m.ibup(0, "down storage")
	m.until(time.Minute, "! test -e /sys/class/net/storage")
	m.ping3("20.20.20.107")
	m.ibup(0, "up")
	m.ping3("20.20.21.107")
}

// IPv6, a default gateway and a route: as asked for, with duplicate address
// detection over; what is there already and not ibup's stays.
func TestUpAddressesAndRoutes(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}, NICs: []vm.NIC{{Name: "eno1"}}}, map[string]string{
		"ib0": `[Network]
Address=20.20.20.109/24
Address=20.20.21.109/24
Address=fd00:20::109/64
Gateway=20.20.20.1
Route=30.30.0.0/16 via 20.20.20.107 metric 50
Route=fd00:30::/32 via fd00:20::107
`,
	}))
	m.eno1()
	m.sh("ip route add default via 10.20.0.1 dev eno1 metric 100")
	m.ibup(0, "up")
	if got := m.sh("ip -o addr show dev ib0 scope global | awk '{print $4}' | sort | xargs"); got != "20.20.20.109/24 20.20.21.109/24 fd00:20::109/64" {
		t.Errorf("addresses: %s", got)
	}
	if got := m.sh("ip -6 addr show dev ib0 tentative"); got != "" {
		t.Errorf("still tentative: %s", got)
	}
	routes := m.sh("ip route; ip -6 route show dev ib0")
	for _, want := range []string{
		"default via 20.20.20.1 dev ib0", "default via 10.20.0.1 dev eno1 metric 100",
		"30.30.0.0/16 via 20.20.20.107 dev ib0", "fd00:30::/32 via fd00:20::107",
	} {
		if !strings.Contains(routes, want) {
			t.Errorf("no %q in\n%s", want, routes)
		}
	}
	m.ibup(0, "down")
	if got := m.sh("ip route; ip -6 route show dev ib0 scope global; ip -o addr show dev ib0 scope global"); strings.Contains(got, "ib0") || !strings.Contains(got, "default via 10.20.0.1 dev eno1 metric 100") {
		t.Errorf("after ibup down:\n%s", got)
	}
}

// A network file system is mounted through ib0: ibup down refuses, and the files are
// still there to be read.
func TestUpDownRefusesMount(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c0, c1 := b.card(hca.Config{}), b.card(hca.Config{})
	ms := b.bootAll(
		b.withIbup(vm.Options{Name: "client", Kernel: "6.1", NFS: true, HCAs: []string{c0.Socket}}, map[string]string{"ib0": storyConf}),
		vm.Options{Name: "server", Kernel: "6.12", NFS: true, HCAs: []string{c1.Socket}},
	)
	client, server := ms[0], ms[1]
	server.ib0("20.20.20.107/24")
	server.sh("mkdir /srv && mount -t tmpfs none /srv && echo hello >/srv/data")
	server.exportNFS("/srv", "20.20.20.109")
	client.ibup(0, "up")
	client.sh("modprobe nfsv4 && mkdir /mnt/nfs && mount -t nfs4 -o ro,vers=4.2,addr=20.20.20.107,clientaddr=20.20.20.109 20.20.20.107:/ /mnt/nfs")
	before := client.sh("ip addr show dev ib0; ip route")
	out := client.ibup(1, "down")
	for _, want := range []string{"IB-IN-USE", "/mnt/nfs"} {
		if !strings.Contains(out, want) {
			t.Errorf("ibup down does not say %q:\n%s", want, out)
		}
	}
	if after := client.sh("ip addr show dev ib0; ip route"); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if got := client.sh("cat /mnt/nfs/data"); got != "hello" {
		t.Errorf("data: %q", got)
	}
	client.sh("umount /mnt/nfs")
	client.ibup(0, "down")
	if got := client.sh("ip -4 -o addr show dev ib0"); got != "" {
		t.Errorf("left: %s", got)
	}
}

// With Watch=always a later loss leads to the fallback and back; one that is over
// soon does not.
func TestUpWatchAlways(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	o := vm.Options{Kernel: "6.12", NICs: []vm.NIC{{Name: "eno1"}}, HCAs: []string{c.Socket}}
	m := b.boot(b.withIbup(o, map[string]string{"ib0": storyConf + storyFallback + "[Boot]\nWatch=always\n"}))
	m.eno1()
	m.service("")
	m.verdict("ib0", "up", time.Minute)
	cable := func(s fabric.PhysState, carrier string) {
		t.Helper()
		if err := c.Port.SetPhys(s); err != nil {
			t.Fatal(err)
		}
		m.carrier("ib0", carrier, carrierLimit)
	}
	// Out and in again: shorter than a subnet manager's restart.
	cable(fabric.PhysPolling, "0")
	cable(fabric.PhysLinkUp, "1")
	m.ping3("20.20.20.107")

	cable(fabric.PhysPolling, "0")
	if j := m.verdict("ib0", "fallback", time.Minute); j.Reason.Code != "IB-CABLE" {
		t.Errorf("reason: %+v", j.Reason)
	}
	m.overEthernet("20.20.20.107")
	cable(fabric.PhysLinkUp, "1")
	m.verdict("ib0", "up", time.Minute)
	m.overInfiniBand("20.20.20.107")
	m.ping3("20.20.20.107")
	var verdicts []string
	for _, h := range m.journal("ib0").History {
		if h.Verdict != "" && (len(verdicts) == 0 || verdicts[len(verdicts)-1] != h.Verdict) {
			verdicts = append(verdicts, h.Verdict)
		}
	}
	if got := strings.Join(verdicts, " "); got != "up fallback up" {
		t.Errorf("verdicts: %s", got)
	}
}

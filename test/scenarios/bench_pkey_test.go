package scenarios

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// A child interface carries its partition's traffic between two machines.
func TestBenchChildInterface(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.partition(0x8001, fabric.Partition{Everyone: fabric.Full})
	c0, c1 := b.card(hca.Config{}), b.card(hca.Config{})
	ms := b.bootAll(
		vm.Options{Name: "node109", Kernel: "6.1", HCAs: []string{c0.Socket}},
		vm.Options{Name: "node107", Kernel: "6.12", HCAs: []string{c1.Socket}},
	)
	for i, m := range ms {
		m.ib0([]string{"20.20.20.109/24", "20.20.20.107/24"}[i])
		m.child("0x8001")
		m.sh("ip addr add %s dev ib0.8001", []string{"20.20.21.109/24", "20.20.21.107/24"}[i])
		m.carrier("ib0.8001", "1", carrierLimit)
		if got := m.sh("ip -d link show ib0.8001"); !strings.Contains(got, "pkey 0x8001") {
			t.Errorf("%s: no P_Key 0x8001 in\n%s", m.Name(), got)
		}
	}
	ms[0].ping3("20.20.20.107")
	ms[0].ping3("20.20.21.107")
	ms[1].ping3("20.20.21.109", "-s 1900")

	// It is the partition that carries it: who leaves it is not reached.
	b.allow(`^ib0\.8001: P_Key 0x8001 is (not found|not assigned)`)
	if err := b.Fabric.SetMember(0x8001, fabric.NotMember, c1.Config().PortGUID); err != nil {
		t.Fatal(err)
	}
	ms[1].carrier("ib0.8001", "0", carrierLimit)
	ms[0].fails("ping -c 2 -i 0.3 -W 2 20.20.21.107")
	ms[0].ping3("20.20.20.107")
}

// A child whose P_Key is not in the port's table has no carrier, and gains it
// when the table changes.
func TestBenchPKeyNotInTable(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`^ib0\.8002: P_Key 0x8002 is (not found|not assigned)`)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		m.child("0x8002")
		m.noCarrier("ib0.8002")

		b.partition(0x8002, fabric.Partition{Everyone: fabric.Full})
		m.carrier("ib0.8002", "1", carrierLimit)
		m.sh("ip addr add 20.20.22.109/24 dev ib0.8002")
		b.host("20.20.22.107", 0x8002)
		m.ping3("20.20.22.107")
	})
}

// Two limited members of a partition do not reach each other, a full one
// reaches both.
func TestBenchLimitedMembers(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.partition(0x8001, fabric.Partition{Everyone: fabric.Limited})
		c := b.card(hca.Config{})
		limited, full := b.host("20.20.21.107", 0x8001), b.host("20.20.21.108", 0x8001)
		if err := b.Fabric.SetMember(0x8001, fabric.Full, full.Port().Config().GUID); err != nil {
			t.Fatal(err)
		}
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		m.child("0x8001")
		m.sh("ip addr add 20.20.21.109/24 dev ib0.8001")
		m.carrier("ib0.8001", "1", carrierLimit)

		m.ping3("20.20.21.108")
		b.reach(full, "20.20.21.107")
		m.fails("ping -c 2 -i 0.3 -W 2 20.20.21.107")
		if limited.Port().Counters().Drops[fabric.DropReceiverPKey] == 0 {
			t.Error("no packet was refused for its P_Key: the ping failed for another reason")
		}

		if err := b.Fabric.SetMember(0x8001, fabric.Full, c.Config().PortGUID); err != nil {
			t.Fatal(err)
		}
		m.until(time.Minute, "ping -c 1 -W 1 20.20.21.107")
	})
}

// partition makes or replaces a partition.
func (b *bench) partition(pkey uint16, p fabric.Partition) {
	b.t.Helper()
	if err := b.Fabric.SetPartition(pkey, p); err != nil {
		b.t.Fatal(err)
	}
}

// reach fails unless the host reaches the address.
func (b *bench) reach(h *fabric.Host, ip string) {
	b.t.Helper()
	if err := h.Ping(b.ctx, netip.MustParseAddr(ip)); err != nil {
		b.t.Fatal(err)
	}
}

// child makes ib0's child interface for a P_Key, written 0x8001, and sets it up.
func (m *machine) child(pkey string) {
	m.b.t.Helper()
	m.sh("echo %s > /sys/class/net/ib0/create_child", pkey)
	m.sh("ip link set ib0.%s up", strings.TrimPrefix(pkey, "0x"))
}

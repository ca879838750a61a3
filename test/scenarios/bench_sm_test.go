package scenarios

import (
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// Without a subnet manager the port stays at Init and ib0 has no carrier; when
// one appears ib0 gains it within 5 s of guest time.
func TestBenchSMAppears(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.setSM(fabric.SMAbsent)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.loadStack()
		m.file(time.Minute, "", "/sys/class/net/ib0/address")
		m.sh("ip addr add 20.20.20.109/24 dev ib0 && ip link set ib0 up")
		m.noCarrier("ib0")
		m.port("state", "2: INIT")
		m.port("sm_lid", "0x0")

		b.setSM(fabric.SMPresent)
		m.carrier("ib0", "1", carrierLimit)
		m.port("state", "4: ACTIVE")
		b.host("20.20.20.107", 0)
		m.ping3("20.20.20.107")
	})
}

// A subnet manager that vanishes takes away neither carrier nor the paths that
// are known, but no path is found and no group joined until there is one again.
func TestBenchSMGone(t *testing.T) {
	parallel(t)
	b := newBench(t)
	c := b.card(hca.Config{})
	b.host("20.20.20.107", 0)
	b.host("20.20.20.108", 0)
	m := b.boot(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}})
	m.ib0("20.20.20.109/24")
	m.ping3("20.20.20.107")
	b.setSM(fabric.SMGone)
	m.ping3("20.20.20.107")
	m.fails("ping -c 1 -W 2 20.20.20.108")
	m.sh("ip link set ib0 down && ip link set ib0 up")
	m.noCarrier("ib0")
	m.port("state", "4: ACTIVE")
	b.setSM(fabric.SMPresent)
	m.carrier("ib0", "1", carrierLimit)
	m.ping3("20.20.20.108")
}

func (b *bench) setSM(mode fabric.SMMode) {
	b.t.Helper()
	if err := b.Fabric.SetSM(mode); err != nil {
		b.t.Fatal(err)
	}
}

package scenarios

import (
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// The broadcast group's MTU bounds ib0's: 2048 clamps 4092 to 2044, 4096 does
// not, and then a packet of that size arrives whole.
func TestBenchGroupMTU(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		m.sh("ip link set ib0 mtu 4092")
		if got := m.sh("cat /sys/class/net/ib0/mtu"); got != "2044" {
			t.Errorf("MTU of ib0 with a 2K group = %s, want 2044", got)
		}

		// Groups that exist keep their MTU, so the SM starts anew.
		b.setSM(fabric.SMAbsent)
		m.carrier("ib0", "0", carrierLimit)
		b.partition(fabric.DefaultPKey, fabric.Partition{MTU: 4096, Everyone: fabric.Full})
		b.setSM(fabric.SMPresent)
		b.host("20.20.20.107", 0)
		m.carrier("ib0", "1", carrierLimit)
		m.file(time.Minute, "^4092\n", "/sys/class/net/ib0/mtu")
		m.ping3("20.20.20.107", "-M do -s 4064")

		m.sh("ip link set ib0 mtu 2044")
		m.fails("ping -c 1 -M do -s 4064 20.20.20.107")
		m.sh("ip link set ib0 mtu 4092")
		m.ping3("20.20.20.107", "-M do -s 4064")
	})
}

package scenarios

import (
	"strings"
	"testing"

	"ibup/test/hca"
	"ibup/test/vm"
)

// The drivers bind without a complaint, and ib0 is an InfiniBand interface
// with carrier that answers.
func TestBenchHealthyBoot(t *testing.T) {
	kernels(t, allKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		b.host("20.20.20.107", 0)
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}})
		m.ib0("20.20.20.109/24")
		if got := m.sh("cat /sys/class/net/ib0/type"); got != "32" {
			t.Errorf("type of ib0 = %s, want 32 (InfiniBand)", got)
		}
		if got := m.sh("cat /sys/class/infiniband/*/ports/1/state"); !strings.Contains(got, "ACTIVE") {
			t.Errorf("port state = %q, want ACTIVE", got)
		}
		m.ping3("20.20.20.107")
	})
}

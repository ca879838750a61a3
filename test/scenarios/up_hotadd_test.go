package scenarios

import (
	"strings"
	"testing"
	"time"

	"ibup/test/hca"
)

// The main job: the card is plugged in, and ib0 has its address and answers.
func TestUpHotAdd(t *testing.T) {
	kernels(t, allKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		b.host("20.20.20.107", 0)
		m := b.story(kernel)
		if err := m.HotAdd(b.ctx, c.Socket); err != nil {
			t.Fatal(err)
		}
		m.until(time.Minute, "ls /sys/bus/pci/devices/*/vendor | xargs grep -l 0x15b3")
		out := m.ibup(0, "up")
		t.Log(out)
		if got := m.sh("ip -4 -o addr show dev ib0"); !strings.Contains(got, "20.20.20.109/24") {
			t.Errorf("addresses of ib0: %s", got)
		}
		m.overInfiniBand("20.20.20.107")
		m.ping3("20.20.20.107")
		if j := m.journal("ib0"); j.Verdict != "up" || !j.Facts.Verified.OK || j.Target.Link != "ib0" {
			t.Errorf("journal: %+v", j)
		}
		t.Log(m.ibup(0, "status"))
	})
}

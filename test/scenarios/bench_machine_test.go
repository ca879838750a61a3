package scenarios

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibup/test/hca"
	"ibup/test/vm"
)

// What scenarios rely on: exit status, output, files, signals, and the
// kernel's events of a card that is plugged in, in their true order.
func TestBenchMachine(t *testing.T) {
	kernels(t, []string{"6.12"}, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HotplugSlots: 1, NICs: []vm.NIC{{Name: "eno1"}}})
		r, err := m.Sh(b.ctx, "echo out; echo err >&2; exit 7")
		if err != nil || r.Code != 7 || r.Stdout != "out\n" || r.Stderr != "err\n" {
			t.Errorf("result %+v, %v", r, err)
		}
		if _, err := m.Run(b.ctx, "no-such-command"); err == nil {
			t.Error("a command that is not there runs")
		}
		big := strings.Repeat("0123456789abcdef", 1<<14)
		if err := m.Put(b.ctx, "/tmp/deep/file", []byte(big), 0o600); err != nil {
			t.Error(err)
		}
		if got, err := m.Get(b.ctx, "/tmp/deep/file"); err != nil || string(got) != big {
			t.Errorf("%d bytes come back of %d, %v", len(got), len(big), err)
		}
		p, err := m.Background("sh", "-c", "echo begun; sleep 1000")
		if err != nil {
			t.Fatal(err)
		}
		m.until(time.Minute, "pidof sleep")
		if out, _, err := p.Output(b.ctx); err != nil || out != "begun\n" {
			t.Errorf("output so far %q, %v", out, err)
		}
		if err := p.Signal(b.ctx, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if r, err := p.Wait(b.ctx); err != nil || r.Code != 128+15 {
			t.Errorf("killed command ends with %+v, %v", r, err)
		}
		m.sh("ip addr add 10.20.0.15/24 dev eno1 && ip link set eno1 up")
		m.ping3("10.20.0.1")

		if err := m.HotAdd(b.ctx, c.Socket); err != nil {
			t.Fatal(err)
		}
		m.loadStack()
		m.until(time.Minute, "test -e /sys/class/net/ib0")
		m.sh("udevadm settle")
		events, err := m.Uevents(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		steps := []struct{ action, subsystem string }{
			{"add", "pci"}, {"add", "auxiliary"}, {"add", "infiniband"}, {"add", "net"},
		}
		next := 0
		for _, e := range events {
			if next < len(steps) && strings.Contains(e.Devpath, "/0000:01:00.0") &&
				e.Action == steps[next].action && e.Env["SUBSYSTEM"] == steps[next].subsystem {
				next++
			}
		}
		if next != len(steps) {
			t.Errorf("no %v at its place in %d events", steps[next], len(events))
		}
	})
}

// A slot whose bridge window is too small for BAR 0: the function is there, the
// driver gives up.
func TestBenchNoRoomForBAR(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.allow(`Missing registers BAR, aborting|error requesting BARs, aborting|probe_one.*failed with error code -|probe with driver mlx5_core failed`)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HotplugSlots: 1, TightSlots: true})
		if err := m.HotAdd(b.ctx, c.Socket); err != nil {
			t.Fatal(err)
		}
		m.logHas("BAR 0.*no space", time.Minute)
		m.sh("modprobe mlx5_core")
		m.logHas("0000:01:00.0: Missing registers BAR, aborting", time.Minute)
		m.fails("test -e " + cardPath + "/driver")
	})
}

// With rdma-core's rules and udev's own naming nothing is called ib0 or mlx5_0.
func TestBenchOtherNames(t *testing.T) {
	kernels(t, []string{"6.12"}, func(t *testing.T, kernel string) {
		b := newBench(t)
		c := b.card(hca.Config{})
		m := b.boot(vm.Options{Kernel: kernel, HCAs: []string{c.Socket}, RDMACore: true, PredictableNames: true})
		m.loadStack()
		m.until(time.Minute, "ls "+cardPath+"/net/ && udevadm settle")
		for dir, want := range map[string]string{"net": "ibp1s0", "infiniband": "ibp1s0"} {
			if got := m.sh("ls %s/%s", cardPath, dir); got != want {
				t.Errorf("%s device is called %q, want %q", dir, got, want)
			}
		}
		m.sh("ip link set ibp1s0 up")
		m.carrier("ibp1s0", "1", time.Minute)
	})
}

// The emulator itself keeps nothing of a card that came and went 20 times. Not
// in parallel: what it counts is the process's.
func TestBenchNoLeak(t *testing.T) {
	b := newBench(t)
	c := b.card(hca.Config{})
	m := b.boot(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}})
	m.sh("modprobe -a mlx5_core mlx5_ib")
	count := func() (goroutines, fds int, heap uint64) {
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(open), ms.HeapAlloc
	}
	cycle := func() {
		m.sh("echo 1 > " + cardPath + "/remove; echo 1 > /sys/bus/pci/rescan")
		m.until(time.Minute, "test -e "+cardPath+"/infiniband")
	}
	cycle() // buffers reach their size
	g0, f0, h0 := count()
	for range 20 {
		cycle()
	}
	g1, f1, h1 := count()
	if g1 > g0 {
		t.Errorf("%d goroutines, %d before", g1, g0)
	}
	if f1 > f0 {
		t.Errorf("%d open files, %d before", f1, f0)
	}
	if h1 > h0+1<<20 {
		t.Errorf("%d bytes of heap, %d before", h1, h0)
	}
}

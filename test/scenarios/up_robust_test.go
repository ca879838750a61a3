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

// everything is a file that makes a bring-up take every kind of step.
const everything = `[IPoIB]
PKey=0x8001
MTU=4092
[Network]
Address=20.20.21.109/24
Address=fd00:21::109/64
Gateway=20.20.21.107
Route=30.30.0.0/16 via 20.20.21.107 metric 50
[Verify]
Ping=20.20.21.107
`

// end is the state of the machine that must come out, whatever happened on the way.
func (m *machine) end() string {
	m.b.t.Helper()
	return m.sh(`for i in /sys/class/net/ib*; do echo $(basename $i) $(cat $i/pkey $i/mode $i/mtu $i/flags $i/carrier); done
ip -o addr show scope global | awk '$2 ~ /^ib/ {print $2, $4}' | sort
ip -4 route show dev ib0.8001; ip -6 route show dev ib0.8001 | grep -v fe80`)
}

// kill -9 at every step of a bring-up, each step once, then started again: the
// same end, nothing twice, nothing left over.
func TestUpKilledAtEveryStep(t *testing.T) {
	parallel(t)
	b := newBench(t)
	// A load that is killed in the middle of the probe fails with these.
	b.allow(`P_Key 0x8001|mlx5_core|mlx5_ib|infiniband|ib0|ib_`)
	b.partition(0x8001, fabric.Partition{Everyone: fabric.Full})
	b.host("20.20.21.107", 0x8001)
	c := b.card(hca.Config{})
	m := b.boot(b.withIbup(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}}, map[string]string{"ib0.8001": everything}))
	// The journal tells that step n has begun; then, at once, the end.
	kill := func(n int) {
		t.Helper()
		m.sh(`ibup up >/tmp/killed 2>&1 & pid=$!
until grep -q '"n": %d,' /run/ibup/ib0.8001.json 2>/dev/null; do kill -0 $pid 2>/dev/null || break; done
kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null; true`, n)
	}
	kill(1) // the load of the modules
	m.ibup(0, "up")
	want := m.end()
	m.forget()
	m.ibup(0, "up")
	steps := m.journal("ib0.8001").Steps
	t.Logf("%d steps; the end:\n%s", len(steps), want)
	if len(steps) < 8 {
		t.Fatalf("only %d steps: %+v", len(steps), steps)
	}
	for n := 1; n <= len(steps); n++ {
		if got := m.end(); got != want {
			t.Errorf("before step %d: the end is\n%s\nwant\n%s", n, got, want)
		}
		m.forget()
		kill(n)
		m.ibup(0, "up")
		if got := m.end(); got != want {
			t.Errorf("killed at step %d (%s): the end is\n%s\nwant\n%s", n, steps[n-1].Text, got, want)
		}
		if got := m.sh("ls -A /run/ibup"); strings.Contains(got, ".new") {
			t.Errorf("left over: %s", got)
		}
	}
	m.ping3("20.20.21.107")
}

// forget takes away what ibup made, so that the next bring-up starts from the
// loaded modules.
func (m *machine) forget() {
	m.b.t.Helper()
	m.ibup(0, "down")
	m.until(time.Minute, "! test -e /sys/class/net/ib0.8001")
	m.sh("rm -f /run/ibup/*.json")
}

// Several at once, and two hundred repetitions, give one result.
func TestUpManyAtOnce(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.host("20.20.20.107", 0)
	c := b.card(hca.Config{})
	m := b.story("6.1", c)
	m.sh(`for i in 1 2 3 4; do ibup up >/tmp/out.$i 2>&1; echo $? >/tmp/rc.$i; done &
for i in 5 6 7 8; do ibup up --device 0000:01:00.0 >/tmp/out.$i 2>&1; echo $? >/tmp/rc.$i; done & wait`)
	if got := m.sh("cat /tmp/rc.* | sort | uniq -c"); strings.Join(strings.Fields(got), " ") != "8 0" {
		t.Errorf("exit codes: %s\n%s", got, m.sh("cat /tmp/out.*"))
	}
	changes := map[string]int{}
	for _, s := range m.journal("ib0").Steps {
		if s.Step.Kind != "verify" {
			changes[s.Step.Kind]++
		}
	}
	for kind, n := range changes {
		if n != 1 {
			t.Errorf("%s was done %d times", kind, n)
		}
	}
	m.sh("for i in $(seq 5); do ibup up --device 0000:01:00.0 >/dev/null 2>&1 & ibup up >/dev/null 2>&1 || exit 1; wait $! || exit 1; done")
	m.ping3("20.20.20.107")
	if got := m.sh("ls -d /sys/class/net/ib* | wc -l; ip -4 -o addr show dev ib0 | wc -l"); got != "1\n1" {
		t.Errorf("interfaces and addresses: %q", got)
	}
}

// The card is pulled out at each stage of a bring-up, and put back: no crash, and
// one interface in the end.
func TestUpSurpriseRemoval(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.allow("mlx5|infiniband|ib0|ib_")
	b.host("20.20.20.107", 0)
	c := b.card(hca.Config{})
	m := b.story("6.1", c)
	for n := 1; n <= 5; n++ {
		t.Logf("removed at step %d", n)
		p := m.service("")
		m.sh(`i=0; until grep -q '"n": %d,' /run/ibup/ib0.json 2>/dev/null || grep -q '"verdict": "up"' /run/ibup/ib0.json 2>/dev/null; do i=$((i+1)); [ $i -lt 100000 ] || exit 1; done
echo 1 > /sys/bus/pci/devices/0000:01:00.0/remove`, n)
		m.sh("echo 1 > /sys/bus/pci/rescan")
		r, err := p.Wait(b.ctx)
		if err != nil || r.Code != 0 {
			t.Fatalf("removed at step %d: exit code %d, %v\n%s", n, r.Code, err, r.Stderr)
		}
		// A run that had come up before the removal is followed by another.
		m.ibup(0, "up")
		m.ping3("20.20.20.107")
		m.overInfiniBand("20.20.20.107")
		m.ibup(0, "down ib0")
		m.sh("modprobe -r ib_ipoib mlx5_ib mlx5_core ib_umad ib_cm; rm -f /run/ibup/*.json")
	}
}

// Eight cards with eight files, side by side, take less than twice the time of one.
func TestUpEightCards(t *testing.T) {
	parallel(t)
	b := newBench(t)
	o := vm.Options{Kernel: "6.1", MemMB: 1024}
	confs := map[string]string{}
	for i := range 8 {
		c := b.card(hca.Config{})
		o.HCAs = append(o.HCAs, c.Socket)
		b.host(fmt.Sprintf("20.20.%d.107", 20+i), 0)
		confs[fmt.Sprintf("ib%d", i)] = fmt.Sprintf("[Match]\nPortGUID=0x%016x\n[Network]\nAddress=20.20.%d.109/24\n[Verify]\nPing=20.20.%d.107\n",
			uint64(c.Config().PortGUID), 20+i, 20+i)
	}
	m := b.boot(b.withIbup(o, confs))
	m.loadStack()
	m.until(2*time.Minute, "test -e /sys/class/net/ib7")
	took := func(args string) time.Duration {
		before := m.uptime()
		m.ibup(0, args)
		return m.uptime() - before
	}
	one := took("up ib0")
	m.ibup(0, "down ib0")
	all := took("up")
	t.Logf("one: %v, eight: %v", one, all)
	if all > 2*one+2*time.Second { // starting a process takes its time under TCG
		t.Errorf("eight took %v, one %v", all, one)
	}
	for i := range 8 {
		if got := m.sh("cat /sys/class/net/ib%d/address", i); !strings.HasSuffix(got, fmt.Sprintf("a1:%02x:00", i)) {
			t.Errorf("ib%d has the address %s", i, got)
		}
		m.ping3(fmt.Sprintf("20.20.%d.107", 20+i))
	}
}

func (m *machine) uptime() time.Duration {
	m.b.t.Helper()
	var sec float64
	fmt.Sscan(m.sh("cat /proc/uptime"), &sec)
	return time.Duration(sec * float64(time.Second))
}

// Down takes away what ibup added and nothing else.
func TestUpDown(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.host("20.20.20.107", 0)
	c := b.card(hca.Config{})
	m := b.story("6.1", c)
	m.ibup(0, "up")
	m.sh("ip addr add 192.0.2.9/24 dev ib0")
	if out := m.ibup(0, "down ib0"); !strings.Contains(out, "stays up: it has the address 192.0.2.9/24") {
		t.Errorf("ibup down:\n%s", out)
	}
	if got := m.sh("ip -4 -o addr show dev ib0"); strings.Contains(got, "20.20.20.109") || !strings.Contains(got, "192.0.2.9") {
		t.Errorf("addresses: %s", got)
	}
	m.sh("ip addr del 192.0.2.9/24 dev ib0")
	// The driver was loaded by udev, by the card's alias; these by ibup.
	if out := m.ibup(0, "down ib0 --unload"); !strings.Contains(out, "unload ib_umad, ib_ipoib, ib_cm") {
		t.Errorf("ibup down:\n%s", out)
	}
	if got := m.sh("ls /sys/class/net; cat /proc/modules"); strings.Contains(got, "ib_ipoib") || strings.Contains(got, "ib_cm") {
		t.Errorf("left: %s", got)
	}
	m.ibup(0, "up")
	m.ping3("20.20.20.107")
}

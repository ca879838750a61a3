// Package scenarios holds the tests that need a virtual machine: what is
// claimed of the bench and of ibup is shown here on real drivers.
package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/image"
	"ibup/test/lab"
	"ibup/test/vm"
)

// bench is a [lab.Lab] for one test: whatever goes wrong fails the test, and a
// failed test shows the consoles and the last firmware commands.
type bench struct {
	*lab.Lab
	t        testing.TB
	ctx      context.Context
	machines []*machine
	harmless []*regexp.Regexp
}

// scenarioLimit bounds one scenario on a loaded machine; a healthy one takes
// less than a tenth of it.
const scenarioLimit = 8 * time.Minute

func newBench(t testing.TB) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a virtual machine, and -short was given")
	}
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), scenarioLimit)
	b := &bench{Lab: l, t: t, ctx: ctx}
	t.Cleanup(func() {
		b.check()
		cancel()
		l.Close()
	})
	return b
}

// parallel lets a scenario run beside others, as many as -parallel allows.
func parallel(t *testing.T) {
	if !testing.Short() {
		t.Parallel()
	}
}

// kernels runs a scenario on each named kernel that the cache has. 6.1 and
// 6.12 must be there; the others come and go with the package mirrors.
func kernels(t *testing.T, names []string, scenario func(*testing.T, string)) {
	for _, k := range names {
		t.Run(k, func(t *testing.T) {
			parallel(t)
			if k != "6.1" && k != "6.12" && !testing.Short() && !haveKernel(t, k) {
				t.Skipf("kernel %s: the package mirrors do not carry it", k)
			}
			scenario(t, k)
		})
	}
}

func haveKernel(t *testing.T, name string) bool {
	c, err := image.Open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Kernel(name)
	return !errors.Is(err, image.ErrNotSetUp)
}

var (
	mainKernels = []string{"6.1", "6.12"}
	allKernels  = []string{"5.10", "6.1", "6.12", "newest"}
)

// card makes an HCA, see [lab.Lab.Card].
func (b *bench) card(cfg hca.Config) *lab.Card {
	b.t.Helper()
	c, err := b.Card(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// host puts a host on the fabric that answers ARP and ping.
func (b *bench) host(ip string, pkey uint16) *fabric.Host {
	b.t.Helper()
	h, err := b.Host(b.ctx, ip, pkey)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// allow names kernel log lines, as a regular expression, that this scenario
// provokes.
func (b *bench) allow(lines string) { b.harmless = append(b.harmless, regexp.MustCompile(lines)) }

// machine is a [vm.VM] whose failures are the test's.
type machine struct {
	*vm.VM
	b *bench
}

func (b *bench) boot(o vm.Options) *machine {
	b.t.Helper()
	return b.machine(b.Boot(b.ctx, o))
}

func (b *bench) machine(v *vm.VM, err error) *machine {
	b.t.Helper()
	if errors.Is(err, image.ErrNotSetUp) && os.Getenv("IBUP_CI") == "" {
		b.t.Skip(err)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	m := &machine{VM: v, b: b}
	b.machines = append(b.machines, m)
	return m
}

// bootAll boots machines side by side.
func (b *bench) bootAll(options ...vm.Options) []*machine {
	b.t.Helper()
	vms, errs := make([]*vm.VM, len(options)), make([]error, len(options))
	var wg sync.WaitGroup
	for i, o := range options {
		wg.Go(func() { vms[i], errs[i] = b.Boot(b.ctx, o) })
	}
	wg.Wait()
	var ms []*machine
	for i, v := range vms {
		ms = append(ms, b.machine(v, errs[i]))
	}
	return ms
}

// sh runs a script in the guest and returns its output without the final
// newline; a failing script fails the test.
func (m *machine) sh(format string, args ...any) string {
	m.b.t.Helper()
	script := fmt.Sprintf(format, args...)
	r, err := m.Sh(m.b.ctx, script)
	if err != nil {
		m.b.t.Fatalf("%s: %v", script, err)
	}
	if r.Code != 0 {
		m.b.t.Fatalf("%s: exit status %d\n%s%s", script, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimRight(r.Stdout, "\n")
}

// fails runs a script that must fail and returns all it printed.
func (m *machine) fails(format string, args ...any) string {
	m.b.t.Helper()
	script := fmt.Sprintf(format, args...)
	r, err := m.Sh(m.b.ctx, script)
	if err != nil {
		m.b.t.Fatalf("%s: %v", script, err)
	}
	if r.Code == 0 {
		m.b.t.Fatalf("%s: succeeds, but must not\n%s%s", script, r.Stdout, r.Stderr)
	}
	return r.Stdout + r.Stderr
}

// until waits, in guest time, until a script succeeds.
func (m *machine) until(limit time.Duration, script string) string {
	m.b.t.Helper()
	out, err := m.WaitUntil(m.b.ctx, script, limit)
	if err != nil {
		m.b.t.Fatalf("not within %v: %s: %v", limit, script, err)
	}
	return out
}

// file waits, in guest time, until a file exists and its contents match a
// regular expression, and returns them. It costs the guest less than until.
func (m *machine) file(limit time.Duration, match, path string, args ...any) string {
	m.b.t.Helper()
	got, err := m.WaitFile(m.b.ctx, fmt.Sprintf(path, args...), match, limit)
	if err != nil {
		m.b.t.Fatal(err)
	}
	return strings.TrimRight(got, "\n")
}

// carrier waits for an interface's carrier to be want, "0" or "1".
func (m *machine) carrier(link, want string, limit time.Duration) {
	m.b.t.Helper()
	m.file(limit, "^"+want, "/sys/class/net/%s/carrier", link)
}

// noCarrier fails when an interface that is up has carrier now, or gains it
// within the time that [carrierLimit] gives one that should.
func (m *machine) noCarrier(link string) {
	m.b.t.Helper()
	if got := m.sh("cat /sys/class/net/%s/carrier", link); got != "0" {
		m.b.t.Fatalf("carrier of %s = %s, want 0", link, got)
	}
	_, err := m.WaitFile(m.b.ctx, "/sys/class/net/"+link+"/carrier", "^1", carrierLimit)
	switch {
	case err == nil:
		m.b.t.Fatalf("%s has carrier, must have none", link)
	case m.b.ctx.Err() != nil:
		m.b.t.Fatal(err)
	}
}

// carrierLimit is, in guest time, how soon an interface has carrier once
// nothing stands in the way.
const carrierLimit = 5 * time.Second

// port waits until an attribute of the HCA's port has a value.
func (m *machine) port(attribute, value string) {
	m.b.t.Helper()
	m.file(time.Minute, "^"+regexp.QuoteMeta(value)+"\n", "/sys/class/infiniband/mlx5_0/ports/1/%s", attribute)
}

// loadStack is the story's own way to ib0.
func (m *machine) loadStack() {
	m.b.t.Helper()
	m.sh("modprobe -a mlx5_core mlx5_ib ib_ipoib")
}

// ib0 loads the stack by hand and gives ib0 an address, up to carrier.
func (m *machine) ib0(address string) {
	m.b.t.Helper()
	m.loadStack()
	m.until(time.Minute, "test -e /sys/class/net/ib0")
	m.sh("ip addr add %s dev ib0 && ip link set ib0 up", address)
	m.carrier("ib0", "1", time.Minute)
}

// ping3 sends three pings, all of which must be answered.
func (m *machine) ping3(ip string, options ...string) {
	m.b.t.Helper()
	if _, err := netip.ParseAddr(ip); err != nil {
		m.b.t.Fatal(err)
	}
	out := m.sh("ping -c 3 -i 0.3 -W 5 %s %s", strings.Join(options, " "), ip)
	if !strings.Contains(out, "3 packets transmitted, 3 received, 0% packet loss") {
		m.b.t.Errorf("ping %s:\n%s", ip, out)
	}
}

// harmless are warnings of the kernel that say something about the bench and
// nothing about the drivers.
var harmless = regexp.MustCompile(strings.Join([]string{
	`PCIe bandwidth`, // the root port is QEMU's, not a real link
	// The join of a group ends before the link watcher has given ib0 its queue: the
	// first packet meets the placeholder, which answers 2 (NET_XMIT_CN). A race of
	// the kernel's own, seen on a loaded machine.
	`dev_queue_xmit failed to re-queue packet, ret:2`,
}, "|"))

// aboutUs finds the log lines of the InfiniBand stack and of a kernel in
// distress.
var aboutUs = regexp.MustCompile(`mlx5|infiniband|^ib\d|ib_|ipoib|IPoIB|WARNING:|BUG:|Oops|Call Trace|hung task|blocked for more than`)

// check is the part of every scenario that comes last: no warning in the
// kernel log, nothing sent to the card that a card would not take.
func (b *bench) check() {
	for _, m := range b.machines {
		select {
		case <-m.Ended():
			continue // a scenario that lets it end looks at the log itself
		default:
		}
		log, err := m.Kmsg(context.WithoutCancel(b.ctx))
		if err != nil {
			b.t.Errorf("%s: kernel log: %v", m.Name(), err)
		}
	lines:
		for _, l := range log {
			if l.Level > 4 || !aboutUs.MatchString(l.Text) || harmless.MatchString(l.Text) {
				continue
			}
			for _, re := range b.harmless {
				if re.MatchString(l.Text) {
					continue lines
				}
			}
			b.t.Errorf("%s: kernel log, level %d, at %.1f s: %s", m.Name(), l.Level, l.Uptime, l.Text)
		}
	}
	for _, c := range b.Cards() {
		for _, p := range c.Problems() {
			b.t.Errorf("%s: %s", c.Config().Name, p)
		}
	}
	if !b.t.Failed() {
		return
	}
	for _, m := range b.machines {
		b.t.Logf("console of %s:\n%s", m.Name(), m.ConsoleTail())
	}
	for _, c := range b.Cards() {
		b.t.Logf("last commands of %s:\n%s", c.Config().Name, strings.Join(c.LastCommands(25), "\n"))
	}
}

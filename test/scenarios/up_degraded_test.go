package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/lab"
	"ibup/test/vm"
)

// trouble is something that keeps InfiniBand from working, until it is cured
// from outside.
type trouble struct {
	card      hca.Config
	strike    func(*machine, *lab.Card) // before ibup starts
	code      string                    // the reason that is right
	pointless bool                      // nothing is waited for
	evidence  string                    // what status shows besides
	kernel    string                    // kernel log lines that come of it
	cure      func(*machine, *lab.Card)
}

// onTheWay are reasons to wait that a bring-up has before it knows better.
var onTheWay = []string{"IB-MOD-LOADING", "IB-PROBE-WAIT", "IB-FW-WAIT", "IB-UDEV-PENDING", "IB-DEVICE-ABSENT", "IB-NETDEV-ABSENT"}

// patience is the Timeout= of the file: what is curable is waited for that long.
const patience = 12 * time.Second

// atOnce is how soon the fallback is in place once waiting is over.
const atOnce = 2 * time.Second

// run has ibup meet the trouble as a service: the right reason, the node
// reachable over Ethernet, exit codes that say so; and after the cure ib0.
func (x trouble) run(t *testing.T, kernel string) {
	b := newBench(t)
	if x.kernel != "" {
		b.allow(x.kernel)
	}
	c := b.card(x.card)
	b.host("20.20.20.107", 0)
	o := vm.Options{Kernel: kernel, NICs: []vm.NIC{{Name: "eno1"}}, HotplugSlots: 1}
	m := b.boot(b.withIbup(o, map[string]string{"ib0": storyConf + storyFallback + "[Boot]\nTimeout=" + patience.String() + "\n"}))
	m.eno1()
	if x.strike != nil {
		x.strike(m, c)
	}
	// Modules without a card: what is measured here is not how fast they load.
	m.sh("modprobe mlx5_ib")
	m.plug(c)
	p := m.service("")
	j := m.verdict("ib0", "fallback", 2*time.Minute)
	m.overEthernet("20.20.20.107")
	m.ping3("10.20.0.1")

	if j.Reason.Code != x.code {
		t.Errorf("reason %s (%s), want %s", j.Reason.Code, j.Reason.Summary, x.code)
	}
	for _, h := range j.History {
		if h.Code != x.code && h.Code != "" && !slices.Contains(onTheWay, h.Code) {
			t.Errorf("at %v it said %s, which is not what is wrong", h.At, h.Code)
		}
	}
	// What is pointless to wait for is known when the fallback is begun, at the
	// latest; what is not, when the time is over.
	begin, done := j.times("install-fallback")
	known := min(j.known(x.code), begin)
	if !x.pointless {
		known = max(known, j.Runs[0].Begin+patience)
	}
	if done == 0 || done-known > atOnce {
		t.Errorf("the fallback was in place %v after the moment to give up (%v, %v)", done-known, known, done)
	}
	t.Logf("%s; known at %v, fallback %v later", j.Reason.Summary, known, done-known)

	// Who asks now is told: the service's verdict, without starting anything.
	if out := m.ibup(3, "up"); !strings.Contains(out, x.code) {
		t.Errorf("a second ibup up does not name %s:\n%s", x.code, out)
	}
	status := m.ibup(3, "status")
	for _, want := range []string{x.code, "fallback", x.evidence} {
		if !strings.Contains(status, want) {
			t.Errorf("status does not have %q:\n%s", want, status)
		}
	}

	x.cure(m, c)
	m.finish(p, 0)
	m.overInfiniBand("20.20.20.107")
	m.ping3("20.20.20.107")
	if j = m.journal("ib0"); j.Verdict != "up" || j.Reason.Code != "" {
		t.Errorf("journal after the cure: verdict %q, reason %q", j.Verdict, j.Reason.Code)
	}
	m.ibup(0, "status")
}

// known is when a reason was first the answer.
func (j journal) known(code string) time.Duration {
	for _, h := range j.History {
		if h.Code == code {
			return h.At
		}
	}
	return 0
}

// times are begin and end of the first step of a kind that was done; 0: none was.
func (j journal) times(kind string) (begin, end time.Duration) {
	for _, s := range j.Steps {
		if s.Step.Kind == kind && s.End != 0 && s.Err == "" {
			return s.Begin, s.End
		}
	}
	return 0, 0
}

func TestUpEthernetPort(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		trouble{
			card: hca.Config{Link: fabric.LinkEthernet},
			code: "IB-PORT-ETHERNET", pointless: true, evidence: "Ethernet",
			kernel: "Missing eth_net_offloads capability", // of the emulated card
			cure: func(m *machine, c *lab.Card) {
				// As after mlxconfig and a reset.
				if err := c.SetLinkType(fabric.LinkInfiniBand); err != nil {
					m.b.t.Fatal(err)
				}
				m.replug("0000:01:00.0")
			},
		}.run(t, kernel)
	})
}

func TestUpSMAbsent(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		trouble{
			strike:   func(m *machine, _ *lab.Card) { m.b.setSM(fabric.SMAbsent) },
			code:     "IB-SM-ABSENT",
			evidence: "INIT",
			cure:     func(m *machine, _ *lab.Card) { m.b.setSM(fabric.SMPresent) },
		}.run(t, kernel)
	})
}

func TestUpCableOut(t *testing.T) {
	parallel(t)
	plug := func(s fabric.PhysState) func(*machine, *lab.Card) {
		return func(m *machine, c *lab.Card) {
			if err := c.Port.SetPhys(s); err != nil {
				m.b.t.Fatal(err)
			}
		}
	}
	trouble{
		strike: plug(fabric.PhysPolling), code: "IB-CABLE", evidence: "Polling", cure: plug(fabric.PhysLinkUp),
	}.run(t, "6.1")
}

// The firmware answers no command until the card is reset.
func TestUpFirmwareDead(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		trouble{
			card:   hca.Config{CommandTimeout: 2 * time.Second},
			strike: func(_ *machine, c *lab.Card) { c.HangCommand(hca.EnableHCA, -1) },
			code:   "IB-PROBE-FAILED", evidence: "ENABLE_HCA",
			kernel: "mlx5_core.*0000:01:00.0",
			cure: func(m *machine, c *lab.Card) {
				c.HangCommand(hca.EnableHCA, 0)
				m.replug("0000:01:00.0") // as a reset of the card is
			},
		}.run(t, kernel)
	})
}

// The firmware needs 20 s to start, longer than there is patience.
func TestUpFirmwareLate(t *testing.T) {
	parallel(t)
	trouble{
		strike: func(_ *machine, c *lab.Card) { c.SetInitializing(-1) },
		code:   "IB-FW-WAIT", evidence: "firmware",
		kernel: "mlx5_core 0000:01:00.0",
		cure:   func(_ *machine, c *lab.Card) { c.SetInitializing(20 * time.Second) },
	}.run(t, "6.12")
}

func TestUpModuleMissing(t *testing.T) {
	parallel(t)
	trouble{
		strike: func(m *machine, _ *lab.Card) {
			m.sh("cd /lib/modules/*/ && find . -name 'ib_ipoib.ko*' >/tmp/where && mv $(cat /tmp/where) /tmp/")
		},
		code: "IB-MOD-MISSING", pointless: true, evidence: "ib_ipoib",
		cure: func(m *machine, _ *lab.Card) {
			m.sh("cd /lib/modules/*/ && mv /tmp/ib_ipoib.ko* $(cat /tmp/where)")
		},
	}.run(t, "6.1")
}

// plug puts a card into the machine's next free slot and waits until the PCI bus
// shows it.
func (m *machine) plug(c *lab.Card) {
	m.b.t.Helper()
	if err := m.HotAdd(m.b.ctx, c.Socket); err != nil {
		m.b.t.Fatal(err)
	}
	m.file(time.Minute, "^0x15b3", "/sys/bus/pci/devices/0000:01:00.0/vendor")
}

// replug takes a function off the bus and finds it again, as a reset tool does.
func (m *machine) replug(bdf string) {
	m.b.t.Helper()
	m.sh("echo 1 >/sys/bus/pci/devices/%s/remove && echo 1 >/sys/bus/pci/rescan", bdf)
}

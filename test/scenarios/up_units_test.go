package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/image"
	"ibup/test/lab"
	"ibup/test/vm"
)

// witness runs, as an NFS mount does, behind network-online.target and keeps what
// ibup had come to by then.
const witness = `[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cp /run/ibup/ib0.json /run/witness'
[Install]
WantedBy=multi-user.target
`

// network brings eno1 up late and only behind network-pre.target, as initscripts do.
const network = `[Unit]
DefaultDependencies=no
Wants=network-pre.target network.target sys-subsystem-net-devices-eno1.device
After=network-pre.target sys-subsystem-net-devices-eno1.device
Before=network.target network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sleep 5; ip addr add 10.20.0.15/24 dev eno1; ip link set eno1 up'
`

// packaged is a Debian with systemd and ibup as its package installs it.
func (b *bench) packaged(o vm.Options) *machine {
	b.t.Helper()
	bin, err := buildIbup()
	if err != nil {
		b.t.Fatal(err)
	}
	root, err := image.ModuleRoot()
	if err != nil {
		b.t.Fatal(err)
	}
	o.Systemd = true
	o.Files = lab.Installed(root, "", map[string]string{"ib0": storyConf + storyFallback})
	o.Files["/usr/sbin/ibup"] = image.File{Data: bin, Mode: 0o755}
	for name, text := range map[string]string{"witness": witness, "network": network} {
		o.Files.Add("/etc/systemd/system/"+name+".service", image.Text(text))
		o.Files.Add("/etc/systemd/system/multi-user.target.wants/"+name+".service", image.File{Link: "../" + name + ".service"})
	}
	return b.boot(o)
}

// noFailedUnit looks for failures of ours.
func (m *machine) noFailedUnit() {
	m.b.t.Helper()
	if got := m.sh("systemctl --failed --no-legend --plain"); strings.Contains(got, "ibup") {
		m.b.t.Errorf("failed units: %s\n%s", got, m.sh("journalctl --no-pager -u 'ibup*'"))
	}
}

// The main job as a user has it: the card is plugged in, udev's rule wants the
// unit, the unit brings ib0 up.
func TestUpHotAddByRule(t *testing.T) {
	kernels(t, mainKernels, func(t *testing.T, kernel string) {
		b := newBench(t)
		b.host("20.20.20.107", 0)
		c := b.card(hca.Config{})
		m := b.packaged(vm.Options{Kernel: kernel, HotplugSlots: 1, NICs: []vm.NIC{{Name: "eno1"}}})
		m.file(3*time.Minute, `"verdict": "fallback"`, "/run/witness")
		m.overEthernet("20.20.20.107")
		if err := m.HotAdd(b.ctx, c.Socket); err != nil {
			t.Fatal(err)
		}
		m.file(3*time.Minute, `"verdict": "up"`, "/run/ibup/ib0.json")
		m.overInfiniBand("20.20.20.107")
		m.ping3("20.20.20.107")
		m.until(time.Minute, "journalctl --no-pager -u ibup@0000:01:00.0.service | grep -q 'ib0: up'")
		m.noFailedUnit()
	})
}

// A card at boot and a subnet manager that is late: what is mounted from the network
// waits, and then finds ib0; udev's repeated events change nothing.
func TestUpUnitsHoldMounts(t *testing.T) {
	parallel(t)
	b := newBench(t)
	b.host("20.20.20.107", 0)
	b.setSM(fabric.SMAbsent)
	c := b.card(hca.Config{})
	m := b.packaged(vm.Options{Kernel: "6.1", HCAs: []string{c.Socket}, NICs: []vm.NIC{{Name: "eno1"}}})
	m.reason("ib0", "IB-SM-ABSENT", 3*time.Minute)
	if got := m.sh("systemctl is-active network-online.target || true"); got == "active" {
		t.Error("network-online.target did not wait")
	}
	b.setSM(fabric.SMPresent)
	if got := m.file(3*time.Minute, `"verdict": "\w`, "/run/witness"); !strings.Contains(got, `"verdict": "up"`) {
		t.Errorf("network-online.target was reached with\n%s", got)
	}
	m.ping3("20.20.20.107")
	m.noFailedUnit()

	// The service may be started again by an event, but has nothing to do.
	done := func() string {
		var b strings.Builder
		for _, s := range m.journal("ib0").Steps {
			if s.Step.Kind != "verify" {
				b.WriteString(s.Text + "\n")
			}
		}
		return b.String() + m.sh("cat /sys/class/net/ib0/carrier_changes")
	}
	before := done()
	m.sh("for i in $(seq 200); do echo add >$(readlink -f /sys/class/infiniband/*/device)/uevent; done; udevadm settle")
	m.until(time.Minute, "! systemctl list-jobs --no-legend --plain | grep -q ibup")
	if after := done(); after != before {
		t.Errorf("before 200 events:\n%s\nafter:\n%s", before, after)
	}
	m.ping3("20.20.20.107")
	m.noFailedUnit()
}

// No card, so no event: the waiting unit alone gives the verdict, and it waits for
// the Ethernet interface, which comes up behind network-pre.target, without holding
// that up.
func TestUpUnitsNoCard(t *testing.T) {
	parallel(t)
	b := newBench(t)
	m := b.packaged(vm.Options{Kernel: "6.1", NICs: []vm.NIC{{Name: "eno1"}}})
	if got := m.file(3*time.Minute, `"verdict": "\w`, "/run/witness"); !strings.Contains(got, `"verdict": "fallback"`) {
		t.Errorf("network-online.target was reached with\n%s", got)
	}
	m.overEthernet("20.20.20.107")
	m.noFailedUnit()
	if got := m.sh("systemctl show -p ActiveState -p ExecMainStatus ibup-wait.service"); got != fmt.Sprintf("ActiveState=active\nExecMainStatus=%d", 3) && got != "ExecMainStatus=3\nActiveState=active" {
		t.Errorf("ibup-wait.service: %s", got)
	}
}

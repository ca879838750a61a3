package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"ibup/test/hca"
	"ibup/test/image"
	"ibup/test/lab"
	"ibup/test/vm"
)

const storyConf = `[Network]
Address=20.20.20.109/24
[Verify]
Ping=20.20.20.107
[Fallback]
Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200
`

// demo shows the main job: a card is plugged in, udev's rule starts ibup, and
// ib0 comes up.
func demo(ctx context.Context) error {
	if err := setup(ctx); err != nil {
		return err
	}
	program, err := buildProgram()
	if err != nil {
		return err
	}
	defer os.Remove(program)
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer l.Close()
	card, err := l.Card(hca.Config{})
	if err != nil {
		return err
	}
	if _, err := l.Host(ctx, thereIP, 0); err != nil {
		return err
	}
	root, err := image.ModuleRoot()
	if err != nil {
		return err
	}
	say("booting a Debian with systemd and ibup, without a card; without KVM this takes about 20 s")
	v, err := l.Boot(ctx, vm.Options{
		Name: "node109", Kernel: "6.1", Systemd: true, HotplugSlots: 1,
		Append: "ibup.debug=1", // every step in the journal
		NICs:   []vm.NIC{{Name: "eno1"}},
		Files:  lab.Installed(root, program, map[string]string{"ib0": storyConf}),
	})
	if err != nil {
		return err
	}
	if err := v.WaitBoot(ctx); err != nil {
		return err
	}
	if _, err := v.WaitFile(ctx, "/sys/class/net/eno1/address", "", time.Minute); err != nil {
		return err
	}
	for _, c := range []string{
		"ip addr add 10.20.0.15/24 dev eno1 && ip link set eno1 up",
		"cat /etc/ibup/ib0.conf",
	} {
		if _, err := typed(ctx, v, c); err != nil {
			return err
		}
	}
	say("plugging in a ConnectX-5; nobody types anything now")
	if err := v.HotAdd(ctx, card.Socket); err != nil {
		return err
	}
	if _, err := v.WaitFile(ctx, "/run/ibup/ib0.json", `"verdict": "\w`, 3*time.Minute); err != nil {
		return fmt.Errorf("%w; console:\n%s", err, v.ConsoleTail())
	}
	if _, err := typed(ctx, v, "journalctl --no-pager -o short-monotonic -u ibup@0000:01:00.0.service"); err != nil {
		return err
	}
	if _, err := typed(ctx, v, "ibup status"); err != nil {
		return err
	}
	if _, err := typed(ctx, v, "ip addr show ib0"); err != nil {
		return err
	}
	out, err := typed(ctx, v, "ping -c 3 "+thereIP)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "3 packets transmitted, 3 received") {
		return errors.New("demo: not every ping was answered")
	}
	for _, p := range card.Problems() {
		return fmt.Errorf("demo: the card says: %s", p)
	}
	fmt.Printf("demo: ib0 up, %s/24, 3/3 replies\n", hereIP)
	return nil
}

// buildProgram builds ibup into a temporary file.
func buildProgram() (string, error) {
	root, err := image.ModuleRoot()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp("", "ibup-")
	if err != nil {
		return "", err
	}
	path := f.Name()
	f.Close()
	return path, vm.BuildStatic(root, "ibup/cmd/ibup", path)
}

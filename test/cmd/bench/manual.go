package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"ibup/test/hca"
	"ibup/test/lab"
	"ibup/test/vm"
)

// The two nodes of the story, and what is typed on the first.
const (
	hereIP  = "20.20.20.109"
	thereIP = "20.20.20.107"
)

// demoManual brings ib0 up by hand, as an administrator would: the ground
// truth that ibup is held against.
func demoManual(ctx context.Context) error {
	if err := setup(ctx); err != nil {
		return err
	}
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer l.Close()
	say("booting two machines with an emulated ConnectX-5 each; without KVM this takes about 20 s")
	start := time.Now()
	nodes, err := bootNodes(ctx, l, "node107", "node109")
	if err != nil {
		return err
	}
	there, here := nodes[0], nodes[1]
	say("both are up after %.0f s", time.Since(start).Seconds())
	for _, n := range []struct {
		*vm.VM
		ip string
	}{{there, thereIP}, {here, hereIP}} {
		if err := byHand(ctx, n.VM, n.ip); err != nil {
			return err
		}
	}
	if _, err := typed(ctx, here, "ip addr show ib0"); err != nil {
		return err
	}
	out, err := typed(ctx, here, "ping -c 3 "+thereIP)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "3 packets transmitted, 3 received") {
		return errors.New("demo-manual: not every ping was answered")
	}
	for _, c := range l.Cards() {
		for _, p := range c.Problems() {
			return fmt.Errorf("demo-manual: %s: %s", c.Config().Name, p)
		}
	}
	fmt.Printf("demo-manual: ib0 up, %s/24, 3/3 replies\n", hereIP)
	return nil
}

// bootNodes boots machines side by side, each with an HCA of its own.
func bootNodes(ctx context.Context, l *lab.Lab, names ...string) ([]*vm.VM, error) {
	nodes, errs := make([]*vm.VM, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		card, err := l.Card(hca.Config{})
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			nodes[i], errs[i] = l.Boot(ctx, vm.Options{Name: name, Kernel: "6.1", HCAs: []string{card.Socket}})
		})
	}
	wg.Wait()
	return nodes, errors.Join(errs...)
}

func byHand(ctx context.Context, v *vm.VM, ip string) error {
	for _, command := range []string{
		"modprobe mlx5_core",
		"modprobe mlx5_ib",
		"modprobe ib_ipoib",
		"ip link set ib0 up",
		"ip addr add " + ip + "/24 dev ib0",
	} {
		if _, err := typed(ctx, v, command); err != nil {
			return err
		}
	}
	if _, err := v.WaitFile(ctx, "/sys/class/net/ib0/carrier", "^1", time.Minute); err != nil {
		return fmt.Errorf("ib0 has no carrier: %w", err)
	}
	return nil
}

// typed shows a command as if it were typed on the machine, and its output.
func typed(ctx context.Context, v *vm.VM, command string) (string, error) {
	fmt.Printf("%s# %s\n", v.Name(), command)
	r, err := v.Sh(ctx, command)
	if err != nil {
		return "", err
	}
	for _, out := range []string{r.Stdout, r.Stderr} {
		if out != "" {
			fmt.Println(strings.TrimRight(out, "\n"))
		}
	}
	if r.Code != 0 {
		return "", fmt.Errorf("%s: %q: exit status %d", v.Name(), command, r.Code)
	}
	return r.Stdout, nil
}

func say(format string, args ...any) { fmt.Printf("bench: "+format+"\n", args...) }

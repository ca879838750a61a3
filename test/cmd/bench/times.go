package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ibup/test/hca"
	"ibup/test/image"
	"ibup/test/lab"
	"ibup/test/vm"
)

// run is how long one boot took.
type run struct {
	agent, carrier time.Duration // wall time from QEMU's start
	guest          float64       // guest's uptime at carrier, seconds
}

const runsPerKernel = 3

// times measures boot to ib0 with carrier, one machine at a time.
func times(ctx context.Context) error {
	if err := setup(ctx); err != nil {
		return err
	}
	fmt.Printf("%-8s %-18s %-18s %s\n", "kernel", "agent answers", "ib0 has carrier", "guest uptime then")
	for _, kernel := range image.KernelNames() {
		var runs []run
		for range runsPerKernel {
			r, err := timeBoot(ctx, kernel)
			if errors.Is(err, image.ErrNotSetUp) {
				fmt.Printf("%-8s %v\n", kernel, err)
				break
			}
			if err != nil {
				return err
			}
			runs = append(runs, r)
		}
		if len(runs) == 0 {
			continue
		}
		fmt.Printf("%-8s %-18s %-18s %s\n", kernel,
			spread(runs, func(r run) float64 { return r.agent.Seconds() }),
			spread(runs, func(r run) float64 { return r.carrier.Seconds() }),
			spread(runs, func(r run) float64 { return r.guest }))
	}
	return nil
}

func timeBoot(ctx context.Context, kernel string) (run, error) {
	l, err := lab.New()
	if err != nil {
		return run{}, err
	}
	defer l.Close()
	card, err := l.Card(hca.Config{})
	if err != nil {
		return run{}, err
	}
	start := time.Now()
	v, err := l.Boot(ctx, vm.Options{Kernel: kernel, HCAs: []string{card.Socket}})
	if err != nil {
		return run{}, err
	}
	r := run{agent: time.Since(start)}
	if _, err := v.Sh(ctx, "modprobe -a mlx5_core mlx5_ib ib_ipoib && ip link set ib0 up"); err != nil {
		return run{}, err
	}
	if _, err := v.WaitFile(ctx, "/sys/class/net/ib0/carrier", "^1", time.Minute); err != nil {
		return run{}, err
	}
	r.carrier = time.Since(start)
	uptime, err := v.Get(ctx, "/proc/uptime")
	if err != nil {
		return run{}, err
	}
	r.guest, err = strconv.ParseFloat(strings.Fields(string(uptime) + " ")[0], 64)
	return r, err
}

// spread is "median (least to most)" in seconds.
func spread(runs []run, of func(run) float64) string {
	var all []float64
	for _, r := range runs {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f (%.1f-%.1f) s", all[len(all)/2], all[0], all[len(all)-1])
}

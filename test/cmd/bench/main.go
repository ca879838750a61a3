// Bench prepares the test bench and shows it: see docs/bench.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ibup/test/image"
)

const usage = `usage: bench COMMAND
  setup        fill the cache with QEMU, kernels and guest packages
  demo         plug a card into a machine and see ibup bring ib0 up
  demo-manual  bring ib0 up by hand in one machine and ping another from it
  times        measure boot to ib0 with carrier on every kernel
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "setup":
		err = setup(ctx)
	case "demo":
		err = demo(ctx)
	case "demo-manual":
		err = demoManual(ctx)
	case "times":
		err = times(ctx)
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func setup(ctx context.Context) error {
	cache, err := image.Open()
	if err != nil {
		return err
	}
	return cache.Setup(ctx, os.Stdout)
}

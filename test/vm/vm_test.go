package vm

import (
	"context"
	"testing"
	"time"
)

func TestBoot(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	t0 := time.Now()
	v, err := Start(ctx, Options{Kernel: "6.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	t.Log("ready after", time.Since(t0))
	for _, s := range []string{"cat /proc/uptime; lsmod; ps; ip a; ping -c1 127.0.0.1; free; ls /; cat /proc/cmdline", "exit 3"} {
		r, err := v.Sh(ctx, s)
		t.Log(r, err)
	}
	d, err := v.Dmesg(ctx)
	t.Log(d, err)
	t.Log(v.Console())
}

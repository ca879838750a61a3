package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"ibup/internal/host"
	"ibup/internal/modules"
	"os"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
)

func cpu() time.Duration {
	var u unix.Rusage
	unix.Getrusage(0, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func t(what string, n int, f func()) {
	c, t0 := cpu(), time.Now()
	for range n {
		f()
	}
	fmt.Println(what, time.Since(t0)/time.Duration(n), "cpu", (cpu()-c)/time.Duration(n))
}

func main() {
	r := host.New("/")
	ctx := context.Background()
	s, _ := r.Read(ctx)
	p, err := modules.Resolve("/", s.Kernel, modules.Stack())
	fmt.Println(err)
	fmt.Println(modules.NewLoader().Run(ctx, p, nil))
	time.Sleep(3 * time.Second)
	t("first", 1, func() { r.Read(ctx) })
	buf := make([]byte, 4096)
	attr := func(f string) func() {
		return func() {
			fd, _ := unix.Open(f, unix.O_RDONLY, 0)
			unix.Read(fd, buf)
			unix.Close(fd)
		}
	}
	t("state", 20, attr("/sys/class/infiniband/mlx5_0/ports/1/state"))
	t("pkey", 20, attr("/sys/class/infiniband/mlx5_0/ports/1/pkeys/0"))
	t("node_guid", 20, attr("/sys/class/infiniband/mlx5_0/node_guid"))
	t("fw_ver", 20, attr("/sys/class/infiniband/mlx5_0/fw_ver"))
	t("mtu", 20, attr("/sys/class/net/ib0/mtu"))
	t("mode", 20, attr("/sys/class/net/ib0/mode"))
	t("config", 20, attr("/sys/bus/pci/devices/0000:01:00.0/config"))
	t("vendor", 20, attr("/sys/bus/pci/devices/0000:01:00.0/vendor"))
	t("resource", 20, attr("/sys/bus/pci/devices/0000:01:00.0/resource"))
	t("mounts", 20, attr("/proc/self/mountinfo"))
	t("absent", 20, attr("/sys/module/x"))
	t("netlink", 20, func() { host.Netlink{}.ReadNet(ctx) })
	t("readdir", 20, func() { os.ReadDir("/sys/bus/pci/devices") })
	t("all", 20, func() { r.Read(ctx) })
	var b bytes.Buffer
	pprof.StartCPUProfile(&b)
	t("profile", 100, func() { r.Read(ctx) })
	pprof.StopCPUProfile()
	os.Stdout.WriteString("\nPROF " + base64.StdEncoding.EncodeToString(b.Bytes()) + "\n")
}

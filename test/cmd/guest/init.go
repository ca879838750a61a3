package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initMain is PID 1: it mounts what a system expects, starts the agent proper
// as a child and reaps orphans. It never returns while the kernel runs.
func initMain() error {
	mounts := []struct{ kind, at, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "ptmxmode=0666"},
		{"tmpfs", "/dev/shm", ""},
		{"tmpfs", "/run", "mode=0755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if name, err := os.ReadFile("/etc/hostname"); err == nil {
		if err := unix.Sethostname(bytes.TrimSpace(name)); err != nil {
			return fmt.Errorf("sethostname: %w", err)
		}
	}
	agent := exec.Command("/proc/self/exe", "small")
	agent.Args[0] = "bench-agent"
	agent.Stdout, agent.Stderr = os.Stdout, os.Stderr
	agent.Env = []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root", "TERM=linux"}
	if err := agent.Start(); err != nil {
		return err
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case pid == agent.Process.Pid:
			return errors.New("the agent ended") // and the kernel panics
		}
	}
}

// serveSmall brings the small guest to the state in which a distribution's
// early boot leaves a machine: real udevd running, coldplug done.
func serveSmall() error {
	w, err := watch() // before the first device event that udev may cause
	if err != nil {
		return err
	}
	udevd := exec.Command("/usr/lib/systemd/systemd-udevd")
	udevd.Stdout, udevd.Stderr = os.Stdout, os.Stderr
	udevd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=notice", "SYSTEMD_LOG_COLOR=0")
	if err := udevd.Start(); err != nil {
		return err
	}
	go udevd.Wait()
	for range 1000 { // it offers its control socket when it can take requests
		if _, err := os.Stat("/run/udev/control"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := coldplug("/sys/bus/pci/devices", "/sys/bus/virtio/devices", "/sys/bus/auxiliary/devices", "/sys/class/net"); err != nil {
		return err
	}
	if out, err := exec.Command("udevadm", "settle", "--timeout=120").CombinedOutput(); err != nil {
		return fmt.Errorf("udevadm settle: %w\n%s", err, out)
	}
	return serve(w)
}

// coldplug repeats the add events that went by before udevd ran, as "udevadm
// trigger" does, but only of what the bench is about: all 350 devices of a
// small machine take ten seconds under TCG.
func coldplug(dirs ...string) error {
	for _, d := range dirs {
		uevents, err := filepath.Glob(d + "/*/uevent")
		if err != nil {
			return err
		}
		for _, u := range uevents {
			if err := os.WriteFile(u, []byte("add"), 0o644); err != nil {
				return fmt.Errorf("coldplug: %w", err)
			}
		}
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	return nil
}

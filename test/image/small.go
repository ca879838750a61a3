package image

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

func (c *Cache) guestFiles(ctx context.Context, g Guest) (Files, error) {
	if g.Systemd {
		return c.systemFiles()
	}
	return c.smallFiles(ctx, g)
}

// rdmaCoreRules are the rules that rdma-core adds to udev's own.
var rdmaCoreRules = []string{
	"60-rdma-ndd.rules", "60-rdma-persistent-naming.rules", "75-rdma-description.rules",
	"90-iwpmd.rules", "90-rdma-hw-modules.rules", "90-rdma-ulp-modules.rules", "90-rdma-umad.rules",
}

// smallFiles is the guest that boots fast: busybox, and Debian's udev, kmod,
// iproute2 and ping.
func (c *Cache) smallFiles(ctx context.Context, g Guest) (Files, error) {
	root := c.guestTree()
	t := skeleton()
	// Busybox first: the real programs replace its own.
	applets, err := exec.CommandContext(ctx, filepath.Join(root, "usr/bin/busybox"), "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	for _, a := range strings.Fields(string(applets)) {
		t.Add("/usr/bin/"+a, File{Link: "busybox"})
	}
	programs := []string{
		"usr/bin/busybox", "usr/bin/dash", "usr/lib/systemd/systemd-sysctl", "usr/bin/udevadm", "usr/bin/kmod", "usr/bin/ip", "usr/bin/ping", "usr/bin/arping",
		// Opened at run time by udevadm's kmod and blkid builtins.
		"usr/lib/" + triplet + "/libkmod.so.2",
	}
	if g.RDMACore {
		programs = append(programs, "usr/lib/udev/rdma_rename")
	}
	if g.NFS {
		programs = append(programs, "usr/sbin/mount.nfs", "usr/sbin/rpc.nfsd", "usr/sbin/rpc.mountd", "usr/sbin/exportfs",
			"usr/sbin/sysctl") // its own rules call it
		t.Add("/etc/netconfig", File{From: filepath.Join(root, "etc/netconfig")})
		t.Add("/var/lib/nfs/v4recovery", File{Mode: fs.ModeDir})
		t.Add("/etc/services", Text("sunrpc 111/tcp\nsunrpc 111/udp\nnfs 2049/tcp\nnfs 2049/udp\n"))
		for _, f := range []string{"/etc/exports", "/var/lib/nfs/etab", "/var/lib/nfs/rmtab"} {
			t.Add(f, Text(""))
		}
	}
	for _, p := range programs {
		delete(t, "/"+p)
	}
	if err := t.addPrograms(root, programs...); err != nil {
		return nil, err
	}
	// Not busybox's shell: it prefers its own ip, ping and modprobe to real ones.
	t.Add("/usr/bin/sh", File{Link: "dash"})
	for _, name := range []string{"depmod", "insmod", "lsmod", "modinfo", "modprobe", "rmmod"} {
		t.Add("/usr/sbin/"+name, File{Link: "../bin/kmod"})
		t.Add("/usr/bin/"+name, File{Link: "kmod"})
	}
	t.Add("/usr/sbin/ip", File{Link: "../bin/ip"})
	t.Add("/usr/lib/systemd/systemd-udevd", File{Link: "../../bin/udevadm"})
	if err := t.addRules(root, g.RDMACore); err != nil {
		return nil, err
	}
	for _, f := range []string{"usr/lib/systemd/network/99-default.link", "usr/lib/modprobe.d/systemd.conf"} {
		if err := t.addFrom("/"+f, filepath.Join(root, f)); err != nil {
			return nil, err
		}
	}
	t.accounts()
	return t, nil
}

func (t Files) addRules(root string, rdmaCore bool) error {
	rules, err := filepath.Glob(filepath.Join(root, "usr/lib/udev/rules.d/*.rules"))
	if err != nil {
		return err
	}
	skip := map[string]bool{}
	for _, r := range rdmaCoreRules {
		skip[r] = !rdmaCore
	}
	for _, r := range rules {
		if skip[filepath.Base(r)] {
			continue
		}
		if err := t.addFrom("/usr/lib/udev/rules.d/"+filepath.Base(r), r); err != nil {
			return err
		}
	}
	return nil
}

// accounts writes the users and groups that Debian's udev rules and units
// name; the packages' maintainer scripts, which would, are not run.
func (t Files) accounts() {
	groups := []string{"root", "adm", "tty", "disk", "dialout", "cdrom", "floppy", "tape", "audio", "video", "plugdev",
		"kmem", "input", "sgx", "clock", "kvm", "render", "lp", "shadow", "utmp", "nogroup",
		"systemd-journal", "systemd-network", "messagebus", "rdma", "_rpc", "statd"}
	users := []string{"root", "systemd-network", "messagebus", "_rpc", "statd", "nobody"}
	var passwd, group, shadow strings.Builder
	gid := map[string]int{}
	for i, g := range groups {
		gid[g] = i
		fmt.Fprintf(&group, "%s:x:%d:\n", g, i)
	}
	for i, u := range users {
		id, shell := 100+i, "/usr/sbin/nologin"
		if u == "root" {
			id, shell = 0, "/bin/sh"
		}
		g, ok := gid[u]
		if !ok {
			g = gid["nogroup"]
		}
		fmt.Fprintf(&passwd, "%s:x:%d:%d::/root:%s\n", u, id, g, shell)
		fmt.Fprintf(&shadow, "%s:*:1::::::\n", u)
	}
	t.Add("/etc/passwd", Text(passwd.String()))
	t.Add("/etc/group", Text(group.String()))
	t.Add("/etc/shadow", File{Data: []byte(shadow.String()), Mode: 0o600})
	t.Add("/etc/hosts", Text("127.0.0.1 localhost\n::1 localhost\n"))
	t.Add("/etc/nsswitch.conf", Text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n"))
	t.Add("/etc/hostname", Text("bench\n"))
}

package image

import (
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// systemFiles is a whole Debian with systemd as PID 1, made from unpacked
// packages: what their maintainer scripts would have done and a guest needs is
// done here, and what takes long under TCG and no scenario is about is masked.
func (c *Cache) systemFiles() (Files, error) {
	t := Files{}
	root := c.guestTree()
	if err := t.addTree(root, unwanted); err != nil {
		return nil, err
	}
	maps.Copy(t, skeleton()) // where a package has a directory in place of a link
	t.accounts()
	t.Add("/usr/bin/sh", File{Link: "dash"})
	t.Add("/usr/bin/awk", File{Link: "mawk"})
	t.Add("/etc/machine-id", Text("b0a7b0a7b0a7b0a7b0a7b0a7b0a7b0a7\n"))
	t.Add("/etc/fstab", Text(""))
	t.Add("/etc/mtab", File{Link: "/proc/self/mounts"})
	t.Add("/etc/systemd/system/default.target", File{Link: "/usr/lib/systemd/system/multi-user.target"})
	for _, u := range masked {
		t.Add("/etc/systemd/system/"+u, File{Link: "/dev/null"})
	}
	t.Add("/etc/systemd/journald.conf.d/bench.conf", Text("[Journal]\nStorage=volatile\nAudit=no\nCompress=no\nRuntimeMaxUse=8M\nRateLimitBurst=0\n"))
	t.Add("/etc/systemd/system.conf.d/bench.conf", Text("[Manager]\nDefaultTimeoutStartSec=180\n"))
	// The bench is about PCI and network devices; see the agent's coldplug.
	t.Add("/etc/systemd/system/systemd-udev-trigger.service.d/bench.conf", Text(`[Service]
ExecStart=
ExecStart=-udevadm trigger --action=add --subsystem-match=pci --subsystem-match=virtio --subsystem-match=auxiliary --subsystem-match=net
`))
	t.Add("/etc/systemd/system/bench-agent.service", Text(`[Unit]
Description=Agent of the test bench
DefaultDependencies=no
IgnoreOnIsolate=yes
[Service]
ExecStart=`+AgentPath+`
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root TERM=linux
KillMode=process
`))
	t.Add("/etc/systemd/system/sysinit.target.wants/bench-agent.service", File{Link: "../bench-agent.service"})
	return t, nil
}

// masked units belong to packages that the guest has for other reasons, or
// keep a state that a guest which lives a minute does not have.
var masked = []string{
	"dev-hugepages.mount", "dev-mqueue.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
	"sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "proc-sys-fs-binfmt_misc.automount",
	"getty.target", "systemd-ask-password-console.path", "systemd-ask-password-wall.path",
	"ldconfig.service", "systemd-hwdb-update.service", "systemd-journal-catalog-update.service",
	"systemd-update-done.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
	"systemd-sysusers.service", "systemd-random-seed.service", "systemd-machine-id-commit.service",
	"systemd-firstboot.service", "systemd-logind.service", "systemd-user-sessions.service",
	"systemd-binfmt.service", "systemd-pstore.service", "systemd-network-generator.service",
	"systemd-boot-random-seed.service", "systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service",
	"systemd-pcrmachine.service", "systemd-pcrphase.service", "systemd-pcrphase-sysinit.service",
	"systemd-tmpfiles-clean.timer", "rpcbind.service", "rpcbind.socket", "iwpmd.service", "rdma-ndd.service",
	"run-lock.mount", "tmp.mount", "kmod-static-nodes.service", "systemd-tmpfiles-setup-dev-early.service",
	"systemd-tmpfiles-setup-dev.service", "systemd-remount-fs.service", "systemd-udev-load-credentials.service",
	"systemd-hibernate-clear.service", "systemd-journal-flush.service", "systemd-tmpfiles-setup.service",
	"systemd-modules-load.service", "dbus.service", "dbus.socket", "systemd-creds.socket", "systemd-hostnamed.socket",
	"systemd-sysext.socket", "systemd-pcrextend.socket", "systemd-pcrlock.socket", "systemd-initctl.socket",
	"e2scrub_all.timer", "fstrim.timer", "console-getty.service",
}

// keptGenerators are the unit generators that remain: each costs a tenth of a
// second at every reload.
var keptGenerators = []string{"systemd-fstab-generator", "rpc-pipefs-generator", "nfs-server-generator", "systemd-debug-generator"}

// unwanted says what of the packages' files a guest does without.
func unwanted(rel string) bool {
	switch rel {
	case "record.json", "usr/lib/udev/hwdb.d", "usr/share", "usr/lib/systemd/boot", "usr/src", "usr/games",
		"etc/init.d", "etc/apt", "etc/cron.d", "etc/network", "var/lib/dpkg", "usr/lib/python3",
		"usr/lib/systemd/system-generators/README",
		"bin", "sbin", "lib", "lib64":
		return true
	}
	lib := "usr/lib/" + triplet + "/"
	for _, p := range []string{
		"etc/rc?.d", lib + "gconv", lib + "perl*", "usr/bin/perl*", "usr/bin/localedef", "usr/sbin/iconvconfig",
		lib + "libdb-5*", lib + "libperl*",
		lib + "libxml2*", lib + "libmvec*", lib + "libldap*", "usr/sbin/ldconfig", "usr/sbin/e2fsck",
		"usr/sbin/debugfs", "usr/sbin/resize2fs", "usr/sbin/tc", "usr/bin/tc", "usr/sbin/tipc", "usr/sbin/dcb", "usr/bin/lsblk",
		"usr/lib/systemd/systemd-logind", "usr/bin/dbus-daemon", "usr/lib/gcc*", "usr/lib/systemd/systemd-networkd*", "usr/bin/systemd-nspawn",
		"usr/lib/systemd/user*", "usr/lib/systemd/tests*",
	} {
		if ok, _ := path.Match(p, rel); ok { // the patterns are well formed
			return true
		}
	}
	if filepath.Dir(rel) == "usr/lib/systemd/system-generators" {
		return !slices.Contains(keptGenerators, filepath.Base(rel))
	}
	return strings.HasPrefix(rel, "usr/lib/locale/") && !strings.Contains(rel, "C.utf8")
}

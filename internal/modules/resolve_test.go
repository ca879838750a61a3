package modules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ibup/internal/host/hosttest"
)

const el7 = "3.10.0-1160.el7.x86_64"

// stack is a module tree of EL7, kernel's own modules, as depmod writes it.
const stack = `
[proc/sys/kernel]
osrelease: 3.10.0-1160.el7.x86_64
[etc]
os-release <<
ID="centos"
ID_LIKE="rhel fedora"
VERSION_ID="7"
>>
[lib/modules/3.10.0-1160.el7.x86_64]
modules.builtin <<
kernel/net/ipv6/ipv6.ko
kernel/drivers/pps/pps-core.ko
>>
modules.softdep: # Soft dependencies extracted from modules themselves.
modules.dep <<
kernel/drivers/infiniband/core/ib_core.ko.xz:
kernel/drivers/infiniband/core/ib_cm.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/infiniband/core/ib_umad.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/infiniband/core/ib_uverbs.ko.xz: kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko.xz: kernel/drivers/infiniband/core/ib_uverbs.ko.xz kernel/drivers/infiniband/core/ib_core.ko.xz kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.xz kernel/drivers/ptp/ptp.ko.xz
kernel/drivers/infiniband/ulp/ipoib/ib_ipoib.ko.xz: kernel/drivers/infiniband/core/ib_cm.ko.xz kernel/drivers/infiniband/core/ib_core.ko.xz
kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.xz: kernel/drivers/net/ethernet/mellanox/mlxfw/mlxfw.ko.xz kernel/drivers/ptp/ptp.ko.xz
kernel/drivers/net/ethernet/mellanox/mlxfw/mlxfw.ko.xz:
kernel/drivers/ptp/ptp.ko.xz:
>>
kernel/drivers/infiniband/core/ib_core.ko.xz: x
kernel/drivers/infiniband/core/ib_cm.ko.xz: x
kernel/drivers/infiniband/core/ib_umad.ko.xz: x
kernel/drivers/infiniband/core/ib_uverbs.ko.xz: x
kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko.xz: x
kernel/drivers/infiniband/ulp/ipoib/ib_ipoib.ko.xz: x
kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.xz: x
kernel/drivers/net/ethernet/mellanox/mlxfw/mlxfw.ko.xz: x
kernel/drivers/ptp/ptp.ko.xz: x
`

const dir = "[lib/modules/" + el7 + "]\n"

func TestResolveStack(t *testing.T) {
	root := hosttest.Tree(t, stack)
	plan, err := Resolve(root, el7, Stack())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ib_core", "ib_cm", "ptp", "mlxfw", "mlx5_core", "ib_uverbs", "mlx5_ib", "ib_ipoib", "ib_umad"}
	if got := names(plan.Loads); !slices.Equal(got, want) {
		t.Errorf("order %v\nwant  %v", got, want)
	}
	for _, l := range plan.Loads {
		if l.State != Absent || l.Compression != XZ || !strings.HasPrefix(l.Path, root) {
			t.Errorf("load %+v", l)
		}
		if l.Optional != (l.Name == "ib_umad") {
			t.Errorf("%s optional = %v", l.Name, l.Optional)
		}
	}
	if len(plan.Notes) > 0 {
		t.Errorf("notes %q", plan.Notes)
	}
}

// TestResolve has the cases that kmod's own test trees have, and some that boot
// images have.
func TestResolve(t *testing.T) {
	tests := []struct {
		name   string
		patch  string
		kernel string // default: kernel
		want   []Want // default: mlx5_core
		loads  string // name or name(state) or name[params], in order
		note   string // part of a note
	}{
		{name: "with dependencies", loads: "ptp mlxfw mlx5_core"},
		{name: "dashes in the name", want: []Want{{Name: "mlx5-core"}}, loads: "ptp mlxfw mlx5_core"},
		{name: "twice", want: []Want{{Name: "ptp"}, {Name: "ptp"}}, loads: "ptp"},
		{name: "built in", want: []Want{{Name: "ipv6"}, {Name: "pps_core"}}, loads: "ipv6(builtin) pps_core(builtin)"},
		{name: "live", patch: "sys/module/mlx5_core/initstate: live", loads: "mlx5_core(live)"},
		{name: "dependency is live", patch: "sys/module/mlxfw/initstate: live", loads: "ptp mlxfw(live) mlx5_core"},
		{name: "coming", patch: "sys/module/mlx5_core/initstate: coming", loads: "ptp mlxfw mlx5_core(coming)"},
		{name: "just being set up", patch: "sys/module/ptp/", want: []Want{{Name: "ptp"}}, loads: "ptp(coming)"},
		{name: "built in, not in any list", patch: "sys/module/nvme/parameters/x: 1", want: []Want{{Name: "nvme"}}, loads: "nvme(builtin)"},
		{name: "live in another kernel", patch: "sys/module/ptp/initstate: live\nproc/sys/kernel/osrelease: 5.14.0", want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "root without /lib", patch: "usr/lib/modules/6.1.0/modules.dep: kernel/ptp.ko.zst:\nusr/lib/modules/6.1.0/kernel/ptp.ko.zst: x",
			kernel: "6.1.0", want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "optional and missing", want: []Want{{Name: "ptp"}, {Name: "rdma_ucm", Optional: true}}, loads: "ptp", note: "optional: module rdma_ucm is missing"},
		{name: "weak-updates", patch: dir + "modules.dep: weak-updates/mlnx/ptp.ko:\nweak-updates/mlnx/ptp.ko -> ../../../other/extra/ptp.ko\n[]\nlib/modules/other/extra/ptp.ko: x",
			want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "outside the tree", patch: dir + "modules.dep: /opt/drv/ptp.ko:\n[]\nopt/drv/ptp.ko: x", want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "comments, blank lines and spaces", patch: dir + "modules.dep <<\n# made by hand\n\nkernel/drivers/ptp/ptp.ko.xz:   \nno colon\n: x\n>>", want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "soft dependencies", patch: dir + "modules.softdep: softdep mlxfw pre: ib_core ib-cm post: ib_umad", loads: "ptp ib_core ib_cm mlxfw ib_umad mlx5_core"},
		{name: "soft dependency in a circle", patch: dir + "modules.softdep <<\nsoftdep ptp pre: mlx5_core\nsoftdep mlx5_core pre: ptp\n>>", loads: "ptp mlxfw mlx5_core"},
		{name: "soft dependency is missing", patch: "etc/modprobe.d/a.conf: softdep ptp pre: nowhere", loads: "ptp mlxfw mlx5_core", note: "soft dependency of ptp: module nowhere"},
		{name: "options", patch: "etc/modprobe.d/a.conf <<\noptions mlx5-core prof_sel=2 \\\n debug_mask=1\n# options mlx5_core x=1\noptions ptp\n>>",
			loads: "ptp mlxfw mlx5_core[prof_sel=2 debug_mask=1]"},
		{name: "command line after options", patch: "etc/modprobe.d/a.conf: options mlx5_core prof_sel=2\nproc/cmdline: root=x mlx5_core.prof_sel=3 mlx5-core.y ro -- mlx5_core.z=1",
			loads: "ptp mlxfw mlx5_core[prof_sel=2 prof_sel=3 y]"},
		{name: "quotes", patch: `proc/cmdline: dyndbg="a b" mlx5_core.dyndbg="file x +p" "mlx5_core.q=1 2" ptp.open="x`,
			loads: `ptp[open=x] mlxfw mlx5_core[dyndbg="file x +p" q="1 2"]`},
		{name: "directories in order", patch: "etc/modprobe.d/m.conf: options ptp a=1\nusr/lib/modprobe.d/m.conf: options ptp b=1\nlib/modprobe.d/z.conf: options ptp z=1\nusr/lib/modprobe.d/0.conf: options ptp first=1\nrun/modprobe.d/n.txt: options ptp n=1",
			want: []Want{{Name: "ptp"}}, loads: "ptp[first=1 a=1 z=1]"},
		{name: "masked file", patch: "etc/modprobe.d/m.conf -> /dev/null\nusr/lib/modprobe.d/m.conf: blacklist ptp", want: []Want{{Name: "ptp"}}, loads: "ptp"},
		{name: "blacklisted dependency", patch: "etc/modprobe.d/b.conf: blacklist ptp", loads: "ptp mlxfw mlx5_core", note: `/etc/modprobe.d/b.conf:1: "blacklist ptp" does not stop it`},
		{name: "blacklisted and live", patch: "etc/modprobe.d/b.conf: blacklist mlx5_core\nsys/module/mlx5_core/initstate: live", loads: "mlx5_core(live)"},
		{name: "install line of OFED", patch: "etc/modprobe.d/b.conf: install mlxfw /sbin/modprobe ptp; /sbin/modprobe --ignore-install mlxfw", loads: "ptp mlxfw mlx5_core", note: "is not run"},
		{name: "optional and blacklisted", patch: "etc/modprobe.d/b.conf: blacklist ptp", want: []Want{{Name: "ptp", Optional: true}}, note: "/etc/modprobe.d/b.conf:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, want := tt.kernel, tt.want
			if k == "" {
				k = el7
			}
			if want == nil {
				want = []Want{{Name: "mlx5_core"}}
			}
			plan, err := Resolve(hosttest.Tree(t, stack, tt.patch), k, want)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range plan.Loads {
				s := l.Name
				if l.State != Absent {
					s += "(" + string(l.State) + ")"
				}
				if l.Params != "" {
					s += "[" + l.Params + "]"
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != tt.loads {
				t.Errorf("loads %s\nwant  %s", s, tt.loads)
			}
			notes := strings.Join(plan.Notes, "\n")
			if (tt.note == "") != (notes == "") || !strings.Contains(notes, tt.note) {
				t.Errorf("notes %q, want %q", notes, tt.note)
			}
		})
	}
}

func TestResolveMissing(t *testing.T) {
	tests := []struct {
		name, patch, module string
		want                MissingError // Dirs are checked apart
	}{
		{"not there", "", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "not in modules.dep", Install: "install kernel-" + el7}},
		{"there for others", "lib/modules/4.18.0/modules.dep: extra/mlx4_core.ko:\nlib/modules/5.14.0/modules.dep: extra/mlx4-core.ko.xz:", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "not in modules.dep", Others: []string{"4.18.0", "5.14.0"}, Install: "install kernel-" + el7}},
		{"depmod has not run", dir + "extra/mlx4_core.ko.xz: x", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "ROOT/lib/modules/" + el7 + "/extra/mlx4_core.ko.xz is not in modules.dep", Install: "run depmod -a " + el7}},
		{"no index", dir + "!modules.dep", "ptp",
			MissingError{Module: "ptp", Why: "no modules.dep", Install: "install kernel-" + el7}},
		{"no tree", "!lib", "ptp", MissingError{Module: "ptp", Why: "no modules.dep", Install: "install kernel-" + el7}},
		{"file is gone", dir + "!kernel/drivers/ptp/ptp.ko.xz", "ptp",
			MissingError{Module: "ptp", Why: "modules.dep names ROOT/lib/modules/" + el7 + "/kernel/drivers/ptp/ptp.ko.xz, which does not exist", Install: "install kernel-" + el7}},
		{"dependency's file is gone", dir + "!kernel/drivers/ptp/ptp.ko.xz", "mlx5_core",
			MissingError{Module: "ptp", NeededBy: "mlx5_core", Why: "modules.dep names ROOT/lib/modules/" + el7 + "/kernel/drivers/ptp/ptp.ko.xz, which does not exist", Install: "install kernel-" + el7}},
		{"link leads nowhere", dir + "kernel/drivers/ptp/ptp.ko.xz -> /lib/modules/gone/ptp.ko.xz", "ptp",
			MissingError{Module: "ptp", Why: "ROOT/lib/modules/" + el7 + "/kernel/drivers/ptp/ptp.ko.xz is a link to /lib/modules/gone/ptp.ko.xz, which does not exist", Install: "install kernel-" + el7}},
		{"EL9", "etc/os-release <<\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n>>", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "not in modules.dep", Install: "install kernel-modules-" + el7}},
		{"Ubuntu", "etc/os-release <<\nID=ubuntu\nID_LIKE=debian\n>>", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "not in modules.dep", Install: "install linux-modules-" + el7 + " or linux-modules-extra-" + el7}},
		{"Debian", "!etc/os-release\nusr/lib/os-release: ID=debian", "mlx4_core",
			MissingError{Module: "mlx4_core", Why: "not in modules.dep", Install: "install linux-image-" + el7}},
		{"initramfs", "etc/initrd-release: x", "mlx5_vdpa",
			MissingError{Module: "mlx5_vdpa", Why: "not in modules.dep", Install: "it is not in this initramfs: rebuild it with mlx5_vdpa"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := hosttest.Tree(t, stack, tt.patch)
			_, err := Resolve(root, el7, []Want{{Name: tt.module}})
			var got *MissingError
			if !errors.As(err, &got) || !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("Resolve = %v, want a MissingError", err)
			}
			want := tt.want
			want.Kernel = el7
			want.Dirs = moduleDirs(root, el7)
			want.Why = strings.ReplaceAll(want.Why, "ROOT", root)
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
			for _, part := range []string{got.Module, el7, got.Why, got.Dirs[0], got.Dirs[1], got.Install} {
				if !strings.Contains(got.Error(), part) {
					t.Errorf("%q does not say %q", got.Error(), part)
				}
			}
		})
	}
}

func TestResolveBlocked(t *testing.T) {
	tests := []struct {
		name, patch string
		want        BlockedError
	}{
		{"blacklist", "etc/modprobe.d/b.conf <<\n# by hand\nblacklist mlx5-core\n>>", BlockedError{"mlx5_core", "blacklist", "/etc/modprobe.d/b.conf:2", "blacklist mlx5-core"}},
		{"install false", "usr/lib/modprobe.d/h.conf: install mlx5_core /bin/false", BlockedError{"mlx5_core", "install", "/usr/lib/modprobe.d/h.conf:1", "install mlx5_core /bin/false"}},
		{"install true for a dependency", "etc/modprobe.d/h.conf: install ptp /usr/bin/true", BlockedError{"ptp", "install", "/etc/modprobe.d/h.conf:1", "install ptp /usr/bin/true"}},
		{"command line", "proc/cmdline: quiet modprobe.blacklist=a,mlx5-core", BlockedError{"mlx5_core", "blacklist", "/proc/cmdline", "modprobe.blacklist=a,mlx5-core"}},
		{"dracut's", "proc/cmdline: rd.driver.blacklist=mlx5_core", BlockedError{"mlx5_core", "blacklist", "/proc/cmdline", "rd.driver.blacklist=mlx5_core"}},
		{"kernel's, for a dependency", "proc/cmdline: module_blacklist=ptp", BlockedError{"ptp", "module_blacklist", "/proc/cmdline", "module_blacklist=ptp"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Resolve(hosttest.Tree(t, stack, tt.patch), el7, []Want{{Name: "mlx5_core"}})
			var got *BlockedError
			if !errors.As(err, &got) {
				t.Fatalf("Resolve = %v, want a BlockedError", err)
			}
			if *got != tt.want {
				t.Errorf("got  %+v\nwant %+v", *got, tt.want)
			}
		})
	}
}

// TestResolveAllProblems wants one error for each wanted module that has one.
func TestResolveAllProblems(t *testing.T) {
	root := hosttest.Tree(t, stack, "etc/modprobe.d/b.conf: blacklist ib_ipoib", dir+"!kernel/drivers/ptp/ptp.ko.xz")
	plan, err := Resolve(root, el7, Stack())
	var missing *MissingError
	var blocked *BlockedError
	if !errors.As(err, &missing) || !errors.As(err, &blocked) {
		t.Errorf("Resolve = %v", err)
	}
	if got := names(plan.Loads); !slices.Equal(got, []string{"ib_core", "ib_cm", "ib_umad"}) && !slices.Contains(got, "ib_cm") {
		t.Errorf("loads %v", got)
	}
}

func names(loads []Load) []string {
	var n []string
	for _, l := range loads {
		n = append(n, l.Name)
	}
	return n
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("kernel/a.ko: kernel/b.ko kernel/c-d.ko.xz\nkernel/b.ko:\n"))
	f.Add([]byte("\n#x\n: :\n.ko:\na.ko\na.ko.gz: "))
	f.Add([]byte("softdep a pre: b c post: d\nsoftdep\nsoftdep a\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		files, deps := parseDep(b)
		x := &index{files: files, deps: deps}
		for name := range files {
			if name == "" || strings.ContainsAny(name, "-/\n") {
				t.Errorf("module %q", name)
			}
			for _, d := range x.depsOf(name) {
				if d == "" {
					t.Errorf("empty dependency of %q", name)
				}
			}
		}
		for name := range parseBuiltin(b) {
			if name == "" {
				t.Error("empty name")
			}
		}
		parseSoftdeps(b)
	})
}

func FuzzRules(f *testing.F) {
	f.Add("options a b=1 \\\n c=2\nblacklist x-y\ninstall z /bin/true\nsoftdep a pre: b", `a.b="c d" modprobe.blacklist=x,y "q.r=1 2" --`)
	f.Add("\\", `a="`)
	f.Add("\\\n\\\n", `".="`)
	f.Fuzz(func(t *testing.T, conf, cmdline string) {
		r := newRules()
		r.parse("/etc/modprobe.d/x.conf", conf)
		r.parseCmdline(cmdline)
		for m := range r.options {
			r.params(m)
			if m == "" || strings.Contains(m, "-") {
				t.Errorf("module %q", m)
			}
		}
		for _, o := range r.install {
			disables(o)
			if o.where == "" || o.line == "" {
				t.Errorf("origin %+v", o)
			}
		}
	})
}

// BenchmarkResolve is a tree of 6,000 modules.
func BenchmarkResolve(b *testing.B) {
	root := hosttest.Tree(b, stack)
	f, err := os.OpenFile(filepath.Join(root, "lib/modules", el7, "modules.dep"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 6000 {
		fmt.Fprintf(f, "kernel/drivers/net/some/where/driver%d.ko.xz: kernel/lib/a.ko.xz kernel/lib/b.ko.xz kernel/lib/c.ko.xz\n", i)
	}
	f.Close()
	for b.Loop() {
		if _, err := Resolve(root, el7, Stack()); err != nil {
			b.Fatal(err)
		}
	}
}

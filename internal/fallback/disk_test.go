package fallback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needRoot skips a test that needs root; CI has no such excuse.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "needs root")
	}
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("IBUP_CI") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func mount(t *testing.T, source, target, fstype string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		t.Fatalf("mount %s: %v", target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// installFails runs Install and Withdraw against a file system that refuses,
// and checks that the file stays as it is and nothing is left beside it.
func installFails(t *testing.T, in Installer, file string, kind error) {
	t.Helper()
	before, names := content(t, file), list(t, filepath.Dir(file))
	rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1))
	if !errors.Is(err, kind) || rep.Routes[0].Persist != Failed {
		t.Fatalf("error %v, outcome %q; want %v", err, rep.Routes[0].Persist, kind)
	}
	fe, ok := errors.AsType[*FileError](err)
	if !ok || !strings.HasPrefix(fe.Path, ScriptsDir) || fe.Remedy == "" {
		t.Errorf("error %v does not name the file and a remedy", err)
	}
	if got := content(t, file); got != before {
		t.Errorf("the file is now %q", got)
	}
	if got := list(t, filepath.Dir(file)); got != names {
		t.Errorf("left in the directory: %s, before %s", got, names)
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(entries)
}

func TestFullDisk(t *testing.T) {
	needRoot(t)
	text := "# mine\n"
	in, file := scripts(t, &text)
	mount(t, "tmpfs", filepath.Dir(file), "tmpfs", 0, "size=64k")
	write(t, file, text)
	fill, err := os.Create(filepath.Join(filepath.Dir(file), "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	installFails(t, in, file, ErrNoSpace)
}

func TestReadOnly(t *testing.T) {
	needRoot(t)
	text := "# mine\n"
	in, file := scripts(t, &text)
	dir := filepath.Dir(file)
	mount(t, dir, dir, "", unix.MS_BIND, "")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	installFails(t, in, file, ErrReadOnly)
}

func TestImmutable(t *testing.T) {
	needRoot(t)
	text := "# mine\n"
	in, file := scripts(t, &text)
	for _, p := range []string{file, filepath.Dir(file)} {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, fsImmutable); err != nil {
			skip(t, "this file system has no immutable attribute: "+err.Error())
		}
		t.Cleanup(func() { unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); f.Close() })
		installFails(t, in, file, ErrImmutable)
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoNetworkScripts(t *testing.T) {
	in := Installer{Root: t.TempDir()}
	rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1))
	if !errors.Is(err, ErrNoNetworkScripts) || len(rep.Findings) != 0 {
		t.Errorf("error %v, findings %v", err, rep.Findings)
	}
	if got := list(t, in.Root); got != "[]" {
		t.Errorf("left %s", got)
	}
	if _, err := in.Withdraw(t.Context(), "ib0", fallbackOf(t, route1)); err != nil {
		t.Error(err)
	}
}

func TestNotRegular(t *testing.T) {
	tests := map[string]func(file string) error{
		"directory": func(file string) error { return os.Mkdir(file, 0o755) },
		"FIFO":      func(file string) error { return unix.Mkfifo(file, 0o600) },
		"link loop": func(file string) error { return os.Symlink("route-eno1", file) },
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			in, file := scripts(t, nil)
			if err := make(file); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1)); !errors.Is(err, ErrNotRegular) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A link stays a link; its target is edited, and never outside the root.
func TestSymlink(t *testing.T) {
	for _, target := range []string{"../../../srv/routes", "/srv/routes", "../../../../../../../srv/routes"} {
		in, file := scripts(t, nil)
		srv := filepath.Join(in.Root, "srv")
		if err := os.Mkdir(srv, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(srv, "routes"), "# mine\n")
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(file); err != nil || got != target {
			t.Errorf("link is now %q, %v", got, err)
		}
		if got := content(t, filepath.Join(srv, "routes")); got != "# mine\n"+block1 {
			t.Errorf("target holds %q", got)
		}
	}
}

func TestKeepsModeOwnerLabel(t *testing.T) {
	needRoot(t)
	text := "# mine\n"
	in, file := scripts(t, &text)
	const label = "system_u:object_r:net_conf_t:s0\x00"
	if err := os.Chmod(file, 0o4640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(file, 12, 34); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(file, "security.selinux", []byte(label), 0); err != nil {
		t.Fatal(err)
	}
	// What a killed ibup left is no obstacle.
	write(t, filepath.Join(filepath.Dir(file), ".route-eno1.ibup~"), "half")
	if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o640 || st.Uid != 12 || st.Gid != 34 {
		t.Errorf("mode %v, owner %d:%d", info.Mode(), st.Uid, st.Gid)
	}
	got := make([]byte, 100)
	n, err := unix.Getxattr(file, "security.selinux", got)
	if err != nil || string(got[:n]) != label {
		t.Errorf("label %q, %v", got[:max(n, 0)], err)
	}
	if got := list(t, filepath.Dir(file)); strings.Contains(got, "ibup~") {
		t.Errorf("left in the directory: %s", got)
	}
}

// Eight interfaces fall back to one device at once; every block is there.
func TestTogether(t *testing.T) {
	in, file := scripts(t, nil)
	f := fallbackOf(t, route1)
	each := func(do func(iface string) error) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if err := do(fmt.Sprintf("ib%d", i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	each(func(iface string) error { _, err := in.Install(t.Context(), iface, f); return err })
	if got := content(t, file); strings.Count(got, beginMark) != 8 || strings.Count(got, route1) != 8 {
		t.Errorf("not eight blocks:\n%s", got)
	}
	each(func(iface string) error { _, err := in.Withdraw(t.Context(), iface, f); return err })
	if got := content(t, file); got != "<absent>" {
		t.Errorf("left %q", got)
	}
}

// A lock holder that hangs costs the caller's patience, not more.
func TestLockHeld(t *testing.T) {
	in, file := scripts(t, nil)
	unlock, err := in.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = in.Install(ctx, "ib0", fallbackOf(t, route1))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another ibup holds it") {
		t.Errorf("error %v", err)
	}
	if got := content(t, file); got != "<absent>" {
		t.Errorf("written all the same: %q", got)
	}
	unlock()
	if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1)); err != nil {
		t.Error(err)
	}
}

// What initscripts would do with the file: bash reads it as ifup-routes does.
func TestAsInitscriptsRead(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		skip(t, "no bash")
	}
	text := "# mine\n10.9.0.0/16 via 10.20.0.2"
	in, file := scripts(t, &text)
	if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1, "default via 10.20.0.1 metric 900")); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bash, "-c", `{ cat "$1"; echo; } | while read line; do [[ "$line" =~ ^[[:space:]]*(\#.*)?$ ]] || echo ip -4 route add $line; done`, "bash", file).CombinedOutput()
	want := "ip -4 route add 10.9.0.0/16 via 10.20.0.2\nip -4 route add " + route1 + "\nip -4 route add default via 10.20.0.1 dev eno1 metric 900\n"
	if err != nil || string(out) != want {
		t.Errorf("initscripts would run\n%s%v, want\n%s", out, err, want)
	}
}

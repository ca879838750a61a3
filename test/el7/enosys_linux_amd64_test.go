// Package el7 runs the program as a kernel of the year 2013 would: every system
// call that Linux 3.10 does not have answers ENOSYS.
package el7

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// last310 is the highest system call number of Linux 3.10 on x86_64
// (arch/x86/syscalls/syscall_64.tbl): finit_module.
const last310 = unix.SYS_FINIT_MODULE

// launch in the environment makes this test binary a launcher: it installs the
// filter and becomes its arguments.
const launch = "IBUP_TEST_ENOSYS"

// probe makes it tell how two system calls answer.
const probe = "IBUP_TEST_PROBE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(launch) != "":
		os.Unsetenv(launch)
		err := become(os.Args[1:])
		fmt.Fprintln(os.Stderr, "launcher:", err)
		os.Exit(125)
	case os.Getenv(probe) != "":
		_, _, old := unix.RawSyscall(unix.SYS_SETNS, ^uintptr(0), 0, 0)
		_, _, young := unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, 0, 0)
		fmt.Printf("setns: %v; sched_setattr: %v\n", old, young)
	default:
		os.Exit(m.Run())
	}
}

func become(args []string) error {
	runtime.LockOSThread() // a filter belongs to a thread and what it executes
	const (
		nr, arch = 0, 4 // offsets in struct seccomp_data
		// AUDIT_ARCH_X86_64: another ABI has other numbers.
		x86_64 = 0xc000003e
	)
	deny := uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 2, K: x86_64},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 0, Jf: 1, K: last310},
		{Code: unix.BPF_RET | unix.BPF_K, K: deny},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// prctl, since the seccomp system call is itself too new.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_GETRANDOM, 0, 0, 0); errno != unix.ENOSYS {
		return fmt.Errorf("the filter does not work: getrandom answers %v", errno)
	}
	return syscall.Exec(args[0], args, os.Environ())
}

type result struct {
	stdout, stderr string
	code           int
}

func run(t *testing.T, filtered bool, args ...string) result {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	if filtered {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(self, args...)
		cmd.Env = append(os.Environ(), launch+"=1")
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// changing is what differs between two runs on one machine: times.
var changing = regexp.MustCompile(`\d+(\.\d+)? ?(ns|µs|ms|s|min)\b|"\w+_ns": \d+`)

func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "ibup")
	cmd := exec.Command("go", "build", "-o", bin, "ibup/cmd/ibup")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func TestLinux310SystemCalls(t *testing.T) {
	bin := program(t)
	good, bad := t.TempDir(), t.TempDir()
	for root, text := range map[string]string{
		good: "[Network]\nAddress=20.20.20.109/24\n\n[Fallback]\nRoute=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200\n",
		bad:  "[IPoIB]\nPKey=8001\n",
	} {
		dir := filepath.Join(root, "etc/ibup")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ib0.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		code int
	}{
		"version":         {[]string{"version"}, 0},
		"status":          {[]string{"status"}, -1},
		"status json":     {[]string{"status", "--json"}, -1},
		"config check":    {[]string{"config", "check", "--root", good}, 0},
		"config mistake":  {[]string{"config", "check", "--root", bad}, 2},
		"config show":     {[]string{"config", "show", "--root", good}, 0},
		"dry run":         {[]string{"up", "ib0", "--dry-run"}, -1},
		"dry run, down":   {[]string{"down", "ib0", "--dry-run"}, -1},
		"help":            {[]string{"help", "up"}, 0},
		"unknown command": {[]string{"no-such-command"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{bin}, tt.args...)
			want, got := run(t, false, args...), run(t, true, args...)
			for _, r := range []*result{&want, &got} {
				r.stdout = changing.ReplaceAllString(r.stdout, "TIME")
				r.stderr = changing.ReplaceAllString(r.stderr, "TIME")
			}
			if got != want {
				t.Errorf("with the system calls of 3.10: exit %d\n%s%s\nwith all: exit %d\n%s%s",
					got.code, got.stdout, got.stderr, want.code, want.stdout, want.stderr)
			}
			// What the machine is like decides about the codes marked -1.
			if tt.code >= 0 && want.code != tt.code || want.stdout+want.stderr == "" {
				t.Errorf("exit %d, want %d, and said %q", want.code, tt.code, want.stdout+want.stderr)
			}
		})
	}
}

// The packages that make the product pass their own tests so too; with root that
// includes real routes, locks and file writes.
func TestLinux310Packages(t *testing.T) {
	for _, pkg := range []string{"udev", "internal/host", "internal/config", "internal/fallback", "internal/ipoib", "internal/modules", "internal/bringup", "internal/report", "cmd/ibup"} {
		t.Run(pkg, func(t *testing.T) {
			dir := filepath.Join("../..", pkg)
			bin := filepath.Join(t.TempDir(), "test")
			cmd := exec.Command("go", "test", "-c", "-o", bin, "ibup/"+pkg)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if _, err := os.Stat(bin); err != nil {
				t.Skip("has no tests")
			}
			t.Chdir(dir)
			if r := run(t, true, bin, "-test.short", "-test.timeout=10m"); r.code != 0 {
				t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// The filter takes away what came with 3.14 and leaves what came with 3.0, also
// behind exec.
func TestFilterBites(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(probe, "1")
	for filtered, want := range map[bool]string{
		true:  "setns: bad file descriptor; sched_setattr: function not implemented\n",
		false: "setns: bad file descriptor; sched_setattr: invalid argument\n",
	} {
		r := run(t, filtered, self)
		if r.code != 0 || r.stdout != want {
			t.Errorf("filtered %t: exit %d, %q%s, want %q", filtered, r.code, r.stdout, r.stderr, want)
		}
	}
}

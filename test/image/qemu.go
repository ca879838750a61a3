package image

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const triplet = "x86_64-linux-gnu"

// QEMU is the command line, less its own arguments, that starts a
// qemu-system-x86_64 with the vfio-user-pci device.
type QEMU []string

// QEMU returns the machine's own when it has vfio-user-pci (10.1 and later),
// otherwise the cache's; an error wraps [ErrNotSetUp] when neither is there.
func (c *Cache) QEMU(ctx context.Context) (QEMU, error) {
	if q := hostQEMU(ctx); q != nil {
		return q, nil
	}
	dir := filepath.Join(c.Dir, "trees", treeQEMU)
	if _, err := readRecord(dir); err != nil {
		return nil, fmt.Errorf("tree of %w", err)
	}
	return append(treeProgram(dir, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(dir, "usr/share/qemu"),
		"-L", filepath.Join(dir, "usr/share/seabios"),
		"-L", filepath.Join(dir, "usr/lib/ipxe/qemu")), nil
}

func hostQEMU(ctx context.Context) QEMU {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, "-device", "help").CombinedOutput()
	if !strings.Contains(string(out), `"vfio-user-pci"`) {
		return nil
	}
	return QEMU{path}
}

// treeProgram is the command line that runs a program of an unpacked tree with
// the tree's own loader and libraries: the machine's may be older.
func treeProgram(tree, program string, argv0 ...string) []string {
	args := []string{
		filepath.Join(tree, "usr/lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(tree, "usr/lib", triplet) + ":" + filepath.Join(tree, "usr/lib", triplet, "systemd"),
	}
	if len(argv0) > 0 {
		args = append(args, "--argv0", argv0[0])
	}
	return append(args, filepath.Join(tree, program))
}

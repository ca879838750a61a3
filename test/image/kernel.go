package image

import (
	"fmt"
	"os"
	"path/filepath"
)

// Kernel is an unpacked Debian kernel.
type Kernel struct {
	Name    string // as in [KernelNames]
	Release string // what `uname -r` says
	Image   string // path of the uncompressed, bootable kernel
	Modules string // path of its /lib/modules/RELEASE
}

// Kernel returns a kernel by name; an error wraps [ErrNotSetUp] when the
// cache does not have it.
func (c *Cache) Kernel(name string) (Kernel, error) {
	dir := filepath.Join(c.Dir, "kernels", name)
	r, err := readRecord(dir)
	if err != nil {
		return Kernel{}, fmt.Errorf("kernel %w", err)
	}
	return Kernel{
		Name:    name,
		Release: r.Release,
		Image:   filepath.Join(dir, vmlinux),
		Modules: filepath.Join(dir, "usr/lib/modules", r.Release),
	}, nil
}

// vmlinux is the uncompressed kernel in a kernel's directory.
const vmlinux = "vmlinux"

// bootImage finds the compressed image of an unpacked kernel: in /boot, or from
// Debian's 7.x packages on among the modules.
func bootImage(dir, release string) (string, error) {
	path := filepath.Join(dir, "boot", "vmlinuz-"+release)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	path = filepath.Join(dir, "usr/lib/modules", release, "vmlinuz")
	_, err := os.Stat(path)
	return path, err
}

// kernelRelease finds the one release that an unpacked kernel contains.
func kernelRelease(dir string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "usr/lib/modules"))
	if err != nil {
		return "", err
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("%d directories in lib/modules, not one", len(entries))
	}
	release := entries[0].Name()
	_, err = bootImage(dir, release)
	return release, err
}

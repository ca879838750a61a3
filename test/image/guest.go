package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Guest chooses the system that a virtual machine runs.
type Guest struct {
	Kernel   string   // a name of [KernelNames]
	Systemd  bool     // a whole Debian with systemd as PID 1, else busybox and udev
	RDMACore bool     // the small guest: also rdma-core's udev rules
	NFS      bool     // the small guest: also NFS, client and server
	Modules  []string // more kernel modules
}

// AgentPath is where the bench's agent is expected in a guest; in the small
// one it is also PID 1.
const AgentPath = "/usr/lib/bench/agent"

func (c *Cache) guestTree() string { return filepath.Join(c.Dir, "trees", treeGuest) }

// Initramfs returns the path of the guest's packed file system, without the
// agent. It is made once and kept under a name that says what is in it.
func (c *Cache) Initramfs(ctx context.Context, g Guest) (string, error) {
	k, err := c.Kernel(g.Kernel)
	if err != nil {
		return "", err
	}
	if _, err := readRecord(c.guestTree()); err != nil {
		return "", fmt.Errorf("tree of %w", err)
	}
	files, err := c.guestFiles(ctx, g)
	if err != nil {
		return "", fmt.Errorf("guest image: %w", err)
	}
	modules := g.modules()
	files.Add("/etc/bench-release", Text(fmt.Sprintf("%+v\n%s\n%s\n", g, k.Release, strings.Join(modules, " "))))
	digest, err := files.digest()
	if err != nil {
		return "", fmt.Errorf("guest image: %w", err)
	}
	kind := "small"
	if g.Systemd {
		kind = "systemd"
	}
	path := filepath.Join(c.Dir, "images", fmt.Sprintf("%s-%s-%s.cpio", kind, g.Kernel, digest))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := c.Lock(func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := c.pack(ctx, k, modules, files, path); err != nil {
		return "", fmt.Errorf("guest image: %w", err)
	}
	return path, nil
}

// pack adds the kernel's modules to files and writes the archive.
func (c *Cache) pack(ctx context.Context, k Kernel, modules []string, files Files, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	stage, err := os.MkdirTemp(filepath.Dir(path), "stage")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := c.stageModules(ctx, k, modules, stage); err != nil {
		return err
	}
	if err := files.addTree(stage, func(string) bool { return false }); err != nil {
		return err
	}
	files["/lib"] = File{Link: "usr/lib"} // and not the staging directory's own
	out, err := os.CreateTemp(filepath.Dir(path), "cpio")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	err = errors.Join(files.WriteCPIO(out), out.Close())
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), path)
}

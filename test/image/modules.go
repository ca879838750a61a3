package image

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// modules names the modules of a guest, without their dependencies. One that a
// kernel has built in or does not know is left out.
func (g Guest) modules() []string {
	names := []string{
		"mlx5_core", "mlx5_ib", "ib_ipoib", "ib_umad", "ib_uverbs", "rdma_ucm", "rdma_cm", "ib_cm", "iw_cm",
		"virtio_pci", "virtio_net", "dummy", "veth", "tun",
	}
	if g.NFS || g.Systemd {
		names = append(names, "nfs", "nfsv3", "nfsv4", "nfsd", "rpcrdma")
	}
	if g.Systemd {
		names = append(names, "autofs4")
	}
	return append(names, g.Modules...)
}

// stageModules copies modules and their dependencies, unpacked, into
// stage/lib/modules/RELEASE and indexes them with the guest tree's depmod.
func (c *Cache) stageModules(ctx context.Context, k Kernel, names []string, stage string) error {
	all := map[string]string{} // module name → file
	err := filepath.WalkDir(k.Modules, func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".ko") {
			base, _, _ := strings.Cut(d.Name(), ".ko")
			all[strings.ReplaceAll(base, "-", "_")] = p
		}
		return err
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(stage, "lib/modules", k.Release)
	done := map[string]bool{}
	for queue := names; len(queue) > 0; queue = queue[1:] {
		name := strings.ReplaceAll(queue[0], "-", "_")
		src, ok := all[name]
		if done[name] || !ok {
			continue
		}
		done[name] = true
		data, err := readModule(src)
		if err != nil {
			return fmt.Errorf("%s: %w", src, err)
		}
		deps, err := moduleDepends(data)
		if err != nil {
			return fmt.Errorf("%s: %w", src, err)
		}
		queue = append(queue, deps...)
		rel, _ := filepath.Rel(k.Modules, src) // src is below Modules
		base, _, _ := strings.Cut(rel, ".ko")
		if err := writeFile(filepath.Join(dir, base+".ko"), data); err != nil {
			return err
		}
	}
	for _, f := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		data, err := os.ReadFile(filepath.Join(k.Modules, f))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, f), data); err != nil {
			return err
		}
	}
	depmod := append(treeProgram(c.guestTree(), "usr/bin/kmod", "depmod"), "-b", stage, k.Release)
	if out, err := exec.CommandContext(ctx, depmod[0], depmod[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w\n%s", err, out)
	}
	return nil
}

// readModule returns a module file, decompressed.
func readModule(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch filepath.Ext(path) {
	case ".xz":
		r, err := xz.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case ".zst":
		r, err := zstd.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}
	return data, nil
}

// moduleDepends returns the modules that a module's .modinfo section names as
// hard dependencies, and as soft ones to be loaded before it.
func moduleDepends(data []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	var deps []string
	for _, kv := range strings.Split(string(info), "\x00") {
		if v, ok := strings.CutPrefix(kv, "depends="); ok {
			deps = append(deps, strings.FieldsFunc(v, func(r rune) bool { return r == ',' })...)
		}
		if v, ok := strings.CutPrefix(kv, "softdep=pre:"); ok {
			v, _, _ = strings.Cut(v, "post:")
			deps = append(deps, strings.Fields(v)...)
		}
	}
	return deps, nil
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

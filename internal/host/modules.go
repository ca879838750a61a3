package host

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// StackModules names the modules of the InfiniBand stack, in an order in which
// they can be loaded: compatibility layer, core, connection managers, driver,
// interface, user access.
func StackModules() []string {
	return []string{
		"mlx_compat", "mlxfw", "mlxdevm",
		"ib_core", "ib_cm", "iw_cm", "rdma_cm",
		"mlx5_core", "ib_uverbs_support", "ib_uverbs", "mlx5_ib", "ib_ipoib",
		"ib_umad", "rdma_ucm",
	}
}

// modules reads /proc/modules, and /sys/module for what that does not tell: source
// versions, and modules that are built in. A module that is still loading is in
// both, one whose load has failed in neither.
func (r *Reader) modules(s *Snapshot) {
	t := &r.tree
	b, err := t.file(4<<20, "proc/modules")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.gap("modules", err)
	}
	loaded := parseModules(b)
	for _, name := range StackModules() {
		dir := "sys/module/" + name
		m, ok := loaded[name]
		if !ok {
			if !t.exists(dir) {
				continue
			}
			m = Module{Name: name, State: t.text(dir, "initstate"), RefCount: int(t.uint(31, dir, "refcnt"))}
			m.Holders, _ = t.list(dir, "holders")
			if m.State == "" {
				m.State = "builtin" // has a directory when it has parameters, but no state
			}
		}
		m.SrcVersion = t.text(dir, "srcversion")
		m.Version = t.text(dir, "version")
		s.Modules = append(s.Modules, m)
	}
}

// parseModules reads /proc/modules:
//
//	mlx5_core 1519616 1 mlx5_ib, Live 0xffffffffc0600000 (OE)
//
// Without module unloading in the kernel the reference count is "-".
func parseModules(b []byte) map[string]Module {
	states := map[string]string{"Live": "live", "Loading": "coming", "Unloading": "going"}
	loaded := map[string]Module{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || states[f[4]] == "" {
			continue
		}
		m := Module{Name: f[0], State: states[f[4]]}
		m.RefCount, _ = strconv.Atoi(f[2])
		for h := range strings.SplitSeq(f[3], ",") {
			if h != "" && h != "-" && h != "[permanent]" {
				m.Holders = append(m.Holders, h)
			}
		}
		slices.Sort(m.Holders)
		loaded[m.Name] = m
	}
	return loaded
}

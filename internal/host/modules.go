package host

// StackModules names the modules of the InfiniBand stack, in an order in which
// they can be loaded: compatibility layer, core, connection managers, driver,
// interface, user access.
func StackModules() []string {
	return []string{
		"mlx_compat", "mlxfw", "mlxdevm",
		"ib_core", "ib_cm", "iw_cm", "rdma_cm",
		"mlx5_core", "ib_uverbs", "mlx5_ib", "ib_ipoib",
		"ib_umad", "rdma_ucm",
	}
}

// modules reads /sys/module. A module that is still loading is there already,
// one whose load has failed is not.
func (r *Reader) modules(s *Snapshot) {
	t := &r.tree
	for _, name := range StackModules() {
		dir := "sys/module/" + name
		if !t.exists(dir) {
			continue
		}
		m := Module{
			Name:       name,
			State:      t.text(dir, "initstate"),
			RefCount:   int(t.uint(31, dir, "refcnt")),
			SrcVersion: t.text(dir, "srcversion"),
			Version:    t.text(dir, "version"),
		}
		if m.State == "" {
			m.State = "builtin" // has a directory when it has parameters, but no state
		}
		m.Holders, _ = t.list(dir, "holders")
		s.Modules = append(s.Modules, m)
	}
}

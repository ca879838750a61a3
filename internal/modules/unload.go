package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// InUseError is a module that cannot be unloaded because something needs it.
type InUseError struct {
	Module   string
	Holders  []string // modules that depend on it
	RefCount string   // "" when unknown
}

func (e *InUseError) Error() string {
	if len(e.Holders) > 0 {
		return fmt.Sprintf("module %s is in use by %s", e.Module, strings.Join(e.Holders, ", "))
	}
	return fmt.Sprintf("module %s is in use (%s references)", e.Module, e.RefCount)
}

// Unload removes a module if no module depends on it and nothing refers to it; it
// never waits and never forces. A driver's devices are not references: unloading
// mlx5_core takes the network of every function it drives, which is for the caller
// to know. A module that is not there is no error.
//
// Errors: *InUseError, *LoadError.
func (l *Loader) Unload(name string) error {
	name = normal(name)
	dir := filepath.Join(l.root, "sys/module", name)
	switch stateIn(l.root, name) {
	case Absent:
		return nil
	case Builtin:
		return fmt.Errorf("module %s is built into the kernel", name)
	}
	use := &InUseError{Module: name}
	entries, _ := os.ReadDir(filepath.Join(dir, "holders"))
	for _, e := range entries {
		use.Holders = append(use.Holders, e.Name())
	}
	ref, err := os.ReadFile(filepath.Join(dir, "refcnt"))
	use.RefCount = strings.TrimSpace(string(ref))
	if len(use.Holders) > 0 || err == nil && use.RefCount != "0" {
		return use
	}
	switch err := l.kernel.remove(name); {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return use
	default:
		return &LoadError{Module: name, Err: err, Reason: "the kernel does not unload it"}
	}
}

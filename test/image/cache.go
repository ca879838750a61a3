// Package image prepares what the bench's virtual machines are made of: a QEMU
// that speaks vfio-user, Debian kernels, and guest systems assembled from
// Debian packages. Everything lives in one cache directory; nothing is
// installed on the machine and nothing needs root.
package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotSetUp is wrapped by errors that `make bench-setup` cures.
var ErrNotSetUp = errors.New("not in the bench's cache: run \"make bench-setup\"")

// Cache is the directory that setup fills and everything else reads.
type Cache struct{ Dir string }

// Open returns the cache of this checkout: $IBUP_CACHE, or .cache beside
// go.mod. The directory need not exist yet.
func Open() (*Cache, error) {
	if dir := os.Getenv("IBUP_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("IBUP_CACHE: %w", err)
		}
		return &Cache{Dir: abs}, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	return &Cache{Dir: filepath.Join(root, ".cache")}, nil
}

// ModuleRoot returns the directory of this module's go.mod, searched upward
// from the working directory.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module ibup\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a checkout of ibup (no go.mod found upward); set IBUP_CACHE")
		}
		dir = parent
	}
}

// Lock holds the cache against other writers until the returned function is
// called. It says on waiting, once, that somebody else holds it.
func (c *Cache) Lock(waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		waiting()
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// record is kept beside each unpacked set and is written last: a set without
// it is not there. It pins the versions until the set's definition changes.
type record struct {
	Spec     string    // fingerprint of the set's definition
	Release  string    // kernels: `uname -r`
	Packages []Package // what the set was made of
}

func readRecord(dir string) (record, error) {
	var r record
	b, err := os.ReadFile(filepath.Join(dir, "record.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("%s: %w", filepath.Base(dir), ErrNotSetUp)
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, "record.json"), err)
	}
	return r, nil
}

func writeRecord(dir string, r record) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "record.json"), append(b, '\n'), 0o644)
}

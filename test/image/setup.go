package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Setup fills the cache and says on w what it does. What is there already is
// left as it is; an interrupted run is continued by the next one.
func (c *Cache) Setup(ctx context.Context, w io.Writer) error {
	s := setup{Cache: c, w: w, apts: map[string]*apt{}}
	missing, err := s.missing(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	unlock, err := c.Lock(func() { s.say("waiting for another bench-setup to finish") })
	if err != nil {
		return err
	}
	defer unlock()
	if missing, err = s.missing(ctx); err != nil || len(missing) == 0 {
		return err
	}
	s.say("filling %s (about 450 MB to download when empty)", c.Dir)
	if s.mirror, err = findMirror(ctx); err != nil {
		return err
	}
	if s.keyring, err = findKeyring(); err != nil {
		return err
	}
	for _, set := range missing {
		err := s.make(ctx, set)
		if err != nil && set.Optional && ctx.Err() == nil {
			s.say("%s: skipped, scenarios on it will be too: %v", set.Name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("bench-setup: %s: %w", set.Name, err)
		}
	}
	// Guest images are made on first use from what is now newer.
	for _, d := range []string{"apt", "images"} {
		if err := os.RemoveAll(filepath.Join(c.Dir, d)); err != nil {
			return err
		}
	}
	s.say("done: %s", c.Dir)
	return nil
}

type setup struct {
	*Cache
	w               io.Writer
	mirror, keyring string
	apts            map[string]*apt // by suites: one set of lists serves several sets
}

func (s *setup) say(format string, args ...any) {
	fmt.Fprintf(s.w, "bench-setup: "+format+"\n", args...)
}

// missing returns the sets that are still to be made. An optional kernel that
// the mirror did not have stays missing and is looked for again.
func (s *setup) missing(ctx context.Context) ([]set, error) {
	var out []set
	for _, set := range sets() {
		if set.Name == "trees/"+treeQEMU && hostQEMU(ctx) != nil {
			continue
		}
		r, err := readRecord(filepath.Join(s.Dir, set.Name))
		switch {
		case err == nil && r.Spec == set.fingerprint():
		case err == nil || errors.Is(err, ErrNotSetUp):
			out = append(out, set)
		default:
			return nil, err
		}
	}
	return out, nil
}

// kernelPackage matches the packages that hold a kernel and its modules; from
// 7.x on Debian splits what used to be one.
var kernelPackage = regexp.MustCompile(`^linux-(image|base|binary|modules)-[0-9].*-amd64$`)

// make assembles one set beside its place and renames it there.
func (s *setup) make(ctx context.Context, set set) error {
	a, err := s.apt(ctx, set)
	if err != nil {
		return err
	}
	ps, err := a.resolve(ctx, set.Packages)
	if err != nil {
		return err
	}
	if set.kernel() {
		// The other dependencies are for installing it.
		ps = slices.DeleteFunc(ps, func(p Package) bool { return !kernelPackage.MatchString(p.Name) })
	}
	files, total, err := a.debs(ctx, ps)
	if err != nil {
		return err
	}
	s.say("%s: %s, %.1f MB", set.Name, describe(set, ps), float64(total)/1e6)
	debs := filepath.Join(s.Dir, "debs", filepath.Base(set.Name))
	stop := s.progress(debs, total)
	err = a.download(ctx, debs, ps)
	stop()
	if err != nil {
		return err
	}
	dir := filepath.Join(s.Dir, set.Name)
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	for _, f := range files {
		if err := unpack(ctx, filepath.Join(debs, f), tmp); err != nil {
			return err
		}
	}
	r := record{Spec: set.fingerprint(), Packages: ps}
	if set.kernel() {
		if r.Release, err = kernelRelease(tmp); err != nil {
			return err
		}
		image, err := bootImage(tmp, r.Release)
		if err != nil {
			return err
		}
		if err := s.extractVmlinux(ctx, image, filepath.Join(tmp, vmlinux)); err != nil {
			return err
		}
	}
	if err := writeRecord(tmp, r); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return os.RemoveAll(debs)
}

func describe(set set, ps []Package) string {
	if set.kernel() {
		return "Linux " + ps[0].Version
	}
	return fmt.Sprintf("%d packages from %s", len(ps), strings.Join(set.Suites, " and "))
}

// apt returns the private apt for the set's suites, with fresh lists.
func (s *setup) apt(ctx context.Context, set set) (*apt, error) {
	key := strings.Join(set.Suites, "+")
	if a := s.apts[key]; a != nil {
		b := *a
		b.prefer = set.Prefer
		return &b, nil
	}
	s.say("package lists of %s", strings.Join(set.Suites, " and "))
	a, err := newApt(ctx, filepath.Join(s.Dir, "apt", key), s.mirror, s.keyring, set.Suites, set.Prefer)
	if err != nil {
		return nil, err
	}
	if err := a.update(ctx); err != nil {
		return nil, fmt.Errorf("cannot fetch package lists (offline? other mirror: IBUP_MIRROR): %w", err)
	}
	s.apts[key] = a
	return a, nil
}

// progress reports how much of a download is on disk, until stopped.
func (s *setup) progress(dir string, total int64) (stop func()) {
	done := make(chan struct{})
	ticker := time.NewTicker(5 * time.Second)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				s.say("  %.0f of %.0f MB", float64(diskUsage(dir))/1e6, float64(total)/1e6)
			}
		}
	}()
	return func() { close(done) }
}

func diskUsage(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			n += fi.Size()
		}
	}
	return n
}

// unpack extracts an archive over dir the way dpkg does, following the
// links that merge /bin, /sbin and /lib into /usr.
func unpack(ctx context.Context, deb, dir string) error {
	if err := mergeUsr(dir); err != nil {
		return err
	}
	dump := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	tar := exec.CommandContext(ctx, "tar", "-C", dir, "-x", "--keep-directory-symlink", "--no-same-owner",
		"--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*")
	var errs strings.Builder
	dump.Stderr, tar.Stderr = &errs, &errs
	var err error
	if tar.Stdin, err = dump.StdoutPipe(); err != nil {
		return err
	}
	if err := dump.Start(); err != nil {
		return fmt.Errorf("dpkg-deb: %w", err)
	}
	err = errors.Join(tar.Run(), dump.Wait())
	if err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", filepath.Base(deb), err, errs.String())
	}
	return nil
}

func mergeUsr(dir string) error {
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		if err := os.MkdirAll(filepath.Join(dir, target), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

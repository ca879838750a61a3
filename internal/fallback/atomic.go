package fallback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	fsImmutable = 0x10 // FS_IMMUTABLE_FL, include/uapi/linux/fs.h
	fsAppend    = 0x20 // FS_APPEND_FL

	maxLinks = 8       // symbolic links followed at the end of a path
	maxSize  = 1 << 20 // bytes of a route file; more is a mistake
	lockFile = "/run/ibup/route-files.lock"
)

// snapshot is a file as it was read.
type snapshot struct {
	real  string      // path to open, root directory included, links followed
	info  os.FileInfo // nil when absent
	bytes []byte
}

// real is a machine path below the root directory.
func (in Installer) real(name string) string { return filepath.Join("/", in.Root, name) }

// follow resolves symbolic links at the end of a path, absolute ones against
// the root directory: a route file that is a link, as configuration management
// makes them, is edited where it really is and stays a link.
func (in Installer) follow(name string) (string, error) {
	p := filepath.Join("/", name)
	for range maxLinks {
		target, err := os.Readlink(in.real(p))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
			return in.real(p), nil // absent, or no link
		}
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(p), target)
		}
		p = filepath.Join("/", target) // ".." ends at the root directory
	}
	return "", fmt.Errorf("%w: more than %d symbolic links", ErrNotRegular, maxLinks)
}

func (in Installer) read(name string) (s snapshot, err error) {
	defer func() { err = explain(name, s.real, err) }()
	if s.real, err = in.follow(name); err != nil {
		return s, err
	}
	// O_NONBLOCK: a FIFO must not hang the boot. O_NOFOLLOW: links were followed
	// above, within the root directory.
	f, err := os.OpenFile(s.real, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() {
		return s, fmt.Errorf("%w: %s", ErrNotRegular, info.Mode().Type())
	}
	s.bytes, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return s, err
	}
	if len(s.bytes) > maxSize {
		return s, fmt.Errorf("larger than %d bytes", maxSize)
	}
	s.info = info
	return s, nil
}

// unchanged fails with errChanged when the file is no longer what was read.
func (s snapshot) unchanged() error {
	now, err := os.Lstat(s.real)
	if errors.Is(err, fs.ErrNotExist) && s.info == nil {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || s.info == nil || !os.SameFile(now, s.info) || now.Size() != s.info.Size() || !now.ModTime().Equal(s.info.ModTime()) {
		return errChanged
	}
	return nil
}

// replace gives the file new content, all or nothing, with its mode, owner and
// extended attributes (SELinux label, ACL).
func replace(s snapshot, data []byte) (err error) {
	dir, base := filepath.Split(s.real)
	// A fixed name: what a killed ibup left is overwritten by the next. The dot
	// and the ending keep it out of everybody's globs.
	tmp := filepath.Join(dir, "."+base+".ibup~")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	err = fill(f, s, data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.unchanged()
	}
	if err == nil {
		err = os.Rename(tmp, s.real)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

func fill(f *os.File, s snapshot, data []byte) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if s.info != nil {
		mode = s.info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		if st, ok := s.info.Sys().(*syscall.Stat_t); ok {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
		if err := copyAttrs(s.real, f); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Sync()
}

// copyAttrs copies all extended attributes, which hold the SELinux label and
// the ACL.
func copyAttrs(from string, to *os.File) error {
	size, err := unix.Llistxattr(from, nil)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) || (err == nil && size == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(from, list); err != nil {
		return err
	}
	for _, name := range strings.Split(strings.TrimRight(string(list[:size]), "\x00"), "\x00") {
		size, err := unix.Lgetxattr(from, name, nil)
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		value := make([]byte, size)
		if size, err = unix.Lgetxattr(from, name, value); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
		if err := unix.Fsetxattr(int(to.Fd()), name, value[:size], 0); err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

func remove(s snapshot) error {
	if err := s.unchanged(); err != nil {
		return err
	}
	if err := os.Remove(s.real); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.real))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: this file system has none
		return err
	}
	return nil
}

// lock keeps other ibup processes from editing route files. The file is in
// /run because flock on an NFS root would need a server.
func (in Installer) lock(ctx context.Context) (unlock func(), err error) {
	name := in.real(lockFile)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, explain(lockFile, name, err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, explain(lockFile, name, err)
	}
	got := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			f.Close()
			return nil, explain(lockFile, name, err)
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { <-got; f.Close() }()
		return nil, &FileError{Path: lockFile, Why: "another ibup holds it", Remedy: "see fuser -v " + lockFile, Err: context.Cause(ctx)}
	}
}

// immutable reports whether a file or its directory has the immutable or
// append-only attribute of ext4, xfs and btrfs.
func immutable(name string) bool {
	for _, p := range []string{name, filepath.Dir(name)} {
		f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		f.Close()
		if err == nil && flags&(fsImmutable|fsAppend) != 0 {
			return true
		}
	}
	return false
}

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree reads the files of a machine below a root directory.
type tree struct {
	root string
	buf  [4096]byte // an attribute is one page at most
}

// path joins without cleaning, which would be a tenth of a snapshot's time.
func (t *tree) path(elem ...string) string {
	return strings.TrimSuffix(t.root, "/") + "/" + strings.Join(elem, "/")
}

// attr reads a sysfs attribute with one read(2) of at most a page and trims
// it. os.ReadFile will not do: it hands the file to the runtime's poller, which
// waits for ever where a driver answers EAGAIN, and reads a second time to see
// the end, which makes the driver do its work twice.
func (t *tree) attr(elem ...string) (string, error) {
	path := t.path(elem...)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Read(fd, t.buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &fs.PathError{Op: "read", Path: path, Err: err}
		}
		return strings.TrimSpace(string(t.buf[:n])), nil
	}
}

// text is attr for what may be absent: "" then.
func (t *tree) text(elem ...string) string {
	s, _ := t.attr(elem...)
	return s
}

// uint reads a number in C notation ("0x15b3", "7") of at most bits bits; 0 when it
// is absent or no number.
func (t *tree) uint(bits int, elem ...string) uint64 {
	n, err := strconv.ParseUint(t.text(elem...), 0, bits)
	if err != nil {
		return 0
	}
	return n
}

// file reads a regular or procfs file of at most limit bytes.
func (t *tree) file(limit int64, elem ...string) ([]byte, error) {
	return readFile(t.path(elem...), limit)
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return b, err
}

// list names a directory's entries in order; nil when it is absent.
func (t *tree) list(elem ...string) ([]string, error) {
	entries, err := os.ReadDir(t.path(elem...))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// base is the last element of a symbolic link's target, "" when there is none.
func (t *tree) base(elem ...string) string {
	target, err := os.Readlink(t.path(elem...))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func (t *tree) exists(elem ...string) bool {
	_, err := os.Lstat(t.path(elem...))
	return err == nil
}

// lastBDF is the PCI function nearest to the end of a sysfs path:
// "0000:3b:00.0" for ../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/ib0.
func lastBDF(path string) string {
	for path != "" {
		dir, elem := filepath.Split(strings.TrimRight(path, "/"))
		if IsBDF(elem) {
			return elem
		}
		path = dir
	}
	return ""
}

// IsBDF tells whether s is a PCI address as the kernel writes it: domain (four
// hexadecimal digits, more on some virtual machines), bus, device, function.
func IsBDF(s string) bool {
	n := len(s)
	if n < 12 || n > 16 || s[n-8] != ':' || s[n-5] != ':' || s[n-2] != '.' || s[n-1] < '0' || s[n-1] > '7' {
		return false
	}
	return isHex(s[:n-8]) && isHex(s[n-7:n-5]) && isHex(s[n-4:n-2])
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// why shortens an error to what a person needs beside the name of the thing.
func why(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

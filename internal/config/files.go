package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where the interfaces' files are.
const Dir = "/etc/ibup"

const (
	maxFile = 1 << 20 // bytes
	suffix  = ".conf"
)

// tree reads files of a machine below a root directory.
type tree struct{ root string }

func (t tree) path(name string) string {
	return filepath.Join("/", t.root, name)
}

var errTooLarge = fmt.Errorf("larger than %d KiB", maxFile>>10)

// read takes a regular file whole. It does not hang on a FIFO and does not take
// more memory than maxFile. The error says no path: its user has one.
func (t tree) read(name string) ([]byte, error) {
	f, err := os.OpenFile(t.path(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, reason(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is " + kind(info.Mode()) + ", not a file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, reason(err)
	}
	if len(data) > maxFile {
		return data[:maxFile], errTooLarge
	}
	return data, nil
}

func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func kind(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeNamedPipe:
		return "a FIFO"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

func (t tree) exists(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

// small reads a one-line file such as /etc/hostname; "" when it cannot be read.
func (t tree) small(name string) string {
	f, err := os.OpenFile(t.path(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, 4096))
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(line)
}

// interfaces names the files of Dir in natural order: ib2 before ib10.
func (t tree) interfaces() (names []string, errs Errors) {
	entries, err := os.ReadDir(t.path(Dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Errors{{File: Dir, Msg: "cannot be read: " + reason(err).Error(), Hint: readHint(err)}}
	}
	for _, e := range entries {
		name, found := strings.CutSuffix(e.Name(), suffix)
		if !found || strings.HasPrefix(e.Name(), ".") && name != "" {
			continue
		}
		if f := checkName(name); f != nil {
			errs = append(errs, &Error{File: Dir + "/" + clip(e.Name()), Msg: f.msg, Hint: f.hint})
			continue
		}
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	return names, errs
}

func readHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "try as root"
	case errors.Is(err, unix.ENOTDIR):
		return "make it a directory with a file <interface>.conf for each interface"
	}
	return ""
}

// checkName refuses what the kernel does not take as an interface's name
// (dev_valid_name in net/core/dev.c) or takes for a pattern, and what sysctl
// and shells would stumble over.
func checkName(name string) *fault {
	const hint = "name the file <interface>.conf, such as ib0.conf"
	switch {
	case name == "":
		return bad(hint, "no interface name before .conf")
	case len(name) > unix.IFNAMSIZ-1:
		return bad(hint, "%s: the interface name has %d bytes, the kernel takes at most 15", quote(name), len(name))
	case name == "." || name == ".." || name == "all" || name == "default":
		return bad(hint, "%s cannot be an interface", quote(name))
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/:%", r) }):
		return bad(hint, "%s: an interface name has no blanks, no / : %% and only ASCII", quote(name))
	}
	return nil
}

func validName(name string) bool { return checkName(name) == nil }

// compareNames orders by text and, where both have one, by number.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		an, bn := digits(a), digits(b)
		if an > 0 && bn > 0 {
			x, y := strings.TrimLeft(a[:an], "0"), strings.TrimLeft(b[:bn], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(an, bn)); c != 0 {
				return c
			}
			a, b = a[an:], b[bn:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}

package image

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"
)

// File is one file of a guest: Data or, when From is set, the contents of that
// file of the machine. With Link it is a symbolic link and nothing else counts.
// A zero Mode means 0644.
type File struct {
	Data []byte
	From string
	Link string
	Mode fs.FileMode
}

// Files is a file system, or a part to be laid over one, by absolute path.
// Directories come by themselves (0755); an empty one has Mode fs.ModeDir.
type Files map[string]File

// Text is a File with the given contents.
func Text(s string) File { return File{Data: []byte(s)} }

// Add puts f at name, resolving the links that merge /bin, /sbin and /lib into
// /usr: the kernel's unpacker would replace the link by a directory.
func (t Files) Add(name string, f File) {
	name = path.Clean("/" + name)
	for _, d := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(name, d) {
			name = "/usr" + name
		}
	}
	t[name] = f
}

// skeleton returns what every guest has.
func skeleton() Files {
	t := Files{}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		t["/"+d] = File{Link: "usr/" + d}
		t["/usr/"+d] = File{Mode: fs.ModeDir}
	}
	for _, d := range []string{"dev", "proc", "sys", "run", "root", "mnt", "var/lib", "var/log", "etc/modprobe.d"} {
		t["/"+d] = File{Mode: fs.ModeDir}
	}
	t["/tmp"] = File{Mode: fs.ModeDir | 0o1777}
	t["/var/run"] = File{Link: "/run"}
	t["/var/tmp"] = File{Mode: fs.ModeDir | 0o1777}
	return t
}

// digest names the tree's contents: sources are taken by path, size and time.
func (t Files) digest() (string, error) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		f := t[name]
		fmt.Fprintf(h, "%s\x00%o\x00%s\x00%s\x00%s\n", name, f.Mode, f.Link, f.From, f.Data)
		if f.From != "" {
			fi, err := os.Stat(f.From)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%d %d\n", fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:10]), nil
}

// WriteCPIO packs the tree as an uncompressed newc archive: under TCG the
// guest's decompression costs more than loading the larger file.
func (t Files) WriteCPIO(w io.Writer) error {
	t = maps.Clone(t)
	for name := range t {
		for d := path.Dir(name); d != "/"; d = path.Dir(d) {
			if _, ok := t[d]; !ok {
				t[d] = File{Mode: fs.ModeDir}
			}
		}
	}
	bw := bufio.NewWriterSize(w, 1<<20)
	rw := cpio.Newc.Writer(bw)
	// Sorted, so that a directory comes before what is in it.
	for _, name := range slices.Sorted(maps.Keys(t)) {
		r, err := t[name].record(name)
		if err == nil {
			err = rw.WriteRecord(r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := cpio.WriteTrailer(rw); err != nil {
		return err
	}
	return bw.Flush()
}

func (f File) record(name string) (cpio.Record, error) {
	name = strings.TrimPrefix(name, "/")
	perm := uint64(f.Mode.Perm())
	if f.Mode&fs.ModeSticky != 0 || f.Mode&0o1000 != 0 {
		perm |= 0o1000
	}
	switch {
	case f.Link != "":
		return cpio.Symlink(name, f.Link), nil
	case f.Mode.IsDir():
		return cpio.Directory(name, cmp.Or(perm, 0o755)), nil
	}
	data := f.Data
	if f.From != "" {
		var err error
		if data, err = os.ReadFile(f.From); err != nil {
			return cpio.Record{}, err
		}
	}
	return cpio.StaticFile(name, string(data), cmp.Or(perm, 0o644)), nil
}

// addTree adds everything below dir (a directory of the machine) at the same
// place in the guest, except what skip refuses (by path relative to dir).
func (t Files) addTree(dir string, skip func(rel string) bool) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p) // p is below dir
		if rel == "." {
			return nil
		}
		if skip(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return t.addFrom("/"+rel, p)
	})
}

// addFrom adds one file, link or directory of the machine with its mode.
func (t Files) addFrom(name, src string) error {
	fi, err := os.Lstat(src)
	if err != nil {
		return err
	}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(src)
		if err != nil {
			return err
		}
		t.Add(name, File{Link: link})
	case fi.IsDir():
		t.Add(name, File{Mode: fs.ModeDir | fi.Mode().Perm()})
	case fi.Mode().IsRegular():
		t.Add(name, File{From: src, Mode: fi.Mode().Perm()})
	}
	return nil
}

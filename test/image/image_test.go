package image

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

func TestPickMirror(t *testing.T) {
	tests := []struct{ name, targets, want string }{
		{"release", "bookworm main http://m.example/debian/\n", "http://m.example/debian"},
		{"security and updates are no release", "bookworm-security main http://s.example/debian-security\nbookworm-updates main http://u.example/debian\ntrixie main http://m.example/debian\n", "http://m.example/debian"},
		{"by suite", "oldstable main http://m.example/debian", "http://m.example/debian"},
		{"other components and vendors", "bookworm contrib http://c.example/debian\nnoble main http://n.example/ubuntu\nnodistro main http://x.example\n", ""},
		{"mirror list", "trixie main mirror+file:/etc/apt/mirrors/debian.list\n", "mirror+file:/etc/apt/mirrors/debian.list"},
		{"nothing", "", ""},
		{"malformed", "bookworm main\nmain\n\n", ""},
	}
	for _, tt := range tests {
		if got := pickMirror(tt.targets); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestMirrorVariable(t *testing.T) {
	t.Setenv("IBUP_MIRROR", "http://m.example/debian/")
	if m, err := findMirror(t.Context()); m != "http://m.example/debian" || err != nil {
		t.Errorf("%q, %v", m, err)
	}
	t.Setenv("IBUP_MIRROR", "m.example")
	if m, err := findMirror(t.Context()); err == nil {
		t.Errorf("%q is taken for an address", m)
	}
}

func TestOpenHonoursVariable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("IBUP_CACHE", dir)
	c, err := Open()
	if err != nil || c.Dir != dir {
		t.Fatalf("%v, %v", c, err)
	}
	if _, err := c.Kernel("6.1"); !strings.Contains(err.Error(), "make bench-setup") || !strings.Contains(err.Error(), "6.1") {
		t.Errorf("error %q names neither what is missing nor the remedy", err)
	}
}

// A set's fingerprint follows what it is made of.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	for _, s := range sets() {
		f := s.fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s have the same fingerprint", s.Name, other)
		}
		seen[f] = s.Name
		s.Packages = append([]string{"one-more"}, s.Packages...)
		if s.fingerprint() == f {
			t.Errorf("%s: one more package changes nothing", s.Name)
		}
	}
}

func TestAddFollowsMergedUsr(t *testing.T) {
	for name, want := range map[string]string{
		"/bin/x": "/usr/bin/x", "sbin/x": "/usr/sbin/x", "/lib/modules/m": "/usr/lib/modules/m",
		"/lib64/l": "/usr/lib64/l", "/usr/bin/x": "/usr/bin/x", "/etc//x/../y": "/etc/y", "/library/x": "/library/x",
	} {
		f := Files{}
		f.Add(name, Text("x"))
		if _, ok := f[want]; !ok {
			t.Errorf("%s is placed at %v, want %s", name, f, want)
		}
	}
}

func TestWriteCPIO(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte("from outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := skeleton()
	files.Add("/a/b/c", Text("deep"))
	files.Add("/a/script", File{Data: []byte("#!/bin/sh\n"), Mode: 0o755})
	files.Add("/a/link", File{Link: "b/c"})
	files.Add("/a/copy", File{From: src})
	var out bytes.Buffer
	if err := files.WriteCPIO(&out); err != nil {
		t.Fatal(err)
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(out.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]cpio.Record{}
	order := map[string]int{}
	for i, r := range records {
		at[r.Name], order[r.Name] = r, i
	}
	if order["a"] > order["a/b"] || order["a/b"] > order["a/b/c"] {
		t.Error("a directory comes behind what is in it")
	}
	for name, want := range map[string]uint64{
		"a": cpio.S_IFDIR | 0o755, "a/b/c": cpio.S_IFREG | 0o644, "a/script": cpio.S_IFREG | 0o755,
		"a/copy": cpio.S_IFREG | 0o644, "tmp": cpio.S_IFDIR | 0o1777,
	} {
		if got := at[name].Mode; got != want {
			t.Errorf("%s has mode %#o, want %#o", name, got, want)
		}
	}
	if at["a/link"].Mode&cpio.S_IFMT != cpio.S_IFLNK {
		t.Errorf("a/link has mode %#o", at["a/link"].Mode)
	}
	data := make([]byte, 12)
	if _, err := at["a/copy"].ReadAt(data, 0); err != nil || string(data) != "from outside" {
		t.Errorf("a/copy holds %q, %v", data, err)
	}
}

func TestDigestFollowsContents(t *testing.T) {
	digest := func(f Files) string {
		t.Helper()
		d, err := f.digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one := Files{"/x": Text("1")}
	for name, other := range map[string]Files{
		"contents": {"/x": Text("2")}, "name": {"/y": Text("1")}, "link": {"/x": {Link: "1"}},
		"mode": {"/x": {Data: []byte("1"), Mode: 0o755}}, "one more": {"/x": Text("1"), "/z": {Mode: fs.ModeDir}},
	} {
		if digest(one) == digest(other) {
			t.Errorf("another %s, the same digest", name)
		}
	}
	if digest(one) != digest(Files{"/x": Text("1")}) {
		t.Error("the same files, another digest")
	}
}

// bzImage makes a file with the fields of the boot protocol that count.
func bzImage(payload []byte) []byte {
	b := make([]byte, 5*512)
	b[0x1f1] = 4
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(b[0x248:], 0)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(payload)))
	return append(b, payload...)
}

func TestBzPayload(t *testing.T) {
	good := bzImage([]byte("compressed-SIZE"))
	if p, err := bzPayload(good); err != nil || string(p) != "compressed-" {
		t.Errorf("%q, %v", p, err)
	}
	old := bytes.Clone(good)
	old[0x1f1] = 0 // stands for 4
	if p, err := bzPayload(old); err != nil || string(p) != "compressed-" {
		t.Errorf("%q, %v", p, err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "short": good[:0x200], "no kernel": make([]byte, 4096), "cut": good[:len(good)-1],
	} {
		if _, err := bzPayload(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestModuleDependsRefusesOther(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"text": []byte("x"), "a program": self} {
		if deps, err := moduleDepends(data); err == nil {
			t.Errorf("%s: %v", name, deps)
		}
	}
}

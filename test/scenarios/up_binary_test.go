package scenarios

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ibup/test/image"
)

// What is shipped is small, static, and the same bytes whoever builds it where.
func TestUpBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything twice, and -short was given")
	}
	parallel(t)
	const limit = 4_500_000
	root, err := image.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	build := func(from, cache string) []byte {
		t.Helper()
		cmd := exec.Command("make", "-s", "build", "VERSION=v1", "COMMIT=abc")
		cmd.Dir = from
		cmd.Env = append(os.Environ(), "GOCACHE="+cache)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make build: %v\n%s", err, out)
		}
		b, err := os.ReadFile(filepath.Join(from, "bin/ibup"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	// Two copies at different places, neither with compiled packages at hand.
	first := build(sources(t, root), t.TempDir())
	second := build(sources(t, root), t.TempDir())
	if !bytes.Equal(first, second) {
		t.Error("two builds differ")
	}
	t.Logf("%d bytes", len(first))
	if len(first) > limit {
		t.Errorf("%d bytes, at most %d are allowed", len(first), limit)
	}
}

// sources copies what the program is built from into a new directory.
func sources(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", "Makefile"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"cmd", "internal", "udev"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

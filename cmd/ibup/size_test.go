package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// maxSize is what the program may have on a node's disk and, packed, in its
// initramfs.
const maxSize = 4_500_000

func TestSize(t *testing.T) {
	if testing.Short() && os.Getenv("IBUP_CI") == "" {
		t.Skip("builds the program")
	}
	out := filepath.Join(t.TempDir(), "ibup")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOAMD64=v1", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxSize {
		t.Errorf("ibup has %d bytes; at most %d are wanted", info.Size(), maxSize)
	}
}

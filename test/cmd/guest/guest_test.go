package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibup/test/vm/wire"
)

func TestParseKmsg(t *testing.T) {
	m, ok := parseKmsg("30,1234,5061234,-;mlx5_core 0000:01:00.0: firmware version: 16.35.2000\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n")
	want := wire.Kmsg{Uptime: 5.061234, Level: 6, Text: "mlx5_core 0000:01:00.0: firmware version: 16.35.2000"}
	if !ok || m != want {
		t.Errorf("%+v, %t; want %+v", m, ok, want)
	}
	for _, bad := range []string{"", "6,1", "6,1,2,-", "x,1,2,-;t", "6,1,y,-;t"} {
		if m, ok := parseKmsg(bad); ok {
			t.Errorf("%q is read as %+v", bad, m)
		}
	}
}

func TestRecordUevent(t *testing.T) {
	w := &watcher{changed: make(chan struct{})}
	w.record([]byte("add@/devices/pci0000:00/0000:00:01.0\x00ACTION=add\x00SUBSYSTEM=pci\x00X=a=b\x00"))
	w.record([]byte("libudev\x00not the kernel's form"))
	got := w.seen()
	if len(got) != 1 || got[0].Action != "add" || got[0].Devpath != "/devices/pci0000:00/0000:00:01.0" || got[0].Env["X"] != "a=b" {
		t.Errorf("%+v", got)
	}
}

// await returns at the change, not at the next tick.
func TestAwait(t *testing.T) {
	w := &watcher{changed: make(chan struct{})}
	path := filepath.Join(t.TempDir(), "carrier")
	done := make(chan error, 1)
	go func() {
		_, err := w.await(wire.Request{Path: path, Match: "^1", Timeout: 30})
		done <- err
	}()
	if err := os.WriteFile(path, []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still waiting")
	}
	if _, err := w.await(wire.Request{Path: path, Gone: true, Timeout: 0.05}); err == nil {
		t.Error("a path that is there counts as gone")
	}
	if _, err := w.await(wire.Request{Path: path, Match: "(", Timeout: 1}); err == nil {
		t.Error("a malformed expression is accepted")
	}
	_, err := w.await(wire.Request{Args: []string{"sh", "-c", "echo not yet; false"}, Timeout: 0.05})
	if err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("error %v does not tell what was seen last", err)
	}
}

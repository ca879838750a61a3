package host

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestWatchCoalescesUevents(t *testing.T) {
	w, err := Watch(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for range 5 {
		synthetic(t)
	}
	wait(t, w)
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w, err := Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	ended := make(chan struct{})
	go func() { w.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("still running after its context has ended")
	}
	w.Close()
}

// synthetic makes the kernel send a uevent for the loopback interface.
func synthetic(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/sys/class/net/lo/uevent", []byte("change"), 0); err != nil {
		needRoot(t, err)
	}
}

func wait(t *testing.T, w *Watcher) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(10 * time.Second):
		t.Fatal("no signal after a uevent")
	}
}

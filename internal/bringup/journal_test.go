package bringup

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestJournalRoundTrip(t *testing.T) {
	store := Store{Dir: t.TempDir(), BootID: "boot"}
	if _, err := store.Read("ib0"); !errors.Is(err, ErrNoJournal) {
		t.Errorf("Read of nothing: %v", err)
	}
	j := &Journal{Version: JournalVersion, Interface: "ib0", BootID: "boot", Verdict: IsUp}
	n := j.begin(Step{Kind: AddAddress, Link: "ib0", Index: 3, Prefix: prefix}, time.Second)
	j.end(n, errors.New("refused"), 2*time.Second)
	j.Facts.Place = Place{bdf0, 1}
	j.Facts.Withheld = []Route{{Dest: prefix.Masked(), Src: prefix.Addr(), Connected: true}}
	if err := store.Write(j); err != nil {
		t.Fatal(err)
	}
	got, err := store.Read("ib0")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, j) {
		t.Errorf("read back %+v; wrote %+v", got, j)
	}
	if held := store.Held(); !reflect.DeepEqual(held, map[string]Place{"ib0": {bdf0, 1}}) {
		t.Errorf("Held = %v", held)
	}
	if files, _ := os.ReadDir(store.Dir); len(files) != 1 {
		t.Errorf("left over: %v", files)
	}
	if _, err := (Store{Dir: store.Dir, BootID: "another"}).Read("ib0"); !errors.Is(err, ErrNoJournal) {
		t.Errorf("a journal of another boot: %v", err)
	}
	for _, bad := range []string{"", "{", `{"version": 99}`} {
		os.WriteFile(filepath.Join(store.Dir, "ib0.json"), []byte(bad), 0o644)
		if _, err := store.Read("ib0"); err == nil || errors.Is(err, ErrNoJournal) {
			t.Errorf("journal %q: %v", bad, err)
		}
	}
	if err := store.Remove("ib0"); err != nil {
		t.Error(err)
	}
	if err := store.Remove("ib0"); err != nil {
		t.Error(err)
	}
}

func TestJournalStaysSmall(t *testing.T) {
	j := &Journal{}
	for i := range 1000 {
		n := j.begin(Step{Kind: Verify}, time.Duration(i))
		if n != i+1 {
			t.Fatalf("step %d has the number %d", i+1, n)
		}
		j.note(Change{Code: NoSM})
		j.note(Change{Code: NoSM})
		j.note(Change{Code: NoCable})
	}
	if len(j.Steps) != maxEntries || len(j.History) != maxHistory || j.Steps[maxEntries-1].N != 1000 {
		t.Errorf("%d steps, %d changes", len(j.Steps), len(j.History))
	}
}

func TestLock(t *testing.T) {
	store := Store{Dir: t.TempDir(), BootID: "boot"}
	release, j, err := store.Acquire(t.Context(), "ib0", true)
	if err != nil || release == nil || j != nil {
		t.Fatalf("Acquire = %v, %v", j, err)
	}
	if _, ok, _ := store.Lock("ib0"); ok {
		t.Fatal("locked twice")
	}
	if other, ok, _ := store.Lock("ib1"); !ok {
		t.Fatal("the lock of another interface is not free")
	} else {
		other()
	}
	// What an earlier run said is not the answer of the one that is at it.
	write := func(v Verdict, pid int, watches bool) {
		t.Helper()
		err := store.Write(&Journal{Version: JournalVersion, Interface: "ib0", BootID: "boot", Verdict: v, Runs: []RunInfo{{PID: pid, Watches: watches}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 1 << 30
	for _, x := range []struct {
		name           string
		verdict        Verdict
		pid            int
		watches, watch bool
		answered       bool
	}{
		{"no verdict yet", Pending, os.Getpid(), true, false, false},
		{"of a process that is dead", IsUp, nobody, true, false, false},
		{"up", IsUp, os.Getpid(), false, true, true},
		{"fallback, watched", Fallback, os.Getpid(), true, true, true},
		{"fallback, to be watched by who asks", Fallback, os.Getpid(), false, true, false},
		{"fallback, nobody wants to watch", Fallback, os.Getpid(), false, false, true},
	} {
		write(x.verdict, x.pid, x.watches)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		release, j, err := store.Acquire(ctx, "ib0", x.watch)
		cancel()
		if answered := j != nil; answered != x.answered || release != nil || !answered && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: answered %v, %v", x.name, answered, err)
		}
	}
	// The verdict wakes who waits.
	write(Pending, os.Getpid(), true)
	got := make(chan *Journal)
	go func() {
		_, j, _ := store.Acquire(t.Context(), "ib0", false)
		got <- j
	}()
	write(Failed, os.Getpid(), true)
	if j := <-got; j == nil || j.Verdict != Failed {
		t.Errorf("the waiting one got %+v", j)
	}
	// So does the end of the other one.
	release()
	if release, _, err := store.Acquire(t.Context(), "ib0", true); err != nil || release == nil {
		t.Errorf("after the release: %v", err)
	} else {
		release()
	}
}

func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for _, socket := range []string{path, "@ibup-test-" + filepath.Base(filepath.Dir(path))} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		n := NewNotifier(socket, []string{"ib0", "ib1"})
		n.Set("ib0", "waiting: no\ncable", false)
		n.Set("ib0", "waiting: no\ncable", false) // no news
		n.Set("ib0", "up", true)
		n.Set("ib1", "on the fallback", true)
		n.Set("ib1", "up", true)
		want := []string{
			"STATUS=ib0: waiting: no cable",
			"STATUS=ib0: up",
			"STATUS=ib0: up; ib1: on the fallback\nREADY=1",
			"STATUS=ib0: up; ib1: up",
		}
		buf := make([]byte, 4096)
		for _, w := range want {
			l.SetReadDeadline(time.Now().Add(5 * time.Second))
			k, err := l.Read(buf)
			if err != nil || string(buf[:k]) != w {
				t.Errorf("%s: got %q, %v; want %q", socket, buf[:k], err, w)
			}
		}
		l.Close()
		n.Set("ib1", "the manager has gone", false)
	}
	NewNotifier("", []string{"ib0"}).Set("ib0", "nobody listens", true)
}

// Every reason has a page, and every page says something.
func TestPages(t *testing.T) {
	for code, p := range Pages() {
		if !strings.HasPrefix(string(code), "IB-") || p.Summary == "" || p.Remedy == "" {
			t.Errorf("%s: %+v", code, p)
		}
		if len(p.Summary) > 160 {
			t.Errorf("%s: the summary has %d characters", code, len(p.Summary))
		}
	}
}

package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A service with nothing to do says so: systemd fails a Type=notify service that
// ends without READY=1.
func TestReadyWithNothingToDo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := &app{env: func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] }}
	a.ready()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil || !strings.Contains(string(buf[:n])+"\n", "READY=1\n") {
		t.Errorf("sent %q, %v", buf[:n], err)
	}
}

package bringup

import (
	"net"
	"slices"
	"strings"
	"sync"
)

// Notifier tells the service manager (sd_notify(3)) how the interfaces of this
// process fare: a status text, and that the service is ready when all have their
// verdict.
type Notifier struct {
	mu     sync.Mutex
	send   func(string)
	names  []string
	status map[string]string
	open   map[string]bool // no verdict yet
	ready  bool
	last   string
}

// NewNotifier speaks to the socket that NOTIFY_SOCKET names; to nobody when it is
// empty. A name that begins with '@' is in the abstract namespace.
func NewNotifier(socket string, ifaces []string) *Notifier {
	n := &Notifier{send: func(string) {}, names: slices.Clone(ifaces), status: map[string]string{}, open: map[string]bool{}}
	for _, i := range ifaces {
		n.open[i] = true
	}
	if socket == "" {
		return n
	}
	n.send = func(text string) {
		// net takes '@' for the abstract namespace too. The manager may be gone.
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte(text))
	}
	return n
}

// Set says how an interface fares. settled: it has a verdict.
func (n *Notifier) Set(iface, text string, settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status[iface] = text
	if settled {
		delete(n.open, iface)
	}
	var all []string
	for _, name := range n.names {
		if t := n.status[name]; t != "" {
			all = append(all, name+": "+t)
		}
	}
	msg := "STATUS=" + strings.ReplaceAll(strings.Join(all, "; "), "\n", " ")
	if len(n.open) == 0 && !n.ready {
		n.ready = true
		msg += "\nREADY=1"
	}
	if msg != n.last {
		n.last = msg
		n.send(msg)
	}
}

// Package lab puts the bench together: one fabric, emulated HCAs with cables
// to it, hosts without a guest, and virtual machines whose HCAs these are.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"ibup/test/control"
	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vfiouser"
	"ibup/test/vm"
)

// Lab is one bench. Its methods may be called from any goroutine.
type Lab struct {
	Fabric  *fabric.Fabric
	Control *control.Server

	dir string

	mu    sync.Mutex
	cards []*Card
	hosts int
	vms   []*vm.VM
}

// New makes a bench whose fabric has a subnet manager and nothing else.
func New() (*Lab, error) {
	// Not below a test's own directory: a socket's path has 107 bytes.
	dir, err := os.MkdirTemp("", "ibup-lab-")
	if err != nil {
		return nil, err
	}
	f := fabric.New(fabric.Options{})
	return &Lab{Fabric: f, Control: control.New(f), dir: dir}, nil
}

// Card is an HCA in the lab, with a cable to the fabric and a socket to plug a
// virtual machine into.
type Card struct {
	*hca.HCA
	Port   *fabric.Port // nil for a function without a GUID
	Socket string

	mu   sync.Mutex
	stop context.CancelFunc
	done chan struct{}
	errs []error
}

// Card makes an HCA. Index, and with it the GUIDs, counts up by itself when
// cfg leaves it 0.
func (l *Lab) Card(cfg hca.Config) (*Card, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cfg.Index == 0 {
		cfg.Index = len(l.cards)
	}
	h, err := hca.New(cfg)
	if err != nil {
		return nil, err
	}
	cfg = h.Config()
	c := &Card{HCA: h, Socket: filepath.Join(l.dir, fmt.Sprintf("hca%d", len(l.cards)))}
	if !cfg.NoGUID {
		c.Port, err = l.Fabric.Attach(fabric.PortConfig{
			Name: cfg.Name, GUID: cfg.PortGUID, NodeGUID: cfg.NodeGUID, Link: cfg.Link,
		}, h)
		if err != nil {
			return nil, err
		}
		h.Connect(c.Port)
	}
	if err := c.Revive(); err != nil {
		return nil, err
	}
	l.Control.AddHCA(cfg.Name, h, c.Kill)
	l.cards = append(l.cards, c)
	return c, nil
}

// Revive serves the card again after a [Card.Kill]. A machine that lost it
// does not get it back: QEMU never reconnects.
func (c *Card) Revive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		return errors.New("lab: the card is alive")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop, c.done = stop, make(chan struct{})
	s := &vfiouser.Server{Device: c.HCA, Failed: c.failed}
	go func() {
		defer close(c.done)
		if err := s.Serve(ctx, l); err != nil {
			c.failed(err)
		}
	}()
	return nil
}

func (c *Card) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// Kill ends the emulator behind the card: to the machine it has fallen off
// the bus.
func (c *Card) Kill() error {
	c.mu.Lock()
	stop, done := c.stop, c.done
	c.stop = nil
	c.mu.Unlock()
	if stop == nil {
		return errors.New("the card is dead already")
	}
	stop()
	<-done
	return nil
}

// Problems lists what a healthy run leaves empty: what drivers sent and the
// interface does not allow, commands that the card does not know, and
// vfio-user connections that broke.
func (c *Card) Problems() []string {
	all := c.Violations()
	for name, n := range c.UnknownCommands() {
		all = append(all, fmt.Sprintf("%d unknown commands %s", n, name))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errs {
		all = append(all, err.Error())
	}
	return all
}

// Host puts an IPoIB host without a guest on the fabric, in partition pkey (0
// for the default one), and waits until it has joined.
func (l *Lab) Host(ctx context.Context, ip string, pkey uint16) (*fabric.Host, error) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	n := l.hosts
	l.hosts++
	l.mu.Unlock()
	h, err := l.Fabric.AddHost(fabric.HostConfig{
		Name: "host" + ip, GUID: 0x506b4b0300b10000 + fabric.GUID(n)<<8, IP: addr, PKey: pkey,
	})
	if err != nil {
		return nil, err
	}
	l.Control.AddHost(h)
	return h, h.WaitJoined(ctx)
}

// Boot starts a machine; see [vm.Start].
func (l *Lab) Boot(ctx context.Context, o vm.Options) (*vm.VM, error) {
	v, err := vm.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vms = append(l.vms, v)
	return v, nil
}

// Cards returns the cards in the order they were made.
func (l *Lab) Cards() []*Card {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*Card(nil), l.cards...)
}

// Close ends everything: machines, cards, fabric.
func (l *Lab) Close() {
	l.mu.Lock()
	vms, cards := l.vms, l.cards
	l.vms = nil
	l.mu.Unlock()
	for _, v := range vms {
		v.Close()
	}
	for _, c := range cards {
		_ = c.Kill() // dead already is fine
	}
	l.Control.Close()
	l.Fabric.Close()
	os.RemoveAll(l.dir)
}

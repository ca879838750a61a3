package bringup

import (
	"context"
	"sync"
	"time"

	"ibup/internal/host"
)

// Observer looks at the machine for all interfaces of a process: one reader, one
// look at a time, as often as something changes or somebody asks.
type Observer struct {
	read    func(context.Context) (host.Snapshot, error)
	changes <-chan struct{}
	now     func() time.Duration
	wake    chan struct{}

	mu      sync.Mutex
	last    View
	err     error
	begun   int           // looks begun so far
	reading time.Duration // when the look under way began; 0: none is
	subs    []chan struct{}
}

// View is a look at the machine.
type View struct {
	host.Snapshot
	N int // its number, from 1; 0: there was none
}

// calm is the least time between two looks that only events ask for: loading a
// driver makes hundreds.
const calm = 20 * time.Millisecond

// NewObserver reads with read, now and on changes. now is the time since boot.
func NewObserver(read func(context.Context) (host.Snapshot, error), changes <-chan struct{}, now func() time.Duration) *Observer {
	return &Observer{read: read, changes: changes, now: now, wake: make(chan struct{}, 1)}
}

// Run looks until ctx ends.
func (o *Observer) Run(ctx context.Context) {
	for {
		o.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-o.changes:
			pause := time.NewTimer(calm)
			select {
			case <-ctx.Done():
			case <-o.wake:
			case <-pause.C:
			}
			pause.Stop()
		}
	}
}

func (o *Observer) look(ctx context.Context) {
	begin := o.now()
	o.mu.Lock()
	o.reading = max(begin, 1)
	o.begun++
	n := o.begun
	o.mu.Unlock()

	s, err := o.read(ctx)

	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading, o.err = 0, err
	if err == nil {
		o.last = View{s, n}
	}
	for _, c := range o.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Refresh asks for a look that begins from now on, and returns its number.
func (o *Observer) Refresh() int {
	o.mu.Lock()
	n := o.begun + 1
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return n
}

// Subscribe returns a channel that has a value after every look.
func (o *Observer) Subscribe() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := make(chan struct{}, 1)
	if o.last.N != 0 || o.err != nil {
		c <- struct{}{}
	}
	o.subs = append(o.subs, c)
	return c
}

// Last is the last look, how long the one under way takes already, and the error
// of the last if it failed.
func (o *Observer) Last() (v View, since time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reading != 0 {
		since = o.now() - o.reading
	}
	return o.last, since, o.err
}

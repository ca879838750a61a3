package vfiouser

import (
	"testing"

	"ibup/test/vfiouser/vfiousertest"
)

// expect takes what each vector has received so far. All that fires here does
// so before the call that causes it returns.
func expect(t *testing.T, what string, irqs []*vfiousertest.Interrupt, want ...uint64) {
	t.Helper()
	for i, irq := range irqs {
		if n, err := irq.Count(); err != nil || n != want[i] {
			t.Errorf("%s: vector %d has fired %d times, %v; want %d", what, i, n, err, want[i])
		}
	}
}

func TestVectors(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	bus.Interrupt(0) // nobody has set it up
	irqs, err := c.EnableVectors(0, 4)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "nothing", irqs, 0, 0, 0, 0)
	for _, v := range []int{1, 3, 3, 7, 8, -1, 1 << 40} {
		bus.Interrupt(v)
	}
	expect(t, "by the device", irqs, 0, 1, 0, 2)
	if err := c.Trigger(1, true, false, true); err != nil {
		t.Error(err)
	}
	expect(t, "by the client", irqs, 0, 1, 0, 1)

	if err := c.MaskVector(1, true); err != nil {
		t.Error(err)
	}
	bus.Interrupt(1)
	bus.Interrupt(1)
	bus.Interrupt(2)
	expect(t, "masked", irqs, 0, 0, 1, 0)
	if err := c.MaskVector(1, false); err != nil {
		t.Error(err)
	}
	expect(t, "unmasked", irqs, 0, 1, 0, 0)
	if err := c.MaskVector(1, false); err != nil {
		t.Error(err)
	}
	expect(t, "unmasked again", irqs, 0, 0, 0, 0)

	// Another descriptor takes the place of the first.
	second, err := c.EnableVectors(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	bus.Interrupt(1)
	expect(t, "replaced", irqs, 0, 0, 0, 0)
	expect(t, "replacement", second, 1)

	if err := c.DisableVectors(2, 2); err != nil {
		t.Error(err)
	}
	for v := range 4 {
		bus.Interrupt(v)
	}
	expect(t, "two disabled", irqs, 1, 0, 0, 0)
	expect(t, "the other", second, 1)
	if err := c.DisableVectors(0, 0); err != nil {
		t.Error(err)
	}
	for v := range 4 {
		bus.Interrupt(v)
	}
	expect(t, "all disabled", irqs, 0, 0, 0, 0)
	expect(t, "all disabled", second, 0)
}

// TestFullCounter has the device interrupt a guest that does not listen.
func TestFullCounter(t *testing.T) {
	b := serve(t)
	c, bus := b.connect(t)
	irqs, err := c.EnableVectors(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := irqs[0].Fill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		bus.Interrupt(0)
		close(done)
	}()
	await(t, done, "Interrupt to return")
}

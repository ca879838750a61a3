package hca

import "testing"

// The driver's own sequence: take the gateway, lock a semaphore, see it locked,
// give both back (pci_vsc.c).
func TestGatewaySemaphores(t *testing.T) {
	g := &gateway{}
	owner := g.read(gwCounter)
	g.write(gwSemaphore, owner)
	if got := g.read(gwSemaphore); got != owner {
		t.Fatalf("gateway belongs to %d, want %d", got, owner)
	}
	g.write(gwSemaphore, owner+1)
	if got := g.read(gwSemaphore); got != owner {
		t.Errorf("a second one took it: %d", got)
	}
	g.write(gwControl, 2)
	if g.read(gwControl)>>29 != 0 {
		t.Error("there is an address space 2")
	}
	g.write(gwControl, semaphores)
	if g.read(gwControl)>>29 == 0 {
		t.Fatal("there are no semaphores")
	}
	const softwareReset = 0x20
	put := func(v uint32) {
		g.write(gwData, v)
		g.write(gwAddress, softwareReset|gwFlag)
		if g.read(gwAddress)&gwFlag != 0 {
			t.Error("the write does not end")
		}
	}
	get := func() uint32 {
		g.write(gwAddress, softwareReset)
		if g.read(gwAddress)&gwFlag == 0 {
			t.Error("the read does not end")
		}
		return g.read(gwData)
	}
	put(7)
	put(8)
	if got := get(); got != 7 {
		t.Errorf("semaphore %d, want 7", got)
	}
	put(0)
	if got := get(); got != 0 {
		t.Errorf("released semaphore %d", got)
	}
	g.write(gwSemaphore, 0)
	if got := g.read(gwSemaphore); got != 0 {
		t.Errorf("released gateway %d", got)
	}
}

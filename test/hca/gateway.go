package hca

// The gateway is the card's vendor specific PCI capability: through it a driver
// reaches address spaces of the chip without the command interface (pci_vsc.c).
const (
	gatewayLength = 0x18

	gwControl   = 0x04 // 15:0 space; 31:29 status, not zero when there is such a space
	gwCounter   = 0x08 // a new number with every read
	gwSemaphore = 0x0c // who writes the counter's value while it is 0 has the gateway
	gwAddress   = 0x10 // 31 flag: set to write, and then cleared; 29:0 address
	gwData      = 0x14

	gwFlag     = 1 << 31
	gwSpaceOK  = 1 << 29
	semaphores = 0x0a // the one space there is: chip-wide semaphores
)

type gateway struct {
	space, counter, owner uint32
	address, data         uint32
	locks                 map[uint32]uint32 // semaphores by address
}

func (g *gateway) read(off int) uint32 {
	switch off {
	case gwControl:
		if g.space == semaphores {
			return g.space | gwSpaceOK
		}
		return g.space
	case gwCounter:
		g.counter++
		return g.counter
	case gwSemaphore:
		return g.owner
	case gwAddress:
		return g.address
	case gwData:
		return g.data
	}
	return 0
}

func (g *gateway) write(off int, v uint32) {
	switch off {
	case gwControl:
		g.space = v & 0xffff
	case gwSemaphore:
		if v == 0 || g.owner == 0 {
			g.owner = v
		}
	case gwAddress:
		g.transfer(v)
	case gwData:
		g.data = v
	}
}

// transfer writes or reads at an address, at once.
func (g *gateway) transfer(v uint32) {
	g.address = v ^ gwFlag // done
	at := v &^ gwFlag
	if g.space != semaphores {
		return
	}
	if v&gwFlag == 0 {
		g.data = g.locks[at]
		return
	}
	if g.locks == nil {
		g.locks = map[uint32]uint32{}
	}
	if g.data == 0 || g.locks[at] == 0 {
		g.locks[at] = g.data
	}
	if g.data == 0 {
		delete(g.locks, at)
	}
}

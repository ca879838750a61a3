package hca

import (
	"fmt"
	"sync"
	"time"

	"ibup/test/fabric"
	"ibup/test/pci"
	"ibup/test/vfiouser"
)

// FabricPort is what the adapter needs of its port on the fabric:
// [fabric.Port] without the levers of a test.
type FabricPort interface {
	Info() fabric.PortInfo
	// Send may block for as long as a switch holds a packet.
	Send(fabric.Packet)
	SetCapMask(uint32)
	// SetLink configures the link type, FirmwareStart makes it the port's.
	SetLink(fabric.LinkType) error
	FirmwareStart()
}

// HCA is one PCI function of a channel adapter with one port. It is a
// [vfiouser.Device] and a [fabric.Endpoint]; all methods may be called from
// any goroutine.
type HCA struct {
	cfg       Config
	start     time.Time
	registers map[uint16]register

	// mu guards everything below. It is never held while the fabric is given a
	// packet: Send may wait for the other end. It is held for the bus, whose
	// methods do not call back.
	mu     sync.Mutex
	conf   *pci.Config
	bus    vfiouser.Bus // nil while no client is connected
	port   FabricPort   // nil: no cable
	info   fabric.PortInfo
	fw     *firmware
	levers levers
	log    commandLog
	outbox []fabric.Packet // to be sent when mu is free
	count  portCounters
	desc   [nodeDescSize]byte // node description, 0-padded
	driver string             // what SET_DRIVER_VERSION said
}

// firmware is all that a reset of the function forgets.
type firmware struct {
	link        fabric.LinkType // the port type, read when the firmware starts
	cmdqAddr    uint64
	nicState    uint8 // nic_interface of the initialization segment
	enabled     bool  // between ENABLE_HCA and DISABLE_HCA
	initialized bool  // between INIT_HCA and TEARDOWN_HCA
	issi        uint16
	caps        capabilities
	pages       pageStore

	uars     table[*uar]
	eqs      table[*eventQueue]
	cqs      table[*completionQueue]
	pds      table[*plain]
	xrcds    table[*plain]
	domains  table[*plain]
	counters table[*qCounter]
	mkeys    table[*memoryKey]
	srqs     table[*sharedQueue] // XRC SRQs, SRQs and RMPs share a number space
	qps      table[*queuePair]
	groups   map[fabric.GID][]*queuePair
	dbHalf   map[uint64]uint32 // first halves of doorbells written in two
	flusher  *time.Timer       // looks after queues in error, see flushErrors
}

// New makes an adapter. It has no cable until [HCA.Connect].
func New(cfg Config) (*HCA, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	v, err := parseVersion(cfg.Firmware)
	if err != nil {
		return nil, err
	}
	for name := range cfg.Caps {
		if !knownCap(name) {
			return nil, fmt.Errorf("hca: %s: no capability is named %q", cfg.Name, name)
		}
	}
	h := &HCA{cfg: cfg, start: time.Now(), registers: registerTable()}
	h.levers.version = v
	copy(h.desc[:], cfg.NodeDescription)
	h.unplugged()
	h.info.Link = cfg.Link
	if h.conf, err = newConfig(cfg, cfg.Link); err != nil {
		return nil, fmt.Errorf("hca: %s: %w", cfg.Name, err)
	}
	h.fw = h.newFirmware()
	return h, nil
}

// unplugged makes the port's state that of one without a cable.
func (h *HCA) unplugged() {
	h.info = fabric.PortInfo{
		GUID: h.cfg.PortGUID, Prefix: fabric.DefaultPrefix, Link: h.info.Link,
		State: fabric.StateDown, Phys: fabric.PhysPolling,
		PKeys: []uint16{fabric.DefaultPKey}, MTU: maxMTU,
	}
}

func (h *HCA) newFirmware() *firmware {
	link := h.info.Link
	return &firmware{
		link:     link,
		caps:     h.newCapabilities(link),
		pages:    newPageStore(),
		uars:     newTable[*uar]("UAR", firstUAR, uint32(h.cfg.BARSize/uarPageSize)-1),
		eqs:      newTable[*eventQueue]("EQ", 1, 0xff),
		cqs:      newTable[*completionQueue]("CQ", 0x80, 0xffffff),
		pds:      newTable[*plain]("PD", 1, 0xffffff),
		xrcds:    newTable[*plain]("XRCD", 1, 0xffffff),
		domains:  newTable[*plain]("transport domain", 1, 0xffffff),
		counters: newTable[*qCounter]("Q counter", 1, 0xff),
		mkeys:    newTable[*memoryKey]("MKEY", 0x400, 0xfffffe),
		srqs:     newTable[*sharedQueue]("SRQ", 1, 0xffffff),
		qps:      newTable[*queuePair]("QP", 0x48, 0xfffffe),
		groups:   map[fabric.GID][]*queuePair{},
		dbHalf:   map[uint64]uint32{},
	}
}

// Config returns what the adapter was made of, with the defaults filled in.
func (h *HCA) Config() Config { return h.cfg }

// Connect plugs a cable in: port is what [fabric.Fabric.Attach] returned for
// this adapter; nil unplugs it.
func (h *HCA) Connect(port FabricPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.port = port
	if port == nil {
		h.unplugged()
	} else {
		port.SetCapMask(defaultCapMask)
		h.info = port.Info()
	}
	h.portEvents(fabric.ChangeState | fabric.ChangeLID | fabric.ChangePKeys)
}

// Regions implements [vfiouser.Device].
func (h *HCA) Regions() [vfiouser.NumRegions]vfiouser.Region {
	h.mu.Lock()
	defer h.mu.Unlock()
	var r [vfiouser.NumRegions]vfiouser.Region
	r[vfiouser.RegionBAR0] = vfiouser.Region{Size: h.cfg.BARSize, Readable: true, Writable: true}
	r[vfiouser.RegionConfig] = vfiouser.Region{Size: pci.Size, Readable: true, Writable: true}
	return r
}

// Vectors implements [vfiouser.Device].
func (h *HCA) Vectors() int { return h.cfg.Vectors }

// Attach implements [vfiouser.Device].
func (h *HCA) Attach(b vfiouser.Bus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bus = b
	h.reset()
}

// Detach implements [vfiouser.Device].
func (h *HCA) Detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bus = nil
	h.reset()
}

// Reset implements [vfiouser.Device]: a function-level or bus reset.
func (h *HCA) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reset()
}

// reset starts the firmware anew.
func (h *HCA) reset() {
	if h.fw.flusher != nil {
		h.fw.flusher.Stop()
	}
	h.refresh()
	h.conf.Reset()
	h.fw = h.newFirmware()
	h.showLink()
}

// showLink lets the class code follow the configured link type as long as no
// driver works with the present one.
func (h *HCA) showLink() {
	if !h.fw.enabled {
		h.conf.SetClass(classes[h.info.Link])
	}
}

// refresh reads the port's state from the fabric.
func (h *HCA) refresh() {
	if h.port != nil {
		h.info = h.port.Info()
	}
}

// unlock gives mu back and then sends what has been queued under it. Packets of
// one queue pair stay in order: they are queued by the goroutine that handles
// the guest's doorbells.
func (h *HCA) unlock() {
	out, port := h.outbox, h.port
	h.outbox = nil
	h.mu.Unlock()
	if port == nil {
		return
	}
	for _, p := range out {
		port.Send(p)
	}
}

package hca

import (
	"fmt"

	"ibup/test/fabric"
	"ibup/test/pci"
)

// PCI identity.
const (
	vendorMellanox    = 0x15b3
	deviceConnectX5   = 0x1017
	deviceConnectX5VF = 0x1018
)

// classes are the class codes by link type: the same card is another kind of
// device when its port is configured as the other.
var classes = map[fabric.LinkType]uint32{
	fabric.LinkInfiniBand: pci.ClassInfiniBand,
	fabric.LinkEthernet:   pci.ClassEthernet,
}

// newConfig makes the configuration space of a function with the link type.
func newConfig(c Config, link fabric.LinkType) (*pci.Config, error) {
	g := &gateway{}
	f := pci.Function{
		VendorID: c.VendorID, DeviceID: c.DeviceID,
		SubsystemVendorID: vendorMellanox, SubsystemDeviceID: c.SubsystemID,
		Class:           classes[link],
		PowerManagement: true,
		Express:         &pci.Express{Speed: pci.Speed8GT, Width: 16, FLR: true},
		MSIX: &pci.MSIX{
			Vectors: c.Vectors,
			Table:   pci.Location{Offset: msixTable},
			PBA:     pci.Location{Offset: msixPBA},
		},
		VPD: &pci.VPD{
			Name: "CX515A - ConnectX-5 QSFP28",
			Fields: []pci.VPDField{
				{Keyword: "PN", Value: "MCX515A-CCAT"},
				{Keyword: "SN", Value: fmt.Sprintf("MT0000X%05d", c.Index)},
			},
		},
		VendorSpecific: &pci.VendorSpecific{Length: gatewayLength, Read: g.read, Write: g.write},
		SerialNumber:   uint64(c.NodeGUID),
	}
	f.BARs[0] = pci.BAR{Size: c.BARSize, Wide: true, Prefetchable: true}
	return pci.New(f)
}

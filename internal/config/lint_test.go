package config

import (
	"slices"
	"strings"
	"testing"
)

const goodConf = `[Match]
PortGUID=506b4b0300a1b2c2
[Network]
Address=20.20.20.109/24
[Verify]
Ping=20.20.20.107
[Fallback]
Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200
Persist=yes
`

// without is goodConf with lines replaced ("old => new").
func without(lines ...string) string {
	text := goodConf
	for _, l := range lines {
		old, repl, _ := strings.Cut(l, " => ")
		text = strings.Replace(text, old+"\n", repl, 1)
	}
	return text
}

func TestCheck(t *testing.T) {
	const at = "/etc/ibup/ib0.conf"
	for _, c := range []struct {
		name, conf, cmdline string
		files               map[string]string // beside ib0.conf; "-" takes a default one away
		want                []string
	}{
		{"all is well", goodConf, "", nil, nil},
		{"errors first", without("Ping=20.20.20.107 => Pong=1\n"), "", map[string]string{"etc/ibup/a.conf.bak": ""}, []string{
			at + `:6: unknown key "Pong" in [Verify]; did you mean Ping=?`,
			`/etc/ibup/a.conf.bak: warning: is not read: the name does not end in .conf, or begins with a dot; remove it, or name it a.conf`}},
		{"stand aside", goodConf, "ibup=0", nil, []string{"kernel command line: warning: ibup=0 or rd.ibup=0: ibup does nothing at all; take it out"}},
		{"no network-scripts", goodConf, "", map[string]string{"etc/sysconfig/network-scripts/x": "-"}, []string{
			at + ":9: warning: Fallback.Persist: there is no /etc/sysconfig/network-scripts: this system keeps its network elsewhere; set Persist=no; NetworkManager keeps the route with nmcli"}},
		{"nothing to keep", "[Fallback]\nPersist=yes\n", "", nil, []string{at + ":2: warning: Fallback.Persist: there is no Route= to keep; add Route=, or leave it out"}},
		{"no fallback", "[Network]\nAddress=20.20.20.109/24\n", "", nil, []string{
			at + ": warning: Fallback.Route: no fallback: while InfiniBand does not work, the node does not reach 20.20.20.0/24; add [Fallback] Route=20.20.20.0/24 via GATEWAY dev INTERFACE metric 200"}},
		{"fallback elsewhere", without("Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200 => Route=20.20.21.0/24 via 10.20.0.1 dev eno1 metric 200\n"), "", nil, []string{
			at + ":8: warning: Fallback.Route: 20.20.21.0/24 is no network of ib0: this is no way around it; write a network of ib0"}},
		{"fallback without metric", without("Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200 => Route=20.20.20.0/24 via 10.20.0.1 dev eno1\n"), "", nil, []string{
			at + ":8: warning: Fallback.Route: without metric it is as good as InfiniBand's own route; add metric 200"}},
		{"no such interface", without("Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200 => Route=20.20.20.0/24 via 10.20.0.1 dev en01 metric 200\n"), "", nil, []string{
			at + ":8: warning: Fallback.Route: there is no interface en01 now; did you mean eno1?"}},
		{"by PCI address", without("PortGUID=506b4b0300a1b2c2 => PCI=3b:00.0\n"), "", nil, []string{
			at + ":2: warning: Match.PCI: may be another port when a card is added or moved; use PortGUID=, which `ibup status` shows"}},
		{"by device", without("PortGUID=506b4b0300a1b2c2 => Device=mlx5_0\n"), "", nil, []string{
			at + ":2: warning: Match.Device: may be another port when a card is added or moved; use PortGUID=, which `ibup status` shows"}},
		{"GUID and more", without("PortGUID=506b4b0300a1b2c2 => PortGUID=506b4b0300a1b2c2\nPCI=3b:00.0\nPort=1\n"), "", nil, []string{
			at + ":3: warning: Match.PCI: is not used: PortGUID= decides; remove it",
			at + ":4: warning: Match.Port: is not used: PortGUID= decides; remove it"}},
		{"no port of many", goodConf, "", map[string]string{"etc/ibup/ib1.conf": ""}, []string{
			"/etc/ibup/ib1.conf: warning: names no port and takes the first free one; which that is changes when a card is added; add [Match] PortGUID=, which `ibup status` shows"}},
		{"one network", goodConf, "", map[string]string{"etc/ibup/ib1.conf": strings.NewReplacer("c2", "c3", "109", "110").Replace(goodConf)}, []string{
			"/etc/ibup/ib1.conf:4: warning: Network.Address: ib0 is on the network 20.20.20.0/24 too: either may answer for the other, and only one is used for sending; give each interface a network of its own, or set arp_ignore=1 and arp_announce=2"}},
		{"only on the command line", goodConf, "ibup.ib1.mtu=2044", nil, []string{
			"kernel command line: warning: ib1 has no file: it is made only because the command line names it; make /etc/ibup/ib1.conf"}},
		{"name of a partition", goodConf, "", map[string]string{"etc/ibup/ib0.8001.conf": "[Match]\nPortGUID=506b4b0300a1b2c3\n", "etc/ibup/ib0.0002.conf": "[Match]\nPortGUID=506b4b0300a1b2c3\n[IPoIB]\nPKey=0x8003\n"}, []string{
			"/etc/ibup/ib0.0002.conf:4: warning: IPoIB.PKey: the name ib0.0002 stands for partition 0x8002, but the interface is on 0x8003; write PKey=0x8002, or name it otherwise",
			"/etc/ibup/ib0.8001.conf: warning: IPoIB.PKey: the name ib0.8001 stands for partition 0x8001, but the interface is on 0xffff; write PKey=0x8001, or name it otherwise"}},
		{"connected", goodConf + "[IPoIB]\nMode=connected\n", "", nil, []string{
			at + ":11: warning: IPoIB.Mode: most ConnectX-4 and later refuse connected mode (enhanced IPoIB); use datagram, or load ib_ipoib with ipoib_enhanced=0"}},
		{"MTU 2048", goodConf + "[IPoIB]\nMTU=2048\n", "", nil, []string{
			at + ":11: warning: IPoIB.MTU: 2048 does not fit into an InfiniBand MTU of 2048, of which 4 bytes are the IPoIB header; write MTU=2044"}},
		{"ping without an address", "[Verify]\nPing=20.20.20.107\n", "", nil, []string{
			at + ":2: warning: Verify.Ping: nothing here gives the interface an IPv4 address to ask 20.20.20.107 from; add Address=, or leave Ping= out"}},
		{"ping elsewhere", without("Ping=20.20.20.107 => Ping=20.20.20.107\nPing=20.20.21.1\n"), "", nil, []string{
			at + ":7: warning: Verify.Ping: 20.20.21.1 is not reached through ib0; write a machine on the interface's network"}},
		{"short", goodConf + "[Boot]\nTimeout=5s\n", "", nil, []string{
			at + ":11: warning: Boot.Timeout: 5s is short: the driver may wait 16 s before it asks a late subnet manager again; write at least Timeout=20s"}},
		{"dracut too", goodConf, "ip=20.20.20.109::20.20.20.1:255.255.255.0:n:ib0:none", nil, []string{
			"kernel command line: warning: ip: names ib0: in the initramfs dracut gives it the address, and ibup's Address=, Route= and Ping= count only afterwards"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"etc/ibup/ib0.conf": c.conf, "etc/sysconfig/network-scripts/x": "", "sys/class/net/eno1/x": "", "sys/class/net/lo/x": ""}
			for name, text := range c.files {
				files[name] = text
				if text == "-" {
					delete(files, name)
				}
			}
			var got []string
			for _, f := range Check(machine(t, files), c.cmdline) {
				if f.Text == "" || f.File == "" {
					t.Errorf("%+v says nothing", f)
				}
				got = append(got, f.String())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
			}
		})
	}
}

// An image is checked without its hardware, and the initramfs without network-scripts.
func TestCheckImage(t *testing.T) {
	files := map[string]string{"etc/ibup/ib0.conf": goodConf, "etc/initrd-release": "", "sys/class/net/lo/x": ""}
	if got := Check(machine(t, files), ""); got != nil {
		t.Errorf("%v", got)
	}
	if got := Check(machine(t, nil), ""); got != nil {
		t.Errorf("no file is no mistake: %v", got)
	}
}

package config

import (
	"net/netip"
	"slices"
	"testing"
)

// Mistakes that show only between files. The first file, by name, is right and
// the other one is refused.
func TestTwoFiles(t *testing.T) {
	for _, c := range []struct{ name, ib0, ib1, want string }{
		{"same address", "[Network]\nAddress=20.20.20.109/24\n", "[Network]\nAddress=20.20.21.1/24\nAddress=20.20.20.109/24\n",
			"/etc/ibup/ib1.conf:3: Network.Address: /etc/ibup/ib0.conf:2 has the address already: 20.20.20.109/24; remove one of the two"},
		{"same IPv6 address", "[Network]\nAddress=fd00::109/64\n", "[Network]\nAddress=fd00:0::109/64\n",
			"/etc/ibup/ib1.conf:2: Network.Address: /etc/ibup/ib0.conf:2 has the address already: fd00::109/64; remove one of the two"},
		{"networks overlap", "[Network]\nAddress=20.20.20.109/24\n", "[Network]\nAddress=20.20.21.109/16\n",
			"/etc/ibup/ib1.conf:2: Network.Address: 20.20.21.109/16 overlaps with 20.20.20.109/24 of /etc/ibup/ib0.conf:2; write the prefix length that the network has"},
		{"same port by GUID", "[Match]\nPortGUID=506b4b0300a1b2c2\n", "\n[Match]\nPortGUID=0x506B:4B03:00A1:B2C2\n",
			"/etc/ibup/ib1.conf:3: Match.PortGUID: \"0x506B:4B03:00A1:B2C2\" is no port GUID; write the 16 digits that `ibup status` shows, such as PortGUID=0x506b4b0300a1b2c2"},
		{"same port by GUID", "[Match]\nPortGUID=506b4b0300a1b2c2\n", "\n[Match]\nPortGUID=506B:4B03:00A1:B2C2\nPCI=3b:00.0\n",
			"/etc/ibup/ib1.conf:3: Match.PortGUID: ib0 wants the same port with the same P_Key 0xffff: /etc/ibup/ib0.conf:2; write another port, or another partition in PKey="},
		{"same port by PCI", "[Match]\nPCI=3b:00.0\n", "[Match]\nPort=1\nPCI=0000:3B:00.0\n",
			"/etc/ibup/ib1.conf:3: Match.PCI: ib0 wants the same port with the same P_Key 0xffff: /etc/ibup/ib0.conf:2; write another port, or another partition in PKey="},
		{"same child", "[Match]\nDevice=mlx5_0\n[IPoIB]\nPKey=0x8001\n", "[Match]\nDevice=mlx5_0\n[IPoIB]\nPKey=0x8001\n",
			"/etc/ibup/ib1.conf:2: Match.Device: ib0 wants the same port with the same P_Key 0x8001: /etc/ibup/ib0.conf:2; write another port, or another partition in PKey="},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": c.ib0, "etc/ibup/ib1.conf": c.ib1}), "", c.want)
			if names(set) != "ib0" || !slices.Equal(set.Refused, []string{"ib1"}) {
				t.Errorf("interfaces %s, refused %v", names(set), set.Refused)
			}
		})
	}
}

func TestTwoGoodFiles(t *testing.T) {
	for _, c := range []struct{ name, ib0, ib1 string }{
		{"parent and child", "[Match]\nPortGUID=506b4b0300a1b2c2\n", "[Match]\nPortGUID=506b4b0300a1b2c2\n[IPoIB]\nPKey=0x8001\n"},
		{"two ports of a function", "[Match]\nPCI=3b:00.0\n", "[Match]\nPCI=3b:00.0\nPort=2\n"},
		{"no port named", "", ""},
		{"one network", "[Network]\nAddress=20.20.20.109/24\n", "[Network]\nAddress=20.20.20.110/24\n"},
		{"one fallback", "[Fallback]\nRoute=20.20.20.0/24 via 10.20.0.1 dev eno1\n", "[Fallback]\nRoute=20.20.20.0/24 via 10.20.0.1 dev eno1\n"},
	} {
		if set := failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": c.ib0, "etc/ibup/ib1.conf": c.ib1}), ""); len(set.Interfaces) != 2 {
			t.Errorf("%s: %+v", c.name, set)
		}
	}
}

// An error in one file leaves the others alone, and one that was refused takes
// no address or port away from them.
func TestOneBadFile(t *testing.T) {
	set := failsWith(t, machine(t, map[string]string{
		"etc/ibup/ib0.conf": "[Network]\nAddress=20.20.20.109/24\nMTU=1\n",
		"etc/ibup/ib1.conf": "[Network]\nAddress=20.20.20.109/24\n",
	}), "", "/etc/ibup/ib0.conf:3: unknown key \"MTU\" in [Network]; it is a key of [IPoIB]")
	if names(set) != "ib1" || len(set.Interfaces[0].Network.Addresses) != 1 {
		t.Errorf("%+v", set)
	}
}

func TestAddressFrom(t *testing.T) {
	hosts := "127.0.0.1 localhost\n::1 node109-ib0\n20.20.20.109\tnode109-ib0.cluster NODE109-IB0 # storage\n20.20.20.110 node110-ib0\n" +
		"20.20.20.108 node108-ib0\n20.20.20.118 node108-ib0\n20.20.20.255 node107-ib0\nfd00::6d node109-ib0\n"
	table := "# name address\nnode109 20.20.20.109/24 fd00::6d/64\nnode110 20.20.20.110/24\nnode108 20.20.20.108\n\nnode107\nnode106 20.20.20.106/24\nNODE106 20.20.20.116/24\n"
	conf := func(from string) string { return "[Network]\nAddress=10.9.9.9/8\nAddressFrom=" + from + "\n" }
	const at = "/etc/ibup/ib0.conf:3: Network.AddressFrom: "
	for _, c := range []struct {
		name, from, host string
		want             []string // addresses, and where the last is from
		fail             string
	}{
		{"hosts", "hosts:-ib0/24", "node109", []string{"20.20.20.109/24", "/etc/hosts:3"}, ""},
		{"hosts, qualified", "hosts:-ib0/24", "node109.cluster", []string{"20.20.20.109/24", "/etc/hosts:3"}, ""},
		{"hosts, IPv6", "hosts:-ib0/64", "node109", []string{"fd00::6d/64", "/etc/hosts:8"}, ""},
		{"hosts, not there", "hosts:-ib0/24", "node1", nil, at + `/etc/hosts has no node1-ib0 (the node's name node1 is from /etc/hostname); add a line "ADDRESS node1-ib0"`},
		{"hosts, two addresses", "hosts:-ib0/24", "node108", nil, "/etc/hosts:6: Network.AddressFrom: node108-ib0 is there already on line 5; keep one of the two"},
		{"hosts, broadcast address", "hosts:-ib0/24", "node107", nil, "/etc/hosts:7: Network.AddressFrom: 20.20.20.255/24 is the broadcast address of its network; write the node's own address"},
		{"no name", "hosts:-ib0/24", "localhost.localdomain", nil, at + "the node has no name to look up; write the node's name to /etc/hostname"},
		{"odd name", "hosts:-ib0/24", "a b", nil, at + "the node has no name to look up; write the node's name to /etc/hostname"},
		{"table", "table:/etc/ibup/nodes", "node109", []string{"20.20.20.109/24", "fd00::6d/64", "/etc/ibup/nodes:2"}, ""},
		{"table, qualified", "table:/etc/ibup/nodes", "node110.cluster", []string{"20.20.20.110/24", "/etc/ibup/nodes:3"}, ""},
		{"table, not there", "table:/etc/ibup/nodes", "node1", nil, at + `/etc/ibup/nodes has no node1 (the node's name node1 is from /etc/hostname); add a line "node1 ADDRESS/PREFIXLENGTH"`},
		{"table, no prefix length", "table:/etc/ibup/nodes", "node108", nil, "/etc/ibup/nodes:4: Network.AddressFrom: 20.20.20.108 has no prefix length; write it with the network's, such as Address=20.20.20.108/24"},
		{"table, no address", "table:/etc/ibup/nodes", "node107", nil, "/etc/ibup/nodes:6: Network.AddressFrom: node107 has no address; write node107 ADDRESS/PREFIXLENGTH"},
		{"table, twice", "table:/etc/ibup/nodes", "node106", nil, "/etc/ibup/nodes:8: Network.AddressFrom: NODE106 is there already on line 7; keep one of the two"},
		{"no table", "table:/etc/nodes", "node109", nil, at + "/etc/nodes does not exist; make it, or correct AddressFrom="},
		{"table a directory", "table:/etc/ibup", "node109", nil, at + "/etc/ibup: is a directory, not a file; correct AddressFrom="},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := machine(t, map[string]string{"etc/ibup/ib0.conf": conf(c.from), "etc/hosts": hosts, "etc/ibup/nodes": table, "etc/hostname": c.host + "\n"})
			if c.fail != "" {
				failsWith(t, root, "", c.fail)
				return
			}
			set := failsWith(t, root, "")
			got := append(stringsOf(set.Interfaces[0].Network.Addresses), set.Interfaces[0].Origin["Network.Address"][1].String())
			if want := append([]string{"10.9.9.9/8"}, c.want...); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	const none = "(none)\n"
	for _, c := range []struct {
		name, given, cmdline, file, kernel string
		want                               hostname
	}{
		{"given", "a", "systemd.hostname=b", "c\n", "d\n", hostname{"a", "the command line"}},
		{"command line", "", "systemd.hostname=b", "c\n", "d\n", hostname{"b", "kernel command line"}},
		{"file", "", "", "c\n# x\n", "d\n", hostname{"c", "/etc/hostname"}},
		{"kernel", "", "", "localhost.localdomain\n", "d\n", hostname{"d", "/proc/sys/kernel/hostname"}},
		{"nobody", "", "", "", none, hostname{}},
	} {
		tree := tree{machine(t, map[string]string{"etc/hostname": c.file, "proc/sys/kernel/hostname": c.kernel})}
		words, _ := tree.words(c.cmdline)
		if got := tree.hostname(c.given, words); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSource(t *testing.T) {
	root := machine(t, map[string]string{"etc/ibup/ib0.conf": "[Network]\nAddressFrom=hosts:/24\n", "etc/hosts": "20.20.20.109 n\n", "proc/cmdline": "quiet ibup.mtu=2044\n"})
	cmdline, err := ReadCmdline(root)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Source{Root: root, Cmdline: cmdline, Hostname: "n"}.Load()
	if err != nil || set.Interfaces[0].IPoIB.MTU != 2044 || !slices.Equal(set.Interfaces[0].Network.Addresses, []netip.Prefix{prefix("20.20.20.109/24")}) {
		t.Errorf("%+v, %v", set, err)
	}
}

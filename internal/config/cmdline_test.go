package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var fromCmdline = []Origin{{File: "/proc/cmdline"}}

// cmdlineSet is what the command line alone makes of a machine without files.
func cmdlineSet(edit func(c *Config), origin ...string) Set {
	c := Default("ib0")
	edit(&c)
	for _, id := range origin {
		c.Origin[id] = fromCmdline
	}
	return Set{Interfaces: []Config{c}}
}

func TestCmdline(t *testing.T) {
	for _, c := range []struct {
		name, cmdline string
		want          Set
	}{
		{"nothing for ibup", "ro root=/dev/sda1 ibupx=1 ipv6.disable=1 ip=dhcp", cmdlineSet(func(*Config) {})},
		{"stand aside", "ibup=0", Set{Interfaces: []Config{Default("ib0")}, StandAside: true}},
		{"the last counts", "ibup=off ibup=1", Set{Interfaces: []Config{Default("ib0")}}},
		{"of no concern here", "rd.ibup=0", Set{Interfaces: []Config{Default("ib0")}}},
		{"debug", "ibup.debug", Set{Interfaces: []Config{Default("ib0")}, Debug: 1}},
		{"debug more", "ibup.debug=2", Set{Interfaces: []Config{Default("ib0")}, Debug: 2}},
		{"everything", "ibup.guid=506b4b0300a1b2c2 ibup.pci=3b:00.0 ibup.device=mlx5_0 ibup.port=1 ibup.pkey=0x8001 ibup.mode=connected ibup.mtu=65520 " +
			"ibup.address=20.20.20.109/24 ibup.gateway=20.20.20.1 ibup.route=20.20.30.0/24,via,20.20.20.2,metric,100 ibup.dhcp=no " +
			"ibup.ping=20.20.20.107 ibup.fallback=\"20.20.20.0/24 via 10.20.0.1 dev eno1\" ibup.persist=yes ibup.timeout=2min ibup.watch=never",
			cmdlineSet(func(c *Config) {
				c.Match = Match{0x506b4b0300a1b2c2, "0000:3b:00.0", "mlx5_0", 1}
				c.IPoIB = IPoIB{0x8001, ModeConnected, 65520}
				c.Network = Network{
					Addresses: []netip.Prefix{prefix("20.20.20.109/24")},
					Gateway:   addr("20.20.20.1"),
					Routes:    []Route{{Dest: prefix("20.20.30.0/24"), Via: addr("20.20.20.2"), Metric: 100}},
				}
				c.Verify.Ping = []netip.Addr{addr("20.20.20.107")}
				c.Fallback = Fallback{[]Route{{Dest: prefix("20.20.20.0/24"), Via: addr("10.20.0.1"), Dev: "eno1"}}, true}
				c.Boot = Boot{2 * time.Minute, WatchNever}
			}, "Match.PortGUID", "Match.PCI", "Match.Device", "Match.Port", "IPoIB.PKey", "IPoIB.Mode", "IPoIB.MTU", "Network.Address", "Network.Gateway",
				"Network.Route", "Network.DHCP", "Verify.Ping", "Fallback.Route", "Fallback.Persist", "Boot.Timeout", "Boot.Watch")},
		{"quoted as a whole", `"ibup.fallback=20.20.20.0/24 via 10.20.0.1 dev eno1" ibup.mode="datagram"`, cmdlineSet(func(c *Config) {
			c.Fallback.Routes = []Route{{Dest: prefix("20.20.20.0/24"), Via: addr("10.20.0.1"), Dev: "eno1"}}
			c.IPoIB.Mode = ModeDatagram
		}, "Fallback.Route", "IPoIB.Mode")},
		{"for init", "ibup.mtu=2044 -- ibup.mtu=1", cmdlineSet(func(c *Config) { c.IPoIB.MTU = 2044 }, "IPoIB.MTU")},
		{"given twice", "ibup.mtu=1280 ibup.mtu=2044", cmdlineSet(func(c *Config) { c.IPoIB.MTU = 2044 }, "IPoIB.MTU")},
		{"taken back", "ibup.mtu=1280 ibup.mtu= ibup.ping=20.20.20.107 ibup.ping=", cmdlineSet(func(*Config) {})},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Load(machine(t, nil), c.cmdline+"\n")
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v\ngot  %+v\nwant %+v", err, got, c.want)
			}
		})
	}
}

func TestBadCmdline(t *testing.T) {
	const at = "kernel command line: "
	for _, c := range []struct {
		name, cmdline, want string
		left                string // interfaces that are good all the same
	}{
		{"unknown", "ibup.adress=20.20.20.109/24", "ibup.adress: unknown argument; did you mean ibup.address=?", ""},
		{"unknown, by the name of the files", "ibup.PortGUID=1", "ibup.PortGUID: unknown argument; did you mean ibup.guid=?", ""},
		{"unknown, with a name", "ibup.ib1.mut=1", "ibup.ib1.mut: unknown argument; did you mean ibup.ib1.mtu=?", ""},
		{"unknown, far off", "ibup.nameserver=1", "ibup.nameserver: unknown argument; there are: address, addressfrom, debug, device, dhcp, fallback, gateway, guid, mode, mtu, pci, persist, ping, pkey, port, route, timeout, watch", ""},
		{"unknown, nothing behind the dot", "ibup.=1", "ibup.: unknown argument; there are: address, addressfrom, debug, device, dhcp, fallback, gateway, guid, mode, mtu, pci, persist, ping, pkey, port, route, timeout, watch", ""},
		{"odd interface", "ibup.ib0:1.mtu=2044", `ibup.ib0:1.mtu: "ib0:1": an interface name has no blanks, no / : % and only ASCII; write ibup.INTERFACE.KEY=VALUE`, ""},
		{"no value", "ibup.mtu", "ibup.mtu: has no value; write ibup.mtu=4092", ""},
		{"bad value", "ibup.mtu=64k", `ibup.mtu: "64k" is no number; write bytes, such as MTU=4092, or leave it out`, ""},
		{"second of a list", "ibup.address=20.20.20.109/24,20.20.20.110", "ibup.address: 20.20.20.110 has no prefix length; write it with the network's, such as Address=20.20.20.110/24", ""},
		{"quote not closed", `ibup.route="default via 20.20.20.1 quiet`, `ibup.route: a quote is not closed: all that follows belongs to the value; close it with "`, ""},
		{"lone quote at the end", `quiet ibup.mode="`, `ibup.mode: a quote is not closed: all that follows belongs to the value; close it with "`, ""},
		{"escape", "ibup.mode=\x1b[2J", "ibup.mode: has an invisible character; write ibup.mode=datagram|connected", ""},
		{"two together", "ibup.gateway=20.20.20.1", "Network.Gateway: the gateway 20.20.20.1 cannot be reached: the interface has no address; add Address=", ""},
		{"switch", "ibup=maybe", `ibup: "maybe" is neither yes nor no; write ibup=0 to have ibup stand aside`, "ib0"},
		{"debug", "ibup.debug=9", `ibup.debug: "9" is no level; write ibup.debug=0, 1 or 2`, "ib0"},
		{"rd in front", "rd.ibup.mtu=1", "rd.ibup.mtu: unknown argument; write ibup.mtu=: it counts in the initramfs too", "ib0"},
		{"ib.pkey", "ib.pkey=8001", `ib.pkey: "8001" is no interface and P_Key; write ib.pkey=ib0.8001`, "ib0"},
		{"ib.pkey with 0x", "ib.pkey=ib0.0x8001", `ib.pkey: "ib0.0x8001" is no interface and P_Key; write ib.pkey=ib0.8001`, "ib0"},
		{"ib.pkey of a limited member", "ib.pkey=ib0.0001", `ib.pkey: the P_Key of "ib0.0001" lacks the full-membership bit 0x8000; write ib.pkey=ib0.8001`, "ib0"},
		{"ib.pkey 0", "ib.pkey=ib0.8000", `ib.pkey: the partition number 0 of "ib0.8000" is reserved; write ib.pkey=ib0.8001`, "ib0"},
		{"ib.pkey too large", "ib.pkey=ib0.18001", `ib.pkey: the P_Key of "ib0.18001" has more than 16 bits; write ib.pkey=ib0.8001`, "ib0"},
		{"ib.pkey of the parent", "ib.pkey=ib0.ffff", "ib.pkey: 0xffff is the partition of ib0 itself; leave it out", "ib0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := failsWith(t, machine(t, nil), c.cmdline, at+c.want)
			if names(set) != c.left {
				t.Errorf("interfaces %q", names(set))
			}
		})
	}
	failsWith(t, machine(t, nil), strings.Repeat("x", 1<<20+1), at+"larger than 1024 KiB")
}

// The command line goes before the file, key by key; a list as a whole.
func TestCmdlineOverFile(t *testing.T) {
	root := machine(t, map[string]string{"etc/ibup/ib0.conf": full, "etc/hostname": "n", "etc/hosts": "20.20.20.110 n"})
	set := failsWith(t, root, "ibup.address=20.20.20.7/24,fd00::7/64 ibup.mtu=2044 ibup.timeout= ibup.ping=20.20.20.1 ibup.ping=20.20.20.2")
	c := set.Interfaces[0]
	if got := stringsOf(c.Network.Addresses); !slices.Equal(got, []string{"20.20.20.7/24", "fd00::7/64"}) || c.IPoIB.MTU != 2044 ||
		c.Boot.Timeout != time.Minute || len(c.Verify.Ping) != 2 || c.IPoIB.PKey != 0x8001 || len(c.Network.Routes) != 2 {
		t.Errorf("%+v", c)
	}
	if o := c.Origin; len(o["Network.Address"]) != 2 || o["IPoIB.MTU"][0].String() != "kernel command line" || o["Boot.Timeout"] != nil || o["IPoIB.PKey"][0].Line != 9 {
		t.Errorf("%+v", o)
	}

	// AddressFrom= and Address= say the same in two ways.
	set = failsWith(t, root, "ibup.addressfrom=hosts:/24 ibup.ib0.gateway=20.20.20.2 ibup.ib0.route=")
	if got := stringsOf(set.Interfaces[0].Network.Addresses); !slices.Equal(got, []string{"20.20.20.110/24"}) || set.Interfaces[0].Network.Gateway != addr("20.20.20.2") {
		t.Errorf("%+v", set)
	}
}

func TestWhichInterface(t *testing.T) {
	for _, c := range []struct {
		name, files, cmdline, want, fail string
	}{
		{"no file", "", "ibup.mtu=2044", "ib0:2044", ""},
		{"the one file", "ibs1", "ibup.mtu=2044", "ibs1:2044", ""},
		{"ib0 of many", "ib0 ib1", "ibup.mtu=2044", "ib0:2044 ib1:0", ""},
		{"which", "ib1 ib2", "ibup.mtu=2044", "ib1:0 ib2:0", "kernel command line: ibup.mtu: does not say which of the interfaces it is for; write ibup.INTERFACE.mtu="},
		{"by name", "ib1 ib2", "ibup.ib2.mtu=2044", "ib1:0 ib2:2044", ""},
		{"a name with a dot", "ib0 ib0.8001", "ibup.ib0.8001.mtu=2044", "ib0:0 ib0.8001:2044", ""},
		{"a name without a file", "ib0", "ibup.ib1.mtu=2044", "ib0:0 ib1:2044", ""},
		{"a name and no file", "", "ibup.ib1.mtu=2044", "ib1:2044", ""},
		{"child", "", "ib.pkey=ib0.8001 ibup.mtu=2044", "ib0.8001:2044", ""},
		{"dracut's", "", "ip=20.20.20.109::20.20.20.1:255.255.255.0:n:ib1:none", "ib1:0", ""},
		{"dracut's Ethernet", "", "ip=10.20.0.5::10.20.0.1:255.255.255.0:n:eno1:none ip=[fd00::1]::[fd00::2]:64:n:eno2:none", "ib0:0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			for _, f := range strings.Fields(c.files) {
				files["etc/ibup/"+f+".conf"] = ""
			}
			var want []string
			if c.fail != "" {
				want = []string{c.fail}
			}
			set := failsWith(t, machine(t, files), c.cmdline, want...)
			var got []string
			for _, i := range set.Interfaces {
				got = append(got, i.Name+":"+strings.Join(unless(false, "%d", i.IPoIB.MTU), ""))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// ib.pkey= makes a child on its parent's port.
func TestChild(t *testing.T) {
	ib0 := "[Match]\nPCI=3b:00.0\n"
	set := failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": ib0}), "ib.pkey=ib0.8001 ibup.ib0.8001.address=20.20.20.109/24")
	if names(set) != "ib0 ib0.8001" || set.Interfaces[1].IPoIB.PKey != 0x8001 || set.Interfaces[1].Match.PCI != "0000:3b:00.0" || len(set.Interfaces[1].Network.Addresses) != 1 {
		t.Errorf("%+v", set)
	}
	failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.8001.conf": "[IPoIB]\nPKey=0x8002\n"}), "ib.pkey=ib0.8001",
		"kernel command line: ib.pkey: says another P_Key than /etc/ibup/ib0.8001.conf:2; make the two the same")
}

// In the initramfs, dracut owns the address of the interface that ip= names, and
// the files from which dracut reads more arguments count.
func TestInitramfs(t *testing.T) {
	files := map[string]string{"etc/initrd-release": "", "etc/ibup/ib0.conf": full}
	ip := "ip=20.20.20.109::20.20.20.1:255.255.255.0:node109:ib0:none"
	set := failsWith(t, machine(t, files), ip)
	c := set.Interfaces[0]
	if !c.DracutOwnsAddress || !reflect.DeepEqual(c.Network, Network{}) || c.Verify.Ping != nil || c.Origin["Network.Address"] != nil ||
		c.IPoIB.PKey != 0x8001 || len(c.Fallback.Routes) != 1 {
		t.Errorf("%+v", c)
	}
	files["etc/cmdline.d/20-a.conf"] = "ibup.mtu=1280\nibup.mtu=1300 ibup.pkey=0x8003\n"
	files["etc/cmdline.d/10-b.conf"] = "ibup.mtu=1290 ibup.pkey=0x8002"
	files["etc/cmdline"] = "ip=ib0:dhcp ibup.mtu=2000"
	set = failsWith(t, machine(t, files), "ibup.mtu=2044 rd.ibup=0")
	c = set.Interfaces[0]
	if !set.StandAside || !c.DracutOwnsAddress || c.IPoIB.MTU != 2044 || c.IPoIB.PKey != 0x8003 || c.Origin["IPoIB.PKey"][0] != (Origin{"/etc/cmdline.d/20-a.conf", 2}) {
		t.Errorf("%+v", set)
	}
	files["etc/cmdline"] = "quiet\nibup.mtu=1"
	failsWith(t, machine(t, files), "", "/etc/cmdline:2: ibup.mtu: 1 is below 72, the least that ib_ipoib takes; leave it out for the fabric's own")

	// The real root goes on with the whole configuration.
	delete(files, "etc/initrd-release")
	set = failsWith(t, machine(t, files), ip)
	if c := set.Interfaces[0]; c.DracutOwnsAddress || len(c.Network.Addresses) != 2 || c.IPoIB.MTU != 4092 {
		t.Errorf("%+v", c)
	}
}

func TestDracutInterface(t *testing.T) {
	for value, want := range map[string]string{
		"":                     "",
		"dhcp":                 "",
		"ib0:dhcp":             "ib0",
		"ib0:dhcp:2044":        "ib0",
		"ib0:auto6:1500:a:b:c": "ib0",
		"20.20.20.109::20.20.20.1:255.255.255.0:n:ib0:none":           "ib0",
		"20.20.20.109::20.20.20.1:255.255.255.0:n:ib0.8001:none:2044": "ib0.8001",
		"[fd00::109]::[fd00::1]:64:n:ib0:none":                        "ib0",
		"[fd00::109]:[fd00::2]:[fd00::1]:64::ib1:none":                "ib1",
		"[fd00::109":                            "",
		"20.20.20.109":                          "",
		"20.20.20.109::20.20.20.1:24:n::dhcp":   "",
		"a:b:c:d:e:a-name-that-is-too-long:off": "",
	} {
		if got := dracutInterface(value); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

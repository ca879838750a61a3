package config

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestShow(t *testing.T) {
	root := machine(t, map[string]string{
		"etc/ibup/ib0.conf": "[IPoIB]\nPKey=0x8001\n[Network]\nAddress=10.0.0.1/8\nAddressFrom=hosts:-ib0/24\nRoute=fd00::/64\nRoute=::/0\n",
		"etc/hosts":         "20.20.20.109 n-ib0\n", "etc/hostname": "n",
	})
	set := failsWith(t, root, "ibup.timeout=2min ibup.ping=20.20.20.107")
	const want = `ib0 (/etc/ibup/ib0.conf)
[Match]
  PortGUID     -                default
  PCI          -                default
  Device       -                default
  Port         -                default
[IPoIB]
  PKey         0x8001           /etc/ibup/ib0.conf:2
  Mode         -                default
  MTU          -                default
[Network]
  Address      10.0.0.1/8       /etc/ibup/ib0.conf:4
  Address      20.20.20.109/24  /etc/hosts:1
  AddressFrom  hosts:-ib0/24    /etc/ibup/ib0.conf:5
  Gateway      -                default
  Route        fd00::/64        /etc/ibup/ib0.conf:6
  Route        ::/0             /etc/ibup/ib0.conf:7
  DHCP         no               default
[Verify]
  Ping         20.20.20.107     kernel command line
[Fallback]
  Route        -                default
  Persist      no               default
[Boot]
  Timeout      120s             kernel command line
  Watch        until-up         default
`
	if got := Text(set.Interfaces[0]); got != want {
		t.Errorf("got\n%s", got)
	}
	const file = `[IPoIB]
PKey=0x8001

[Network]
Address=10.0.0.1/8
AddressFrom=hosts:-ib0/24
Route=fd00::/64
Route=::/0

[Verify]
Ping=20.20.20.107

[Boot]
Timeout=120s
`
	if got := Render(set.Interfaces[0]); got != file {
		t.Errorf("got\n%s", got)
	}
	row, err := json.Marshal(Show(set.Interfaces[0])[8])
	if want := `{"section":"Network","key":"Address","value":"20.20.20.109/24","origin":"/etc/hosts:1","derived":true}`; err != nil || string(row) != want {
		t.Errorf("%s, %v", row, err)
	}
	if got := Text(Default("ib7")); !strings.HasPrefix(got, "ib7 (no file)\n") || strings.Count(got, " default\n") != len(keys()) {
		t.Errorf("got\n%s", got)
	}
	c := Default("ib0")
	c.DracutOwnsAddress = true
	if got := Text(c); !strings.Contains(got, "dracut gives the address\n") {
		t.Errorf("got\n%s", got)
	}
}

// reread renders a configuration, reads that as a file, and compares all but the
// places where values were found.
func reread(t *testing.T, c Config, files map[string]string) {
	t.Helper()
	text := Render(c)
	all := map[string]string{"etc/ibup/" + c.Name + ".conf": text}
	for k, v := range files {
		all[k] = v
	}
	set, err := Load(machine(t, all), "")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	got := set.Interfaces[0]
	got.Path, got.Origin = c.Path, c.Origin
	if !reflect.DeepEqual(got, c) {
		t.Fatalf("got  %+v\nwant %+v\nfile\n%s", got, c, text)
	}
}

func TestRenderedIsTheSame(t *testing.T) {
	files := map[string]string{"etc/hosts": "20.20.20.109 n-ib0\n", "etc/hostname": "n"}
	for _, text := range []string{"", full, "[Network]\nAddressFrom=hosts:-ib0/24\nGateway=20.20.20.1\n"} {
		all := map[string]string{"etc/ibup/ib0.conf": text, "etc/hosts": files["etc/hosts"], "etc/hostname": "n"}
		set := failsWith(t, machine(t, all), "")
		reread(t, set.Interfaces[0], files)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		reread(t, randomConfig(r), nil)
	}
}

// randomConfig is any configuration that a file could ask for.
func randomConfig(r *rand.Rand) Config {
	c := Default(pick(r, "ib0", "ibp59s0", "ib0.8001", "storage"))
	if r.IntN(2) == 0 {
		c.Match = Match{1 + r.Uint64N(1<<63), fmt.Sprintf("%04x:%02x:%02x.%d", r.IntN(1<<20), r.IntN(256), r.IntN(32), r.IntN(8)), pick(r, "mlx5_0", "ibp1s0f1"), 1 + r.IntN(254)}
	}
	if r.IntN(2) == 0 {
		c.IPoIB = IPoIB{uint16(0x8001 + r.IntN(0x7fff)), pick(r, ModeConnected, ModeDatagram), minMTUv6 + r.IntN(maxMTUDatagram-minMTUv6)}
	}
	for i := range r.IntN(3) {
		c.Network.Addresses = append(c.Network.Addresses, netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.%d/24", i, r.IntN(256), 2+r.IntN(200))))
	}
	for i := range r.IntN(3) {
		rt := Route{Dest: netip.MustParsePrefix(fmt.Sprintf("20.%d.%d.0/24", i, r.IntN(256))), Metric: r.IntN(1 << 32)}
		if n := len(c.Network.Addresses); n > 0 {
			rt.Via = c.Network.Addresses[n-1].Addr().Prev()
		}
		if r.IntN(4) == 0 {
			rt = Route{Dest: netip.MustParsePrefix("::/0"), Via: addr("fe80::1"), Dev: "eno1", Metric: i}
		}
		c.Network.Routes = append(c.Network.Routes, rt)
	}
	if n := len(c.Network.Addresses); n > 0 && r.IntN(2) == 0 {
		c.Network.Gateway = c.Network.Addresses[0].Addr().Next()
		c.Verify.Ping = []netip.Addr{c.Network.Gateway, addr("fd00::1")}
	}
	for i := range r.IntN(3) {
		c.Fallback.Routes = append(c.Fallback.Routes, Route{Dest: pick(r, prefix("0.0.0.0/0"), prefix("20.20.20.0/24")), Via: addr("172.16.0.1"), Dev: pick(r, "eno1", "bond0.7"), Metric: 200 + i})
	}
	if r.IntN(2) == 0 {
		c.Fallback.Persist = true
		c.Boot = Boot{time.Second + time.Duration(r.IntN(3_599_000))*time.Millisecond, pick(r, WatchAlways, WatchNever, WatchUntilUp)}
	}
	return c
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// What the package installs as an example is right when all of it is used.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("../../rpm/ibup-example.conf")
	if err != nil {
		t.Fatal(err)
	}
	if set := failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": string(data)}), ""); len(set.Interfaces[0].Origin) > 0 {
		t.Errorf("says something while all is commented out: %+v", set)
	}
	var all strings.Builder
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, "#"); found && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\t") {
			line = rest
		}
		all.WriteString(line)
	}
	set := failsWith(t, machine(t, map[string]string{
		"etc/ibup/ib0.conf": all.String(), "etc/ibup/nodes": "n 20.20.20.110/24", "etc/hosts": "20.20.20.110 n-ib0", "etc/hostname": "n",
	}), "")
	for _, c := range set.Interfaces {
		for _, k := range keys() {
			if len(c.Origin[k.id()]) == 0 && k.name != "DHCP" {
				t.Errorf("the example does not show %s", k.id())
			}
		}
	}
}

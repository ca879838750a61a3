package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// machine makes a root directory with the given files.
func machine(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const full = `# what the manual shows
[Match]
PortGUID=506b:4b03:00A1:b2c2
PCI = 3b:00.0
Device=mlx5_0
Port=1

[IPoIB]
PKey=0x8001
Mode=datagram
MTU=4092
; another kind of comment
[Network]
Address=20.20.20.109/24
Address=fd00::109/64
Gateway=20.20.20.1
Route=20.20.30.0/24 via 20.20.20.2 metric 100
Route=default via fd00::1
DHCP=no
[Verify]
Ping=20.20.20.107
[Fallback]
Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200
Persist=yes
[Boot]
Timeout=1min 30s
Watch=always
`

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func TestLoad(t *testing.T) {
	root := machine(t, map[string]string{"etc/ibup/ib0.conf": full})
	set, err := Load(root, "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n")
	if err != nil {
		t.Fatal(err)
	}
	at := func(lines ...int) (out []Origin) {
		for _, l := range lines {
			out = append(out, Origin{"/etc/ibup/ib0.conf", l})
		}
		return out
	}
	want := Set{Interfaces: []Config{{
		Name:  "ib0",
		Path:  "/etc/ibup/ib0.conf",
		Match: Match{PortGUID: 0x506b4b0300a1b2c2, PCI: "0000:3b:00.0", Device: "mlx5_0", Port: 1},
		IPoIB: IPoIB{PKey: 0x8001, Mode: ModeDatagram, MTU: 4092},
		Network: Network{
			Addresses: []netip.Prefix{prefix("20.20.20.109/24"), prefix("fd00::109/64")},
			Gateway:   addr("20.20.20.1"),
			Routes: []Route{
				{Dest: prefix("20.20.30.0/24"), Via: addr("20.20.20.2"), Metric: 100},
				{Dest: prefix("::/0"), Via: addr("fd00::1")},
			},
		},
		Verify: Verify{Ping: []netip.Addr{addr("20.20.20.107")}},
		Fallback: Fallback{
			Routes:  []Route{{Dest: prefix("20.20.20.0/24"), Via: addr("10.20.0.1"), Dev: "eno1", Metric: 200}},
			Persist: true,
		},
		Boot: Boot{Timeout: 90 * time.Second, Watch: WatchAlways},
		Origin: map[string][]Origin{
			"Match.PortGUID": at(3), "Match.PCI": at(4), "Match.Device": at(5), "Match.Port": at(6),
			"IPoIB.PKey": at(9), "IPoIB.Mode": at(10), "IPoIB.MTU": at(11),
			"Network.Address": at(14, 15), "Network.Gateway": at(16), "Network.Route": at(17, 18), "Network.DHCP": at(19),
			"Verify.Ping": at(21), "Fallback.Route": at(23), "Fallback.Persist": at(24),
			"Boot.Timeout": at(26), "Boot.Watch": at(27),
		},
	}}}
	if !reflect.DeepEqual(set, want) {
		t.Errorf("got  %+v\nwant %+v", set, want)
	}
}

// Without files there is ib0, and nothing is known about it.
func TestDefault(t *testing.T) {
	for _, root := range []string{machine(t, nil), machine(t, map[string]string{"etc/ibup/README": "", "etc/ibup/.ib0.conf.swp": "", "etc/ibup/ib0.conf.rpmsave": "x"})} {
		set, err := Load(root, "")
		want := Set{Interfaces: []Config{Default("ib0")}}
		if err != nil || !reflect.DeepEqual(set, want) {
			t.Errorf("%+v, %v", set, err)
		}
	}
}

package fallback

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	tests := []struct {
		name, file, text string
		want             []string // "LINE SEVERITY part of the text"
	}{
		{name: "good lines", text: "# a\n\n  # b\ndefault via 10.20.0.1\nto 10.9.0.0/16 via 10.20.0.2 dev eno1 metric 5 src 10.20.0.9\n10.8.0.1 dev eno1\n10.7/16 via 10.20.0.2\nblackhole 10.6.0.0/16\n" + block1},
		{name: "trailing comment", text: "10.9.0.0/16 via 10.20.0.2 # storage\n", want: []string{"1 error a comment behind a route"}},
		{name: "CR LF", text: "# a\r\n10.9.0.0/16 via 10.20.0.2\r\n", want: []string{"2 error ends in CR LF"}},
		{name: "backslash", text: "10.9.0.0/16 \\\nvia 10.20.0.2\n", want: []string{"1 warning the next line becomes part"}},
		{name: "bits behind the prefix", text: "10.9.0.5/16 via 10.20.0.2\n", want: []string{"1 error the kernel refuses 10.9.0.5/16"}},
		{name: "bad address", text: "10.9.0.0/16 via 10.20.0.256\n", want: []string{"1 error `ip route add` refuses it: \"10.20.0.256\""}},
		{name: "bad prefix", text: "10.9.0.0/33 via 10.20.0.2\n", want: []string{"1 error `ip route add` refuses it: \"10.9.0.0/33\""}},
		{name: "missing word", text: "10.9.0.0/16 via\n", want: []string{"1 error `ip route add` refuses it: \"via\""}},
		{name: "bad metric", text: "10.9.0.0/16 via 10.20.0.2 metric high\n", want: []string{"1 error `ip route add` refuses it: \"high\""}},
		{name: "other device", text: "10.9.0.0/16 dev eno2\n", want: []string{"1 warning the route of eno2"}},
		{name: "twice", text: "10.9.0.0/16 via 10.20.0.2\n10.9.0.0/16 via 10.20.0.2 dev eno1\n", want: []string{"2 warning the same route"}},
		{name: "two gateways", text: "10.9.0.0/16 via 10.20.0.2\n10.9.0.0/16 via 10.20.0.3\n", want: []string{"2 error refused with \"File exists\""}},
		{name: "two metrics", text: "10.9.0.0/16 via 10.20.0.2\n10.9.0.0/16 via 10.20.0.3 metric 9\n"},
		{name: "IPv6 in the wrong file", text: "2001:db8::/32 via fe80::1\n", want: []string{"1 error wrong address family"}},
		{name: "IPv4 in the wrong file", file: "route6-eno1", text: "10.9.0.0/16 via 10.20.0.2\n", want: []string{"1 error wrong address family"}},
		{name: "good IPv6", file: "route6-eno1", text: "2001:db8::/32 via fe80::1 metric 7\n"},
		{name: "damaged block", text: "\n# END ibup ib0\n", want: []string{"2 error END without BEGIN"}},
		{name: "good assignments", text: "# a\nADDRESS0=10.9.0.0\nNETMASK0=\"255.255.0.0\"\nGATEWAY0='10.20.0.2' # b\n"},
		{name: "METRIC and OPTIONS", text: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nMETRIC0=200\nOPTIONS0=\"mtu 9000\"\n",
			want: []string{"3 warning METRIC0 is ignored", "4 warning OPTIONS0 is ignored"}},
		{name: "gap", text: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nADDRESS2=10.8.0.0\nNETMASK2=255.255.0.0\n", want: []string{"3 error never read: ADDRESS1 is missing"}},
		{name: "starts at 1", text: "ADDRESS1=10.9.0.0\nNETMASK1=255.255.0.0\n", want: []string{"1 error never read: ADDRESS0 is missing"}},
		{name: "no netmask", text: "ADDRESS0=10.9.0.0\n", want: []string{"1 error route 0 is wrong: NETMASK0: "}},
		{name: "bad netmask", text: "ADDRESS0=10.9.0.0\nNETMASK0=255.0.255.0\n", want: []string{"1 error route 0 is wrong: NETMASK0: \"255.0.255.0\" has a hole"}},
		{name: "bad gateway", text: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.20.0\n", want: []string{"1 error route 0 is wrong: GATEWAY0: "}},
		{name: "bits behind the netmask", text: "ADDRESS0=10.9.0.5\nNETMASK0=255.255.255.0\n", want: []string{"1 error the kernel refuses it: 10.9.0.5"}},
		{name: "mixed", text: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\n10.8.0.0/16 via 10.20.0.2\n", want: []string{"3 error run as a shell command"}},
		{name: "assignments with CR LF", text: "ADDRESS0=10.9.0.0\r\nNETMASK0=255.255.0.0\r\n", want: []string{"1 error ends in CR LF", "2 error ends in CR LF"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := ScriptsDir + "/route-eno1"
			if tt.file != "" {
				file = ScriptsDir + "/" + tt.file
			}
			got := Lint(file, []byte(tt.text))
			for i, f := range got {
				// Every finding names its file, and fits into what a table wants.
				if !strings.HasPrefix(f.String(), file+":") {
					t.Errorf("finding %q", f)
				}
				s := strings.TrimPrefix(f.String(), file+":")
				s = strings.Replace(strings.Replace(s, ": ", " ", 1), ": ", " ", 1)
				if i >= len(tt.want) || !strings.HasPrefix(s, tt.want[i]) {
					t.Errorf("finding %d is %q", i, s)
				}
			}
			if len(got) < len(tt.want) {
				t.Errorf("missing: %q", tt.want[len(got):])
			}
		})
	}
}

func TestWhoReadsIt(t *testing.T) {
	tests := []struct {
		name  string
		ifcfg map[string]string
		want  string // "" for no finding
	}{
		{"its own ifcfg", map[string]string{"ifcfg-eno1": "DEVICE=eno1\nONBOOT=yes\n"}, ""},
		{"not at boot", map[string]string{"ifcfg-eno1": "DEVICE=eno1\nONBOOT=\"no\"\n"}, "warning: ONBOOT=no"},
		{"none", nil, "error: nobody reads it: there is no ifcfg-eno1"},
		{"profile of another name", map[string]string{"ifcfg-Wired": "NAME=x\nDEVICE='eno1'\n"}, "NetworkManager reads route-Wired"},
		{"only a backup", map[string]string{"ifcfg-eno1.rpmsave": "DEVICE=eno1\n"}, "error: nobody reads it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, file := scripts(t, nil)
			dir := filepath.Dir(file)
			if err := os.Remove(filepath.Join(dir, "ifcfg-eno1")); err != nil {
				t.Fatal(err)
			}
			for name, text := range tt.ifcfg {
				write(t, filepath.Join(dir, name), text)
			}
			if got := in.Lint("eno1"); len(got) != 0 {
				t.Errorf("findings without a route file: %v", got)
			}
			rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1))
			if err != nil {
				t.Fatal(err)
			}
			if (tt.want == "") != (len(rep.Findings) == 0) || (tt.want != "" && !strings.Contains(rep.Findings[0].String(), tt.want)) {
				t.Errorf("findings %v, want %q", rep.Findings, tt.want)
			}
		})
	}
}

// What will go wrong is told before it does.
func TestCheck(t *testing.T) {
	addr := "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.20.0.2\n"
	broken := "10.9.0.0/16 via 10.20.0.2 # storage\n"
	damaged := "# END ibup ib0\n"
	for _, tt := range []struct {
		name  string
		text  *string // of route-eno1; nil: absent
		ifcfg bool
		want  []string
	}{
		{"all well", nil, true, nil},
		{"nobody will read it", nil, false, []string{"nobody reads it"}},
		{"cannot carry a metric", &addr, true, []string{"cannot be written to it: cannot carry a metric"}},
		{"broken line", &broken, true, []string{"a comment behind a route"}},
		{"damaged block, told once", &damaged, true, []string{"END without BEGIN"}},
	} {
		in, file := scripts(t, tt.text)
		if !tt.ifcfg {
			if err := os.Remove(filepath.Join(filepath.Dir(file), "ifcfg-eno1")); err != nil {
				t.Fatal(err)
			}
		}
		got := in.Check("ib0", fallbackOf(t, route1, "20.20.21.0/24 via 10.20.0.1 metric 200"))
		if len(got) != len(tt.want) || len(got) > 0 && !strings.Contains(got[0].String(), tt.want[0]) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	in := Installer{Root: t.TempDir()}
	if got := in.Check("ib0", fallbackOf(t, route1)); got != nil {
		t.Errorf("without network-scripts: %v", got)
	}
}

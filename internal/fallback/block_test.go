package fallback

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ibup/internal/config"
)

const (
	route1    = "20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200"
	explainer = "# In place while ib0 does not work; ibup removes it. Change /etc/ibup/ib0.conf, not this.\n"
	block1    = "# BEGIN ibup ib0\n" + explainer + route1 + "\n# END ibup ib0\n"
)

var block2 = strings.ReplaceAll(block1, "ib0", "ib1")

// fallbackOf parses routes in the syntax of route files.
func fallbackOf(t testing.TB, routes ...string) config.Fallback {
	t.Helper()
	f := config.Fallback{Persist: true}
	for _, s := range routes {
		r, err := parseLine("eno1", s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		f.Routes = append(f.Routes, r.Route)
	}
	return f
}

// scripts makes a root directory with network-scripts, ifcfg-eno1 and, unless
// text is nil, route-eno1.
func scripts(t testing.TB, text *string) (Installer, string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, ScriptsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ifcfg-eno1"), "DEVICE=eno1\nONBOOT=yes\n")
	file := filepath.Join(dir, "route-eno1")
	if text != nil {
		write(t, file, *text)
	}
	return Installer{Root: root}, file
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// content is a file's text, or "<absent>".
func content(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return "<absent>"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInstallFile(t *testing.T) {
	tests := []struct {
		name   string
		before string // "<absent>": no file
		routes []string
		after  string
		want   Outcome
		back   string // after Withdraw; "" means as before
	}{
		{name: "no file", before: "<absent>", routes: []string{route1}, after: madeMark + "\n" + block1, want: Installed},
		{name: "empty file stays a file", before: "", routes: []string{route1}, after: block1, want: Installed, back: "<empty>"},
		{name: "behind other lines", before: "# mine\n10.9.0.0/16 via 10.20.0.2\n", routes: []string{route1},
			after: "# mine\n10.9.0.0/16 via 10.20.0.2\n" + block1, want: Installed},
		{name: "no newline at the end", before: "10.9.0.0/16 via 10.20.0.2", routes: []string{route1},
			after: "10.9.0.0/16 via 10.20.0.2\n" + strings.Replace(block1, "\n", "\n"+joinMark+"\n", 1), want: Installed},
		{name: "CR LF lines keep theirs", before: "# mine\r\n10.9.0.0/16 via 10.20.0.2\r\n", routes: []string{route1},
			after: "# mine\r\n10.9.0.0/16 via 10.20.0.2\r\n" + block1, want: Installed},
		{name: "already there", before: "# mine\n" + block1, routes: []string{route1}, after: "# mine\n" + block1, want: Unchanged, back: "# mine\n"},
		{name: "old block gives way in its place", before: "# a\n" + strings.Replace(block1, "10.20.0.1", "10.20.0.9", 1) + "# b\n", routes: []string{route1},
			after: "# a\n" + block1 + "# b\n", want: Installed, back: "# a\n# b\n"},
		{name: "block turned to CR LF by an editor", before: strings.ReplaceAll(block1, "\n", "\r\n"), routes: []string{route1},
			after: block1, want: Installed, back: "<empty>"},
		{name: "second block of the same interface", before: block1 + "# a\n" + block1, routes: []string{route1},
			after: block1 + "# a\n", want: Installed, back: "# a\n"},
		{name: "block of another interface stays", before: block2, routes: []string{route1}, after: block2 + block1, want: Installed},
		{name: "the user's own line", before: "20.20.20.0/24  metric 200 via 10.20.0.1\n", routes: []string{route1},
			after: "20.20.20.0/24  metric 200 via 10.20.0.1\n", want: Kept},
		{name: "the user's own line has come", before: route1 + "\n" + block1, routes: []string{route1},
			after: route1 + "\n", want: Kept, back: route1 + "\n"},
		{name: "the user's own ADDRESSn", before: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.20.0.1\n", routes: []string{"10.9.0.0/16 via 10.20.0.1"},
			after: "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.20.0.1\n", want: Kept},
		{name: "a similar line is another route", before: "20.20.20.0/24 via 10.20.0.1 metric 201\n", routes: []string{route1},
			after: "20.20.20.0/24 via 10.20.0.1 metric 201\n" + block1, want: Installed},
		{name: "a comment is no line", before: "# " + route1 + "\n", routes: []string{route1}, after: "# " + route1 + "\n" + block1, want: Installed},
		{name: "default route, no metric", before: "", routes: []string{"default via 10.20.0.1"},
			after: strings.Replace(block1, route1, "default via 10.20.0.1 dev eno1", 1), want: Installed, back: "<empty>"},
		{name: "no route is no block", before: "# mine\n" + block1, routes: nil, after: "# mine\n", back: "# mine\n"},
		{name: "user wrote into a made file", before: madeMark + "\n" + block1 + "10.9.0.0/16 via 10.20.0.2\n", routes: []string{route1},
			after: madeMark + "\n" + block1 + "10.9.0.0/16 via 10.20.0.2\n", want: Unchanged, back: "10.9.0.0/16 via 10.20.0.2\n"},
		{name: "user wrote behind a joined block", before: "a\n" + strings.Replace(block1, "\n", "\n"+joinMark+"\n", 1) + "b", routes: []string{route1},
			after: "a\n" + strings.Replace(block1, "\n", "\n"+joinMark+"\n", 1) + "b", want: Unchanged, back: "a\nb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := &tt.before
			if tt.before == "<absent>" {
				text = nil
			}
			in, file := scripts(t, text)
			f := fallbackOf(t, tt.routes...)
			for try, want := range []Outcome{tt.want, Unchanged} {
				before, _ := os.Stat(file)
				rep, err := in.Install(t.Context(), "ib0", f)
				if err != nil {
					t.Fatal(err)
				}
				if got := content(t, file); got != tt.after {
					t.Errorf("after Install:\n%s\nwant\n%s", got, tt.after)
				}
				if tt.want == Kept {
					want = Kept
				}
				if len(rep.Routes) > 0 && rep.Routes[0].Persist != want {
					t.Errorf("try %d: outcome %q, want %q", try+1, rep.Routes[0].Persist, want)
				}
				if after, _ := os.Stat(file); want == Unchanged && !os.SameFile(before, after) {
					t.Error("the file was written although nothing changed")
				}
			}
			if st, err := in.State("ib0", f); err != nil || (len(st.Routes) > 0 && st.Routes[0].Persist != map[bool]Outcome{true: Kept, false: Installed}[tt.want == Kept]) {
				t.Errorf("state %+v, %v", st.Routes, err)
			}
			rep, err := in.Withdraw(t.Context(), "ib0", f)
			if err != nil {
				t.Fatal(err)
			}
			if len(rep.Routes) > 0 && tt.want != Kept && rep.Routes[0].Persist != Removed {
				t.Errorf("outcome of Withdraw %q", rep.Routes[0].Persist)
			}
			back := tt.back
			switch back {
			case "":
				back = tt.before
			case "<empty>":
				back = ""
			}
			if got := content(t, file); got != back {
				t.Errorf("after Withdraw %q, want %q", got, back)
			}
		})
	}
}

// Blocks of several interfaces in one file come and go in any order.
func TestTwoInterfaces(t *testing.T) {
	for _, before := range []string{"<absent>", "", "# a\n", "# a", "# a\r\n\r\n"} {
		for _, order := range [][]string{{"ib0", "ib1"}, {"ib1", "ib0"}} {
			text := &before
			if before == "<absent>" {
				text = nil
			}
			in, file := scripts(t, text)
			f := fallbackOf(t, route1)
			for _, iface := range []string{"ib0", "ib1"} {
				if _, err := in.Install(t.Context(), iface, f); err != nil {
					t.Fatal(err)
				}
			}
			got := content(t, file)
			if strings.Count(got, route1) != 2 {
				t.Errorf("%q: not one route for each interface:\n%s", before, got)
			}
			for _, iface := range order {
				if _, err := in.Withdraw(t.Context(), iface, f); err != nil {
					t.Fatal(err)
				}
			}
			if got := content(t, file); got != before {
				t.Errorf("withdrawn in order %v: %q, want %q", order, got, before)
			}
		}
	}
}

// A fallback that moved to another device leaves no block behind.
func TestMovedDevice(t *testing.T) {
	in, file := scripts(t, nil)
	for _, route := range []string{route1, "20.20.20.0/24 via 10.30.0.1 dev eno2", "2001:db8::/64 via fe80::1 dev eno2"} {
		if _, err := in.Install(t.Context(), "ib0", fallbackOf(t, route)); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, file); got != "<absent>" {
		t.Errorf("route-eno1 still holds %q", got)
	}
	if got := content(t, filepath.Join(filepath.Dir(file), "route-eno2")); got != "<absent>" {
		t.Errorf("route-eno2 still holds %q", got)
	}
	if got := content(t, filepath.Join(filepath.Dir(file), "route6-eno2")); !strings.Contains(got, "\n2001:db8::/64 via fe80::1 dev eno2\n") {
		t.Errorf("route6-eno2 holds %q", got)
	}
	f := fallbackOf(t)
	f.Persist = false
	if _, err := in.Install(t.Context(), "ib0", f); err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(filepath.Dir(file), "route6-eno2")); got != "<absent>" {
		t.Errorf("Persist=no left %q", got)
	}
}

func TestRefusedFile(t *testing.T) {
	addr := "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.20.0.2\nMETRIC0=5\nADDRESS1='10.10.0.7'\nNETMASK1=255.255.255.255\nADDRESS3=10.11.0.0\n"
	tests := []struct {
		name, text string
		kind       error
		message    []string
	}{
		{"ADDRESSn", "# net\n" + addr, ErrAddressSyntax, []string{"route-eno1:2: ", "cannot carry a metric",
			"\n    10.9.0.0/16 via 10.20.0.2 dev eno1\n    10.10.0.7/32 dev eno1"}},
		{"ADDRESSn that a shell must work out", "ADDRESS0=$NET\n", ErrAddressSyntax, []string{"route-eno1:1: ", "line 1 is no plain assignment"}},
		{"BEGIN without END", "# a\n# BEGIN ibup ib0\n" + route1 + "\n", ErrDamagedBlock, []string{"route-eno1:2: the block of ib0 has no END", "delete the damaged"}},
		{"BEGIN twice", "# BEGIN ibup ib0\n# BEGIN ibup ib0\n# END ibup ib0\n", ErrDamagedBlock, []string{"route-eno1:1: "}},
		{"END without BEGIN", block1 + "# END ibup ib0\n", ErrDamagedBlock, []string{"route-eno1:5: END without BEGIN"}},
		{"END of another", "# BEGIN ibup ib0\n# END ibup ib1\n", ErrDamagedBlock, []string{"route-eno1:2: END of ib1 in the block of ib0"}},
		{"BEGIN of nobody", "# BEGIN ibup\n", ErrDamagedBlock, []string{"route-eno1:1: BEGIN names no interface"}},
		{"backslash at the end", "# a\n10.9.0.0/16 \\\n", nil, []string{"route-eno1:2: ends in a backslash"}},
		{"too large", strings.Repeat("# long\n", maxSize/7+1), nil, []string{"larger than 1048576 bytes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, file := scripts(t, &tt.text)
			rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1))
			if err == nil || (tt.kind != nil && !errors.Is(err, tt.kind)) || rep.Routes[0].Persist != Failed {
				t.Fatalf("error %v, outcome %q", err, rep.Routes[0].Persist)
			}
			for _, m := range tt.message {
				if !strings.Contains(err.Error(), m) {
					t.Errorf("error %q lacks %q", err, m)
				}
			}
			if got := content(t, file); got != tt.text {
				t.Errorf("the file changed to %q", got)
			}
		})
	}
}

// A block that cannot be taken out of another device's file is reported.
func TestLeftBehind(t *testing.T) {
	in, file := scripts(t, nil)
	write(t, filepath.Join(filepath.Dir(file), "route-eno2"), "# BEGIN ibup ib0\n")
	rep, err := in.Install(t.Context(), "ib0", fallbackOf(t, route1))
	if !errors.Is(err, ErrDamagedBlock) || !strings.Contains(err.Error(), "route-eno2:1: ") || rep.Routes[0].Persist != Installed {
		t.Errorf("%v, %v", rep.Routes[0], err)
	}
}

// A damaged block elsewhere is nobody's business while the interface has none.
func TestWithdrawPastDamage(t *testing.T) {
	text := "# BEGIN ibup ib7\n"
	in, _ := scripts(t, &text)
	if _, err := in.Withdraw(t.Context(), "ib0", fallbackOf(t, route1)); err != nil {
		t.Error(err)
	}
	if _, err := in.Withdraw(t.Context(), "ib7", fallbackOf(t, route1)); !errors.Is(err, ErrDamagedBlock) {
		t.Errorf("error %v", err)
	}
}

// FuzzRouteFile: Install, Install and Withdraw give back the original bytes,
// whatever they were, or refuse and change nothing.
func FuzzRouteFile(f *testing.F) {
	for _, s := range []string{"", "\n", "a", "a\r\n", "# x\n" + route1 + "\n", block2, "ADDRESS0=1\n", "a\x00b\n\n", block2 + "z", "\\\n"} {
		f.Add([]byte(s), []byte(s))
	}
	fb := fallbackOf(f, route1)
	wishes := []wish{{line: fb.Routes[0].String()}}
	f.Fuzz(func(t *testing.T, data, behind []byte) {
		if bytes.Contains(data, []byte(beginMark+"ib0")) || bytes.HasPrefix(data, []byte(madeMark)) || bytes.Contains(data, []byte(joinMark)) {
			t.Skip() // has been ibup's already
		}
		Lint(ScriptsDir+"/route-eno1", data)
		once, exists, err := edit(data, true, "ib0", wishes)
		if err != nil {
			return
		}
		if !exists || !bytes.Contains(once, []byte("\n"+route1+"\n# END ibup ib0\n")) {
			t.Fatalf("no block in %q", once)
		}
		twice, _, err := edit(once, true, "ib0", wishes)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("second edit of %q: %q, %v", once, twice, err)
		}
		back, _, err := edit(twice, true, "ib0", nil)
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q came back as %q, %v", data, back, err)
		}
		// Somebody adds lines behind the block: all but the block stays.
		if len(behind) == 0 || behind[0] == '#' {
			return
		}
		grown := append(bytes.Clone(once), behind...)
		back, _, err = edit(grown, true, "ib0", nil)
		if err == nil && !bytes.Contains(behind, []byte("# BEGIN ibup")) && !bytes.HasSuffix(back, behind) {
			t.Fatalf("%q lost lines: %q", grown, back)
		}
	})
}

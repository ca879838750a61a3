package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// failsWith loads a machine and compares all that is wrong with it.
func failsWith(t *testing.T, root, cmdline string, want ...string) Set {
	t.Helper()
	set, err := Load(root, cmdline)
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	return set
}

func names(set Set) string {
	var out []string
	for _, c := range set.Interfaces {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

// What is no file is refused at once: opening a FIFO would wait for a writer.
func TestNotAFile(t *testing.T) {
	at := func(root string) string { return filepath.Join(root, "etc/ibup/ib0.conf") }
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string) error
		want string
	}{
		{"FIFO", func(_ *testing.T, p string) error { return unix.Mkfifo(p, 0o644) }, "cannot be read: is a FIFO, not a file"},
		{"directory", func(_ *testing.T, p string) error { return os.Mkdir(p, 0o755) }, "cannot be read: is a directory, not a file"},
		{"device", func(_ *testing.T, p string) error { return os.Symlink("/dev/zero", p) }, "cannot be read: is a device, not a file"},
		{"link to nothing", func(_ *testing.T, p string) error { return os.Symlink("nothing", p) }, "cannot be read: no such file or directory"},
		{"link to itself", func(_ *testing.T, p string) error { return os.Symlink("ib0.conf", p) }, "cannot be read: too many levels of symbolic links"},
		{"socket", func(_ *testing.T, p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o644, 0) }, "cannot be read: no such device or address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := machine(t, map[string]string{"etc/ibup/ib1.conf": ""})
			if err := c.make(t, at(root)); err != nil {
				t.Fatal(err)
			}
			set := failsWith(t, root, "", "/etc/ibup/ib0.conf: "+c.want)
			if names(set) != "ib1" || !slices.Equal(set.Refused, []string{"ib0"}) {
				t.Errorf("interfaces %s, refused %v", names(set), set.Refused)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	root := machine(t, map[string]string{"etc/ibup/ib0.conf": ""})
	if err := os.Chmod(filepath.Join(root, "etc/ibup/ib0.conf"), 0); err != nil {
		t.Fatal(err)
	}
	failsWith(t, root, "", "/etc/ibup/ib0.conf: cannot be read: permission denied; try as root")
}

// Somebody asked for something that cannot be read: the default would be wrong.
func TestDirectory(t *testing.T) {
	set := failsWith(t, machine(t, map[string]string{"etc/ibup": "x"}), "",
		"/etc/ibup: cannot be read: not a directory; make it a directory with a file <interface>.conf for each interface")
	if len(set.Interfaces) > 0 {
		t.Errorf("%+v", set)
	}
}

func TestNames(t *testing.T) {
	root := machine(t, map[string]string{
		"etc/ibup/ib0.8001.conf":         "",
		"etc/ibup/fifteen-letters.conf":  "",
		"etc/ibup/sixteen-letters_.conf": "",
		"etc/ibup/ib 1.conf":             "",
		"etc/ibup/..conf":                "",
		"etc/ibup/...conf":               "",
		"etc/ibup/.conf":                 "",
		"etc/ibup/all.conf":              "",
		"etc/ibup/ib%d.conf":             "",
		"etc/ibup/ib0:1.conf":            "",
		"etc/ibup/ïb0.conf":              "",
		"etc/ibup/ib\x1b[2J.conf":        "",
		"etc/ibup/nodes":                 "",
	})
	const hint = "; name the file <interface>.conf, such as ib0.conf"
	set := failsWith(t, root, "",
		`/etc/ibup/.conf: no interface name before .conf`+hint,
		`/etc/ibup/all.conf: "all" cannot be an interface`+hint,
		`/etc/ibup/ib 1.conf: "ib 1": an interface name has no blanks, no / : % and only ASCII`+hint,
		`/etc/ibup/ib%d.conf: "ib%d": an interface name has no blanks, no / : % and only ASCII`+hint,
		`/etc/ibup/ib0:1.conf: "ib0:1": an interface name has no blanks, no / : % and only ASCII`+hint,
		`/etc/ibup/ib\x1b[2J.conf: "ib\x1b[2J": an interface name has no blanks, no / : % and only ASCII`+hint,
		`/etc/ibup/sixteen-letters_.conf: "sixteen-letters_": the interface name has 16 bytes, the kernel takes at most 15`+hint,
		`/etc/ibup/ïb0.conf: "ïb0": an interface name has no blanks, no / : % and only ASCII`+hint,
	)
	if names(set) != "fifteen-letters ib0.8001" {
		t.Errorf("interfaces %s", names(set))
	}
}

func TestOrder(t *testing.T) {
	files := map[string]string{}
	for _, n := range []string{"ib10", "ib2", "ib02", "ib1", "ib0.8001", "a", "ib0"} {
		files["etc/ibup/"+n+".conf"] = ""
	}
	files["etc/ibup/ib7.conf"] = "[Match]\nPort=1\n"
	files["etc/ibup/ib9.conf"] = "[Match]\nPortGUID=506b4b0300a10009\n"
	files["etc/ibup/ib8.conf"] = "[Match]\nPCI=3b:00.0\n"
	set, err := Load(machine(t, files), "")
	if want := "ib8 ib9 a ib0 ib0.8001 ib1 ib2 ib02 ib7 ib10"; err != nil || names(set) != want {
		t.Errorf("%s, %v\nwant %s", names(set), err, want)
	}
}

func TestLongLines(t *testing.T) {
	long := "#" + strings.Repeat("x", maxLine-1)
	failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": long + "\n" + long + "x\n[Boot]\nTimeout=0\n"}), "",
		"/etc/ibup/ib0.conf:2: the line has 4097 bytes, at most 4096 are read; make it shorter",
		"/etc/ibup/ib0.conf:4: Boot.Timeout: 0 is shorter than a second; write a time from 1s to 1h, such as Timeout=60s or Timeout=2min")
	failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": "[Boot]\nTimeout=" + strings.Repeat("9", 1<<20-20) + "\n"}), "",
		"/etc/ibup/ib0.conf:2: the line has 1048564 bytes, at most 4096 are read; make it shorter")
}

// A value of 4000 bytes does not fill the screen.
func TestLongValue(t *testing.T) {
	for _, k := range keys() {
		text := "[" + k.section + "]\n" + k.name + "=" + strings.Repeat("x", 4000) + "\n"
		_, err := Load(machine(t, map[string]string{"etc/ibup/ib0.conf": text}), "")
		if err == nil || len(err.Error()) > 700 {
			t.Errorf("%s: %v", k.id(), err)
		}
	}
}

// A huge file costs no more memory than the limit, and few errors.
func TestHuge(t *testing.T) {
	root := machine(t, map[string]string{"etc/ibup/ib0.conf": ""})
	f, err := os.OpenFile(filepath.Join(root, "etc/ibup/ib0.conf"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Repeat("junk\n", 1<<18)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Load(root, "")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("took %d MiB", n>>20)
	}
	list, _ := err.(Errors)
	if len(list) != maxErrors+2 || !strings.Contains(err.Error(), "/etc/ibup/ib0.conf: larger than 1024 KiB; is this a file of ibup's?") ||
		!strings.Contains(err.Error(), "/etc/ibup/ib0.conf:51: more mistakes from here on; ") {
		t.Errorf("%d errors: %v", len(list), err)
	}
}

func TestManyValues(t *testing.T) {
	text := "[Verify]\n" + strings.Repeat("Ping=20.20.20.107\n", maxValues+1)
	failsWith(t, machine(t, map[string]string{"etc/ibup/ib0.conf": text}), "", "/etc/ibup/ib0.conf:66: Verify.Ping: more than 64 values; write fewer")
}

// An empty value takes back a list, as with systemd.
func TestReset(t *testing.T) {
	set, err := Load(machine(t, map[string]string{"etc/ibup/ib0.conf": "[Network]\nAddress=10.0.0.1/8\nAddress=\nAddress=20.20.20.109/24\n[IPoIB]\nPKey=\nMTU=\nMode=\n"}), "")
	if err != nil {
		t.Fatal(err)
	}
	c := set.Interfaces[0]
	if got := stringsOf(c.Network.Addresses); !slices.Equal(got, []string{"20.20.20.109/24"}) || c.IPoIB != (IPoIB{PKey: 0xffff}) ||
		!slices.Equal(c.Origin["Network.Address"], []Origin{{"/etc/ibup/ib0.conf", 4}}) || len(c.Origin) != 1 {
		t.Errorf("%+v", c)
	}
}

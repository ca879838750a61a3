package udev

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

const added = "add@/devices/pci0000:00/0000:00:01.0\x00" +
	"ACTION=add\x00DEVPATH=/devices/pci0000:00/0000:00:01.0\x00SUBSYSTEM=pci\x00" +
	"PCI_CLASS=20700\x00PCI_ID=15B3:1017\x00MODALIAS=pci:v000015B3d00001017sv000015B3sd00000008bc02sc07i00\x00SEQNUM=1180\x00"

func TestParseKernel(t *testing.T) {
	ev, err := parseKernel([]byte(added))
	if err != nil {
		t.Fatal(err)
	}
	if ev.Action != Add || ev.Devpath != "/devices/pci0000:00/0000:00:01.0" || ev.Subsystem != "pci" || ev.Seqnum != 1180 {
		t.Errorf("parseKernel = %+v", ev)
	}
	if got := ev.Env["PCI_ID"]; got != "15B3:1017" {
		t.Errorf("PCI_ID = %q", got)
	}
	if len(ev.Env) != 7 {
		t.Errorf("properties: %v", slices.Sorted(maps.Keys(ev.Env)))
	}
}

func TestParseKernelCases(t *testing.T) {
	props := "ACTION=add\x00DEVPATH=/d\x00SEQNUM=1\x00"
	tests := []struct {
		name, msg string
		ok        bool
		key, want string
	}{
		{"value with '='", "add@/d\x00" + props + "A=b=c=\x00", true, "A", "b=c="},
		{"empty value", "add@/d\x00" + props + "A=\x00", true, "A", ""},
		{"no subsystem", "add@/d\x00" + props, true, "SUBSYSTEM", ""},
		{"no assignment is left out", "add@/d\x00" + props + "ERROR\x00", true, "ERROR", ""},
		{"empty key is left out", "add@/d\x00" + props + "=x\x00", true, "", ""},
		{"largest number", "add@/d\x00ACTION=add\x00DEVPATH=/d\x00SEQNUM=18446744073709551615\x00", true, "ACTION", "add"},
		{"empty", "", false, "", ""},
		{"header only", "add@/d\x00", false, "", ""},
		{"header not ended", "add@/d", false, "", ""},
		{"no action", "@/d\x00" + props, false, "", ""},
		{"no path", "add@\x00" + props, false, "", ""},
		{"relative path", "add@d\x00" + props, false, "", ""},
		{"action differs", "remove@/d\x00" + props, false, "", ""},
		{"path differs", "add@/e\x00" + props, false, "", ""},
		{"properties not ended", "add@/d\x00" + strings.TrimSuffix(props, "\x00"), false, "", ""},
		{"no number", "add@/d\x00ACTION=add\x00DEVPATH=/d\x00", false, "", ""},
		{"negative number", "add@/d\x00ACTION=add\x00DEVPATH=/d\x00SEQNUM=-1\x00", false, "", ""},
		{"udevd's format", string(udevMessage(props)), false, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := parseKernel([]byte(tt.msg))
			if (err == nil) != tt.ok {
				t.Fatalf("error = %v, want ok = %v", err, tt.ok)
			}
			if err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("error %v is not errMalformed", err)
			}
			if got := ev.Env[tt.key]; got != tt.want {
				t.Errorf("%s = %q, want %q", tt.key, got, tt.want)
			}
		})
	}
}

// udevMessage builds a message as udevd sends it.
func udevMessage(props string) []byte {
	b := make([]byte, udevHeader, udevHeader+len(props))
	copy(b, udevPrefix)
	binary.BigEndian.PutUint32(b[8:], udevMagic)
	binary.NativeEndian.PutUint32(b[12:], udevHeader)
	binary.NativeEndian.PutUint32(b[16:], udevHeader)
	binary.NativeEndian.PutUint32(b[20:], uint32(len(props)))
	return append(b, props...)
}

func TestParseUdev(t *testing.T) {
	props := "ACTION=add\x00DEVPATH=/d\x00SUBSYSTEM=net\x00SEQNUM=7\x00INTERFACE=ib0\x00"
	set := func(at int, v uint32) []byte {
		b := udevMessage(props)
		binary.NativeEndian.PutUint32(b[at:], v)
		return b
	}
	tests := []struct {
		name string
		msg  []byte
		ok   bool
	}{
		{"good", udevMessage(props), true},
		{"empty", nil, false},
		{"short", udevMessage(props)[:39], false},
		{"prefix", append([]byte("libudev-"), udevMessage(props)[8:]...), false},
		{"magic", set(8, 0), false},
		{"magic in host order", set(8, udevMagic), false},
		{"header too small", set(12, 39), false},
		{"properties inside the header", set(16, 8), false},
		{"properties behind the end", set(16, 4096), false},
		{"length behind the end", set(20, uint32(len(props)+1)), false},
		{"sum overflows", set(20, 0xffffffff), false},
		{"no properties", set(20, 0), false},
		{"cut in a property", set(20, uint32(len(props)-1)), false},
		{"kernel's format", []byte("add@/d\x00" + props), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := parseUdev(tt.msg)
			if (err == nil) != tt.ok {
				t.Fatalf("error = %v, want ok = %v", err, tt.ok)
			}
			if tt.ok && (ev.Env["INTERFACE"] != "ib0" || ev.Seqnum != 7) {
				t.Errorf("event %+v", ev)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(added))
	f.Add([]byte("change@/d\x00ACTION=change\x00DEVPATH=/d\x00SEQNUM=1\x00=\x00\x00A=b=c\x00"))
	f.Add(udevMessage("ACTION=add\x00DEVPATH=/d\x00SEQNUM=7\x00"))
	f.Add([]byte("libudev\x00\xfe\xed\xca\xfe\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (Event, error){parseKernel, parseUdev} {
			ev, err := parse(b)
			if err != nil {
				if !errors.Is(err, errMalformed) || ev.Env != nil {
					t.Errorf("parse = %+v, %v", ev, err)
				}
				continue
			}
			if ev.Action == "" || !strings.HasPrefix(ev.Devpath, "/") {
				t.Errorf("accepted %+v", ev)
			}
			for k := range ev.Env {
				if k == "" || strings.ContainsAny(k, "=\x00") {
					t.Errorf("key %q", k)
				}
			}
		}
	})
}

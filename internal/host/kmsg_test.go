package host

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRecord(t *testing.T) {
	tests := []struct {
		record string
		at     time.Duration
		text   string
		ok     bool
	}{
		{"6,339,5140900,-;NET: Registered\n SUBSYSTEM=x\n", 5140900 * time.Microsecond, "NET: Registered", true},
		{"6,339,5140900,-,caller=T1;text", 5140900 * time.Microsecond, "text", true},
		{"3,1,7,c;part; with; semicolons", 7 * time.Microsecond, "part; with; semicolons", true},
		{`4,1,7,-;tab\x09 and \x5c`, 7 * time.Microsecond, "tab\t and \\", true},
		{`4,1,7,-;broken \x5`, 7 * time.Microsecond, `broken \x5`, true},
		{`4,1,7,-;broken \xzz`, 7 * time.Microsecond, `broken \xzz`, true},
		{"7,0,0,-;", 0, "", true},
		{"14,1,7,-;a process wrote this", 0, "", false},
		{"30,1,7,-;systemd wrote this", 0, "", false},
		{"6,1;text", 0, "", false},
		{"x,1,7,-;text", 0, "", false},
		{"6,1,-7,-;text", 0, "", false},
		{"6,1,9223372036854775807,-;text", 0, "", false},
		{"no record", 0, "", false},
		{"", 0, "", false},
	}
	for _, tt := range tests {
		at, text, ok := parseRecord([]byte(tt.record))
		if at != tt.at || text != tt.text || ok != tt.ok {
			t.Errorf("parseRecord(%q) = %v, %q, %v", tt.record, at, text, ok)
		}
	}
}

func TestFromSyslog(t *testing.T) {
	in := "<6>[    5.140900] mlx5_core 0000:3b:00.0: firmware version: 16.35.2000\n" +
		"<14>[    6.000000] a process wrote this\n" +
		"<6>no time\n" +
		"half a line"
	want := []string{"5.1409s mlx5_core 0000:3b:00.0: firmware version: 16.35.2000"}
	var got []string
	src := newStored(fromSyslog([]byte(in)))
	for {
		b, err := src.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, text, ok := parseRecord(b); ok {
			got = append(got, fmt.Sprint(at, " ", text))
		}
	}
	same(t, "lines", got, want)
}

func TestKernelLogBegin(t *testing.T) {
	const late = "[ibup]\nkmsg <<\n6,900,3600000000,-;mlx5_core 0000:3b:00.0: device's health compromised - reached miss count\n>>\n"
	s := read(t, text(t, "el7"), late)
	if len(s.Incomplete) != 1 || s.Incomplete[0].What != "kernel log" || !strings.Contains(s.Incomplete[0].Why, "1h0m0s") {
		t.Errorf("gaps %+v", s.Incomplete)
	}
}

// TestTail writes to the kernel log, where a process's line is none of the kernel's.
func TestTail(t *testing.T) {
	const line = "mlx5_core 0000:3b:00.0: Missing registers BAR, aborting"
	tail, err := OpenTail()
	if err != nil {
		needRoot(t, err)
	}
	defer tail.Close()
	raw, err := OpenTail()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := os.WriteFile("/dev/kmsg", []byte("<3>"+line), 0); err != nil {
		needRoot(t, err)
	}
	for {
		b, err := raw.log.src.next()
		if err != nil {
			t.Fatalf("the line did not arrive: %v", err)
		}
		if strings.Contains(string(b), line) {
			break
		}
	}
	for _, l := range tail.Lines() {
		if l.Kind == NoBAR {
			t.Errorf("a process's line counts: %+v", l)
		}
	}
}

func needRoot(t *testing.T, err error) {
	t.Helper()
	if os.Geteuid() == 0 || os.Getenv("IBUP_CI") == "1" {
		t.Fatal(err)
	}
	t.Skipf("needs root: %v", err)
}

func TestSecondReadContinues(t *testing.T) {
	var l kernelLog
	src := &queue{}
	l.open = func() (recordReader, error) { return src, nil }
	src.records = []string{"6,1,1000000,-;ib0: P_Key 0x8001 is not found"}
	l.read()
	first := l.lines
	src.records = []string{"6,2,2000000,-;ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready"}
	l.read()
	if len(first) != 1 || len(l.lines) != 2 || l.lines[1].Kind != LinkReady {
		t.Errorf("lines %+v", l.lines)
	}
}

type queue struct{ records []string }

func (q *queue) next() ([]byte, error) {
	if len(q.records) == 0 {
		return nil, io.EOF
	}
	r := q.records[0]
	q.records = q.records[1:]
	return []byte(r), nil
}

func (q *queue) Close() error { return nil }

func FuzzKmsg(f *testing.F) {
	f.Add([]byte("6,700,5140900,-;mlx5_core 0000:3b:00.0: firmware version: 16.35.2000\n"))
	f.Add([]byte("3,1,2,-;mlx5_core: probe of 0000:3b:00.0 failed with error -5"))
	f.Add([]byte("3,1,2,-;mlx5_core 0000:3b:00.0: mlx5_load_one failed with error code: -5 x"))
	f.Add([]byte("3,1,2,-;infiniband mlx5_0: Couldn't open port 1"))
	f.Add([]byte("3,1,2,-;IPv6: ADDRCONF(NETDEV_UP): ib0: link is not ready"))
	f.Add([]byte("3,1,2,-;ib0: P_Key 0x8001 is not found"))
	f.Add([]byte(`3,1,2,-;\x0a\xff`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s says
		at, text, ok := parseRecord(b)
		if !ok {
			return
		}
		s.add(at, text)
		s.add(at, text)
		for _, l := range s.lines {
			if l.Kind == "" || l.Text != text || l.BDF != "" && !IsBDF(l.BDF) {
				t.Errorf("line %+v", l)
			}
			if p := s.probe(PCIFunction{BDF: l.BDF}); p != nil && p.Errno < 0 {
				t.Errorf("probe %+v", p)
			}
		}
	})
}

func FuzzAttributes(f *testing.F) {
	for _, s := range []string{
		"0002:c903:00a1:b2c3", "fe80:0000:0000:0000:506b:4b03:00c3:d1a2", "4: ACTIVE", "0x1", "350735.47 234388.90",
		"0x0000383ffe000000 0x0000383fffffffff 0x000000000014220c", "80:00:00:67", `36 35 98:0 /mnt1 / rw - ext3 /dev/\040 rw`,
		"../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/ib0", `\777\04`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parseGUID(s)
		parseModules([]byte(s))
		parseLID(s)
		afterColon(s)
		assigned(s)
		if parseUptime(s) < 0 {
			t.Errorf("negative uptime of %q", s)
		}
		if bdf := lastBDF(s); bdf != "" && (!IsBDF(bdf) || !strings.Contains(s, bdf)) {
			t.Errorf("lastBDF(%q) = %q", s, bdf)
		}
		var a HWAddr
		if err := a.UnmarshalText([]byte(s)); err == nil && !strings.EqualFold(a.String(), s) {
			t.Errorf("%q becomes %q", s, a)
		}
		for _, m := range parseMountinfo([]byte(s)) {
			if m.FSType == "" {
				t.Errorf("mount %+v", m)
			}
		}
	})
}

func TestIsBDF(t *testing.T) {
	for s, want := range map[string]bool{
		"0000:3b:00.0": true, "10000:01:00.7": true, "00000001:01:00.0": true,
		"": false, "3b:00.0": false, "0000:3b:00.8": false, "0000:3B:00.0": false, "0000-3b:00.0": false,
		"000000000:3b:00.0": false, "0000:3b:00.0 ": false,
	} {
		if got := IsBDF(s); got != want {
			t.Errorf("IsBDF(%q) = %v", s, got)
		}
	}
}

func TestReadNetOfThisMachine(t *testing.T) {
	d, err := Netlink{}.ReadNet(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	lo := slices.IndexFunc(d.Links, func(l Link) bool { return l.Name == "lo" })
	if lo < 0 {
		t.Fatalf("no lo in %+v", d.Links)
	}
	if l := d.Links[lo]; l.Up && !slices.Contains(l.Addrs, Addr{Prefix: netip.MustParsePrefix("127.0.0.1/8")}) {
		t.Errorf("addresses of lo: %v", l.Addrs)
	}
}

package control

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
)

var _ HCA = (*hca.HCA)(nil)

// recorder is an HCA that writes down what is done to it.
type recorder struct {
	HCA
	did []string
}

func (r *recorder) note(format string, args ...any) {
	r.did = append(r.did, fmt.Sprintf(format, args...))
}

func (r *recorder) SetLinkType(t fabric.LinkType) error { r.note("link %v", t); return nil }
func (r *recorder) SetInitializing(d time.Duration)     { r.note("initializing %v", d) }
func (r *recorder) SetDead(on bool)                     { r.note("dead %v", on) }
func (r *recorder) SetStuckHealth(on bool)              { r.note("stuck %v", on) }
func (r *recorder) SetHealthSyndrome(s uint8)           { r.note("syndrome %d", s) }
func (r *recorder) SetFirmwareVersion(v string) error   { r.note("firmware %s", v); return nil }
func (r *recorder) FailCommand(o hca.Opcode, s hca.Status, n int) {
	r.note("fail %v with %v, %d times", o, s, n)
}
func (r *recorder) HangCommand(o hca.Opcode, n int) { r.note("hang %v, %d times", o, n) }
func (r *recorder) ModuleEvent(s hca.ModuleStatus, e hca.ModuleErrorType) {
	r.note("module %d %d", s, e)
}
func (r *recorder) TemperatureWarning()                { r.note("temperature") }
func (r *recorder) SlotPower(p hca.PCIPower, w uint16) { r.note("power %d %d W", p, w) }
func (r *recorder) LastCommands(n int) []string        { return []string{fmt.Sprint("last ", n)} }
func (r *recorder) Violations() []string               { return []string{"owner bit"} }
func (r *recorder) Reset()                             { r.note("reset") }

type sink struct{}

func (sink) Receive(fabric.Packet)     {}
func (sink) PortChanged(fabric.Change) {}

// bench is a fabric with one port, an HCA that records, and a client.
func bench(t *testing.T) (*fabric.Fabric, *fabric.Port, *recorder, *Server, *Client) {
	t.Helper()
	f := fabric.New(fabric.Options{})
	t.Cleanup(f.Close)
	port, err := f.Attach(fabric.PortConfig{Name: "hca0", GUID: 0x506b4b0300a10000}, sink{})
	if err != nil {
		t.Fatal(err)
	}
	s, r := New(f), &recorder{}
	s.AddHCA("hca0", r, func() error { r.note("kill"); return nil })
	path := filepath.Join(t.TempDir(), "ctl")
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return f, port, r, s, c
}

// TestFabricCommands runs requests one after the other and looks at what they
// did.
func TestFabricCommands(t *testing.T) {
	f, port, _, _, c := bench(t)
	var i fabric.PortInfo
	for _, step := range []struct {
		do   string
		args Args
		want func() bool
	}{
		{"sm", Args{"mode": "absent"}, func() bool { return i.State == fabric.StateInit && i.LID == 0 }},
		{"sm", Args{"mode": "late", "after": "1h"}, func() bool { return i.State == fabric.StateInit }},
		{"sm", Args{"mode": "Present"}, func() bool { return i.State == fabric.StateActive && i.LID == 2 }},
		{"sm", Args{"mode": "gone"}, func() bool { return i.State == fabric.StateActive && !i.SMPresent }},
		{"sm", Args{"mode": "present"}, func() bool { return i.SMPresent }},
		{"sa", Args{"answer": false}, func() bool { return true }},
		{"sa", Args{"answer": true}, func() bool { return true }},
		{"reregister", nil, func() bool { return true }},
		{"phys", Args{"port": "hca0", "state": "Polling"}, func() bool { return i.Phys == fabric.PhysPolling && i.State == fabric.StateDown }},
		{"phys", Args{"port": "506b:4b03:00a1:0000", "state": "LinkUp"}, func() bool { return i.State == fabric.StateActive }},
		{"logical", Args{"port": "hca0", "state": "armed"}, func() bool { return i.State == fabric.StateArmed }},
		{"logical", Args{"port": "hca0", "state": "auto"}, func() bool { return i.State == fabric.StateActive }},
		{"pkeys", Args{"port": "hca0", "table": []any{"0x7fff", 0, 0x8002}}, func() bool { return slices.Equal(i.PKeys[:4], []uint16{0x7fff, 0, 0x8002, 0}) }},
		{"pkeys", Args{"port": "hca0", "table": []any{}}, func() bool { return i.PKeys[0] == 0 }},
		{"pkeys", Args{"port": "hca0"}, func() bool { return i.PKeys[0] == 0xffff }},
		{"prefix", Args{"port": "hca0", "prefix": "0xfec0000000000000"}, func() bool { return i.Prefix == 0xfec0<<48 }},
		{"prefix", Args{"port": "hca0", "prefix": 0}, func() bool { return i.Prefix == fabric.DefaultPrefix }},
		{"prefix", Args{"prefix": "0xfec0000000000001"}, func() bool { return i.Prefix == 0xfec0<<48+1 }},
		{"partition", Args{"pkey": "0x8001", "mtu": 4096, "rate": 7, "qkey": "0x1b1b", "everyone": "limited"}, func() bool {
			pt, ok := f.Partition(1)
			return ok && pt.MTU == 4096 && pt.Rate == fabric.Rate40 && pt.QKey == 0x1b1b && i.PKeys[1] == 1 && len(f.Groups()) == 2
		}},
		{"member", Args{"pkey": "0x8001", "as": "full", "ports": []any{"hca0", "0x123"}}, func() bool {
			pt, _ := f.Partition(1)
			return i.PKeys[1] == 0x8001 && pt.MTU == 4096 && pt.Members[0x123] == fabric.Full
		}},
		{"partition", Args{"pkey": "0x8001", "ipoib": false}, func() bool { return len(f.Groups()) == 1 && i.PKeys[1] == 0x8001 }},
		{"remove-partition", Args{"pkey": 0x8001}, func() bool { return i.PKeys[1] == 0 }},
	} {
		if _, err := c.Do(step.do, step.args); err != nil {
			t.Errorf("%s %v: %v", step.do, step.args, err)
			continue
		}
		if i = port.Info(); !step.want() {
			t.Errorf("%s %v: not done: %+v", step.do, step.args, i)
		}
	}
}

func TestHCACommands(t *testing.T) {
	_, _, r, s, c := bench(t)
	for _, step := range []struct {
		do   string
		args Args
		want string
	}{
		{"link", Args{"type": "Ethernet"}, "link Ethernet"},
		{"initializing", Args{"for": "3s"}, "initializing 3s"},
		{"initializing", nil, "initializing -1ns"},
		{"dead", Args{"on": true}, "dead true"},
		{"stuck-health", Args{"on": true}, "stuck true"},
		{"health-syndrome", Args{"syndrome": 7}, "syndrome 7"},
		{"firmware", Args{"version": "12.1.2"}, "firmware 12.1.2"},
		{"fail-command", Args{"command": "ENABLE_HCA", "status": "bad-parameter"}, "fail ENABLE_HCA with bad parameter, 1 times"},
		{"fail-command", Args{"command": "0x104", "status": 1, "times": -1}, "fail ENABLE_HCA with internal error, -1 times"},
		{"hang-command", Args{"command": "init_hca", "times": 2}, "hang INIT_HCA, 2 times"},
		{"module", Args{"event": "unplugged"}, "module 2 0"},
		{"module", Args{"event": "high-temperature"}, "module 3 6"},
		{"temperature", nil, "temperature"},
		{"slot-power", Args{"power": "insufficient", "watts": 25}, "power 2 25 W"},
		{"reset", nil, "reset"},
		{"kill", nil, "kill"},
	} {
		args := Args{"hca": "hca0"}
		for k, v := range step.args {
			args[k] = v
		}
		r.did = nil
		if _, err := c.Do(step.do, args); err != nil {
			t.Errorf("%s %v: %v", step.do, args, err)
		} else if !slices.Equal(r.did, []string{step.want}) {
			t.Errorf("%s %v did %q, want %q", step.do, args, r.did, step.want)
		}
	}
	reply, err := c.Do("log", Args{"hca": "hca0", "last": 3})
	if want := (Reply{"ok": true, "commands": []any{"last 3"}, "violations": []any{"owner bit"}}); err != nil || !reflect.DeepEqual(reply, want) {
		t.Errorf("log: %v, %v, want %v", reply, err, want)
	}
	s.RemoveHCA("hca0")
	if _, err := c.Do("reset", Args{"hca": "hca0"}); err == nil || !strings.Contains(err.Error(), `no HCA "hca0"; there are: none`) {
		t.Errorf("reset of a removed HCA: %v", err)
	}
}

func TestHostCommands(t *testing.T) {
	_, _, _, _, c := bench(t)
	do := func(command string, args Args) {
		t.Helper()
		if _, err := c.Do(command, args); err != nil {
			t.Fatal(err)
		}
	}
	do("host", Args{"name": "nfs", "guid": "0002:c903:0000:0107", "ip": "20.20.20.107"})
	do("host", Args{"name": "peer", "guid": "0002:c903:0000:0108", "ip": "20.20.20.108", "pkey": "0xffff"})
	do("ping", Args{"host": "peer", "ip": "20.20.20.107", "within": "20s"})
	do("host-answer", Args{"host": "nfs", "answer": false})
	if _, err := c.Do("ping", Args{"host": "peer", "ip": "20.20.20.107", "within": "20ms", "size": 1000}); err == nil || !strings.Contains(err.Error(), "no ARP answer") {
		t.Errorf("ping of a host that is down: %v", err)
	}
	do("host-answer", Args{"host": "nfs", "answer": true})
	do("host-claim", Args{"host": "nfs", "ip": "20.20.20.109"})
	do("ping", Args{"host": "peer", "ip": "20.20.20.109", "within": "20s"})
	do("host-release", Args{"host": "nfs", "ip": "20.20.20.109"})
	reply, err := c.Do("show", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(reply["hosts"], []any{"nfs", "peer"}) || !reflect.DeepEqual(reply["hcas"], []any{"hca0"}) || reply["sm"] != "present" {
		t.Errorf("show: %v", reply)
	}
	port := reply["ports"].([]any)[0].(map[string]any)
	if port["name"] != "hca0" || port["state"] != "Active" || port["lid"] != 2.0 || !reflect.DeepEqual(port["pkeys"], []any{"0xffff"}) {
		t.Errorf("show: port %v", port)
	}
	group := reply["groups"].([]any)[0].(map[string]any)
	if group["mgid"] != "ff12:401b:ffff::ffff:ffff" || group["mtu"] != 2048.0 || len(group["members"].(map[string]any)) != 2 {
		t.Errorf("show: group %v", group)
	}
}

func TestBadRequests(t *testing.T) {
	_, _, _, s, _ := bench(t)
	for _, c := range []struct{ request, want string }{
		{``, `like {"do":"help"}`},
		{`[]`, `like {"do":"help"}`},
		{`null`, `"do" is missing`},
		{`{}`, `"do" is missing`},
		{`{"do":7}`, `is no string`},
		{`{"do":"smm"}`, `no command "smm"; there are: help, show, sm, `},
		{`{"do":"sm"}`, `"mode" is missing; usage: {"do":"sm","mode":"present|absent|gone|late"[,"after":"2s"]}`},
		{`{"do":"sm","mode":"off"}`, `mode "off": want one of present, absent, gone, late`},
		{`{"do":"sm","mode":1}`, `want one of present`},
		{`{"do":"sm","mode":"absent","port":"x"}`, `no argument "port"; usage:`},
		{`{"do":"sm","mode":"absent","after":"1s"}`, `"after" belongs to the mode "late"`},
		{`{"do":"sm","mode":"late"}`, `"after" belongs to the mode "late"`},
		{`{"do":"sm","mode":"late","after":"soon"}`, `want a duration like`},
		{`{"do":"sm","mode":"late","after":"-1s"}`, `want a duration like`},
		{`{"do":"sa","answer":"no"}`, `want true or false`},
		{`{"do":"phys","port":"hca9","state":"LinkUp"}`, `no port "hca9"; there are: hca0 (506b:4b03:00a1:0000)`},
		{`{"do":"phys","port":"","state":"LinkUp"}`, `want a string`},
		{`{"do":"pkeys","port":"hca0","table":["0x10000"]}`, `"0x10000": want a number from 0 (0x0) to 65535 (0xffff)`},
		{`{"do":"pkeys","port":"hca0","table":"0xffff"}`, `want a list`},
		{`{"do":"partition","pkey":"0x8000"}`, `partition 0 does not exist`},
		{`{"do":"partition","pkey":1,"mtu":1500}`, `MTU 1500 is none of`},
		{`{"do":"member","pkey":1,"as":"full","ports":["nobody"]}`, `no port "nobody"`},
		{`{"do":"prefix","prefix":"fe80::"}`, `want 64 bits`},
		{`{"do":"prefix","prefix":0}`, `0 is no subnet's prefix`},
		{`{"do":"host","name":"x","guid":"zz","ip":"1.2.3.4"}`, `GUID "zz"`},
		{`{"do":"host","name":"x","guid":"0x5","ip":"fe80::1"}`, `want an IPv4 address`},
		{`{"do":"host","name":"x","guid":"506b4b0300a10000","ip":"1.2.3.4"}`, `has this GUID already`},
		{`{"do":"host-answer","host":"nfs","answer":true}`, `no host "nfs"; there are: none`},
		{`{"do":"reset","hca":"hca1"}`, `no HCA "hca1"; there are: hca0`},
		{`{"do":"fail-command","hca":"hca0","command":"ENABLE","status":1}`, `one of QUERY_HCA_CAP, `},
		{`{"do":"fail-command","hca":"hca0","command":"ENABLE_HCA","status":"bad"}`, `bad-parameter`},
		{`{"do":"help","command":"smm"}`, `no command "smm"`},
	} {
		reply := s.Do([]byte(c.request))
		if msg, _ := reply["error"].(string); !strings.Contains(msg, c.want) || reply["ok"] != nil {
			t.Errorf("%s: %v, want %q", c.request, reply, c.want)
		}
	}
}

// TestHelp checks that every command's usage says enough to be understood: the
// example spellings in it are valid themselves.
func TestHelp(t *testing.T) {
	_, _, _, s, _ := bench(t)
	lines := s.Do([]byte(`{"do":"help"}`))["commands"].([]string)
	if len(lines) != len(commands()) {
		t.Errorf("%d lines for %d commands", len(lines), len(commands()))
	}
	for i, c := range commands() {
		if c.help == "" || !strings.HasPrefix(lines[i], `{"do":"`+c.name+`"`) {
			t.Errorf("%s: %q", c.name, lines[i])
		}
		for _, a := range c.args {
			word := strings.ReplaceAll(a.kind.spelling, ",…", "")
			if !strings.HasPrefix(word, "[") { // of a choice, the first
				word = strings.Split(word, "|")[0]
			}
			if strings.HasPrefix(word, `"`) && !strings.HasSuffix(word, `"`) {
				word += `"`
			}
			if _, err := a.kind.parse(json.RawMessage(word)); err != nil {
				t.Errorf("%s: %s: %s: %v", c.name, a.name, word, err)
			}
		}
	}
}

func TestSocket(t *testing.T) {
	before := runtime.NumGoroutine()
	f := fabric.New(fabric.Options{})
	s := New(f)
	path := filepath.Join(t.TempDir(), "ctl")
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(path); err == nil {
		t.Error("two servers on one socket")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := json.NewDecoder(c)
	fmt.Fprintf(c, "\n{\"do\":\"sm\",\"mode\":\"gone\"}\nrubbish\n")
	for _, want := range []string{"ok", "error"} {
		var r Reply
		if err := in.Decode(&r); err != nil || r[want] == nil {
			t.Errorf("reply %v, %v; want %s", r, err, want)
		}
	}
	fmt.Fprintf(c, "{%s}\n", strings.Repeat(" ", maxLine))
	var r Reply
	if err := in.Decode(&r); err != nil || !strings.Contains(fmt.Sprint(r["error"]), "longer") {
		t.Errorf("a line that is too long: %v, %v", r, err)
	}
	// A ping that takes for ever does not hold up Close.
	pinger, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer pinger.Close()
	if _, err := pinger.Do("host", Args{"name": "h", "guid": "0x5", "ip": "1.2.3.4"}); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := pinger.Do("ping", Args{"host": "h", "ip": "1.2.3.5", "within": "1h"})
		failed <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the ping succeeded")
	}
	f.Close()
	if err := s.Listen(path + "2"); err == nil {
		t.Error("a closed server listens")
	}
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

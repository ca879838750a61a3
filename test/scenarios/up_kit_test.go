package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ibup/test/image"
	"ibup/test/lab"
	"ibup/test/vm"
)

// The interface of the story: its address, the peer that must answer, and the
// route over Ethernet while it does not work.
const (
	storyConf = `[Network]
Address=20.20.20.109/24

[Verify]
Ping=20.20.20.107
`
	storyFallback = `
[Fallback]
Route=20.20.20.0/24 via 10.20.0.1 dev eno1 metric 200
`
)

// buildIbup compiles the program once per process.
var buildIbup = sync.OnceValues(func() ([]byte, error) {
	root, err := image.ModuleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ibup-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "ibup")
	if err := vm.BuildStatic(root, "ibup/cmd/ibup", out); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
})

// withIbup lays the program and configuration files, by interface name, over a
// guest.
func (b *bench) withIbup(o vm.Options, confs map[string]string) vm.Options {
	b.t.Helper()
	bin, err := buildIbup()
	if err != nil {
		b.t.Fatal(err)
	}
	files := image.Files{}
	for path, f := range o.Files {
		files[path] = f
	}
	files.Add("/usr/sbin/ibup", image.File{Data: bin, Mode: 0o755})
	for name, text := range confs {
		files.Add("/etc/ibup/"+name+".conf", image.Text(text))
	}
	o.Files = files
	return o
}

// story boots a machine with the story's file for ib0, the Ethernet interface of
// its fallback, and the peer; cards are there at boot.
func (b *bench) story(kernel string, cards ...*lab.Card) *machine {
	b.t.Helper()
	o := vm.Options{Kernel: kernel, NICs: []vm.NIC{{Name: "eno1"}}, HotplugSlots: 1}
	for _, c := range cards {
		o.HCAs = append(o.HCAs, c.Socket)
	}
	return b.storyIn(o)
}

func (b *bench) storyIn(o vm.Options) *machine {
	b.t.Helper()
	m := b.boot(b.withIbup(o, map[string]string{"ib0": storyConf + storyFallback}))
	m.eno1()
	return m
}

// eno1 gives the Ethernet interface its address.
func (m *machine) eno1() {
	m.b.t.Helper()
	m.sh("ip addr add 10.20.0.15/24 dev eno1 && ip link set eno1 up")
}

// ibup runs the program and returns what it printed; the exit code must be want.
func (m *machine) ibup(want int, args string) string {
	m.b.t.Helper()
	r, err := m.Sh(m.b.ctx, "ibup "+args)
	if err != nil {
		m.b.t.Fatalf("ibup %s: %v", args, err)
	}
	if r.Code != want {
		m.b.t.Fatalf("ibup %s: exit code %d, want %d\n%s%s", args, r.Code, want, r.Stdout, r.Stderr)
	}
	return r.Stdout + r.Stderr
}

// service runs `ibup up` as a service manager does: it stays on the fallback.
func (m *machine) service(args string) *vm.Process {
	m.b.t.Helper()
	p, err := m.Background("sh", "-c", "NOTIFY_SOCKET=/run/nobody exec ibup up "+args)
	if err != nil {
		m.b.t.Fatal(err)
	}
	return p
}

// journal is what a scenario reads of /run/ibup/<iface>.json.
type journal struct {
	Verdict string
	Reason  struct{ Code, Summary string }
	Notes   []struct{ Code string }
	Target  struct {
		PCI, Device, Link string
		Port, Index       int
	}
	MTU struct {
		Asked, Effective int
		LimitedBy        string `json:"limited_by"`
	}
	Facts struct {
		Verified struct{ OK bool }
	}
	Runs []struct {
		PID        int
		Begin, End time.Duration
	}
	Steps []struct {
		N, Run     int
		Text, Err  string
		Begin, End time.Duration
		Step       struct{ Kind string }
	}
	History []struct {
		At            time.Duration
		Verdict, Code string
	}
}

func (m *machine) journal(iface string) journal {
	m.b.t.Helper()
	raw, err := m.Get(m.b.ctx, "/run/ibup/"+iface+".json")
	if err != nil {
		m.b.t.Fatal(err)
	}
	var j journal
	if err := json.Unmarshal(raw, &j); err != nil {
		m.b.t.Fatalf("journal of %s: %v\n%s", iface, err, raw)
	}
	return j
}

// verdict waits until an interface's journal says so.
func (m *machine) verdict(iface, want string, limit time.Duration) journal {
	m.b.t.Helper()
	m.file(limit, fmt.Sprintf(`(?m)^\t"verdict": "%s"`, want), "/run/ibup/%s.json", iface)
	return m.journal(iface)
}

// reason waits until an interface waits for a reason, or rests because of it.
func (m *machine) reason(iface, code string, limit time.Duration) journal {
	m.b.t.Helper()
	m.file(limit, fmt.Sprintf(`(?m)^\t\t"code": "%s"`, code), "/run/ibup/%s.json", iface)
	return m.journal(iface)
}

// route is the kernel's way to an address.
func (m *machine) route(to string) string {
	m.b.t.Helper()
	return m.sh("ip route get %s", to)
}

func (m *machine) overEthernet(to string) {
	m.b.t.Helper()
	if got := m.route(to); !strings.Contains(got, "via 10.20.0.1 dev eno1") {
		m.b.t.Errorf("the way to %s: %s; want the fallback over eno1\n%s", to, got, m.sh("ip route; ip addr; cat /run/ibup/*.json"))
	}
}

func (m *machine) overInfiniBand(to string) {
	m.b.t.Helper()
	if got := m.route(to); !strings.Contains(got, to+" dev ib0") {
		m.b.t.Errorf("the way to %s: %s; want ib0", to, got)
	}
	if got := m.sh("ip route show proto 73"); got != "" {
		m.b.t.Errorf("the fallback route is still there: %s", got)
	}
}

// finish waits for a background process and its exit code.
func (m *machine) finish(p *vm.Process, want int) vm.Result {
	m.b.t.Helper()
	ctx, cancel := context.WithTimeout(m.b.ctx, 2*time.Minute)
	defer cancel()
	r, err := p.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		stdout, stderr, _ := p.Output(m.b.ctx)
		m.b.t.Fatalf("it has not ended:\n%s%s", stdout, stderr)
	}
	if err != nil {
		m.b.t.Fatal(err)
	}
	if r.Code != want {
		m.b.t.Fatalf("exit code %d, want %d\n%s%s", r.Code, want, r.Stdout, r.Stderr)
	}
	return r
}

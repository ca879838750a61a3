package vm

import (
	"strings"
	"testing"

	"ibup/test/image"
)

func TestCommandLine(t *testing.T) {
	tests := []struct {
		name       string
		opt        Options
		want, lack string
	}{
		{"names stay", Options{}, " net.ifnames=0", "systemd.show_status"},
		{"names change", Options{PredictableNames: true}, "panic=-1 ", "net.ifnames"},
		{"appended", Options{Append: "ibup.debug rd.ibup=0"}, " ibup.debug rd.ibup=0", "\n"},
		{"systemd", Options{Systemd: true}, " systemd.show_status=false", "init="},
	}
	for _, tt := range tests {
		got := tt.opt.withDefaults().commandLine()
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.lack) {
			t.Errorf("%s: %q: want %q and not %q", tt.name, got, tt.want, tt.lack)
		}
	}
}

func TestDevices(t *testing.T) {
	o := Options{
		HCAs: []string{"/tmp/a"}, HotplugSlots: 2, TightSlots: true,
		NICs: []NIC{{Name: "eno1"}, {Network: "stream,addr.type=unix,addr.path=/tmp/n"}},
	}.withDefaults()
	args := strings.Join(o.qemuArgs("K", "I"), " ")
	for _, want := range []string{
		"id=slot0,chassis=1,slot=1,addr=0x10,pref64-reserve=64M",
		"id=slot2,chassis=3,slot=3,addr=0x12,pref64-reserve=1M",
		`{"bus":"slot0","driver":"vfio-user-pci","id":"hca0","socket":{"path":"/tmp/a","type":"unix"}}`,
		"user,id=net0,net=10.20.0.0/24,host=10.20.0.1",
		"stream,id=net1,addr.type=unix,addr.path=/tmp/n",
		"mac=52:54:00:12:34:01",
		"-kernel K -initrd I",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
}

func TestOverlay(t *testing.T) {
	o := Options{
		Name: "n1", Systemd: true, NICs: []NIC{{Name: "eno1", MAC: "52:54:00:00:00:07"}},
		Files: image.Files{"/sbin/ibup": image.Text("x")},
	}.withDefaults()
	files := o.overlay("/agent")
	if f := files["/usr/sbin/ibup"]; string(f.Data) != "x" {
		t.Error("a file in /sbin is not placed in /usr/sbin, whose link it would replace")
	}
	if f := files["/init"]; f.Link != "/usr/lib/systemd/systemd" {
		t.Errorf("/init is %+v", f)
	}
	link := string(files["/etc/systemd/network/10-bench0.link"].Data)
	if !strings.Contains(link, "MACAddress=52:54:00:00:00:07\n") || !strings.Contains(link, "Name=eno1\n") {
		t.Errorf("link file %q", link)
	}
}

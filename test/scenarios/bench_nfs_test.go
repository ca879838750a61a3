package scenarios

import (
	"testing"
	"time"

	"ibup/test/fabric"
	"ibup/test/hca"
	"ibup/test/vm"
)

// 64 MiB read over NFS and IPoIB from another machine arrive unchanged.
func TestBenchNFS(t *testing.T) {
	parallel(t)
	b := newBench(t)
	// Half the packets: what takes time here is the emulation of each.
	b.partition(fabric.DefaultPKey, fabric.Partition{MTU: 4096, Everyone: fabric.Full})
	c0, c1 := b.card(hca.Config{}), b.card(hca.Config{})
	ms := b.bootAll(
		vm.Options{Name: "client", Kernel: "6.1", NFS: true, HCAs: []string{c0.Socket}},
		vm.Options{Name: "server", Kernel: "6.12", NFS: true, HCAs: []string{c1.Socket}},
	)
	client, server := ms[0], ms[1]
	server.ib0("20.20.20.107/24")
	client.ib0("20.20.20.109/24")

	server.sh("mkdir /srv && mount -t tmpfs none /srv")
	server.sh("dd if=/dev/urandom of=/srv/data bs=1M count=64")
	want := server.sh("md5sum < /srv/data")
	server.exportNFS("/srv", "20.20.20.109")

	client.sh("modprobe nfsv4 && mkdir /mnt/nfs")
	client.sh("mount -t nfs4 -o ro,vers=4.2,addr=20.20.20.107,clientaddr=20.20.20.109 20.20.20.107:/ /mnt/nfs")
	start := time.Now()
	got := client.sh("md5sum < /mnt/nfs/data")
	t.Logf("64 MiB in %.1f s", time.Since(start).Seconds())
	if got != want {
		t.Errorf("checksum of what was read = %s, on the server %s", got, want)
	}
	if n := c0.Port.Counters().RcvData; n < 64<<20 {
		t.Errorf("the client's port received %d bytes, the file has %d", n, 64<<20)
	}
	client.sh("umount /mnt/nfs")
}

// exportNFS serves a directory to one client as the root of NFSv4. There is no
// mountd to answer what nfsd asks about clients and exports, so the answers are
// given beforehand; the formats are those of nfsd's caches (fs/nfsd/export.c, svcauth_unix.c).
func (m *machine) exportNFS(dir, client string) {
	m.b.t.Helper()
	const never = "2147483647" // when an answer expires
	m.sh("modprobe nfsd && mount -t nfsd nfsd /proc/fs/nfsd")
	m.sh("echo -2 -3 +4 > /proc/fs/nfsd/versions") // older ones need rpcbind
	m.sh("echo 4 > /proc/fs/nfsd/threads")
	m.sh("echo nfsd %s %s bench > /proc/net/rpc/auth.unix.ip/channel", client, never)
	// fsid 0, no subtree check, any source port; nobody is 65534.
	m.sh("echo bench %s %s 0x2402 65534 65534 0 > /proc/net/rpc/nfsd.export/channel", dir, never)
	m.sh(`echo 'bench 1 \x00000000 %s %s' > /proc/net/rpc/nfsd.fh/channel`, never, dir)
}

package host

import (
	"bufio"
	"bytes"
	"strings"
)

// networked are file systems that stop when the network does.
var networked = map[string]bool{
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true,
	"ceph": true, "lustre": true, "gpfs": true, "beegfs": true,
	"9p": true, "fuse.glusterfs": true, "fuse.sshfs": true,
}

// mounts reads /proc/self/mountinfo, in the order of mounting: of two mounts on
// one target the later one is seen.
func (r *Reader) mounts(s *Snapshot) {
	b, err := r.tree.file(16<<20, "proc/self/mountinfo")
	if err != nil {
		s.gap("mounts", err)
		return
	}
	s.Mounts = parseMountinfo(b)
}

// parseMountinfo keeps "/" and network file systems. A line is, after proc(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// Options are those of the file system, where NFS has addr=.
func parseMountinfo(b []byte) []Mount {
	var mounts []Mount
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		head, tail := strings.Fields(left), strings.Fields(right)
		if !ok || len(head) < 6 || len(tail) < 2 {
			continue
		}
		m := Mount{Source: unescape(tail[1]), Target: unescape(head[4]), FSType: tail[0]}
		if len(tail) > 2 {
			m.Options = unescape(tail[2])
		}
		if m.Target == "/" || networked[m.FSType] {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

// unescape undoes the octal escapes of mountinfo: \040 is a space.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && s[i+1] < '4' && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// set is one thing that setup makes from packages: a tree or a kernel.
type set struct {
	Name     string   // directory in the cache
	Suites   []string // Debian suites, the first gives the release
	Prefer   string   // suite whose packages win, "" for the release's
	Packages []string // for a kernel one metapackage
	Optional bool     // may be missing: the mirror no longer carries it
}

// Names of the trees.
const (
	treeQEMU  = "qemu"
	treeGuest = "guest"
)

// KernelNames are the names by which scenarios ask for a kernel, oldest first.
// The first and the last come and go with the mirror.
func KernelNames() []string { return []string{"5.10", "6.1", "6.12", "newest"} }

func sets() []set {
	kernel := []string{"linux-image-amd64"}
	return []set{
		// First: its xz unpacks kernels.
		{Name: "trees/" + treeGuest, Suites: []string{"trixie"}, Packages: []string{
			// Essential packages are named, since nothing counts as installed.
			"base-files", "base-passwd", "bash", "coreutils", "findutils", "grep", "gzip", "hostname", "libc-bin",
			"login", "mount", "passwd", "procps", "sed", "util-linux", "dash", "diffutils", "mawk",
			"systemd", "systemd-sysv", "udev", "dbus", "kmod",
			"iproute2", "iputils-ping", "iputils-arping", "nfs-common", "nfs-kernel-server", "rdma-core",
			"busybox-static", "e2fsprogs", "xz-utils",
		}},
		{Name: "trees/" + treeQEMU, Suites: []string{"trixie", "trixie-backports"}, Prefer: "trixie-backports",
			Packages: []string{"qemu-system-x86", "libc-bin"}},
		{Name: "kernels/6.1", Suites: []string{"bookworm"}, Packages: kernel},
		{Name: "kernels/6.12", Suites: []string{"trixie"}, Packages: kernel},
		{Name: "kernels/newest", Suites: []string{"trixie", "trixie-backports"}, Prefer: "trixie-backports", Packages: kernel, Optional: true},
		{Name: "kernels/5.10", Suites: []string{"bullseye"}, Packages: kernel, Optional: true},
	}
}

func (s set) kernel() bool { return strings.HasPrefix(s.Name, "kernels/") }

// fingerprint changes when the set has to be made anew.
func (s set) fingerprint() string {
	const format = 2            // of what make leaves in the directory
	b, _ := json.Marshal(s)     // strings and slices of them: cannot fail
	b = append(b, byte(format)) // the same packages, unpacked otherwise
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

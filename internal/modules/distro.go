package modules

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// installHint says what brings a missing module, in the words of the distribution
// below root.
func installHint(root, kernel, module string) string {
	if _, err := os.Stat(filepath.Join(root, "etc/initrd-release")); err == nil {
		return fmt.Sprintf("it is not in this initramfs: rebuild it with %s", module)
	}
	id, version := osRelease(root)
	for _, d := range id {
		switch d {
		case "rhel", "centos", "fedora", "rocky", "almalinux", "ol":
			if version == "7" || strings.HasPrefix(version, "7.") {
				return "install kernel-" + kernel
			}
			return "install kernel-modules-" + kernel
		case "ubuntu":
			return "install linux-modules-" + kernel + " or linux-modules-extra-" + kernel
		case "debian":
			return "install linux-image-" + kernel
		case "suse", "sles", "opensuse":
			return "install kernel-default of version " + kernel
		}
	}
	return "install the package with this kernel's InfiniBand modules"
}

// osRelease reads ID, then ID_LIKE, and VERSION_ID of os-release(5).
func osRelease(root string) (ids []string, version string) {
	b, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		b, _ = os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	}
	var like []string
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			ids = append(ids, value)
		case "ID_LIKE":
			like = strings.Fields(value)
		case "VERSION_ID":
			version = value
		}
	}
	return append(ids, like...), version
}

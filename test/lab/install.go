package lab

import (
	"path/filepath"

	"ibup/test/image"
)

// Installed returns the files that ibup's package puts on a machine, enabled
// as its preset says: program is the path of the built binary, root the
// checkout, confs the configuration by interface name.
func Installed(root, program string, confs map[string]string) image.Files {
	files := image.Files{}
	from := func(to string, parts ...string) {
		files.Add(to, image.File{From: filepath.Join(append([]string{root}, parts...)...)})
	}
	files.Add("/usr/sbin/ibup", image.File{From: program, Mode: 0o755})
	from("/usr/lib/udev/rules.d/60-ibup.rules", "rules", "60-ibup.rules")
	for _, unit := range []string{"ibup@.service", "ibup.service", "ibup-wait.service"} {
		from("/usr/lib/systemd/system/"+unit, "rpm", "systemd", unit)
	}
	files.Add("/etc/systemd/system/network-online.target.wants/ibup-wait.service",
		image.File{Link: "/usr/lib/systemd/system/ibup-wait.service"})
	for name, text := range confs {
		files.Add("/etc/ibup/"+name+".conf", image.Text(text))
	}
	return files
}

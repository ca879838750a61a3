package modules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ibup/internal/host"
)

// LoadError is a module that the kernel did not take.
type LoadError struct {
	Module string
	Path   string
	Err    error    // errno of the system call, or the error of reading the file
	Reason string   // what it means here
	Remedy string   // what to do
	Kernel []string // what the kernel said about it, as it said it
}

func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "module %s: %s (%v)", e.Module, e.Reason, e.Err)
	for _, line := range e.Kernel {
		fmt.Fprintf(&b, "; the kernel says %q", line)
	}
	if e.Remedy != "" {
		fmt.Fprintf(&b, "; %s", e.Remedy)
	}
	return b.String()
}

// Unwrap gives the errno.
func (e *LoadError) Unwrap() error { return e.Err }

// explain turns an errno, which means different things, into a reason. The lines
// that the kernel wrote meanwhile decide between them.
func (l *Loader) explain(m Load, err error, said []host.KernelLine) *LoadError {
	e := &LoadError{Module: m.Name, Path: m.Path, Err: err}
	kinds := map[host.Kind]host.KernelLine{}
	for _, line := range said {
		if line.Module != "" && normal(line.Module) != m.Name {
			continue
		}
		switch line.Kind {
		case host.SymbolVersion, host.UnknownSymbol, host.NoSymbolVersion, host.Vermagic, host.Parameter,
			host.Blacklisted, host.Signature, host.Lockdown, host.LoaderKilled:
			if _, twice := kinds[line.Kind]; !twice {
				kinds[line.Kind] = line
				e.Kernel = append(e.Kernel, line.Text)
			}
		}
	}
	has := func(k host.Kind) bool { _, ok := kinds[k]; return ok }
	var errno unix.Errno
	if !errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) && isPathError(err) {
		e.Reason = "its file cannot be read"
		e.Remedy = "check the file, reinstall its package"
		return e
	}
	switch errno {
	case unix.ENOKEY:
		e.Reason = "it is not signed by a key that this kernel trusts"
		e.Remedy = "enrol the vendor's key (mokutil --import) or use the kernel's own modules"
	case unix.EKEYREJECTED:
		e.Reason = "its signature is rejected"
		e.Remedy = "enrol the vendor's key (mokutil --import) or use the kernel's own modules"
	case unix.ENOEXEC:
		e.Reason = "it is not a module for this kernel, or its file is damaged"
		if has(host.Vermagic) || has(host.SymbolVersion) {
			e.Reason = "it was built for another kernel"
		}
		e.Remedy = "reinstall the module's package for this kernel"
	case unix.EINVAL:
		switch {
		case has(host.SymbolVersion), has(host.NoSymbolVersion), has(host.UnknownSymbol):
			e.Reason = "it was built against another set of modules than the one that is loaded"
			e.Remedy = "use modules of one family only: all of the kernel's or all of OFED's"
		case has(host.Parameter):
			e.Reason = fmt.Sprintf("one of its parameters has a bad value (%q)", m.Params)
			e.Remedy = "correct the options line in modprobe.d or on the kernel command line"
		default:
			e.Reason = "the kernel refuses it"
		}
	case unix.ENOENT:
		switch {
		case has(host.UnknownSymbol):
			e.Reason = "it needs a symbol that nothing exports: a module it depends on is not loaded"
			e.Remedy = "run depmod; in an initramfs, include all of the stack"
		case has(host.Parameter) || m.Params != "":
			e.Reason = fmt.Sprintf("it does not know one of its parameters (%q)", m.Params)
			e.Remedy = "correct the options line in modprobe.d or on the kernel command line"
		default:
			e.Reason = "it needs a symbol that nothing exports"
			e.Remedy = "run depmod; in an initramfs, include all of the stack"
		}
	case unix.EPERM:
		switch {
		case l.disabled():
			e.Reason = "module loading is switched off until the next boot (kernel.modules_disabled=1)"
			e.Remedy = "load the stack before that is set"
		case has(host.Lockdown):
			e.Reason = "kernel lockdown allows signed modules only"
			e.Remedy = "enrol the vendor's key (mokutil --import) or use the kernel's own modules"
		case has(host.Blacklisted):
			e.Reason = "module_blacklist= on the kernel command line forbids it"
			e.Remedy = "remove it there"
		case os.Geteuid() != 0:
			e.Reason = "only root may load modules"
		default:
			e.Reason = "the kernel or a security module forbids it"
			e.Remedy = "look for a denial in the audit log; a container needs CAP_SYS_MODULE"
		}
	case unix.ENOMEM:
		e.Reason = "the kernel found no memory for it"
		if has(host.LoaderKilled) {
			e.Reason = "the loading process was being killed, which the kernel reports as lack of memory"
			e.Remedy = "look for what stops services at this time: switch-root, a unit's TimeoutSec"
		}
	case unix.ENODEV, unix.ENXIO:
		e.Reason = "its initialization found nothing to work with"
	default:
		e.Reason = "its initialization failed"
	}
	return e
}

func isPathError(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p)
}

func (l *Loader) disabled() bool {
	b, err := os.ReadFile(filepath.Join(l.root, "proc/sys/kernel/modules_disabled"))
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

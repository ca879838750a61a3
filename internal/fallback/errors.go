package fallback

import (
	"errors"
	"fmt"
	"strings"

	"ibup/internal/config"
)

// What can go wrong; test with errors.Is.
var (
	// ErrNotYet: the device is absent or down, or the gateway is not reachable
	// through it. An event may cure it.
	ErrNotYet = errors.New("not yet possible")
	// ErrConflict: an IPv6 route of the same destination and metric goes another
	// way; the kernel would join the two into one multipath route.
	ErrConflict = errors.New("another route has this destination and metric")
	// ErrNoNetworkScripts: the machine has no /etc/sysconfig/network-scripts.
	ErrNoNetworkScripts = errors.New("no network-scripts directory")
	// ErrAddressSyntax: the file uses ADDRESSn=, which cannot carry a metric.
	ErrAddressSyntax = errors.New("file uses the ADDRESSn= syntax")
	// ErrDamagedBlock: BEGIN without END or the like.
	ErrDamagedBlock = errors.New("damaged ibup block")
	// ErrReadOnly: the file system is mounted read-only.
	ErrReadOnly = errors.New("read-only file system")
	// ErrNoSpace: no space, or over quota.
	ErrNoSpace = errors.New("no space")
	// ErrImmutable: the file or its directory has the immutable or append-only
	// attribute.
	ErrImmutable = errors.New("immutable")
	// ErrNotRegular: the path is no regular file, or its links lead nowhere.
	ErrNotRegular = errors.New("not a regular file")
	// ErrPermission: not allowed, for any other reason.
	ErrPermission = errors.New("not permitted")
)

// RouteError is a route that could not be put into, or taken out of, the
// kernel.
type RouteError struct {
	Route  config.Route
	Kind   error  // one of the Err values, or nil
	Why    string // what is in the way
	Remedy string // what to do, "" when nothing but waiting helps
	Err    error  // the kernel's answer, or nil
}

func (e *RouteError) Error() string {
	return message("route "+e.Route.String(), e.Why, e.Err, e.Remedy)
}

// Unwrap gives the kind and the cause.
func (e *RouteError) Unwrap() []error { return nonNil(e.Kind, e.Err) }

// FileError is a route file that could not be read or written. The file is as
// it was.
type FileError struct {
	Path   string // on the machine, without the root directory
	Line   int    // 1-based; 0: the file as a whole
	Kind   error  // one of the Err values, or nil
	Why    string
	Remedy string
	Err    error // the system's answer, or nil
}

func (e *FileError) Error() string {
	where := e.Path
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d", e.Path, e.Line)
	}
	return message(where, e.Why, e.Err, e.Remedy)
}

// Unwrap gives the kind and the cause.
func (e *FileError) Unwrap() []error { return nonNil(e.Kind, e.Err) }

func message(what, why string, err error, remedy string) string {
	parts := []string{what}
	if why != "" {
		parts = append(parts, why)
	}
	if err != nil {
		parts = append(parts, err.Error())
	}
	s := strings.Join(parts, ": ")
	if remedy != "" {
		s += "; " + remedy
	}
	return s
}

func nonNil(errs ...error) []error {
	var out []error
	for _, e := range errs {
		if e != nil {
			out = append(out, e)
		}
	}
	return out
}

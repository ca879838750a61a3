// Package modules decides which module files make up the InfiniBand stack of a
// kernel, and loads them, in order and one loader at a time.
//
// [Resolve] reads files only, below any root directory and for any kernel;
// [Loader] changes the running kernel and does nothing but what a [Plan] says.
package modules

import (
	"strings"
)

// Want is a module that shall be there.
type Want struct {
	Name     string
	Optional bool // its absence is a note, not an error
}

// Stack is what an IPoIB interface on an mlx5 function needs, in load order. The
// core and the connection manager come before the driver, so that they see every
// device it registers, and the driver comes before the interface.
func Stack() []Want {
	return []Want{
		{Name: "ib_core"},
		{Name: "ib_cm"},
		{Name: "mlx5_core"},
		{Name: "mlx5_ib"},
		{Name: "ib_ipoib"},
		{Name: "ib_umad", Optional: true}, // for opensm, ibstat and other tools
	}
}

// Plan is what has to be done for a kernel to have the wanted modules.
type Plan struct {
	Kernel string
	Loads  []Load
	// Notes are what a person should know that does not stop the plan: an optional
	// module that is missing, a modprobe.d line that is not followed.
	Notes []string
}

// Todo is the part of the plan that is not in the kernel yet.
func (p Plan) Todo() []Load {
	var todo []Load
	for _, l := range p.Loads {
		if l.State == Absent || l.State == Coming {
			todo = append(todo, l)
		}
	}
	return todo
}

// Load is one module of a plan.
type Load struct {
	Name        string // as in /sys/module: with underscores
	Path        string // file, root included; "" when built in or live
	Params      string // "name=value name=value", from modprobe.d and the kernel command line
	Compression Compression
	State       State
	Optional    bool
}

// State is where a module was when the plan was made.
type State string

// States.
const (
	Absent  State = "absent"
	Coming  State = "coming" // somebody is loading it
	Live    State = "live"
	Builtin State = "builtin"
)

// Compression is how a module file is packed.
type Compression string

// Compressions, by the file's suffix.
const (
	Plain Compression = ""
	Gzip  Compression = "gzip"
	XZ    Compression = "xz"
	Zstd  Compression = "zstd"
)

// suffixes of module files.
var suffixes = [...]struct {
	suffix string
	packed Compression
}{
	{".ko", Plain}, {".ko.gz", Gzip}, {".ko.xz", XZ}, {".ko.zst", Zstd},
}

// nameOf takes module name and compression from a file's path; false when it is
// no module.
func nameOf(path string) (string, Compression, bool) {
	file := path[strings.LastIndexByte(path, '/')+1:]
	for _, s := range suffixes {
		if name, ok := strings.CutSuffix(file, s.suffix); ok && name != "" {
			return normal(name), s.packed, true
		}
	}
	return "", Plain, false
}

// normal is a module name as /sys/module spells it. File names, modprobe.d and the
// command line use '-' and '_' as they like.
func normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

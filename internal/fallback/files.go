package fallback

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ibup/internal/config"

	"golang.org/x/sys/unix"
)

// ScriptsDir is where initscripts and NetworkManager's ifcfg-rh plugin read
// route files.
const ScriptsDir = "/etc/sysconfig/network-scripts"

// backups are endings of names that initscripts do not read.
var backups = []string{"~", ".bak", ".old", ".orig", ".rpmnew", ".rpmorig", ".rpmsave"}

// FileOf is the route file of a route's device: route-<dev>, route6-<dev> for
// IPv6.
func FileOf(r config.Route) string {
	if r.Dest.Addr().Is6() {
		return path.Join(ScriptsDir, "route6-"+r.Dev)
	}
	return path.Join(ScriptsDir, "route-"+r.Dev)
}

// routeFiles are the route files that concern one interface: those its
// fallback names and those that hold a block of it.
type routeFiles struct {
	order []string // machine paths, sorted
	data  map[string]*routeFile
	iface string
}

type routeFile struct {
	snapshot
	segs []segment
	err  error // could not be read, or is damaged
}

func (in Installer) readFiles(iface string, f config.Fallback) routeFiles {
	files := routeFiles{data: map[string]*routeFile{}, iface: iface}
	add := func(name string, always bool) {
		if files.data[name] != nil {
			return
		}
		rf := &routeFile{}
		if rf.snapshot, rf.err = in.read(name); rf.err == nil {
			rf.segs, rf.err = split(rf.bytes)
			rf.err = at(name, rf.err)
		}
		if always || bytes.Contains(rf.bytes, []byte(beginMark+iface)) {
			files.data[name] = rf
			files.order = append(files.order, name)
		}
	}
	for _, r := range f.Routes {
		add(FileOf(r), true)
	}
	entries, _ := os.ReadDir(in.real(ScriptsDir))
	for _, e := range entries {
		if isRouteFile(e.Name()) {
			add(path.Join(ScriptsDir, e.Name()), false)
		}
	}
	slices.Sort(files.order)
	return files
}

func isRouteFile(name string) bool {
	kind, dev, ok := strings.Cut(name, "-")
	if !ok || dev == "" || (kind != "route" && kind != "route6") {
		return false
	}
	return !slices.ContainsFunc(backups, func(b string) bool { return strings.HasSuffix(name, b) })
}

// owns reports whether a route stands in iface's block as ibup's.
func (files routeFiles) owns(r config.Route) bool {
	rf := files.data[FileOf(r)]
	if rf == nil || rf.err != nil {
		return false
	}
	kept, there := blockLines(rf.segs, files.iface)[r.String()]
	return there && !kept
}

// shared reports whether a route stands in another interface's block: two
// ports of one subnet fall back to the same route.
func (files routeFiles) shared(r config.Route) bool {
	rf := files.data[FileOf(r)]
	if rf == nil {
		return false
	}
	for _, s := range rf.segs {
		if s.iface != "" && s.iface != files.iface && hasLine(s.text, r.String()) {
			return true
		}
	}
	return false
}

// at gives a *FileError its path.
func at(name string, err error) error {
	if fe, ok := errors.AsType[*FileError](err); ok {
		fe.Path = name
	}
	return err
}

func (in Installer) stateFiles(files routeFiles, f config.Fallback, rep *Report) {
	for i := range rep.Routes {
		res := &rep.Routes[i]
		rf := files.data[FileOf(res.Route)]
		_, inBlock := blockLines(rf.segs, files.iface)[res.Route.String()]
		if !f.Persist && !inBlock {
			continue
		}
		res.File = FileOf(res.Route)
		switch {
		case rf.err != nil:
			res.Persist, res.FileErr = Failed, rf.err
		case inBlock:
			res.Persist = Installed
		case foreign(rf.bytes, rf.segs, res.Route):
			res.Persist = Kept
		default:
			res.Persist = Absent
		}
	}
}

// writeFiles puts the routes of the report into their files and takes iface's
// block out of all others.
func (in Installer) writeFiles(ctx context.Context, iface string, f config.Fallback, rep *Report) {
	for i := range rep.Routes {
		rep.Routes[i].File = FileOf(rep.Routes[i].Route)
	}
	if _, err := os.Stat(in.real(ScriptsDir)); err != nil {
		kind := explain(ScriptsDir, "", err)
		if errors.Is(err, fs.ErrNotExist) {
			kind = &FileError{Path: ScriptsDir, Kind: ErrNoNetworkScripts, Why: "this machine has no network-scripts, so the route cannot be made to last there",
				Remedy: "set Persist=no, and give the route to what configures the network here (for NetworkManager: nmcli connection modify PROFILE +ipv4.routes \"DEST VIA METRIC\")"}
		}
		for i := range rep.Routes {
			rep.Routes[i].Persist, rep.Routes[i].FileErr = Failed, kind
		}
		return
	}
	in.apply(ctx, iface, f, rep, func(name string, rf *routeFile) []wish {
		var wishes []wish
		for i := range rep.Routes {
			res := &rep.Routes[i]
			switch {
			case res.File != name:
				// in another file
			case !foreign(rf.bytes, rf.segs, res.Route):
				w := wish{line: res.Route.String(), kept: res.Live == Kept}
				if !slices.ContainsFunc(wishes, func(o wish) bool { return o.line == w.line }) {
					wishes = append(wishes, w)
				}
			}
		}
		return wishes
	})
}

// cleanFiles takes iface's block out of all route files.
func (in Installer) cleanFiles(ctx context.Context, iface string, f config.Fallback, rep *Report) {
	in.apply(ctx, iface, f, rep, func(string, *routeFile) []wish { return nil })
}

// apply edits every file that concerns iface to hold what wishes says and
// notes the outcome in the report.
func (in Installer) apply(ctx context.Context, iface string, f config.Fallback, rep *Report, wishes func(string, *routeFile) []wish) {
	files := in.readFiles(iface, f)
	if files.same(wishes) {
		files.note(rep, wishes, nil)
		return
	}
	// Eight interfaces may fall back to one Ethernet device at once.
	unlock, err := in.lock(ctx)
	if err != nil {
		for i := range rep.Routes {
			rep.Routes[i].Persist, rep.Routes[i].FileErr = Failed, err
		}
		return
	}
	defer unlock()
	written := map[string]error{}
	for try := 1; ; try++ { // an editor does not take our lock
		files = in.readFiles(iface, f)
		again := false
		for _, name := range files.order {
			if _, done := written[name]; done {
				continue
			}
			err := in.write(name, files.data[name], iface, wishes)
			switch {
			case errors.Is(err, errChanged) && try < 3:
				again = true
			case !errors.Is(err, errSame):
				written[name] = err
			}
		}
		if !again {
			break
		}
	}
	files.note(rep, wishes, written)
}

var (
	errSame    = errors.New("nothing to write")
	errChanged = errors.New("the file changed while it was edited")
)

// next is what a file shall hold.
func (rf *routeFile) next(name, iface string, wishes []wish) (data []byte, exists bool, err error) {
	if rf.err != nil {
		return nil, false, rf.err
	}
	if len(wishes) > 0 {
		_, dev, _ := strings.Cut(path.Base(name), "-")
		if err := checkAppend(dev, rf.bytes); err != nil {
			return nil, false, at(name, err)
		}
	}
	data, exists, err = edit(rf.bytes, rf.info != nil, iface, wishes)
	return data, exists, at(name, err)
}

func (rf *routeFile) isNext(data []byte, exists bool) bool {
	return exists == (rf.info != nil) && bytes.Equal(data, rf.bytes)
}

func (files routeFiles) same(wishes func(string, *routeFile) []wish) bool {
	for _, name := range files.order {
		rf := files.data[name]
		data, exists, err := rf.next(name, files.iface, wishes(name, rf))
		if err == nil && !rf.isNext(data, exists) {
			return false
		}
	}
	return true
}

func (in Installer) write(name string, rf *routeFile, iface string, wishes func(string, *routeFile) []wish) error {
	data, exists, err := rf.next(name, iface, wishes(name, rf))
	if err != nil {
		return err
	}
	if rf.isNext(data, exists) {
		return errSame
	}
	if !exists {
		return explain(name, rf.real, remove(rf.snapshot))
	}
	return explain(name, rf.real, replace(rf.snapshot, data))
}

// note writes into the report what became of the files. files were read before
// the writing.
func (files routeFiles) note(rep *Report, wishes func(string, *routeFile) []wish, written map[string]error) {
	for _, name := range files.order {
		rf := files.data[name]
		want := wishes(name, rf)
		_, _, err := rf.next(name, files.iface, want)
		werr, touched := written[name]
		if werr != nil {
			err = werr
		}
		if err != nil && !slices.ContainsFunc(rep.Routes, func(res Result) bool { return FileOf(res.Route) == name }) {
			rep.Left = append(rep.Left, err)
		}
		for i := range rep.Routes {
			res := &rep.Routes[i]
			if FileOf(res.Route) != name {
				continue
			}
			_, had := blockLines(rf.segs, files.iface)[res.Route.String()]
			wanted := slices.ContainsFunc(want, func(w wish) bool { return w.line == res.Route.String() })
			switch {
			case err != nil && (wanted || had || rf.mayHold(files.iface)):
				res.File, res.Persist, res.FileErr = name, Failed, err
			case wanted && (!had || touched):
				res.Persist = Installed
			case wanted:
				res.Persist = Unchanged
			case foreign(rf.bytes, rf.segs, res.Route):
				res.File, res.Persist = name, Kept
			case had:
				res.File, res.Persist = name, Removed
			case res.File != "":
				res.Persist = Absent
			}
		}
	}
}

// mayHold reports whether a file that is damaged or could not be read may have
// a block of iface.
func (rf *routeFile) mayHold(iface string) bool {
	return rf.err != nil && (rf.info == nil || bytes.Contains(rf.bytes, []byte(beginMark+iface)))
}

// explain turns the system's answer about a file into a *FileError.
func explain(name, real string, err error) error {
	if err == nil {
		return nil
	}
	e := &FileError{Path: name, Err: err}
	switch {
	case errors.Is(err, errChanged):
		e.Remedy = "run ibup up again when the editor is done"
	case errors.Is(err, unix.EROFS):
		e.Kind, e.Why, e.Remedy = ErrReadOnly, "not written, as it was", "mount -o remount,rw / if that is not on purpose"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind, e.Why, e.Remedy = ErrNoSpace, "not written, as it was", "free some space on its file system"
	case errors.Is(err, unix.EPERM) && real != "" && immutable(real):
		e.Kind, e.Why = ErrImmutable, "not written, as it was: it or its directory is immutable"
		e.Remedy = "see lsattr, then chattr -i -a"
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Why, e.Remedy = ErrPermission, "not allowed", "run ibup as root"
	case errors.Is(err, ErrNotRegular):
		e.Kind, e.Err, e.Why = ErrNotRegular, nil, err.Error()
		e.Remedy = "replace it by a plain file"
	case errors.Is(err, unix.ENOTSUP):
		e.Why, e.Remedy = "its SELinux label or ACL cannot be kept", "see getfattr -d -m - "+filepath.Base(name)
	}
	return e
}

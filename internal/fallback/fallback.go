// Package fallback keeps a node reachable over Ethernet while InfiniBand does
// not work: it installs the configured route in the kernel and, if asked, as a
// marked block in network-scripts/route-<dev>, and takes both away again.
//
// It keeps no state of its own. A route in the kernel is ibup's when it carries
// [Protocol]; a line in a file is ibup's when it stands in a block marked with
// the interface's name. So being killed at any point and started again needs
// no clean-up, and what others wrote is never touched.
package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ibup/internal/config"

	"github.com/vishvananda/netlink"
)

// Protocol is the rtnetlink route protocol (rtm_protocol) of every route this
// package adds. Numbers above RTPROT_STATIC (4) are left to user space by
// include/uapi/linux/rtnetlink.h; 73 ('I') is assigned to nobody there.
// `ip route` shows it as "proto 73".
const Protocol = 73

// Netlink is the part of rtnetlink this package needs. A [netlink.Handle] is
// one; tests count calls with another.
type Netlink interface {
	LinkByName(name string) (netlink.Link, error)
	LinkByIndex(index int) (netlink.Link, error)
	// RouteListFiltered lists routes of a family; with a zero mask the main table.
	RouteListFiltered(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error)
	// RouteAddEcmp is RTM_NEWROUTE with NLM_F_CREATE alone: for IPv4 the new
	// route comes before one of the same destination and metric.
	RouteAddEcmp(*netlink.Route) error
	RouteDel(*netlink.Route) error
}

// Installer installs and withdraws fallback routes.
type Installer struct {
	Root    string  // "" or "/" for the live machine
	Netlink Netlink // nil: only the file half is done (an image, a chroot)
}

// Outcome is what became of one half, live or file, of one route.
type Outcome string

// Outcomes. NotAsked is the zero value: Persist=no, or no Netlink.
const (
	NotAsked  Outcome = ""
	Installed Outcome = "installed" // written now
	Unchanged Outcome = "unchanged" // was as wished already: nothing written
	Removed   Outcome = "removed"   // ours, taken away now
	Absent    Outcome = "absent"    // not there
	Kept      Outcome = "kept"      // there, but not ibup's: left alone
	Failed    Outcome = "failed"    // see the error
)

// Result is what became of one configured route.
type Result struct {
	Route config.Route

	Live    Outcome
	LiveErr error // *RouteError when Live is Failed
	// Shadowed is a foreign IPv4 route of the same destination and metric that
	// goes another way. It stays in the kernel behind ours and takes over again
	// when ours is withdrawn.
	Shadowed string
	// Obstacle is what keeps packets from going this way, or the route from being
	// added, as far as the device shows it; "" for nothing.
	Obstacle string

	File    string // the route file on the machine, without Root; "" when NotAsked
	Persist Outcome
	FileErr error // *FileError when Persist is Failed
}

// Report is what became of all routes of one interface, in the order of the
// configuration.
type Report struct {
	Routes []Result
	// Findings are things in the files that will keep a route from working at
	// the next boot although it was written, such as a missing ifcfg-<dev>.
	Findings []Finding
	// Left are route files of other devices that still hold a block of the
	// interface, and why; each a *FileError.
	Left []error
}

// Live reports whether every route is in the kernel: the node is reachable as
// far as this package can tell. It is false for a report without routes.
func (r Report) Live() bool {
	for _, x := range r.Routes {
		if x.Live != Installed && x.Live != Unchanged && x.Live != Kept {
			return false
		}
	}
	return len(r.Routes) > 0
}

// Changed reports whether anything was written.
func (r Report) Changed() bool {
	for _, x := range r.Routes {
		for _, o := range []Outcome{x.Live, x.Persist} {
			if o == Installed || o == Removed {
				return true
			}
		}
	}
	return false
}

// Err joins all errors of the report; nil when there is none.
func (r Report) Err() error {
	var errs []error
	for _, x := range r.Routes {
		errs = append(errs, x.LiveErr)
		if !slices.Contains(errs, x.FileErr) { // one file, several routes
			errs = append(errs, x.FileErr)
		}
	}
	return errors.Join(append(errs, r.Left...)...)
}

// String is the route in the syntax of `ip route` with both outcomes.
func (r Result) String() string {
	s := r.Route.String()
	if r.Live != NotAsked {
		s += ": live " + string(r.Live)
	}
	if r.Persist != NotAsked {
		s += fmt.Sprintf(", %s %s", r.File, r.Persist)
	}
	if r.Shadowed != "" {
		s += ", goes before " + r.Shadowed
	}
	if r.Obstacle != "" {
		s += ", but " + r.Obstacle
	}
	return s
}

// Install puts the routes of iface's fallback into the kernel and, with
// f.Persist, into the route files. The kernel comes first and never depends on
// the files. Every route is tried; the error joins all that failed. A route
// whose device or gateway is not there yet fails with [ErrNotYet]: call again
// when a link or an address changed. Calling again when all is in place writes
// nothing. ctx bounds the wait for another ibup that writes the same files.
func (in Installer) Install(ctx context.Context, iface string, f config.Fallback) (Report, error) {
	files := in.readFiles(iface, f)
	rep := in.installLive(f, files.owns)
	if f.Persist {
		in.writeFiles(ctx, iface, f, &rep)
		in.findings(&rep)
	} else {
		in.cleanFiles(ctx, iface, f, &rep) // Persist was yes before
	}
	return rep, rep.Err()
}

// Withdraw removes what Install added for iface, from the files also when
// f.Persist is no longer set and from files of devices no longer named. A
// route that was there without ibup is Kept, and so is a live route that the
// block of another interface asks for.
func (in Installer) Withdraw(ctx context.Context, iface string, f config.Fallback) (Report, error) {
	files := in.readFiles(iface, f)
	rep := in.withdrawLive(f, files.owns, files.shared)
	in.cleanFiles(ctx, iface, f, &rep)
	return rep, rep.Err()
}

// State tells what is in place and changes nothing; it needs no privilege.
// Installed: ours; Kept: there, but not ours; Absent; Failed: could not be read.
func (in Installer) State(iface string, f config.Fallback) (Report, error) {
	files := in.readFiles(iface, f)
	rep := in.stateLive(f, files.owns)
	in.stateFiles(files, f, &rep)
	rep.Findings = in.Check(iface, f)
	return rep, rep.Err()
}

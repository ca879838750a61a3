package bringup

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"ibup/internal/config"
)

// Kind is what a step does.
type Kind string

// Kinds of steps. Those up to Withdraw change the machine, Verify sends packets,
// the others change nothing.
const (
	LoadModules  Kind = "load-modules"  // Modules
	BindDriver   Kind = "bind-driver"   // BDF: probe again through the driver's bind file
	CreateChild  Kind = "create-child"  // Index (parent), PKey
	DeleteChild  Kind = "delete-child"  // Index (parent), PKey; `ibup down` only
	Rename       Kind = "rename"        // Index: From → To
	SetMode      Kind = "set-mode"      // Index: From → To
	SetMTU       Kind = "set-mtu"       // Index, MTU (From: the MTU before)
	SetUp        Kind = "set-up"        // Index
	SetDown      Kind = "set-down"      // Index
	AddAddress   Kind = "add-address"   // Index, Prefix; Bare: without its connected route
	DelAddress   Kind = "del-address"   // Index, Prefix; `ibup down` only
	ReplaceRoute Kind = "replace-route" // Index, Route
	DelRoute     Kind = "del-route"     // Index, Route
	Install      Kind = "install-fallback"
	Withdraw     Kind = "withdraw-fallback"
	Unload       Kind = "unload-modules" // Modules; `ibup down --unload` only

	Verify Kind = "verify" // Index, Peers

	Wait Kind = "wait" // for Reason to go away, at most until Until
	Rest Kind = "rest" // the same with the fallback in place: there is no hurry
	Up   Kind = "up"   // all is as configured and proven
	Fail Kind = "fail" // Reason, and no fallback to go to
)

// Step is one thing to do. Which fields count depends on Kind. A step can be
// done again after it was done, wholly or in part, with the same result.
type Step struct {
	Kind    Kind          `json:"kind"`
	Link    string        `json:"link,omitempty"`  // name of the interface, for people
	Index   int           `json:"index,omitempty"` // its ifindex, for the kernel
	BDF     string        `json:"bdf,omitempty"`
	Modules []string      `json:"modules,omitempty"`
	PKey    uint16        `json:"pkey,omitempty"`
	From    string        `json:"from,omitempty"` // the value before
	To      string        `json:"to,omitempty"`
	MTU     int           `json:"mtu,omitempty"`
	Prefix  netip.Prefix  `json:"prefix,omitzero"`
	Bare    bool          `json:"bare,omitempty"`
	Route   Route         `json:"route,omitzero"`
	Was     *Route        `json:"was,omitempty"` // ReplaceRoute: the one before, with its Dev
	Peers   []netip.Addr  `json:"peers,omitempty"`
	Reason  *Reason       `json:"reason,omitempty"`
	Until   time.Duration `json:"until,omitempty"` // since boot; 0: until an event
	Why     string        `json:"why,omitempty"`
}

// Route is a route through the interface. Src is the preferred source address,
// which connected routes carry; Connected marks those the kernel makes of an
// address.
type Route struct {
	Dest      netip.Prefix `json:"dest,omitzero"`
	Via       netip.Addr   `json:"via,omitzero"`
	Dev       string       `json:"dev,omitempty"` // "": the interface itself
	Metric    int          `json:"metric,omitempty"`
	Src       netip.Addr   `json:"src,omitzero"`
	Connected bool         `json:"connected,omitempty"`
}

// Changes tells whether the step writes to the machine.
func (s Step) Changes() bool {
	switch s.Kind {
	case Verify, Wait, Rest, Up, Fail:
		return false
	}
	return true
}

// key tells steps apart that are attempts at the same thing.
func (s Step) key() string {
	switch s.Kind {
	case LoadModules, Install, Withdraw, Unload:
		return string(s.Kind)
	case BindDriver:
		return string(s.Kind) + " " + s.BDF
	case Wait, Rest, Fail:
		if s.Reason != nil {
			return string(s.Kind) + " " + string(s.Reason.Code)
		}
	}
	return fmt.Sprintf("%s %d %s", s.Kind, s.Index, s.args())
}

// String is the step in words a person can check against `ip` and sysfs.
func (s Step) String() string {
	switch s.Kind {
	case LoadModules:
		return "load " + strings.Join(s.Modules, ", ")
	case Unload:
		return "unload " + strings.Join(s.Modules, ", ")
	case BindDriver:
		return "bind mlx5_core to " + s.BDF + " again"
	case Wait:
		if s.Reason == nil {
			return "wait"
		}
		return "wait: " + s.Reason.Summary
	case Rest:
		return "stay on the fallback: " + s.Reason.Summary
	case Install:
		return "install the fallback route"
	case Withdraw:
		return "withdraw the fallback route"
	case Up:
		return s.Link + " is up"
	case Fail:
		return "give up"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(s.Kind), "-", " ") + " " + s.args())
}

func (s Step) args() string {
	switch s.Kind {
	case CreateChild, DeleteChild:
		return fmt.Sprintf("%s key 0x%04x", s.Link, s.PKey)
	case Rename, SetMode:
		if s.Kind == Rename {
			return s.From + " to " + s.To
		}
		return fmt.Sprintf("%s from %s to %s", s.Link, s.From, s.To)
	case SetMTU:
		return fmt.Sprintf("%s from %s to %d", s.Link, s.From, s.MTU)
	case AddAddress, DelAddress:
		return s.Prefix.String() + " on " + s.Link
	case ReplaceRoute, DelRoute:
		return s.Route.String() + " on " + s.Link
	case Verify:
		peers := make([]string, len(s.Peers))
		for i, p := range s.Peers {
			peers[i] = p.String()
		}
		return "that " + strings.Join(peers, ", ") + " answer over " + s.Link
	}
	return s.Link
}

// String is the route in the words of `ip route`, without its device.
func (r Route) String() string {
	dest := r.Dest.String()
	if r.Dest.Bits() == 0 {
		dest = "default"
	}
	if r.Via.IsValid() {
		dest += " via " + r.Via.String()
	}
	if r.Dev != "" {
		dest += " dev " + r.Dev
	}
	if r.Metric != 0 {
		dest += fmt.Sprintf(" metric %d", r.Metric)
	}
	return dest
}

func routeOf(r config.Route) Route {
	return Route{Dest: r.Dest, Via: r.Via, Dev: r.Dev, Metric: r.Metric}
}

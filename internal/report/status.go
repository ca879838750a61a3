// Package report says what is, for people and for programs. It reads what others
// have found and changes nothing.
package report

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"ibup/internal/bringup"
	"ibup/internal/config"
	"ibup/internal/fallback"
	"ibup/internal/host"
)

// StatusVersion is the version of Status' JSON form.
const StatusVersion = 1

// Status is how a machine's InfiniBand fares.
type Status struct {
	Version    int           `json:"version"`
	Kernel     string        `json:"kernel"`
	Uptime     time.Duration `json:"uptime_ns"`
	Modules    []Module      `json:"modules"`
	Family     string        `json:"module_family"` // "kernel" (inbox), "MLNX_OFED"; "" when none is loaded
	Interfaces []Interface   `json:"interfaces"`
	// Other are mlx5 functions and their ports that no interface has.
	Other []Port `json:"other_ports,omitempty"`
	// Unknown is what could not be read, and why.
	Unknown []string `json:"unknown,omitempty"`
}

// Module is a loaded module of the stack.
type Module struct {
	Name       string `json:"name"`
	State      string `json:"state"`
	Version    string `json:"version,omitempty"`
	SrcVersion string `json:"srcversion,omitempty"`
}

// Port is a port of an HCA, or a function that has none yet.
type Port struct {
	PCI       string `json:"pci"`
	PCIID     string `json:"pci_id"` // "15b3:1017"
	Class     string `json:"class"`  // "InfiniBand", "Ethernet"
	Driver    string `json:"driver,omitempty"`
	VFOf      string `json:"vf_of,omitempty"`
	Trouble   string `json:"trouble,omitempty"` // of the function itself
	Firmware  string `json:"firmware,omitempty"`
	Board     string `json:"board,omitempty"`
	Device    string `json:"device,omitempty"`
	Num       int    `json:"port,omitempty"`
	GUID      string `json:"guid,omitempty"`
	LinkLayer string `json:"link_layer,omitempty"`
	State     string `json:"state,omitempty"`
	PhysState string `json:"phys_state,omitempty"`
	LID       uint16 `json:"lid,omitempty"`
	SMLID     uint16 `json:"sm_lid,omitempty"`
	Rate      string `json:"rate,omitempty"`
}

// Interface is one configured interface.
type Interface struct {
	Name    string            `json:"name"`
	File    string            `json:"file,omitempty"` // "" for the default
	State   string            `json:"state"`          // "up", "fallback", "down", "coming up", "refused"
	Reason  *bringup.Reason   `json:"reason,omitempty"`
	Next    string            `json:"next,omitempty"` // the step that is due
	Notes   []bringup.Reason  `json:"notes,omitempty"`
	Port    *Port             `json:"port,omitempty"`
	Netdev  *Netdev           `json:"netdev,omitempty"`
	PKey    string            `json:"pkey"`
	Member  string            `json:"membership,omitempty"` // "full", "limited", "absent": what the port's table has
	MTU     bringup.MTUResult `json:"mtu"`
	Missing []string          `json:"missing_addresses,omitempty"`
	// Verified is the last proof that peers answer, with its age.
	Verified *bringup.Verification `json:"verified,omitempty"`
	Fallback []FallbackRoute       `json:"fallback,omitempty"`
	// RouteFile is what is wrong with the files that Persist=yes writes to.
	RouteFile []string `json:"route_file,omitempty"`
	// Run is the last process that worked on it.
	Run    *bringup.RunInfo `json:"run,omitempty"`
	Active bool             `json:"active"` // it still does
	Stages []Stage          `json:"stages,omitempty"`
}

// Netdev is the network interface.
type Netdev struct {
	Name      string   `json:"name"`
	Index     int      `json:"ifindex"`
	Driver    string   `json:"driver,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Up        bool     `json:"up"`
	Carrier   bool     `json:"carrier"`
	Addresses []string `json:"addresses,omitempty"`
}

// FallbackRoute is a configured fallback route and where it is in place.
type FallbackRoute struct {
	Route  string `json:"route"`
	Live   string `json:"live"` // "installed" (ibup's), "kept" (somebody else's), "absent"
	File   string `json:"file,omitempty"`
	InFile string `json:"in_file,omitempty"`
	// Trouble is what keeps packets from going that way, or the route from being
	// read.
	Trouble string `json:"trouble,omitempty"`
}

// Stage is a step or a wait of the last run, and how long it took.
type Stage struct {
	Name  string        `json:"name"`
	Begin time.Duration `json:"begin_ns"` // since boot
	Took  time.Duration `json:"took_ns"`
	Err   string        `json:"error,omitempty"`
}

// Input is what a Status is made from.
type Input struct {
	Set      config.Set
	Snapshot host.Snapshot
	Journals map[string]*bringup.Journal // by interface; absent: none
	Active   func(*bringup.Journal) bool
	Fallback func(iface string, f config.Fallback) (fallback.Report, error)
	Now      time.Duration // since boot
	Fill     func(config.Config, host.Snapshot, bringup.Facts) bringup.Facts
}

// NewStatus puts a Status together.
func NewStatus(in Input) Status {
	s := Status{Version: StatusVersion, Kernel: in.Snapshot.Kernel, Uptime: in.Now}
	for _, m := range in.Snapshot.Modules {
		s.Modules = append(s.Modules, Module{m.Name, m.State, m.Version, m.SrcVersion})
		if m.Name == "mlx_compat" {
			s.Family = "MLNX_OFED"
		} else if s.Family == "" {
			s.Family = "kernel"
		}
	}
	held := map[string]bringup.Place{}
	for name, j := range in.Journals {
		held[name] = j.Facts.Place
	}
	claims := bringup.Assign(in.Set.Interfaces, in.Snapshot, held)
	taken := map[bringup.Place]bool{}
	for _, c := range in.Set.Interfaces {
		i := newInterface(in, c, claims)
		s.Interfaces = append(s.Interfaces, i)
		if i.Port != nil {
			taken[bringup.Place{BDF: i.Port.PCI, Port: i.Port.Num}] = true
		}
	}
	sort.Slice(s.Interfaces, func(i, j int) bool { return s.Interfaces[i].Name < s.Interfaces[j].Name })
	for _, name := range in.Set.Refused {
		s.Interfaces = append(s.Interfaces, Interface{Name: name, State: "refused", Next: "ibup config check"})
	}
	for _, p := range ports(in.Snapshot) {
		if !taken[bringup.Place{BDF: p.PCI, Port: p.Num}] {
			s.Other = append(s.Other, p)
		}
	}
	for _, g := range in.Snapshot.Incomplete {
		s.Unknown = append(s.Unknown, g.What+": "+g.Why)
	}
	return s
}

func newInterface(in Input, c config.Config, claims []bringup.Claim) Interface {
	i := Interface{Name: c.Name, File: c.Path, PKey: fmt.Sprintf("0x%04x", c.IPoIB.PKey)}
	st := bringup.State{Snapshot: in.Snapshot, Now: in.Now, Deadline: in.Now + time.Hour}
	j := in.Journals[c.Name]
	if j != nil {
		st.Facts = j.Facts
		i.Stages = stages(j)
		i.Verified = j.Facts.Verified
		if n := len(j.Runs); n > 0 {
			i.Run = &j.Runs[n-1]
			i.Active = in.Active(j)
		}
	}
	st.Claims = slices.DeleteFunc(slices.Clone(claims), func(k bringup.Claim) bool { return k.Name == c.Name })
	attempts, carrier := st.Facts.Attempts, st.Facts.CarrierSince
	st.Facts = bringup.Observe(st.Facts, c, in.Snapshot, st.Claims, in.Now)
	st.Facts.Attempts = attempts
	if carrier != 0 && st.Facts.CarrierSince != 0 {
		st.Facts.CarrierSince = carrier
	}
	st.Facts = in.Fill(c, in.Snapshot, st.Facts)
	st.Facts.Verdict = bringup.Pending

	i.judge(bringup.Next(c, st))
	i.Notes = bringup.Notes(c, st)
	i.MTU = bringup.MTU(c, st)
	i.place(in.Snapshot, c, st.Facts.Place)
	if len(c.Fallback.Routes) > 0 {
		rep, _ := in.Fallback(c.Name, c.Fallback)
		for _, r := range rep.Routes {
			i.Fallback = append(i.Fallback, FallbackRoute{Route: r.Route.String(), Live: string(r.Live), File: r.File, InFile: string(r.Persist), Trouble: wayTrouble(r)})
		}
		for _, f := range rep.Findings {
			i.RouteFile = append(i.RouteFile, f.String())
		}
		if i.State == "down" && rep.Live() {
			i.State = "fallback"
		}
	}
	// Who waits on the fallback for better times is not coming up.
	if i.State == "down" && i.Active {
		i.State = "coming up"
	}
	return i
}

func wayTrouble(r fallback.Result) string {
	if err := errors.Join(r.LiveErr, r.FileErr); err != nil {
		return err.Error()
	}
	return r.Obstacle
}

// judge says how an interface fares from the step that is due now, so that the
// answer is that of this moment and not of the last run's end.
func (i *Interface) judge(step bringup.Step) {
	switch step.Kind {
	case bringup.Up, bringup.Verify:
		// Whether peers answer is for a run to find out, not for a look.
		i.State = "up"
		if v := i.Verified; step.Kind == bringup.Verify && v != nil && !v.OK {
			i.State = "down"
		}
	case bringup.Withdraw:
		i.State, i.Next = "up", step.String()
	case bringup.Wait, bringup.Rest, bringup.Fail, bringup.Install:
		i.State, i.Reason = "down", step.Reason
		if step.Reason.Code == bringup.Unstable {
			i.State, i.Reason = "up", nil
		}
	default:
		i.State, i.Next = "down", step.String()
	}
}

// place fills in port and network interface.
func (i *Interface) place(s host.Snapshot, c config.Config, p bringup.Place) {
	for _, x := range ports(s) {
		if x.PCI == p.BDF && (x.Num == p.Port || x.Num == 0) {
			i.Port = &x
			break
		}
	}
	l := bringup.Target(c, s, p)
	if l == nil {
		return
	}
	i.Netdev = &Netdev{Name: l.Name, Index: l.Index, Driver: l.Driver, Mode: l.Mode, Up: l.Up, Carrier: l.Carrier}
	for _, a := range l.Addrs {
		text := a.Prefix.String()
		if a.DADFailed {
			text += " (duplicate)"
		} else if a.Tentative {
			text += " (tentative)"
		}
		i.Netdev.Addresses = append(i.Netdev.Addresses, text)
	}
	for _, want := range c.Network.Addresses {
		if !slices.ContainsFunc(l.Addrs, func(a host.Addr) bool { return a.Prefix == want }) {
			i.Missing = append(i.Missing, want.String())
		}
	}
	i.PKey = fmt.Sprintf("0x%04x", l.PKey)
	i.Member = membership(s, p, l.PKey)
}

func membership(s host.Snapshot, p bringup.Place, key uint16) string {
	const full = 0x8000
	for _, d := range s.IB {
		for _, port := range d.Ports {
			if d.BDF != p.BDF || port.Num != p.Port || len(port.PKeys) == 0 {
				continue
			}
			switch {
			case slices.Contains(port.PKeys, key|full):
				return "full"
			case slices.Contains(port.PKeys, key&^full):
				return "limited"
			}
			return "absent"
		}
	}
	return ""
}

// ports are all ports of mlx5 functions.
func ports(s host.Snapshot) []Port {
	var out []Port
	for _, f := range s.PCI {
		base := Port{PCI: f.BDF, PCIID: fmt.Sprintf("%04x:%04x", f.Vendor, f.Device), Class: "InfiniBand", Driver: f.Driver, VFOf: f.PhysFn, Trouble: trouble(f)}
		if f.Class>>8 == 0x0200 {
			base.Class = "Ethernet"
		}
		n := len(out)
		for _, d := range s.IB {
			if d.BDF != f.BDF {
				continue
			}
			for _, p := range d.Ports {
				x := base
				x.Firmware, x.Board, x.Device, x.Num = d.Firmware, d.BoardID, d.Name, p.Num
				x.GUID = fmt.Sprintf("0x%016x", p.GUID)
				x.LinkLayer, x.State, x.PhysState, x.Rate = p.LinkLayer, p.State, p.PhysState, p.Rate
				x.LID, x.SMLID = p.LID, p.SMLID
				out = append(out, x)
			}
		}
		if len(out) == n {
			out = append(out, base)
		}
	}
	return out
}

func trouble(f host.PCIFunction) string {
	switch {
	case f.Dead:
		return "off the bus (reads all ones)"
	case !f.BAR0:
		return "BAR 0 is not assigned"
	case f.Probe == nil:
		return ""
	case f.Probe.Waiting:
		return "its firmware is starting"
	case f.Probe.Dying:
		return "its firmware has stopped"
	}
	return f.Probe.Err
}

// stages are the steps of the last run that did anything, and the waits between
// them.
func stages(j *bringup.Journal) []Stage {
	if len(j.Steps) == 0 {
		return nil
	}
	const gap = 100 * time.Millisecond // shorter is the loop's own time
	run := j.Steps[len(j.Steps)-1].Run
	var out []Stage
	var at time.Duration
	for _, e := range j.Steps {
		if e.Run != run {
			continue
		}
		if wait := e.Begin - at; at != 0 && wait > gap {
			out = append(out, Stage{Name: "wait" + waitedFor(j, at, e.Begin), Begin: at, Took: wait})
		}
		end := e.End
		if end == 0 {
			end = e.Begin
		}
		out = append(out, Stage{Name: string(e.Step.Kind), Begin: e.Begin, Took: end - e.Begin, Err: e.Err})
		at = end
	}
	return out
}

// waitedFor names the reason that held in most of a time.
func waitedFor(j *bringup.Journal, from, to time.Duration) string {
	for _, c := range slices.Backward(j.History) {
		if c.At < to && c.Code != "" {
			if c.At < from {
				break
			}
			return " " + string(c.Code)
		}
	}
	return ""
}

package bringup

import (
	"net/netip"
	"time"

	"ibup/internal/host"
)

// State is everything a decision depends on besides the configuration.
type State struct {
	host.Snapshot
	Now      time.Duration // since boot
	Deadline time.Duration // since boot: from here on waiting is over
	Claims   []Claim       // what the other interfaces have or will have
	Facts    Facts
}

// Verdict is what a run has come to.
type Verdict string

// Verdicts. Pending is the zero value.
const (
	Pending  Verdict = ""
	IsUp     Verdict = "up"
	Fallback Verdict = "fallback" // not up; the fallback route is in place
	Failed   Verdict = "failed"   // not up, and no fallback
)

// Facts are what the snapshot does not show: what was done and seen in this
// boot, from the journal, and what the surroundings say.
type Facts struct {
	Verdict Verdict `json:"verdict,omitempty"`
	// Place is the port this interface was given.
	Place Place `json:"place,omitzero"`
	// Attempts are the steps tried since the last progress, by Step.key.
	Attempts map[string]Attempt `json:"attempts,omitempty"`
	// CarrierSince is when the interface Carrier (an ifindex) was first seen with
	// the carrier it still has; 0: it has none.
	CarrierSince time.Duration `json:"carrier_since,omitempty"`
	Carrier      int           `json:"carrier,omitempty"`
	// Stack are the objects that attempts were made on; when it changes they are
	// forgotten.
	Stack string `json:"-"`
	// Unbound is since when functions have been seen without a driver, by BDF.
	Unbound map[string]time.Duration `json:"-"`
	// Verified is the last verification; nil when there was none.
	Verified *Verification `json:"verified,omitempty"`
	// Asked is the last MTU asked for and what came of it.
	Asked *MTUResult `json:"asked_mtu,omitempty"`
	// Refused is a mode that the kernel has refused.
	Refused *ModeResult `json:"refused_mode,omitempty"`
	// Withheld are routes through the interface that were taken away, or not
	// made, because they would draw traffic from the fallback.
	Withheld []Route `json:"withheld,omitempty"`
	// FallbackFiles: blocks of ours stand in route files.
	FallbackFiles bool `json:"fallback_files,omitempty"`
	// FilesTried: the file half was tried in this run, with whatever result.
	FilesTried bool `json:"-"`
	// InFlight is the step that is being done while the machine was looked at.
	InFlight *Step `json:"-"`
	// Silent: the look at the machine is not finished since this long.
	Silent time.Duration `json:"-"`
	// Modules is what the module trees say, when something is to be loaded.
	Modules ModulePlan `json:"-"`
	// UdevPending are interfaces (ifindex) that udev is still at work on.
	UdevPending []int `json:"-"`
	// EnhancedParam: ib_ipoib has the parameter ipoib_enhanced.
	EnhancedParam bool `json:"-"`
}

// Attempt is how often a step was tried in a row, and how the last one ended.
type Attempt struct {
	N     int           `json:"n"`
	At    time.Duration `json:"at"` // end of the last one
	Err   string        `json:"err,omitempty"`
	Errno int           `json:"errno,omitempty"`
}

// Verification is what came of asking the peers.
type Verification struct {
	At    time.Duration `json:"at"`
	Index int           `json:"index"`
	OK    bool          `json:"ok"`
	Peers []PeerResult  `json:"peers"`
}

// PeerResult is one peer's answer. Neighbour is the kernel's state of its
// neighbour entry ("REACHABLE", "FAILED", "" none) and LLAddr the address there.
type PeerResult struct {
	Peer      netip.Addr    `json:"peer"`
	Sent      int           `json:"sent"`
	Received  int           `json:"received"`
	RTT       time.Duration `json:"rtt_ns,omitempty"` // the shortest
	NextHop   netip.Addr    `json:"next_hop,omitzero"`
	Neighbour string        `json:"neighbour,omitempty"`
	LLAddr    string        `json:"lladdr,omitempty"`
	Err       string        `json:"err,omitempty"`
}

// MTUResult is what an asked-for MTU became.
type MTUResult struct {
	Index     int    `json:"index"`
	Asked     int    `json:"asked"`
	Effective int    `json:"effective"`
	LimitedBy string `json:"limited_by,omitempty"` // "mode", "port", "group", "": not limited
}

// ModeResult is a mode that an interface does not take.
type ModeResult struct {
	Index int    `json:"index"`
	Mode  string `json:"mode"`
	Err   string `json:"err"`
}

// ModulePlan is what the module trees say is to be loaded, in order; empty when
// all is there. Problem is why it cannot be.
type ModulePlan struct {
	Load    []string
	Problem *Reason
}

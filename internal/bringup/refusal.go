package bringup

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// enough is how many failures in a row of a kind that waiting does not cure are
// taken as final.
const enough = 3

// hopeless is the reason when an attempt's failure shows that another one will
// fail too; nil when it is worth trying again.
func (v *view) hopeless(step Step, a Attempt) *Reason {
	errno := unix.Errno(a.Errno)
	if a.Err == "" || step.Kind == Verify || step.Kind == Withdraw {
		return nil
	}
	if errno == unix.EPERM || errno == unix.EACCES && step.Kind != AddAddress {
		if step.Kind == LoadModules {
			return v.failed(step, a) // a signature, more likely than privilege
		}
		return because(PrivilegeMissing, []string{a.Err}, "what", step.String())
	}
	r := v.failed(step, a)
	switch step.Kind {
	case LoadModules:
		switch errno {
		case unix.EAGAIN, unix.EBUSY, unix.EINTR, unix.ENOMEM, 0:
			if a.N < enough {
				return nil
			}
		}
		return r
	case BindDriver:
		if errno == unix.ENODEV && (v.fn.Probe == nil || v.fn.Probe.Err == "") {
			return because(PCIUnknown, nil, "pci", v.pci(), "id", fmt.Sprintf("0x%04x", v.fn.Device))
		}
		if r.Code == FWTimeout || a.N < enough {
			return nil
		}
	case AddAddress, ReplaceRoute, CreateChild:
		if a.N < enough {
			return nil
		}
	default:
		return nil
	}
	r.Pointless = true
	return r
}

// failed is the reason while a step waits to be tried again.
func (v *view) failed(step Step, a Attempt) *Reason {
	err := a.Err
	if err == "" {
		err = fmt.Sprintf("done %d times, and undone each time by somebody else", a.N)
	}
	evidence := []string{}
	switch step.Kind {
	case LoadModules:
		evidence = v.kernelSays(step.Modules...)
		return because(ModRefused, evidence, "module", refusedModule(step, err), "error", err)
	case BindDriver:
		return v.probeReason(err)
	case CreateChild:
		return because(ChildRefused, evidence, "parent", step.Link, "pkey", fmt.Sprintf("0x%04x", step.PKey), "error", err)
	case ReplaceRoute:
		return because(RouteRefused, evidence, "route", step.Route.String(), "error", err, "link", v.cfg.Name, "file", fileOf(v.cfg))
	case Verify:
		return v.silentPeer()
	}
	return because(Refused, evidence, "step", step.String(), "error", err)
}

// refusedModule is the module that an error of the loader names.
func refusedModule(step Step, err string) string {
	for _, m := range step.Modules {
		for _, word := range strings.FieldsFunc(err, func(r rune) bool { return r == ' ' || r == ':' || r == ',' }) {
			if word == m {
				return m
			}
		}
	}
	return strings.Join(step.Modules, ", ")
}

// silentPeer tells from the neighbour entry how far the first silent peer is
// reached.
func (v *view) silentPeer() *Reason {
	var evidence []string
	var first *PeerResult
	if ver := v.s.Facts.Verified; ver != nil {
		for i := range ver.Peers {
			p := &ver.Peers[i]
			evidence = append(evidence, p.String())
			if first == nil && !p.OK() {
				first = p
			}
		}
	}
	if first == nil {
		first = &PeerResult{}
		if len(v.cfg.Verify.Ping) > 0 {
			first.Peer = v.cfg.Verify.Ping[0]
		}
	}
	code := PeerNoARP
	if first.LLAddr != "" {
		code = PeerNoEcho
	}
	return because(code, evidence, "peer", first.Peer.String(), "link", v.cfg.Name)
}

// OK tells whether the peer has answered every time.
func (p PeerResult) OK() bool { return p.Sent > 0 && p.Received == p.Sent }

func (p PeerResult) String() string {
	s := fmt.Sprintf("%s: %d/%d replies", p.Peer, p.Received, p.Sent)
	if p.NextHop.IsValid() && p.NextHop != p.Peer {
		s += " through " + p.NextHop.String()
	}
	switch {
	case p.LLAddr != "":
		s += fmt.Sprintf(", neighbour %s %s", strings.ToLower(p.Neighbour), p.LLAddr)
	case p.Neighbour != "":
		s += ", neighbour " + strings.ToLower(p.Neighbour)
	}
	if p.Err != "" {
		s += ", " + p.Err
	}
	return s
}

package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"ibup/internal/bringup"
)

// Style says how a text is shown.
type Style struct {
	Color bool
	Width int // columns to wrap at; 0: not
}

// The colours of a terminal (ECMA-48).
const (
	green, yellow, red, dim, reset = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
)

// Text writes a status on one screen.
func (s Status) Text(w io.Writer, style Style) error {
	p := &printer{w: w, style: style}
	for n, i := range s.Interfaces {
		if n > 0 {
			p.line("")
		}
		p.iface(s, i)
	}
	if len(s.Other) > 0 {
		p.line("")
		p.line("ports of no interface:")
		for _, o := range s.Other {
			p.line("  " + strings.Join(nonEmpty(o.device(), o.PCI, o.state(), o.guid(), o.Trouble), ", "))
		}
	}
	if len(s.Unknown) > 0 {
		p.line("")
		for _, u := range s.Unknown {
			p.line("could not be read: " + u)
		}
	}
	return p.err
}

type printer struct {
	w     io.Writer
	style Style
	err   error
}

func (p *printer) line(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text+"\n")
	}
}

const labelWidth = 12

// field writes "  label     text", wrapped.
func (p *printer) field(label, text string) {
	if text == "" {
		return
	}
	indent := "  " + strings.Repeat(" ", labelWidth-2)
	first := fmt.Sprintf("  %-*s", labelWidth-2, label)
	for i, l := range wrap(text, p.style.Width-labelWidth) {
		if i == 0 {
			p.line(first + l)
		} else {
			p.line(indent + l)
		}
	}
}

// wrap breaks a text at spaces; width 0 or less: not.
func wrap(text string, width int) []string {
	if width < 20 {
		return []string{text}
	}
	var lines []string
	var line string
	for _, word := range strings.Split(text, " ") {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

func (p *printer) paint(color, text string) string {
	if !p.style.Color {
		return text
	}
	return color + text + reset
}

func (p *printer) iface(s Status, i Interface) {
	color := map[string]string{"up": green, "fallback": yellow, "coming up": yellow}[i.State]
	if color == "" {
		color = red
	}
	state := i.State
	if state == "fallback" {
		state = "on the fallback"
	}
	file := i.File
	if file == "" {
		file = "(no file: the default)"
	}
	p.line(fmt.Sprintf("%s  %s  %s", i.Name, p.paint(color, state), p.paint(dim, file)))
	if r := i.Reason; r != nil {
		p.field("reason", fmt.Sprintf("%s: %s", r.Code, r.Summary))
		for _, e := range r.Evidence {
			p.field("", e)
		}
		p.field("remedy", r.Remedy)
	}
	p.field("next step", i.Next)
	if x := i.Port; x != nil {
		p.field("PCI", strings.Join(nonEmpty(x.PCI, x.PCIID+" "+x.Class, driver(x.Driver), vf(x.VFOf), x.Trouble), ", "))
		p.field("firmware", strings.TrimSpace(x.Firmware+" "+bracket(x.Board)))
	}
	p.field("modules", s.modules())
	if x := i.Port; x != nil && x.Device != "" {
		p.field("port", strings.Join(nonEmpty(x.device(), x.state(), fmt.Sprintf("LID %d", x.LID), fmt.Sprintf("SM LID %d", x.SMLID), x.Rate), ", "))
		p.field("port GUID", x.GUID)
	}
	if n := i.Netdev; n != nil {
		p.field("interface", strings.Join(nonEmpty(fmt.Sprintf("%s (index %d)", n.Name, n.Index), n.Driver, n.Mode, either(n.Up, "up", "down"), either(n.Carrier, "carrier", "no carrier")), ", "))
	}
	p.field("P_Key", i.PKey+membershipText(i.Member))
	p.field("MTU", mtuText(i.MTU))
	if n := i.Netdev; n != nil {
		p.field("address", strings.Join(n.Addresses, ", "))
	}
	for _, m := range i.Missing {
		p.field("missing", m)
	}
	if v := i.Verified; v != nil {
		for _, peer := range v.Peers {
			p.field("verified", fmt.Sprintf("%s%s, %s ago", peer, rtt(peer.RTT), ago(s.Uptime-v.At)))
		}
	}
	for _, f := range i.Fallback {
		p.field("fallback", f.Route+": "+f.text())
	}
	for _, f := range i.RouteFile {
		p.field("route file", f)
	}
	p.field("took", stagesText(i.Stages))
	for _, n := range i.Notes {
		p.field("note", fmt.Sprintf("%s: %s. %s", n.Code, n.Summary, n.Remedy))
	}
	if i.Active {
		p.field("process", fmt.Sprintf("%d is at it since %s", i.Run.PID, ago(s.Uptime-i.Run.Begin)))
	}
}

func (s Status) modules() string {
	var names []string
	for _, m := range s.Modules {
		name := m.Name
		if m.State != "live" && m.State != "builtin" {
			name += " (" + m.State + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "none loaded"
	}
	family := map[string]string{"kernel": "the kernel's own", "MLNX_OFED": "MLNX_OFED"}[s.Family]
	return fmt.Sprintf("%s: %s (kernel %s)", family, strings.Join(names, " "), s.Kernel)
}

func (x Port) device() string {
	if x.Device == "" {
		return "no InfiniBand device"
	}
	return fmt.Sprintf("%s port %d", x.Device, x.Num)
}

func (x Port) state() string {
	if x.State == "" {
		return x.LinkLayer
	}
	return fmt.Sprintf("%s, %s/%s", x.LinkLayer, x.State, x.PhysState)
}

func (x Port) guid() string {
	if x.GUID == "" {
		return ""
	}
	return "GUID " + x.GUID
}

func (f FallbackRoute) text() string {
	live := map[string]string{"installed": "in use", "kept": "in the kernel, not ibup's", "absent": "not in use", "failed": "unknown"}[f.Live]
	if live == "" {
		live = f.Live
	}
	switch f.InFile {
	case "installed":
		live += ", also in " + f.File
	case "kept":
		live += ", " + f.File + " has it by other hands"
	}
	if f.Trouble != "" {
		live += "; " + f.Trouble
	}
	return live
}

func mtuText(m bringup.MTUResult) string {
	if m.Effective == 0 {
		return ""
	}
	text := fmt.Sprint(m.Effective)
	switch {
	case m.Asked == 0:
	case m.LimitedBy != "":
		text += fmt.Sprintf(" (asked %d, limited by %s)", m.Asked, map[string]string{"mode": "datagram mode", "port": "the port", "group": "the broadcast group"}[m.LimitedBy])
	default:
		text += fmt.Sprintf(" (asked %d)", m.Asked)
	}
	return text
}

func membershipText(m string) string {
	switch m {
	case "full":
		return ", full member"
	case "limited":
		return ", limited member"
	case "absent":
		return ", not in the port's table"
	}
	return ""
}

// stagesText are the stages that took time, and their sum.
func stagesText(stages []Stage) string {
	if len(stages) == 0 {
		return ""
	}
	var parts []string
	for _, s := range stages {
		if s.Took < 10*time.Millisecond && s.Err == "" {
			continue
		}
		text := s.Name + " " + seconds(s.Took)
		if s.Err != "" {
			text += " (failed)"
		}
		parts = append(parts, text)
	}
	last := stages[len(stages)-1]
	total := "in all " + seconds(last.Begin+last.Took-stages[0].Begin)
	return strings.Join(append(parts, total), ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func ago(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func rtt(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(", %.2f ms", float64(d)/1e6)
}

func driver(d string) string {
	if d == "" {
		return "no driver"
	}
	return "driver " + d
}

func vf(of string) string {
	if of == "" {
		return ""
	}
	return "virtual function of " + of
}

func bracket(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

func either(on bool, yes, no string) string {
	if on {
		return yes
	}
	return no
}

func nonEmpty(parts ...string) []string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

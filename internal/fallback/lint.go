package fallback

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"ibup/internal/config"
)

// Severity of a finding.
type Severity string

// Severities.
const (
	Error   Severity = "error"   // something written there does not work
	Warning Severity = "warning" // it works in part, or not with everybody who reads it
)

// Finding is something in a route file, or around it, that keeps a route from
// working at the next boot.
type Finding struct {
	File     string // on the machine
	Line     int    // 1-based; 0: the file as a whole
	Severity Severity
	Text     string
	Remedy   string // "" when the text says it all
}

func (f Finding) String() string {
	where := f.File
	if f.Line > 0 {
		where = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	s := fmt.Sprintf("%s: %s: %s", where, f.Severity, f.Text)
	if f.Remedy != "" {
		s += "; " + f.Remedy
	}
	return s
}

// findings adds what Lint says of every device in the report.
func (in Installer) findings(rep *Report) {
	var devs []string
	for _, res := range rep.Routes {
		if res.Persist != NotAsked && !errors.Is(res.FileErr, ErrNoNetworkScripts) && !slices.Contains(devs, res.Route.Dev) {
			devs = append(devs, res.Route.Dev)
			rep.Findings = append(rep.Findings, in.Lint(res.Route.Dev)...)
		}
	}
}

// Check tells what will be wrong with the file half of a fallback before it is
// needed: route files it cannot be written to, that do not work, or that nobody
// reads. It is for Persist=yes on a machine that has network-scripts.
func (in Installer) Check(iface string, f config.Fallback) []Finding {
	if _, err := os.Stat(in.real(ScriptsDir)); !f.Persist || err != nil {
		return nil
	}
	var found []Finding
	var devs, refused []string
	for _, r := range f.Routes {
		name := FileOf(r)
		rf := in.readFiles(iface, config.Fallback{Routes: []config.Route{r}}).data[name]
		if fe, ok := errors.AsType[*FileError](rf.refusal(name, iface, r)); ok && fe.Kind != ErrDamagedBlock && !slices.Contains(refused, name) {
			refused = append(refused, name)
			found = append(found, Finding{File: name, Line: fe.Line, Severity: Error, Text: "the route " + r.String() + " cannot be written to it: " + fe.Why, Remedy: fe.Remedy})
		}
		if slices.Contains(devs, r.Dev) {
			continue
		}
		devs = append(devs, r.Dev)
		if rf.err == nil && rf.info == nil {
			found = append(found, in.lintReader(r.Dev, name)...)
		} else {
			found = append(found, in.Lint(r.Dev)...)
		}
	}
	return found
}

// refusal is why a route cannot be put into the file; nil when it can, or is there.
func (rf *routeFile) refusal(name, iface string, r config.Route) error {
	if rf.err == nil && foreign(rf.bytes, rf.segs, r) {
		return nil
	}
	_, _, err := rf.next(name, iface, []wish{{line: r.String()}})
	return err
}

// Lint checks the route files of a device and whether anybody will read them.
// A device without route files has no findings.
func (in Installer) Lint(dev string) []Finding {
	var found []Finding
	present := ""
	for _, kind := range []string{"route-", "route6-"} {
		name := path.Join(ScriptsDir, kind+dev)
		s, err := in.read(name)
		switch {
		case err != nil:
			found = append(found, Finding{File: name, Severity: Error, Text: err.Error()})
		case s.info != nil:
			present = name
			found = append(found, Lint(name, s.bytes)...)
		}
	}
	if present != "" {
		found = append(found, in.lintReader(dev, present)...)
	}
	return found
}

// lintReader finds out who reads a device's route files: initscripts and
// NetworkManager come to them through the device's ifcfg file only.
func (in Installer) lintReader(dev, name string) []Finding {
	own := path.Join(ScriptsDir, "ifcfg-"+dev)
	if text, err := os.ReadFile(in.real(own)); err == nil {
		if strings.EqualFold(variable(text, "ONBOOT"), "no") {
			return []Finding{{File: own, Severity: Warning, Text: "ONBOOT=no: " + dev + " and its routes do not come up at boot", Remedy: "set ONBOOT=yes"}}
		}
		return nil
	}
	entries, _ := os.ReadDir(in.real(ScriptsDir))
	for _, e := range entries {
		profile, ok := strings.CutPrefix(e.Name(), "ifcfg-")
		if !ok || slices.ContainsFunc(backups, func(b string) bool { return strings.HasSuffix(profile, b) }) {
			continue
		}
		text, err := os.ReadFile(in.real(path.Join(ScriptsDir, e.Name())))
		if err == nil && variable(text, "DEVICE") == dev {
			return []Finding{{File: name, Severity: Warning,
				Text:   "initscripts read it, but NetworkManager reads route-" + profile + ", because " + dev + "'s profile is ifcfg-" + profile,
				Remedy: "rename the profile to ifcfg-" + dev + " if NetworkManager manages it"}}
		}
	}
	return []Finding{{File: name, Severity: Error,
		Text:   "nobody reads it: there is no ifcfg-" + dev + " (a NetworkManager keyfile profile does not count)",
		Remedy: "make ifcfg-" + dev + ", or add the route to the profile with nmcli; ibup itself still installs the route at boot"}}
}

// variable is the last plain NAME=value of a shell file.
func variable(text []byte, name string) (value string) {
	for line := range bytes.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(string(line)), name+"="); ok {
			value = strings.Trim(v, `"'`)
		}
	}
	return value
}

// linter collects findings of one file.
type linter struct {
	file  string
	dev   string
	six   bool // route6-
	found []Finding
}

func (l *linter) add(line int, s Severity, remedy, format string, args ...any) {
	l.found = append(l.found, Finding{File: l.file, Line: line, Severity: s, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Lint checks the text of a route file. The name, route-<dev> or route6-<dev>,
// tells device and address family.
func Lint(name string, data []byte) []Finding {
	kind, dev, _ := strings.Cut(path.Base(name), "-")
	l := &linter{file: name, dev: dev, six: kind == "route6"}
	if _, err := split(data); err != nil {
		if fe, ok := errors.AsType[*FileError](err); ok {
			l.add(fe.Line, Error, fe.Remedy, "%s", fe.Why)
		}
	}
	if addressSyntax(data) > 0 {
		l.assignments(data)
	} else {
		l.lines(data)
	}
	slices.SortStableFunc(l.found, func(a, b Finding) int { return a.Line - b.Line })
	return l.found
}

// lines checks a file whose lines go to `ip route add`.
func (l *linter) lines(data []byte) {
	type key struct{ dest, metric any }
	seen := map[key]config.Route{}
	n := 0
	for raw := range bytes.Lines(data) {
		n++
		line := strings.TrimSuffix(string(raw), "\n")
		text := strings.TrimLeft(line, " \t")
		if text == "" || text[0] == '#' {
			continue
		}
		if strings.HasSuffix(line, "\r") {
			l.add(n, Error, "remove the carriage returns (sed -i 's/\\r$//' FILE)", "ends in CR LF: the carriage return becomes part of the last word and the route is refused")
			text = strings.TrimRight(text, "\r")
			if text == "" {
				continue
			}
		}
		if strings.HasSuffix(line, `\`) {
			l.add(n, Warning, "remove the backslash", "the next line becomes part of this one")
		}
		words := strings.Fields(text)
		if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i > 0 {
			l.add(n, Error, "put the comment on a line of its own", "a comment behind a route becomes arguments of `ip route add`, which refuses the line")
			text = strings.Join(words[:i], " ")
		}
		r, err := parseLine(l.dev, text)
		if bad, ok := errors.AsType[*wordError](err); ok {
			l.add(n, Error, "", "`ip route add` refuses it: %s", bad)
			continue
		}
		if err != nil { // words this linter does not know
			continue
		}
		l.route(n, r.Route)
		if r.more {
			continue
		}
		k := key{r.Dest, Priority(r.Dest, r.Metric)}
		if before, dup := seen[k]; !dup {
			seen[k] = r.Route
		} else if before == r.Route {
			l.add(n, Warning, "delete one", "the same route stands above")
		} else {
			l.add(n, Error, "give one another metric", "refused with \"File exists\": %q above has the same destination and metric", before.String())
		}
	}
}

func (l *linter) route(n int, r config.Route) {
	if r.Dest.Addr().Is6() != l.six {
		l.add(n, Error, "IPv4 routes belong into route-"+l.dev+", IPv6 routes into route6-"+l.dev, "wrong address family for this file")
	} else if r.Dest != r.Dest.Masked() && !l.six {
		l.add(n, Error, "write "+r.Dest.Masked().String(), "the kernel refuses %s: it has bits behind its prefix", r.Dest)
	}
	if r.Dev != l.dev {
		l.add(n, Warning, "", "the route of %s is added only when %s comes up", r.Dev, l.dev)
	}
}

// assignments checks a file in the ADDRESSn syntax.
func (l *linter) assignments(data []byte) {
	v := readNumbered(data)
	lines := bytes.Split(data, []byte("\n"))
	for _, n := range v.odd {
		text := string(lines[n-1])
		if _, err := parseLine(l.dev, text); err == nil {
			l.add(n, Error, "write all routes in one syntax", "run as a shell command, not as a route: the file has ADDRESSn= lines")
		} else if strings.HasSuffix(text, "\r") {
			l.add(n, Error, "remove the carriage returns (sed -i 's/\\r$//' FILE)", "ends in CR LF: the carriage return becomes part of the value")
		}
	}
	gap := 0
	for v.vars["ADDRESS"][gap] != "" {
		gap++
	}
	for i, addr := range v.vars["ADDRESS"] {
		n := v.line["ADDRESS"][i]
		if i > gap {
			l.add(n, Error, "number the routes from 0 without gaps", "never read: ADDRESS%d is missing", gap)
			continue
		}
		if addr == "" {
			continue
		}
		one := []byte("ADDRESS0=" + addr + "\nNETMASK0=" + v.vars["NETMASK"][i] + "\nGATEWAY0=" + v.vars["GATEWAY"][i] + "\n")
		out, err := Convert(l.dev, one)
		if err != nil {
			l.add(n, Error, "", "route %d is wrong: %s", i, strings.Replace(err.Error(), "0: ", fmt.Sprintf("%d: ", i), 1))
		} else if r, err := parseLine(l.dev, out[0]); err == nil && r.Dest.Addr().String() != addr {
			l.add(n, Error, fmt.Sprintf("write ADDRESS%d=%s", i, r.Dest.Addr()), "the kernel refuses it: %s has bits behind its netmask", addr)
		}
	}
	for _, name := range []string{"METRIC", "OPTIONS"} {
		for i := range v.vars[name] {
			l.add(v.line[name][i], Warning, "use lines of `ip route` if it matters", "%s%d is ignored by initscripts; only NetworkManager reads it", name, i)
		}
	}
}

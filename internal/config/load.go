package config

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
)

// Source is what a configuration is read from.
type Source struct {
	Root     string // "" or "/" for the live machine
	Cmdline  string // the content of /proc/cmdline
	Hostname string // for AddressFrom=; "": as the machine says
}

// Load reads the configuration of the machine below root. The error, [Errors],
// has all mistakes; the Set beside it has the interfaces without any, which can
// be brought up all the same, and names the others in Refused.
func Load(root, cmdline string) (Set, error) {
	return Source{Root: root, Cmdline: cmdline}.Load()
}

// ReadCmdline reads the kernel command line of the machine below root.
func ReadCmdline(root string) (string, error) {
	f, err := os.Open(tree{root}.path(procCmdline))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(b), err
}

// Load is [Load] with a host name.
func (s Source) Load() (Set, error) {
	l := s.load()
	if len(l.errs) > 0 {
		return l.set, l.errs
	}
	return l.set, nil
}

// draft is an interface on its way to a Set.
type draft struct {
	Config
	errs     Errors
	settings []setting
}

type loader struct {
	tree   tree
	wishes wishes
	drafts []*draft
	files  int // how many of the drafts are files
	set    Set
	errs   Errors
}

func (s Source) load() *loader {
	l := &loader{tree: tree{s.Root}}
	words, errs := l.tree.words(s.Cmdline)
	l.wishes = readWords(words, l.tree.initramfs())
	l.errs = append(errs, l.wishes.errs...)
	l.set.StandAside, l.set.Debug = l.wishes.standAside, l.wishes.debug

	names, unclear := l.tree.interfaces()
	l.errs = append(l.errs, unclear...)
	for _, name := range names {
		l.drafts = append(l.drafts, l.file(name))
	}
	l.files = len(l.drafts)
	l.addChildren()
	l.addSettings()
	if len(l.drafts) == 0 && len(unclear) == 0 {
		l.addDefaults()
	}
	host := l.tree.hostname(s.Hostname, words)
	for _, d := range l.drafts {
		d.errs = append(d.errs, override(&d.Config, d.settings)...)
		if err := l.tree.resolve(&d.Config, host); err != nil {
			d.errs = append(d.errs, err)
		}
		d.errs = append(d.errs, check(&d.Config, d.errs)...)
	}
	l.finish()
	return l
}

// file reads the file of one interface.
func (l *loader) file(name string) *draft {
	path := Dir + "/" + name + suffix
	data, err := l.tree.read(path)
	if err != nil && !errors.Is(err, errTooLarge) {
		d := &draft{Config: Default(name)}
		d.Path = path
		d.errs = Errors{{File: path, Iface: name, Msg: "cannot be read: " + err.Error(), Hint: readHint(err)}}
		return d
	}
	cfg, errs := parse(name, path, data)
	if err != nil {
		errs = append(errs, &Error{File: path, Iface: name, Msg: err.Error(), Hint: "is this a file of ibup's?"})
	}
	return &draft{Config: cfg, errs: errs}
}

func (l *loader) find(name string) *draft {
	if i := slices.IndexFunc(l.drafts, func(d *draft) bool { return d.Name == name }); i >= 0 {
		return l.drafts[i]
	}
	return nil
}

func (l *loader) add(name string) *draft {
	d := &draft{Config: Default(name)}
	l.drafts = append(l.drafts, d)
	return d
}

// addChildren does what ib.pkey= asks for: the named interface is on that
// partition, on the port of its parent.
func (l *loader) addChildren() {
	for _, c := range l.wishes.children {
		d := l.find(c.name)
		if d == nil {
			d = l.add(c.name)
			if p := l.find(c.parent); p != nil {
				d.Match = p.Match
				for _, k := range []string{"PortGUID", "PCI", "Device", "Port"} {
					if o, set := p.Origin["Match."+k]; set {
						d.Origin["Match."+k] = o
					}
				}
			}
		}
		if o := d.Origin["IPoIB.PKey"]; len(o) > 0 && d.IPoIB.PKey != c.pkey {
			d.errs = append(d.errs, &Error{File: c.from.File, Line: c.from.Line, Iface: c.name, Key: "ib.pkey",
				Msg: "says another P_Key than " + o[0].String(), Hint: "make the two the same"})
			continue
		}
		d.IPoIB.PKey = c.pkey
		d.Origin["IPoIB.PKey"] = []Origin{c.from}
	}
}

// addSettings hands the settings of the command line to their interfaces.
// Without a name they are for ib0, or for the one interface that there is.
func (l *loader) addSettings() {
	known := len(l.drafts)
	for _, s := range l.wishes.settings {
		name := s.iface
		switch {
		case name != "":
		case known == 1:
			name = l.drafts[0].Name
		case known == 0 || l.find("ib0") != nil:
			name = "ib0"
		default:
			f := s.fault
			if f == nil {
				f = bad("write ibup.INTERFACE."+s.key.arg+"=", "does not say which of the interfaces it is for")
			}
			l.errs = append(l.errs, &Error{File: s.word.from.File, Line: s.word.from.Line, Key: clip(s.word.key), Msg: f.msg, Hint: f.hint})
			continue
		}
		d := l.find(name)
		if d == nil {
			d = l.add(name)
		}
		d.settings = append(d.settings, s)
	}
}

// addDefaults: where nothing is said, there shall be the interface that dracut's
// ip= counts on, or else ib0.
func (l *loader) addDefaults() {
	for name := range l.wishes.dracut {
		if isIPoIBName(name) {
			l.add(name)
		}
	}
	if len(l.drafts) == 0 {
		l.add("ib0")
	}
}

// finish compares the interfaces with each other and takes the good ones.
func (l *loader) finish() {
	slices.SortStableFunc(l.drafts, func(a, b *draft) int { return compareNames(a.Name, b.Name) })
	var good []*Config
	for _, d := range l.drafts {
		if len(d.errs) == 0 {
			d.errs = crossCheck(&d.Config, good)
		}
		if len(d.errs) > 0 {
			l.errs = append(l.errs, d.errs...)
			l.set.Refused = append(l.set.Refused, d.Name)
			continue
		}
		good = append(good, &d.Config)
	}
	for _, d := range good {
		c := *d
		if _, named := l.wishes.dracut[c.Name]; named && l.tree.initramfs() {
			leaveToDracut(&c)
		}
		l.set.Interfaces = append(l.set.Interfaces, c)
	}
	slices.SortStableFunc(l.set.Interfaces, func(a, b Config) int {
		return free(a) - free(b)
	})
	l.errs.sort()
}

func free(c Config) int {
	if matchKey(c.Match) == "" {
		return 1
	}
	return 0
}

// leaveToDracut takes away what dracut does itself. Were the address there
// already, dracut would not go on to mount the root file system.
func leaveToDracut(c *Config) {
	c.DracutOwnsAddress = true
	c.Network, c.Verify = Network{}, Verify{}
	c.Origin = maps.Clone(c.Origin)
	for _, k := range keys() {
		if k.section == "Network" || k.section == "Verify" {
			delete(c.Origin, k.id())
		}
	}
}

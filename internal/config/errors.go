package config

import (
	"fmt"
	"sort"
	"strings"
)

// Error is one mistake in a configuration file or on the kernel command line.
type Error struct {
	File  string // as on the machine, without root; "/proc/cmdline" for the command line
	Line  int    // 1-based; 0: the file as a whole, or the command line
	Iface string // the interface that is not configured because of it; "": none
	Key   string // "Network.Address", "ibup.address"; "" when it is not about a key
	Msg   string // what is wrong and why
	Hint  string // what to do or write instead
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(Origin{e.File, e.Line}.String() + ": ")
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Msg)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Errors are all mistakes of a configuration, by file and line. [errors.As]
// finds the single ones.
type Errors []*Error

func (l Errors) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single errors.
func (l Errors) Unwrap() []error {
	errs := make([]error, len(l))
	for i, e := range l {
		errs[i] = e
	}
	return errs
}

func (l Errors) sort() {
	sort.SliceStable(l, func(i, j int) bool {
		if l[i].File != l[j].File {
			return l[i].File < l[j].File
		}
		return l[i].Line < l[j].Line
	})
}

func (o Origin) String() string {
	switch {
	case o.File == "":
		return "default"
	case o.File == procCmdline:
		return "kernel command line"
	case o.Line == 0:
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// fault is what is wrong with a value; where it stands is not known yet.
type fault struct{ msg, hint string }

func bad(hint, format string, args ...any) *fault {
	return &fault{fit(fmt.Sprintf(format, args...)), fit(hint)}
}

// fit keeps a text that quotes an absurd value within a few lines of a console.
func fit(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// nearest is the word of a list that was probably meant, or "".
func nearest(word string, list []string) string {
	best, dist := "", 4
	for _, w := range list {
		limit := 3
		if short := min(len(w), len(word)); short <= 3 {
			limit = 1
		} else if short <= 6 {
			limit = 2
		}
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d <= limit && d < dist {
			best, dist = w, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with the next
// one (the optimal string alignment distance).
func distance(a, b string) int {
	if max(len(a), len(b)) > 64 { // no key is that long
		return 64
	}
	row := func(i int) []int { r := make([]int, len(b)+1); r[0] = i; return r }
	var before, above []int
	cur := row(0)
	for j := range cur {
		cur[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, cur = above, cur, row(i)
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(above[j]+1, cur[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
	}
	return cur[len(b)]
}

// didYouMean is the hint for an unknown word: the nearest one, or all.
func didYouMean(word string, list []string) string {
	if w := nearest(word, list); w != "" {
		return "did you mean " + w + "?"
	}
	return "there are: " + strings.Join(list, ", ")
}

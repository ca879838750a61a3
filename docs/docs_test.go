// Package docs holds the documentation. Only tests are Go: they keep what is
// written about the program true.
package docs

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ibup/internal/bringup"
)

var update = flag.Bool("update", false, "write the list of reasons in troubleshooting.md")

const mark = "<!-- From here on: go test ./docs -update -->\n"

var quoted = regexp.MustCompile(`Code\s+= "(IB-[A-Z-]+)"`)

// reasons is the list of all reasons as it stands in troubleshooting.md, in the
// order of the source: what others depend on comes first.
func reasons(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("../internal/bringup/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	pages := bringup.Pages()
	codes := quoted.FindAllSubmatch(source, -1)
	if len(codes) != len(pages) {
		t.Fatalf("%d codes in the source, %d pages", len(codes), len(pages))
	}
	for _, m := range codes {
		code := bringup.Code(m[1])
		p, ok := pages[code]
		if !ok {
			t.Fatalf("%s has no page", code)
		}
		b.WriteString("\n### " + string(code) + "\n\n")
		b.WriteString(escape(p.Summary) + ".")
		if p.Pointless {
			b.WriteString(" *Waiting does not help.*")
		}
		b.WriteString("\n")
		// What to do about some depends wholly on the case.
		if remedy := strings.TrimSpace(strings.ReplaceAll(p.Remedy, "{hint}", "")); remedy != "" {
			b.WriteString("\n" + strings.TrimSuffix(escape(remedy), ".") + ".\n")
		}
	}
	return b.String()
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// escape keeps placeholders and file names from being taken for markup.
func escape(s string) string {
	s = strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(s)
	s = strings.ToUpper(s[:1]) + s[1:] // ASCII, or a placeholder
	return placeholder.ReplaceAllString(s, "‹$1›")
}

func TestReasonsAreDescribed(t *testing.T) {
	data, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	text, list, ok := strings.Cut(string(data), mark)
	if !ok {
		t.Fatalf("no line %q", mark)
	}
	if *update {
		if err := os.WriteFile("troubleshooting.md", []byte(text+mark+reasons(t)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if list != reasons(t) {
		t.Error("the list of reasons is not that of internal/bringup: go test ./docs -update")
	}
	for _, code := range regexp.MustCompile(`\bIB-[A-Z][A-Z-]+[A-Z]\b`).FindAllString(text, -1) {
		if _, known := bringup.Pages()[bringup.Code(code)]; !known {
			t.Errorf("%s is no reason of ibup's", code)
		}
	}
}

// The manual has every command with every flag, as the program's own help does, and
// nothing that there is not.
func TestManualOfCommands(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "ibup")
	if out, err := exec.Command("go", "build", "-o", bin, "ibup/cmd/ibup").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	help := func(args ...string) string {
		out, err := exec.Command(bin, append([]string{"help"}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	data, err := os.ReadFile("man/ibup.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(data), `\-`, "-")
	flag := regexp.MustCompile(`--[a-z][a-z-]+`)
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  ibup (\w+)`).FindAllStringSubmatch(help(), -1) {
		name := m[1]
		known[name] = true
		if !strings.Contains(manual, `\fBibup `+name) {
			t.Errorf("the manual has no command %s", name)
		}
		if name == "help" {
			continue
		}
		for _, f := range flag.FindAllString(help(name), -1) {
			known[f] = true
			if !strings.Contains(manual, f) {
				t.Errorf("the manual has no %s of %s", f, name)
			}
		}
	}
	for _, f := range flag.FindAllString(manual, -1) {
		if !known[f] {
			t.Errorf("ibup has no %s", f)
		}
	}
	// What the other documents tell a person to type exists, too.
	for _, name := range []string{"../README.md", "../README.zh-CN.md", "../CHANGELOG.md", "troubleshooting.md", "architecture.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range code(string(data)) {
			if m := regexp.MustCompile(`^(?:sudo )?ibup ([a-z]+)`).FindStringSubmatch(text); m != nil && !known[m[1]] {
				t.Errorf("%s: ibup has no command %s", name, m[1])
			}
		}
	}
}

// code is what stands in backquotes, and the lines of code blocks.
func code(text string) []string {
	var out []string
	block := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			block = !block
		} else if block {
			out = append(out, line)
		} else {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
				out = append(out, m[1])
			}
		}
	}
	return out
}

// Links between documents lead somewhere.
func TestLinks(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "..").Output()
	if err != nil {
		t.Skipf("no git checkout: %v", err)
	}
	link := regexp.MustCompile(`\]\(([^)#: ]+)(#[^)]*)?\)`)
	for _, name := range strings.Fields(string(out)) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			dir := name[:strings.LastIndex(name, "/")+1]
			if _, err := os.Stat(dir + m[1]); err != nil {
				t.Errorf("%s: dead link %s", name, m[1])
			}
		}
	}
}

package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Package is one Debian package at one version.
type Package struct{ Name, Version string }

// apt is a private instance of apt: its own sources, its own lists, and a
// dpkg status that says nothing is installed, so that dependencies resolve to
// a complete tree. It needs no root and leaves the machine's packages alone.
// Signatures are apt's own business: every source is signed-by Debian's
// archive keyring.
type apt struct {
	dir    string
	suites []string
	prefer string // suite to take packages from first, "" for apt's default
}

// newApt writes the configuration of a private apt below dir.
func newApt(ctx context.Context, dir, mirror, keyring string, suites []string, prefer string) (*apt, error) {
	a := &apt{dir: dir, suites: suites, prefer: prefer}
	for _, d := range []string{"etc/none.d", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	inherited, err := machineSettings(ctx)
	if err != nil {
		return nil, err
	}
	var sources strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&sources, "deb [arch=amd64 lang=none target=Packages signed-by=%s] %s %s main\n", keyring, mirror, s)
	}
	// parts and main point nowhere: hooks that the machine runs after its own
	// apt (cleaners, package-kit) are not to run for ours.
	conf := fmt.Sprintf(`Dir::Etc "%[1]s/etc";
Dir::Etc::main "none";
Dir::Etc::parts "none.d";
Dir::Etc::sourcelist "%[1]s/etc/sources.list";
Dir::Etc::sourceparts "none.d";
Dir::Etc::preferences "none";
Dir::Etc::preferencesparts "none.d";
Dir::Etc::trusted "none";
Dir::Etc::trustedparts "none.d";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Retries "3";
`, dir) + inherited
	files := map[string]string{"apt.conf": conf, "etc/sources.list": sources.String(), "status": ""}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// machineSettings returns those lines of the machine's apt configuration that
// say how to reach a mirror: proxies and date checks.
func machineSettings(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return "", fmt.Errorf("apt-config dump: %w (the bench is assembled with Debian's apt: install the packages apt and dpkg)", err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		for _, p := range []string{"Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::ForceIPv", "Acquire::socks"} {
			if strings.HasPrefix(line, p) {
				b.WriteString(line)
			}
		}
	}
	return b.String(), nil
}

func (a *apt) command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	if a.prefer != "" {
		args = append([]string{"-t", a.prefer}, args...)
	}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

// run executes an apt tool and returns its output; the error carries what apt
// printed as errors and warnings.
func (a *apt) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	cmd := a.command(ctx, tool, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%s %s: %w\n%s", tool, args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// update fetches the lists; a list that cannot be had or verified is an error.
func (a *apt) update(ctx context.Context) error {
	_, err := a.run(ctx, "", "apt-get", "update", "-q", "--error-on=any")
	return err
}

var instLine = regexp.MustCompile(`(?m)^Inst (\S+) \((\S+) `)

// resolve returns names and all their dependencies, in the order in which
// dpkg would unpack them.
func (a *apt) resolve(ctx context.Context, names []string) ([]Package, error) {
	out, err := a.run(ctx, "", "apt-get", append([]string{"install", "-s", "-q", "--no-install-recommends"}, names...)...)
	if err != nil {
		return nil, err
	}
	var ps []Package
	for _, m := range instLine.FindAllStringSubmatch(out, -1) {
		ps = append(ps, Package{m[1], m[2]})
	}
	if len(ps) == 0 {
		return nil, fmt.Errorf("apt-get install -s %s: nothing to install; it said:\n%s", strings.Join(names, " "), out)
	}
	return ps, nil
}

var uriLine = regexp.MustCompile(`(?m)^'[^']+' (\S+) (\d+) \S+`)

// debs returns the archive file name and the size of each package.
func (a *apt) debs(ctx context.Context, ps []Package) (files []string, total int64, err error) {
	out, err := a.run(ctx, "", "apt-get", append([]string{"download", "-q", "--print-uris"}, specs(ps)...)...)
	if err != nil {
		return nil, 0, err
	}
	byName := map[string]string{}
	for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
		name, _, _ := strings.Cut(m[1], "_")
		byName[name] = m[1]
		n, _ := strconv.ParseInt(m[2], 10, 64)
		total += n
	}
	for _, p := range ps {
		f, ok := byName[p.Name]
		if !ok {
			return nil, 0, fmt.Errorf("apt-get download --print-uris: no archive for %s %s", p.Name, p.Version)
		}
		files = append(files, f)
	}
	return files, total, nil
}

// download brings the archives into dir. apt verifies each against the signed
// lists, keeps one that is complete and fetches one that is not.
func (a *apt) download(ctx context.Context, dir string, ps []Package) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	_, err := a.run(ctx, dir, "apt-get", append([]string{"download", "-q"}, specs(ps)...)...)
	return err
}

func specs(ps []Package) []string {
	var s []string
	for _, p := range ps {
		s = append(s, p.Name+"="+p.Version)
	}
	return s
}

// debianSuite matches what a sources list of Debian proper names.
var debianSuite = regexp.MustCompile(`^(bullseye|bookworm|trixie|forky|sid|(old)*stable|testing|unstable)$`)

// findMirror returns the address of a Debian mirror: $IBUP_MIRROR, or the one
// that this machine's own apt uses for a Debian release.
func findMirror(ctx context.Context) (string, error) {
	if m := os.Getenv("IBUP_MIRROR"); m != "" {
		if u, err := url.Parse(m); err != nil || u.Scheme == "" {
			return "", fmt.Errorf("IBUP_MIRROR=%q is no address of a Debian mirror", m)
		}
		return strings.TrimSuffix(m, "/"), nil
	}
	// Lists that were never fetched count too: only the address is wanted.
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--no-release-info",
		"--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w (is this a Debian machine? otherwise install apt and dpkg and set IBUP_MIRROR)", err)
	}
	if m := pickMirror(string(out)); m != "" {
		return m, nil
	}
	return "", errors.New("this machine's apt sources name no Debian release: set IBUP_MIRROR to the address of a Debian mirror")
}

// pickMirror reads "suite component address" lines.
func pickMirror(targets string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "main" && debianSuite.MatchString(f[0]) {
			return strings.TrimSuffix(f[2], "/")
		}
	}
	return ""
}

// findKeyring returns the file of Debian's archive keys.
func findKeyring() (string, error) {
	candidates := []string{
		"/usr/share/keyrings/debian-archive-keyring.gpg",
		"/usr/share/keyrings/debian-archive-keyring.pgp",
	}
	if k := os.Getenv("IBUP_KEYRING"); k != "" {
		candidates = []string{k}
	}
	for _, k := range candidates {
		if _, err := os.Stat(k); err == nil {
			return k, nil
		}
	}
	return "", fmt.Errorf("no Debian archive keyring at %s: install debian-archive-keyring or set IBUP_KEYRING", strings.Join(candidates, " or "))
}

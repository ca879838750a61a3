package rpm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("IBUP_CI") == "1" {
			t.Fatal("no bash")
		}
		t.Skip("no bash")
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "ibup"), "ibup/cmd/ibup").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line, want := range map[string]string{
		"ibup s":              "status",
		"ibup config ":        "check show",
		"ibup config show --": "--root --json",
		"ibup down --":        "--unload --dry-run",
		"ibup help wa":        "wait",
		"ibup up --device 0":  "",
	} {
		words := strings.Split(line, " ")
		cmd := exec.Command(bash, append([]string{"-c", `source ibup.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ibup; echo "${COMPREPLY[*]}"`, "bash"}, words...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

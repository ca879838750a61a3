package fallback

import (
	"os/exec"
	"strings"
	"testing"
)

// A shell agrees on every assignment that is understood.
func TestAssignment(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		skip(t, "no bash")
	}
	tests := []struct {
		text  string
		value string
		ok    bool
	}{
		{"ADDRESS0=10.9.0.0", "10.9.0.0", true},
		{" \tADDRESS12=10.9.0.0  ", "10.9.0.0", true},
		{"ADDRESS0=", "", true},
		{`NETMASK0="255.255.0.0" # mask`, "255.255.0.0", true},
		{"GATEWAY3='10.20.0.1'\t#gw", "10.20.0.1", true},
		{"OPTIONS0='mtu 9000 $x'", "mtu 9000 $x", true},
		{"ADDRESS0=10.9.0.0#no", "", false}, // part of the word
		{"ADDRESS0=10.9.0.0 command", "", false},
		{"ADDRESS0=10.9.0.0; command", "", false},
		{"ADDRESS0=$NET", "", false},
		{`ADDRESS0="$NET"`, "", false},
		{`ADDRESS0="a"b`, "", false},
		{`ADDRESS0="a`, "", false},
		{"ADDRESS0=a\\b", "", false},
		{"ADDRESS0=a\r", "", false},
		{"ADDRESS01=a", "", false},
		{"ADDRESS=a", "", false},
		{"address0=a", "", false},
		{"ADDRESS0 =a", "", false},
		{"ADDRESS0", "", false},
		{"=", "", false},
	}
	for _, tt := range tests {
		name, n, value, ok := assignment(tt.text)
		if ok != tt.ok || ok && value != tt.value {
			t.Errorf("%q: %s %d %q %t", tt.text, name, n, value, ok)
		}
		if !tt.ok {
			continue
		}
		variable, _, _ := strings.Cut(strings.TrimSpace(tt.text), "=")
		out, err := exec.Command(bash, "-c", tt.text+"\nprintf %s \"$"+variable+"\"").Output()
		if err != nil || string(out) != tt.value {
			t.Errorf("bash makes %q of %q, %v", out, tt.text, err)
		}
	}
}

func TestAddressSyntax(t *testing.T) {
	for text, want := range map[string]int{
		"ADDRESS0=10.9.0.0\n":              1,
		"# a\n\n \tADDRESS17=\n":           3,
		"#ADDRESS0=10.9.0.0\n":             0,
		"ADDRESS=10.9.0.0\nADDRESSx0=1\n":  0,
		"XADDRESS0=10.9.0.0\nADDRESS0 =\n": 0,
		"10.9.0.0/16 via 10.20.0.1\n":      0,
		"":                                 0,
	} {
		if got := addressSyntax([]byte(text)); got != want {
			t.Errorf("%q: line %d, want %d", text, got, want)
		}
	}
}

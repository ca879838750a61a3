// Package hosttest makes directory trees that look like a machine, from a text
// that a person can review. A tree is what a captured machine is too.
//
//	# a comment
//	[sys/bus/pci/devices]               the directory of the lines below
//	0000:3b:00.0 -> ../../../devices/…  a symbolic link, its target as given
//	[sys/devices/…/0000:3b:00.0]
//	vendor: 0x15b3                      a file with one line
//	config =x b31517100601              a file with these bytes
//	ports/                              an empty directory
//	resource <<                         a file with the lines up to ">>"
//	0x0 0x0 0x0
//	>>
//	!driver                             removes what an earlier text has made
package hosttest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tree writes texts into a new directory, a later one over an earlier one, and
// returns the directory.
func Tree(t testing.TB, texts ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, text := range texts {
		if err := Write(root, text); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Read is the text in a file.
func Read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Write writes one text below root.
func Write(root, text string) error {
	dir := ""
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t")
		var err error
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			dir = strings.Trim(line, "[]")
		case line[0] == '!':
			err = os.RemoveAll(filepath.Join(root, dir, line[1:]))
		case strings.HasSuffix(line, " <<"):
			start := i + 1
			for i++; i < len(lines) && lines[i] != ">>"; i++ {
			}
			if i == len(lines) {
				return fmt.Errorf("line %d: no >> for it", start)
			}
			err = put(root, dir, strings.TrimSuffix(line, " <<"), []byte(strings.Join(lines[start:i], "\n")+"\n"))
		default:
			err = entry(root, dir, line)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

func entry(root, dir, line string) error {
	if name, target, ok := strings.Cut(line, " -> "); ok {
		path := filepath.Join(root, dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(target, path)
	}
	if name, digits, ok := strings.Cut(line, " =x "); ok {
		b, err := hex.DecodeString(digits)
		if err != nil {
			return err
		}
		return put(root, dir, name, b)
	}
	if name, value, ok := strings.Cut(line, ": "); ok {
		return put(root, dir, name, []byte(value+"\n"))
	}
	if name, ok := strings.CutSuffix(line, ":"); ok {
		return put(root, dir, name, []byte("\n"))
	}
	if name, ok := strings.CutSuffix(line, "/"); ok {
		return os.MkdirAll(filepath.Join(root, dir, name), 0o755)
	}
	return fmt.Errorf("%q is no entry", line)
}

func put(root, dir, name string, content []byte) error {
	path := filepath.Join(root, dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

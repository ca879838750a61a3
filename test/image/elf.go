package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
)

// addPrograms adds programs and libraries (paths relative to root) and every
// library they are linked with, each under the name it is asked for by.
func (t Files) addPrograms(root string, programs ...string) error {
	for _, p := range programs {
		if err := t.addELF(root, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

func (t Files) addELF(root, rel string) error {
	src, err := filepath.EvalSymlinks(filepath.Join(root, rel))
	if err != nil {
		return err
	}
	if _, ok := t["/"+rel]; ok {
		return nil
	}
	t.Add(rel, File{From: src, Mode: 0o755})
	f, err := elf.Open(src)
	if err != nil {
		return err
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Add("/usr/lib64/ld-linux-x86-64.so.2", File{From: filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), Mode: 0o755})
		}
	}
	for _, lib := range libs {
		if lib == "ld-linux-x86-64.so.2" { // the program's interpreter, by another path
			continue
		}
		found := ""
		for _, d := range []string{"usr/lib/" + triplet, "usr/lib/" + triplet + "/systemd"} {
			if _, err := os.Stat(filepath.Join(root, d, lib)); err == nil {
				found = filepath.Join(d, lib)
				break
			}
		}
		if found == "" {
			return fmt.Errorf("needs %s, which is not in the tree", lib)
		}
		if err := t.addELF(root, found); err != nil {
			return err
		}
	}
	return nil
}

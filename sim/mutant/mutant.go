// Package mutant reads the mutants of testdata/mutants, each a bug in one place that
// someone could make, and builds novasim with one of them: of the checker's checker, the
// part that touches files and the go command.
//
// A mutant is a patch with a header:
//
//	The publisher announces its object after the PUT.
//	Must break: 1-watched.
//	Guarded by: testdata/scenarios/known/late-intent.nova
//
// "Must break" names the invariants by which it is to be caught; "or any other" allows all. Each
// line "Guarded by" names a scenario, from the root of the tree, that fails on the mutant, uncut or by
// one of its cuts, and holds without it.
package mutant

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is where the mutants are, from the root of the tree.
const Dir = "testdata/mutants"

// Mutant is one patch.
type Mutant struct {
	// Name is the patch's file name without ".patch", Path its file.
	Name, Path string
	// Title is the first line: what the bug is.
	Title string
	// MustBreak is what the line of that name says.
	MustBreak string
	// Guards are the scenarios that must fail on it, from the root of the tree.
	Guards []string
	// Files are what it changes, from the root of the tree.
	Files []string
}

// Meant tells whether the mutant is to be caught by that invariant.
func (m *Mutant) Meant(invariant string) bool {
	return invariant != "" && (strings.Contains(m.MustBreak, invariant) || strings.Contains(m.MustBreak, "any other"))
}

// ErrUnknown is that no mutant is called as somebody asked.
var ErrUnknown = errors.New("no mutant is called")

// Load reads the mutants of the tree at root, sorted by name: those that a pattern matches, or all
// if there is none. A pattern is a name or a glob of names; a trailing ".patch" and the
// directory are allowed. A pattern that matches nothing is an ErrUnknown.
func Load(root string, patterns ...string) ([]Mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, Dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no mutants in %s", filepath.Join(root, Dir))
	}
	slices.Sort(files)
	used := make([]bool, len(patterns))
	var out []Mutant
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		wanted := len(patterns) == 0
		for i, p := range patterns {
			ok, err := path.Match(strings.TrimSuffix(filepath.Base(p), ".patch"), name)
			if err != nil {
				return nil, fmt.Errorf("mutant %q: %w", p, err)
			}
			used[i] = used[i] || ok
			wanted = wanted || ok
		}
		if !wanted {
			continue
		}
		m, err := read(root, file)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", name, err)
		}
		out = append(out, m)
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("%w %q; they are in %s", ErrUnknown, patterns[i], Dir)
	}
	return out, nil
}

// read reads one patch's header and the files that it names.
func read(root, file string) (Mutant, error) {
	m := Mutant{Name: strings.TrimSuffix(filepath.Base(file), ".patch"), Path: file}
	f, err := os.Open(file)
	if err != nil {
		return m, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for header := true; in.Scan(); {
		line := in.Text()
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			header = false
			m.Files = append(m.Files, name)
			continue
		}
		if !header || strings.HasPrefix(line, "--- ") {
			header = false
			continue
		}
		must, isMust := strings.CutPrefix(line, "Must break:")
		guard, isGuard := strings.CutPrefix(line, "Guarded by:")
		switch {
		case isMust:
			m.MustBreak = strings.TrimSpace(must)
		case isGuard:
			guard = strings.TrimSuffix(strings.TrimSpace(guard), ".nova") + ".nova"
			if _, err := os.Stat(filepath.Join(root, guard)); err != nil {
				return m, fmt.Errorf("guarded by: %w", err)
			}
			m.Guards = append(m.Guards, guard)
		case m.Title == "":
			m.Title = strings.TrimSpace(line)
		}
	}
	switch {
	case in.Err() != nil:
		return m, in.Err()
	case len(m.Files) == 0:
		return m, fmt.Errorf("%s changes no file", file)
	case m.MustBreak == "":
		return m, fmt.Errorf("%s has no line \"Must break: INVARIANT\"", file)
	}
	return m, nil
}

// Root returns the root of the tree in which dir lies: the nearest directory above with the
// mutants in it.
func Root(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if info, err := os.Stat(filepath.Join(at, Dir)); err == nil && info.IsDir() {
			return at, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", fmt.Errorf("%s is not in a tree with %s: mutants are patches of the source", dir, Dir)
		}
		at = up
	}
}

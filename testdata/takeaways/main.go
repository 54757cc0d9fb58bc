// Command takeaways shows that every row of docs/seed-coverage.md is held by its test:
// it takes the row's code away and expects the row's test to fail.
//
//	go run ./testdata/takeaways              # all rows
//	go run ./testdata/takeaways A21 D34      # these
//
// What is taken away is in testdata/takeaways/ROW.txt, one or more blocks of
//
//	file: auditor/ring.go
//	<<<<
//	the lines as they are, which must stand in the file exactly once
//	====
//	the lines that take their place, or none
//	>>>>
//
// The change is made in a copy of the tree. A test that does not build with it proves nothing and
// counts as a failure of the row; so does one that fails without it.
//
// Exit status: 0 every row's test failed as it must; 1 some did not; 2 wrong usage.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "takeaways:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// row is one of the table, with the test that holds it.
type row struct{ id, pkg, test string }

func run(only []string) error {
	rows, err := readRows("docs/seed-coverage.md")
	if err != nil {
		return fmt.Errorf("%w: %w (run it from the root of the repository)", errUsage, err)
	}
	for _, id := range only {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.id == id }) {
			return fmt.Errorf("%w: no row %s in docs/seed-coverage.md", errUsage, id)
		}
	}
	tree, err := os.MkdirTemp("", "takeaways")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := copyTree(tree); err != nil {
		return err
	}
	bad := 0
	for _, r := range rows {
		if len(only) > 0 && !slices.Contains(only, r.id) {
			continue
		}
		start := time.Now()
		err := check(tree, r)
		verdict := "failed, as it must"
		if err != nil {
			bad++
			verdict = err.Error()
		}
		fmt.Printf("%s  %-60s %5.1fs  %s\n", r.id, r.pkg+" "+r.test, time.Since(start).Seconds(), verdict)
	}
	if bad > 0 {
		return fmt.Errorf("%d rows are not held by their test", bad)
	}
	return nil
}

var testCell = regexp.MustCompile("^`([a-z0-9/.]+)` `(Test[A-Za-z0-9_/.-]+)`")

// readRows reads the table's rows: | id | section | statement | code | test | checked by |.
func readRows(path string) ([]row, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 6 {
			continue
		}
		id := strings.TrimSpace(cells[0])
		m := testCell.FindStringSubmatch(strings.TrimSpace(cells[4]))
		if len(id) != 3 || m == nil {
			continue
		}
		rows = append(rows, row{id, m[1], m[2]})
	}
	return rows, nil
}

// copyTree copies what git tracks, and what is new and not ignored.
func copyTree(to string) error {
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return fmt.Errorf("listing the tree: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		body, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(dst, body, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// check takes a row's code away in the copy, runs its test, and puts the code back.
func check(tree string, r row) error {
	text, err := os.ReadFile(filepath.Join(tree, "testdata", "takeaways", r.id+".txt"))
	if err != nil {
		return fmt.Errorf("nothing says what to take away: %w", err)
	}
	edits, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s.txt: %w", r.id, err)
	}
	for _, e := range edits {
		path := filepath.Join(tree, e.file)
		was, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(was), e.old); n != 1 {
			return fmt.Errorf("%s holds the lines to take away %d times, not once", e.file, n)
		}
		defer os.WriteFile(path, was, 0o644)
		if err := os.WriteFile(path, []byte(strings.Replace(string(was), e.old, e.new, 1)), 0o644); err != nil {
			return err
		}
	}
	pattern := "^" + strings.ReplaceAll(r.test, "/", "$/^") + "$"
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-timeout=120s", "-run", pattern, "./"+r.pkg)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return fmt.Errorf("does not build:\n%s", out)
	case bytes.Contains(out, []byte("no tests to run")):
		return errors.New("no such test")
	case err == nil:
		return errors.New("PASSED with its code taken away")
	case !bytes.Contains(out, []byte("FAIL")) && !bytes.Contains(out, []byte("panic:")):
		return fmt.Errorf("did not run: %w\n%s", err, out)
	}
	return nil
}

type edit struct{ file, old, new string }

// parse reads the blocks of a file that says what to take away.
func parse(text string) ([]edit, error) {
	var edits []edit
	for len(strings.TrimSpace(text)) > 0 {
		head, rest, ok := strings.Cut(text, "<<<<\n")
		if !ok {
			return nil, errors.New("a block has no <<<< line")
		}
		var file string
		for line := range strings.Lines(head) {
			if f, ok := strings.CutPrefix(strings.TrimSpace(line), "file: "); ok {
				file = f
			}
		}
		old, rest, ok1 := strings.Cut(rest, "====\n")
		new, rest, ok2 := strings.Cut(rest, ">>>>\n")
		if file == "" || !ok1 || !ok2 || old == "" {
			return nil, errors.New("a block is not file:, <<<<, ====, >>>>")
		}
		edits = append(edits, edit{file, old, new})
		text = rest
	}
	if len(edits) == 0 {
		return nil, errors.New("nothing is taken away")
	}
	return edits, nil
}

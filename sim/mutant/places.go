package mutant

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Places say, for each mutant by its name, by which runs of novasim it was caught last: the arguments
// of each, as "-seed 688": that of the search, and those of its guards. Who
// only wants to know whether all mutants are caught still need not search.
type Places map[string][]string

const placesFile = "places.txt"

const placesHead = `# Where each mutant was caught last, so that -quick need not search: arguments of novasim.
# Written by novasim -mutants -update.
`

// ReadPlaces reads the places that are kept in the tree; there may be none.
func ReadPlaces(root string) (Places, error) {
	p := Places{}
	f, err := os.Open(filepath.Join(root, Dir, placesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, args, ok := strings.Cut(line, " ")
		if args = strings.TrimSpace(args); !ok || !strings.HasPrefix(args, "-seed ") && !strings.HasPrefix(args, "-scenario ") {
			return nil, fmt.Errorf("%s:%d: expected a mutant and the arguments of a run of novasim, as \"NAME -seed 42\"", f.Name(), n)
		}
		p[name] = append(p[name], args)
	}
	return p, in.Err()
}

// Write keeps the places in the tree.
func (p Places) Write(root string) error {
	var b strings.Builder
	b.WriteString(placesHead)
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for _, args := range p[name] {
			fmt.Fprintf(&b, "%-44s %s\n", name, args)
		}
	}
	return os.WriteFile(filepath.Join(root, Dir, placesFile), []byte(b.String()), 0o644)
}

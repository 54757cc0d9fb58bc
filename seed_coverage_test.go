package nova_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What stands between backticks in a cell of docs/seed-coverage.md.
var ticked = regexp.MustCompile("`([^`]+)`")

// TestSeedCoverage holds docs/seed-coverage.md to the tree: the files, tests, checkers and mutants that
// it names exist, each row has its takeaway, and each takeaway its row. That the
// tests fail without the code, `go run ./testdata/takeaways` shows.
func TestSeedCoverage(t *testing.T) {
	text, err := os.ReadFile("docs/seed-coverage.md")
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if len(cells) != 6 || !regexp.MustCompile(`^[AD][0-9]{2}$`).MatchString(id) {
			continue
		}
		require.False(t, seen[id], "row %s stands twice", id)
		seen[id] = true
		code := ticked.FindAllStringSubmatch(cells[3], -1)
		require.NotEmpty(t, code, "row %s names no code", id)
		for _, file := range code {
			require.FileExists(t, file[1], "row %s", id)
		}
		test := ticked.FindAllStringSubmatch(cells[4], -1)
		require.Len(t, test, 2, "row %s: a test is its package and its name", id)
		requireTest(t, id, test[0][1], test[1][1])
		for _, proof := range ticked.FindAllStringSubmatch(cells[5], -1) {
			require.FileExists(t, proof[1], "row %s", id)
		}
		require.FileExists(t, filepath.Join("testdata", "takeaways", id+".txt"), "row %s", id)
	}
	takeaways, err := filepath.Glob("testdata/takeaways/*.txt")
	require.NoError(t, err)
	require.Len(t, takeaways, len(seen), "takeaways without a row, or rows without a takeaway")
}

// requireTest requires that the package declares the test.
func requireTest(t *testing.T, row, pkg, name string) {
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	require.NoError(t, err)
	top, _, _ := strings.Cut(name, "/")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "func "+top+"(t *testing.T)") {
			return
		}
	}
	require.Failf(t, "no such test", "row %s: package %s has no %s", row, pkg, top)
}

package play

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of marks is that of the sources: what they mark is on it, and what is on it they mark.
func TestMarksAreThoseOfTheSources(t *testing.T) {
	require.True(t, slices.IsSorted(marks[:]))
	found := map[string]bool{}
	collect := func(glob, prefix, call string) {
		files, err := filepath.Glob(glob)
		require.NoError(t, err)
		re := regexp.MustCompile(call)
		n := 0
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range re.FindAllSubmatch(text, -1) {
				found[prefix+string(m[1])] = true
				n++
			}
		}
		require.NotZero(t, n, glob)
	}
	collect("../../catalog/*.go", "catalog/", `\b(?:branch\(|commitChain\(ctx, what, )"([^"]+)"`)
	collect("../../star/*.go", "star/", `\bBranch\("([^"]+)"\)`)
	collect("../../auditor/events.go", "auditor/", `Action = "([^"]+)"`)
	collect("../*.go", "", `\.Mark\("([^"]+)"\)`)
	collect("*.go", "", `\.Mark\("([^"]+)"\)`)
	for name := range found {
		require.Contains(t, marks, name, "it is marked, and not on the list")
	}
	for _, name := range marks {
		family, _, _ := strings.Cut(name, "/")
		switch family {
		case "inject", "verdict", "duty", "late": // names made of what they are of
		default:
			if !found[name] && !strings.HasPrefix(name, "client/trim") && !strings.HasPrefix(name, "client/policy") && !strings.HasPrefix(name, "chaos/kill-") {
				t.Errorf("%s is on the list, and nothing marks it", name)
			}
		}
	}
	for name := range Spared() {
		require.Contains(t, marks, name)
	}
	for a := range faultActions {
		require.Contains(t, marks, "inject/"+a)
	}
}

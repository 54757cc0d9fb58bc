package play

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/scenarios.md names every statement as it is written, every option, action, subject and answer, and what it shows
// plays.
func TestScenarioDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/scenarios.md")
	require.NoError(t, err)
	doc := string(text)
	for name, v := range verbs {
		usage := strings.ReplaceAll(v.usage, "|", `\|`)
		if !strings.Contains(doc, v.usage) && !strings.Contains(doc, usage) {
			t.Errorf("statement %s: %q is not in the docs", name, v.usage)
		}
	}
	words := slices.Concat(slices.Sorted(maps.Keys(timings)), slices.Sorted(maps.Keys(nodeOptions)), slices.Sorted(maps.Keys(faultActions)),
		slices.Sorted(maps.Keys(callKinds)), slices.Sorted(maps.Keys(weather)), slices.Sorted(maps.Keys(subjects)), answers, partitionable)
	for _, w := range words {
		require.Regexp(t, "`[^`]*"+regexp.QuoteMeta(w)+"[^`]*`", doc, "it does not name %s", w)
	}
	used := map[string]bool{}
	examples := regexp.MustCompile("(?s)```nova\n(.*?)```").FindAllStringSubmatch(doc, -1)
	for _, m := range examples {
		require.Nil(t, playText(t, m[1]).Finding, m[1])
		for line := range strings.Lines(m[1]) {
			if f := strings.Fields(line); len(f) > 0 {
				used[f[0]] = true
			}
		}
	}
	for name := range verbs {
		require.True(t, used[name], "no example of %s", name)
	}
}

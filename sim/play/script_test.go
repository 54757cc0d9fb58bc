package play

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// A mistake in a script is answered with the file and the line, what was found, and what to write instead.
func TestScriptErrors(t *testing.T) {
	datadriven.RunTest(t, "testdata/script-errors", func(t *testing.T, d *datadriven.TestData) string {
		_, err := ParseScript("x.nova", strings.NewReader(d.Input))
		if err == nil {
			return "no error"
		}
		require.IsType(t, &ScriptError{}, err)
		return err.Error() + "\n"
	})
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, key string
		want         bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"a*", "ba", false},
		{"*a", "ba", true}, {"*a", "ab", false}, {"a*a", "a", false}, {"a*a", "aa", true}, {"slot/a/*1/*0", "slot/a/0001/0000", true},
		{"slot/a/*1/*0", "slot/a/0002/0000", false}, {"a*b*c", "a-b-c", true}, {"a*b*c", "a-c-b", false},
	} {
		require.Equal(t, c.want, glob(c.pattern, c.key), "%s of %s", c.pattern, c.key)
	}
}

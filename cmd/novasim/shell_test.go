package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"testdata/a-b_c.nova": "testdata/a-b_c.nova", "my file": "'my file'", "": "''", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "5:after+9:before": "5:after+9:before",
	} {
		require.Equal(t, want, quote(word))
		require.Equal(t, []string{"-a", word, "b"}, words("-a "+quote(word)+"  b"))
	}
	require.Empty(t, words("  "))
}

// A command that is printed can be given to a shell, whatever the path.
func TestReplayOfAPathWithSpaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it's a script.nova")
	require.NoError(t, os.WriteFile(path, []byte(small+"expect next s 3\n"), 0o600))
	v := object(t, exitBroken, "-scenario", path)
	args := words(strings.TrimPrefix(v["replay"].(string), "novasim "))
	require.Contains(t, args, path)
	require.Equal(t, v["hash"], object(t, exitBroken, args...)["hash"])
}

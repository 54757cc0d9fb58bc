package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files below a new root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

const patch = `Nothing is added.
Must break: 1-watched or 3-nothing-lost.
Guarded by: testdata/scenarios/x.nova

--- a/p/x.go
+++ b/p/x.go
@@ -1,3 +1,3 @@
 package p

-var x = 1
+var x = 0
`

// The mutants of the tree are as they must be: each applies to the files as they are, says what it must
// break, and its guards are there.
func TestMutantsApply(t *testing.T) {
	root, err := Root(".")
	require.NoError(t, err)
	mutants, err := Load(root)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(mutants), 40)
	for _, m := range mutants {
		require.NotEmpty(t, m.Title, m.Name)
		_, err := (&Builder{Root: root, Work: t.TempDir()}).overlay(t.Context(), t.TempDir(), &m)
		require.NoError(t, err, m.Name)
	}
	places, err := ReadPlaces(root)
	require.NoError(t, err)
	for name := range places {
		_, err := Load(root, name)
		require.NoError(t, err)
	}
}

func TestLoad(t *testing.T) {
	root := tree(t, map[string]string{"testdata/mutants/one.patch": patch, "testdata/mutants/two.patch": patch, "testdata/scenarios/x.nova": ""})
	all, err := Load(root)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, Mutant{Name: "one", Path: filepath.Join(root, Dir, "one.patch"), Title: "Nothing is added.",
		MustBreak: "1-watched or 3-nothing-lost.", Guards: []string{"testdata/scenarios/x.nova"}, Files: []string{"p/x.go"}}, all[0])
	require.True(t, all[0].Meant("3-nothing-lost"))
	require.False(t, all[0].Meant("2-no-dangling"))
	require.False(t, all[0].Meant(""))
	for _, pattern := range []string{"two", "t*", "two.patch", "testdata/mutants/two.patch"} {
		some, err := Load(root, pattern)
		require.NoError(t, err)
		require.Len(t, some, 1)
		require.Equal(t, "two", some[0].Name)
	}
	_, err = Load(root, "one", "three")
	require.ErrorContains(t, err, `no mutant is called "three"`)
	require.ErrorIs(t, err, ErrUnknown)

	for header, want := range map[string]string{
		"A bug.\n": `no line "Must break`,
		"Must break: x.\nGuarded by: nowhere.nova\n":    "nowhere.nova",
		"A bug.\nMust break: x.\n+++ of no file at all": "changes no file",
	} {
		body := patch[strings.Index(patch, "---"):]
		if strings.Contains(header, "+++") {
			body = ""
		}
		_, err := Load(tree(t, map[string]string{"testdata/mutants/m.patch": header + "\n" + body}))
		require.ErrorContains(t, err, want)
	}
	_, err = Load(t.TempDir())
	require.ErrorContains(t, err, "no mutants")
	_, err = Root(t.TempDir())
	require.ErrorContains(t, err, "is not in a tree")
}

// The tree stays as it is; the go command is given a copy that has the bug.
func TestOverlay(t *testing.T) {
	const source = "package p\n\nvar x = 1\n"
	root := tree(t, map[string]string{"p/x.go": source, "testdata/mutants/m.patch": patch, "testdata/scenarios/x.nova": ""})
	mutants, err := Load(root)
	require.NoError(t, err)
	dir := t.TempDir()
	file, err := (&Builder{Root: root}).overlay(t.Context(), dir, &mutants[0])
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), filepath.Join(root, "p/x.go"))
	mutated, err := os.ReadFile(filepath.Join(dir, "tree/p/x.go"))
	require.NoError(t, err)
	require.Equal(t, strings.Replace(source, "1", "0", 1), string(mutated))
	kept, err := os.ReadFile(filepath.Join(root, "p/x.go"))
	require.NoError(t, err)
	require.Equal(t, source, string(kept))

	require.NoError(t, os.WriteFile(filepath.Join(root, "p/x.go"), []byte("package p\n"), 0o600))
	_, err = (&Builder{Root: root}).overlay(t.Context(), t.TempDir(), &mutants[0])
	require.ErrorContains(t, err, "does not apply")
}

func TestPlaces(t *testing.T) {
	root := tree(t, map[string]string{"testdata/mutants/m.patch": patch})
	none, err := ReadPlaces(root)
	require.NoError(t, err)
	require.Empty(t, none)
	p := Places{"m": {"-seed 688", "-scenario testdata/scenarios/x.nova -seed 0 -cut 5:after"}, "a": {"-seed 1"}}
	require.NoError(t, p.Write(root))
	again, err := ReadPlaces(root)
	require.NoError(t, err)
	require.Equal(t, p, again)
	require.NoError(t, os.WriteFile(filepath.Join(root, Dir, "places.txt"), []byte("\nm\n"), 0o600))
	_, err = ReadPlaces(root)
	require.ErrorContains(t, err, "places.txt:2: expected")
}

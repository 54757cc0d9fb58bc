package dirbucket

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/objstore"
)

// What a listing passes over is found, and objects and the bucket's own are not.
func TestStrays(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, b.Put(t.Context(), "slot/a/1/0", []byte("x"), objstore.PutOptions{}))
	found, err := b.Strays(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, found)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "slot", "\xff\xfe"), nil, 0o600))
	require.NoError(t, os.Symlink("0", filepath.Join(dir, "slot", "a", "1", "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "slot", "pipe"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a folder", "in it"), 0o700))
	found, err = b.Strays(t.Context(), 10)
	require.NoError(t, err)
	var paths []string
	for _, s := range found {
		require.NotEmpty(t, s.Why)
		paths = append(paths, s.Path)
	}
	require.ElementsMatch(t, []string{"slot/\xff\xfe", "slot/a/1/link", "slot/pipe", "a folder"}, paths)
	found, err = b.Strays(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.NoError(t, b.Close())
}

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A data directory whose name is a link to a volume that is not mounted can be neither made nor opened. A start says so, and
// does not try for ever.
func TestADataDirectoryThatLeadsNowhereIsRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(filepath.Join(t.TempDir(), "gone"), link))
	for _, dir := range []string{link, filepath.Join(link, "data")} {
		_, err := lockData(dir, filepath.Join(dir, "meta"), true)
		require.ErrorIs(t, err, fs.ErrNotExist, dir)
	}
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(link), "there"), 0o755))
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("there", link))
	l, err := lockData(link, filepath.Join(link, "meta"), true)
	require.NoError(t, err, "a link to a folder")
	_, err = lockData(link, filepath.Join(link, "meta"), true)
	require.ErrorIs(t, err, errHeld)
	require.NoError(t, l.release())
}

// A lock that is abandoned leaves no folder that was made for it, and keeps what somebody put into one.
func TestAnAbandonedLockLeavesNoFolderOfItsOwn(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	l, err := lockData(dir, filepath.Join(dir, "meta"), true)
	require.NoError(t, err)
	require.NoError(t, l.abandon())
	require.NoDirExists(t, filepath.Join(top, "a"))

	l, err = lockData(dir, filepath.Join(dir, "meta"), true)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(top, "a", "file"), nil, 0o600))
	require.NoError(t, l.abandon())
	require.NoDirExists(t, dir)
	require.FileExists(t, filepath.Join(top, "a", "file"))
}

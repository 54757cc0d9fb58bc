package dirbucket

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/buckettest"
)

func openTest(t *testing.T, dir string) *Bucket {
	t.Helper()
	b, err := Open(dir, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestConformance(t *testing.T) {
	buckettest.Run(t, buckettest.Harness{
		Open:     func(t *testing.T) objstore.Bucket { return openTest(t, t.TempDir()) },
		Do:       buckettest.Do,
		Parallel: buckettest.Parallel,
		Reopen: func(t *testing.T, b objstore.Bucket) objstore.Bucket {
			old := b.(*Bucket)
			require.NoError(t, old.Close())
			return openTest(t, old.root)
		},
	})
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	b := openTest(t, dir)
	_, err := Open(dir, Options{})
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, dir, locked.Dir)
	require.ErrorContains(t, err, dir)
	require.NoError(t, b.Close())
	openTest(t, dir)
}

func TestOpenRefuses(t *testing.T) {
	notDir := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(notDir, nil, 0o600))
	_, err := Open(notDir, Options{})
	require.ErrorContains(t, err, notDir)
	for _, bad := range []string{"a/b", "a b", strings.Repeat("x", 65)} {
		_, err = Open(t.TempDir(), Options{Incarnation: bad})
		require.ErrorContains(t, err, "illegal incarnation")
	}
}

func TestOpenRemovesLeftOvers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by open")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, tempFolder), 0o750))
	left := filepath.Join(dir, tempFolder, "dead-7")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "slot"), 0o750))
	// Its process died between the link and the unlink: the object stays.
	require.NoError(t, os.Link(left, filepath.Join(dir, "slot", "0")))
	b := openTest(t, dir)
	require.Empty(t, names(t, filepath.Join(dir, tempFolder)))
	got, err := b.Get(t.Context(), "slot/0", 0, -1)
	require.NoError(t, err)
	require.Equal(t, "half", string(got))
}

// Without the sync of the file system what a dead process left in the air may vanish
// after it was seen.
func TestOpenNeedsTheSync(t *testing.T) {
	dir := t.TempDir()
	rec := &recorder{disk: osDisk{}, root: dir, led: newLedger()}
	rec.before = func(string, string) error { return unix.EIO }
	_, err := open(dir, Options{}, rec, time.Now)
	require.ErrorIs(t, err, unix.EIO)
	openTest(t, dir) // the lock was given back
}

func TestClosed(t *testing.T) {
	b := openTest(t, t.TempDir())
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	ctx := t.Context()
	require.ErrorIs(t, b.Put(ctx, "a", nil, ifAbsent), ErrClosed)
	_, err := b.Get(ctx, "a", 0, -1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.Stat(ctx, "a")
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.List(ctx, "", "", 1)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, b.Delete(ctx, []string{"a"})[0], ErrClosed)
	require.Equal(t, []string{tempFolder, lockFile}, names(t, b.root))
}

// The bucket's own names, and names that no file can have, are no keys.
func TestReservedKeys(t *testing.T) {
	b := openTest(t, t.TempDir())
	ctx := t.Context()
	for _, key := range []string{".tmp", ".tmp/x", "LOCK", "LOCK/x", "a/" + strings.Repeat("x", objstore.MaxSegmentBytes+1)} {
		require.ErrorIs(t, b.Put(ctx, key, nil, objstore.PutOptions{}), objstore.ErrBadKey)
		_, err := b.Get(ctx, key, 0, -1)
		require.ErrorIs(t, err, objstore.ErrBadKey)
		_, err = b.Stat(ctx, key)
		require.ErrorIs(t, err, objstore.ErrBadKey)
		require.ErrorIs(t, b.Delete(ctx, []string{key})[0], objstore.ErrBadKey)
	}
	for _, key := range []string{"a/.tmp", "a/LOCK", "lock", ".tmpx", "a/" + strings.Repeat("x", objstore.MaxSegmentBytes)} {
		require.NoError(t, b.Put(ctx, key, nil, ifAbsent))
	}
}

// A folder is no object, and neither is what someone else put there.
func TestForeignFiles(t *testing.T) {
	b := openTest(t, t.TempDir())
	ctx := t.Context()
	require.NoError(t, b.Put(ctx, "slot/a/0", []byte("x"), ifAbsent))
	require.NoError(t, os.Mkdir(b.tree.path("lost+found"), 0))
	require.NoError(t, os.WriteFile(b.tree.path("slot/a note"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(b.tree.path("slot/fifo"), 0o600))

	for _, key := range []string{"slot", "slot/a", "slot/a/0/below"} {
		_, err := b.Get(ctx, key, 0, -1)
		require.ErrorIs(t, err, objstore.ErrNotFound)
		_, err = b.Stat(ctx, key)
		require.ErrorIs(t, err, objstore.ErrNotFound)
		require.NoError(t, b.Delete(ctx, []string{key})[0])
		for _, opt := range []objstore.PutOptions{ifAbsent, {}} {
			err = b.Put(ctx, key, []byte("y"), opt)
			require.Error(t, err)
			require.NotErrorIs(t, err, objstore.ErrExists)
			require.NotErrorIs(t, err, objstore.ErrUnknown)
		}
	}
	infos, err := b.List(ctx, "", "", 10)
	require.NoError(t, err)
	require.Equal(t, []objstore.Info{{Key: "slot/a/0", Size: 1}}, infos)
	require.Empty(t, names(t, filepath.Join(b.root, tempFolder)))
}

// Someone removed folders by hand: one put may fail, none lies.
func TestFoldersRemovedByHand(t *testing.T) {
	b := openTest(t, t.TempDir())
	ctx := t.Context()
	require.NoError(t, b.Put(ctx, "slot/a/1/0", nil, ifAbsent))
	require.NoError(t, os.RemoveAll(b.tree.path("slot")))
	require.Error(t, b.Put(ctx, "slot/a/1/1", nil, ifAbsent))
	require.NoError(t, b.Put(ctx, "slot/a/1/1", nil, ifAbsent))
	_, err := b.Stat(ctx, "slot/a/1/1")
	require.NoError(t, err)
}

// Syncs of a folder are shared by all who come before one starts.
func TestFolderSyncsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &gatedDisk{gate: make(chan error)}
		s := folderSyncs{disk: d}
		answers := make(chan error, 20)
		ask := func(n int, path string) {
			for range n {
				go func() { answers <- s.sync(path) }()
			}
			synctest.Wait()
		}
		ask(1, "a")
		ask(9, "a") // too late for the first one
		require.Equal(t, 1, d.started)
		d.gate <- nil
		synctest.Wait()
		require.NoError(t, <-answers)
		require.Empty(t, answers)
		require.Equal(t, 2, d.started)

		ask(5, "a") // too late for the second one
		ask(1, "b") // another folder waits for nobody
		require.Equal(t, 3, d.started)
		broken := errors.New("broken")
		d.gate <- broken
		d.gate <- broken
		synctest.Wait()
		for range 10 {
			require.ErrorIs(t, <-answers, broken)
		}
		require.Empty(t, answers)
		d.gate <- nil
		for range 5 {
			require.NoError(t, <-answers)
		}
		synctest.Wait()
		require.Equal(t, 4, d.started)
		require.Empty(t, s.m)
	})
}

// gatedDisk syncs a folder when it is given the result.
type gatedDisk struct {
	disk
	gate    chan error
	started int
}

func (d *gatedDisk) syncDir(string) error {
	d.started++
	return <-d.gate
}

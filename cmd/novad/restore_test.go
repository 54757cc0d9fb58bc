package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/backup"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
)

// madeBackup is a backup of a store with a stream.
func madeBackup(t *testing.T) string {
	store, err := pebblestore.Open(filepath.Join(t.TempDir(), "meta"), pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	cat := catalog.New(store, clock.NewReal(), catalog.DefaultTiming(true), nil)
	require.NoError(t, cat.EnsureFormat(t.Context()))
	_, _, err = cat.CreateStream(t.Context(), "s", catalog.Policy{})
	require.NoError(t, err)
	return copied(t, store)
}

// copied is a backup of a store.
func copied(t *testing.T, store *pebblestore.Store) string {
	path := filepath.Join(t.TempDir(), "backup.tar")
	_, _, err := writeWhole(path, func(w io.Writer) (h backup.Header, err error) {
		return h, store.Checkpoint(t.Context(), func(dir string) error { return backup.Write(t.Context(), w, dir, backup.Header{}) })
	})
	require.NoError(t, err)
	return path
}

// restoredStream demands that a store was restored whole, with a time line of its own.
func restoredStream(t *testing.T, meta string) {
	store, err := pebblestore.Open(meta, pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	cat := catalog.New(store, clock.NewReal(), catalog.DefaultTiming(true), nil)
	id, err := cat.FindStream(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, uint64(1), id.Counter())
	v, _, err := cat.CreateStream(t.Context(), "t", catalog.Policy{})
	require.NoError(t, err)
	require.Greater(t, v.ID.Counter(), uint64(1)<<32)
}

// Cut after each of its steps, a restore is not there, and the next one makes it whole.
func TestRestoreCutAnywhere(t *testing.T) {
	file := madeBackup(t)
	for steps := range 6 {
		data := t.TempDir()
		meta := filepath.Join(data, "meta")
		r, err := newRestoration(file, data, meta, filepath.Join(data, "bucket"))
		require.NoError(t, err)
		for _, step := range []func() error{
			r.clear,
			func() error { // half unpacked
				require.NoError(t, os.Mkdir(r.staging, 0o755))
				return os.WriteFile(filepath.Join(r.staging, "000009.sst"), []byte("half"), 0o600)
			},
			r.clear,
			func() error { _, err := r.unpack(); return err },
			func() error { return r.raise(t.Context()) },
		}[:steps] {
			require.NoError(t, step())
		}
		require.NoError(t, r.close())
		require.NoDirExists(t, meta, "after %d steps", steps)
		object := filepath.Join(data, "bucket", "slot", "a", "0")
		require.NoError(t, os.MkdirAll(filepath.Dir(object), 0o750))
		require.NoError(t, os.WriteFile(object, nil, 0o600))
		_, err = openWith(t, nil, "--data", data)
		var usage *usageError
		require.ErrorAs(t, err, &usage, "nothing serves from it after %d steps", steps)
		require.ErrorContains(t, err, "no metadata: restore ")
		require.NotContains(t, err.Error(), "\n")
		require.NoDirExists(t, meta)

		r, err = newRestoration(file, data, meta, filepath.Join(data, "bucket"))
		require.NoError(t, err)
		_, err = r.run(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.close())
		require.NoDirExists(t, r.staging)
		restoredStream(t, meta)
	}
}

// What a store on etcd needs after its snapshot was restored: numbers that the lost time line never had, and no node that runs.
func TestATimelineBeginsInASharedStore(t *testing.T) {
	var usage *usageError
	meta := filepath.Join(t.TempDir(), "meta")
	store, err := pebblestore.Open(meta, pebblestore.Options{})
	require.NoError(t, err)
	require.ErrorAs(t, beginTimeline(t.Context(), store), &usage, "nothing of Nova's is there, as where the prefix is another")
	cat := catalog.New(store, clock.NewReal(), catalog.DefaultTiming(true), nil)
	require.NoError(t, cat.EnsureFormat(t.Context()))
	_, _, err = cat.CreateStream(t.Context(), "s", catalog.Policy{})
	require.NoError(t, err)

	session, err := store.OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	for _, key := range []string{catalog.RouteKey("a"), catalog.MemberKey("x")} {
		_, err = store.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(session.ID(), key, []byte{1})}})
		require.NoError(t, err)
		require.ErrorAs(t, beginTimeline(t.Context(), store), &usage, key)
		_, err = store.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Delete(key)}})
		require.NoError(t, err)
	}
	require.NoError(t, beginTimeline(t.Context(), store))
	require.NoError(t, store.Close())
	restoredStream(t, meta)
}

// Where the store is in its place already, as one in etcd is, a time line whose beginning was cut off is refused to nodes, until it is begun anew.
func TestNothingServesFromHalfATimeline(t *testing.T) {
	data := t.TempDir()
	meta := filepath.Join(data, "meta")
	require.NoError(t, served(t, nil, "--data", data).close())
	store, err := pebblestore.Open(meta, pebblestore.Options{})
	require.NoError(t, err)
	commits := 0
	for done := false; !done; commits++ {
		err := beginTimeline(t.Context(), &dyingStore{store, commits})
		if done = err == nil; !done {
			require.ErrorIs(t, err, errDied)
		}
		require.NoError(t, store.Close())
		n, err := openWith(t, nil, "--data", data)
		if commits == 0 || done {
			require.NoError(t, err, "cut after %d commits", commits)
			require.NoError(t, n.close())
		} else {
			var usage *usageError
			require.ErrorAs(t, err, &usage, "cut after %d commits", commits)
			require.ErrorContains(t, err, "restore the backup again")
			require.NotContains(t, err.Error(), "\n")
		}
		store, err = pebblestore.Open(meta, pebblestore.Options{})
		require.NoError(t, err)
	}
	require.Greater(t, commits, 3)
	require.NoError(t, store.Close())
}

// dyingStore takes some commits more, and then none, as of a process that was killed.
type dyingStore struct {
	metastore.Store
	left int
}

var errDied = errors.New("killed")

func (d *dyingStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	if d.left--; d.left < 0 {
		return 0, errDied
	}
	return d.Store.Commit(ctx, b)
}

func TestOneRestoreAtATime(t *testing.T) {
	file, data, elsewhere := madeBackup(t), t.TempDir(), t.TempDir()
	meta := filepath.Join(elsewhere, "meta")
	r, err := newRestoration(file, data, meta, "")
	require.NoError(t, err)
	_, err = newRestoration(file, data, filepath.Join(data, "meta"), "")
	require.ErrorContains(t, err, "another restore")
	_, err = newRestoration(file, t.TempDir(), meta, "")
	require.ErrorContains(t, err, "another restore")
	require.NoError(t, r.close())
}

// A node's lock is not in its metadata, which somebody may move aside under it, nor in a bucket that may be elsewhere.
func TestNoRestoreUnderARunningNode(t *testing.T) {
	file, data, elsewhere := madeBackup(t), t.TempDir(), t.TempDir()
	meta, bucket := filepath.Join(elsewhere, "meta"), filepath.Join(elsewhere, "bucket")
	n := served(t, nil, "--data", data, "--metastore", "pebble:"+meta, "--bucket", "dir:"+bucket)
	require.NoError(t, os.Rename(meta, meta+".old"))
	var usage *usageError
	_, err := newRestoration(file, data, meta, "")
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "a node runs")
	_, err = newRestoration(file, t.TempDir(), meta, "")
	require.ErrorContains(t, err, "a node runs", "another data directory was named")
	require.NoDirExists(t, meta)
	require.NoError(t, os.Rename(meta+".old", meta))

	other := served(t, nil, "--data", t.TempDir(), "--metastore", "pebble:"+filepath.Join(elsewhere, "meta2"))
	require.NoError(t, other.close(), "another node's metadata may be beside it")
	require.NoError(t, n.close())
	require.NoError(t, os.Rename(meta, meta+".old"))
	r, err := newRestoration(file, data, meta, bucket)
	require.NoError(t, err)
	_, err = openWith(t, nil, "--data", data)
	require.ErrorAs(t, err, &usage, "a node is not started under a restore")
	require.ErrorContains(t, err, "in use by another process")
	require.NoError(t, r.close())
}

// What a new file system begins with is no metadata, but tells of a volume whose place nothing can take.
func TestARestoreRefusesAVolume(t *testing.T) {
	file, data := madeBackup(t), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(data, "meta", "lost+found"), 0o700))
	_, err := newRestoration(file, data, filepath.Join(data, "meta"), "")
	var usage *usageError
	require.ErrorAs(t, err, &usage)
	require.ErrorContains(t, err, "is a mount point")
	require.NotContains(t, err.Error(), "\n")
}

// A backup that was damaged or cut off, or is no store's or a later version's, is refused, and leaves nothing.
func TestBadBackupsAreRefused(t *testing.T) {
	whole, err := os.ReadFile(madeBackup(t))
	require.NoError(t, err)
	flipped := bytes.Clone(whole)
	flipped[bytes.LastIndex(whole, []byte("nova pebblestore format"))] ^= 1
	files := map[string][]byte{
		"empty": nil, "cut": whole[:len(whole)/2], "longer": append(bytes.Clone(whole), 'x'), "flipped": flipped,
		"future": bytes.Replace(whole, []byte(`"format":1`), []byte(`"format":2`), 1),
	}
	for name, put := range map[string][]byte{"no store of Nova's": nil, "later keyspace": {1, 2, 64}, "later value": {7, 1, 64}} {
		store, err := pebblestore.Open(filepath.Join(t.TempDir(), "meta"), pebblestore.Options{})
		require.NoError(t, err)
		key := catalog.FormatKey
		if put == nil {
			key = "something"
		}
		_, err = store.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(key, put)}})
		require.NoError(t, err)
		files[name], err = os.ReadFile(copied(t, store))
		require.NoError(t, err)
		require.NoError(t, store.Close())
	}
	for name, b := range files {
		data := t.TempDir()
		file := filepath.Join(t.TempDir(), "backup.tar")
		require.NoError(t, os.WriteFile(file, b, 0o600))
		r, err := newRestoration(file, data, filepath.Join(data, "meta"), "")
		require.NoError(t, err)
		_, err = r.run(t.Context())
		var usage *usageError
		require.ErrorAs(t, err, &usage, name)
		if name == "future" || name == "later keyspace" || name == "later value" {
			require.ErrorContains(t, err, "upgrade novad", name)
		}
		require.NoError(t, r.close())
		left, err := os.ReadDir(data)
		require.NoError(t, err)
		require.Empty(t, left, name)
	}
}

func TestWriteWholeLeavesNothingOfAFailure(t *testing.T) {
	dir := t.TempDir()
	_, _, err := writeWhole(filepath.Join(dir, "x"), func(w io.Writer) (backup.Header, error) {
		_, err := w.Write([]byte("half"))
		require.NoError(t, err)
		return backup.Header{}, io.ErrUnexpectedEOF
	})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	timing := catalog.DefaultTiming(true)
	timing.TrimGrace = time.Minute
	require.Equal(t, timing.ReapGrace, wholeFor(timing), "the smaller one")
}

package pebblestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// A checkpoint holds what was answered before it, nothing that came after, and no session's keys; it is gone afterwards.
func TestCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "meta")
	s := openDir(t, dir)
	before := put(t, s, "before", "1")
	session, err := s.OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(session.ID(), "session", nil)}})
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, s.Checkpoint(t.Context(), func(at string) error {
		put(t, s, "after", "2")
		require.Equal(t, filepath.Dir(dir), filepath.Dir(at), "beside the store, for hard links")
		return os.CopyFS(copied, os.DirFS(at))
	}))
	c := openDir(t, copied)
	require.Equal(t, metastore.Record{Key: "before", Value: []byte("1"), Version: before}, get(t, c, "before"))
	require.False(t, get(t, c, "after").Exists())
	require.False(t, get(t, c, "session").Exists())
	require.Greater(t, put(t, c, "k", ""), before, "revisions go on")
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Len(t, left, 1, "only the store")

	says := errors.New("the reader fails")
	require.ErrorIs(t, s.Checkpoint(t.Context(), func(string) error { return says }), says)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Checkpoint(ended, func(string) error { return nil }), context.Canceled)
}

// Commits go on while checkpoints are taken: each holds a prefix of them.
func TestCheckpointsOfABusyStore(t *testing.T) {
	s := openDir(t, filepath.Join(t.TempDir(), "meta"))
	written := make(chan int)
	stop := make(chan struct{})
	go func() {
		n := 0
		defer func() { written <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Commit(context.Background(), metastore.Batch{Ops: []metastore.Op{
				metastore.Put("a"+strconv.Itoa(n), nil), metastore.Put("b"+strconv.Itoa(n), nil),
			}}); err != nil {
				return
			}
		}
	}()
	least := 0
	for range 3 {
		for get(t, s, "a"+strconv.Itoa(least)).Exists() {
			least++
		}
		copied := filepath.Join(t.TempDir(), "copy")
		require.NoError(t, s.Checkpoint(t.Context(), func(at string) error { return os.CopyFS(copied, os.DirFS(at)) }))
		c := openDir(t, copied)
		n := 0
		for get(t, c, "a"+strconv.Itoa(n)).Exists() {
			require.True(t, get(t, c, "b"+strconv.Itoa(n)).Exists(), "each whole")
			n++
		}
		require.GreaterOrEqual(t, n, least, "what was answered before is in it")
		require.False(t, get(t, c, "b"+strconv.Itoa(n)).Exists(), "or not at all")
	}
	close(stop)
	require.Positive(t, <-written)
}

// Close waits for a checkpoint, and none begins after it.
func TestCloseWaitsForACheckpoint(t *testing.T) {
	s, err := Open("data/meta", Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	closed := make(chan error, 1)
	require.NoError(t, s.Checkpoint(t.Context(), func(dir string) error {
		go func() { closed <- s.Close() }()
		for {
			if _, err := s.Get(t.Context(), "k"); errors.Is(err, metastore.ErrClosed) {
				break // Close has begun
			}
		}
		select {
		case <-closed:
			t.Error("closed under a checkpoint")
		default:
		}
		_, err := s.opts.FS.Stat(dir)
		return err
	}))
	require.NoError(t, <-closed)
	require.ErrorIs(t, s.Checkpoint(t.Context(), func(string) error { return nil }), metastore.ErrClosed)
}

func TestCheckpointsOfACrashAreRemoved(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"meta.checkpoint-7", "meta.checkpoint-old", "other.checkpoint-1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, name, "x"), 0o700))
	}
	openDir(t, filepath.Join(parent, "meta"))
	require.NoDirExists(t, filepath.Join(parent, "meta.checkpoint-7"))
	require.DirExists(t, filepath.Join(parent, "meta.checkpoint-old"))
	require.DirExists(t, filepath.Join(parent, "other.checkpoint-1"))
}

func TestLaterFormatsAskForAnUpgrade(t *testing.T) {
	for found, later := range map[string]bool{format: false, "nova pebblestore format 2": true, "nova pebblestore format 11": true, "nova pebblestore format x": false, "other 2": false} {
		require.Equal(t, later, laterFormat(found), found)
	}
	require.ErrorContains(t, &FormatError{"dir", "a", "b", true}, "dir holds a; this version reads b: upgrade novad")
}

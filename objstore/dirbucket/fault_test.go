package dirbucket

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/nova-store/nova/objstore"
)

// A put that fails before its object could be seen has no effect and leaves nothing.
func TestFailedPutLeavesNothing(t *testing.T) {
	for _, op := range []string{"create", "write", "sync", "close", "mkdir", "link", "rename"} {
		t.Run(op, func(t *testing.T) {
			b, rec := openRecorded(t, Options{}, nil)
			ctx := t.Context()
			opt := objstore.PutOptions{IfAbsent: op != "rename"}
			failOn := func(fail, path string) {
				rec.before = func(op, p string) error {
					if op == fail && strings.HasPrefix(p, path) {
						return unix.ENOSPC
					}
					return nil
				}
			}
			path := map[string]string{"mkdir": "slot/a/1", "link": "slot/", "rename": "slot/"}[op]
			failOn(op, path)
			err := b.Put(ctx, "slot/a/1/0", []byte("x"), opt)
			require.ErrorIs(t, err, unix.ENOSPC)
			require.ErrorContains(t, err, `put "slot/a/1/0"`)
			require.NotErrorIs(t, err, objstore.ErrUnknown)
			require.Empty(t, names(t, filepath.Join(b.root, tempFolder)))
			require.Equal(t, []string{tempFolder, lockFile}, names(t, b.root))
			_, err = b.Get(ctx, "slot/a/1/0", 0, -1)
			require.ErrorIs(t, err, objstore.ErrNotFound)

			failOn("", "")
			require.NoError(t, b.Put(ctx, "slot/a/1/0", []byte("x"), opt))
			require.Equal(t, "file", rec.afterCut("slot/a/1/0"))
		})
	}
}

// After a failed sync of a folder nothing that the bucket could say is certain: it stops.
func TestFailedSyncStopsTheBucket(t *testing.T) {
	for name, write := range map[string]func(b *Bucket) error{
		"put":    func(b *Bucket) error { return b.Put(context.Background(), "slot/1", []byte("x"), ifAbsent) },
		"exists": func(b *Bucket) error { return b.Put(context.Background(), "slot/0", []byte("x"), ifAbsent) },
		"delete": func(b *Bucket) error { return b.Delete(context.Background(), []string{"slot/0"})[0] },
	} {
		t.Run(name, func(t *testing.T) {
			var causes []error
			b, rec := openRecorded(t, Options{OnFail: func(err error) { causes = append(causes, err) }}, nil)
			ctx := t.Context()
			require.NoError(t, b.Put(ctx, "slot/0", nil, ifAbsent))
			rec.before = func(op, path string) error {
				if op == "syncdir" {
					return unix.EIO
				}
				return nil
			}
			err := write(b)
			require.ErrorIs(t, err, objstore.ErrUnknown)
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, err, unix.EIO)
			require.NotErrorIs(t, err, objstore.ErrExists)
			require.Equal(t, []error{unix.EIO}, causes)

			rec.before = nil // a sync would succeed again, and prove nothing
			require.ErrorIs(t, b.Put(ctx, "slot/2", nil, ifAbsent), ErrFailed)
			require.ErrorIs(t, b.Delete(ctx, []string{"slot/0"})[0], ErrFailed)
			for _, key := range []string{"slot/0", "slot/1"} {
				_, err = b.Get(ctx, key, 0, -1)
				require.ErrorIs(t, err, ErrFailed)
				_, err = b.Stat(ctx, key)
				require.ErrorIs(t, err, ErrFailed)
			}
			_, err = b.List(ctx, "", "", 10)
			require.ErrorIs(t, err, ErrFailed)
			require.Len(t, causes, 1)

			require.NoError(t, b.Close())
			again := openTest(t, b.root)
			_, err = again.Get(ctx, "slot/1", 0, -1)
			if name == "put" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, objstore.ErrNotFound)
			}
		})
	}
}

func TestDeleteReportsEachKey(t *testing.T) {
	b, rec := openRecorded(t, Options{}, nil)
	ctx := t.Context()
	keys := []string{"slot/0", "slot/1", "slot/2"}
	for _, key := range keys {
		require.NoError(t, b.Put(ctx, key, nil, ifAbsent))
	}
	rec.before = func(op, path string) error {
		if op == "unlink" && path == "slot/1" {
			return unix.EPERM
		}
		return nil
	}
	errs := b.Delete(ctx, keys)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], unix.EPERM)
	require.ErrorContains(t, errs[1], `delete "slot/1"`)
	require.NoError(t, errs[2])
	require.Equal(t, []string{"absent", "file", "absent"}, []string{rec.afterCut(keys[0]), rec.afterCut(keys[1]), rec.afterCut(keys[2])})
}

func TestContextEnds(t *testing.T) {
	for name, want := range map[string]struct {
		op  string // during which the context ends
		err error
	}{
		"before the start":    {"", context.Canceled},
		"while it is written": {"write", context.Canceled},
		"after the link":      {"syncdir", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b, rec := openRecorded(t, Options{}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			rec.before = func(op, _ string) error {
				if op == want.op {
					cancel()
				}
				return nil
			}
			if want.op == "" {
				cancel()
			}
			err := b.Put(ctx, "slot/a/0", []byte("x"), ifAbsent)
			require.ErrorIs(t, err, want.err)
			_, err = b.Stat(t.Context(), "slot/a/0")
			if want.err == nil {
				require.NoError(t, err)
				require.Equal(t, "file", rec.afterCut("slot/a/0"))
				return
			}
			require.ErrorIs(t, err, objstore.ErrNotFound)
			require.Equal(t, []string{tempFolder, lockFile}, names(t, b.root))
			require.Empty(t, names(t, filepath.Join(b.root, tempFolder)))
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b := openTest(t, t.TempDir())
	require.NoError(t, b.Put(t.Context(), "a", nil, ifAbsent))
	_, err := b.Get(ended, "a", 0, -1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.List(ended, "", "", 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, b.Delete(ended, []string{"a"})[0], context.Canceled)
	_, err = b.Stat(t.Context(), "a")
	require.NoError(t, err)
}

// NotAfter is looked at just before the link, not when the put began.
func TestNotAfterPassesWhileWriting(t *testing.T) {
	now := time.Unix(1000, 0)
	b, rec := openRecorded(t, Options{}, func() time.Time { return now })
	opt := objstore.PutOptions{IfAbsent: true, NotAfter: now.Add(time.Second)}
	require.NoError(t, b.Put(t.Context(), "slot/a/0", nil, opt))
	rec.before = func(op, _ string) error {
		if op == "sync" {
			now = now.Add(time.Second + 1)
		}
		return nil
	}
	require.ErrorIs(t, b.Put(t.Context(), "slot/a/1", nil, opt), objstore.ErrExpired)
	_, err := b.Stat(t.Context(), "slot/a/1")
	require.ErrorIs(t, err, objstore.ErrNotFound)
	require.Empty(t, names(t, filepath.Join(b.root, tempFolder)))
}

// inTheAir starts a put of slot/0 and stops it after its link, before the sync of its
// folder; land lets it go on, with the sync's result.
func inTheAir(t *testing.T) (b *Bucket, rec *recorder, put chan error, land func(error)) {
	b, rec = openRecorded(t, Options{}, nil)
	require.NoError(t, b.Put(t.Context(), "slot/other", nil, ifAbsent))
	gate := make(chan error)
	rec.before = func(op, path string) error {
		if op == "syncdir" && path == "slot" {
			return <-gate
		}
		return nil
	}
	put = make(chan error, 1)
	go func() { put <- b.Put(t.Context(), "slot/0", []byte("body"), ifAbsent) }()
	synctest.Wait()
	return b, rec, put, func(err error) {
		rec.before = nil
		gate <- err
		synctest.Wait()
	}
}

// What a reader is told of a key is what a power cut cannot take back.
func TestReadsWaitForThePutInTheAir(t *testing.T) {
	for name, result := range map[string]error{"lands": nil, "fails": unix.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _, put, land := inTheAir(t)
				read := make(chan error, 4)
				go func() { _, err := b.Get(t.Context(), "slot/0", 0, -1); read <- err }()
				go func() { _, err := b.Stat(t.Context(), "slot/0"); read <- err }()
				go func() { _, err := b.List(t.Context(), "", "", 9); read <- err }()
				go func() { read <- b.Put(t.Context(), "slot/0", nil, ifAbsent) }()
				synctest.Wait()
				require.Empty(t, read, "answered while the object may yet vanish")
				_, err := b.Get(t.Context(), "slot/other", 0, -1)
				require.NoError(t, err, "another key waits for nobody")

				ctx, cancel := context.WithCancel(t.Context())
				impatient := make(chan error, 1)
				go func() { _, err := b.Get(ctx, "slot/0", 0, -1); impatient <- err }()
				synctest.Wait()
				cancel()
				require.ErrorIs(t, <-impatient, context.Canceled)

				land(result)
				require.ErrorIs(t, <-put, result)
				for range 4 {
					err := <-read
					if result != nil {
						require.ErrorIs(t, err, ErrFailed)
					} else if !errors.Is(err, objstore.ErrExists) {
						require.NoError(t, err)
					}
				}
			})
		})
	}
}

func TestDeleteWaitsForThePutInTheAir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rec, put, land := inTheAir(t)
		deleted := make(chan error, 1)
		go func() { deleted <- b.Delete(t.Context(), []string{"slot/other", "slot/0", "slot/1"})[1] }()
		synctest.Wait()
		require.NotContains(t, rec.events(), "unlink slot/0")
		require.Empty(t, deleted)

		later := make(chan error, 1)
		go func() { later <- b.Put(t.Context(), "slot/0", []byte("anew"), ifAbsent) }()
		synctest.Wait()

		land(nil)
		require.NoError(t, <-put)
		require.NoError(t, <-deleted)
		require.NoError(t, <-later)
		got, err := b.Get(t.Context(), "slot/0", 0, -1)
		require.NoError(t, err)
		require.Equal(t, "anew", string(got))
	})
}

// A folder is not removed from under a delete that has yet to sync it: made again
// meanwhile by a put, it would be another folder that is synced.
func TestFolderStaysUntilItsDeletesAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, rec := openRecorded(t, Options{}, nil)
		ctx := t.Context()
		for _, key := range []string{"slot/1/a", "slot/1/b", "slot/2/c"} {
			require.NoError(t, b.Put(ctx, key, nil, ifAbsent))
		}
		gate := make(chan error)
		tried := make(chan string, 100)
		rec.before = func(op, path string) error {
			if op == "rmdir" {
				tried <- path
			}
			if op == "unlink" && path == "slot/1/a" {
				return <-gate
			}
			return nil
		}
		first := make(chan error, 1)
		go func() { first <- b.Delete(ctx, []string{"slot/1/a"})[0] }()
		synctest.Wait()
		require.NoError(t, b.Delete(ctx, []string{"slot/1/b"})[0])
		require.Empty(t, tried)
		gate <- nil
		require.NoError(t, <-first)
		require.Equal(t, "slot/1", <-tried)
		require.Equal(t, "absent", rec.afterCut("slot/1/a"))
		require.Equal(t, "absent", rec.afterCut("slot/1/b"))
	})
}

func TestCloseWaitsForThePutInTheAir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, put, land := inTheAir(t)
		closed := make(chan error, 1)
		go func() { closed <- b.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		_, err := Open(b.root, Options{})
		require.ErrorAs(t, err, new(*LockedError))
		land(nil)
		require.NoError(t, <-put)
		require.NoError(t, <-closed)
	})
}

package dirbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
)

var ifAbsent = objstore.PutOptions{IfAbsent: true}

func TestOrderOfPut(t *testing.T) {
	b, rec := openRecorded(t, Options{}, nil)
	ctx := t.Context()

	require.NoError(t, b.Put(ctx, "slot/a/1/0", []byte("x"), ifAbsent))
	require.Equal(t, []string{
		"create .tmp/i-1", "write .tmp/i-1", "sync .tmp/i-1", "close .tmp/i-1",
		"mkdir slot", "mkdir slot/a", "mkdir slot/a/1",
		"link .tmp/i-1 > slot/a/1/0",
		"syncdir .", "syncdir slot", "syncdir slot/a", "syncdir slot/a/1",
		"unlink .tmp/i-1",
	}, rec.events())

	require.NoError(t, b.Put(ctx, "slot/a/1/1", []byte("x"), ifAbsent))
	require.Equal(t, []string{
		"create .tmp/i-2", "write .tmp/i-2", "sync .tmp/i-2", "close .tmp/i-2",
		"link .tmp/i-2 > slot/a/1/1", "syncdir slot/a/1", "unlink .tmp/i-2",
	}, rec.events())

	require.ErrorIs(t, b.Put(ctx, "slot/a/1/1", []byte("y"), ifAbsent), objstore.ErrExists)
	require.Equal(t, []string{
		"create .tmp/i-3", "write .tmp/i-3", "sync .tmp/i-3", "close .tmp/i-3",
		"syncdir slot/a/1", "unlink .tmp/i-3",
	}, rec.events())

	require.NoError(t, b.Put(ctx, "top", []byte("x"), objstore.PutOptions{}))
	require.Equal(t, []string{
		"create .tmp/i-4", "write .tmp/i-4", "sync .tmp/i-4", "close .tmp/i-4",
		"rename .tmp/i-4 > top", "syncdir .",
	}, rec.events())
}

// A folder that stands when the bucket is opened may have been made by a process that
// died before it synced the parent.
func TestFoldersFoundAreSynced(t *testing.T) {
	b, rec := openRecorded(t, Options{}, nil)
	require.NoError(t, os.MkdirAll(b.tree.path("slot/a"), 0o750))
	rec.led.note("mkdir", "slot")
	rec.led.note("mkdir", "slot/a")
	require.NoError(t, b.Put(t.Context(), "slot/a/0", nil, ifAbsent))
	require.Equal(t, "file", rec.afterCut("slot/a/0"))
	require.Contains(t, rec.events(), "syncdir slot")
}

func TestOrderOfDelete(t *testing.T) {
	b, rec := openRecorded(t, Options{}, nil)
	ctx := t.Context()
	keys := []string{"slot/a/1/0", "slot/a/1/1", "slot/a/2/0", "settled/x"}
	for _, key := range append(keys, "slot/a/2/1") {
		require.NoError(t, b.Put(ctx, key, []byte("x"), ifAbsent))
	}
	rec.events()
	for _, err := range b.Delete(ctx, append(keys, "bundle/none", "slot/a/1/9")) {
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"unlink settled/x", "unlink slot/a/1/0", "unlink slot/a/1/1", "unlink slot/a/2/0",
		"syncdir settled", "syncdir slot/a/1", "syncdir slot/a/2",
		"rmdir settled", "syncdir .",
		"rmdir slot/a/1", "syncdir slot/a",
	}, rec.events())
	require.NoError(t, b.Delete(ctx, []string{"slot/a/2/1"})[0])
	require.Equal(t, []string{
		"unlink slot/a/2/1", "syncdir slot/a/2",
		"rmdir slot/a/2", "rmdir slot/a", "rmdir slot", "syncdir .",
	}, rec.events())
}

// Empty folders that a process left between its unlinks and its rmdirs go when
// the delete, which was not confirmed, is done again.
func TestDeleteAgainRemovesFolders(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/slot/a/1", 0o750))
	require.NoError(t, os.MkdirAll(dir+"/bundle/a", 0o750))
	b := openTest(t, dir)
	for _, err := range b.Delete(t.Context(), []string{"slot/a/1/0", "bundle/a/1/0"}) {
		require.NoError(t, err)
	}
	require.Equal(t, []string{tempFolder, lockFile}, names(t, dir))
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestLedger: the judge of the test below sees what is not durable.
func TestLedger(t *testing.T) {
	l := newLedger()
	kinds := func() string {
		var all []string
		for _, o := range l.outcomes("d/x") {
			kind, _, _ := strings.Cut(o, " ")
			all = append(all, kind)
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "absent", kinds())
	l.note("create", ".tmp/1")
	l.note("mkdir", "d")
	early := l.beginSync("d")
	l.note("link", ".tmp/1 > d/x")
	require.Equal(t, "absent torn", kinds())
	l.note("sync", ".tmp/1")
	early.end() // began before the link
	l.beginSync(".").end()
	require.Equal(t, "absent file", kinds())
	l.beginSync("d").end()
	require.Equal(t, "file", kinds())
	l.note("unlink", "d/x")
	require.Equal(t, "absent file", kinds())
	l.note("rmdir", "d")
	l.beginSync(".").end()
	require.Equal(t, "absent", kinds())
	l.note("mkdir", "d")
	l.note("link", ".tmp/1 > d/x")
	l.beginSync("d").end()
	require.Equal(t, "absent file", kinds())
}

// TestDurableWhenAnswered has tasks put and delete objects of their own in folders
// that they share, so that folders come and go under each other's feet. When a call is
// answered, a power cut can no longer take its effect back.
func TestDurableWhenAnswered(t *testing.T) {
	b, rec := openRecorded(t, Options{}, nil)
	const tasks, rounds = 8, 60
	found := make([]error, tasks)
	var all sync.WaitGroup
	for task := range tasks {
		all.Go(func() { found[task] = churn(t.Context(), b, rec, task, rounds) })
	}
	all.Wait()
	require.NoError(t, errors.Join(found...))
	require.Equal(t, []string{tempFolder, lockFile}, names(t, b.root), "empty folders stayed")
	require.Empty(t, names(t, b.root+"/"+tempFolder))
	require.Empty(t, b.tree.folders)
	require.Empty(t, b.keys.m)
	require.Empty(t, b.syncs.m)
}

func churn(ctx context.Context, b *Bucket, rec *recorder, task, rounds int) error {
	rng := rand.New(rand.NewPCG(1, uint64(task)))
	folders := []string{"slot/a/1", "slot/a/2", "slot/b/1", "settled"}
	there := map[string]bool{}
	expect := func(key, want string) error {
		if got := rec.afterCut(key); got != want {
			return fmt.Errorf("%s: a power cut leaves %s, not: %s", key, got, want)
		}
		return nil
	}
	for range rounds {
		key := fmt.Sprintf("%s/%d-%d", folders[rng.IntN(len(folders))], task, rng.IntN(2))
		if there[key] {
			if err := b.Delete(ctx, []string{key})[0]; err != nil {
				return err
			}
			delete(there, key)
			if err := expect(key, "absent"); err != nil {
				return err
			}
			continue
		}
		if err := b.Put(ctx, key, []byte(key), objstore.PutOptions{IfAbsent: rng.IntN(4) > 0}); err != nil {
			return err
		}
		there[key] = true
		if err := expect(key, "file"); err != nil {
			return err
		}
	}
	var rest []string
	for key := range there {
		rest = append(rest, key)
	}
	return errors.Join(b.Delete(ctx, rest)...)
}

package pebblestore

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/metastore"
)

// Whatever is put and deleted, in groups of any kind: range deletes take away nothing that stands, in
// the views and across a crash.
func TestShorteningTakesNothingAway(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"due/a/", "due/b/", "x/"}).Draw(t, "prefix") + rapid.StringMatching(`[a-c]{1,3}`).Draw(t, "rest")
	})
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfs.NewCrashableMem()
		open := func() *Store {
			s, err := Open("store", Options{FS: fs, CacheBytes: 1 << 20, MinFreeBytes: -1})
			require.NoError(rt, err)
			s.committer.short.every = 3
			return s
		}
		s := open()
		want := map[string]string{}
		for i := range rapid.IntRange(1, 60).Draw(rt, "commits") {
			var b metastore.Batch
			for range rapid.IntRange(1, 4).Draw(rt, "ops") {
				key := keys.Draw(rt, "key")
				if slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return op.Key == key }) {
					continue
				}
				if rapid.IntRange(0, 2).Draw(rt, "put") == 0 {
					want[key] = fmt.Sprint(i)
					b.Ops = append(b.Ops, metastore.Put(key, []byte(want[key])))
				} else {
					delete(want, key)
					b.Ops = append(b.Ops, metastore.Delete(key))
				}
			}
			_, err := s.Commit(rt.Context(), b)
			require.NoError(rt, err)
			if rapid.IntRange(0, 15).Draw(rt, "crash") == 0 {
				clone := fs.CrashClone(vfs.CrashCloneCfg{})
				require.NoError(rt, s.Close())
				fs = clone
				s = open()
			}
			page, err := s.Scan(rt.Context(), metastore.Prefix("due/"), 1000)
			require.NoError(rt, err)
			other, err := s.Scan(rt.Context(), metastore.Prefix("x/"), 1000)
			require.NoError(rt, err)
			have := map[string]string{}
			for _, r := range append(page.Records, other.Records...) {
				have[r.Key] = string(r.Value)
			}
			require.Equal(rt, want, have)
		}
		require.NoError(rt, s.Close())
	})
}

// stepsFromFront counts what a reader that knows no gap steps over to find the first key below a prefix.
func stepsFromFront(t *testing.T, s *Store, prefix string) int {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: appendKey(nil, prefix), UpperBound: appendKey(nil, metastore.PrefixEnd(prefix))})
	require.NoError(t, err)
	defer it.Close()
	it.First()
	require.NoError(t, it.Error())
	stats := it.Stats()
	return stats.ForwardStepCount[pebble.InternalIterCall]
}

// After a restart, with no gap known, the front of a queue from which many were resolved is
// found in few steps; and what stands in its midst stays.
func TestTheFrontIsShortAfterARestart(t *testing.T) {
	const markers = 20 * shortenEvery
	for _, standing := range []bool{false, true} {
		t.Run(fmt.Sprintf("standing=%v", standing), func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := openMem(t, fs, Options{})
			keys := make([]string, markers)
			for i := range keys {
				keys[i] = fmt.Sprintf("due/reap/00/%06d", i)
			}
			write := func(keys []string, op func(key string) metastore.Op) {
				for part := range slices.Chunk(keys, 500) {
					var b metastore.Batch
					for _, key := range part {
						b.Ops = append(b.Ops, op(key))
					}
					_, err := s.Commit(t.Context(), b)
					require.NoError(t, err)
				}
			}
			write(keys, func(key string) metastore.Op { return metastore.Put(key, []byte("m")) })
			resolved := keys
			if standing { // the first one never resolves
				resolved = keys[1:]
			}
			write(resolved, metastore.Delete)
			last := "due/reap/00/zzz"
			write([]string{last}, func(key string) metastore.Op { return metastore.Put(key, nil) })

			clone := fs.CrashClone(vfs.CrashCloneCfg{})
			again := openMem(t, clone, Options{})
			require.Less(t, stepsFromFront(t, again.Store, "due/reap/00/"), 3*shortenEvery)
			page, err := again.Scan(t.Context(), metastore.Prefix("due/"), 10)
			require.NoError(t, err)
			var have []string
			for _, r := range page.Records {
				have = append(have, r.Key)
			}
			if standing {
				require.Equal(t, []string{keys[0], last}, have)
			} else {
				require.Equal(t, []string{last}, have)
			}
		})
	}
}

func TestPrefixesRememberedAreBounded(t *testing.T) {
	x := newShortener()
	for i := range 3 * maxEmptied {
		x.deleted(fmt.Sprintf("span/%06d/1", i))
	}
	x.deleted("no-prefix")
	require.LessOrEqual(t, len(x.by), maxEmptied)
	require.NotContains(t, slices.Collect(maps.Keys(x.by)), "")
}

package pebblestore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// smallDisk says how much is free.
type smallDisk struct {
	vfs.FS
	free  atomic.Uint64
	asked atomic.Int64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.asked.Add(1)
	return vfs.DiskUsage{AvailBytes: d.free.Load()}, nil
}

func TestFullDiskRefusesCommits(t *testing.T) {
	const reserve = 4000
	for _, c := range []struct {
		free          uint64
		puts, deletes bool
	}{{reserve, true, true}, {reserve - 1, false, true}, {reserve / 4, false, true}, {reserve/4 - 1, false, false}} {
		disk := &smallDisk{FS: vfs.NewMem()}
		disk.free.Store(1 << 40)
		s, err := Open("store", Options{FS: disk, MinFreeBytes: reserve})
		require.NoError(t, err)
		sess, err := s.OpenSession(t.Context(), time.Minute)
		require.NoError(t, err)
		commit := func(ops ...metastore.Op) error {
			_, err := s.Commit(t.Context(), metastore.Batch{Ops: ops})
			return err
		}
		require.NoError(t, commit(metastore.Put("cursor", nil), metastore.Put("armed", nil)))
		disk.free.Store(c.free)
		s.committer.space.looked = time.Time{}
		check := func(allowed bool, err error) {
			t.Helper()
			if allowed {
				require.NoError(t, err)
				return
			}
			var full *FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, c.free, full.Free)
			require.ErrorIs(t, err, metastore.ErrUnavailable)
		}
		check(c.puts, commit(metastore.Put("k", nil), metastore.Delete("l")))
		check(c.deletes, commit(metastore.Put("cursor", []byte("moved"))))
		check(c.deletes, commit(metastore.Put("rearmed", nil), metastore.Delete("armed")))
		check(c.puts, commit(metastore.Put("one", nil), metastore.Put("two", nil), metastore.Delete("rearmed")))
		require.Equal(t, c.puts, get(t, s, "k").Exists())
		check(c.deletes, commit(metastore.Delete("k")))
		check(true, commit(metastore.PutUnder(sess.ID(), "s", nil)))
		check(true, commit(metastore.Delete("s")))
		require.NoError(t, s.Close())
	}
}

// Whatever the reserve, what a flush and the commits until the next look write fits into the part of it that nobody may write into.
func TestAFlushFitsIntoTheReserve(t *testing.T) {
	for reserve := int64(LeastReserve); reserve <= 1<<34; reserve = reserve*3/2 + 1 {
		memTable, every := steps(reserve)
		require.LessOrEqual(t, int64(memTable+every), reserve/4, "%d", reserve)
	}
	memTable, every := steps(DefaultMinFreeBytes)
	require.Equal(t, []int{memTableBytes, lookEveryBytes}, []int{memTable, every}, "the default costs nothing")
	s, err := Open("store", Options{FS: vfs.NewMem(), MinFreeBytes: LeastReserve})
	require.NoError(t, err)
	require.EqualValues(t, leastMemTable, s.pebbleOptions(nil, 0).MemTableSize)
	require.Equal(t, LeastReserve/32, s.committer.space.every)
	require.NoError(t, s.Close())
}

func TestSpaceIsLookedAtNowAndThen(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.free.Store(100)
	now := time.Unix(1000, 0)
	g := spaceGuard{fs: disk, reserve: 50, every: lookEveryBytes, now: func() time.Time { return now }}

	require.NoError(t, g.check(spaceForPuts, 10))
	disk.free.Store(49)
	require.NoError(t, g.check(spaceForPuts, 10), "not looked again yet")
	require.NoError(t, g.check(spaceForNothing, 10))
	require.EqualValues(t, 1, disk.asked.Load())
	now = now.Add(lookEvery)
	require.Error(t, g.check(spaceForPuts, 10))
	disk.free.Store(100)
	now = now.Add(lookEvery)
	require.NoError(t, g.check(spaceForPuts, lookEveryBytes/2))
	disk.free.Store(49)
	require.NoError(t, g.check(spaceForPuts, lookEveryBytes/4))
	require.Error(t, g.check(spaceForPuts, lookEveryBytes*3/4))

	off := spaceGuard{fs: disk, reserve: -1, now: g.now}
	require.NoError(t, off.check(spaceForPuts, lookEveryBytes))
	silent := spaceGuard{fs: vfs.NewMem(), reserve: 50, now: g.now}
	require.NoError(t, silent.check(spaceForPuts, 1), "a file system that does not tell")
	_, err := vfs.NewMem().GetDiskUsage("")
	require.True(t, errors.Is(err, vfs.ErrUnsupported))
}

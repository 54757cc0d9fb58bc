package pebblestore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// failLog fails operations of these kinds on the write-ahead log.
func failLog(kinds ...errorfs.OpKind) errorfs.InjectorFunc {
	return func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".log") && slices.Contains(kinds, op.Kind) {
			return errors.New("the disk is gone")
		}
		return nil
	}
}

func TestLogFailureIsFatal(t *testing.T) {
	syncs := []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	for name, kinds := range map[string][]errorfs.OpKind{"sync": syncs, "write": {errorfs.OpFileWrite}} {
		t.Run(name, func(t *testing.T) {
			failing := &errorfs.Toggle{Injector: failLog(kinds...)}
			var fatal atomic.Pointer[error]
			var calls atomic.Int32
			s, err := Open("store", Options{
				FS: errorfs.Wrap(vfs.NewMem(), failing),
				Fatal: func(err error) {
					calls.Add(1)
					fatal.Store(&err)
				},
			})
			require.NoError(t, err)
			put(t, s, "k", "1")
			sess, err := s.OpenSession(t.Context(), time.Minute)
			require.NoError(t, err)

			failing.On()
			_, err = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put("k", []byte("2"))}})
			require.ErrorIs(t, err, metastore.ErrUnknown)
			require.NotErrorIs(t, err, metastore.ErrClosed, "that would mean that nothing happened")
			require.EqualValues(t, 1, calls.Load())
			require.ErrorContains(t, *fatal.Load(), "the disk is gone")

			// Nothing is answered any more: no read shows what may or may not be on disk.
			failing.Off()
			_, err = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put("k", []byte("3"))}})
			require.ErrorIs(t, err, metastore.ErrClosed)
			_, err = s.Get(t.Context(), "k")
			require.ErrorIs(t, err, metastore.ErrClosed)
			_, err = s.Scan(t.Context(), metastore.Range{}, 1)
			require.ErrorIs(t, err, metastore.ErrClosed)
			_, err = s.Peek(t.Context(), []metastore.Range{{}})
			require.ErrorIs(t, err, metastore.ErrClosed)
			require.ErrorIs(t, sess.KeepAlive(t.Context()), metastore.ErrSessionGone)
			require.ErrorContains(t, s.Close(), "the disk is gone")
			require.EqualValues(t, 1, calls.Load())
		})
	}
}

func TestDefaultFatalEndsTheProcess(t *testing.T) {
	out, err := child(t, "fatal", "")
	require.EqualError(t, err, "exit status 1", out)
	require.Contains(t, out, "the process ends")
	require.Contains(t, out, "the disk is gone")
	require.NotContains(t, out, "still alive")
}

// gate holds the syncs of the log while it is shut.
type gate struct {
	shut    atomic.Bool
	arrived chan struct{} // a sync waits
	open    chan struct{} // let it go on
}

func newGate() *gate {
	return &gate{arrived: make(chan struct{}, 16), open: make(chan struct{})}
}

func (g *gate) String() string { return "gate" }

func (g *gate) MaybeError(op errorfs.Op) error {
	isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	if isSync && strings.HasSuffix(op.Path, ".log") && g.shut.Load() {
		g.arrived <- struct{}{}
		<-g.open
	}
	return nil
}

func openGated(t *testing.T) (*Store, *vfs.MemFS, *gate) {
	fs, g := vfs.NewCrashableMem(), newGate()
	s, err := Open("store", Options{FS: errorfs.Wrap(fs, g)})
	require.NoError(t, err)
	t.Cleanup(func() {
		g.shut.Store(false)
		close(g.open) // a failed test leaves a sync waiting
		require.NoError(t, s.Close())
	})
	return s, fs, g
}

// TestUnsyncedIsNotShown: until its sync ended, no read and no answer tells of a commit.
func TestUnsyncedIsNotShown(t *testing.T) {
	s, fs, g := openGated(t)
	sess, err := s.OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	v, err := s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{
		metastore.Put("k", []byte("1")), metastore.PutUnder(sess.ID(), "s", []byte("1")),
	}})
	require.NoError(t, err)
	g.shut.Store(true)

	var wg sync.WaitGroup
	var first, second error
	wg.Go(func() {
		_, first = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{
			metastore.Put("k", []byte("2")), metastore.Put("a", nil),
			metastore.PutUnder(sess.ID(), "s", []byte("2")), metastore.PutUnder(sess.ID(), "b", nil),
		}})
	})
	<-g.arrived

	// A commit whose answer depends on the first one waits as well.
	answered := make(chan struct{})
	wg.Go(func() {
		_, second = s.Commit(t.Context(), metastore.Batch{Conds: []metastore.Cond{metastore.At("k", v)}})
		close(answered)
	})
	require.Equal(t, metastore.Record{Key: "k", Value: []byte("1"), Version: v}, get(t, s, "k"))
	page, err := s.Scan(t.Context(), metastore.Range{}, 10)
	require.NoError(t, err)
	require.Equal(t, []metastore.Record{
		{Key: "k", Value: []byte("1"), Version: v}, {Key: "s", Value: []byte("1"), Version: v},
	}, page.Records)
	peeked, err := s.Peek(t.Context(), []metastore.Range{{}})
	require.NoError(t, err)
	require.Equal(t, "k", peeked[0].Key)
	crashed := openMem(t, fs.CrashClone(vfs.CrashCloneCfg{}), Options{})
	require.Equal(t, v, get(t, crashed.Store, "k").Version)
	select {
	case <-answered:
		t.Fatal("answered before the sync that it depends on")
	default:
	}

	g.shut.Store(false)
	g.open <- struct{}{}
	wg.Wait()
	require.NoError(t, first)
	require.ErrorIs(t, second, metastore.ErrConflict)
	require.Equal(t, "2", string(get(t, s, "k").Value))
	require.Equal(t, "2", string(get(t, s, "s").Value))
}

// TestGroupMembersSeeEachOther: commits that share a sync are judged one after the other.
func TestGroupMembersSeeEachOther(t *testing.T) {
	s, _, g := openGated(t)
	sess, err := s.OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	v := put(t, s, "k", "0")
	one := func(cond metastore.Cond, op metastore.Op) metastore.Batch {
		return metastore.Batch{Conds: []metastore.Cond{cond}, Ops: []metastore.Op{op}}
	}
	batches := []metastore.Batch{
		{Ops: []metastore.Op{metastore.Put("first", nil)}}, // keeps the committer busy
		one(metastore.At("k", v), metastore.Put("k", []byte("1"))),
		one(metastore.At("k", v), metastore.Put("k", []byte("conflict"))),
		one(metastore.Exists("k"), metastore.Delete("k")),
		one(metastore.Exists("k"), metastore.Put("k", []byte("conflict"))),
		one(metastore.Absent("k"), metastore.Put("k", []byte("2"))),
		one(metastore.Exists("k"), metastore.PutUnder(sess.ID(), "k", []byte("3"))),
		one(metastore.Absent("k"), metastore.Put("k", []byte("conflict"))),
		one(metastore.Exists("k"), metastore.Put("k", []byte("4"))),
		one(metastore.At("k", v), metastore.Delete("k")),
	}
	g.shut.Store(true)
	errs := make([]error, len(batches))
	versions := make([]metastore.Version, len(batches))
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() { versions[i], errs[i] = s.Commit(t.Context(), batches[i]) })
		if i == 0 {
			<-g.arrived
			continue
		}
		awaitQueue(s, i)
	}
	g.open <- struct{}{}
	<-g.arrived // the one sync of all others
	g.shut.Store(false)
	g.open <- struct{}{}
	wg.Wait()
	var last metastore.Version
	for i, err := range errs {
		if i == 2 || i == 4 || i == 7 || i == 9 {
			require.ErrorIs(t, err, metastore.ErrConflict, "commit %d", i)
			continue
		}
		require.NoError(t, err, "commit %d", i)
		require.Greater(t, versions[i], last)
		last = versions[i]
	}
	require.Equal(t, metastore.Record{Key: "k", Value: []byte("4"), Version: last}, get(t, s, "k"))
	require.NoError(t, sess.Close(t.Context()))
	require.True(t, get(t, s, "k").Exists())
}

// awaitQueue waits until n requests wait for the committer.
func awaitQueue(s *Store, n int) {
	for waiting := -1; waiting < n; runtime.Gosched() {
		s.queue.mu.Lock()
		waiting = len(s.queue.waiting)
		s.queue.mu.Unlock()
	}
}

// TestContextEnds: before the committer takes it a commit is withdrawn, afterwards
// its outcome is unknown.
func TestContextEnds(t *testing.T) {
	s, _, g := openGated(t)
	put(t, s, "k", "1")
	g.shut.Store(true)

	var wg sync.WaitGroup
	var syncing, queued, opening error
	ctx, cancel := context.WithCancel(t.Context())
	commit := func(key string) error {
		_, err := s.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte("2"))}})
		return err
	}
	wg.Go(func() { syncing = commit("syncing") })
	<-g.arrived
	wg.Go(func() { queued = commit("queued") })
	wg.Go(func() { _, opening = s.OpenSession(ctx, time.Minute) })
	awaitQueue(s, 2)
	cancel()
	wg.Wait()
	require.ErrorIs(t, syncing, metastore.ErrUnknown)
	require.NotErrorIs(t, syncing, context.Canceled, "that would mean that nothing happened")
	require.ErrorIs(t, queued, context.Canceled)
	require.NotErrorIs(t, queued, metastore.ErrUnknown)
	require.ErrorIs(t, opening, context.Canceled)

	g.shut.Store(false)
	g.open <- struct{}{}
	put(t, s, "later", "3")
	require.True(t, get(t, s, "syncing").Exists())
	require.False(t, get(t, s, "queued").Exists())
}

// TestSessionThatNobodyKnowsEnds: the caller left while its session was made.
func TestSessionThatNobodyKnowsEnds(t *testing.T) {
	s, _, g := openGated(t)
	g.shut.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var opening error
	var wg sync.WaitGroup
	wg.Go(func() { _, opening = s.OpenSession(ctx, time.Minute) }) // raises the ceiling, hence a sync
	<-g.arrived
	cancel()
	wg.Wait()
	require.ErrorIs(t, opening, metastore.ErrUnknown)
	g.shut.Store(false)
	g.open <- struct{}{}
	put(t, s, "k", "1")
	put(t, s, "k", "2")
	require.NoError(t, s.Close())
	require.Empty(t, s.committer.sessions)
}

// TestCrashUnderLoad: at any moment a crash keeps whatever was answered or read
// before, and revisions go on above.
func TestCrashUnderLoad(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openMem(t, fs, Options{})
	put(t, s.Store, "counter", "")
	var stop atomic.Bool
	var answered atomic.Uint64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				recs, err := s.Get(t.Context(), "counter")
				if err != nil {
					t.Error(err)
					return
				}
				v, err := s.Commit(t.Context(), metastore.Batch{
					Conds: []metastore.Cond{metastore.At("counter", recs[0].Version)},
					Ops:   []metastore.Op{metastore.Put("counter", recs[0].Value)},
				})
				if errors.Is(err, metastore.ErrConflict) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				for old := answered.Load(); uint64(v) > old && !answered.CompareAndSwap(old, uint64(v)); old = answered.Load() {
				}
			}
		})
	}
	for range 15 {
		atLeast := max(metastore.Version(answered.Load()), get(t, s.Store, "counter").Version)
		clone := fs.CrashClone(vfs.CrashCloneCfg{})
		crashed := openMem(t, clone, Options{})
		require.GreaterOrEqual(t, get(t, crashed.Store, "counter").Version, atLeast)
		require.Greater(t, put(t, crashed.Store, "counter", ""), atLeast)
		require.NoError(t, crashed.Close())
	}
	stop.Store(true)
	wg.Wait()
}

// TestCloseUnderLoad: every commit is either answered and kept, or refused and absent.
func TestCloseUnderLoad(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openMem(t, fs, Options{})
	const workers = 8
	done := make([][]string, workers)
	errs := make([]error, workers)
	refused := make([]string, workers)
	started := make(chan struct{}, workers*1000)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; errs[w] == nil; i++ {
				key := strings.Repeat(string(rune('a'+w)), i+1)
				if len(key) > 200 {
					return
				}
				if _, errs[w] = s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(key, nil)}}); errs[w] != nil {
					refused[w] = key
					return
				}
				done[w] = append(done[w], key)
				started <- struct{}{}
			}
		})
	}
	for range 50 {
		<-started
	}
	require.NoError(t, s.Close())
	wg.Wait()
	_, err := s.Get(t.Context(), "a")
	require.ErrorIs(t, err, metastore.ErrClosed)

	again := openMem(t, fs, Options{})
	for w := range workers {
		if errs[w] != nil {
			require.ErrorIs(t, errs[w], metastore.ErrClosed)
			require.False(t, get(t, again.Store, refused[w]).Exists())
		}
		for _, key := range done[w] {
			require.True(t, get(t, again.Store, key).Exists())
		}
	}
}

func TestSessionsOfAClosedStore(t *testing.T) {
	s := openMem(t, vfs.NewCrashableMem(), Options{})
	sess, err := s.OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.ErrorIs(t, sess.KeepAlive(t.Context()), metastore.ErrSessionGone)
	require.NoError(t, sess.Close(t.Context()))
	_, err = s.OpenSession(t.Context(), time.Minute)
	require.ErrorIs(t, err, metastore.ErrClosed)
}

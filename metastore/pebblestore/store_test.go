package pebblestore

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/storetest"
)

// crashable is a store on a file system in memory that can lose what is not synced.
type crashable struct {
	*Store
	fs *vfs.MemFS
}

func openMem(t testing.TB, fs *vfs.MemFS, opts Options) *crashable {
	opts.FS = fs
	opts.CacheBytes = 1 << 20
	s, err := Open("store", opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &crashable{s, fs}
}

func harness(open func(t *testing.T, opts Options) metastore.Store) storetest.Harness {
	return storetest.Harness{
		Open: func(t *testing.T) metastore.Store { return open(t, Options{}) },
		Do: func(t *testing.T, _ metastore.Store, f func(ctx context.Context)) {
			f(t.Context())
		},
		Parallel: func(t *testing.T, _ metastore.Store, n int, f func(ctx context.Context, i int)) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() { f(t.Context(), i) })
			}
			wg.Wait()
		},
		SmallLimits: func(t *testing.T) metastore.Store { return open(t, Options{MaxOps: 8}) },
	}
}

// reopening returns a way to crash a store, with some of its unsynced data lost, and
// to open it again.
func reopening(cfg func() vfs.CrashCloneCfg, opened func(*crashable)) func(*testing.T, metastore.Store) metastore.Store {
	return func(t *testing.T, store metastore.Store) metastore.Store {
		old := store.(*crashable)
		clone := old.fs.CrashClone(cfg())
		require.NoError(t, old.Close())
		s := openMem(t, clone, Options{})
		opened(s)
		return s
	}
}

// TestConformance keeps exactly what was synced across a crash.
func TestConformance(t *testing.T) {
	h := harness(func(t *testing.T, opts Options) metastore.Store {
		return openMem(t, vfs.NewCrashableMem(), opts)
	})
	h.Reopen = reopening(func() vfs.CrashCloneCfg { return vfs.CrashCloneCfg{} }, func(*crashable) {})
	storetest.Run(t, h)
}

// TestConformanceLearning has every read learn the gap before what it found, and
// keeps some of what was not synced across a crash.
func TestConformanceLearning(t *testing.T) {
	learn := func(s *crashable) { s.views.learnSteps = 0 }
	h := harness(func(t *testing.T, opts Options) metastore.Store {
		s := openMem(t, vfs.NewCrashableMem(), opts)
		learn(s)
		return s
	})
	rng := rand.New(rand.NewPCG(1, 2))
	h.Reopen = reopening(func() vfs.CrashCloneCfg {
		return vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}
	}, learn)
	storetest.Run(t, h)
}

package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/storetest"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/buckettest"
	"github.com/nova-store/nova/sim"
)

// lab is a world with one node, for suites that make one call after the other.
type lab struct {
	w   *sim.World
	inc *sim.Incarnation
}

func newLab(t *testing.T, cfg sim.Config) *lab {
	w := sim.New(cfg)
	t.Cleanup(w.Close)
	return &lab{w: w, inc: w.Node("n").Start(nil)}
}

// do runs f n times as tasks of the node, until all have ended.
func (l *lab) do(t *testing.T, n int, f func(ctx context.Context, i int)) {
	for i := range n {
		l.inc.Go("do", func(ctx context.Context) { f(ctx, i) })
	}
	res := l.w.RunUntil(func() bool { return l.inc.Running() == 0 }, 1000*time.Hour)
	if res.Finding != nil {
		t.Fatal(res.Finding.Report())
	}
	require.Equal(t, sim.Reached, res.Reason)
}

// worlds are the ways in which the suites see the simulated dependencies.
func worlds() map[string]sim.Config {
	lat := sim.Latency{Base: time.Millisecond, Jitter: 20 * time.Millisecond, Tail: 3}
	delayed := sim.Faults{StoreLatency: lat, BucketLatency: lat}
	return map[string]sim.Config{
		"embedded":         {Seed: 1, Embedded: true},
		"embedded-latency": {Seed: 2, Embedded: true, Faults: delayed},
		"shared":           {Seed: 3},
		"shared-latency":   {Seed: 4, Faults: delayed},
	}
}

func TestStoreConformance(t *testing.T) {
	for name, cfg := range worlds() {
		t.Run(name, func(t *testing.T) { storetest.Run(t, storeHarness(cfg)) })
	}
}

func storeHarness(cfg sim.Config) storetest.Harness {
	labs := map[metastore.Store]*lab{}
	open := func(t *testing.T, cfg sim.Config) metastore.Store {
		l := newLab(t, cfg)
		labs[l.inc.Store()] = l
		return l.inc.Store()
	}
	h := storetest.Harness{
		Open: func(t *testing.T) metastore.Store { return open(t, cfg) },
		Do: func(t *testing.T, s metastore.Store, f func(ctx context.Context)) {
			labs[s].do(t, 1, func(ctx context.Context, _ int) { f(ctx) })
		},
		Parallel: func(t *testing.T, s metastore.Store, n int, f func(ctx context.Context, i int)) {
			labs[s].do(t, n, f)
		},
		ExpireSession: func(t *testing.T, s metastore.Store, x metastore.Session) {
			require.True(t, labs[s].w.ExpireSession(x.ID()))
		},
		InjectUnknown: func(s metastore.Store, mode storetest.UnknownMode) { labs[s].nextUnknown(mode) },
		LandLate:      func(_ *testing.T, s metastore.Store) { labs[s].w.RunFor(lateMax) },
		SmallLimits: func(t *testing.T) metastore.Store {
			cfg := cfg
			cfg.MaxOps = 8
			return open(t, cfg)
		},
	}
	if cfg.Embedded {
		h.Reopen = func(_ *testing.T, s metastore.Store) metastore.Store {
			l := labs[s]
			l.inc.Kill()
			l.inc = l.inc.Node().Start(nil)
			labs[l.inc.Store()] = l
			return l.inc.Store()
		}
	}
	return h
}

// lateMax is so far away that a late effect waits for LandLate.
const lateMax = 24 * time.Hour

// nextUnknown makes the next commit's outcome unknown, and only that.
func (l *lab) nextUnknown(mode storetest.UnknownMode) {
	before := l.w.Faults()
	f := before
	switch mode {
	case storetest.UnknownNoEffect:
		f.CommitUnknownNoEffect = 1
	case storetest.UnknownEffect:
		f.CommitUnknownEffect = 1
	default:
		f.CommitUnknownLate, f.CommitLateMax = 1, lateMax
	}
	l.w.SetFaults(f)
	l.w.OnStep(func(s *sim.StepInfo) {
		if s.Op == sim.OpCommit {
			l.w.SetFaults(before)
		}
	})
}

// losePut makes the next put get lost, and only that.
func (l *lab) losePut() {
	before := l.w.Faults()
	f := before
	f.PutUnknownNoEffect = 1
	l.w.SetFaults(f)
	l.w.OnStep(func(s *sim.StepInfo) {
		if s.Op == sim.OpBucketPut {
			l.w.SetFaults(before)
		}
	})
}

func TestBucketConformance(t *testing.T) {
	for name, cfg := range worlds() {
		t.Run(name, func(t *testing.T) { buckettest.Run(t, bucketHarness(cfg)) })
	}
}

func bucketHarness(cfg sim.Config) buckettest.Harness {
	labs := map[objstore.Bucket]*lab{}
	var now *sim.World
	return buckettest.Harness{
		Open: func(t *testing.T) objstore.Bucket {
			l := newLab(t, cfg)
			labs[l.inc.Bucket()] = l
			now = l.w
			return l.inc.Bucket()
		},
		Do: func(t *testing.T, b objstore.Bucket, f func(ctx context.Context)) {
			labs[b].do(t, 1, func(ctx context.Context, _ int) { f(ctx) })
		},
		Parallel: func(t *testing.T, b objstore.Bucket, n int, f func(ctx context.Context, i int)) {
			labs[b].do(t, n, f)
		},
		Reopen: func(_ *testing.T, b objstore.Bucket) objstore.Bucket {
			l := labs[b]
			l.inc.Kill()
			l.inc = l.inc.Node().Start(nil)
			labs[l.inc.Bucket()] = l
			return l.inc.Bucket()
		},
		LosePut: func(b objstore.Bucket) { labs[b].losePut() },
		Horizon: !cfg.Embedded,
		Now:     func() time.Time { return now.Time() },
	}
}

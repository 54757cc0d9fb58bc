package sim_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

type valueKey struct{}

func TestContextsAreGenuine(t *testing.T) {
	before := runtime.NumGoroutine()
	l := newLab(t, sim.Config{})
	clk := l.inc.Clock()
	start := clk.Now()
	l.do(t, 1, func(ctx context.Context, _ int) {
		limited, cancel := clk.WithTimeout(context.WithValue(ctx, valueKey{}, "v"), time.Minute)
		defer cancel()
		deadline, ok := limited.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(time.Minute), deadline)
		require.Equal(t, "v", limited.Value(valueKey{}))

		// A longer limit under a shorter one, and what the standard library derives.
		longer, cancelLonger := clk.WithTimeout(limited, time.Hour)
		defer cancelLonger()
		inner, cancelInner := clk.WithCancel(limited)
		defer cancelInner()
		wrapped, cancelWrapped := context.WithCancelCause(context.WithValue(inner, valueKey{}, "w"))
		defer cancelWrapped(nil)
		detached := context.WithoutCancel(wrapped)
		cleanup, cancelCleanup := clk.WithTimeout(detached, time.Hour)
		defer cancelCleanup()
		deadline, _ = longer.Deadline()
		require.Equal(t, start.Add(time.Minute), deadline)

		require.NoError(t, clk.Sleep(wrapped, 59*time.Second))
		require.NoError(t, wrapped.Err())
		require.ErrorIs(t, clk.Sleep(wrapped, time.Hour), context.DeadlineExceeded)
		require.Equal(t, start.Add(time.Minute), clk.Now())
		for _, c := range []context.Context{limited, longer, inner, wrapped} {
			require.Equal(t, context.DeadlineExceeded, c.Err())
			require.Equal(t, context.DeadlineExceeded, context.Cause(c))
			select {
			case <-c.Done():
			default:
				t.Error("Done is not closed")
			}
			require.ErrorIs(t, clk.Sleep(c, time.Second), context.DeadlineExceeded)
		}
		require.NoError(t, ctx.Err())
		require.NoError(t, cleanup.Err())
		require.NoError(t, clk.Sleep(cleanup, time.Minute))
		cancelCleanup()
		require.Equal(t, context.Canceled, cleanup.Err())

		over, cancelOver := clk.WithTimeout(ctx, 0)
		defer cancelOver()
		require.Equal(t, context.DeadlineExceeded, over.Err())
		under, cancelUnder := clk.WithCancel(over)
		defer cancelUnder()
		require.Equal(t, context.DeadlineExceeded, under.Err())
	})
	// What an earlier test left running may have ended meanwhile.
	require.LessOrEqual(t, runtime.NumGoroutine(), before+l.w.Coroutines())
}

func TestCancelWakes(t *testing.T) {
	l := newLab(t, sim.Config{})
	clk := l.inc.Clock()
	var errs [3]error
	l.do(t, 1, func(ctx context.Context, _ int) {
		inner, cancel := clk.WithCancel(ctx)
		clk.Go(inner, "sleeper", func(ctx context.Context) { errs[0] = clk.Sleep(ctx, time.Hour) })
		clk.Go(inner, "waiter", func(ctx context.Context) { errs[1] = clk.NewParker().Park(ctx) })
		clk.Go(inner, "both", func(ctx context.Context) {
			p := clk.NewParker()
			clk.Go(ctx, "unpark", func(ctx context.Context) {
				_ = clk.Sleep(ctx, time.Hour)
				p.Unpark() // with the context done: the token wins
			})
			errs[2] = p.Park(context.WithoutCancel(ctx))
		})
		_ = clk.Sleep(ctx, time.Minute)
		cancel()
		cancel()
	})
	require.Equal(t, [3]error{context.Canceled, context.Canceled, nil}, errs)
	require.Equal(t, time.Minute, l.w.Elapsed())
}

func TestInterrupt(t *testing.T) {
	w := newWorld(t, sim.Config{})
	drained := false
	inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		require.ErrorIs(t, inc.Clock().Sleep(ctx, time.Hour), context.Canceled)
		require.NoError(t, inc.Clock().Sleep(context.WithoutCancel(ctx), time.Second))
		drained = true
	})
	w.RunFor(time.Minute)
	inc.Interrupt()
	idle(t, w)
	require.True(t, drained)
	inc.Exit()
	require.Nil(t, w.Found())
}

// TestContextEndsDuringACall: a write is unknown, and may still land; a read fails.
func TestContextEndsDuringACall(t *testing.T) {
	l := newLab(t, sim.Config{Faults: sim.Faults{StoreLatency: sim.Latency{Base: time.Second}, BucketLatency: sim.Latency{Base: time.Second}}})
	clk, st, b := l.inc.Clock(), l.inc.Store(), l.inc.Bucket()
	l.do(t, 1, func(ctx context.Context, _ int) {
		in := func(d time.Duration, f func(ctx context.Context)) {
			ctx, cancel := clk.WithTimeout(ctx, d)
			defer cancel()
			f(ctx)
		}
		ops := []metastore.Op{metastore.Put("k", []byte("v"))}
		in(500*time.Millisecond, func(ctx context.Context) {
			_, err := st.Commit(ctx, metastore.Batch{Ops: ops})
			require.ErrorIs(t, err, metastore.ErrUnknown)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		ops[0].Key = "reused"
		require.False(t, l.w.StoreView().Get("k").Exists())
		in(1500*time.Millisecond, func(ctx context.Context) {
			_, err := st.Get(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, metastore.ErrUnknown)
		})
		require.True(t, l.w.StoreView().Get("k").Exists(), "it landed after its answer")
		body := []byte("body")
		in(500*time.Millisecond, func(ctx context.Context) {
			require.ErrorIs(t, b.Put(ctx, "o", body, inTime(l.inc)), objstore.ErrUnknown)
		})
		copy(body, "torn")
		in(500*time.Millisecond, func(ctx context.Context) {
			require.Equal(t, 2, len(b.Delete(ctx, []string{"x", "y"})))
		})
		in(0, func(ctx context.Context) {
			_, err := st.Commit(ctx, put("never", ""))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, metastore.ErrUnknown, "nothing was sent")
		})
	})
	idle(t, l.w)
	require.Equal(t, 1, l.w.StoreView().Len())
	got, _ := l.w.BucketView().Get("o")
	require.Equal(t, "body", string(got))
}

// TestEmbeddedPutIsNotInterrupted: it returns once its effect is settled.
func TestEmbeddedPutIsNotInterrupted(t *testing.T) {
	l := newLab(t, sim.Config{Embedded: true, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Second}}})
	l.do(t, 1, func(ctx context.Context, _ int) {
		ctx, cancel := l.inc.Clock().WithTimeout(ctx, time.Millisecond)
		defer cancel()
		require.NoError(t, l.inc.Bucket().Put(ctx, "o", nil, objstore.PutOptions{}))
		require.Error(t, ctx.Err())
	})
	require.True(t, l.w.BucketView().Has("o"))
}

func TestNodeClocks(t *testing.T) {
	w := newWorld(t, sim.Config{})
	n := w.Node("n")
	n.SetClock(3*time.Second, 100_000) // a tenth too fast
	var slept time.Duration
	inc := n.Start(func(ctx context.Context, inc *sim.Incarnation) {
		from, at := inc.Clock().Now(), w.Time()
		require.NoError(t, inc.Clock().Sleep(ctx, 11*time.Second))
		slept = w.Time().Sub(at)
		require.GreaterOrEqual(t, inc.Clock().Now().Sub(from), 11*time.Second)
		limited, cancel := inc.Clock().WithTimeout(ctx, 11*time.Second)
		defer cancel()
		deadline, _ := limited.Deadline()
		require.Error(t, inc.Clock().NewParker().Park(limited))
		require.False(t, inc.Clock().Now().Before(deadline))
	})
	require.Equal(t, 3*time.Second, n.Skew())
	idle(t, w)
	require.InDelta(t, float64(10*time.Second), float64(slept), 100)
	require.Equal(t, w.Time(), w.HarnessClock().Now())
	require.NotEqual(t, w.Time(), inc.Clock().Now())
	n.SetClock(-time.Hour, -100_000)
	require.Equal(t, w.Time().Add(-time.Hour), inc.Clock().Now(), "it jumps")
	require.Panics(t, func() { n.SetClock(0, 1_000_000) })
}

func TestRandOfIncarnations(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 4})
	a, b := w.Node("a").Start(nil), w.Node("b").Start(nil)
	first := a.Clock().Rand()
	require.NotEqual(t, first, b.Clock().Rand())
	a.Kill()
	require.NotEqual(t, first, w.Node("a").Start(nil).Clock().Rand(), "a new life repeats nothing")
	again := newWorld(t, sim.Config{Seed: 4})
	require.Equal(t, first, again.Node("a").Start(nil).Clock().Rand())
}

package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
)

// ask has a client call into the node and returns what it was told.
func ask(t *testing.T, w *sim.World, ctxOf func(ctx context.Context) context.Context, inc *sim.Incarnation, f func(ctx context.Context) int) (got int, err error) {
	c := w.Client("c")
	answered := false
	c.Go(func(ctx context.Context) {
		if ctxOf != nil {
			ctx = ctxOf(ctx)
		}
		got, err = sim.Call(ctx, c, inc, "ask", f)
		answered = true
	})
	res := w.RunUntil(func() bool { return answered }, time.Hour)
	require.Equal(t, sim.Reached, res.Reason)
	return got, err
}

func TestClientIsAnswered(t *testing.T) {
	w := newWorld(t, sim.Config{Faults: sim.Faults{NetLatency: sim.Latency{Base: time.Second}}})
	inc := w.Node("n").Start(nil)
	got, err := ask(t, w, nil, inc, func(ctx context.Context) int {
		_, err := inc.Store().Commit(ctx, put("k", "v"))
		require.NoError(t, err)
		return 42
	})
	require.NoError(t, err)
	require.Equal(t, 42, got)
	require.Equal(t, 2*time.Second, w.Elapsed())
	require.Equal(t, 1, w.Steps())
}

func TestClientOfADeadNode(t *testing.T) {
	w := newWorld(t, sim.Config{})
	inc := w.Node("n").Start(nil)
	inc.Kill()
	_, err := ask(t, w, nil, inc, func(context.Context) int {
		t.Error("it runs")
		return 0
	})
	require.ErrorIs(t, err, sim.ErrDown)
}

func TestClientWhenTheNodeDies(t *testing.T) {
	w := newWorld(t, sim.Config{})
	inc := w.Node("n").Start(nil)
	w.KillAt(sim.Kill{Step: 1, Side: sim.After})
	got, err := ask(t, w, nil, inc, func(ctx context.Context) int {
		_, _ = inc.Store().Commit(ctx, put("k", "v"))
		return 42
	})
	require.ErrorIs(t, err, sim.ErrLost)
	require.Zero(t, got)
	require.True(t, w.StoreView().Get("k").Exists())
}

func TestClientLosesAnswers(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 2, Faults: sim.Faults{NetLost: 0.3}})
	inc := w.Node("n").Start(nil)
	lost, effects := 0, 0
	for range 100 {
		ran := false
		_, err := ask(t, w, nil, inc, func(context.Context) int { ran = true; return 0 })
		if err != nil {
			require.ErrorIs(t, err, sim.ErrLost)
			lost++
			if ran {
				effects++
			}
		}
	}
	require.Greater(t, effects, 10)
	require.Greater(t, lost-effects, 10)
}

func TestClientGoesAway(t *testing.T) {
	w := newWorld(t, sim.Config{})
	inc := w.Node("n").Start(nil)
	var server error
	_, err := ask(t, w, func(ctx context.Context) context.Context {
		ctx, cancel := w.HarnessClock().WithTimeout(ctx, time.Minute)
		t.Cleanup(cancel)
		return ctx
	}, inc, func(ctx context.Context) int {
		server = inc.Clock().Sleep(ctx, time.Hour)
		return 0
	})
	require.ErrorIs(t, err, sim.ErrLost)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	idle(t, w)
	require.ErrorIs(t, server, context.Canceled)
	require.Equal(t, time.Minute, w.Elapsed())
}

func TestClientCutOff(t *testing.T) {
	w := newWorld(t, sim.Config{})
	inc := w.Node("n").Start(nil)
	inc.Node().Partition(false, false, true)
	_, err := ask(t, w, nil, inc, func(context.Context) int {
		t.Error("it runs")
		return 0
	})
	require.ErrorIs(t, err, sim.ErrLost)
}

func TestWatchdog(t *testing.T) {
	hung := make(chan string, 1)
	release := make(chan struct{})
	w := newWorld(t, sim.Config{Watchdog: time.Millisecond, OnHang: func(stacks string) {
		hung <- stacks
		close(release)
	}})
	w.Node("n").Start(func(context.Context, *sim.Incarnation) { <-release })
	idle(t, w)
	require.Contains(t, <-hung, "TestWatchdog")
}

func TestRunEnds(t *testing.T) {
	w := newWorld(t, sim.Config{MaxSteps: 10})
	require.Equal(t, sim.Idle, w.Run(nil).Reason)
	require.Equal(t, sim.TimeUp, w.RunFor(time.Minute).Reason)
	require.Equal(t, time.Minute, w.Elapsed(), "time passes in an empty world too")
	fired := w.Elapsed()
	w.At(30*time.Second, func() { fired = w.Elapsed(); w.Stop() })
	require.Equal(t, sim.Stopped, w.RunFor(time.Minute).Reason)
	require.Equal(t, 90*time.Second, fired)
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		for inc.Clock().Sleep(ctx, 0) == nil {
		}
	})
	res := w.RunFor(time.Minute)
	require.Equal(t, sim.StepsUp, res.Reason)
	require.Equal(t, 10, res.Steps)
	require.Equal(t, 10, w.Node("n").Ops(sim.OpSleep))
}

func TestFindingsStopAndTell(t *testing.T) {
	l := newLab(t, sim.Config{})
	l.w.OnCommit(func(m *sim.Commit) {
		if m.Changes[0].New.Key == "ref/settled!x" {
			l.w.Finding("watched", "settled/x", "nobody watches it")
		}
	})
	l.inc.Go("main", func(ctx context.Context) {
		for _, k := range []string{"other", "ref/settled!x", "never"} {
			_, _ = l.inc.Store().Commit(ctx, put(k, ""))
		}
	})
	res := l.w.RunFor(time.Minute)
	require.Equal(t, sim.Found, res.Reason)
	require.ErrorContains(t, res.Finding, "watched: settled/x: nobody watches it")
	require.Len(t, res.Finding.Touched, 2, "issue and effect")
	require.NotEmpty(t, res.Finding.Last)
	require.False(t, l.w.StoreView().Get("never").Exists())
	l.w.Finding("second", "", "")
	require.Equal(t, "watched", l.w.Found().Invariant)
}

package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

type ctxt = context.Context

// script runs five steps, each of another kind, and tells how far it came.
func script(done *[]string) func(ctx context.Context, inc *sim.Incarnation) {
	return func(ctx context.Context, inc *sim.Incarnation) {
		_, _ = inc.Store().Get(ctx, "k")
		*done = append(*done, "get")
		_, _ = inc.Store().Commit(ctx, put("k", "v"))
		*done = append(*done, "commit")
		_ = inc.Clock().Sleep(ctx, time.Second)
		*done = append(*done, "sleep")
		_ = inc.Bucket().Put(ctx, "o", []byte("b"), inTime(inc))
		*done = append(*done, "put")
		_ = inc.Bucket().Delete(ctx, []string{"o"})
		*done = append(*done, "delete")
	}
}

func TestKillAtEachStepAndSide(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		for _, faults := range []sim.Faults{{}, {StoreLatency: sim.Latency{Base: time.Second}, BucketLatency: sim.Latency{Base: time.Second}}} {
			for step := 1; step <= 5; step++ {
				for _, side := range []sim.Side{sim.Before, sim.After} {
					t.Run(fmt.Sprintf("embedded=%v/step=%d/%s/latency=%v", embedded, step, side, faults.StoreLatency.Base), func(t *testing.T) {
						w := newWorld(t, sim.Config{Embedded: embedded, Faults: faults})
						var done []string
						var dead *sim.Incarnation
						w.KillAt(sim.Kill{Step: step, Side: side, Then: func(inc *sim.Incarnation) { dead = inc }})
						inc := w.Node("n").Start(script(&done))
						idle(t, w)
						require.Same(t, inc, dead)
						require.True(t, inc.Dead())
						require.Nil(t, w.Node("n").Current())
						require.Equal(t, step, w.Steps())
						require.Len(t, done, step-1, "the answer of the step never arrives")

						had := step
						if side == sim.Before {
							had--
						}
						require.Equal(t, had >= 2, w.StoreView().Get("k").Exists())
						require.Equal(t, had == 4, w.BucketView().Has("o"))
					})
				}
			}
		}
	}
}

// TestUnwinding: deferred functions of the dead run, in the order of the tasks;
// what they ask is refused, has no effect and is no step.
func TestUnwinding(t *testing.T) {
	w := newWorld(t, sim.Config{})
	var order []string
	inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		for i := range 3 {
			inc.Go(fmt.Sprint(i), func(ctx context.Context) {
				defer func() { order = append(order, fmt.Sprint("left ", i)) }()
				defer func() {
					defer inc.Clock().Go(ctx, "late", func(context.Context) { order = append(order, "a task of the dead") })
					_, err := inc.Store().Commit(ctx, put("k", "deferred"))
					order = append(order, fmt.Sprint("not refused: ", err))
				}()
				defer func() { _ = inc.Bucket().Delete(ctx, []string{"o"}) }()
				defer func() { _ = inc.Clock().Sleep(ctx, 0) }()
				_ = inc.Clock().NewParker().Park(ctx)
			})
		}
	})
	idle(t, w)
	inc.Go("never began", func(context.Context) { order = append(order, "began") })
	steps, running := w.Steps(), inc.Running()
	require.Equal(t, 4, running)
	inc.Kill()
	require.Equal(t, []string{"left 0", "left 1", "left 2"}, order)
	require.Equal(t, steps, w.Steps())
	require.Zero(t, inc.Running())
	require.Zero(t, w.StoreView().Len())
	idle(t, w)
	require.Equal(t, []string{"left 0", "left 1", "left 2"}, order)
}

func TestKillWithinATurn(t *testing.T) {
	t.Run("by itself", func(t *testing.T) {
		w := newWorld(t, sim.Config{})
		w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
			inc.Kill()
			_, _ = inc.Store().Commit(ctx, put("k", "v"))
		})
		idle(t, w)
		require.Zero(t, w.StoreView().Len())
	})
	t.Run("by another node's effect", func(t *testing.T) {
		w := newWorld(t, sim.Config{})
		a := w.Node("a").Start(func(ctx context.Context, inc *sim.Incarnation) {
			for inc.Clock().Sleep(ctx, time.Second) == nil {
			}
		})
		w.OnCommit(func(*sim.Commit) { a.Kill() })
		w.Node("b").Start(func(ctx context.Context, inc *sim.Incarnation) { _, _ = inc.Store().Commit(ctx, put("k", "v")) })
		idle(t, w)
		require.True(t, a.Dead())
		require.Zero(t, a.Running())
	})
	t.Run("by a hook at the step", func(t *testing.T) {
		w := newWorld(t, sim.Config{})
		w.OnStep(func(s *sim.StepInfo) {
			if s.Op == sim.OpCommit {
				require.True(t, s.Write)
				require.Equal(t, []string{"k"}, s.Keys)
				s.Inc.Kill()
			}
		})
		w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) { _, _ = inc.Store().Commit(ctx, put("k", "v")) })
		idle(t, w)
		require.Zero(t, w.StoreView().Len())
		require.Nil(t, w.Node("n").Current())
	})
	t.Run("by a client, and started again in the same turn", func(t *testing.T) {
		w := newWorld(t, sim.Config{Embedded: true})
		left := false
		old := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
			defer func() { left = true }()
			_ = inc.Clock().Sleep(ctx, time.Hour)
		})
		w.Go("nemesis", func(context.Context) {
			old.Kill()
			require.True(t, left, "unwound at once")
			w.Node("n").Start(nil)
		})
		w.RunFor(time.Minute)
		require.Equal(t, 2, w.Node("n").Current().Number())
	})
}

// TestCallsOfTheDead: in the shared world a call under way may land after its
// caller's death; in the embedded one it has landed by then, or never does.
func TestCallsOfTheDead(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		t.Run(fmt.Sprint("embedded=", embedded), func(t *testing.T) {
			landed, late := 0, 0
			for seed := range uint64(40) {
				w := newWorld(t, sim.Config{Seed: seed, Embedded: embedded, Faults: sim.Faults{
					StoreLatency: sim.Latency{Base: time.Second}, BucketLatency: sim.Latency{Base: time.Second}}})
				inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
					inc.Go("commit", func(ctx context.Context) { _, _ = inc.Store().Commit(ctx, put("k", "v")) })
					body := []byte("body")
					defer copy(body, "torn") // the caller's own again
					_ = inc.Bucket().Put(ctx, "o", body, inTime(inc))
				})
				w.RunFor(500 * time.Millisecond)
				inc.Kill()
				count := func() int { return w.StoreView().Len() + w.BucketView().Len() }
				atDeath := count()
				idle(t, w)
				landed += count()
				late += count() - atDeath
				if body, ok := w.BucketView().Get("o"); ok {
					require.Equal(t, "body", string(body))
				}
			}
			require.Greater(t, landed, 20)
			require.Less(t, landed, 60)
			if embedded {
				require.Zero(t, late)
			} else {
				require.Equal(t, landed, late)
			}
		})
	}
}

func TestZombie(t *testing.T) {
	w := newWorld(t, sim.Config{Faults: sim.Faults{StoreLatency: sim.Latency{Base: time.Second}}})
	var woke time.Time
	var gone error
	inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		sess, err := inc.Store().OpenSession(ctx, 10*time.Second)
		require.NoError(t, err)
		_, err = inc.Store().Commit(ctx, put("k", "v"))
		require.NoError(t, err)
		woke = w.Time()
		gone = sess.KeepAlive(ctx)
	})
	w.RunFor(2500 * time.Millisecond)
	inc.Pause()
	require.True(t, inc.Paused())
	require.False(t, w.StoreView().Get("k").Exists())
	w.RunFor(time.Hour)
	require.True(t, w.StoreView().Get("k").Exists(), "what was sent goes on")
	require.True(t, woke.IsZero(), "the process does not")
	inc.Resume()
	idle(t, w)
	require.Greater(t, woke.Sub(w.Time().Add(-w.Elapsed())), time.Hour)
	require.ErrorIs(t, gone, metastore.ErrSessionGone)
	require.Zero(t, inc.Running())
}

func TestKillOfThePaused(t *testing.T) {
	w := newWorld(t, sim.Config{})
	left := false
	inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		defer func() { left = true }()
		_ = inc.Clock().Sleep(ctx, time.Second)
	})
	w.RunFor(time.Millisecond)
	inc.Pause()
	w.RunFor(time.Minute)
	inc.Kill()
	require.True(t, left)
	inc.Resume()
	idle(t, w)
}

func TestExit(t *testing.T) {
	w := newWorld(t, sim.Config{})
	inc := w.Node("n").Start(nil)
	inc.Exit()
	require.True(t, inc.Exited())
	require.Nil(t, w.Found())

	inc = w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) { _ = inc.Clock().Sleep(ctx, time.Hour) })
	w.RunFor(time.Second)
	inc.Exit()
	require.Equal(t, "task-leak", w.Found().Invariant)
	require.Contains(t, w.Found().Text, "main")
}

func TestPanicIsAFinding(t *testing.T) {
	w := newWorld(t, sim.Config{})
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		_ = inc.Clock().Sleep(ctx, time.Second)
		explode()
	})
	res := w.RunFor(time.Hour)
	require.Equal(t, sim.Found, res.Reason)
	require.Equal(t, "panic", res.Finding.Invariant)
	require.Contains(t, res.Finding.Stack, "explode")
	require.Contains(t, res.Finding.Report(), "boom")
	require.Equal(t, sim.Found, w.RunFor(time.Hour).Reason, "it stays")
}

func explode() { panic("boom") }

func TestMisuseIsNoFindingAboutTheProduct(t *testing.T) {
	w := newWorld(t, sim.Config{})
	a, b := w.Node("a").Start(nil), w.Node("b").Start(nil)
	a.Go("stray", func(ctx context.Context) { _, _ = b.Store().Get(ctx, "k") })
	require.Equal(t, "harness", w.RunFor(time.Second).Finding.Invariant)
	require.Panics(t, func() { _, _ = a.Store().Get(context.Background(), "k") }, "outside a task")
	require.Panics(t, func() { w.Node("a").Start(nil) }, "two processes on one node")
}

func TestOneProcessAtATime(t *testing.T) {
	w := newWorld(t, sim.Config{Embedded: true})
	w.Node("a").Start(nil)
	require.Panics(t, func() { w.Node("b").Start(nil) })
}

func TestSharedPutNeedsNotAfter(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		w := newWorld(t, sim.Config{Embedded: embedded})
		w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
			_ = inc.Bucket().Put(ctx, "o", nil, objstore.PutOptions{})
		})
		res := w.RunFor(time.Second)
		if embedded {
			require.Nil(t, res.Finding)
		} else {
			require.Equal(t, "put-horizon", res.Finding.Invariant)
		}
	}
}

func TestClasses(t *testing.T) {
	w := newWorld(t, sim.Config{Classes: true, Duty: func(task, parent string) string { return parent + "/" + task }})
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		st := inc.Store()
		for range 3 {
			_, _ = st.Get(ctx, "k")
		}
		_, _ = st.Commit(ctx, put("k", "v"))
		_, _ = st.Get(ctx, "k")
		_ = inc.Clock().Sleep(ctx, time.Second)
		inc.Clock().Go(ctx, "more", func(ctx context.Context) { _, _ = st.Get(ctx, "k") })
	})
	idle(t, w)
	of := func(duty string, op sim.Op, cuts, steps int) sim.Part {
		return sim.Part{Duty: duty, Op: op, Cuts: cuts, Steps: steps}
	}
	const main, more = "/main", "/main/more"
	want := []sim.Class{
		{FirstStep: 1, Side: sim.Before, Node: "n", Op: sim.OpGet, Cuts: 6, Steps: 3, Parts: []sim.Part{of(main, sim.OpGet, 6, 3)}},
		{FirstStep: 4, Side: sim.Before, Node: "n", Op: sim.OpCommit, Write: true, Cuts: 1, Steps: 1, Parts: []sim.Part{of(main, sim.OpCommit, 1, 1)}},
		{FirstStep: 4, Side: sim.After, Node: "n", Op: sim.OpCommit, Write: true, Cuts: 1, Parts: []sim.Part{of(main, sim.OpCommit, 1, 0)}},
		{FirstStep: 5, Side: sim.Before, Node: "n", Op: sim.OpGet, Cuts: 3, Steps: 2, Parts: []sim.Part{of(main, sim.OpGet, 2, 1), of(main, sim.OpSleep, 1, 1)}},
		{FirstStep: 6, Side: sim.After, Node: "n", Op: sim.OpSleep, Cuts: 3, Steps: 1, Parts: []sim.Part{of(main, sim.OpSleep, 1, 0), of(more, sim.OpGet, 2, 1)}},
	}
	require.Equal(t, want, w.Classes())
	require.True(t, want[4].Of(more))
	require.False(t, want[3].Of(more))
	cuts, steps := 0, 0
	for _, c := range w.Classes() {
		cuts, steps = cuts+c.Cuts, steps+c.Steps
	}
	require.Equal(t, w.Steps(), steps)
	require.Equal(t, 2*w.Steps(), cuts)
}

func TestClassesEndWhereAnAnswerLeaves(t *testing.T) {
	w := newWorld(t, sim.Config{Classes: true})
	inc := w.Node("n").Start(nil)
	c := w.Client("c")
	c.Go(func(ctx context.Context) {
		for range 2 {
			_ = c.Do(ctx, inc, "read", func(ctx context.Context) { _, _ = inc.Store().Get(ctx, "k") })
		}
	})
	idle(t, w)
	require.Equal(t, 2, w.Steps(), "a client's waits are no steps")
	require.Len(t, w.Classes(), 2)
}

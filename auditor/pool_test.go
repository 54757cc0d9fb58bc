package auditor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/sim"
)

// fakeSource has jobs of given lengths.
type fakeSource struct {
	name string
	q    catalog.Queue
	jobs []time.Duration
	d    *dispatchRun
}

func (s *fakeSource) queue() catalog.Queue { return s.q }

func (s *fakeSource) next(context.Context) func(context.Context) {
	if len(s.jobs) == 0 {
		s.d.spent(s)
		return nil
	}
	long := s.jobs[0]
	s.jobs = s.jobs[1:]
	s.d.started(s)
	return func(ctx context.Context) {
		_ = s.d.clk.Sleep(ctx, long)
		s.d.ended(s)
	}
}

// dispatchRun watches a rotation and checks it against the model: of the live sources whose duty is below its
// cap, the one that was offered longest ago has its turn; among those never offered, the first.
type dispatchRun struct {
	t       *rapid.T
	clk     clock.Clock
	workers int
	live    []*fakeSource // in the order of priority
	offered map[*fakeSource]int
	turns   int
	running map[catalog.Queue]int
	busy    int
	jobs    int
}

func (d *dispatchRun) most() int { return max(1, d.workers/2) }

// turn checks that it is the source's turn.
func (d *dispatchRun) turn(s *fakeSource) {
	var due *fakeSource
	for _, o := range d.live {
		if d.running[o.q] < d.most() && (due == nil || d.offered[o] < d.offered[due]) {
			due = o
		}
	}
	require.NotNil(d.t, due, "asked while every duty is at its cap")
	require.Equal(d.t, due.name, s.name, "another source's turn")
	require.Less(d.t, d.busy, d.workers, "asked while the pool is full")
	d.turns++
	d.offered[s] = d.turns
}

func (d *dispatchRun) started(s *fakeSource) {
	d.turn(s)
	d.running[s.q]++
	d.busy++
	d.jobs++
}

func (d *dispatchRun) spent(s *fakeSource) {
	d.turn(s)
	d.live = slices.DeleteFunc(d.live, func(o *fakeSource) bool { return o == s })
}

func (d *dispatchRun) ended(s *fakeSource) {
	d.running[s.q]--
	d.busy--
}

// eligible tells whether a worker is free for a source that is not known to be spent.
func (d *dispatchRun) eligible() bool {
	for _, s := range d.live {
		if d.running[s.q] < d.most() && d.busy < d.workers {
			return true
		}
	}
	return false
}

func TestRotationFollowsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := sim.New(sim.Config{Seed: rapid.Uint64().Draw(t, "seed")})
		defer w.Close()
		inc := w.Node("a").Start(nil)
		d := &dispatchRun{t: t, clk: inc.Clock(), workers: rapid.IntRange(1, 5).Draw(t, "workers"), running: map[catalog.Queue]int{}, offered: map[*fakeSource]int{}}
		var live []offer
		want := 0
		queues := catalog.Queues()[:rapid.IntRange(1, 5).Draw(t, "duties")]
		for _, q := range queues {
			for shard := range rapid.IntRange(0, 4).Draw(t, "shards of "+string(q)) {
				n := rapid.IntRange(0, 6).Draw(t, "jobs")
				s := &fakeSource{name: fmt.Sprintf("%s/%d", q, shard), q: q, d: d}
				for range n {
					want++
					s.jobs = append(s.jobs, time.Duration(rapid.IntRange(1, 50).Draw(t, "length"))*time.Second+time.Duration(want)*time.Millisecond)
				}
				d.live = append(d.live, s)
				live = append(live, s)
			}
		}
		p := newPool(inc.Clock(), d.workers)
		over := false
		inc.Go("rotate", func(ctx context.Context) {
			p.rotate(ctx, ctx, live)
			over = true
		})
		// Work-conserving: whenever time has passed, no free worker had anything to do.
		last, idled := w.Time(), false
		res := w.RunUntil(func() bool {
			if w.Time() != last {
				require.False(t, idled, "a worker idled until %v", w.Time())
				last = w.Time()
			}
			idled = !over && d.eligible()
			return over
		}, time.Hour)
		require.Equal(t, sim.Reached, res.Reason)
		require.Empty(t, d.live, "every source was walked to its end")
		inc.Go("wait", func(ctx context.Context) { require.NoError(t, p.tasks.Wait(ctx)) })
		w.RunFor(time.Hour)
		require.Equal(t, want, d.jobs)
		require.Zero(t, d.busy)
		require.Zero(t, p.slots.Used())
	})
}

func TestRotationEndsWithItsBudget(t *testing.T) {
	w := sim.New(sim.Config{})
	defer w.Close()
	inc := w.Node("a").Start(nil)
	p := newPool(inc.Clock(), 1)
	ran, over := 0, false
	forever := offerFunc(func(context.Context) func(context.Context) {
		return func(ctx context.Context) {
			ran++
			_ = inc.Clock().Sleep(ctx, 7*time.Second)
		}
	})
	inc.Go("rotate", func(ctx context.Context) {
		pctx, cancel := inc.Clock().WithTimeout(ctx, 30*time.Second)
		defer cancel()
		p.rotate(pctx, ctx, []offer{forever})
		over = true
		require.NoError(t, p.tasks.Wait(ctx), "the last job runs on, past the pass")
	})
	w.RunFor(30 * time.Second)
	require.True(t, over)
	require.Equal(t, 5, ran)
	require.Equal(t, 1, p.tasks.Running())
	w.RunFor(time.Minute)
	require.Zero(t, p.tasks.Running())
	require.Zero(t, p.slots.Used())
}

type offerFunc func(context.Context) func(context.Context)

func (f offerFunc) queue() catalog.Queue                           { return catalog.Reap }
func (f offerFunc) next(ctx context.Context) func(context.Context) { return f(ctx) }

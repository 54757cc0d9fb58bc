package auditor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// dispatchModel knows of each marker what it needs and what may be done to it: of a time-ordered queue nothing
// before its ready time, of one that is skipped nothing at all, of a failing one a run for each time
// that its rest is over.
type dispatchModel struct {
	t   *rapid.T
	h   *harness
	all map[string]*modelMarker // by subject and queue
}

type modelMarker struct {
	queue   catalog.Queue
	subject string
	key     string // where it stands; empty: it does not
	ready   time.Time
	fails   int // how many runs fail, before one resolves it
	waits   int // how many runs re-arm it, before one resolves it
	skip    bool
	runs    int
	armed   time.Time
	last    time.Time // of its last run, that failed
	rest    time.Duration
	running bool
}

func modelID(q catalog.Queue, subject string) string { return string(q) + "/" + subject }

func (m *dispatchModel) judge(at catalog.MarkerAt, now time.Time) Verdict {
	x := m.all[modelID(at.Due.Queue, at.Due.Subject)]
	switch {
	case at.Due.Queue.TimeOrdered() && ripe(at.Due, now) == Stop:
		return Stop
	case x.skip:
		return Skip
	}
	return Run
}

var errModel = errors.New("this run fails")

// handle works as the marker wants, and checks that it may be worked on at all.
func (m *dispatchModel) handle(ctx context.Context, at catalog.MarkerAt) (Outcome, error) {
	x := m.all[modelID(at.Due.Queue, at.Due.Subject)]
	clk := m.h.inc.Clock()
	require.False(m.t, x.skip)
	require.False(m.t, x.running, "two jobs on one marker")
	if x.key != at.Due.Key {
		// The page was read before the job that moved it ended: the commit at the version judged conflicts.
		return Standing, fmt.Errorf("%s: %w", at.Due.Key, catalog.ErrMoved)
	}
	require.False(m.t, clk.Now().Before(x.ready), "it was run before it was ripe")
	require.GreaterOrEqual(m.t, clk.Now().Sub(x.last), x.rest, "it did not rest")
	x.runs++
	x.running = true
	defer func() { x.running = false }()
	if err := clk.Sleep(ctx, time.Duration(x.runs)*time.Second); err != nil {
		return Standing, err
	}
	switch {
	case x.fails > 0:
		x.fails--
		x.last, x.rest = clk.Now(), min(max(2*x.rest, backoffFirst), backoffMost)
		return Standing, errModel
	case x.waits > 0:
		x.waits--
		x.last, x.rest = time.Time{}, 0
		return Waiting, m.put(ctx, x, clk.Now().Add(catalog.MinRearm), at)
	}
	x.key = ""
	return Resolved, m.h.cat.ResolveMarker(ctx, at)
}

// put writes the marker at its new key, and takes it from the old one.
func (m *dispatchModel) put(ctx context.Context, x *modelMarker, ready time.Time, old catalog.MarkerAt) error {
	key := catalog.DueKey(x.queue, uint64(ready.UnixMilli())+1, x.subject)
	b := metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte{1})}}
	if old.Due.Key != "" {
		b.Conds = append(b.Conds, metastore.At(old.Due.Key, old.Version))
		b.Ops = append(b.Ops, metastore.Delete(old.Due.Key))
	}
	x.key, x.ready = key, ready
	_, err := m.h.cat.Store().Commit(ctx, b)
	return err
}

// arm makes a marker of one of a few shards.
func (m *dispatchModel) arm(ctx context.Context, n int) {
	t, now := m.t, m.h.inc.Clock().Now()
	x := &modelMarker{
		queue:   rapid.SampledFrom([]catalog.Queue{catalog.Reap, catalog.GC, catalog.Orphan}).Draw(t, "queue"),
		subject: fmt.Sprintf("settled!%d", n), armed: now,
		fails: rapid.SampledFrom([]int{0, 0, 0, 1, 3, math.MaxInt}).Draw(t, "fails"),
	}
	if rapid.Bool().Draw(t, "the shard of all") {
		x.subject = object(n)
	}
	m.all[modelID(x.queue, x.subject)] = x
	switch x.queue {
	case catalog.Reap:
		x.waits = rapid.IntRange(0, 2).Draw(t, "waits")
		ready := now.Add(time.Duration(rapid.IntRange(-2000, 20_000).Draw(t, "ready")) * time.Millisecond)
		require.NoError(t, m.put(ctx, x, ready, catalog.MarkerAt{}))
		return
	case catalog.GC:
		x.key = catalog.DueKey(x.queue, math.MaxUint64-uint64(rapid.IntRange(1, 1000).Draw(t, "reclaims")), x.subject)
	default:
		x.skip = rapid.Bool().Draw(t, "skip")
		x.key = catalog.IntentKey("settled/" + x.subject[len("settled!"):])
	}
	_, err := m.h.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(x.key, []byte{1})}})
	require.NoError(t, err)
}

// check compares what stands with the model, and positions with what stands: none is above a marker that
// could be run or will be, since all were armed for now at the earliest.
func (m *dispatchModel) check() {
	var want, have []string
	for _, x := range m.all {
		if x.key != "" {
			want = append(want, x.key)
		}
	}
	for _, q := range []catalog.Queue{catalog.Reap, catalog.GC, catalog.Orphan} {
		have = append(have, m.h.markers(q)...)
	}
	slices.Sort(want)
	slices.Sort(have)
	require.Equal(m.t, want, have)
	for _, s := range m.h.a.sources {
		for _, key := range have {
			if s.reg.TimeOrdered && key >= s.whole.Start && key < s.whole.End && s.resume == "" {
				require.GreaterOrEqual(m.t, key, s.pos, "the walk would begin above what stands")
			}
		}
	}
}

// Markers of an ordered queue, of one that is always ripe and of one whose order is no age come and go, fail, wait and
// are skipped, in one shard and in several, with any number of workers and any size of page and group. Whatever
// the mixture: nothing is run too early, twice at once or without its rest, and in the end nothing is left but what
// must be: no marker starves behind those that fail or are skipped.
func TestDispatchFollowsTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarnessRig(t, func(o *Options) {
			o.Workers = rapid.IntRange(1, 5).Draw(rt, "workers")
			o.PageSize = rapid.IntRange(1, 8).Draw(rt, "page")
			o.PassBudget = time.Duration(rapid.IntRange(3, 30).Draw(rt, "budget")) * time.Second
		})
		m := &dispatchModel{t: rt, h: h, all: map[string]*modelMarker{}}
		h.d.judge = m.judge
		h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
			if j.reg.GroupUpTo > 0 {
				return j.each(ctx, m.handle)
			}
			return m.handle(ctx, j.Marker)
		}
		if rapid.Bool().Draw(rt, "groups") {
			h.a.sources[0].reg.GroupUpTo, h.a.sources[0].reg.GroupAbreast = 4, 2
		}
		h.a.register(
			Registration{Queue: catalog.Orphan, Duty: h.d, FrontEvery: 10 * time.Second},
			Registration{Queue: catalog.GC, Duty: h.d},
		)
		h.do(func(ctx context.Context) {
			clk, n := h.inc.Clock(), 0
			running, stop := clk.WithCancel(ctx)
			over := false
			clk.Go(running, "run", func(ctx context.Context) {
				require.NoError(rt, h.a.Run(ctx))
				over = true
			})
			for range rapid.IntRange(1, 15).Draw(rt, "steps") {
				for range rapid.IntRange(0, 5).Draw(rt, "arms") {
					m.arm(ctx, n)
					n++
				}
				require.NoError(rt, clk.Sleep(ctx, time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "pause"))*time.Millisecond))
			}
			// Three failures and two waits, each found by a pass within the interval, and the jobs of all.
			require.NoError(rt, clk.Sleep(ctx, 15*time.Minute))
			stop()
			for !over {
				require.NoError(rt, clk.Sleep(ctx, time.Second))
			}
			m.check()
			for _, x := range m.all {
				switch {
				case x.skip:
					require.Zero(rt, x.runs)
				case x.fails > 3:
					require.NotEmpty(rt, x.key)
					// 5, 10, … seconds of rest, doubling to five minutes.
					require.LessOrEqual(rt, x.runs, 8+int(clk.Now().Sub(x.armed)/backoffMost))
					require.Greater(rt, x.runs, 3)
				default:
					require.Empty(rt, x.key, "%s of %s was left: %+v", x.subject, x.queue, x)
				}
			}
		})
	})
}

package auditor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// What the harness asks of a duty, and all of it: it has no further method that only some have.
func TestADutyHasTwoMethods(t *testing.T) {
	d := reflect.TypeFor[Duty]()
	var methods []string
	for i := range d.NumMethod() {
		methods = append(methods, d.Method(i).Name)
	}
	require.Equal(t, []string{"Handle", "Judge"}, methods)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if text, err := os.ReadFile(name); !strings.HasSuffix(name, "_test.go") {
			require.NoError(t, err)
			require.NotContains(t, string(text), "Duty.(", name)
		}
	}
}

// The eight duties, in the order of their priority, and how each is scheduled. The one without a lease for each
// marker is the one that groups by chain; an order that is no time has no backlog age.
func TestTheEightDuties(t *testing.T) {
	type facts struct {
		queue                           catalog.Queue
		timeOrdered, allShards, grouped bool
		upTo, abreast                   int
	}
	a := newRig(t, true).auditor(nil)
	var got []facts
	for i := 0; i < len(a.sources); i += catalog.Shards {
		r := a.sources[i].reg
		for _, s := range a.sources[i : i+catalog.Shards] {
			require.Same(t, r, s.reg)
		}
		got = append(got, facts{r.Queue, r.TimeOrdered, r.AllShards, r.Grouped, r.GroupUpTo, r.GroupAbreast})
	}
	require.Equal(t, []facts{
		{queue: catalog.Teardown, timeOrdered: true, upTo: 16, abreast: 8},
		{queue: catalog.Settle, timeOrdered: true},
		{queue: catalog.Retention, timeOrdered: true},
		{queue: catalog.Reap, timeOrdered: true},
		{queue: catalog.TrimCheck, timeOrdered: true},
		{queue: catalog.Denorm, timeOrdered: true, allShards: true, grouped: true},
		{queue: catalog.Orphan},
		{queue: catalog.GC},
	}, got)
	require.Len(t, got, len(catalog.Queues()), "every queue has its duty")

	d := catalog.Due{Key: "the marker's key", Queue: catalog.Denorm, Subject: "the chain"}
	require.Equal(t, d.Key, (&Registration{}).leaseKey(d))
	require.NotEqual(t, d.Key, (&Registration{Grouped: true}).leaseKey(d))
}

// Judging costs no call of the store or the bucket, and no lease.
func TestJudgeAsksNobody(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 10})
		r.passes(ctx, a, 1, 0) // what it owns is in memory
		calls := 0
		r.w.OnStep(func(*sim.StepInfo) { calls++ })
		judged := map[catalog.Queue]bool{}
		for _, src := range a.sources {
			q := src.queue()
			if judged[q] {
				continue
			}
			judged[q] = true
			subject := map[catalog.Queue]string{
				catalog.Teardown: x.String(), catalog.Retention: x.String(), catalog.Settle: s.chain.String(), catalog.TrimCheck: s.chain.String(),
				catalog.Reap: "settled!X", catalog.GC: "settled!X", catalog.Orphan: "settled!X",
			}[q]
			key := catalog.DueKey(q, 1, subject)
			switch q {
			case catalog.Orphan:
				key = catalog.IntentKey("settled/X")
			case catalog.Denorm:
				key = catalog.ScheduleKey(s.chain, 0, 1)
			}
			due, err := catalog.ParseDue(key)
			require.NoError(t, err)
			for _, value := range [][]byte{nil, {1}, {1, 2, 3, 4}} {
				for _, now := range []time.Time{time.UnixMilli(0), r.inc.Clock().Now()} {
					src.reg.Duty.Judge(catalog.MarkerAt{Due: due, Value: value, Version: 1}, now)
				}
			}
		}
		require.Zero(t, calls)
	})
}

var errNever = errors.New("it never ends")

// A job gets its deadline from the harness: past it the lease is given back, and the failure is logged and tried
// again, whatever the job was at.
func TestAJobPastItsDeadlineIsCut(t *testing.T) {
	require.Equal(t, 10*time.Minute, catalog.DefaultTiming(true).JobDeadline)
	require.Equal(t, 10*time.Minute, catalog.DefaultTiming(false).JobDeadline)
	var log strings.Builder
	h := newHarnessRig(t, func(o *Options) { o.Logger = textLogger(&log) })
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		if len(h.d.ran) > 1 {
			return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
		}
		return Standing, errors.Join(errNever, h.inc.Clock().Sleep(ctx, 30*24*time.Hour))
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Second, object(0))
		start := h.inc.Clock().Now()
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, h.cat.Timing().JobDeadline, h.inc.Clock().Now().Sub(start))
		require.ErrorIs(t, h.did(JobDone)[0].Err, context.DeadlineExceeded)
		require.Contains(t, log.String(), "a job failed")
		require.Contains(t, log.String(), "again_in")
		h.passes(ctx, h.a, 1, backoffFirst)
		h.passes(ctx, h.a, 1, 0)
		require.Empty(t, h.markers(catalog.Reap), "the lease that it held keeps nobody out")
		require.Empty(t, leasesIn(h.rig))
	})
}

// The first unripe marker ends the walk of a queue that is ordered by time: those behind it are not judged.
func TestStopEndsTheWalk(t *testing.T) {
	h := newHarnessRig(t, nil)
	var judged []string
	h.d.judge = func(m catalog.MarkerAt, now time.Time) Verdict {
		judged = append(judged, m.Due.Subject)
		return ripe(m.Due, now)
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Second, object(0))
		for i := range 5 {
			h.arm(ctx, time.Hour+time.Duration(i)*time.Second, object(i+1))
		}
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.d.ran, 1)
		require.Contains(t, judged, object(1))
		require.NotContains(t, judged, object(2))
	})
}

// A marker that nobody could ever run is resolved without a lease, even where a peer holds one.
func TestADiscardTakesNoLease(t *testing.T) {
	var log strings.Builder
	h := newHarnessRig(t, func(o *Options) { o.Logger = textLogger(&log) })
	h.d.judge = func(catalog.MarkerAt, time.Time) Verdict { return Discard }
	h.do(func(ctx context.Context) {
		key := h.arm(ctx, -time.Second, object(0))
		s, err := h.cat.Store().OpenSession(ctx, time.Minute)
		require.NoError(t, err)
		_, err = h.cat.Claim(ctx, s.ID(), key, "other")
		require.NoError(t, err)
		h.passes(ctx, h.a, 1, 0)
		require.Empty(t, h.markers(catalog.Reap))
		require.Empty(t, h.did(LeaseSkipped))
		require.Contains(t, log.String(), key, "nothing else will remember it")
		require.Contains(t, log.String(), "level=WARN")
	})
}

// What every duty gets without asking: a lease while it runs, a deadline, its steps timed, its end accounted for.
func TestTheHarnessLeasesCutsAndTimes(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		require.Len(t, leasesIn(h.rig), 1)
		until, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, j.Started.Add(h.cat.Timing().JobDeadline), until)
		done := j.step("think")
		require.NoError(t, h.inc.Clock().Sleep(ctx, 3*time.Second))
		done()
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Second, object(0))
		h.passes(ctx, h.a, 1, 0)
	})
	require.Empty(t, leasesIn(h.rig))
	require.Len(t, h.did(StepDone), 1)
	step := h.did(StepDone)[0]
	require.Equal(t, "think", step.Step)
	require.Equal(t, string(catalog.Reap), step.Duty)
	require.Equal(t, 3*time.Second, step.Took)
	require.Len(t, h.did(JobDone), 1)
	require.GreaterOrEqual(t, h.did(JobDone)[0].Took, 3*time.Second)
}

// What the judges of the two queues without an order of their own by time say: of denorm's schedule an unripe entry ends the
// walk, an unripe intent is passed over, for the one behind it may be older.
func TestUnripeEntriesStopAndUnripeIntentsAreSkipped(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 8)
		require.NoError(t, a.ring.refresh(ctx))
		now := r.inc.Clock().Now()
		entry := func(ready time.Time) catalog.MarkerAt {
			due, err := catalog.ParseDue(catalog.ScheduleKey(s.chain, 0, ready.UnixMilli()))
			require.NoError(t, err)
			return catalog.MarkerAt{Due: due}
		}
		d := newDenorm(a)
		require.Equal(t, Run, d.Judge(entry(now), now))
		require.Equal(t, Stop, d.Judge(entry(now.Add(time.Millisecond)), now))

		object := catalog.SettledKey("x")
		_, err := r.cat.ArmIntent(ctx, object)
		require.NoError(t, err)
		recs, err := r.cat.Store().Get(ctx, catalog.IntentKey(object))
		require.NoError(t, err)
		due, err := catalog.ParseDue(recs[0].Key)
		require.NoError(t, err)
		intent := catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}
		o := &orphan{a}
		grace := r.cat.Timing().OrphanGrace
		require.Equal(t, Skip, o.Judge(intent, r.inc.Clock().Now().Add(grace/2)))
		require.Equal(t, Run, o.Judge(intent, r.inc.Clock().Now().Add(2*grace)))
	})
}

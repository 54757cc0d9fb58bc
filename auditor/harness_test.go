package auditor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

// fakeDuty works on reap markers.
type fakeDuty struct {
	judge  func(m catalog.MarkerAt, now time.Time) Verdict
	handle func(ctx context.Context, j *Job) (Outcome, error)
	ran    []string // subjects
}

func (d *fakeDuty) Judge(m catalog.MarkerAt, now time.Time) Verdict {
	if d.judge != nil {
		return d.judge(m, now)
	}
	return ripe(m.Due, now)
}

func (d *fakeDuty) Handle(ctx context.Context, j *Job) (Outcome, error) {
	d.ran = append(d.ran, j.Marker.Due.Subject)
	return d.handle(ctx, j)
}

// harness is an auditor with one fake duty on the reap queue, all of it in one shard.
type harness struct {
	*rig
	a      *Auditor
	d      *fakeDuty
	shard  int
	ranges []metastore.Range // that were peeked at or scanned in the shard
}

func newHarnessRig(t *testing.T, change func(*Options)) *harness {
	h := &harness{rig: newRig(t, true), d: &fakeDuty{}}
	o := h.options()
	if change != nil {
		change(&o)
	}
	o.setDefaults()
	h.a = newHarness(h.cat, h.inc.Bucket(), h.inc.Clock(), o)
	h.a.register(Registration{Queue: catalog.Reap, Duty: h.d, TimeOrdered: true, FrontEvery: frontEvery})
	h.shard = catalog.Shard(object(0))
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	whole := catalog.ShardRange(catalog.Reap, h.shard)
	h.w.OnStep(func(s *sim.StepInfo) {
		for _, r := range s.Ranges {
			if r.End == whole.End && r.Start >= whole.Start {
				h.ranges = append(h.ranges, r)
			}
		}
	})
	return h
}

// object returns the n-th folded object key of one shard.
func object(n int) string {
	want := -1
	for i := 0; ; i++ {
		s := fmt.Sprintf("settled!%06d", i)
		if want < 0 {
			want = catalog.Shard(s)
		}
		if catalog.Shard(s) == want {
			if n == 0 {
				return s
			}
			n--
		}
	}
}

// arm writes a marker ready d from now and returns its key.
func (h *harness) arm(ctx context.Context, d time.Duration, subject string) string {
	key := catalog.DueKey(catalog.Reap, uint64(h.inc.Clock().Now().Add(d).UnixMilli()), subject)
	_, err := h.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte{1})}})
	require.NoError(h.t, err)
	return key
}

// startsOf is where the walks of the shard started since the last call.
func (h *harness) startsOf() []string {
	var out []string
	for _, r := range h.ranges {
		out = append(out, r.Start)
	}
	h.ranges = nil
	return out
}

func TestVerdicts(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.judge = func(m catalog.MarkerAt, now time.Time) Verdict {
		switch m.Due.Subject {
		case object(1):
			return Skip
		case object(2):
			return Discard
		}
		return ripe(m.Due, now)
	}
	h.do(func(ctx context.Context) {
		skipped := h.arm(ctx, -5*time.Second, object(1))
		h.arm(ctx, -4*time.Second, object(2))
		h.arm(ctx, -3*time.Second, object(3))
		unripe := h.arm(ctx, time.Hour, object(4))
		// Keys that do not parse: no verdict is asked for.
		whole := catalog.ShardRange(catalog.Reap, h.shard)
		_, err := h.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(whole.Start+"0", nil)}})
		require.NoError(t, err)
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{skipped, unripe}, h.markers(catalog.Reap))
	})
	require.Equal(t, []string{object(3)}, h.d.ran)
	require.Len(t, h.did(Discarded), 2)
	require.Len(t, h.did(JobDone), 1)
	require.Empty(t, leasesIn(h.rig))
}

func TestPositionsSkipTheDeadPrefix(t *testing.T) {
	h := newHarnessRig(t, nil)
	skew := h.cat.Timing().MaxClockSkew
	whole := catalog.ShardRange(catalog.Reap, h.shard)
	h.do(func(ctx context.Context) {
		clk := h.inc.Clock()
		for i := range 5 {
			h.arm(ctx, time.Duration(i-20)*time.Second, object(i))
		}
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.d.ran, 5)
		require.Equal(t, whole.Start, h.startsOf()[0], "the first look is from the front")

		require.NoError(t, clk.Sleep(ctx, 5*time.Second))
		before := clk.Now()
		h.passes(ctx, h.a, 2, time.Second)
		starts := h.startsOf()
		require.Greater(t, starts[0], catalog.ShardFrom(catalog.Reap, h.shard, 0), "what is resolved is not waded through")
		require.LessOrEqual(t, starts[len(starts)-1], catalog.ShardFrom(catalog.Reap, h.shard, uint64(before.Add(-skew).UnixMilli())),
			"never past the pass's start less the clock skew")

		// Another node, whose clock is behind by the skew, arms for its now.
		h.arm(ctx, -skew, object(6))
		h.passes(ctx, h.a, 1, 0)
		require.Contains(t, h.d.ran, object(6))

		// Something lands far below: only a look from the front finds it, a minute after the last.
		h.arm(ctx, -time.Hour, object(7))
		h.passes(ctx, h.a, 3, 10*time.Second)
		require.NotContains(t, h.d.ran, object(7))
		h.passes(ctx, h.a, 4, 10*time.Second)
		require.Contains(t, h.d.ran, object(7))

		// Wake: at once.
		h.arm(ctx, -time.Hour, object(8))
		h.passes(ctx, h.a, 1, 0)
		require.NotContains(t, h.d.ran, object(8))
		h.a.Wake()
		h.passes(ctx, h.a, 1, 0)
		require.Contains(t, h.d.ran, object(8))
		require.Empty(t, h.markers(catalog.Reap))
	})
}

// A clock that is set back leaves positions and looks from the front in the future: what is
// armed since must be found all the same, and not when the old time has come again.
func TestAClockSetBackHidesNothing(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		h.w.Node("a").SetClock(6*time.Hour, 0)
		for i := range 3 {
			h.arm(ctx, time.Duration(i-20)*time.Second, object(i))
		}
		h.passes(ctx, h.a, 2, time.Second)
		require.Len(t, h.d.ran, 3)
		h.w.Node("a").SetClock(0, 0)
		h.arm(ctx, 0, object(4))
		h.passes(ctx, h.a, 1, time.Second)
		require.Contains(t, h.d.ran, object(4))
	})
}

// A look from the front that failed has seen nothing: the next pass takes it again.
func TestAFailedLookFromTheFrontIsTakenAgain(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		h.arm(ctx, -20*time.Second, object(0))
		h.passes(ctx, h.a, 2, time.Second)
		h.arm(ctx, -time.Hour, object(1))
		h.a.Wake()
		failing := true
		h.w.OnStep(func(s *sim.StepInfo) {
			// The ring's reads are over when the queues are looked at.
			if len(s.Ranges) == catalog.Shards && failing {
				failing = false
				h.w.Node("a").Partition(true, false, false)
			}
		})
		h.a.pass(ctx)
		require.False(t, failing)
		h.w.Node("a").Partition(false, false, false)
		require.NotContains(t, h.d.ran, object(1))
		h.passes(ctx, h.a, 1, 0)
		require.Contains(t, h.d.ran, object(1))
	})
}

func TestPositionStaysAtWhatStands(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.judge = func(m catalog.MarkerAt, now time.Time) Verdict {
		if m.Due.Subject == object(1) {
			return Skip
		}
		return ripe(m.Due, now)
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -30*time.Second, object(0))
		stands := h.arm(ctx, -20*time.Second, object(1))
		h.arm(ctx, -10*time.Second, object(2))
		h.passes(ctx, h.a, 1, time.Second)
		h.startsOf()
		h.passes(ctx, h.a, 1, time.Second)
		require.Equal(t, stands, h.startsOf()[0])
	})
}

func TestWalkIsBoundedAndGoesOn(t *testing.T) {
	h := newHarnessRig(t, func(o *Options) { o.PageSize = 2 })
	h.d.judge = func(m catalog.MarkerAt, now time.Time) Verdict {
		if m.Due.Subject == object(1) {
			return ripe(m.Due, now)
		}
		return Skip
	}
	const many = 2*walkPages + 10
	h.do(func(ctx context.Context) {
		for i := range many {
			h.arm(ctx, -time.Hour+time.Duration(i)*time.Second, object(0))
		}
		h.arm(ctx, -time.Minute, object(1))
		h.passes(ctx, h.a, 1, 0)
		require.Empty(t, h.d.ran, "one pass does not walk that far")
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{object(1)}, h.d.ran, "the next one goes on where it was cut")
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.markers(catalog.Reap), many)
	})
}

func TestAFailureCostsOneRunAndRests(t *testing.T) {
	h := newHarnessRig(t, nil)
	runs := map[string][]time.Time{}
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		s := j.Marker.Due.Subject
		runs[s] = append(runs[s], h.inc.Clock().Now())
		if s == object(0) {
			return Standing, errors.New("poisoned")
		}
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Minute, object(0))
		h.arm(ctx, -time.Second, object(1))
		h.passes(ctx, h.a, 600, time.Second)
	})
	require.Len(t, runs[object(1)], 1, "its sibling went on")
	at := runs[object(0)]
	waits := []time.Duration{5, 10, 20, 40, 80, 160}
	require.Greater(t, len(at), len(waits))
	for i, want := range waits {
		require.InDelta(t, (want * time.Second).Seconds(), at[i+1].Sub(at[i]).Seconds(), 1.01, "wait %d", i)
	}
	require.Len(t, h.markers(catalog.Reap), 1, "the marker stands")
	require.Empty(t, leasesIn(h.rig))
}

func TestBackoffIsCappedAndBounded(t *testing.T) {
	b, now := newBackoff(), time.Unix(1000, 0)
	for range 20 {
		b.failed("m", now)
	}
	require.Equal(t, backoffMost, b.failed("m", now))
	require.True(t, b.rests("m", now.Add(backoffMost-1)))
	require.False(t, b.rests("m", now.Add(backoffMost)))
	require.False(t, b.rests("m", now.Add(-time.Hour)), "a clock that went back does not lengthen the wait")
	for i := range 2 * backoffMarkers {
		b.failed(fmt.Sprint(i), now)
	}
	require.LessOrEqual(t, len(b.by), backoffMarkers)
	b.failed("late", now.Add(time.Hour))
	require.Len(t, b.by, 1, "what rests no more is forgotten when the room is needed")
	b.succeeded("late")
	require.Empty(t, b.by)
}

func leasesIn(r *rig) []string {
	var out []string
	r.w.StoreView().Scan(metastore.Prefix("auditor/lease/"), func(rec metastore.Record) bool {
		out = append(out, rec.Key)
		return true
	})
	return out
}

func TestLeases(t *testing.T) {
	for _, off := range []bool{false, true} {
		t.Run(fmt.Sprintf("off=%v", off), func(t *testing.T) {
			h := newHarnessRig(t, func(o *Options) { o.NoLeases = off })
			h.do(func(ctx context.Context) {
				key := h.arm(ctx, -10*time.Minute, object(0))
				s, err := h.cat.Store().OpenSession(ctx, time.Minute)
				require.NoError(t, err)
				_, err = h.cat.Claim(ctx, s.ID(), key, "other")
				require.NoError(t, err)
				h.passes(ctx, h.a, 1, 0)
				if off {
					require.Len(t, h.d.ran, 1, "every claim succeeds")
					return
				}
				require.Empty(t, h.d.ran, "a peer is on it: skip, never wait")
				require.Len(t, h.did(LeaseSkipped), 1)
				require.Equal(t, []string{key}, h.markers(catalog.Reap))

				// Past its deadline anyone takes it over.
				require.NoError(t, h.inc.Clock().Sleep(ctx, h.cat.Timing().JobDeadline))
				h.passes(ctx, h.a, 1, 0)
				require.Len(t, h.d.ran, 1)
				require.Empty(t, leasesIn(h.rig), "released at the version claimed")
			})
		})
	}
}

func TestALeakedLeaseIsReleasedAtTheBoundary(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		_ = h.inc.Clock().Sleep(ctx, 24*time.Hour)
		return Standing, ctx.Err()
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Second, object(0))
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, leasesIn(h.rig), 1, "the deadline left no time for the release")
		h.d.judge = func(catalog.MarkerAt, time.Time) Verdict { return Stop }
		h.a.pass(ctx)
		require.Empty(t, h.a.leases.leaked)
	})
}

// A job counts as running until it has returned, past deadline and lease: its bucket
// call may be in the air. No second one starts on its marker, also after a walk from the
// front, also without leases.
func TestNoSecondJobOnAMarker(t *testing.T) {
	h := newHarnessRig(t, func(o *Options) { o.NoLeases, o.Workers = true, 4 })
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		_ = h.inc.Clock().Sleep(context.WithoutCancel(ctx), 3*h.cat.Timing().JobDeadline)
		return Standing, ctx.Err()
	}
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Second, object(0))
		for range 5 {
			h.a.Wake()
			h.a.pass(ctx)
			require.NoError(t, h.inc.Clock().Sleep(ctx, 30*time.Second))
		}
		require.Len(t, h.d.ran, 1)
		require.NoError(t, h.a.pool.tasks.Wait(ctx))
		h.passes(ctx, h.a, 2, 6*time.Second)
		require.Len(t, h.d.ran, 2)
	})
}

func TestRunGoesOnAtOnceOnlyAfterACompletedJob(t *testing.T) {
	h := newHarnessRig(t, nil)
	outcome := Waiting
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		return outcome, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.inc.Go("run", func(ctx context.Context) { _ = h.a.Run(ctx) })
	peeks := func() int { return h.inc.Node().Ops(sim.OpPeek) }
	h.w.RunFor(time.Second)
	idle := peeks()
	arm := func() { h.do(func(ctx context.Context) { h.arm(ctx, -time.Second, object(0)) }) }

	arm()
	h.w.RunFor(30 * time.Second)
	one := peeks() - idle
	require.Positive(t, one)
	require.Len(t, h.d.ran, 1)
	require.Equal(t, idle, one, "re-armed only to wait: the next pass is as far off as ever")

	outcome = Resolved
	arm()
	h.w.RunFor(30 * time.Second)
	require.Len(t, h.d.ran, 2)
	require.Equal(t, 2*idle, peeks()-idle-one, "completed: once more at once")

	// A wake does not wait for the interval.
	arm()
	h.a.Wake()
	h.w.RunFor(time.Second)
	require.Len(t, h.d.ran, 3)
	h.inc.Interrupt()
	h.w.RunFor(time.Minute)
	require.Zero(t, h.a.Busy())
}

// What this process arms far below the position is found by the next walk, and it alone moves the
// start: there is no look from the front in between.
func TestALocalArmBelowThePositionIsFoundAtOnce(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		h.arm(ctx, -20*time.Second, object(0))
		h.passes(ctx, h.a, 2, time.Second)
		key := h.arm(ctx, -time.Hour, object(1))
		h.a.Armed(key)
		h.a.Armed(catalog.ScheduleKey(catalog.ChainID{Star: "a"}, 0, 1)) // no such duty here
		h.a.Armed("head/1")
		h.startsOf()
		h.passes(ctx, h.a, 1, 0)
		require.Contains(t, h.d.ran, object(1))
		require.Equal(t, key, h.startsOf()[0])
		h.passes(ctx, h.a, 1, 0)
		require.Greater(t, h.startsOf()[0], key, "the position is where it was")
	})
}

// A pass whose budget ends with ready work left is followed by the next at once, whatever the jobs that
// run at its end make of their markers.
func TestRunGoesOnAtOnceWhileReadyWorkRemains(t *testing.T) {
	h := newHarnessRig(t, func(o *Options) { o.PassBudget, o.IdleInterval = 10*time.Second, time.Hour })
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		_ = h.inc.Clock().Sleep(ctx, 15*time.Second)
		return Waiting, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.do(func(ctx context.Context) {
		for i := range 6 {
			h.arm(ctx, time.Duration(i-60)*time.Second, object(i))
		}
	})
	h.inc.Go("run", func(ctx context.Context) { _ = h.a.Run(ctx) })
	h.w.RunFor(6*15*time.Second + 2*time.Second)
	require.Len(t, h.d.ran, 6, "one after the other, without a pause")
	require.Empty(t, h.markers(catalog.Reap))
	h.inc.Interrupt()
	h.w.RunFor(time.Minute)
}

// A marker of this very moment was resolved; the position stays a clock skew behind it all the same, so that
// what a node with a slower clock arms for its now is found by the next pass.
func TestThePositionStaysAClockSkewBehind(t *testing.T) {
	h := newHarnessRig(t, nil)
	skew := h.cat.Timing().MaxClockSkew
	h.do(func(ctx context.Context) {
		h.arm(ctx, 0, object(0))
		h.passes(ctx, h.a, 1, 0)
		h.arm(ctx, 0, object(1))
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.d.ran, 2)
		h.arm(ctx, -skew, object(2))
		h.passes(ctx, h.a, 1, 0)
		require.Contains(t, h.d.ran, object(2))
	})
}

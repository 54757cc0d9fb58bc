package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

func TestAPageIsTheOnlyPrefetch(t *testing.T) {
	h := newHarnessRig(t, func(o *Options) { o.PageSize, o.Workers = 3, 1 })
	var pages, limits []int
	scans := 0
	h.w.OnStep(func(s *sim.StepInfo) {
		if s.Op == sim.OpScan && strings.HasPrefix(s.Ranges[0].Start, "due/reap/") {
			scans++
			limits = append(limits, s.Limit)
		}
	})
	resolve := h.d.handle
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		pages = append(pages, scans)
		return resolve(ctx, j)
	}
	h.do(func(ctx context.Context) {
		for i := range 8 {
			h.arm(ctx, time.Duration(i-20)*time.Second, object(i))
		}
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []int{1, 1, 1, 2, 2, 2, 3, 3}, pages)
		for _, n := range limits {
			require.Equal(t, 3, n)
		}
	})
}

func TestBudgetsArePaidFirst(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.RewriteRate = 1 << 20 })
	var puts []time.Time
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if strings.HasPrefix(e.Key, "settled/") && !e.Delete {
			puts = append(puts, r.w.Time())
		}
	})
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 5, size: 1 << 20})
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		start := r.w.Time()
		r.passes(ctx, a, 1, 0)
		require.NotEmpty(t, puts)
		require.Greater(t, puts[len(puts)-1].Sub(start), 3*time.Second, "5 MB at 1 MiB/s, less a burst of 1 MiB")
	})

	r = newRig(t, true)
	a = r.auditor(func(o *Options) { o.RequestRate, o.SettleObjectMin = 1, 100 })
	var requests []time.Time
	r.w.OnStep(func(s *sim.StepInfo) {
		if strings.HasPrefix(s.TaskName, "auditor/") && s.Op >= sim.OpBucketPut {
			requests = append(requests, r.w.Time())
		}
	})
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 8)
		for i := range 4 {
			s.flight(ctx, part{id: r.stream(ctx, fmt.Sprint(i)), n: 1, size: 1000})
		}
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		r.passes(ctx, a, 10, 5*time.Second)
		require.Empty(t, r.objects("slot/"))
		n := len(requests)
		require.Greater(t, n, 8, "four slots read, four objects written, the slots deleted")
		require.GreaterOrEqual(t, requests[n-1].Sub(requests[0]), time.Duration(n-2)*time.Second, "one a second, less a burst of one")
	})
}

func TestAPassEndsWithItsBudget(t *testing.T) {
	h := newHarnessRig(t, nil)
	resolve := h.d.handle
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		require.NoError(t, h.inc.Clock().Sleep(ctx, 7*time.Second))
		return resolve(ctx, j)
	}
	h.do(func(ctx context.Context) {
		for i := range 10 {
			h.arm(ctx, time.Duration(i-60)*time.Second, object(i))
		}
		start := h.inc.Clock().Now()
		h.a.pass(ctx)
		require.Equal(t, 30*time.Second, h.inc.Clock().Now().Sub(start))
		require.Equal(t, 1, h.a.Busy())
		require.NoError(t, h.a.pool.tasks.Wait(ctx))
		require.Len(t, h.d.ran, 5)
		require.Len(t, h.markers(catalog.Reap), 5)
	})
}

func TestTwoJobsRunAtOnce(t *testing.T) {
	h := newHarnessRig(t, nil)
	most := 0
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		most = max(most, h.a.Busy())
		require.NoError(t, h.inc.Clock().Sleep(ctx, time.Second))
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.do(func(ctx context.Context) {
		var ops []metastore.Op
		for _, q := range []catalog.Queue{catalog.Retention, catalog.Teardown} {
			h.a.register(Registration{Queue: q, Duty: h.d, TimeOrdered: true, FrontEvery: frontEvery})
		}
		for i := range 3 {
			id := catalog.StreamID(i + 1).String()
			ops = append(ops, metastore.Put(catalog.DueKey(catalog.Retention, 1, id), []byte{1}), metastore.Put(catalog.DueKey(catalog.Teardown, 1, id), []byte{1}))
			h.arm(ctx, -time.Second, object(i))
		}
		_, err := h.cat.Store().Commit(ctx, metastore.Batch{Ops: ops})
		require.NoError(t, err)
		h.passes(ctx, h.a, 1, 0)
	})
	require.Len(t, h.d.ran, 9)
	require.Equal(t, 2, most)
}

package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// However much there is to do, jobs, the jobs of one duty, the objects that an era writes abreast, the slots that it
// reads and the markers of a round stay within their limits; the rest waits, and is done in the end.
func TestPopulationsStayWithinTheirLimits(t *testing.T) {
	const workers, abreast, markers, cache = 3, 2, 4, 40 << 10
	r := newRig(t, true)
	a := r.auditor(func(o *Options) {
		o.Workers, o.MemberParallel, o.MarkersPerEra, o.FetchCacheBytes, o.SettleObjectMin = workers, abreast, markers, cache, 100
	})
	writing, most := 0, map[string]int{}
	note := func(what string, n int) { most[what] = max(most[what], n) }
	r.w.OnStep(func(s *sim.StepInfo) {
		note("jobs", a.Busy())
		for _, q := range catalog.Queues() {
			note("jobs of a duty", a.pool.running(q))
		}
		if s.Op == sim.OpBucketPut && strings.HasPrefix(s.Keys[0], "settled/") {
			writing++
			note("objects abreast", writing)
		}
	})
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if strings.HasPrefix(e.Key, "settled/") && !e.Delete {
			writing--
		}
	})
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 64)
		var parts []part
		for i := range 10 {
			parts = append(parts, part{id: r.stream(ctx, fmt.Sprint(i)), n: 2, size: 500})
		}
		for range 12 {
			s.flight(ctx, parts...)
		}
		r.w.SetFaults(sim.Faults{BucketLatency: sim.Latency{Base: 100 * time.Millisecond, Jitter: 50 * time.Millisecond}})
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		r.passes(ctx, a, 3, time.Second)
		for _, e := range r.did(BatchesDone) {
			note("markers of a round", e.Count)
		}
		require.Empty(t, r.markers(catalog.Denorm), "what had to wait was done")
	})
	require.LessOrEqual(t, most["jobs"], workers)
	require.Equal(t, 1, most["jobs of a duty"])
	require.Equal(t, abreast, most["objects abreast"])
	require.LessOrEqual(t, most["markers of a round"], markers)
}

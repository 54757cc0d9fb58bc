package auditor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// An era takes what ripens while it runs, until half of the job's deadline is over; then another job has a turn.
func TestAnEraTakesWhatRipensMeanwhile(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		clk := r.inc.Clock()
		s, x := r.mint(ctx, "a", 64), r.stream(ctx, "x")
		r.inc.Go("appends", func(ctx context.Context) {
			for range 60 {
				s.flight(ctx, part{id: x, n: 1, size: 10})
				require.NoError(t, clk.Sleep(ctx, 2*time.Second))
			}
		})
		require.NoError(t, clk.Sleep(ctx, 3*time.Second))
		r.w.SetFaults(sim.Faults{BucketLatency: sim.Latency{Base: time.Second}})
		r.passes(ctx, a, 1, 0)
		rounds, job := 0, Event{}
		for _, e := range r.events {
			switch {
			case e.Action == BatchesDone:
				rounds++
			case e.Action == JobDone && e.Duty == string(catalog.Denorm):
				job = e
			}
			if job.Action != "" {
				break
			}
		}
		require.Greater(t, rounds, 5, "in one job")
		half := r.cat.Timing().JobDeadline / 2
		require.GreaterOrEqual(t, job.Took, half)
		require.Less(t, job.Took, half+10*time.Second)
		require.NotEmpty(t, r.markers(catalog.Denorm), "there was more to do")
	})
}

// A round takes 64 MiB of markers' values at most, and its first marker however large that is.
func TestARoundIsBoundedByTheBytesOfItsMarkers(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 4 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		first := r.markerAt(ctx, r.markers(catalog.Denorm)[0])
		value := len(r.w.StoreView().Get(first.Due.PrimaryKey()).Value)
		e := newDenorm(a).era(&Job{a: a, reg: registration(a, catalog.Denorm), Marker: first})
		require.Equal(t, 64<<20, e.payload)
		for room, want := range map[int]int{0: 1, 2*value - 1: 1, 2 * value: 2, 3*value + 1: 3, 1 << 20: 4} {
			e.payload = room
			ms, _, err := e.gather(ctx)
			require.NoError(t, err)
			require.Len(t, ms, want, "room for %d bytes, and a marker has %d", room, value)
		}
	})
}

// Batch markers have no lease: while an era runs there is one, on its chain, however many markers it works on.
func TestAnEraHoldsOneLeaseForItsChain(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	held := map[string]bool{}
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if strings.HasPrefix(e.Key, "settled/") && !e.Delete {
			held[strings.Join(leasesIn(r), " ")] = true
		}
	})
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 5 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 5, countOf(r.did(BatchesDone)))
		require.Equal(t, map[string]bool{catalog.LeaseKey("denorm/" + s.chain.String()): true}, held)
	})
}

// Whatever the auditor publishes, out of slots, out of small ranges beside them, out of a revised object, has its
// intent before its bytes.
func TestEveryPublishIsAnnounced(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { small(o); o.SettleObjectMin = 64 << 10 })
	puts := 0
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if strings.HasPrefix(e.Key, "settled/") && !e.Delete {
			puts++
			require.True(t, r.w.StoreView().Get(catalog.IntentKey(e.Key)).Exists(), "%s was not announced", e.Key)
		}
	})
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 4), r.stream(ctx, "x"), r.stream(ctx, "y")
		for era := range 8 {
			s.flight(ctx, part{id: x, n: 10, size: 500}, part{id: y, n: 1, size: 10})
			r.passes(ctx, a, 2, time.Second)
			require.Equal(t, era+1, puts)
		}
		require.Len(t, r.spans(ctx, x), 1, "the eighth took the others along")
		r.kill(ctx, x)
		r.passes(ctx, a, 6, 2*time.Second)
		require.Len(t, r.did(ObjectRevised), 1)
		require.Equal(t, 9, puts)
		require.Empty(t, r.markers(catalog.Orphan), "and none is left once a ref names it")
	})
}

// A publish none of whose ranges is to be had any more leaves its intent to the orphan duty, which deletes the object.
func TestAPublishThatPlacesNothingLeavesItsIntent(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	var x catalog.StreamID
	object := ""
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if strings.HasPrefix(e.Key, "settled/") && object == "" {
			object = e.Key
			r.inc.Go("kill", func(ctx context.Context) { r.kill(ctx, x) })
		}
	})
	r.w.SetFaults(sim.Faults{BucketLatency: sim.Latency{Base: 100 * time.Millisecond}})
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		x = r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		r.passes(ctx, a, 3, time.Second)
		require.NotEmpty(t, object)
		refs, _, err := r.cat.Refs(ctx, object, 1)
		require.NoError(t, err)
		require.Empty(t, refs)
		require.True(t, r.w.BucketView().Has(object))
		require.Equal(t, []string{catalog.IntentKey(object)}, r.markers(catalog.Orphan))
		r.passes(ctx, a, 5, r.cat.Timing().OrphanGrace/4+time.Second)
		require.False(t, r.w.BucketView().Has(object))
		require.Empty(t, r.markers(catalog.Orphan))
	})
}

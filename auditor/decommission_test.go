package auditor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

// retire decommissions star "a", whose chain has records in slots and in a bundle, and the star "b" lives.
func retire(ctx context.Context, r *rig) (x catalog.StreamID, chain catalog.ChainID) {
	s, b := r.mint(ctx, "a", 4), r.mint(ctx, "b", 4)
	x = r.stream(ctx, "x")
	s.flight(ctx, part{id: x, n: 2, size: 10})
	s.slot(ctx, 1, part{id: x, n: 2, size: 10})
	s.bundle(ctx, 2, true, part{id: x, n: 2, size: 10})
	b.slot(ctx, 0, part{id: x, n: 2, size: 10})
	_, err := r.cat.Decommission(ctx, "a")
	require.ErrorIs(r.t, err, catalog.ErrStarLive)
	require.NoError(r.t, r.cat.DropRoute(ctx, s.chain))
	already, err := r.cat.Decommission(ctx, "a")
	require.NoError(r.t, err)
	require.False(r.t, already)
	return x, s.chain
}

// late puts what a delayed write may have left of a star: a slot of its chain, one of an older chain,
// and a bundle.
func late(ctx context.Context, r *rig, n int) {
	put := func(key string) {
		opt := objstore.PutOptions{IfAbsent: true}
		if !r.w.Embedded() {
			opt.NotAfter = r.inc.Clock().Now().Add(time.Minute)
		}
		require.NoError(r.t, r.inc.Bucket().Put(ctx, key, []byte("late"), opt))
	}
	for i := range n {
		c := catalog.ChainID{Star: "a", Epoch: uint64(i%2 + 7)}
		put(catalog.SlotKey(c, uint64(i)))
		put(catalog.BundleKey(c, uint64(i), [16]byte{byte(i)}))
	}
}

// The whole way: the chain ends as that of any dead star does, the listing waits for that and the grace
// beyond it, what delayed writes left goes, and what is watched or another's stays.
func TestDecommission(t *testing.T) {
	for _, embedded := range []bool{true, false} {
		r := newRig(t, embedded)
		a := r.auditor(nil)
		var gone time.Time
		lists := 0
		r.w.OnStep(func(s *sim.StepInfo) {
			if s.Op == sim.OpBucketList {
				lists++
			}
		})
		r.do(func(ctx context.Context) {
			x, chain := retire(ctx, r)
			for gone.IsZero() {
				require.Zero(t, lists)
				r.passes(ctx, a, 1, time.Second)
				if !r.w.StoreView().Get(catalog.ChainKey(chain)).Exists() {
					gone = r.inc.Clock().Now()
				}
			}
			data, objects := r.read(ctx, x, 0)
			if embedded { // else b's session has ended, and its slot was absorbed
				require.Len(t, data, 6)
			}
			settledOnly(t, objects)
			late(ctx, r, 2)
			announced := catalog.BundleKey(chain, 99, [16]byte{99}) // by a process that slept
			_, err := r.cat.ArmIntent(ctx, announced)
			require.NoError(t, err)
			opt := objstore.PutOptions{IfAbsent: true}
			if !embedded {
				opt.NotAfter = r.inc.Clock().Now().Add(time.Minute)
			}
			require.NoError(t, r.inc.Bucket().Put(ctx, announced, []byte("late"), opt))
			stars, err := r.cat.Stars(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b"}, stars)
			for len(r.did(StarSwept)) == 0 {
				r.passes(ctx, a, 1, time.Second)
			}
			swept := r.did(StarSwept)[0]
			require.Equal(t, "a", swept.Subject)
			require.Equal(t, 4, swept.Count)
			require.Equal(t, int64(16), swept.Bytes)
			require.True(t, swept.At.After(gone.Add(r.cat.Timing().RetireGrace)), "not before what may land has landed")
			require.Equal(t, []string{announced}, r.objects("bundle/"), "its intent watches it")
			require.Empty(t, r.objects("slot/a/"))
			if embedded {
				require.Len(t, r.objects("slot/"), 1, "the slot of b, which lives")
			}
			stars, err = r.cat.Stars(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"b"}, stars)
			require.Empty(t, r.markersOf("a"))

			n := lists
			r.passes(ctx, a, 40, 10*time.Second)
			require.Equal(t, n, lists, "once")
			require.Empty(t, r.objects("bundle/"), "the orphan duty's")
			_, err = r.cat.Mint(ctx, catalog.MintRequest{Star: "a", Window: 4})
			require.ErrorIs(t, err, catalog.ErrRetired)
		})
	}
}

// A sweep that is cut anywhere is begun again by the marker alone, and a page is no bound.
func TestSweepIsResumed(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		_, chain := retire(ctx, r)
		for r.w.StoreView().Get(catalog.ChainKey(chain)).Exists() {
			r.passes(ctx, a, 1, time.Second)
		}
		late(ctx, r, sweepPage+3)
		r.w.SetFaults(sim.Faults{DeletePartial: 0.5, StoreUnavailable: 0.2, ScanShort: 0.3, ListLag: 5 * time.Second})
		for range 40 {
			before := len(r.objects("slot/a/")) + len(r.objects("bundle/a/"))
			r.passes(ctx, a, 1, 10*time.Second)
			if len(r.did(StarSwept)) == 0 && before > 0 {
				require.Len(t, r.markersOf("a"), 1)
			}
		}
		r.w.StopFaults()
		r.passes(ctx, a, 40, 10*time.Second)
		require.Len(t, r.did(StarSwept), 1)
		require.Zero(t, len(r.objects("slot/a/"))+len(r.objects("bundle/a/")))
		require.Empty(t, r.markersOf("a"))
	})
}

// markersOf returns the settle markers of a star as a whole.
func (r *rig) markersOf(star string) (keys []string) {
	for _, key := range r.markers(catalog.Settle) {
		if due, err := catalog.ParseDue(key); err == nil && due.Subject == star {
			keys = append(keys, key)
		}
	}
	return keys
}

// While a chain of the star stands its marker waits, longer each time up to the recheck.
func TestSweepWaitsForTheChains(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		retire(ctx, r)
		var waits []time.Duration
		for range 60 {
			key := r.markersOf("a")
			require.Len(t, key, 1)
			due, err := catalog.ParseDue(key[0])
			require.NoError(t, err)
			if due.PastDue(r.inc.Clock().Now()) < 0 {
				r.passes(ctx, a, 0, 0)
				require.NoError(t, r.inc.Clock().Sleep(ctx, time.Second))
				continue
			}
			j := &Job{a: a, reg: &Registration{}, Marker: r.marker(ctx, key[0])}
			before := r.inc.Clock().Now()
			out, err := (&settle{a}).Handle(ctx, j)
			require.NoError(t, err)
			require.Equal(t, Waiting, out)
			due, err = catalog.ParseDue(r.markersOf("a")[0])
			require.NoError(t, err)
			waits = append(waits, time.UnixMilli(int64(due.Order)).Sub(before.Truncate(time.Millisecond)).Round(time.Second))
		}
		require.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 20 * time.Second}, waits[:4], "up to the recheck")
	})
}

func (r *rig) marker(ctx context.Context, key string) catalog.MarkerAt {
	recs, err := r.cat.Store().Get(ctx, key)
	require.NoError(r.t, err)
	due, err := catalog.ParseDue(key)
	require.NoError(r.t, err)
	return catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}
}

// A marker whose subject is a star that nobody retired is nobody's: it goes, and nothing is listed.
func TestSweepOfAStarThatIsNotRetired(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		r.mint(ctx, "a", 4)
		for i, name := range []string{"a", "nobody"} {
			r.armSettle(ctx, name)
			r.passes(ctx, a, 1, time.Second)
			require.Empty(t, r.markersOf(name), fmt.Sprint(i))
		}
		require.Empty(t, r.did(StarSwept))
		star, err := r.cat.ReadStar(ctx, "a")
		require.NoError(t, err)
		require.False(t, star.Star.Retired || star.Star.Swept)
	})
}

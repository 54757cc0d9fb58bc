package auditor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
)

func TestSettleOfALiveChainBacksOff(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		clk := r.inc.Clock()
		s := r.mint(ctx, "a", 4)
		recheck := r.cat.Timing().SettleRecheck
		for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
			due, err := catalog.ParseDue(r.cursors(ctx, s.chain).SettleKey)
			require.NoError(t, err)
			require.NoError(t, clk.Sleep(ctx, time.UnixMilli(int64(due.Order)).Sub(clk.Now())))
			before := clk.Now()
			r.passes(ctx, a, 1, 0)
			due, err = catalog.ParseDue(r.cursors(ctx, s.chain).SettleKey)
			require.NoError(t, err)
			require.Equal(t, want*recheck, time.UnixMilli(int64(due.Order)).Sub(before))
			require.Len(t, r.markers(catalog.Settle), 1, "one marker a chain")
		}
		at, err := r.cat.ReadChain(ctx, s.chain)
		require.NoError(t, err)
		require.Equal(t, catalog.ChainOpen, at.Chain.State)
	})
}

// dead is a chain of window 4 with three absorbed slots, two that wait for absorb, a
// gap, and a flight beyond it that was never acknowledged.
func dead(ctx context.Context, r *rig) (s *chainStar, x catalog.StreamID) {
	s, x = r.mint(ctx, "a", 4), r.stream(ctx, "x")
	for range 3 {
		s.flight(ctx, part{id: x, n: 2, size: 10})
	}
	s.slot(ctx, 3, part{id: x, n: 2, size: 10})
	s.slot(ctx, 4, part{id: x, n: 2, size: 10})
	s.slot(ctx, 6, part{id: x, n: 2, size: 10})
	require.NoError(r.t, r.cat.DropRoute(ctx, s.chain))
	return s, x
}

func TestSettleAbsorbsSealsAndRetires(t *testing.T) {
	for _, embedded := range []bool{true, false} {
		r := newRig(t, embedded)
		a := r.auditor(nil)
		r.do(func(ctx context.Context) {
			s, x := dead(ctx, r)
			r.passes(ctx, a, 1, 0)
			require.Len(t, r.did(Fenced), 1)
			require.Equal(t, 2, countOf(r.did(SlotsAbsorbed)))
			at, err := r.cat.ReadChain(ctx, s.chain)
			require.NoError(t, err)
			require.Equal(t, catalog.ChainSealed, at.Chain.State)
			require.Equal(t, uint64(5), at.Chain.Checkpoint)
			require.Equal(t, uint64(5), at.Chain.Seal)
			require.Equal(t, uint64(9), at.Chain.WindowEnd)
			for _, slot := range []uint64{5, 7, 8} {
				body, ok := r.w.BucketView().Get(catalog.SlotKey(s.chain, slot))
				require.True(t, ok, "slot %d", slot)
				require.Equal(t, format.Seal(s.chain.Star, s.chain.Epoch, slot), body)
			}
			require.False(t, r.w.BucketView().Has(catalog.SlotKey(s.chain, 9)))
			data, _ := r.read(ctx, x, 0)
			require.Len(t, data, 10, "what lies beyond the gap stays invisible")

			r.passes(ctx, a, 30, 5*time.Second)
			require.Len(t, r.did(ChainRetired), 1)
			require.Empty(t, r.objects("slot/"))
			require.Empty(t, r.markers(catalog.Settle))
			require.Empty(t, r.markers(catalog.TrimCheck))
			require.False(t, r.w.StoreView().Get(catalog.ChainKey(s.chain)).Exists())
			require.False(t, r.w.StoreView().Get(catalog.TrimKey(s.chain)).Exists())
			after, objects := r.read(ctx, x, 0)
			require.Equal(t, data, after)
			settledOnly(t, objects)
		})
	}
}

func TestSettleWaitsForTheRetireGrace(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 2) // empty: nothing to trim
		require.NoError(t, r.cat.DropRoute(ctx, s.chain))
		r.passes(ctx, a, 1, 0)
		at, err := r.cat.ReadChain(ctx, s.chain)
		require.NoError(t, err)
		sealed := time.UnixMilli(at.Chain.SealedAt)
		for len(r.did(ChainRetired)) == 0 {
			require.Len(t, r.objects("slot/"), 2, "the seals stand until then")
			r.passes(ctx, a, 1, time.Second)
		}
		require.True(t, r.did(ChainRetired)[0].At.After(sealed.Add(r.cat.Timing().RetireGrace)))
		require.Empty(t, r.objects("slot/"))
	})
}

func TestSettleOfADamagedSlotEndsTheAbsorbAndNotTheWalk(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 3), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		s.slot(ctx, 1, part{id: x, n: 2, size: 10})
		body, _ := s.slot(ctx, 77, part{id: x, n: 2, size: 10}) // the bytes of another slot
		s.put(ctx, 2, body)
		s.slot(ctx, 3, part{id: x, n: 2, size: 10})
		require.NoError(t, r.cat.DropRoute(ctx, s.chain))
		require.NoError(t, r.inc.Bucket().Delete(ctx, []string{catalog.SlotKey(s.chain, 77)})[0])
		r.passes(ctx, a, 1, 2*time.Second)
		require.Len(t, r.did(SlotDamaged), 1)
		at, err := r.cat.ReadChain(ctx, s.chain)
		require.NoError(t, err)
		require.Equal(t, uint64(2), at.Chain.Checkpoint)
		require.Equal(t, uint64(4), at.Chain.Seal)
		require.Equal(t, uint64(7), at.Chain.WindowEnd)
		data, _ := r.read(ctx, x, 0)
		require.Len(t, data, 4)
		r.passes(ctx, a, 20, 5*time.Second)
		require.Empty(t, r.objects("slot/"), "the chain retires all the same")
		require.Empty(t, r.markers(catalog.Settle))
	})
}

// A run that was overtaken can neither absorb nor seal.
func TestSettleOvertaken(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, _ := dead(ctx, r)
		at, err := r.cat.ReadChain(ctx, s.chain)
		require.NoError(t, err)
		gone, err := r.cat.ReadDead(ctx, s.chain)
		require.NoError(t, err)
		fence, err := r.cat.TakeFence(ctx, at, gone)
		require.NoError(t, err)
		_, err = r.cat.TakeFence(ctx, fence.Chain, gone)
		require.NoError(t, err)
		j := &Job{a: a, reg: &Registration{}}
		_, err = (&sealing{a: a, j: j, fence: fence}).run(ctx)
		require.ErrorIs(t, err, catalog.ErrMoved)

		// And past its time it puts no seal.
		require.NoError(t, r.inc.Clock().Sleep(ctx, r.cat.Timing().PutHorizon))
		require.ErrorIs(t, (&sealing{a: a, j: j, fence: fence}).put(ctx, 8), errLate)
		require.False(t, r.w.BucketView().Has(catalog.SlotKey(s.chain, 8)))
	})
}

func TestSealFindsOutWhatBecameOfIt(t *testing.T) {
	for name, f := range map[string]sim.Faults{
		"landed":       {PutUnknownEffect: 1},
		"lands late":   {PutUnknownLate: 1, PutLateMax: 2 * time.Second},
		"never landed": {PutUnknownNoEffect: 0.6},
		"throttled":    {BucketThrottle: 0.5},
		"misread":      {CorruptRead: 0.3, TruncateRead: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false)
			a := r.auditor(nil)
			r.do(func(ctx context.Context) {
				s, x := dead(ctx, r)
				r.w.SetFaults(f)
				r.passes(ctx, a, 30, 10*time.Second)
				r.w.StopFaults()
				r.passes(ctx, a, 60, 20*time.Second)
				require.Empty(t, r.objects("slot/"))
				require.Len(t, r.did(ChainRetired), 1)
				data, _ := r.read(ctx, x, 0)
				require.GreaterOrEqual(t, len(data), 6, "what was acknowledged")
				require.LessOrEqual(t, len(data), 10, "and nothing beyond the gap")
				_ = s
			})
		})
	}
}

func TestSettleResolvesAStrayMarker(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		r.armSettle(ctx, s.chain.String())
		r.armSettle(ctx, catalog.ChainID{Star: "gone", Epoch: 3}.String())
		r.passes(ctx, a, 2, time.Second)
		require.Equal(t, []string{r.cursors(ctx, s.chain).SettleKey}, r.markers(catalog.Settle))
		require.Empty(t, r.did(Fenced))
	})
}

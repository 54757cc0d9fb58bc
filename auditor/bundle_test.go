package auditor

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// bundle announces and puts the bundle of a slot, and, if whole, the slot too. It returns the
// bundle's key and the slot as absorb takes it.
func (s *chainStar) bundle(ctx context.Context, slot uint64, whole bool, parts ...part) (string, catalog.SlotIn) {
	r := s.r
	w := format.NewWriter(format.KindBundle, format.Stored())
	flight := [16]byte{byte(slot) + 1}
	w.SetSlot(s.chain.Star, s.chain.Epoch, slot, flight)
	s.fill(w, slot, parts...)
	body, f, err := w.Finish()
	require.NoError(r.t, err)
	key := catalog.BundleKey(s.chain, slot, flight)
	armed, err := r.cat.ArmIntent(ctx, key)
	require.NoError(r.t, err)
	require.NoError(r.t, r.inc.Bucket().Put(ctx, key, body, objstore.PutOptions{IfAbsent: true, NotAfter: armed.NotAfter}))
	index, indexed, err := format.BundleIndex(f)
	require.NoError(r.t, err)
	if whole {
		s.put(ctx, slot, index)
	}
	return key, catalog.SlotIn{Slot: slot, Size: int64(len(index)), Footer: &indexed, Intent: armed.Version}
}

// A bundled flight's whole life: absorbed by its star, settled from its bundle, which is then
// reaped, while its slot is trimmed.
func TestABundleIsSettledAndReaped(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 4), r.stream(ctx, "x"), r.stream(ctx, "y")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		wrong := uint64(99)
		key, in := s.bundle(ctx, 1, true, part{id: x, n: 300, size: 1000}, part{id: y, n: 2, size: 10, expected: &wrong})
		_, err := r.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: s.chain, Slots: []catalog.SlotIn{in}})
		require.NoError(t, err)
		require.Empty(t, r.markers(catalog.Orphan))
		require.Len(t, r.markers(catalog.Reap), 1, "a part was turned down")
		before, objects := r.read(ctx, x, 0)
		require.Contains(t, objects, key)
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.markers(catalog.GC), "bundles are not rewritten by gc")
		r.passes(ctx, a, 10, 3*time.Second)
		after, objects := r.read(ctx, x, 0)
		require.Equal(t, before, after)
		settledOnly(t, objects)
		require.Empty(t, r.objects("bundle/"))
		require.Empty(t, r.objects("slot/"))
		require.Empty(t, r.markers(catalog.Reap))
	})
}

// The settle duty absorbs bundled slots as their star would have; bundles of slots that are never
// absorbed, or that have no slot at all, are the orphan duty's, and not before the chain is sealed.
func TestSettleAbsorbsBundledSlots(t *testing.T) {
	for _, embedded := range []bool{true, false} {
		r := newRig(t, embedded)
		a := r.auditor(nil)
		r.do(func(ctx context.Context) {
			s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
			wrong := uint64(99)
			named, _ := s.bundle(ctx, 0, true, part{id: x, n: 2, size: 10})
			s.slot(ctx, 1, part{id: x, n: 2, size: 10})
			turned, _ := s.bundle(ctx, 2, true, part{id: x, n: 2, size: 10, expected: &wrong})
			without, _ := s.bundle(ctx, 3, false, part{id: x, n: 2, size: 10})
			beyond, _ := s.bundle(ctx, 4, true, part{id: x, n: 2, size: 10})
			// Older than the orphan grace, and its chain is as good as alive.
			if embedded {
				r.passes(ctx, a, 1, r.cat.Timing().OrphanGrace+time.Second)
				r.passes(ctx, a, 2, 6*time.Second)
				require.Len(t, r.objects("bundle/"), 4)
			}
			require.NoError(t, r.cat.DropRoute(ctx, s.chain))
			r.passes(ctx, a, 1, 0)
			require.Equal(t, 3, countOf(r.did(SlotsAbsorbed)))
			require.Empty(t, r.did(SlotDamaged))
			at, err := r.cat.ReadChain(ctx, s.chain)
			require.NoError(t, err)
			require.Equal(t, uint64(3), at.Chain.Seal)
			data, objects := r.read(ctx, x, 0)
			require.Len(t, data, 4)
			require.Contains(t, objects, named)
			for _, key := range []string{named, turned, without, beyond} {
				_, stands, err := r.cat.ReadIntent(ctx, key)
				require.NoError(t, err)
				require.Equal(t, key != named, stands, key)
			}
			r.passes(ctx, a, 60, 5*time.Second)
			require.Empty(t, r.objects("slot/"))
			require.Empty(t, r.objects("bundle/"))
			require.Empty(t, r.markers(catalog.Orphan))
			require.Len(t, r.did(OrphanDeleted), 3)
			require.Len(t, r.did(ChainRetired), 1)
			after, objects := r.read(ctx, x, 0)
			require.Equal(t, data, after)
			settledOnly(t, objects)
		})
	}
}

// A bundle that is damaged, missing, another's, or not announced any more is its slot's damage.
func TestSettleOfADamagedBundleEndsTheAbsorb(t *testing.T) {
	spoil := map[string]func(ctx context.Context, r *rig, s *chainStar, key string){
		"missing": func(ctx context.Context, r *rig, s *chainStar, key string) {
			require.NoError(r.t, r.inc.Bucket().Delete(ctx, []string{key})[0])
		},
		"corrupt": func(ctx context.Context, r *rig, s *chainStar, key string) {
			body, _ := r.w.BucketView().Get(key)
			bad := slices.Clone(body)
			bad[format.HeaderLength+format.BlockHeaderLength] ^= 1
			r.replace(ctx, key, bad)
		},
		"another's": func(ctx context.Context, r *rig, s *chainStar, key string) {
			other, _ := s.bundle(ctx, 9, false, part{id: 1, n: 1, size: 10})
			body, _ := r.w.BucketView().Get(other)
			r.replace(ctx, key, body)
		},
		"not announced": func(ctx context.Context, r *rig, s *chainStar, key string) {
			in, _, err := r.cat.ReadIntent(ctx, key)
			require.NoError(r.t, err)
			require.NoError(r.t, r.cat.ResolveCondemned(ctx, key, in.Version))
		},
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, true)
			a := r.auditor(nil)
			r.do(func(ctx context.Context) {
				s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
				s.slot(ctx, 0, part{id: x, n: 2, size: 10})
				key, _ := s.bundle(ctx, 1, true, part{id: x, n: 2, size: 10})
				s.bundle(ctx, 2, true, part{id: x, n: 2, size: 10})
				spoil(ctx, r, s, key)
				require.NoError(t, r.cat.DropRoute(ctx, s.chain))
				r.passes(ctx, a, 1, 0)
				require.Len(t, r.did(SlotDamaged), 1)
				at, err := r.cat.ReadChain(ctx, s.chain)
				require.NoError(t, err)
				require.Equal(t, uint64(1), at.Chain.Checkpoint)
				require.Equal(t, uint64(3), at.Chain.Seal)
				data, _ := r.read(ctx, x, 0)
				require.Len(t, data, 2)
				r.passes(ctx, a, 60, 5*time.Second)
				require.Empty(t, r.objects("slot/"))
				require.Empty(t, r.markers(catalog.Orphan))
				require.Empty(t, r.markers(catalog.Settle))
			})
		})
	}
}

// replace puts other bytes under a key.
func (r *rig) replace(ctx context.Context, key string, body []byte) {
	require.NoError(r.t, r.inc.Bucket().Delete(ctx, []string{key})[0])
	require.NoError(r.t, r.inc.Bucket().Put(ctx, key, body, objstore.PutOptions{IfAbsent: true}))
}

// A slot that was durable and got lost ends the absorb and not the walk: what its star put behind it, however
// far, is sealed and deleted with the chain.
func TestSettleOfALostSlotEndsTheAbsorbAndNotTheWalk(t *testing.T) {
	for _, last := range []uint64{3, 4, 5, 12} {
		r := newRig(t, true)
		a := r.auditor(nil)
		r.do(func(ctx context.Context) {
			s, x := r.mint(ctx, "a", 3), r.stream(ctx, "x")
			for slot := range last + 1 {
				s.slot(ctx, slot, part{id: x, n: 2, size: 10})
			}
			require.NoError(t, r.inc.Bucket().Delete(ctx, []string{catalog.SlotKey(s.chain, 2)})[0])
			require.NoError(t, r.cat.DropRoute(ctx, s.chain))
			r.passes(ctx, a, 1, 0)
			at, err := r.cat.ReadChain(ctx, s.chain)
			require.NoError(t, err)
			require.Equal(t, uint64(2), at.Chain.Checkpoint)
			if last < 2+3 { // within the window of a seal at 2 it looks like a gap, and does no harm
				require.Empty(t, r.did(SlotDamaged))
				require.Equal(t, uint64(2), at.Chain.Seal)
			} else {
				require.Len(t, r.did(SlotDamaged), 1)
				require.Equal(t, last+1, at.Chain.Seal)
			}
			data, _ := r.read(ctx, x, 0)
			require.Len(t, data, 4)
			r.passes(ctx, a, 20, 5*time.Second)
			require.Empty(t, r.objects("slot/"), "the chain retires, and nothing of it is left")
			require.Empty(t, r.markers(catalog.Settle))
		})
	}
}

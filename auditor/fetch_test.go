package auditor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

func at(object string, off, length int64) *portion {
	return &portion{SpanAt: catalog.SpanAt{Span: catalog.Span{Object: object, Offset: off, Length: length, Count: 1}}}
}

func TestAssignJoinsRangesThatLieClose(t *testing.T) {
	near := []*portion{at("settled/a", 5000, 100), at("settled/a", 12, 1000), at("settled/a", 1012, 500)}
	got := assign(near)
	require.Equal(t, []extent{{"settled/a", 12, 5088}}, got)
	for _, p := range near {
		require.Equal(t, got[0], p.from)
	}
	far := []*portion{at("settled/a", 12, 1000), at("settled/a", 1012+extentGap+1, 10), at("settled/b", 12, 1000)}
	require.Equal(t, []extent{{"settled/a", 12, 1000}, {"settled/a", 1012 + extentGap + 1, 10}, {"settled/b", 12, 1000}}, assign(far))
	large := []*portion{at("settled/a", 12, extentMost), at("settled/a", 12+extentMost, 1), at("settled/a", 13, 1)}
	require.Equal(t, []extent{{"settled/a", 12, extentMost}, {"settled/a", 12 + extentMost, 1}}, assign(large), "what lies inside makes it no longer")

	own, other := at("slot/a/0/1", 50, 10), at("slot/a/0/1", 12, 10)
	own.own = true
	require.Equal(t, []extent{whole("slot/a/0/1")}, assign([]*portion{other, own}), "a slot of the chain is read whole")
}

func TestFetchCacheForgetsWhatWasUsedLongestAgo(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		for _, key := range []string{"settled/a", "settled/b", "settled/c"} {
			require.NoError(t, r.inc.Bucket().Put(ctx, key, make([]byte, 100), objstore.PutOptions{IfAbsent: true}))
		}
		f := newFetcher(a, 200)
		read := func(key string) int {
			before := r.inc.Node().Ops(opGet)
			body, err := f.get(ctx, extent{key, 0, 100})
			require.NoError(t, err)
			require.Len(t, body, 100)
			return r.inc.Node().Ops(opGet) - before
		}
		require.Equal(t, []int{1, 1, 0, 1, 0, 1}, []int{read("settled/a"), read("settled/b"), read("settled/a"), read("settled/c"), read("settled/a"), read("settled/b")})
		require.Equal(t, int64(200), f.bytes)
		f.drop()
		require.Zero(t, f.bytes)
		require.Empty(t, f.by)
		_, err := f.get(ctx, extent{"settled/none", 0, 1})
		require.ErrorIs(t, err, objstore.ErrNotFound)
		require.Empty(t, f.by, "an error is not remembered")
	})
}

// bundled puts the records of a slot as a bundle and makes the catalog name that, as the absorb
// of a bundled flight does.
func (s *chainStar) bundled(ctx context.Context, bundle string, parts ...part) {
	slot := s.next
	body, f := s.slot(ctx, slot, parts...)
	s.absorb(ctx, body, f)
	require.NoError(s.r.t, s.r.inc.Bucket().Put(ctx, bundle, body, objstore.PutOptions{IfAbsent: true}))
	require.NoError(s.r.t, s.r.inc.Bucket().Delete(ctx, []string{catalog.SlotKey(s.chain, slot)})[0])
	armed, err := s.r.cat.ArmIntent(ctx, bundle)
	require.NoError(s.r.t, err)
	var runs []catalog.Run
	for i := range f.Sections {
		sec := f.Sections[i]
		spans, _, err := s.r.cat.Spans(ctx, catalog.StreamID(sec.Stream), 0, 100)
		require.NoError(s.r.t, err)
		last := spans[len(spans)-1]
		require.Equal(s.r.t, catalog.SlotKey(s.chain, slot), last.Span.Object)
		sec.FirstOffset = last.Span.First
		runs = append(runs, catalog.Run{Stream: last.Stream, Old: []catalog.SpanAt{last}, Section: &sec})
	}
	_, err = s.r.cat.Swap(ctx, catalog.Publish{Object: bundle, Size: int64(len(body)), Intent: armed.Version}, runs)
	require.NoError(s.r.t, err)
	require.NoError(s.r.t, s.r.cat.ResolveIntent(ctx, bundle, armed.Version, true))
}

func TestDenormSettlesBundledFlights(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 8), r.stream(ctx, "x"), r.stream(ctx, "y")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		bundle := catalog.BundleKey(s.chain, 1, [16]byte{0xf})
		s.bundled(ctx, bundle, part{id: x, n: 300, size: 1000}, part{id: y, n: 2, size: 10})
		s.flight(ctx, part{id: x, n: 2, size: 10})
		want, _ := r.read(ctx, x, 0)
		require.Len(t, want, 304)
		reads := r.inc.Node().Ops(opGet)
		r.passes(ctx, a, 2, time.Second)
		require.Equal(t, 3, r.inc.Node().Ops(opGet)-reads, "two slots, and the bundle's range")
		got, objects := r.read(ctx, x, 0)
		require.Equal(t, want, got)
		require.Len(t, settledOnly(t, objects), 1)
		require.Empty(t, r.markers(catalog.Denorm))
		require.Len(t, r.markers(catalog.Reap), 1, "the bundle lost its refs")
		r.passes(ctx, a, 4, 2*time.Second)
		require.Empty(t, r.objects("bundle/"))
	})
}

// A bundle that is damaged holds its slot's marker back, as a damaged slot does.
func TestDenormHoldsBackADamagedBundle(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		bundle := catalog.BundleKey(s.chain, 0, [16]byte{0xf})
		s.bundled(ctx, bundle, part{id: x, n: 2, size: 10})
		body, _ := r.w.BucketView().Get(bundle)
		bad := append([]byte(nil), body...)
		bad[format.HeaderLength+format.BlockHeaderLength] ^= 1
		require.NoError(t, r.inc.Bucket().Delete(ctx, []string{bundle})[0])
		require.NoError(t, r.inc.Bucket().Put(ctx, bundle, bad, objstore.PutOptions{IfAbsent: true}))
		r.passes(ctx, a, 2, time.Second)
		require.Len(t, r.did(SlotDamaged), 1)
		owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
		require.NoError(t, err)
		require.Len(t, owed, 1)
		require.True(t, owed[0].Batch.Damaged)
	})
}

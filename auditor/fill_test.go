package auditor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

func (r *rig) spans(ctx context.Context, id catalog.StreamID) []catalog.SpanAt {
	spans, more, err := r.cat.Spans(ctx, id, 0, 200)
	require.NoError(r.t, err)
	require.False(r.t, more)
	return spans
}

// Seven small ranges are left apart, the eighth takes them along; the objects that lost them go.
func TestTailFillFiresAtTheEighth(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.SettleObjectMin = 64 << 10 })
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 4), r.stream(ctx, "x"), r.stream(ctx, "y")
		for era := range 8 {
			s.flight(ctx, part{id: x, n: 10, size: 500}, part{id: y, n: 1, size: 10})
			want, _ := r.read(ctx, x, 0)
			r.passes(ctx, a, 2, time.Second)
			require.Empty(t, r.markers(catalog.Denorm))
			got, objects := r.read(ctx, x, 0)
			require.Equal(t, want, got)
			if era < 7 {
				require.Len(t, settledOnly(t, objects), era+1, "packed alone")
			} else {
				require.Len(t, settledOnly(t, objects), 1, "eight of like size are one")
				require.Len(t, r.spans(ctx, x), 1)
			}
		}
		require.Len(t, r.spans(ctx, y), 1)
		require.Len(t, r.markers(catalog.Reap), 7, "each swap armed the reap-check of what lost a ref")
		r.passes(ctx, a, 4, 2*time.Second)
		require.Len(t, r.objects("settled/"), 1)
		require.Empty(t, r.markers(catalog.Reap))
		require.Empty(t, r.markers(catalog.Orphan))
		got, _ := r.read(ctx, y, 0)
		require.Len(t, got, 8)
	})
}

// Two stars that take turns on a stream leave no span an absorb: whose era comes takes what lies
// between, and the other's finds nothing held.
func TestTailFillTakesWhatLiesBetween(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.SettleObjectMin = 64 << 10 })
	r.do(func(ctx context.Context) {
		one, two, x := r.mint(ctx, "a", 4), r.mint(ctx, "b", 4), r.stream(ctx, "x")
		for range 20 {
			for range 5 {
				one.flight(ctx, part{id: x, n: 2, size: 300})
				two.flight(ctx, part{id: x, n: 2, size: 300})
			}
			want, _ := r.read(ctx, x, 0)
			r.passes(ctx, a, 2, time.Second)
			got, objects := r.read(ctx, x, 0)
			require.Equal(t, want, got)
			settledOnly(t, objects)
			require.Empty(t, r.markers(catalog.Denorm))
			require.LessOrEqual(t, len(r.spans(ctx, x)), 3*tierWidth)
		}
		require.Less(t, len(r.spans(ctx, x)), 12, "of two hundred")
		r.passes(ctx, a, 5, 3*time.Second)
		require.Empty(t, r.objects("slot/"))
		require.Empty(t, r.markers(catalog.TrimCheck))
	})
}

// What is trimmed is a wall: it is killed, not moved. A stream that is tearing moves nothing.
func TestTailFillLeavesWhatIsTrimmed(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.SettleObjectMin = 64 << 10 })
	r.do(func(ctx context.Context) {
		s, x, torn := r.mint(ctx, "a", 4), r.stream(ctx, "x"), r.stream(ctx, "torn")
		for range 7 {
			s.flight(ctx, part{id: x, n: 10, size: 500}, part{id: torn, n: 10, size: 500})
			r.passes(ctx, a, 2, time.Second)
		}
		r.setWatermark(ctx, x, 20)
		r.setTearing(ctx, torn)
		s.flight(ctx, part{id: x, n: 10, size: 500}, part{id: torn, n: 10, size: 500})
		r.passes(ctx, a, 2, time.Second)
		require.Len(t, r.spans(ctx, x), 8, "six that are left, and the new one: one too few")
		require.Len(t, r.spans(ctx, torn), 7, "of the new slot, all are killed")
		for range 2 {
			s.flight(ctx, part{id: x, n: 10, size: 500})
			r.passes(ctx, a, 2, time.Second)
		}
		spans := r.spans(ctx, x)
		require.Equal(t, uint64(20), spans[2].Span.First)
		require.Equal(t, uint64(80), spans[2].Span.Count, "from the watermark on")
	})
}

// What the chain's other markers hold is theirs: not ripe yet, or damaged.
func TestTailFillLeavesTheChainsOtherSlots(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 3 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
		require.NoError(t, err)
		require.NoError(t, r.cat.DelayBatch(ctx, owed[1], owed[1].Batch, time.Minute))
		r.passes(ctx, a, 3, time.Second)
		spans := r.spans(ctx, x)
		require.Len(t, spans, 3)
		for i, sp := range spans {
			require.Equal(t, i == 1, catalog.IsSlot(sp.Span.Object))
		}
	})
}

// A neighbour whose bytes can't be had costs nothing but its place in the tier.
func TestTailFillLeavesADamagedNeighbour(t *testing.T) {
	for _, what := range []string{"damaged", "cut", "gone"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, true)
			a := r.auditor(func(o *Options) { o.SettleObjectMin = 64 << 10 })
			r.do(func(ctx context.Context) {
				s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
				for range 7 {
					s.flight(ctx, part{id: x, n: 10, size: 500})
					r.passes(ctx, a, 2, time.Second)
				}
				victim := r.spans(ctx, x)[3].Span.Object
				body, _ := r.w.BucketView().Get(victim)
				bad := append([]byte(nil), body...)
				bad[format.HeaderLength+format.BlockHeaderLength+7] ^= 1
				require.NoError(t, r.inc.Bucket().Delete(ctx, []string{victim})[0])
				switch what {
				case "cut":
					bad = bad[:100]
					fallthrough
				case "damaged":
					require.NoError(t, r.inc.Bucket().Put(ctx, victim, bad, objstore.PutOptions{IfAbsent: true}))
				}
				s.flight(ctx, part{id: x, n: 10, size: 500})
				r.passes(ctx, a, 2, time.Second)
				require.Empty(t, r.markers(catalog.Denorm), "it holds nothing of the era back")
				require.Len(t, r.did(NeighbourLeft), 1)
				require.Empty(t, r.did(SlotDamaged))
				spans := r.spans(ctx, x)
				require.Len(t, spans, 8)
				require.Equal(t, victim, spans[3].Span.Object)
				// With enough on this side of it the tier fires again.
				for range 4 {
					s.flight(ctx, part{id: x, n: 10, size: 500})
					r.passes(ctx, a, 3, time.Second)
				}
				spans = r.spans(ctx, x)
				require.Len(t, spans, 5)
				require.Equal(t, uint64(80), spans[4].Span.Count)
			})
		})
	}
}

// A run of more spans than a commit takes becomes one span all the same.
func TestDenormJoinsWhatACommitParted(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
		for range 100 {
			s.flight(ctx, part{id: x, n: 2, size: 20})
		}
		want, _ := r.read(ctx, x, 0)
		r.passes(ctx, a, 3, time.Second)
		got, objects := r.read(ctx, x, 0)
		require.Equal(t, want, got)
		require.Len(t, settledOnly(t, objects), 1)
		require.Len(t, r.spans(ctx, x), 1)
		refs, _, err := r.cat.Refs(ctx, objects[0], 10)
		require.NoError(t, err)
		require.Len(t, refs, 1)
	})
}

func TestApartBoundsWhatLiesBeside(t *testing.T) {
	var pieces []piece
	for i := range 5 {
		p := piece{stream: catalog.StreamID(i)}
		p.add(portion{SpanAt: catalog.SpanAt{Span: catalog.Span{Length: 1000}}, own: true})
		p.add(portion{SpanAt: catalog.SpanAt{Span: catalog.Span{Length: 40}}})
		pieces = append(pieces, p)
	}
	sizes := func(parts [][]piece) (out string) {
		for _, p := range parts {
			out += fmt.Sprint(len(p))
		}
		return out
	}
	require.Equal(t, "5", sizes(apart(pieces, 200)))
	require.Equal(t, "221", sizes(apart(pieces, 100)))
	require.Equal(t, "11111", sizes(apart(pieces, 10)))
}

func TestBoundOfWhatIsBeside(t *testing.T) {
	var near []portion
	add := func(n int, object string, first uint64) {
		for i := range n {
			near = append(near, portion{SpanAt: catalog.SpanAt{Span: catalog.Span{First: first + uint64(i), Count: 1, Object: object, Length: 10}}})
		}
	}
	add(100, "settled/a", 0)
	add(2, "slot/b/0000000000000001/0000000000000001", 1000)
	require.Len(t, bound(slices.Clone(near), 1000, 3, 1<<20), nearMost+2, "the nearest ahead, and what lies between")
	got := bound(slices.Clone(near), 1000, 3, 10*nearMost)
	require.Len(t, got, nearMost, "too much: the other chain's goes first")
	require.Equal(t, uint64(99), got[nearMost-1].Span.First)
	got = bound(slices.Clone(near), 1000, 3, 55)
	require.Len(t, got, 5)
	require.Equal(t, uint64(95), got[0].Span.First, "then what is furthest ahead")
	add(500, "slot/b/0000000000000001/0000000000000002", 1002)
	require.Len(t, bound(slices.Clone(near), 1000, 3, 1<<20), nearMost)
}

// However many spans lie ahead, the look comes to the era's own.
func TestTailFillAmongVeryManySmallSpans(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
		// Spans as an auditor without tail-fill left them: one each of very many eras.
		a.opts.SettleObjectMin = 1
		for range 1200 {
			s.flight(ctx, part{id: x, n: 1, size: 1})
		}
		object, spans := catalog.SettledKey("0OLD"), []catalog.SpanAt{}
		for from, more := uint64(0), true; more; from = spans[len(spans)-1].Span.Last() + 1 {
			var page []catalog.SpanAt
			var err error
			page, more, err = r.cat.Spans(ctx, x, from, 200)
			require.NoError(t, err)
			spans = append(spans, page...)
		}
		w := format.NewWriter(format.KindSettled, format.Stored())
		w.Begin(uint64(x), 0)
		data, _ := r.read(ctx, x, 0)
		for i, d := range data {
			w.Add(int64(i), d)
		}
		body, f, err := w.Finish()
		require.NoError(t, err)
		armed, err := r.cat.ArmIntent(ctx, object)
		require.NoError(t, err)
		require.NoError(t, r.inc.Bucket().Put(ctx, object, body, objstore.PutOptions{IfAbsent: true}))
		var runs []catalog.Run
		for i := range spans {
			runs = append(runs, catalog.Run{Stream: x, Old: spans[i : i+1], Section: &f.Sections[0]})
		}
		_, err = r.cat.Swap(ctx, catalog.Publish{Object: object, Size: int64(len(body)), Intent: armed.Version}, runs)
		require.NoError(t, err)
		require.NoError(t, r.cat.ResolveIntent(ctx, object, armed.Version, true))

		a.opts.SettleObjectMin = 64 << 10
		s.flight(ctx, part{id: x, n: 1, size: 1})
		r.passes(ctx, a, 3, time.Second)
		require.Empty(t, r.markers(catalog.Denorm))
		got, _ := r.read(ctx, x, 0)
		require.Equal(t, data, got[:1200])
		more := 0
		for from := uint64(0); ; more++ {
			page, _, err := r.cat.Spans(ctx, x, from, 1)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			from = page[0].Span.Last() + 1
		}
		require.Equal(t, 1201-nearMost, more, "as many as are looked at became one with the new")
	})
}

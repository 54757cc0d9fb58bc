package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim/check"
)

// planted is one violation: what is done to a world in which all is well, and exactly
// what must be found.
type planted struct {
	name      string
	do        func(x *fixture)
	invariant string
	text      string
}

func expect(t *testing.T, cases []planted) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f := plant(t, tc.do)
			require.NotNil(t, f, "nothing was found")
			require.Equal(t, tc.invariant, f.Invariant, f.Report())
			require.Contains(t, f.Text, tc.text)
			require.NotEmpty(t, f.Touched, "the report must say what touched %s", f.Object)
		})
	}
}

// What production code does is no finding.
func TestNothingIsFoundWhereAllIsWell(t *testing.T) {
	f := plant(t, func(x *fixture) {
		x.c.Acknowledged(1, x.id, 0, 1, true)
		x.c.Acknowledged(3, x.id, 3, 4, true)
		x.c.Acknowledged(3, x.id, 0, 0, false) // an old duplicate
		x.c.Read(x.c.Reading("s"), x.id, 1, [][]byte{data(1, 1, 2), data(2, 0, 1), data(3, 0, 2)})
		require.Equal(t, uint64(5), x.c.Next("s"))
		require.Zero(t, x.c.Next("other"))
		require.Equal(t, 3, x.c.Slots())
		require.Equal(t, 1, x.c.Chains())
		require.Equal(t, map[string]check.Logical{"s": {Appends: []uint64{1, 2, 3}}, "other": {}}, x.c.State())
	})
	require.Nil(t, f)
}

func TestWatched(t *testing.T) {
	unwatched := "slot 0 is unwatched"
	expect(t, []planted{
		{"an object without an intent", func(x *fixture) {
			b, _ := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 1, 2})
			x.put("settled/1", b)
		}, check.Watched, "the object has no ref, no intent"},
		{"an intent that goes before a ref comes", func(x *fixture) {
			armed, err := x.cat.ArmIntent(x.ctx, "settled/1")
			require.NoError(t, err)
			b, _ := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 1, 2})
			x.put("settled/1", b)
			require.NoError(t, x.cat.ResolveCondemned(x.ctx, "settled/1", armed.Version))
		}, check.Watched, "the object has no ref, no intent"},
		{"bytes that nothing names, unannounced", func(x *fixture) {
			object := "settled/1"
			armed, err := x.cat.ArmIntent(x.ctx, object)
			require.NoError(t, err)
			b, f := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 1, 2}, part{x.id, 2, 1}, part{x.id, 9, 1})
			x.put(object, b)
			old, _, err := x.cat.Spans(x.ctx, x.id, 0, 1)
			require.NoError(t, err)
			_, err = x.cat.Swap(x.ctx, catalog.Publish{Object: object, Size: int64(len(b)), Intent: armed.Version},
				[]catalog.Run{{Stream: x.id, Old: old, Section: &f.Sections[0]}})
			require.NoError(t, err)
			require.NoError(t, x.cat.ResolveIntent(x.ctx, object, armed.Version, true))
		}, check.Watched, "1 of its 4 records were never named"},
		{"a chain without its settle marker", func(x *fixture) {
			x.delete(x.standing("due/settle/"))
		}, check.Watched, "the chain has no settle marker"},
		{"a batch marker that goes early", func(x *fixture) {
			x.delete(catalog.BatchKey(x.chain, 1))
		}, check.Watched, "slot 1 is unwatched"},
		{"a trimcheck that goes early", func(x *fixture) {
			x.delete(x.standing("due/trimcheck/"))
		}, check.Watched, unwatched},
		{"a trimcheck that ends earlier", func(x *fixture) {
			x.commit(metastore.Put(x.standing("due/trimcheck/"), *newValue().uint(0)))
		}, check.Watched, unwatched},
		{"a trimmed cursor that passes a slot that is there", func(x *fixture) {
			x.retrim(func(c *catalog.Trim) { c.Trimmed = 1 })
		}, check.Watched, unwatched},
		{"a slot of no chain", func(x *fixture) {
			c := catalog.ChainID{Star: "n", Epoch: x.chain.Epoch + 7}
			b, _ := x.body(format.KindSlot, c, 0, part{x.id, 1, 2})
			x.put(catalog.SlotKey(c, 0), b)
		}, check.Watched, unwatched},
		{"a batch marker that covers other slots than before", func(x *fixture) {
			at, _, err := x.cat.ReadBatch(x.ctx, x.chain, 1)
			require.NoError(t, err)
			at.Batch.End++
			x.commit(metastore.Put(at.Key(), at.Batch.Encode()))
		}, check.Watched, "changed from end 2 to 3"},
		{"half of a chain's records", func(x *fixture) {
			x.delete(catalog.ChainKey(x.chain))
		}, check.Watched, "without the other"},
	})
}

func TestDangling(t *testing.T) {
	expect(t, []planted{
		{"an object that does not parse", func(x *fixture) {
			_, err := x.cat.ArmIntent(x.ctx, "settled/1")
			require.NoError(t, err)
			x.put("settled/1", []byte("nonsense"))
		}, check.Dangling, "does not parse"},
		{"a slot that says it is another", func(x *fixture) {
			b, _ := x.body(format.KindSlot, x.chain, 4, part{x.id, 9, 1})
			x.put(catalog.SlotKey(x.chain, 3), b)
		}, check.Dangling, "the object says it is slot 4"},
		{"an object deleted under a span", func(x *fixture) {
			x.remove(settled)
		}, check.Dangling, "deleted while 1 spans name it"},
		{"a span that names no object", func(x *fixture) {
			_, err := x.cat.ArmIntent(x.ctx, "settled/1")
			require.NoError(t, err)
			x.respan(4, func(s *catalog.Span) { s.Object = "settled/1" })
		}, check.Dangling, "an object that does not exist"},
		{"a span of other bytes", func(x *fixture) {
			x.respan(4, func(s *catalog.Span) { s.Offset++; s.Length-- })
		}, check.Dangling, "which are not its records"},
		{"a span of more records than there are", func(x *fixture) {
			x.respan(4, func(s *catalog.Span) { s.Ordinal = 1 })
		}, check.Dangling, "which are not its records"},
		{"a span that is wrong about its bytes", func(x *fixture) {
			x.respan(4, func(s *catalog.Span) { s.Bytes++ })
		}, check.Dangling, "the span says"},
		{"a span that is wrong about its times", func(x *fixture) {
			x.respan(2, func(s *catalog.Span) { s.MaxTimestamp++ })
		}, check.Dangling, "the span says"},
		{"a ref without a span", func(x *fixture) {
			x.commit(metastore.Put(catalog.RefKey(settled, x.id, 4), *newValue().uint(1, 1)))
		}, check.Dangling, "2 refs, but 1 spans"},
		{"a span without a ref", func(x *fixture) {
			x.delete(catalog.RefKey(settled, x.id, 2))
		}, check.Dangling, "0 refs, but 1 spans"},
	})
}

func TestLost(t *testing.T) {
	// absorbing puts slot 3 after slot 2 and absorbs it, with whatever it holds.
	absorbing := func(parts func(x *fixture) []part) func(x *fixture) {
		return func(x *fixture) {
			b, f := x.body(format.KindSlot, x.chain, 2, part{x.id, 4, 1})
			x.absorb(2, catalog.SlotIn{Slot: 2, Size: int64(len(b)), Footer: f})
			x.absorb(3, x.slot(3, parts(x)...))
		}
	}
	expect(t, []planted{
		{"an object overwritten", func(x *fixture) {
			b, _ := x.body(format.KindSlot, x.chain, 1, part{x.id, 9, 2})
			x.put(catalog.SlotKey(x.chain, 1), b)
		}, check.Lost, "an object was overwritten"},
		{"a slot deleted above the checkpoint", func(x *fixture) {
			x.remove(catalog.SlotKey(x.chain, 2))
		}, check.Lost, "slot deleted at or above the checkpoint 2"},
		{"offsets that change what they hold", func(x *fixture) {
			object := "settled/1"
			_, err := x.cat.ArmIntent(x.ctx, object)
			require.NoError(t, err)
			b, f := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 2, 1}, part{x.id, 1, 2})
			x.put(object, b)
			s := x.span(2)
			s.Object, s.Offset, s.Length = object, f.Sections[0].Offset, f.Sections[0].Length
			x.commit(metastore.Put(catalog.SpanKey(x.id, 2), s.Encode()), metastore.Delete(catalog.RefKey(settled, x.id, 2)),
				metastore.Put(catalog.RefKey(object, x.id, 2), *newValue().uint(1, 1)))
		}, check.Lost, "offset 0 held record 0 of append 1 and now holds record 0 of append 2"},
		{"a record that nobody sent", absorbing(func(x *fixture) []part { return []part{{x.id, 9, 1}} }), check.Lost, "which nobody sent"},
		{"an append that is there twice", absorbing(func(x *fixture) []part { return []part{{x.id, 1, 2}} }), check.Lost, "append 1 appears at offset 0 and again at 6"},
		{"an append in another stream", absorbing(func(x *fixture) []part {
			x.c.Sending(5, "s", 1, false)
			return []part{{x.other, 5, 1}}
		}), check.Lost, "which was sent to \"s\""},
		{"a gap", func(x *fixture) {
			x.delete(catalog.SpanKey(x.id, 4))
		}, check.Lost, "a gap in the catalog"},
		{"a head that runs ahead", func(x *fixture) {
			x.commit(x.rehead(func(h *catalog.Head) { h.Next++ }))
		}, check.Lost, "the next offset is 6, the catalog holds 5"},
		{"a watermark that nobody moved there", func(x *fixture) {
			x.c.Trimming(x.id, 2)
			x.remark(3)
		}, check.Lost, "the watermark moved from 0 to 3; clients trimmed up to 2"},
		{"a watermark beyond the end", func(x *fixture) {
			x.remark(6)
		}, check.Lost, "the watermark 6 is beyond the next offset 5"},
		{"an acknowledgement before the absorb", func(x *fixture) {
			x.c.Acknowledged(4, x.id, 5, 5, true)
		}, check.Lost, "acknowledged before it was absorbed"},
		{"an acknowledgement at other offsets", func(x *fixture) {
			x.c.Acknowledged(3, x.id, 2, 3, true)
		}, check.Lost, "append 3 was acknowledged at 2 to 3 and is at 3"},
		{"an acknowledgement by another stream", func(x *fixture) {
			x.c.Acknowledged(3, x.other, 3, 4, true)
		}, check.Lost, "acknowledged by another stream"},
		{"a refusal of what is there", func(x *fixture) {
			x.c.Refused(3, catalog.HeadKey(x.id))
		}, check.Lost, "append 3 was refused and is at offset 3"},
		{"an append that was refused and comes after all", absorbing(func(x *fixture) []part {
			x.c.Sending(5, "s", 1, false)
			x.c.Refused(5, "s")
			return []part{{x.id, 5, 1}}
		}), check.Lost, "which nobody sent"},
		{"a read of other records", func(x *fixture) {
			x.c.Read(x.c.Reading("s"), x.id, 1, [][]byte{data(1, 1, 2), data(3, 0, 2)})
		}, check.Lost, "a reader was given record 0 of append 3 at offset 2"},
		{"a read beyond the end", func(x *fixture) {
			x.c.Read(x.c.Reading("s"), x.id, 5, [][]byte{data(4, 0, 1)})
		}, check.Lost, "a reader was given offset 5 before it was absorbed"},
		{"a read of wrong bytes", func(x *fixture) {
			b := data(1, 0, 2)
			b[size/2] ^= 1
			x.c.Read(x.c.Reading("s"), x.id, 0, [][]byte{b})
		}, check.Lost, "wrong bytes at offset 0"},
	})
}

// An append is there as a whole or not at all, and its records in their order.
func TestLostInPart(t *testing.T) {
	torn := func(records ...[]byte) func(x *fixture) {
		return func(x *fixture) {
			x.c.Sending(5, "s", 3, false)
			b, f := x.body(format.KindSlot, x.chain, 2, part{x.id, 4, 1})
			x.absorb(2, catalog.SlotIn{Slot: 2, Size: int64(len(b)), Footer: f})
			w := format.NewWriter(format.KindSlot, format.Stored())
			w.SetSlot(x.chain.Star, x.chain.Epoch, 3, [16]byte{1})
			w.Begin(uint64(x.id), 0)
			for _, r := range records {
				w.Add(9000, r)
			}
			w.EndAppend(format.Append{})
			b, footer, err := w.Finish()
			require.NoError(t, err)
			x.put(catalog.SlotKey(x.chain, 3), b)
			x.absorb(3, catalog.SlotIn{Slot: 3, Size: int64(len(b)), Footer: &footer})
		}
	}
	expect(t, []planted{
		{"its last record is missing", torn(data(5, 0, 3), data(5, 1, 3)), check.Lost, "append 5 is there in part"},
		{"one between is missing", torn(data(5, 0, 3), data(5, 2, 3)), check.Lost, "record 2 of append 5 appears at offset 7, its first at 6"},
		{"its first record is missing", torn(data(5, 1, 3), data(5, 2, 3)), check.Lost, "record 1 of append 5 appears at offset 6"},
	})
}

func TestMonotonic(t *testing.T) {
	sealed := func(c *catalog.Chain) { c.State, c.Seal, c.WindowEnd = catalog.ChainSealed, 2, 5 }
	expect(t, []planted{
		{"a checkpoint", func(x *fixture) {
			x.rechain(func(c *catalog.Chain) { c.Checkpoint-- })
		}, check.Monotonic, "the checkpoint went back from 2 to 1"},
		{"a state", func(x *fixture) {
			x.rechain(func(c *catalog.Chain) { c.State = catalog.ChainFencing })
			x.rechain(func(c *catalog.Chain) { c.State = catalog.ChainOpen })
		}, check.Monotonic, "the state went back from fencing to open"},
		{"a seal", func(x *fixture) {
			x.rechain(sealed)
			x.rechain(func(c *catalog.Chain) { c.Seal++ })
		}, check.Monotonic, "the seal moved from 2 to 3"},
		{"an absorb of a sealed chain", func(x *fixture) {
			x.rechain(sealed)
			x.rechain(func(c *catalog.Chain) { c.Checkpoint++ })
		}, check.Monotonic, "a sealed chain absorbed slot 2"},
		{"a rewritten cursor", func(x *fixture) {
			x.retrim(func(c *catalog.Trim) { c.Rewritten = 1 })
			x.retrim(func(c *catalog.Trim) { c.Rewritten = 0 })
		}, check.Monotonic, "a cursor went back: rewritten 1 to 0"},
		{"a trimmed cursor", func(x *fixture) {
			x.remove(catalog.SlotKey(x.chain, 0))
			x.retrim(func(c *catalog.Trim) { c.Trimmed = 1 })
			x.retrim(func(c *catalog.Trim) { c.Trimmed = 0 })
		}, check.Monotonic, "trimmed 1 to 0"},
		{"a rewritten cursor past a standing marker", func(x *fixture) {
			x.retrim(func(c *catalog.Trim) { c.Rewritten = 2 })
		}, check.Monotonic, "rewritten is 2, beyond the settle frontier 1"},
		{"a frontier", func(x *fixture) {
			b := catalog.Batch{End: 1, Ready: 1}
			x.commit(metastore.Put(catalog.BatchKey(x.chain, 0), b.Encode()))
		}, check.Monotonic, "the settle frontier went back from 1 to 0"},
		{"a next offset", func(x *fixture) {
			x.commit(x.rehead(func(h *catalog.Head) { h.Next-- }))
		}, check.Monotonic, "the head went back from 5 to 4"},
		{"a watermark", func(x *fixture) {
			x.c.Trimming(x.id, 3)
			x.remark(3)
			x.remark(2)
		}, check.Monotonic, "the watermark went back from 3 to 2"},
	})
}

func TestBounded(t *testing.T) {
	expect(t, []planted{
		{"a key of no subject", func(x *fixture) {
			x.commit(metastore.Put("elsewhere", nil))
		}, check.Bounded, "a key outside the keyspace"},
		{"a slot beyond the window", func(x *fixture) {
			x.slot(3+window, part{x.id, 9, 1})
		}, check.Bounded, "slot 6 was put while slot 3 is empty and the window is 3"},
		{"a listing", func(x *fixture) {
			_, _ = x.inc.Bucket().List(x.ctx, "slot/", "", 10)
		}, check.Bounded, "a bucket listing"},
		{"a scan of all refs", func(x *fixture) {
			_, _ = x.inc.Store().Scan(x.ctx, metastore.Prefix("ref/"), 10)
		}, check.Bounded, "a scan of all of ref/"},
		{"a scan from one stream into the next", func(x *fixture) {
			_, _ = x.inc.Store().Scan(x.ctx, metastore.Range{Start: catalog.SpanPrefix(x.id), End: "span0"}, 10)
		}, check.Bounded, "a scan beyond"},
		{"a scan of what is no queue", func(x *fixture) {
			_, _ = x.inc.Store().Scan(x.ctx, metastore.Prefix("head/"), 10)
		}, check.Bounded, "a scan of what is no queue"},
		{"a page without a bound", func(x *fixture) {
			_, _ = x.inc.Store().Scan(x.ctx, metastore.Prefix(catalog.SpanPrefix(x.id)), 100_000)
		}, check.Bounded, "a page of 100000 records"},
	})
}

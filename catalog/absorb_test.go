package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// slots PUTs n slots of one record of each stream.
func (s *setup) slots(star *starLife, n int, ids ...catalog.StreamID) {
	for range n {
		s.world.putSlot(star, 0, func(o *object) {
			for _, id := range ids {
				s.world.record(o, id, 1, format.Append{})
			}
		})
	}
}

func (s *setup) absorbed(star *starLife, n int) catalog.Absorbed {
	out, err := s.world.absorb(star, n, true)
	s.NoError(err)
	return out
}

func TestAbsorbArmsOneBatchForItsSlots(t *testing.T) {
	s := newSetup(t, 128)
	star := s.world.start("a")
	x, y := s.world.createStream("x"), s.world.createStream("y")
	s.slots(star, 2, x, y)
	s.slots(star, 1, x)
	out := s.absorbed(star, 10)
	s.Equal(3, out.Slots)
	s.Equal(uint64(3), out.Chain.Chain.Checkpoint)
	s.Equal(s.version(catalog.ChainKey(star.chain)), out.Chain.Version)
	s.Equal([][][]catalog.Verdict{
		{{{Code: catalog.Accepted, First: 0, Last: 0}}, {{Code: catalog.Accepted, First: 0, Last: 0}}},
		{{{Code: catalog.Accepted, First: 1, Last: 1}}, {{Code: catalog.Accepted, First: 1, Last: 1}}},
		{{{Code: catalog.Accepted, First: 2, Last: 2}}},
	}, out.Verdicts)
	b, ok, err := s.cat.ReadBatch(s.Context(), star.chain, 0)
	s.NoError(err)
	s.True(ok)
	s.Equal(uint64(3), b.Batch.End)
	s.Equal([]catalog.SlotItem{{Slot: 0, Stream: x, First: 0, Count: 1}, {Slot: 0, Stream: y, First: 0, Count: 1},
		{Slot: 1, Stream: x, First: 1, Count: 1}, {Slot: 1, Stream: y, First: 1, Count: 1}, {Slot: 2, Stream: x, First: 2, Count: 1}}, b.Batch.Inventory)
	s.Equal([]catalog.StreamID{x, y}, b.Batch.Streams)
	ready := time.UnixMilli(b.Batch.Ready).Sub(s.clk.now)
	s.GreaterOrEqual(ready, testTiming().SettleAgeCap)
	s.Less(ready, testTiming().SettleAgeCap+catalog.MarkerBucket)
	s.Len(s.store.keys("due/denorm/"), 1)
	s.Len(s.store.keys("due/retention/"), 2)
}

// A run of accepted appends is one span; only what is turned down parts it.
func TestAbsorbPartsSpansAtRejections(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.world.putSlot(star, 0, func(o *object) {
		s.world.record(o, id, 2, format.Append{})
		s.world.record(o, id, 1, format.Append{HasExpected: true, Expected: 2})
		s.world.record(o, id, 3, format.Append{HasExpected: true, Expected: 9})
		s.world.record(o, id, 1, format.Append{})
	})
	out := s.absorbed(star, 1)
	s.Equal(catalog.WrongOffset, out.Verdicts[0][0][2].Code)
	spans := s.spans(id)
	s.Len(spans, 2)
	s.Equal([]uint64{0, 3, 3, 1}, []uint64{spans[0].Span.First, spans[0].Span.Count, spans[1].Span.First, spans[1].Span.Count})
	s.Equal(uint32(6), spans[1].Span.Ordinal, "the rejected bytes are dead weight between them")
}

// A slot of which nothing is accepted is in a batch marker all the same: it must be deleted.
func TestAbsorbWatchesAnEmptyHandedSlot(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 1, format.Append{HasExpected: true, Expected: 5}) })
	head := s.version(catalog.HeadKey(id))
	s.absorbed(star, 1)
	s.Equal(head, s.version(catalog.HeadKey(id)))
	b, ok, err := s.cat.ReadBatch(s.Context(), star.chain, 0)
	s.NoError(err)
	s.True(ok && len(b.Batch.Inventory) == 0)
	s.NoError(s.world.complete(star.chain, 1))
	s.Len(s.store.keys("due/trimcheck/"), 1)
}

// A verdict that turns down is as binding as one that accepts: another star moves the stream
// between the judging and the commit, and the append fits.
func TestAbsorbJudgesAgainOnConflict(t *testing.T) {
	s := newSetup(t, 128)
	a, b, id := s.world.start("a"), s.world.start("b"), s.world.createStream("s")
	s.world.putSlot(a, 0, func(o *object) { s.world.record(o, id, 1, format.Append{HasExpected: true, Expected: 1}) })
	s.slots(b, 1, id)
	s.during("commit", 0, func() { s.absorbed(b, 1) })
	out := s.absorbed(a, 1)
	s.Equal(catalog.Verdict{Code: catalog.Accepted, First: 1, Last: 1}, out.Verdicts[0][0][0])
	s.Equal(1, s.branches["absorb.conflict"])
}

// Its own nonce in the chain record proves that a lost commit landed; the verdicts are
// those that it carried, even where the chain was fenced since.
func TestAbsorbFindsItsTwin(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
			s := newSetup(t, 128)
			star, id := s.world.start("a"), s.world.createStream("s")
			s.slots(star, 1, id)
			s.store.plan = []fault{f}
			if fenced && f == lostWithEffect {
				s.store.plan = []fault{f}
				s.during("commit", 1, func() {
					s.store.end(star.session)
					at, err := s.cat.ReadChain(s.Context(), star.chain)
					s.NoError(err)
					dead, err := s.cat.ReadDead(s.Context(), star.chain)
					s.NoError(err)
					_, err = s.cat.TakeFence(s.Context(), at, dead)
					s.NoError(err)
				})
			}
			out := s.absorbed(star, 1)
			s.Equal(catalog.Accepted, out.Verdicts[0][0][0].Code)
			s.Zero(s.store.landAll())
			s.Len(s.spans(id), 1)
			if f == lostWithEffect {
				s.Equal(1, s.branches["absorb.twin"])
			}
		}
	}
}

// Whatever may be cached: a chain that is fenced, retired or at another checkpoint is not absorbed.
func TestAbsorbOfAChainThatIsNotOnesOwn(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.slots(star, 3, id)
	s.absorbed(star, 1)
	again := catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{star.pending[0]}}
	_, err := s.cat.Absorb(s.Context(), again)
	s.ErrorIs(err, catalog.ErrFenced, "that slot is absorbed")
	again.Chain.Epoch = 99
	_, err = s.cat.Absorb(s.Context(), again)
	s.ErrorIs(err, catalog.ErrFenced, "no such chain")

	s.store.end(star.session)
	at, err := s.cat.ReadChain(s.Context(), star.chain)
	s.NoError(err)
	dead, err := s.cat.ReadDead(s.Context(), star.chain)
	s.NoError(err)
	first, err := s.cat.TakeFence(s.Context(), at, dead)
	s.NoError(err)
	_, err = s.world.absorb(star, 1, true)
	s.ErrorIs(err, catalog.ErrFenced, "its cache says open, the record says fencing")

	second, err := s.cat.TakeFence(s.Context(), first.Chain, dead)
	s.NoError(err)
	next := catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{star.pending[1]}, Fence: &first}
	_, err = s.cat.Absorb(s.Context(), next)
	s.ErrorIs(err, catalog.ErrFenced, "a newer run has taken over")
	next.Fence = &second
	out, err := s.cat.Absorb(s.Context(), next)
	s.NoError(err)
	s.Equal(uint64(2), out.Chain.Chain.Checkpoint)
	_, err = s.cat.SealChain(s.Context(), second.Chain, 2, 5)
	s.ErrorIs(err, catalog.ErrMoved, "the absorb moved the record")
	announced, err := s.cat.AnnounceSeals(s.Context(), out.Chain, 7)
	s.NoError(err)
	_, err = s.cat.AnnounceSeals(s.Context(), out.Chain, 8)
	s.ErrorIs(err, catalog.ErrMoved, "the announcement moved the record")
	same, err := s.cat.AnnounceSeals(s.Context(), announced, 5)
	s.NoError(err)
	s.Equal(announced, same, "a nearer end changes nothing")
	sealed, err := s.cat.SealChain(s.Context(), announced, 2, 5)
	s.NoError(err)
	s.Equal(uint64(7), sealed.Chain.WindowEnd, "a seal announced further up by an earlier run may be there")
	next.Slots = []catalog.SlotIn{star.pending[2]}
	_, err = s.cat.Absorb(s.Context(), next)
	s.ErrorIs(err, catalog.ErrFenced, "sealed")
	s.Equal(catalog.ChainSealed, sealed.Chain.State)
}

// A caller that is cut off while its commit is unknown gets no definite answer, and asks
// again without a second effect.
func TestAbsorbCutOff(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.slots(star, 1, id)
	ctx, cancel := context.WithCancel(t.Context())
	s.store.plan = []fault{lostLate}
	s.during("commit", 0, cancel)
	req := catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{star.pending[0]}, Cache: star.cache}
	_, err := s.cat.Absorb(ctx, req)
	s.ErrorIs(err, metastore.ErrUnknown)
	s.ErrorIs(err, context.Canceled)
	s.Equal(1, s.store.landAll())
	_, err = s.cat.Absorb(s.Context(), req)
	s.ErrorIs(err, catalog.ErrFenced, "the real offsets are read back, not assigned anew")
	s.Len(s.spans(id), 1)
}

// A single slot that kept to FlightCost fits one commit, however small that is; of many
// slots as many as fit are taken.
func TestAbsorbFitsSmallBatches(t *testing.T) {
	for _, maxOps := range []int{18, 32, 128} {
		s := newSetup(t, maxOps)
		star := s.world.start("a")
		_, most := s.cat.FlightCost(false, false, false)
		ids := []catalog.StreamID{}
		cost := 0
		for i := 0; ; i++ {
			plain, _ := s.cat.FlightCost(true, false, false)
			conditional, _ := s.cat.FlightCost(true, true, false)
			s.Greater(conditional, plain)
			if cost += conditional; cost > most {
				break
			}
			ids = append(ids, s.world.createStream(string(rune('a'+i))))
		}
		s.NotEmpty(ids)
		for range 2 {
			s.world.putSlot(star, 0, func(o *object) {
				for _, id := range ids {
					s.world.record(o, id, 1, format.Append{HasExpected: true})
				}
			})
		}
		s.Equal(1, s.absorbed(star, 2).Slots)
		s.Equal(1, s.absorbed(star, 2).Slots)
	}
}

// A chain that owes more than it may has its next markers ready now, unless what it was
// thought to owe is settled already.
func TestAbsorbHurriesAChainThatOwes(t *testing.T) {
	timing := testTiming()
	timing.SettleOwedBytes = 250
	s := newSetup(t, 128)
	s.cat = catalog.New(s.store, s.clk, timing, nil)
	s.world.cat = s.cat
	star, id := s.world.start("a"), s.world.createStream("s")
	s.slots(star, 3, id) // of 112 bytes each
	now := uint64(s.clk.now.UnixMilli())
	ready := func(first uint64) uint64 {
		b, ok, err := s.cat.ReadBatch(s.Context(), star.chain, first)
		s.NoError(err)
		s.True(ok)
		return uint64(b.Batch.Ready)
	}
	s.Equal(uint64(112), s.absorbed(star, 1).Owed)
	s.absorbed(star, 1)
	s.Greater(ready(1), now)
	s.Equal(uint64(336), s.absorbed(star, 1).Owed)
	s.Equal(now, ready(2))

	p := s.world.publish([][]catalog.SpanAt{s.spans(id)})
	s.steps(p, 3)
	s.NoError(s.world.complete(star.chain, 10))
	s.slots(star, 1, id)
	s.Equal(uint64(112), s.absorbed(star, 1).Owed, "the cached trim record is old: it looks before it hurries")
	s.Greater(ready(3), now)
}

func TestRetentionIsArmedByAbsorb(t *testing.T) {
	s := newSetup(t, 128)
	star := s.world.start("a")
	byBytes, _, err := s.cat.CreateStream(s.Context(), "bytes", catalog.Policy{MaxBytes: 15})
	s.NoError(err)
	byAge, _, err := s.cat.CreateStream(s.Context(), "age", catalog.Policy{MaxAgeMS: 3_600_000})
	s.NoError(err)
	order := func(id catalog.StreamID) time.Duration {
		key := s.world.last.marks[id].RetentionKey
		s.Equal([]string{key}, s.world.last.retentions[id])
		return time.UnixMilli(int64(must(catalog.ParseDue(key)).Order)).Sub(s.clk.now)
	}
	s.slots(star, 1, byBytes.ID, byAge.ID)
	s.absorbed(star, 1)
	s.Greater(order(byBytes.ID), time.Duration(0))
	s.GreaterOrEqual(order(byAge.ID), time.Hour)
	s.LessOrEqual(order(byAge.ID), time.Hour+catalog.MarkerBucket)
	marks := s.version(catalog.MarkKey(byAge.ID))

	s.slots(star, 1, byBytes.ID, byAge.ID) // 20 bytes now
	s.absorbed(star, 1)
	s.Equal(3*time.Second, order(byBytes.ID), "moved to the end of the bucket that began 2 s ago: the earlier time wins")
	s.Equal(marks, s.version(catalog.MarkKey(byAge.ID)))
	marks = s.version(catalog.MarkKey(byBytes.ID))
	s.clk.now = s.clk.now.Add(time.Second)
	s.slots(star, 1, byBytes.ID)
	s.absorbed(star, 1)
	s.Equal(marks, s.version(catalog.MarkKey(byBytes.ID)), "one that is earlier stands: nothing is written")
}

// A head names the chains that may hold slots of its stream; those that are gone or rewritten
// past it are dropped when another one comes.
func TestHeadForgetsSettledChains(t *testing.T) {
	s := newSetup(t, 128)
	id := s.world.createStream("s")
	chainsOf := func() (out []catalog.ChainLast) { return s.world.last.heads[id].Chains }
	a, b := s.world.start("a"), s.world.start("b")
	s.slots(a, 2, id)
	s.slots(b, 1, id)
	s.absorbed(a, 2)
	s.absorbed(b, 1)
	s.Equal([]catalog.ChainLast{{Chain: a.chain, Slot: 1}, {Chain: b.chain, Slot: 0}}, chainsOf())
	_, err := s.cat.AdvanceTrim(s.Context(), a.chain, 0, 0)
	s.NoError(err)
	steps := func(rewritten uint64) {
		spans := s.spans(id)
		for _, sp := range spans {
			if c, slot, err := catalog.ParseSlotKey(sp.Span.Object); err == nil && c == a.chain && slot < rewritten {
				s.steps(s.world.publish([][]catalog.SpanAt{{sp}}), 3)
			}
		}
	}
	steps(2)
	s.NoError(s.world.complete(a.chain, 2))
	f, err := s.cat.Frontier(s.Context(), a.chain)
	s.NoError(err)
	s.Equal(uint64(2), f)
	_, err = s.cat.AdvanceTrim(s.Context(), a.chain, 1, 0)
	s.NoError(err)
	c := s.world.start("c")
	s.slots(c, 1, id)
	s.absorbed(c, 1)
	s.Len(chainsOf(), 3, "slot 1 of a is not known rewritten")
	_, err = s.cat.AdvanceTrim(s.Context(), a.chain, 2, 0)
	s.NoError(err)
	d := s.world.start("d")
	s.slots(d, 1, id)
	s.absorbed(d, 1)
	s.Equal([]catalog.ChainLast{{Chain: b.chain, Slot: 0}, {Chain: c.chain, Slot: 0}, {Chain: d.chain, Slot: 0}}, chainsOf())
}

// A stream whose records do not decode costs its own appends, and neither the other streams of the
// slot nor the chain; once it is repaired it is judged again.
func TestAbsorbTurnsDownWhatItCannotJudge(t *testing.T) {
	for _, key := range []func(catalog.StreamID) string{catalog.StreamKey, catalog.HeadKey} {
		s := newSetup(t, 128)
		star := s.world.start("a")
		bad, good := s.world.createStream("bad"), s.world.createStream("good")
		s.slots(star, 1, bad, good)
		s.absorbed(star, 1)
		sound := s.store.mirror[key(bad)].Value
		put := func(value []byte) {
			_, err := s.store.Commit(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(key(bad), value)}})
			s.NoError(err)
		}
		look := s.store.committed
		s.store.committed = nil // the checker can't read it either
		put([]byte{1, 0xff})
		for range 3 {
			o := newObject()
			s.world.record(o, bad, 1, format.Append{})
			s.world.record(o, good, 1, format.Append{})
			star.pending[star.next] = catalog.SlotIn{Slot: star.next, Size: o.size(), Footer: &o.footer}
			s.world.objects[catalog.SlotKey(star.chain, star.next)] = o
			star.next++
		}
		absorb := func(slot uint64) catalog.Absorbed {
			out, err := s.cat.Absorb(s.Context(), catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{star.pending[slot]}, Cache: star.cache})
			s.NoError(err)
			return out
		}
		for slot := uint64(1); slot < 3; slot++ {
			if slot == 1 {
				star.cache = catalog.NewCache(8)
			}
			out := absorb(slot)
			s.Equal(catalog.Unreadable, out.Verdicts[0][0][0].Code)
			s.Equal("unreadable", out.Verdicts[0][0][0].Code.String())
			s.Equal(catalog.Verdict{Code: catalog.Accepted, First: slot, Last: slot}, out.Verdicts[0][1][0])
		}
		s.Equal([]byte{1, 0xff}, s.store.mirror[key(bad)].Value, "left as it is")
		s.during("commit", 0, func() { put(sound) })
		s.Equal(catalog.Verdict{Code: catalog.Accepted, First: 1, Last: 1}, absorb(3).Verdicts[0][0][0], "turning down is as binding")
		s.store.committed = look
		look()
	}
}

// A mark that does not decode holds its stream's retention back, and not its chain.
func TestAbsorbOfAStreamWhoseMarkDoesNotDecode(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.store.committed = nil
	_, err := s.store.Commit(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.MarkKey(id), []byte{9})}})
	s.NoError(err)
	o := newObject()
	s.world.record(o, id, 1, format.Append{})
	out, err := s.cat.Absorb(s.Context(), catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{{Size: o.size(), Footer: &o.footer}}})
	s.NoError(err)
	s.Equal(catalog.Accepted, out.Verdicts[0][0][0].Code)
	s.Empty(s.store.keys("due/retention/"))
}

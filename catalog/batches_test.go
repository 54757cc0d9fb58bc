package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

func (s *setup) batch(c catalog.ChainID, first uint64) catalog.BatchAt {
	b, ok, err := s.cat.ReadBatch(s.Context(), c, first)
	s.NoError(err)
	s.True(ok)
	return b
}

// settledSlots makes n batches of a slot each, and moves all their spans away.
func (s *setup) settledSlots(n int) (*starLife, []catalog.BatchAt) {
	a, id := s.world.start("a"), s.world.createStream("s")
	s.slots(a, n, id)
	for range n {
		s.absorbed(a, 1)
	}
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)}), 3)
	owed, err := s.cat.OwedBatches(s.Context(), a.chain, 0, n+1)
	s.NoError(err)
	s.Len(owed, n)
	return a, owed
}

// raw writes one record past the catalog, as damage would.
func (s *setup) raw(key string, value []byte) {
	look := s.store.committed
	s.store.committed = nil
	_, err := s.store.apply(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(key, value)}})
	s.NoError(err)
	s.store.committed = look
}

func (s *setup) trimChecks() (keys []string) { return s.store.keys("due/trimcheck/") }

func TestCompleteBatches(t *testing.T) {
	for _, maxOps := range []int{16, 128} {
		s := newSetup(t, maxOps)
		a, owed := s.settledSlots(5)
		s.store.plan = []fault{lostWithEffect}
		s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed))
		s.Empty(s.store.keys("due/denorm/"))
		s.Len(s.trimChecks(), 1, "those of one bucket share a marker")
		m := s.world.marker(s.trimChecks()[0])
		s.Equal(uint64(5), must(catalog.DecodeTrimCheckMarker(m.Value)).UpTo)
		s.GreaterOrEqual(-m.Due.PastDue(s.clk.now), testTiming().TrimGrace-time.Second)
		trim, err := s.cat.ReadTrim(s.Context(), a.chain)
		s.NoError(err)
		s.Equal(uint64(5*112), trim.Trim.SettledBytes, "each batch counts once")
		s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed), "another member's era was first")
		again, err := s.cat.ReadTrim(s.Context(), a.chain)
		s.NoError(err)
		s.Equal(trim, again)
	}
}

// A lower batch that completes after a higher one keeps the larger end.
func TestCompleteKeepsTheLargerEnd(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(3)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[2:]))
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[:1]))
	s.Len(s.trimChecks(), 1)
	s.Equal(uint64(3), must(catalog.DecodeTrimCheckMarker(s.world.marker(s.trimChecks()[0]).Value)).UpTo)
}

// Two eras of one chain complete different batches at once: neither's end is lost.
func TestCompleteMeetsAnother(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(3)
	s.during("commit", 0, func() { s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[1:])) })
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[:1]))
	s.Equal(uint64(3), must(catalog.DecodeTrimCheckMarker(s.world.marker(s.trimChecks()[0]).Value)).UpTo)
	s.Equal(uint64(3*112), s.world.last.trims[a.chain].SettledBytes)
	s.Equal(1, s.branches["batch.conflict"])
}

// The trim record moves, or a check is re-armed onto the key, between the look and the
// commit: neither is undone.
func TestCompleteMeetsOtherDuties(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(4)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[:1]))
	s.during("commit", 0, func() {
		_, err := s.cat.AdvanceTrim(s.Context(), a.chain, 1, 0)
		s.NoError(err)
	})
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[1:2]))
	s.Equal(uint64(1), s.world.last.trims[a.chain].Rewritten)

	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[3:]))
	higher := s.world.marker(s.trimChecks()[0])
	s.clk.now = s.clk.now.Add(time.Hour)
	s.during("commit", 0, func() {
		s.NoError(s.cat.RearmTrimCheck(s.Context(), higher, 4, testTiming().TrimGrace))
	})
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[2:3]))
	s.Len(s.trimChecks(), 1)
	s.Equal(uint64(4), must(catalog.DecodeTrimCheckMarker(s.world.marker(s.trimChecks()[0]).Value)).UpTo)
}

// A batch that was moved has another schedule entry: it is not resolved with the old one.
func TestCompleteOfAMovedBatch(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(2)
	s.NoError(s.cat.RipenBatch(s.Context(), owed[1]))
	s.ErrorIs(s.cat.CompleteBatches(s.Context(), a.chain, owed), catalog.ErrMoved)
	owed[1] = s.batch(a.chain, 1)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed))
	s.Empty(s.store.keys("schedule/"))
}

// An unreadable trimcheck may have been the last watcher of any slot below the
// checkpoint: what takes its place reaches up to there.
func TestUnreadableTrimCheckIsTakenAtItsLargest(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(4)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed))
	key := s.trimChecks()[0]
	upTo := func() uint64 { return must(catalog.DecodeTrimCheckMarker(s.store.mirror[key].Value)).UpTo }
	s.store.committed = nil // the checker does not read damage

	// Armed anew by a batch that completes within the same bucket.
	s.raw(key, []byte("?"))
	s.raw(catalog.BatchKey(a.chain, 0), catalog.Batch{End: 1, Ready: 5}.Encode())
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, []catalog.BatchAt{s.batch(a.chain, 0)}))
	s.Equal([]string{key}, s.trimChecks())
	s.Equal(uint64(4), upTo())

	// Another one is re-armed onto its key.
	s.raw(key, []byte("?"))
	early := catalog.DueKey(catalog.TrimCheck, 5, a.chain.String())
	s.raw(early, []byte{1, 1})
	ready := time.UnixMilli(int64(must(catalog.ParseDue(key)).Order))
	s.NoError(s.cat.RearmTrimCheck(s.Context(), s.world.marker(early), 1, ready.Sub(s.clk.now)))
	s.Equal([]string{key}, s.trimChecks())
	s.Equal(uint64(4), upTo())
}

func TestRearmTrimCheck(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(3)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed))
	m := s.world.marker(s.trimChecks()[0])
	s.clk.now = s.clk.now.Add(time.Hour)
	s.store.plan = []fault{lostWithEffect}
	s.NoError(s.cat.RearmTrimCheck(s.Context(), m, 3, 0), "a twin of its own landed")
	now := s.world.marker(s.trimChecks()[0])
	ahead := -now.Due.PastDue(s.clk.now)
	s.Greater(ahead, catalog.MinRearm-time.Second, "no duty spins")
	s.Less(ahead, 2*catalog.MinRearm, "rounded up to a bucket as long as the delay")
	s.Equal(m.Value, now.Value)

	s.clk.now = s.clk.now.Add(-2 * time.Hour)
	s.ErrorIs(s.cat.RearmTrimCheck(s.Context(), now, 3, 0), catalog.ErrMoved, "never to an earlier time")
	s.Len(s.trimChecks(), 1)
}

// A batch completes under the very key that a check is re-armed onto, or that it is
// re-armed from: neither end is lost.
func TestRearmTrimCheckMeetsAnArm(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(3)
	s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[:1]))
	m := s.world.marker(s.trimChecks()[0])
	s.during("commit", 0, func() { s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[1:2])) })
	s.ErrorIs(s.cat.RearmTrimCheck(s.Context(), m, 1, time.Hour), catalog.ErrMoved, "it says more than was judged")

	m = s.world.marker(s.trimChecks()[0])
	s.clk.now = s.clk.now.Add(time.Hour)
	s.during("commit", 0, func() { s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed[2:])) })
	s.ErrorIs(s.cat.RearmTrimCheck(s.Context(), m, 2, testTiming().TrimGrace), catalog.ErrMoved)
	s.Len(s.trimChecks(), 2)
	s.NoError(s.cat.RearmTrimCheck(s.Context(), m, 2, testTiming().TrimGrace))
	s.Len(s.trimChecks(), 1)
	s.Equal(uint64(3), must(catalog.DecodeTrimCheckMarker(s.world.marker(s.trimChecks()[0]).Value)).UpTo)
}

func TestRipenAndDelay(t *testing.T) {
	s := newSetup(t, 128)
	a, id := s.world.start("a"), s.world.createStream("s")
	s.slots(a, 1, id)
	s.absorbed(a, 1)
	b := s.batch(a.chain, 0)
	s.NoError(s.cat.RipenBatch(s.Context(), b))
	ripe := s.batch(a.chain, 0)
	s.Equal(s.clk.now.UnixMilli(), ripe.Batch.Ready)
	s.NoError(s.cat.RipenBatch(s.Context(), ripe))
	s.Equal(ripe, s.batch(a.chain, 0), "nothing is written for one that is ripe")
	s.ErrorIs(s.cat.DelayBatch(s.Context(), b, b.Batch, time.Minute), catalog.ErrMoved)

	s.NoError(s.cat.DelayBatch(s.Context(), ripe, ripe.Batch, time.Minute))
	s.Equal(s.clk.now.Add(time.Minute).UnixMilli(), s.batch(a.chain, 0).Batch.Ready)
	late := s.batch(a.chain, 0)
	s.NoError(s.cat.DelayBatch(s.Context(), late, late.Batch, 0))
	s.Equal(s.clk.now.Add(catalog.MinRearm).UnixMilli(), s.batch(a.chain, 0).Batch.Ready)
	late = s.batch(a.chain, 0)
	s.NoError(s.cat.DelayBatch(s.Context(), late, late.Batch, 0), "onto its own key: one put")
	s.Equal(late.Batch, s.batch(a.chain, 0).Batch)
}

// A batch of which only the damaged slots' inventory is left gives up the pending entries
// of the streams that it no longer concerns, and its own when it completes.
func TestDelayedBatchKeepsItsIndex(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	x, y := s.world.createStream("x"), s.world.createStream("y")
	s.slots(a, 1, x)
	s.slots(a, 1, y)
	s.absorbed(a, 2)
	b := s.batch(a.chain, 0)
	s.Len(s.store.keys("pending/"), 2)
	v := b.Batch
	v.Damaged, v.Inventory = true, v.Inventory[1:]
	s.NoError(s.cat.DelayBatch(s.Context(), b, v, time.Minute))
	s.Equal([]string{catalog.PendingPrefix(y)}, []string{s.store.keys("pending/")[0][:len(catalog.PendingPrefix(y))]})
	b = s.batch(a.chain, 0)
	v = b.Batch
	s.Equal([]catalog.StreamID{y}, v.Streams)
	v.Damaged, v.Streams = false, []catalog.StreamID{x, y}
	s.NoError(s.cat.DelayBatch(s.Context(), b, v, time.Minute))
	s.Len(s.store.keys("pending/"), 2)
}

func TestDropSchedule(t *testing.T) {
	s := newSetup(t, 128)
	key := catalog.ScheduleKey(catalog.ChainID{Star: "a", Epoch: 1}, 0, 5)
	s.raw(key, nil)
	s.NoError(s.cat.DropSchedule(s.Context(), key, s.version(key)))
	s.Empty(s.store.keys("schedule/"))
}

func TestReadBatchReportsDamage(t *testing.T) {
	s := newSetup(t, 128)
	c := catalog.ChainID{Star: "a", Epoch: 1}
	_, ok, err := s.cat.ReadBatch(s.Context(), c, 0)
	s.NoError(err)
	s.False(ok)
	s.raw(catalog.BatchKey(c, 0), []byte("?"))
	_, _, err = s.cat.ReadBatch(s.Context(), c, 0)
	s.ErrorIs(err, catalog.ErrCorruptValue)
	_, err = s.cat.OwedBatches(s.Context(), c, 0, 1)
	s.ErrorIs(err, catalog.ErrCorruptValue)
	s.store.committed = nil
	delete(s.store.mirror, catalog.BatchKey(c, 0))
}

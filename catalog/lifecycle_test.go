package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// filled makes a stream of n slots with a record of 10 bytes each, a second apart.
func (s *setup) filled(n int, p catalog.Policy) (*starLife, catalog.StreamID) {
	star := s.world.start("a")
	v, _, err := s.cat.CreateStream(s.Context(), "s", p)
	s.NoError(err)
	s.world.streams = append(s.world.streams, v.ID)
	for range n {
		s.slots(star, 1, v.ID)
		s.absorbed(star, 1)
		s.clk.now = s.clk.now.Add(time.Second)
	}
	return star, v.ID
}

func (s *setup) view(id catalog.StreamID) catalog.StreamView {
	v, err := s.cat.ReadAnyStream(s.Context(), id)
	s.NoError(err)
	return v
}

// due returns the one marker of a queue.
func (s *setup) due(q catalog.Queue) catalog.MarkerAt {
	keys := s.store.keys("due/" + string(q) + "/")
	s.Len(keys, 1)
	return s.world.marker(keys[0])
}

func TestPoliciesAreChecked(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{})
	for _, p := range []catalog.Policy{{MaxAgeMS: -1}, {MaxAgeMS: catalog.MaxPolicyAge.Milliseconds() + 1}, {MaxBytes: catalog.MaxPolicyBytes + 1}} {
		_, err := s.cat.SetPolicy(s.Context(), id, p)
		s.ErrorIs(err, catalog.ErrBadPolicy)
		_, _, err = s.cat.CreateStream(s.Context(), "other", p)
		s.ErrorIs(err, catalog.ErrBadPolicy)
	}
	most := catalog.Policy{MaxAgeMS: catalog.MaxPolicyAge.Milliseconds(), MaxBytes: catalog.MaxPolicyBytes}
	v, err := s.cat.SetPolicy(s.Context(), id, most)
	s.NoError(err)
	s.Equal(most, v.Stream.Policy)
	s.Equal(v, s.view(id))
	r, err := s.cat.Readable(s.Context(), v, s.clk.now)
	s.NoError(err)
	s.Zero(r)
}

func TestSetPolicyArmsRetentionForNow(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{MaxAgeMS: 3_600_000})
	s.Greater(s.due(catalog.Retention).Due.Order, uint64(s.clk.now.UnixMilli()))
	v, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxAgeMS: 1000})
	s.NoError(err)
	m := s.due(catalog.Retention)
	s.Equal(uint64(s.clk.now.UnixMilli()), m.Due.Order)
	s.Equal(m.Due.Key, v.Mark.RetentionKey)

	version := s.version(catalog.StreamKey(id))
	_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxAgeMS: 1000})
	s.NoError(err)
	s.Equal(version, s.version(catalog.StreamKey(id)), "the policy that it has changes nothing")

	s.clk.now = s.clk.now.Add(time.Minute)
	_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{})
	s.NoError(err)
	s.Equal(m.Due.Key, s.due(catalog.Retention).Due.Key, "the earlier time wins")
}

// What a policy has expired stays expired under a longer one: whole spans by the watermark, and what lies inside the
// span at the watermark by what the mark remembers.
func TestNothingBecomesReadableAgain(t *testing.T) {
	for _, p := range []catalog.Policy{{MaxAgeMS: 3000}, {MaxBytes: 25}} {
		s := newSetup(t, 128)
		_, id := s.filled(6, p) // at 10, 20 … 60 bytes; 6 … 1 s old
		s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)[2:5]}), 3)
		s.Len(s.spans(id), 4, "offsets 0, 1, 2 to 4, 5")
		before, err := s.cat.Readable(s.Context(), s.view(id), s.clk.now)
		s.NoError(err)
		s.Equal(uint64(2), before.First)
		s.Equal(uint64(20), before.FirstBytes)

		v, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxAgeMS: 3_600_000})
		s.NoError(err)
		s.Equal(uint64(2), v.Mark.Watermark)
		s.Equal(uint64(20), v.Mark.WatermarkBytes)
		_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{})
		s.NoError(err)
		after, err := s.cat.Readable(s.Context(), s.view(id), s.clk.now)
		s.NoError(err)
		s.Equal(before.First, after.First)
		s.Equal(before.FirstBytes, after.FirstBytes)
		for i := range uint64(6) {
			ts, end := s.clk.now.UnixMilli()-6000+1000*int64(i), 10*(i+1)
			s.Equal(i < 4 && p.MaxAgeMS > 0 || i < 3, after.Expired(ts, end), "record %d", i)
			s.Equal(before.Expired(ts, end), after.Expired(ts, end), "record %d", i)
		}
	}
}

// By size a record expires with what is appended behind it: an append between judging and commit must not be missed.
func TestSetPolicyMeetsAnAppend(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(3, catalog.Policy{MaxBytes: 20})
	s.slots(star, 1, id)
	s.during("commit", 0, func() { s.absorbed(star, 1) })
	v, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{})
	s.NoError(err)
	s.Equal(uint64(2), v.Mark.Watermark)
	s.Positive(s.branches["policy.conflict"])
}

// Two changes of one field each, side by side: the one that comes second keeps what the first one set.
func TestChangePolicyMeetsAnother(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{})
	s.during("commit", 0, func() {
		_, err := s.cat.ChangePolicy(s.Context(), id, func(p catalog.Policy) catalog.Policy { p.MaxBytes = 7; return p })
		s.NoError(err)
	})
	v, err := s.cat.ChangePolicy(s.Context(), id, func(p catalog.Policy) catalog.Policy { p.MaxAgeMS = 5000; return p })
	s.NoError(err)
	s.Equal(catalog.Policy{MaxAgeMS: 5000, MaxBytes: 7}, v.Stream.Policy)
	s.Equal(v.Stream.Policy, s.view(id).Stream.Policy)
}

func TestSetPolicyThatWasLost(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{})
	s.store.plan = []fault{lostWithEffect}
	v, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 1})
	s.NoError(err)
	s.Equal(uint64(1), v.Stream.Policy.MaxBytes)
	s.Positive(s.branches["policy.twin"])

	// Another's policy came over the one whose answer was lost: whether that ever held nobody can tell.
	s.store.plan = []fault{lostWithEffect}
	s.during("commit", 1, func() {
		_, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 3})
		s.NoError(err)
	})
	_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 2})
	s.ErrorIs(err, metastore.ErrUnknown)
	s.Equal(uint64(3), s.view(id).Stream.Policy.MaxBytes)

	// A late twin comes too late.
	s.store.plan = []fault{lostLate}
	_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 4})
	s.NoError(err)
	s.Zero(s.store.landAll())
}

func TestDeleteStream(t *testing.T) {
	s := newSetup(t, 128)
	timing := testTiming()
	timing.UndeleteWindow = time.Hour
	s.cat = catalog.New(s.store, s.clk, timing, func(name string) { s.branches[name]++ })
	star, id := s.filled(1, catalog.Policy{})
	s.slots(star, 1, id)
	s.store.plan = []fault{lostWithEffect}
	d, err := s.cat.DeleteStream(s.Context(), id)
	s.NoError(err)
	s.Positive(s.branches["delete.twin"])
	s.Equal(id, d.ID)
	s.Equal(time.Hour, d.Until.Sub(d.At))
	m := s.due(catalog.Teardown)
	s.Equal(uint64(d.Until.UnixMilli()), m.Due.Order)
	s.Equal(catalog.TeardownMarker{Deleted: d.At.UnixMilli(), Ready: d.Until.UnixMilli()}, must(catalog.DecodeTeardownMarker(m.Value)))

	_, err = s.cat.FindStream(s.Context(), "s")
	s.ErrorIs(err, catalog.ErrNoStream)
	_, err = s.cat.ReadStream(s.Context(), id)
	s.ErrorIs(err, catalog.ErrNoStream)
	_, err = s.cat.DeleteStream(s.Context(), id)
	s.ErrorIs(err, catalog.ErrNoStream)
	_, err = s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 1})
	s.ErrorIs(err, catalog.ErrNoStream)
	_, err = s.cat.TrimStream(s.Context(), id, 1)
	s.ErrorIs(err, catalog.ErrNoStream)
	s.Equal(catalog.NoStream, s.absorbed(star, 1).Verdicts[0][0][0].Code, "absorbed after the deletion: not a record of it")

	other, created, err := s.cat.CreateStream(s.Context(), "s", catalog.Policy{})
	s.NoError(err)
	s.True(created, "the name is free")
	s.NotEqual(id, other.ID)
}

func TestDeleteMeetsAnAppend(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(1, catalog.Policy{})
	s.slots(star, 1, id)
	s.during("commit", 0, func() {
		_, err := s.cat.DeleteStream(s.Context(), id)
		s.NoError(err)
	})
	s.Equal(catalog.NoStream, s.absorbed(star, 1).Verdicts[0][0][0].Code)
	s.Equal(uint64(1), s.view(id).Head.Next)
}

func TestLateTwinsOfADeletion(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{})
	s.store.plan = []fault{lostLate}
	_, err := s.cat.DeleteStream(s.Context(), id)
	s.NoError(err)
	s.Zero(s.store.landAll())
}

// torn deletes a stream whose records were settled.
func (s *setup) torn(p catalog.Policy) (catalog.StreamID, catalog.MarkerAt) {
	star, id := s.filled(2, p)
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)}), 3)
	s.NoError(s.world.complete(star.chain, 2))
	_, err := s.cat.DeleteStream(s.Context(), id)
	s.NoError(err)
	return id, s.due(catalog.Teardown)
}

func TestTeardownLeavesNothing(t *testing.T) {
	s := newSetup(t, 128)
	id, m := s.torn(catalog.Policy{MaxAgeMS: 1000})
	s.Len(s.store.keys("due/retention/"), 1)
	s.store.plan = []fault{lostWithEffect}
	v, err := s.cat.BeginTeardown(s.Context(), m, id)
	s.NoError(err)
	s.Equal(catalog.StreamTearing, v.Stream.State)
	s.NoError(s.world.killBelow(id, 100))
	s.store.plan = []fault{lostWithEffect}
	s.NoError(s.cat.FinishTeardown(s.Context(), m, s.view(id)))
	for _, prefix := range []string{"stream/", "head/", "mark/", "span/", "ref/", "due/retention/", "due/teardown/"} {
		s.Empty(s.store.keys(prefix))
	}
	s.Len(s.store.keys("due/reap/"), 1, "the object is watched by itself")
	_, err = s.cat.BeginTeardown(s.Context(), m, id)
	s.ErrorIs(err, catalog.ErrNoStream)
	s.NoError(s.cat.ResolveStrayTeardown(s.Context(), m, catalog.StreamView{}, id))
}

func TestFinishTeardownMeetsRetention(t *testing.T) {
	s := newSetup(t, 128)
	id, m := s.torn(catalog.Policy{MaxAgeMS: 1000})
	v, err := s.cat.BeginTeardown(s.Context(), m, id)
	s.NoError(err)
	s.ErrorIs(s.cat.FinishTeardown(s.Context(), m, catalog.StreamView{ID: id}), catalog.ErrMoved, "it is not tearing, as far as the caller knows")
	s.NoError(s.world.killBelow(id, 100))
	s.NoError(s.world.retain(s.due(catalog.Retention)))
	s.Empty(s.store.keys("due/retention/"), "of a stream that is not active there is nothing to retain")
	s.ErrorIs(s.cat.FinishTeardown(s.Context(), m, v), catalog.ErrMoved, "the mark moved")
	s.NoError(s.cat.FinishTeardown(s.Context(), m, s.view(id)))
}

func TestRearmedTeardownKeepsItsTimes(t *testing.T) {
	s := newSetup(t, 128)
	id, m := s.torn(catalog.Policy{})
	want := m.Value
	for range 3 {
		s.clk.now = s.clk.now.Add(10 * time.Second)
		s.store.plan = []fault{lostWithEffect}
		s.NoError(s.cat.RearmTeardown(s.Context(), m, 0))
		old := m
		m = s.due(catalog.Teardown)
		s.Equal(want, m.Value)
		s.InDelta(catalog.MinRearm.Seconds(), time.UnixMilli(int64(m.Due.Order)).Sub(s.clk.now).Seconds(), 0.1)
		_, err := s.cat.BeginTeardown(s.Context(), old, id)
		s.ErrorIs(err, catalog.ErrMoved)
	}
	views, err := s.cat.DueOverview(s.Context(), 100)
	s.NoError(err)
	s.Equal(catalog.Teardown, views[0].Queue)
	s.Zero(views[0].Age, "not ripe")
	s.clk.now = s.clk.now.Add(catalog.MinRearm)
	views, err = s.cat.DueOverview(s.Context(), 100)
	s.NoError(err)
	s.InDelta(35, views[0].Age.Seconds(), 0.1, "the true wait")
}

// The frontier as teardown sees it passes over other streams' damage.
func TestFrontierOf(t *testing.T) {
	s := newSetup(t, 128)
	star := s.world.start("a")
	x, y := s.world.createStream("x"), s.world.createStream("y")
	for range 2 {
		s.slots(star, 1, x, y)
		s.absorbed(star, 1)
	}
	b := s.batch(star.chain, 0)
	v := b.Batch
	v.Damaged = true
	v.Inventory = []catalog.SlotItem{{Slot: 0, Stream: y, First: 0, Count: 1}}
	s.NoError(s.cat.DelayBatch(s.Context(), b, v, time.Hour))
	of := func(id catalog.StreamID) uint64 { return must(s.cat.FrontierOf(s.Context(), star.chain, id)) }
	s.Equal(uint64(1), of(x), "slot 0 is damaged, and not of x")
	s.Equal(uint64(0), of(y))
	f, err := s.cat.Frontier(s.Context(), star.chain)
	s.NoError(err)
	s.Zero(f)
	s.raw(catalog.BatchKey(star.chain, 0), []byte{9})
	s.Zero(of(x), "nobody knows what an unreadable marker names")
	s.Equal(^uint64(0), must(s.cat.FrontierOf(s.Context(), catalog.ChainID{Star: "gone", Epoch: 1}, x)))
}

func TestRipenOwed(t *testing.T) {
	for _, maxOps := range []int{16, 128} {
		s := newSetup(t, maxOps)
		star, id := s.world.start("a"), s.world.createStream("s")
		for range 12 {
			s.slots(star, 1, id)
			s.absorbed(star, 1)
		}
		ready := func(first uint64) time.Duration {
			return time.UnixMilli(s.batch(star.chain, first).Batch.Ready).Sub(s.clk.now)
		}
		damaged := s.batch(star.chain, 2)
		v := damaged.Batch
		v.Damaged = true
		s.NoError(s.cat.DelayBatch(s.Context(), damaged, v, time.Hour))
		whole := s.store.mirror[catalog.BatchKey(star.chain, 4)]
		s.raw(catalog.BatchKey(star.chain, 4), []byte{9})
		s.store.committed = nil // the checker can't read it either

		next, moved, err := s.cat.RipenOwed(s.Context(), star.chain, 0, 7)
		s.NoError(err)
		s.Equal(5, moved, "0, 1, 3, 5 and 6")
		s.Equal(uint64(7), next)
		s.Positive(s.branches["ripen.unreadable"])
		for _, first := range []uint64{0, 1, 3, 5, 6} {
			s.Zero(ready(first))
		}
		s.Equal(time.Hour, ready(2), "damage waits for an operator")
		s.Positive(ready(7), "beyond the end")
		s.raw(catalog.BatchKey(star.chain, 4), whole.Value)

		versions := s.version(catalog.BatchKey(star.chain, 0))
		s.during("commit", 0, func() { s.NoError(s.cat.RipenBatch(s.Context(), s.batch(star.chain, 8))) })
		next, moved, err = s.cat.RipenOwed(s.Context(), star.chain, 0, 100)
		s.NoError(err)
		s.Equal(uint64(12), next)
		s.Equal(5, moved, "4 and 7 to 11, but for 8, which another ripened")
		s.Equal(versions, s.version(catalog.BatchKey(star.chain, 0)), "an already ripe one is not written")
		s.world.check()
	}
}

func TestListAndPending(t *testing.T) {
	s := newSetup(t, 16)
	star := s.world.start("a")
	var ids []catalog.StreamID
	for _, name := range []string{"a.1", "a.2", "a.3", "a.4", "a.5", "a.6", "a.7", "b"} {
		ids = append(ids, s.world.createStream(name))
	}
	_, err := s.cat.DeleteStream(s.Context(), ids[2])
	s.NoError(err)
	names := func(prefix, after string, limit int) (out []string, more bool) {
		views, more, err := s.cat.ListStreams(s.Context(), prefix, after, limit)
		s.NoError(err)
		for _, v := range views {
			out = append(out, v.Stream.Name)
		}
		return out, more
	}
	got, more := names("", "", 100)
	s.Equal([]string{"a.1", "a.2", "a.4", "a.5", "a.6", "a.7", "b"}, got)
	s.False(more)
	got, more = names("a.", "a.2", 3)
	s.Equal([]string{"a.4", "a.5", "a.6"}, got)
	s.True(more)
	got, more = names("a.", "a.6", 3)
	s.Equal([]string{"a.7"}, got)
	s.False(more)

	s.slots(star, 1, ids[0], ids[1])
	s.absorbed(star, 1)
	items, more, err := s.cat.Pending(s.Context(), ids[0], 10)
	s.NoError(err)
	s.False(more)
	batch := s.batch(star.chain, 0)
	s.Equal([]catalog.PendingItem{{Queue: catalog.Denorm, Key: batch.Key(), Subject: star.chain.String() + "~0000000000000000",
		Ready: time.UnixMilli(batch.Batch.Ready), Bytes: batch.Batch.Bytes}}, items)
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(ids[0]), s.spans(ids[1])}), 3)
	s.NoError(s.world.complete(star.chain, 1))
	s.NoError(s.world.kill(ids[0], 1))
	items, _, err = s.cat.Pending(s.Context(), ids[0], 10)
	s.NoError(err)
	s.Len(items, 1)
	m := s.due(catalog.Reap)
	s.Equal(catalog.PendingItem{Queue: catalog.Reap, Key: m.Due.Key, Subject: m.Due.Object(), Ready: time.UnixMilli(int64(m.Due.Order))}, items[0])
}

// record adds to a slot one record with a time of its own.
func (w *world) recordAt(o *object, id catalog.StreamID, ts int64, bytes uint64) {
	w.values++
	o.add(id, 0, []uint64{w.values}, []format.Append{{Count: 1, Bytes: bytes, FirstTimestamp: ts, MaxTimestamp: ts}})
}

// windowed gives deletions an hour in which they can be undone.
func (s *setup) windowed() {
	timing := testTiming()
	timing.UndeleteWindow = time.Hour
	s.cat = catalog.New(s.store, s.clk, timing, func(name string) { s.branches[name]++ })
	s.world.cat = s.cat
}

func TestUndeleteStream(t *testing.T) {
	for _, f := range []fault{noFault, conflict, lostWithEffect, lostWithoutEffect, lostLate, crashBefore, crashAfter, crashLate} {
		s := newSetup(t, 128)
		s.windowed()
		star, id := s.filled(2, catalog.Policy{MaxAgeMS: 3_600_000})
		before := s.view(id)
		s.NoError(errOf(s.cat.DeleteStream(s.Context(), id)))
		m := s.due(catalog.Retention)
		s.NoError(s.cat.ResolveRetention(s.Context(), m, s.view(id), 0), "as the duty does of a deleted stream")
		s.store.plan = []fault{f}
		if dies(func() { s.NoError(errOf(s.cat.UndeleteStream(s.Context(), id))) }) {
			s.NoError(errOf(s.cat.UndeleteStream(s.Context(), id)))
		}
		s.Zero(s.store.landAll(), "a late twin changes nothing")
		v, err := s.cat.UndeleteStream(s.Context(), id)
		s.NoError(err, "of an active stream it changes nothing")
		s.Equal(s.view(id), v)
		s.Equal(before.Stream, v.Stream)
		s.Equal(before.Head, v.Head)
		s.Equal(id, must(s.cat.FindStream(s.Context(), "s")))
		s.Empty(s.store.keys("due/teardown/"))
		s.LessOrEqual(s.due(catalog.Retention).Due.Order, uint64(s.clk.now.UnixMilli()), "armed for now")
		s.slots(star, 1, id)
		s.Equal(catalog.Accepted, s.absorbed(star, 1).Verdicts[0][0][0].Code)
	}
}

func errOf[T any](_ T, err error) error { return err }

// With another window than at the deletion its marker is found all the same: left behind, it would tear the stream down.
func TestUndeleteFindsTheMarkerUnderAnotherWindow(t *testing.T) {
	s := newSetup(t, 128)
	s.windowed()
	_, id := s.filled(1, catalog.Policy{})
	s.NoError(errOf(s.cat.DeleteStream(s.Context(), id)))
	other := catalog.New(s.store, s.clk, testTiming(), nil)
	s.NoError(errOf(other.UndeleteStream(s.Context(), id)))
	s.Empty(s.store.keys("due/teardown/"))
}

func TestUndeleteRefuses(t *testing.T) {
	s := newSetup(t, 128)
	s.windowed()
	_, id := s.filled(1, catalog.Policy{})
	s.NoError(errOf(s.cat.DeleteStream(s.Context(), id)))
	other, _, err := s.cat.CreateStream(s.Context(), "s", catalog.Policy{})
	s.NoError(err)
	s.ErrorIs(errOf(s.cat.UndeleteStream(s.Context(), id)), catalog.ErrNameTaken)
	s.NoError(errOf(s.cat.DeleteStream(s.Context(), other.ID)))
	m := s.world.marker(s.store.keys("due/teardown/")[0])
	if m.Due.Subject != id.String() {
		m = s.world.marker(s.store.keys("due/teardown/")[1])
	}
	// The teardown begins between the look and the commit: it is first.
	s.during("commit", 0, func() { s.NoError(errOf(s.cat.BeginTeardown(s.Context(), m, id))) })
	s.ErrorIs(errOf(s.cat.UndeleteStream(s.Context(), id)), catalog.ErrTearing)
	s.Positive(s.branches["undelete.conflict"])
	s.ErrorIs(errOf(s.cat.UndeleteStream(s.Context(), 77)), catalog.ErrNoStream)

	// And the other way round.
	m2 := s.world.marker(catalog.DueKey(catalog.Teardown, uint64(s.clk.now.Add(time.Hour).UnixMilli()), other.ID.String()))
	s.during("commit", 0, func() { s.NoError(errOf(s.cat.UndeleteStream(s.Context(), other.ID))) })
	s.ErrorIs(errOf(s.cat.BeginTeardown(s.Context(), m2, other.ID)), catalog.ErrMoved)
}

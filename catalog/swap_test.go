package catalog_test

import (
	"strings"
	"testing"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// packed makes n streams with a record each, absorbs them in one slot and packs them into one object.
func (s *setup) packed(n int) (ids []catalog.StreamID, p *publisher) {
	star := s.world.start("a")
	for i := range n {
		ids = append(ids, s.world.createStream(strings.Repeat("s", i+1)))
	}
	s.world.putSlot(star, 0, func(o *object) {
		for _, id := range ids {
			s.world.record(o, id, 1, format.Append{})
		}
	})
	_, err := s.world.absorb(star, 1, false)
	s.NoError(err)
	var runs [][]catalog.SpanAt
	for _, id := range ids {
		runs = append(runs, s.spans(id))
	}
	p = s.world.publish(runs)
	return ids, p
}

func (s *setup) spans(id catalog.StreamID) []catalog.SpanAt {
	out, more, err := s.cat.Spans(s.Context(), id, 0, 100)
	s.NoError(err)
	s.False(more)
	return out
}

// steps takes a publisher n steps on, all runs at a time.
func (s *setup) steps(p *publisher, n int) {
	for range n {
		s.world.step(p, 100)
	}
}

func (s *setup) swap(p *publisher, runs []catalog.Run) (catalog.Swapped, error) {
	return s.cat.Swap(s.Context(), catalog.Publish{Object: p.armed.Object, Size: p.object.size(), Intent: p.armed.Version}, runs)
}

func TestSwapMakesOneSpanOfARun(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	for range 3 {
		s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 2, format.Append{}) })
		_, err := s.world.absorb(star, 1, false)
		s.NoError(err)
	}
	old := s.spans(id)
	s.Len(old, 3)
	p := s.world.publish([][]catalog.SpanAt{old})
	s.steps(p, 1)
	out, err := s.swap(p, p.runs)
	s.NoError(err)
	s.Equal(catalog.Swapped{Placed: 3}, out)
	now := s.spans(id)
	s.Len(now, 1)
	want := catalog.Span{First: 0, Count: 6, Object: p.armed.Object, Offset: format.HeaderLength, Length: 6 * blockBytes,
		FirstTimestamp: old[0].Span.FirstTimestamp, MaxTimestamp: old[2].Span.MaxTimestamp, Bytes: 60, BytePos: old[2].Span.BytePos}
	s.Equal(want, now[0].Span)
	s.Empty(s.store.keys("due/reap/"), "a slot has no reap-check: its chain watches it")
	s.Len(s.store.keys("ref/"), 1)

	out, err = s.swap(p, nil)
	s.NoError(err)
	s.Zero(out)
}

// A span that went, or moved elsewhere, is dropped and parts its run in two; the others
// are placed.
func TestSwapDropsWhatIsHeldElsewhere(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	for range 4 {
		s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
		_, err := s.world.absorb(star, 1, false)
		s.NoError(err)
	}
	old := s.spans(id)
	slow := s.world.publish([][]catalog.SpanAt{old})
	fast := s.world.publish([][]catalog.SpanAt{old[2:3]})
	s.steps(slow, 1)
	s.steps(fast, 2)
	s.NoError(s.world.kill(id, 1))
	out, err := s.swap(slow, slow.runs)
	s.NoError(err)
	s.Equal(catalog.Swapped{Placed: 2, Dropped: 2}, out)
	var objects []string
	for _, sp := range s.spans(id) {
		objects = append(objects, sp.Span.Object)
	}
	s.Equal([]string{slow.armed.Object, fast.armed.Object, slow.armed.Object}, objects)
	s.Positive(s.branches["swap.dropped"])
	// Not all was placed: the publisher may not end the intent without a reap-check.
	s.NoError(s.cat.ResolveIntent(s.Context(), slow.armed.Object, slow.armed.Version, false))
	s.Len(s.store.keys("due/reap/"), 1)
}

// The commit that takes an object's ref arms its reap-check; both of two streams that
// lose theirs in a bucket share one marker, and the second one leans on it or adds its name.
func TestSwapArmsTheReapOfWhatLostARef(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 3)
	for i, id := range ids {
		q := s.world.publish([][]catalog.SpanAt{s.spans(id)})
		s.steps(q, 3)
		s.Len(s.store.keys("due/reap/"), 1, "stream %d", i)
		s.Len(s.store.keys("pending/"), 2+i+1, "two of the batch marker, and those that lost a ref")
	}
	s.NotContains(s.world.last.refs, p.armed.Object)
}

// However small the store's batches are, a publish of many spans goes through, each
// commit complete in itself.
func TestSwapFitsSmallBatches(t *testing.T) {
	for _, maxOps := range []int{32, 40, 1024} {
		s := newSetup(t, maxOps)
		star, id := s.world.start("a"), s.world.createStream("s")
		for range 25 {
			s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
			_, err := s.world.absorb(star, 1, false)
			s.NoError(err)
		}
		first := s.world.publish([][]catalog.SpanAt{s.spans(id)})
		s.steps(first, 3)
		second := s.world.publish([][]catalog.SpanAt{s.spans(id)})
		s.steps(second, 3)
		s.True(first.gone && second.gone)
		for _, sp := range s.spans(id) {
			s.Equal(second.armed.Object, sp.Span.Object)
		}
	}
}

// A conflict halves what one commit carries, down to one run, so that one contended
// span does not hold up all others.
func TestSwapSplitsOnConflict(t *testing.T) {
	s := newSetup(t, 128)
	_, p := s.packed(4)
	s.steps(p, 1)
	s.store.plan = []fault{conflict, conflict}
	var placed []int
	s.store.committed = func() {
		s.world.check()
		n := 0
		for range s.world.last.refs[p.armed.Object] {
			n++
		}
		placed = append(placed, n)
	}
	out, err := s.swap(p, p.runs)
	s.NoError(err)
	s.Equal(4, out.Placed)
	s.Equal([]int{1, 3, 4}, placed)
}

// A lost answer that had its effect is found in the spans themselves.
func TestSwapFindsItsTwin(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		_, p := s.packed(3)
		s.steps(p, 1)
		s.store.plan = []fault{f}
		out, err := s.swap(p, p.runs)
		s.NoError(err)
		s.Equal(catalog.Swapped{Placed: 3}, out)
		s.Zero(s.store.landAll(), "a late twin can land no more")
		if f == lostWithEffect {
			s.Equal(3, s.branches["swap.twin"])
		}
	}
}

func TestSwapNeedsItsIntent(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 1)
	_, err := s.cat.Swap(s.Context(), catalog.Publish{Object: "settled/unheard", Size: p.object.size()}, p.runs)
	s.ErrorIs(err, catalog.ErrIntentLost, "an object that was never announced is never named")

	in, ok, err := s.cat.ReadIntent(s.Context(), p.armed.Object)
	s.NoError(err)
	s.True(ok)
	_, err = s.swap(p, p.runs[:1])
	s.NoError(err)
	v, err := s.cat.Condemn(s.Context(), in)
	s.NoError(err)
	before := s.spans(ids[1])
	_, err = s.swap(p, p.runs[1:])
	s.ErrorIs(err, catalog.ErrIntentLost)
	s.Equal(before, s.spans(ids[1]))
	_, err = s.swap(p, p.runs[:1])
	s.NoError(err, "what was placed before needs no intent any more")
	s.NoError(s.cat.GiveUp(s.Context(), p.armed.Object))
	s.ErrorIs(s.cat.ResolveCondemned(s.Context(), p.armed.Object, v), catalog.ErrMoved, "given up after the look: the orphan duty looks again")
}

// A killer asks again whether what it meets after a conflict should go, and takes the ref
// of the object that is named then.
func TestKillAfterTheSpanMoved(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 1)
	stale := [][]catalog.SpanAt{s.spans(ids[0]), s.spans(ids[1])}
	s.steps(p, 2)
	s.world.killed[ids[0]] = 1

	n, err := s.cat.Kill(s.Context(), stale[0], func(now catalog.SpanAt) bool {
		s.Equal(p.armed.Object, now.Span.Object)
		return true
	})
	s.NoError(err)
	s.Equal(1, n)
	s.Empty(s.spans(ids[0]))
	s.Len(s.store.keys("ref/"), 1)
	s.Len(s.store.keys("due/reap/"), 1)

	n, err = s.cat.Kill(s.Context(), stale[1], func(catalog.SpanAt) bool { return false })
	s.NoError(err)
	s.Zero(n)
	s.Len(s.spans(ids[1]), 1, "it was not wanted any more")

	n, err = s.cat.Kill(s.Context(), stale[0], func(catalog.SpanAt) bool { s.Fail("it is gone"); return true })
	s.NoError(err)
	s.Equal(1, n, "gone counts as killed")
}

func TestKillInSmallBatches(t *testing.T) {
	s := newSetup(t, 32)
	ids, p := s.packed(5)
	s.steps(p, 3)
	var all []catalog.SpanAt
	for _, id := range ids {
		s.world.killed[id] = 1
		all = append(all, s.spans(id)...)
	}
	n, err := s.cat.Kill(s.Context(), all, func(catalog.SpanAt) bool { return true })
	s.NoError(err)
	s.Equal(5, n)
	s.Empty(s.store.keys("ref/"))
	s.Len(s.store.keys("due/reap/"), 1, "one object, one reap-check")
}

// A kill leans on a reap-check that already says all that is needed: it writes no
// marker, but holds on to the one it leaned on.
func TestKillLeansOnAStandingReapCheck(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	for range 3 {
		s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
		_, err := s.world.absorb(star, 1, false)
		s.NoError(err)
	}
	// One object with three spans of one stream, made by three swaps.
	q := s.world.publish([][]catalog.SpanAt{s.spans(id)})
	s.steps(q, 1)
	for i := range 3 {
		r := q.runs[0]
		r.Old = r.Old[i : i+1]
		_, err := s.swap(q, []catalog.Run{r})
		s.NoError(err)
	}
	s.NoError(s.cat.ResolveIntent(s.Context(), q.armed.Object, q.armed.Version, true))
	s.NoError(s.world.kill(id, 1))
	key := s.store.keys("due/reap/")[0]
	v := s.version(key)
	s.NoError(s.world.kill(id, 2))
	s.Equal(v, s.version(key), "not written again")
	s.Positive(s.branches["reap.leaned"])

	// The duty saw the last span's ref and stands down; a kill of that very span leans
	// on the marker first. The stand-down must fail, or nobody watches.
	at := s.reapAt(key)
	refs, _, err := s.cat.Refs(s.Context(), q.armed.Object, 1)
	s.NoError(err)
	s.during("commit", 0, func() { s.NoError(s.world.kill(id, 3)) })
	s.ErrorIs(s.cat.StandDownReap(s.Context(), at, refs[:1], 0), catalog.ErrMoved)
	s.Equal(v, s.version(key))
	s.Empty(s.store.keys("ref/"))
}

func (s *setup) reapAt(key string) catalog.ReapAt {
	m := s.world.marker(key)
	return catalog.ReapAt{Key: key, Object: m.Due.Object(), Marker: catalog.DecodeReapMarker(m.Value), Version: m.Version}
}

// The marker is resolved between a killer's look at it and its commit: the killer arms it anew.
func TestKillDoesNotLeanOnAMarkerThatGoes(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(3)
	s.steps(p, 3)
	s.NoError(s.world.kill(ids[0], 1))
	key := s.store.keys("due/reap/")[0]
	refs, _, err := s.cat.Refs(s.Context(), p.armed.Object, 5)
	s.NoError(err)
	s.Len(refs, 2)
	s.during("commit", 0, func() { s.NoError(s.cat.StandDownReap(s.Context(), s.reapAt(key), refs[1:2], 0)) })
	s.NoError(s.world.kill(ids[1], 1))
	s.Len(s.store.keys("due/reap/"), 1)
	s.Positive(s.branches["kill.conflict"])
	s.True(s.world.last.watched(p.armed.Object))
}

func TestErrorsOfTheStoreComeThrough(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(1)
	s.steps(p, 1)
	s.store.readFails = func(string) bool { return true }
	_, err := s.swap(p, p.runs)
	s.NoError(err, "nothing is read where slots are swapped")
	s.steps(p, 1)
	s.store.readFails = nil
	doomed := s.spans(ids[0])
	s.store.readFails = func(string) bool { return true }
	_, err = s.cat.Kill(s.Context(), doomed, nil)
	s.ErrorIs(err, metastore.ErrUnavailable)
	_, _, err = s.cat.Refs(s.Context(), p.armed.Object, 1)
	s.ErrorIs(err, metastore.ErrUnavailable, "a failed read is no proof of death")
}

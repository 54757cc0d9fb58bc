package catalog_test

import (
	"testing"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// pieces settles n spans of one stream into one object, each as a run of its own: what a swap leaves of a
// run that did not fit into a commit.
func (s *setup) pieces(n int) (catalog.StreamID, *publisher) {
	star, id := s.world.start("a"), s.world.createStream("s")
	for range n {
		s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 2, format.Append{}) })
		_, err := s.world.absorb(star, 1, false)
		s.NoError(err)
	}
	p := s.world.publish([][]catalog.SpanAt{s.spans(id)})
	whole := p.runs[0]
	p.runs = nil
	for i := range whole.Old {
		p.runs = append(p.runs, catalog.Run{Stream: id, Old: whole.Old[i : i+1], Section: whole.Section})
	}
	s.steps(p, 3)
	s.Len(s.spans(id), n)
	return id, p
}

func TestMergeMakesOneSpanWithoutWritingBytes(t *testing.T) {
	s := newSetup(t, 128)
	id, p := s.pieces(3)
	object, reaps := p.armed.Object, len(s.store.keys("due/reap/"))
	old := s.spans(id)
	merged, err := s.cat.Merge(s.Context(), old)
	s.NoError(err)
	s.True(merged)
	now := s.spans(id)
	s.Len(now, 1)
	want := old[0].Span
	want.Count, want.Length, want.Bytes = 6, 6*blockBytes, 60
	want.MaxTimestamp, want.BytePos = old[2].Span.MaxTimestamp, old[2].Span.BytePos
	s.Equal(want, now[0].Span)
	refs, _, err := s.cat.Refs(s.Context(), object, 10)
	s.NoError(err)
	s.Len(refs, 1)
	s.Equal(catalog.Ref{Bytes: uint64(want.Length), ObjectSize: uint64(p.object.size())}, refs[0].Ref)
	s.Len(s.store.keys("due/reap/"), reaps, "no byte became dead")

	merged, err = s.cat.Merge(s.Context(), now)
	s.NoError(err)
	s.False(merged, "one is one already")
}

// What is not beside one another, or moved since it was read, is left as it is.
func TestMergeLeavesWhatIsNotBeside(t *testing.T) {
	s := newSetup(t, 128)
	id, p := s.pieces(4)
	old := s.spans(id)
	for _, spans := range [][]catalog.SpanAt{{old[0], old[2]}, {old[1], old[0]}, {old[0], old[0]}} {
		merged, err := s.cat.Merge(s.Context(), spans)
		s.NoError(err)
		s.False(merged)
	}
	q := s.world.publish([][]catalog.SpanAt{old[1:2]})
	s.steps(q, 3)
	merged, err := s.cat.Merge(s.Context(), old)
	s.NoError(err)
	s.False(merged, "one of them lies elsewhere by now")
	s.Len(s.spans(id), 4)
	s.NoError(s.cat.MergeRange(s.Context(), id, p.armed.Object, 0, 100))
	s.Len(s.spans(id), 3, "the two behind it are one")
	s.Positive(s.branches["merge.conflict"])
}

// Two sections of one stream in one object are two runs of blocks, however their offsets lie.
func TestMergeLeavesSectionsApart(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	for range 2 {
		s.world.putSlot(star, 0, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
		_, err := s.world.absorb(star, 1, false)
		s.NoError(err)
	}
	old := s.spans(id)
	object := "settled/two"
	w := format.NewWriter(format.KindSettled, format.Stored())
	for i := range uint64(2) {
		w.Begin(uint64(id), i)
		w.Add(1, []byte("record"))
	}
	_, f, err := w.Finish()
	s.NoError(err)
	parts := f.Sections
	s.Equal(parts[0].Offset+parts[0].Length, parts[1].Offset)
	s.store.committed = nil // the object is in no bucket
	armed, err := s.cat.ArmIntent(s.Context(), object)
	s.NoError(err)
	_, err = s.cat.Swap(s.Context(), catalog.Publish{Object: object, Size: 1000, Intent: armed.Version}, []catalog.Run{
		{Stream: id, Old: old[:1], Section: &parts[0]}, {Stream: id, Old: old[1:], Section: &parts[1]},
	})
	s.NoError(err)
	merged, err := s.cat.Merge(s.Context(), s.spans(id))
	s.NoError(err)
	s.False(merged)
}

func TestMergeLostAnswers(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate, conflict} {
		s := newSetup(t, 128)
		id, _ := s.pieces(3)
		s.store.plan = []fault{f}
		merged, err := s.cat.Merge(s.Context(), s.spans(id))
		s.NoError(err)
		s.Equal(f == lostWithoutEffect || f == lostLate, merged)
		s.Zero(s.store.landAll(), "a late twin can land no more")
		want := 1
		if f == conflict {
			want = 3
		}
		s.Len(s.spans(id), want)
	}
	for _, f := range []fault{crashBefore, crashAfter} {
		s := newSetup(t, 128)
		id, _ := s.pieces(3)
		s.store.plan = []fault{f}
		s.True(dies(func() { _, _ = s.cat.Merge(s.Context(), s.spans(id)) }))
		s.world.check()
	}
}

// A stretch of any length becomes one span, whatever a commit takes; other objects' spans are walls.
func TestMergeRange(t *testing.T) {
	for _, maxOps := range []int{32, 128} {
		s := newSetup(t, maxOps)
		id, p := s.pieces(90)
		wall := s.world.publish([][]catalog.SpanAt{s.spans(id)[40:41]})
		s.steps(wall, 3)
		s.NoError(s.cat.MergeRange(s.Context(), id, p.armed.Object, 0, 60))
		now := s.spans(id)
		s.Len(now, 1+60, "thirty are one, what lies behind the range stays")
		s.Equal(uint64(60), now[0].Span.Count)
		s.NoError(s.cat.MergeRange(s.Context(), id, p.armed.Object, 0, 180))
		s.Len(s.spans(id), 3, "up to the wall, the wall, what follows")
	}
}

// A reap-check whose probe saw a ref that a merge then takes looks again, and finds the one that is left.
func TestMergeUnderAStandDown(t *testing.T) {
	s := newSetup(t, 128)
	id, p := s.pieces(3)
	object := p.armed.Object
	s.NoError(s.world.kill(id, 1)) // nothing goes: the first span reaches to 1
	s.NoError(s.world.kill(id, 2))
	s.clk.now = s.clk.now.Add(s.cat.Timing().ReapGrace * 2)
	at := s.reapAt(s.store.keys("due/reap/")[0])
	seen, _, err := s.cat.Refs(s.Context(), object, 1)
	s.NoError(err)
	merged, err := s.cat.Merge(s.Context(), s.spans(id))
	s.NoError(err)
	s.True(merged)
	s.ErrorIs(s.cat.StandDownReap(s.Context(), at, seen, 0), catalog.ErrMoved)
	seen, _, err = s.cat.Refs(s.Context(), object, 1)
	s.NoError(err)
	s.NoError(s.cat.StandDownReap(s.Context(), at, seen, 0))
}

package catalog_test

import (
	"testing"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// bundled takes a flight with a bundle to its slot, and returns the bundle's key.
func (s *setup) bundled(star *starLife, build func(o *object)) string {
	slot := star.next
	s.world.announce(star, 0, build)
	object := star.bundles[slot].armed.Object
	in := s.intent(object)
	s.Equal(star.chain, in.Chain)
	s.Equal(slot, in.Slot)
	s.world.stepBundle(star, slot)
	s.world.stepBundle(star, slot)
	s.Equal(slot+1, star.next)
	return object
}

func TestAbsorbNamesTheBundle(t *testing.T) {
	s := newSetup(t, 128)
	star := s.world.start("a")
	x, y := s.world.createStream("x"), s.world.createStream("y")
	s.slots(star, 1, x)
	bundle := s.bundled(star, func(o *object) {
		s.world.record(o, x, 3, format.Append{})
		s.world.record(o, y, 2, format.Append{})
	})
	size := s.world.objects[bundle].size()
	out := s.absorbed(star, 2)
	s.Equal(2, out.Slots)
	spans := s.spans(x)
	s.Len(spans, 2)
	s.Equal(bundle, spans[1].Span.Object)
	s.Equal(uint64(3), spans[1].Span.Count)
	refs, more, err := s.cat.Refs(s.Context(), bundle, 10)
	s.NoError(err)
	s.False(more)
	s.Len(refs, 2)
	s.Equal(catalog.Ref{Bytes: 3 * blockBytes, ObjectSize: uint64(size)}, refs[0].Ref)
	s.Empty(s.store.keys("due/orphan/"), "the refs watch it")
	s.Empty(s.store.keys("due/reap/"), "all of it was accepted")
	b, _, err := s.cat.ReadBatch(s.Context(), star.chain, 0)
	s.NoError(err)
	s.Equal(catalog.SlotItem{Slot: 1, Stream: x, First: 1, Count: 3}, b.Batch.Inventory[1], "the inventory does not tell slots apart")
	index := format.HeaderLength
	s.Equal(uint64(format.HeaderLength+blockBytes+index)+uint64(size), b.Batch.Bytes)
}

// What is turned down is announced to the reap duty where its bundle lives on, and left to the
// orphan duty where none of it was accepted.
func TestAbsorbOfBundlesTurnedDown(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	wrong := format.Append{HasExpected: true, Expected: 99}
	part := s.bundled(star, func(o *object) {
		s.world.record(o, id, 1, format.Append{})
		s.world.record(o, id, 1, wrong)
	})
	none := s.bundled(star, func(o *object) { s.world.record(o, id, 1, wrong) })
	s.absorbed(star, 2)
	s.Equal(1, s.world.last.reaps[part])
	s.NotContains(s.world.last.intents, part)
	s.Zero(s.world.last.reaps[none])
	s.Contains(s.world.last.intents, none)
	s.Equal(map[string]int{"bundle.partly": 1, "bundle.unplaced": 1}, s.branches)
}

// A bundle that is not announced any more may be gone at any moment: nothing comes to name it.
// Slots before it are absorbed.
func TestAbsorbRefusesALostBundle(t *testing.T) {
	for _, condemned := range []bool{false, true} {
		s := newSetup(t, 128)
		star, id := s.world.start("a"), s.world.createStream("s")
		s.slots(star, 1, id)
		lost := s.bundled(star, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
		delete(s.world.objects, lost) // nothing of Nova's does this
		if condemned {
			_, err := s.cat.Condemn(s.Context(), s.intent(lost))
			s.NoError(err)
		} else {
			s.NoError(s.cat.ResolveCondemned(s.Context(), lost, s.intent(lost).Version))
		}
		// The first try believes the version it was given; the conflict tells.
		s.Equal(1, s.absorbed(star, 2).Slots)
		_, err := s.world.absorb(star, 2, true)
		s.ErrorIs(err, catalog.ErrIntentLost)
		in := star.pending[1]
		in.Intent = 0
		_, err = s.cat.Absorb(s.Context(), catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{in}})
		s.ErrorIs(err, catalog.ErrIntentLost)
		s.Len(s.spans(id), 1)
	}
}

// The intent goes with the absorb. A twin that landed, or another's absorb, is told from a loss.
func TestAbsorbOfABundleFindsItsTwin(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		star, id := s.world.start("a"), s.world.createStream("s")
		s.bundled(star, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
		s.store.plan = []fault{f}
		out := s.absorbed(star, 1)
		s.Equal(catalog.Accepted, out.Verdicts[0][0][0].Code)
		s.Zero(s.store.landAll())
		s.Len(s.spans(id), 1)
	}
	// Of a chain record that is cached nothing can be concluded.
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.slots(star, 1, id)
	s.absorbed(star, 1)
	s.bundled(star, func(o *object) { s.world.record(o, id, 1, format.Append{}) })
	_, err := s.world.absorb(star, 1, false)
	s.NoError(err)
	in := star.pending[1]
	in.Intent = 0
	_, err = s.cat.Absorb(s.Context(), catalog.AbsorbRequest{Chain: star.chain, Slots: []catalog.SlotIn{in}, Cache: star.cache})
	s.ErrorIs(err, catalog.ErrFenced, "it was absorbed, and its intent went with that")
}

func TestGiveUpKeepsTheSlotOfABundle(t *testing.T) {
	s := newSetup(t, 128)
	star := s.world.start("a")
	object := catalog.BundleKey(star.chain, 7, [16]byte{1})
	for range 2 { // with an intent and without
		s.NoError(s.cat.GiveUp(s.Context(), object))
		in := s.intent(object)
		s.True(in.Condemned)
		s.Equal(star.chain, in.Chain)
		s.Equal(uint64(7), in.Slot)
		s.NoError(s.cat.ResolveCondemned(s.Context(), object, in.Version))
	}
}

// A flight with a bundle that kept to FlightCost fits one commit of the least size, whatever is
// turned down in it.
func TestBundlesFitTheLeastCommits(t *testing.T) {
	for _, maxOps := range []int{catalog.LeastOps, 48, 128} {
		for _, accepted := range []bool{false, true} {
			s := newSetup(t, maxOps)
			star := s.world.start("a")
			first, most := s.cat.FlightCost(true, true, true)
			again, _ := s.cat.FlightCost(false, true, true)
			s.LessOrEqual(first, most)
			var ids []catalog.StreamID
			for cost := first; cost <= most; cost += first {
				ids = append(ids, s.world.createStream(string(rune('a'+len(ids)))))
			}
			left := most - len(ids)*first
			for range 2 {
				s.bundled(star, func(o *object) {
					for i, id := range ids {
						next := s.world.last.heads[id].Next
						if s.world.record(o, id, 1, format.Append{HasExpected: accepted, Expected: next}); i < len(ids)-1 {
							continue
						}
						for n := range left / again {
							// Every second one fits, so that each is a span of its own.
							s.world.record(o, id, 1, format.Append{HasExpected: true, Expected: next + 1 + uint64(n+1)/2 + uint64(n%2)*99})
						}
					}
				})
			}
			s.Equal(1, s.absorbed(star, 2).Slots)
			s.Equal(1, s.absorbed(star, 2).Slots)
		}
	}
}

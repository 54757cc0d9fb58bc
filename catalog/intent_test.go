package catalog_test

import (
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
)

func (s *setup) intent(object string) catalog.IntentAt {
	in, ok, err := s.cat.ReadIntent(s.Context(), object)
	s.NoError(err)
	s.True(ok)
	s.True(in.Readable)
	return in
}

// A PUT's deadline counts from a clock read before the first try of the announcement,
// however long its answer took.
func TestArmIntentCountsFromItsFirstTry(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		start := s.clk.now
		s.store.plan = []fault{f, lostWithoutEffect, lostWithoutEffect}
		a, err := s.cat.ArmIntent(s.Context(), "settled/x")
		s.NoError(err)
		s.True(s.clk.now.After(start))
		s.Equal(start.Add(testTiming().PutHorizon), a.NotAfter)
		in := s.intent("settled/x")
		s.Equal(start.UnixMilli(), in.Birth)
		s.Equal(in.Version, a.Version)
		s.Zero(s.store.landAll())
	}
	s := newSetup(t, 128)
	cat := catalog.New(s.store, s.clk, catalog.DefaultTiming(true), nil)
	a, err := cat.ArmIntent(s.Context(), "settled/x")
	s.NoError(err)
	s.Zero(a.NotAfter)
	_, err = cat.ArmIntent(s.Context(), "settled/x")
	s.Error(err, "a key is of one publish")
}

// A twin of the announcement that was condemned before it was found is no announcement.
func TestArmIntentCondemnedMeanwhile(t *testing.T) {
	s := newSetup(t, 128)
	s.store.plan = []fault{lostWithEffect}
	s.during("commit", 1, func() {
		_, err := s.cat.Condemn(s.Context(), s.intent("settled/x"))
		s.NoError(err)
	})
	_, err := s.cat.ArmIntent(s.Context(), "settled/x")
	s.ErrorIs(err, catalog.ErrIntentLost)
}

func TestResolveIntentNeedsARefInTheSameCommit(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 1)
	s.ErrorIs(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, true), catalog.ErrMoved, "nothing names it")
	s.steps(p, 1)
	// Both refs are killed between the look and the commit.
	s.during("commit", 0, func() {
		s.NoError(s.world.kill(ids[0], 1))
		s.NoError(s.world.kill(ids[1], 1))
	})
	s.ErrorIs(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, true), catalog.ErrMoved)
	s.Equal(p.armed.Version, s.intent(p.armed.Object).Version, "the intent stands")
}

func TestResolveIntentGoesOnWithAnotherRef(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 2)
	low := min(ids[0], ids[1])
	s.during("commit", 0, func() { s.NoError(s.world.kill(low, 1)) })
	s.NoError(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, true))
	s.Empty(s.store.keys("due/orphan/"))
}

// Whoever is not the publisher that placed everything arms the reap-check: no kill will
// announce the bytes that were never referenced.
func TestResolveIntentOfAnotherArmsTheReap(t *testing.T) {
	for _, whole := range []bool{true, false} {
		s := newSetup(t, 128)
		_, p := s.packed(3)
		s.steps(p, 2)
		s.store.plan = []fault{lostWithEffect}
		s.NoError(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, whole))
		s.ErrorIs(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, whole), catalog.ErrIntentLost, "it is gone, and not by a lost try of this call")
		s.Equal(1, s.branches["intent.resolve.twin"])
		if whole {
			s.Empty(s.store.keys("due/reap/"))
		} else {
			s.Len(s.store.keys("due/reap/"), 1)
		}
	}
}

func TestResolveIntentOfManyStreams(t *testing.T) {
	s := newSetup(t, 1024)
	_, p := s.packed(12)
	s.steps(p, 2)
	s.NoError(s.cat.ResolveIntent(s.Context(), p.armed.Object, p.armed.Version, false))
	r := s.reapAt(s.store.keys("due/reap/")[0])
	s.True(r.Marker.Shared)
	s.Len(r.Marker.Streams, catalog.MaxAttributed)
	ready := time.UnixMilli(int64(must(catalog.ParseDue(r.Key)).Order)).Sub(s.clk.now)
	s.GreaterOrEqual(ready, testTiming().ReapGrace)
}

func TestCondemn(t *testing.T) {
	for _, f := range []fault{noFault, lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		a, err := s.cat.ArmIntent(s.Context(), "settled/x")
		s.NoError(err)
		in := s.intent("settled/x")
		s.store.plan = []fault{f}
		v, err := s.cat.Condemn(s.Context(), in)
		s.NoError(err)
		s.NotEqual(a.Version, v)
		now := s.intent("settled/x")
		s.True(now.Condemned)
		s.Equal(v, now.Version)
		s.Equal(in.Birth, now.Birth)
		s.Zero(s.store.landAll())

		_, err = s.cat.Condemn(s.Context(), in)
		s.ErrorIs(err, catalog.ErrMoved, "it is not as it was judged")
		s.ErrorIs(s.cat.ResolveCondemned(s.Context(), "settled/x", a.Version), catalog.ErrMoved)
		s.NoError(s.cat.ResolveCondemned(s.Context(), "settled/x", v))
		s.NoError(s.cat.ResolveCondemned(s.Context(), "settled/x", v), "gone counts as resolved")
	}
}

// A resolve names the version that was judged: a marker armed anew under the same key stands.
func TestResolveLeavesWhatWasArmedAnew(t *testing.T) {
	s := newSetup(t, 128)
	a, err := s.cat.ArmIntent(s.Context(), "settled/x")
	s.NoError(err)
	s.during("commit", 0, func() { s.NoError(s.cat.GiveUp(s.Context(), "settled/x")) })
	s.ErrorIs(s.cat.ResolveCondemned(s.Context(), "settled/x", a.Version), catalog.ErrMoved)
	s.True(s.intent("settled/x").Condemned)
	s.Positive(s.branches["resolve.moved"])
	s.ErrorIs(s.cat.Discard(s.Context(), catalog.IntentKey("settled/x"), a.Version), catalog.ErrMoved)
	m := s.world.marker(catalog.IntentKey("settled/x"))
	s.NoError(s.cat.ResolveMarker(s.Context(), m))
	s.Empty(s.store.keys("due/"))
}

// A publisher gives up what it announced even where the intent is gone; its grace begins anew.
func TestGiveUp(t *testing.T) {
	s := newSetup(t, 128)
	a, err := s.cat.ArmIntent(s.Context(), "settled/x")
	s.NoError(err)
	s.clk.now = s.clk.now.Add(time.Hour)
	s.store.plan = []fault{conflict, lostWithEffect}
	s.NoError(s.cat.GiveUp(s.Context(), "settled/x"))
	in := s.intent("settled/x")
	s.True(in.Condemned)
	s.NotEqual(a.Version, in.Version)
	s.GreaterOrEqual(in.Birth, a.NotAfter.Add(time.Hour-testTiming().PutHorizon).UnixMilli())
	s.NoError(s.cat.ResolveCondemned(s.Context(), "settled/x", in.Version))
	s.NoError(s.cat.GiveUp(s.Context(), "settled/x"))
	s.True(s.intent("settled/x").Condemned)
}

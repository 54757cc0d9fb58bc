package catalog_test

import (
	"math"
	"testing"

	"github.com/nova-store/nova/catalog"
)

// collectable packs three streams and arms the gc marker of their object.
func (s *setup) collectable(reclaim uint64) (ids []catalog.StreamID, object string) {
	ids, p := s.packed(3)
	s.steps(p, 3)
	s.armGC(p.armed.Object, reclaim)
	return ids, p.armed.Object
}

func (s *setup) armGC(object string, reclaim uint64) {
	key := catalog.DueKey(catalog.Reap, 5, s.world.folded(object))
	s.raw(key, []byte("?"))
	refs, _, err := s.cat.Refs(s.Context(), object, 10)
	s.NoError(err)
	s.NoError(s.cat.StandDownReap(s.Context(), s.reapAt(key), refs, reclaim))
}

func (s *setup) gcAt(reclaim uint64, object string) catalog.GCAt {
	key := catalog.DueKey(catalog.GC, math.MaxUint64-reclaim, s.world.folded(object))
	r := s.store.mirror[key]
	s.NotZero(r.Version)
	return catalog.GCAt{Key: key, Object: object, Marker: catalog.DecodeGCMarker(r.Value), Version: r.Version}
}

func (s *setup) gcKeys() int { return len(s.store.keys("due/gc/")) + len(s.store.keys("gc/")) }

func TestResolveGC(t *testing.T) {
	s := newSetup(t, 128)
	ids, object := s.collectable(100)
	s.Len(s.gcAt(100, object).Marker.Streams, len(ids))
	pending := len(s.store.keys("pending/"))
	g := s.gcAt(100, object)
	s.NoError(s.cat.ResolveGC(s.Context(), g, false))
	s.Zero(s.gcKeys())
	s.Len(s.store.keys("pending/"), pending-3)
	s.Empty(s.store.keys("due/reap/"))
	s.NoError(s.cat.ResolveGC(s.Context(), g, false), "gone counts as resolved")
}

// No ref: the reap-check is armed in the very commit.
func TestResolveGCArmsReap(t *testing.T) {
	s := newSetup(t, 128)
	ids, object := s.collectable(100)
	s.NoError(s.cat.ResolveGC(s.Context(), s.gcAt(100, object), true))
	s.Zero(s.gcKeys())
	s.Len(s.store.keys("due/reap/"), 1)
	s.ElementsMatch(ids, s.reapAt(s.store.keys("due/reap/")[0]).Marker.Streams)
}

// A larger reclaim that took the marker's place keeps its own record; one armed anew under the same key stands.
func TestResolveGCAfterAReplacement(t *testing.T) {
	s := newSetup(t, 128)
	_, object := s.collectable(100)
	g := s.gcAt(100, object)
	s.during("commit", 0, func() { s.armGC(object, 200) })
	s.NoError(s.cat.ResolveGC(s.Context(), g, false))
	s.Equal(2, s.gcKeys())
	now := s.gcAt(200, object)
	s.Equal(catalog.GCRecord{Marker: now.Key}, must(catalog.DecodeGCRecord(s.store.mirror[catalog.GCKey(object)].Value)))

	s.NoError(s.cat.ResolveGC(s.Context(), now, false))
	s.armGC(object, 200)
	s.ErrorIs(s.cat.ResolveGC(s.Context(), now, false), catalog.ErrMoved)
	s.Equal(2, s.gcKeys())
}

// A reap-check that moves between the read and the commit is no reason to give up.
func TestResolveGCMeetsAKiller(t *testing.T) {
	s := newSetup(t, 128)
	_, object := s.collectable(100)
	g := s.gcAt(100, object)
	s.during("commit", 0, func() { s.NoError(s.world.kill(s.world.streams[0], 1)) })
	s.NoError(s.cat.ResolveGC(s.Context(), g, true))
	s.Zero(s.gcKeys())
	s.Len(s.store.keys("due/reap/"), 1)
}

func TestResolveGCLostAnswers(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate, conflict} {
		for _, reap := range []bool{false, true} {
			s := newSetup(t, 128)
			_, object := s.collectable(100)
			s.store.plan = []fault{f}
			s.NoError(s.cat.ResolveGC(s.Context(), s.gcAt(100, object), reap))
			s.Zero(s.gcKeys())
			s.Zero(s.store.landAll(), "a late twin can land no more")
			s.Equal(reap, len(s.store.keys("due/reap/")) == 1)
		}
	}
	for _, f := range []fault{crashBefore, crashAfter, crashLate} {
		s := newSetup(t, 128)
		_, object := s.collectable(100)
		g := s.gcAt(100, object)
		s.store.plan = []fault{f}
		s.True(dies(func() { _ = s.cat.ResolveGC(s.Context(), g, true) }))
		s.store.landAll()
		s.world.check()
		s.NoError(s.cat.ResolveGC(s.Context(), g, true), "another run")
		s.Zero(s.gcKeys())
	}
}

// A marker that gc/{object} does not name takes no other's record along.
func TestResolveGCOfAStrayMarker(t *testing.T) {
	s := newSetup(t, 128)
	_, object := s.collectable(100)
	s.store.committed = nil // the checker knows no strays
	s.raw(catalog.DueKey(catalog.GC, math.MaxUint64-7, s.world.folded(object)), []byte("?"))
	s.NoError(s.cat.ResolveGC(s.Context(), s.gcAt(7, object), false))
	s.Equal(2, s.gcKeys())
	s.NotZero(s.gcAt(100, object).Version)
}

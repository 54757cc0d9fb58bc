package catalog_test

import (
	"math"
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

func TestRearmReap(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(2)
	s.steps(p, 2) // the intent stands still
	s.NoError(s.world.kill(ids[0], 1))
	old := s.reapAt(s.store.keys("due/reap/")[0])
	s.clk.now = s.clk.now.Add(time.Hour)
	s.NoError(s.cat.RearmReap(s.Context(), old, time.Minute))
	now := s.reapAt(s.store.keys("due/reap/")[0])
	s.Equal(time.Minute.Milliseconds(), now.Marker.Delay)
	s.Equal(old.Marker.Streams, now.Marker.Streams)

	// Onto a key that stands: the two say together what each said. ids[1] was armed there meanwhile.
	s.clk.now = s.clk.now.Add(time.Hour)
	s.NoError(s.world.kill(ids[1], 1))
	keys := s.store.keys("due/reap/")
	s.Len(keys, 2)
	target := must(catalog.ParseDue(keys[1]))
	s.NoError(s.cat.RearmReap(s.Context(), now, time.UnixMilli(int64(target.Order)).Sub(s.clk.now)))
	s.Equal(keys[1:], s.store.keys("due/reap/"))
	s.ElementsMatch(ids, s.reapAt(keys[1]).Marker.Streams)

	s.clk.now = s.clk.now.Add(-5 * time.Hour)
	s.ErrorIs(s.cat.RearmReap(s.Context(), s.reapAt(keys[1]), 0), catalog.ErrMoved, "never to an earlier time")
}

// Whoever kills spans of one object within a bucket of 30 s announces it under one key: one marker, one probe.
func TestKillersOfABucketShareOneReapCheck(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(3)
	s.steps(p, 3)
	bucket := s.clk.now.Truncate(catalog.MarkerBucket).Add(catalog.MarkerBucket)
	s.clk.now = bucket.Add(time.Second)
	s.NoError(s.world.kill(ids[0], 1))
	s.clk.now = bucket.Add(25 * time.Second)
	s.NoError(s.world.kill(ids[1], 1))
	s.Len(s.store.keys("due/reap/"), 1)
	s.ElementsMatch(ids[:2], s.reapAt(s.store.keys("due/reap/")[0]).Marker.Streams)
	s.clk.now = bucket.Add(35 * time.Second)
	s.NoError(s.world.kill(ids[2], 1))
	s.Len(s.store.keys("due/reap/"), 2)
}

// An unreadable reap-check is shared by unknown streams; it is worked on like any other.
func TestUnreadableReapCheck(t *testing.T) {
	s := newSetup(t, 128)
	key := catalog.DueKey(catalog.Reap, 5, "settled!x")
	s.raw(key, []byte("?"))
	r := s.reapAt(key)
	s.True(r.Marker.Shared)
	s.NoError(s.cat.RearmReap(s.Context(), r, time.Minute))
	r = s.reapAt(s.store.keys("due/reap/")[0])
	s.True(r.Marker.Shared)
	s.NoError(s.cat.ResolveReaps(s.Context(), []catalog.ReapAt{r})[0])
	s.Empty(s.store.keys("due/"))
}

// Many are resolved in few commits; one that moved does not hold back the others.
func TestResolveReaps(t *testing.T) {
	s := newSetup(t, 32)
	var rs []catalog.ReapAt
	for i := range 40 {
		key := catalog.DueKey(catalog.Reap, uint64(i+1), "settled!x")
		s.raw(key, []byte("?"))
		rs = append(rs, s.reapAt(key))
	}
	s.raw(rs[3].Key, []byte("anew"))
	s.store.plan = []fault{noFault, lostWithEffect}
	for i, err := range s.cat.ResolveReaps(s.Context(), rs) {
		if i == 3 {
			s.ErrorIs(err, catalog.ErrMoved)
		} else {
			s.NoError(err)
		}
	}
	s.Equal([]string{rs[3].Key}, s.store.keys("due/reap/"))
	s.Empty(s.cat.ResolveReaps(s.Context(), nil))
	alone := s.cat.ResolveReaps(s.Context(), rs[3:4])
	s.ErrorIs(alone[0], catalog.ErrMoved)
}

// The stand-down arms the object's one gc marker, where there is enough to reclaim: a smaller
// reclaim changes nothing, a larger one takes its place.
func TestStandDownArmsGC(t *testing.T) {
	s := newSetup(t, 128)
	ids, p := s.packed(3)
	s.steps(p, 3)
	s.store.committed = nil // the checker's world has no gc
	object := p.armed.Object
	standDown := func(reclaim uint64) error {
		s.raw(catalog.DueKey(catalog.Reap, 5, s.world.folded(object)), []byte("?"))
		refs, _, err := s.cat.Refs(s.Context(), object, 10)
		s.NoError(err)
		return s.cat.StandDownReap(s.Context(), s.reapAt(s.store.keys("due/reap/")[0]), refs, reclaim)
	}
	marker := func(reclaim uint64) []string {
		return []string{catalog.DueKey(catalog.GC, math.MaxUint64-reclaim, s.world.folded(object))}
	}
	pending := len(s.store.keys("pending/"))
	s.NoError(standDown(0))
	s.Empty(s.store.keys("due/gc/"))
	for _, c := range []struct{ reclaim, stands uint64 }{{100, 100}, {50, 100}, {100, 100}, {200, 200}} {
		s.NoError(standDown(c.reclaim))
		s.Equal(marker(c.stands), s.store.keys("due/gc/"))
		s.Equal(catalog.GCRecord{Marker: marker(c.stands)[0]}, must(catalog.DecodeGCRecord(s.store.mirror[catalog.GCKey(object)].Value)))
		s.ElementsMatch(ids, catalog.DecodeGCMarker(s.store.mirror[marker(c.stands)[0]].Value).Streams)
		s.Len(s.store.keys("pending/"), pending+3)
	}

	// The marker that promises enough is resolved before the commit: nobody would reclaim.
	s.during("commit", 0, func() {
		_, err := s.store.apply(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.GCKey(object)), metastore.Delete(marker(200)[0])}})
		s.NoError(err)
	})
	s.ErrorIs(standDown(100), catalog.ErrMoved)
	s.Len(s.store.keys("due/reap/"), 1, "it probes again")
}

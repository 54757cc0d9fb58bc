package catalog

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/nova-store/nova/metastore"
)

// An object has one gc marker at most: gc/{object} holds its key, and the two are written and
// removed in one commit. The marker's order is what 2⁶⁴−1 leaves without the bytes to reclaim, so
// that the largest comes first.
//
// A gc marker is never an object's only watcher: it is armed on condition of a ref, and whoever takes
// the last ref arms the reap-check in the same commit. So it may be resolved whenever there is nothing to gain.

// armGC adds to b the gc marker of an object, on condition that gc/{object} is as read.
// A smaller reclaim than the standing marker's changes nothing, a larger one takes its place.
func (c *Catalog) armGC(ctx context.Context, b *batch, object string, refs []RefAt, reclaim uint64) error {
	key := DueKey(GC, math.MaxUint64-reclaim, fold(object))
	recs, err := c.store.Get(ctx, GCKey(object))
	if err != nil {
		return fmt.Errorf("gc record of %s: %w", object, err)
	}
	// Also where the standing marker promises enough: were it resolved meanwhile, nobody would reclaim.
	b.when(metastore.At(GCKey(object), recs[0].Version))
	if recs[0].Exists() {
		old, err := DecodeGCRecord(recs[0].Value)
		if err != nil {
			return fmt.Errorf("%s: %w", recs[0].Key, err)
		}
		if old.Marker <= key {
			return nil // it promises as much already, or more
		}
		marker, err := c.store.Get(ctx, old.Marker)
		if err != nil {
			return fmt.Errorf("gc marker of %s: %w", object, err)
		}
		b.del(old.Marker)
		for _, id := range DecodeGCMarker(marker[0].Value).Streams {
			b.del(pendingKey(id, old.Marker))
		}
		c.branch("gc.replaced")
	}
	var m GCMarker
	for _, ref := range refs {
		m.add(ref.Stream)
	}
	b.put(GCKey(object), GCRecord{key}.encode())
	b.put(key, m.encode())
	for _, id := range m.Streams {
		b.put(pendingKey(id, key), newEncoder(0).b)
	}
	return nil
}

// GCAt is a gc marker as judged.
type GCAt struct {
	Key     string
	Object  string
	Marker  GCMarker
	Version metastore.Version
}

// ResolveGC ends a gc marker: there is nothing to gain any more, or the gain was had. With reap
// the object's reap-check is armed in the same commit: no ref names it.
//
// Conditions: the marker is at the version judged, gc/{object} as read. Effects: the marker goes with its pending
// entries, and gc/{object}, if it names this marker; it goes at the version read, so that a larger reclaim that
// takes the marker's place meanwhile keeps its own.
//
// A crash before it leaves the marker standing, and what it says is judged anew. After it the refs
// watch the object, or the reap-checks that their going armed. A late twin fails on the marker. ErrMoved: it was armed
// anew under the same key, and stands.
func (c *Catalog) ResolveGC(ctx context.Context, g GCAt, reap bool) error {
	what := "resolving the gc marker of " + g.Object
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, GCKey(g.Object))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		var b batch
		b.when(metastore.At(g.Key, g.Version), metastore.At(GCKey(g.Object), recs[0].Version))
		b.del(g.Key)
		for _, id := range g.Marker.Streams {
			b.del(pendingKey(id, g.Key))
		}
		if recs[0].Exists() {
			if v, err := DecodeGCRecord(recs[0].Value); err != nil || v.Marker == g.Key {
				b.del(GCKey(g.Object))
			}
		}
		if reap {
			lost := &arms{objects: []string{g.Object}, by: map[string]*Attribution{g.Object: &g.Marker.Attribution}}
			if err := c.armReaps(ctx, &b, lost); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		err = c.resolveBatch(ctx, what, g.Key, b)
		if !errors.Is(err, ErrMoved) {
			return err
		}
		// Only what the marker's own version says is final: else a reap-check moved in between.
		now, rerr := c.store.Get(ctx, g.Key)
		if rerr != nil {
			return fmt.Errorf("%s: %w", what, rerr)
		}
		if now[0].Exists() && now[0].Version != g.Version {
			return err
		}
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

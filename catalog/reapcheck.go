package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// arms gathers the objects whose reap-check a commit must arm, with the streams
// that each lost. Objects keep the order in which they came.
type arms struct {
	objects []string
	by      map[string]*Attribution
	refs    map[string]string // of some objects, the key of a ref, whose value tells the object's size
}

func newArms() *arms { return &arms{by: make(map[string]*Attribution), refs: make(map[string]string)} }

func (a *arms) add(object string, id StreamID, shared bool) {
	at, ok := a.by[object]
	if !ok {
		at = &Attribution{}
		a.by[object] = at
		a.objects = append(a.objects, object)
	}
	at.add(id)
	at.Shared = at.Shared || shared
}

// addRef is add of an object that loses, or has, the ref of the span that ends at last.
func (a *arms) addRef(object string, id StreamID, last uint64, shared bool) {
	a.add(object, id, shared)
	if a.refs[object] == "" {
		a.refs[object] = RefKey(object, id, last)
	}
}

// armReaps adds to b the reap-checks of the gathered objects, ready after the reap grace.
//
// The key is one for each object and ready bucket, so that all who kill spans of a
// packed object within a bucket share one marker. Where it already says all that is needed,
// the condition that it is still so replaces the put: the killers then do not
// fight over the key, and the marker can't be resolved under the one who leans on
// it. Else attributions are merged, conditional on the version read.
//
// The caller's commit conflicts if a marker moved meanwhile: it calls again.
func (c *Catalog) armReaps(ctx context.Context, b *batch, a *arms) error {
	if len(a.objects) == 0 {
		return nil
	}
	ready := readyAt(c.clk.Now(), c.timing.ReapGrace)
	n := len(a.objects)
	keys := make([]string, n, 2*n)
	for i, o := range a.objects {
		keys[i] = DueKey(Reap, ready, fold(o))
		if ref := a.refs[o]; ref != "" {
			keys = append(keys, ref)
		}
	}
	recs, err := c.get(ctx, keys...)
	if err != nil {
		return fmt.Errorf("reading reap-checks: %w", err)
	}
	refs := recs[n:]
	for i, o := range a.objects {
		want := ReapMarker{Attribution: *a.by[o]}
		if a.refs[o] != "" {
			if ref, err := DecodeRef(refs[0].Value); err == nil {
				want.Size = ref.ObjectSize
			}
			refs = refs[1:]
		}
		c.mergeReap(b, recs[i], want)
	}
	return nil
}

// mergeReap adds to b what makes the marker at rec's key say at least what want says; of one that
// stands already the delay and the size stay as they are.
func (c *Catalog) mergeReap(b *batch, rec metastore.Record, want ReapMarker) {
	b.when(metastore.At(rec.Key, rec.Version))
	m := ReapMarker{Delay: want.Delay, Size: want.Size}
	if rec.Exists() {
		m = DecodeReapMarker(rec.Value)
	}
	changed := !rec.Exists()
	if want.Shared && !m.Shared {
		m.Shared, changed = true, true
	}
	for _, id := range want.Streams {
		before := len(m.Streams)
		if m.add(id) {
			changed = true
			if len(m.Streams) > before {
				b.put(pendingKey(id, rec.Key), newEncoder(0).b)
			}
		}
	}
	if changed {
		b.put(rec.Key, m.encode())
	} else {
		c.branch("reap.leaned")
	}
}

// reapOps is what a reap-check attributed to n streams takes to resolve, in operations; in
// conditions it takes one.
func reapOps(n int) int { return 1 + min(n, MaxAttributed) }

// ReapAt is a reap-check as judged.
type ReapAt struct {
	Key     string
	Object  string
	Marker  ReapMarker
	Version metastore.Version
}

func (r ReapAt) remove(b *batch) {
	b.when(metastore.At(r.Key, r.Version))
	b.del(r.Key)
	for _, id := range r.Marker.Streams {
		b.del(pendingKey(id, r.Key))
	}
}

// StandDownReap resolves a reap-check whose object is alive, and, where reclaim bytes of it are
// dead, arms its gc marker in the same commit; 0: nothing is worth reclaiming.
//
// Conditions: the marker is at the version judged *and the ref that was seen still
// exists*. Without the second, a kill that leaned on the marker could land in
// between, and the object would be unwatched. To arm: gc/{object}, which holds the object to one gc marker, is
// as read. A smaller reclaim than the standing marker's changes nothing, a larger one
// replaces it. ErrMoved: probe again.
func (c *Catalog) StandDownReap(ctx context.Context, r ReapAt, refs []RefAt, reclaim uint64) error {
	var b batch
	r.remove(&b)
	b.when(metastore.Exists(refs[0].Key))
	if reclaim > 0 {
		if err := c.armGC(ctx, &b, r.Object, refs, reclaim); err != nil {
			return err
		}
	}
	return c.resolveBatch(ctx, "standing down the reap-check of "+r.Object, r.Key, b)
}

// RearmReap moves a reap-check, while an intent of its object stands.
//
// Conditions: the marker is at the version judged, and the marker at the new key as
// read. Effects: the old key goes, the new one says what both said.
func (c *Catalog) RearmReap(ctx context.Context, r ReapAt, delay time.Duration) error {
	what := "re-arming the reap-check of " + r.Object
	delay = max(delay, MinRearm)
	key := DueKey(Reap, uint64(unixMS(c.clk.Now().Add(delay))), fold(r.Object))
	if key <= r.Key {
		return fmt.Errorf("%s: %w: the clock went back", what, ErrMoved)
	}
	recs, err := c.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var b batch
	r.remove(&b)
	want := r.Marker
	want.Delay = delay.Milliseconds()
	c.mergeReap(&b, recs[0], want)
	return c.resolveBatch(ctx, what, r.Key, b)
}

// ResolveReaps resolves reap-checks whose objects' deletion was confirmed, as many
// in one commit as fit; where one of them moved, each by itself. It returns one
// error for each, in order.
func (c *Catalog) ResolveReaps(ctx context.Context, rs []ReapAt) []error {
	errs := make([]error, len(rs))
	limits := c.store.Limits()
	for at := 0; at < len(rs); {
		var b batch
		end := at
		for ; end < len(rs); end++ {
			full := max(len(b.conds)+1, len(b.ops)+reapOps(len(rs[end].Marker.Streams))) > limits.MaxOps || b.bytes > limits.MaxBytes/2
			if end > at && full {
				break
			}
			rs[end].remove(&b)
		}
		_, _, err := c.commit(ctx, "resolving reap-checks", b.done())
		if errors.Is(err, metastore.ErrConflict) && end-at > 1 {
			for i := at; i < end; i++ {
				var one batch
				rs[i].remove(&one)
				errs[i] = c.resolveBatch(ctx, "resolving the reap-check of "+rs[i].Object, rs[i].Key, one)
			}
		} else if errors.Is(err, metastore.ErrConflict) {
			errs[at] = c.resolveBatch(ctx, "resolving the reap-check of "+rs[at].Object, rs[at].Key, b)
		} else if err != nil {
			for i := at; i < end; i++ {
				errs[i] = err
			}
		}
		at = end
	}
	return errs
}

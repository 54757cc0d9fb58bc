package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// unregistered are the queues that no duty works on yet: their markers stand.
var unregistered = map[catalog.Queue]bool{catalog.Teardown: true, catalog.Retention: true, catalog.GC: true}

// Unsettled returns what still keeps the world from having converged, or "": every
// queue has drained but for the settle markers of live chains, every object is named
// by a ref, and every chain but the live ones is retired. It is invariant 8, once faults have stopped
// and time has passed. live are the stars that run.
func (c *Checker) Unsettled(live []string) string {
	for _, key := range slices.Sorted(maps.Keys(c.due)) {
		q := c.due[key]
		if unregistered[q] {
			continue
		}
		d, err := catalog.ParseDue(key)
		if err != nil {
			return "an unreadable marker stands: " + key
		}
		if q == catalog.Settle {
			if id, err := catalog.ParseChainSubject(d.Subject); err == nil && slices.Contains(live, id.Star) && c.newest(id) {
				continue
			}
		}
		return "a marker stands: " + key
	}
	for _, id := range c.chainIDs() {
		ch := c.chains[id]
		switch {
		case len(ch.batches) > 0:
			return fmt.Sprintf("%s owes the batch at slot %d", id, ch.batches[0].first)
		case !ch.exists && len(ch.slots) > 0:
			return fmt.Sprintf("%s is retired and slot %d remains", id, ch.slots[0])
		case !ch.exists:
			continue
		case !slices.Contains(live, id.Star) || !c.newest(id):
			return fmt.Sprintf("%s is dead and not retired: %v, trimmed %d", id, ch.rec.State, ch.trim.Trimmed)
		case len(ch.slots) > 0:
			return fmt.Sprintf("%s keeps slot %d; checkpoint %d, rewritten %d, trimmed %d", id, ch.slots[0], ch.rec.Checkpoint, ch.trim.Rewritten, ch.trim.Trimmed)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[key]; o.exists && !o.isSlot && !o.isProbe && o.refs == 0 {
			return "an object that nothing names remains: " + key
		}
	}
	return ""
}

// newest tells whether no later epoch of the star exists.
func (c *Checker) newest(id catalog.ChainID) bool {
	for other, ch := range c.chains {
		if other.Star == id.Star && other.Epoch > id.Epoch && ch.exists {
			return false
		}
	}
	return true
}

func (c *Checker) chainIDs() []catalog.ChainID {
	ids := slices.Collect(maps.Keys(c.chains))
	slices.SortFunc(ids, func(a, b catalog.ChainID) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// Finish judges the end of a run, at which the world should have converged.
func (c *Checker) Finish(live []string) {
	if what := c.Unsettled(live); what != "" {
		c.fail(Convergence, strings.TrimPrefix(what, "a marker stands: "), "the world did not converge: %s", what)
	}
	c.whole()
	c.indexes()
}

// whole compares the shadow with the world, in full: what the incremental checks
// keep must be what is there.
func (c *Checker) whole() {
	n := 0
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if c.objects[key].exists {
			n++
		}
	}
	if have := c.w.BucketView().Len(); have != n {
		c.fail("harness", "bucket", "the bucket holds %d objects, the checker knows %d", have, n)
	}
}

// indexes compares, at the end, each second key with what it is an index of: an entry of
// nothing is one that nobody will ever remove.
func (c *Checker) indexes() {
	v := c.w.StoreView()
	v.Scan(metastore.Prefix("schedule/"), func(r metastore.Record) bool {
		d, err := catalog.ParseDue(r.Key)
		if err != nil {
			c.fail(Bounded, r.Key, "unreadable: %v", err)
			return false
		}
		b, err := catalog.DecodeBatch(v.Get(d.PrimaryKey()).Value)
		if err != nil || uint64(b.Ready) != d.Order {
			c.fail(Convergence, r.Key, "a schedule entry of no standing batch marker remains")
		}
		return true
	})
	v.Scan(metastore.Prefix("pending/"), func(r metastore.Record) bool {
		tail := r.Key[len(catalog.PendingPrefix(0)):]
		if key := "due/" + strings.Replace(strings.Replace(tail, "~", "/", 1), "~", "/", 1); !v.Get(key).Exists() {
			c.fail(Convergence, r.Key, "a pending entry of no standing marker remains")
		}
		return true
	})
	v.Scan(metastore.Prefix("gc/"), func(r metastore.Record) bool {
		if g, err := catalog.DecodeGCRecord(r.Value); err != nil || !v.Get(g.Marker).Exists() {
			c.fail(Convergence, r.Key, "it names no standing gc marker")
		}
		return true
	})
	for _, id := range c.chainIDs() {
		if ch := c.chains[id]; ch.trimExists && !v.Get(ch.trim.SettleKey).Exists() {
			c.fail(Watched, catalog.TrimKey(id), "it names no standing settle marker")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		if s := c.stream(c.names[name]); s.mark.RetentionKey != "" && !v.Get(s.mark.RetentionKey).Exists() {
			c.fail(Convergence, catalog.MarkKey(s.id), "it names no standing retention marker")
		}
	}
}

// Slots returns how many slots and seals are in the bucket.
func (c *Checker) Slots() int {
	n := 0
	for _, ch := range c.chains {
		n += len(ch.slots)
	}
	return n
}

// Chains returns how many chains are not retired.
func (c *Checker) Chains() int {
	n := 0
	for _, ch := range c.chains {
		if ch.exists {
			n++
		}
	}
	return n
}

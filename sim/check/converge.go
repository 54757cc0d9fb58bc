package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nova-store/nova/catalog"
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

// Finish judges the end of a run: nothing acknowledged is lost, and, where the world should have
// converged, it has.
func (c *Checker) Finish(live []string, converged bool) {
	if id, lost := c.lostAppend(); lost {
		c.fail(Lost, fmt.Sprint(id), "append %d was acknowledged and is nowhere", id)
	}
	if !converged {
		return
	}
	if what := c.Unsettled(live); what != "" {
		c.fail(Convergence, strings.TrimPrefix(what, "a marker stands: "), "the world did not converge: %s", what)
	}
	c.whole()
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

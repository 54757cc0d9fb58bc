package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// Unsettled returns what still keeps the world from having converged, or "": every
// queue has drained but for the settle markers of live chains, every object is named
// by a ref, and every chain but the live ones is retired. It is invariant 8, once faults have stopped
// and time has passed. live are the stars that run.
func (c *Checker) Unsettled(live []string) string {
	for _, key := range slices.Sorted(maps.Keys(c.due)) {
		q := c.due[key]
		d, err := catalog.ParseDue(key)
		if err != nil {
			return "an unreadable marker stands: " + key
		}
		switch q {
		case catalog.Settle:
			if id, err := catalog.ParseChainSubject(d.Subject); err == nil && slices.Contains(live, id.Star) && c.newest(id) {
				continue
			}
		case catalog.Retention:
			if c.expectsRetention(catalog.StreamID(parseHex(d.Subject)), d.Order) {
				continue
			}
		}
		return "a marker stands: " + key
	}
	if what := c.expiredLeft(); what != "" {
		return what
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
		if o := c.objects[key]; o.exists && o.kind != slotKind && o.kind != probeKind && o.refs == 0 {
			return "an object that nothing names remains: " + key
		}
		if dead, size := c.dead(c.objects[key]); dead > 0 {
			return fmt.Sprintf("of %s, which has %d bytes, %d are dead, and no gc marker stands", key, size, dead)
		}
	}
	return ""
}

// dead returns how many bytes of a settled object's sections no span takes, if they are so many that it is to be rewritten without
// them, and its size. Whatever takes a span from an object arms its reap-check, whose judgement arms gc: so
// that policy keeps none of it standing.
func (c *Checker) dead(o *object) (dead, size uint64) {
	if o.kind != settledKind || !o.exists || o.refs == 0 || c.gcBytes == 0 {
		return 0, 0
	}
	for i := range o.footer.Sections {
		dead += uint64(o.footer.Sections[i].Length)
	}
	size = uint64(len(o.body))
	if dead -= min(o.live, dead); dead < uint64(c.gcBytes) || float64(dead) < c.gcRatio*float64(size) {
		return 0, 0
	}
	return dead, size
}

// expectsRetention tells whether policy keeps the marker standing: the stream holds records that a greatest age will expire, and
// the marker's time has not come, but comes no later than the first span expires. A run that gave up on being exact
// comes a marker bucket later at most.
func (c *Checker) expectsRetention(id catalog.StreamID, ready uint64) bool {
	s := c.stream(id)
	next, ok := s.nextExpiry()
	now := c.w.Time().UnixMilli()
	most := max(next, now) + (catalog.MarkerBucket + c.timing.MaxClockSkew).Milliseconds()
	return ok && ready > uint64(now) && ready <= uint64(most)
}

// nextExpiry is when the stream's first span expires by age, in Unix milliseconds; false: never.
func (s *stream) nextExpiry() (ms int64, ok bool) {
	if !s.active() || s.rec.Policy.MaxAgeMS == 0 || len(s.byLast) == 0 {
		return 0, false
	}
	return s.upTo(s.lowest()+1).maxTimestamp + s.rec.Policy.MaxAgeMS, true
}

// Explains tells whether policy explains that work is done until a time: a retention marker will be ripe, and the first
// span of its stream expires by then, too. Appends, trims and policies arm one for earlier than anything
// expires: that happens once, where nobody does any of it, and early remembers the streams of which it was.
func (c *Checker) Explains(until time.Time, early map[catalog.StreamID]bool) bool {
	at := until.Add(c.timing.MaxClockSkew).UnixMilli()
	explained := false
	for key, q := range c.due {
		if q != catalog.Retention {
			continue
		}
		d, err := catalog.ParseDue(key)
		if err != nil || d.Order > uint64(at) {
			continue
		}
		id := catalog.StreamID(parseHex(d.Subject))
		next, ok := c.stream(id).nextExpiry()
		if ok && next > at && early[id] {
			continue
		}
		explained = true
		early[id] = early[id] || ok && next > at
	}
	return explained
}

// expiredLeft tells of a span that lies wholly below a watermark, or that policy has wholly
// expired, and that is still there; or of a stream of which one will expire, and nothing announces that.
func (c *Checker) expiredLeft() string {
	now := c.w.Time().UnixMilli()
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		s := c.streams[id]
		if s.has != allRecords || s.rec.State != catalog.StreamActive {
			continue // a deleted stream's spans are its teardown's
		}
		if next, ok := s.nextExpiry(); ok && len(s.retentions) == 0 {
			return fmt.Sprintf("no retention marker of stream %q stands, and its first span expires at %v", s.rec.Name, time.UnixMilli(next).UTC())
		}
		kept := max(s.mark.Watermark, s.kept(s.rec.Policy, s.head.Bytes, now))
		for last := range s.byLast {
			if last < kept {
				return fmt.Sprintf("stream %q keeps a span that ends at offset %d; the first readable offset is %d", s.rec.Name, s.lowest(), kept)
			}
		}
	}
	return ""
}

// lowest returns the last offset of the stream's first span.
func (s *stream) lowest() uint64 {
	least := uint64(everything)
	for last := range s.byLast {
		least = min(least, last)
	}
	return least
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

// StandingChains returns the chains that are not retired, sorted.
func (c *Checker) StandingChains() []catalog.ChainID {
	return slices.DeleteFunc(c.chainIDs(), func(id catalog.ChainID) bool { return !c.chains[id].exists })
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
	c.settleKeys()
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

// settleKeys is that each chain's trim record names its standing settle marker.
func (c *Checker) settleKeys() {
	v := c.w.StoreView()
	for _, id := range c.chainIDs() {
		if ch := c.chains[id]; ch.trimExists && !v.Get(ch.trim.SettleKey).Exists() {
			c.fail(Watched, catalog.TrimKey(id), "it names no standing settle marker")
		}
	}
}

// ChainStars returns the stars that have a chain which is not retired, sorted.
func (c *Checker) ChainStars() []string {
	var out []string
	for id, ch := range c.chains {
		if ch.exists && !slices.Contains(out, id.Star) {
			out = append(out, id.Star)
		}
	}
	slices.Sort(out)
	return out
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
func (c *Checker) Chains() int { return len(c.StandingChains()) }

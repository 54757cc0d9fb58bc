package check

import (
	"slices"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// streamMarkerChanged takes a change of a stream's retention or teardown marker.
func (c *Checker) streamMarkerChanged(d *catalog.Due, n int) {
	s := c.touchStream(catalog.StreamID(parseHex(d.Subject)))
	switch {
	case d.Queue == catalog.Teardown:
		s.teardowns += n
	case n > 0:
		s.retentions = append(s.retentions, d.Key)
	case n < 0:
		s.retentions = slices.DeleteFunc(s.retentions, func(k string) bool { return k == d.Key })
	}
}

// judgeLife is how a stream comes, is deleted and goes: its three records together, its name
// with it, one teardown marker from deletion to the end, and nothing of it after that.
func (c *Checker) judgeLife(s *stream) {
	key := catalog.StreamKey(s.id)
	switch {
	case s.has != 0 && s.has != allRecords:
		c.fail(Lost, key, "of the stream's three records some are there without the others")
		return
	case s.has == 0:
		c.judgeGone(s)
		return
	}
	c.judgeDeletion(s)
	named := c.names[s.rec.Name] == s.id
	deleted := s.rec.State != catalog.StreamActive
	switch {
	case !deleted && !named:
		c.fail(Lost, key, "the stream is active, and its name %q does not lead to it", s.rec.Name)
	case deleted && named:
		c.fail(Lost, key, "the stream is %v, and its name %q still leads to it", s.rec.State, s.rec.Name)
	case deleted && s.teardowns != 1:
		c.fail(Watched, key, "the stream is deleted and has %d teardown markers", s.teardowns)
	case !deleted && s.teardowns != 0:
		c.fail(Bounded, key, "the stream is active and has a teardown marker")
	case s.was.State == catalog.StreamTearing && s.rec.State != catalog.StreamTearing:
		c.fail(Monotonic, key, "a stream that is torn down is there again")
	case s.was.State != catalog.StreamTearing && s.rec.State == catalog.StreamTearing && c.early(s):
		c.fail(Lost, key, "torn down before %v, until when its deletion may be undone", c.until(s))
	}
}

// judgeDeletion is that a deletion notes when it was: not before a client asked for it, nor later than now, up to what clocks
// are off. From then on it may be undone for a while, whatever the record comes to say.
func (c *Checker) judgeDeletion(s *stream) {
	now := c.w.Time()
	active := s.rec.State == catalog.StreamActive
	switch {
	case active && (s.was.Name == "" || s.was.State != catalog.StreamActive):
		s.activeSince, s.deletedAt, s.deleteFrom = now, time.Time{}, time.Time{}
		if s.deletes > 0 {
			s.deleteFrom = now // one of them may find it there again
		}
	case !active && s.deletedAt.IsZero():
		s.deletedAt = time.UnixMilli(s.rec.Deleted)
		least := s.activeSince
		if s.deleteFrom.After(least) {
			least = s.deleteFrom
		}
		if d := c.timing.MaxClockSkew + time.Millisecond; s.deletedAt.Before(least.Add(-d)) || s.deletedAt.After(now.Add(d)) {
			c.fail(Lost, catalog.StreamKey(s.id), "it was deleted between %v and %v, and its record says at %v", least.UTC(), now.UTC(), s.deletedAt.UTC())
		}
	}
}

// until is until when a deletion may be undone.
func (c *Checker) until(s *stream) time.Time {
	return s.deletedAt.Add(c.timing.UndeleteWindow).UTC()
}

// early tells whether that time has not come on any clock.
func (c *Checker) early(s *stream) bool {
	return c.w.Time().Add(c.timing.MaxClockSkew).Before(c.until(s))
}

// judgeGone is that a torn-down stream leaves nothing, and that nobody tears one down
// while a settle job may still be at its records: its last slot on each chain lies
// behind what that chain owes.
func (c *Checker) judgeGone(s *stream) {
	key := catalog.StreamKey(s.id)
	if !s.gone && s.was.Name != "" {
		s.gone = true
		if s.was.State != catalog.StreamTearing {
			c.fail(Lost, key, "the stream's records are gone, and it was not torn down")
		}
		for _, l := range s.head.Chains {
			if f := c.chain(l.Chain).frontierFor(s.id); l.Slot >= f {
				c.fail(Lost, key, "torn down while slot %d of %s, which holds its records, is owed: the settle frontier is %d", l.Slot, l.Chain, f)
			}
		}
	}
	switch {
	case len(s.byLast) > 0:
		c.fail(Lost, key, "the stream is gone, and %d of its spans remain", len(s.byLast))
	case len(s.retentions)+s.teardowns > 0:
		c.fail(Convergence, key, "the stream is gone, and %d retention and %d teardown markers remain", len(s.retentions), s.teardowns)
	}
}

// judgeMark is that the watermark only advances, and only over what a client has trimmed or
// a policy has expired, and that the mark names the stream's one retention marker.
func (c *Checker) judgeMark(s *stream) {
	key := catalog.MarkKey(s.id)
	w := s.mark.Watermark
	switch {
	case w < s.watchWas:
		c.fail(Monotonic, key, "the watermark went back from %d to %d", s.watchWas, w)
	case s.mark.WatermarkBytes < s.watchBytes:
		c.fail(Monotonic, key, "the watermark's byte position went back from %d to %d", s.watchBytes, s.mark.WatermarkBytes)
	case w > s.head.Next:
		c.fail(Lost, key, "the watermark %d is beyond the next offset %d", w, s.head.Next)
	case s.mark.WatermarkBytes > s.upTo(w).bytes:
		c.fail(Lost, key, "the watermark %d is at byte %d, and %d were appended below it", w, s.mark.WatermarkBytes, s.upTo(w).bytes)
	case w > s.watchWas && w > s.trimTo():
		if kept := s.mayKeep(c); w > kept {
			c.fail(Lost, key, "the watermark moved from %d to %d; clients trimmed up to %d, and policy keeps what begins at %d", s.watchWas, w, s.trimTo(), kept)
		}
	}
	s.watchWas, s.watchBytes = w, s.mark.WatermarkBytes
	if s.was.Policy != s.rec.Policy && s.was.Name != "" {
		// What it had expired never becomes readable again; clocks may differ about the last of it.
		now := c.w.Time()
		s.floor = max(s.floor, s.kept(s.was.Policy, s.head.Bytes, now.Add(-c.timing.MaxClockSkew).UnixMilli()))
		s.ceil = max(s.ceil, s.kept(s.was.Policy, s.head.Bytes, now.Add(c.timing.MaxClockSkew).UnixMilli()))
	}
	switch {
	case len(s.retentions) > 1:
		c.fail(Bounded, key, "the stream has %d retention markers", len(s.retentions))
	case len(s.retentions) == 1 && s.retentions[0] != s.mark.RetentionKey:
		c.fail(Bounded, key, "the mark names the retention marker %q, and %q stands", s.mark.RetentionKey, s.retentions[0])
	case len(s.retentions) == 0 && s.mark.RetentionKey != "":
		c.fail(Bounded, key, "the mark names the retention marker %q, which does not stand", s.mark.RetentionKey)
	}
}

// kept returns the first offset that a policy keeps at a time, record by record: a record has expired if the
// largest timestamp up to it lies back as far as the greatest age, or if what was
// appended behind it comes to the most bytes. What is forgotten, which the watermark has passed, counts as expired.
func (s *stream) kept(p catalog.Policy, bytes uint64, nowMS int64) uint64 {
	if p == (catalog.Policy{}) {
		return 0
	}
	n, _ := slices.BinarySearchFunc(s.sums, struct{}{}, func(r sums, _ struct{}) int {
		old := p.MaxAgeMS > 0 && r.maxTimestamp <= nowMS-p.MaxAgeMS
		over := p.MaxBytes > 0 && bytes >= r.bytes && bytes-r.bytes >= p.MaxBytes
		if old || over {
			return -1
		}
		return 1
	})
	return s.base + uint64(n)
}

// delta is +1 where a key appears, -1 where it goes.
func delta(old, now metastore.Record) int {
	switch {
	case now.Exists() && !old.Exists():
		return 1
	case old.Exists() && !now.Exists():
		return -1
	}
	return 0
}

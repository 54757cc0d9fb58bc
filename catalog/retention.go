package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// The records behind a retention marker. Every stream has at most one, whose key the mark
// holds; whoever moves it writes both in one commit. The duty judges by a view of the stream's records, and
// each of its transitions below is conditional on what it judged: if anything that matters has moved,
// it is ErrMoved, and the duty judges by a new view.

// AdvanceWatermark moves a stream's watermark up to an offset that nothing readable is below; one that
// would go back is left where it is.
//
// Conditions: the stream's record (active, with the policy judged) and the mark are as in the view. By size a record stays
// expired whatever is appended, so that the head is none. Effect: the mark, which the view returned
// holds. A crash after it leaves spans below the watermark, which the standing marker has killed by the next
// run. A late twin fails on the mark. ErrMoved: judge again.
func (c *Catalog) AdvanceWatermark(ctx context.Context, v StreamView, first, bytes uint64) (StreamView, error) {
	what := fmt.Sprintf("advancing the watermark of stream %v to %d", v.ID, first)
	before := v.Mark
	if v.Mark.advance(first, bytes); v.Mark == before {
		return v, nil
	}
	var b batch
	b.when(metastore.At(StreamKey(v.ID), v.StreamVersion), metastore.At(MarkKey(v.ID), v.MarkVersion))
	b.put(MarkKey(v.ID), v.Mark.encode())
	ver, _, err := c.commit(ctx, what, b.done())
	switch {
	case errors.Is(err, metastore.ErrConflict):
		// Also after a lost answer that landed: the new view shows the watermark moved.
		return StreamView{}, fmt.Errorf("%s: %w", what, ErrMoved)
	case err != nil:
		return StreamView{}, err
	}
	v.MarkVersion = ver
	return v, nil
}

// RearmRetention moves the stream's retention marker to a time, at least MinRearm ahead, and notes how far
// the head must come before a whole span is expired by size (0: not known).
//
// Conditions: the marker is at the version judged; the stream's record and the mark are as in
// the view; with max bytes also the head, for an append that came in between, and found a marker
// standing for now, left it to this run: unless soon, which says that the next run is not far anyway. Effects: the marker
// moves, and the mark names it. A crash before it leaves the marker, ripe. A late twin fails on the marker. ErrMoved: judge again.
func (c *Catalog) RearmRetention(ctx context.Context, m MarkerAt, v StreamView, at time.Time, nextBytes uint64, soon bool) error {
	what := "re-arming " + m.Due.Key
	if v.Mark.RetentionKey != m.Due.Key {
		return fmt.Errorf("%s: %w: the mark names another", what, ErrMoved)
	}
	now := c.clk.Now()
	if least := now.Add(MinRearm); at.Before(least) {
		at = least
	}
	key := DueKey(Retention, ceilMS(at), v.ID.String())
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(StreamKey(v.ID), v.StreamVersion), metastore.At(MarkKey(v.ID), v.MarkVersion))
	if v.Stream.Policy.MaxBytes > 0 && !soon {
		b.when(metastore.At(HeadKey(v.ID), v.HeadVersion))
	}
	b.put(key, RetentionMarker{}.encode())
	b.del(m.Due.Key)
	v.Mark.RetentionKey, v.Mark.NextBytes = key, nextBytes
	b.put(MarkKey(v.ID), v.Mark.encode())
	return c.movedOr(ctx, what, b)
}

// ResolveRetention resolves the stream's retention marker where there is nothing to wait for but
// appends: it clears the marker's key in the mark, so that an append arms it anew, and
// notes from where on one does so for its size (0: not known).
//
// Conditions: the marker is at the version judged; the stream's record and the mark are as in
// the view; where there is a policy also the head, since an append that found the marker standing
// armed none. (Every absorb to a stream with a policy is conditional on the mark in turn.) A crash before it leaves
// the marker, ripe. A late twin fails on the marker. ErrMoved: judge again.
func (c *Catalog) ResolveRetention(ctx context.Context, m MarkerAt, v StreamView, nextBytes uint64) error {
	what := "resolving " + m.Due.Key
	if v.Mark.RetentionKey != m.Due.Key {
		return fmt.Errorf("%s: %w: the mark names another", what, ErrMoved)
	}
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(StreamKey(v.ID), v.StreamVersion), metastore.At(MarkKey(v.ID), v.MarkVersion))
	if v.Stream.Policy != (Policy{}) {
		b.when(metastore.At(HeadKey(v.ID), v.HeadVersion))
	}
	b.del(m.Due.Key)
	v.Mark.RetentionKey, v.Mark.NextBytes = "", nextBytes
	b.put(MarkKey(v.ID), v.Mark.encode())
	return c.movedOr(ctx, what, b)
}

// ResolveStrayRetention resolves a retention marker that is nobody's: of a stream whose records are gone (v is zero but for
// the id), or whose mark names another.
//
// Conditions: the marker is at the version judged; the mark is as in the view, or absent still, so that it has not come to
// name this key. A late twin fails on the marker.
func (c *Catalog) ResolveStrayRetention(ctx context.Context, m MarkerAt, v StreamView) error {
	c.branch("retention.stray")
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(MarkKey(v.ID), v.MarkVersion))
	b.del(m.Due.Key)
	return c.resolveBatch(ctx, "resolving the stray "+m.Due.Key, m.Due.Key, b)
}

// movedOr commits b, and answers a conflict with ErrMoved. After a lost answer that landed this says
// no more than that: whoever judges again finds it done.
func (c *Catalog) movedOr(ctx context.Context, what string, b batch) error {
	_, _, err := c.commit(ctx, what, b.done())
	if errors.Is(err, metastore.ErrConflict) {
		c.branch("retention.moved")
		return fmt.Errorf("%s: %w", what, ErrMoved)
	}
	return err
}

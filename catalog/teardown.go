package catalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nova-store/nova/metastore"
)

// BeginTeardown is the first commit of a stream's teardown: deleted → tearing. From then on nothing brings
// the stream back, and eras kill its spans unread.
//
// Conditions: the teardown marker is at the version judged; the stream's record is as read. Effect: its state. A
// crash after it leaves the marker: the next run finds the stream tearing. A late twin fails on
// the record. No object's watch changes.
//
// ErrNoStream: the stream's records are gone, or it is active; the marker is nobody's. ErrMoved: the marker moved.
func (c *Catalog) BeginTeardown(ctx context.Context, m MarkerAt, id StreamID) (StreamView, error) {
	what := fmt.Sprintf("beginning the teardown of stream %v", id)
	for round := 0; ; round++ {
		v, err := c.ReadAnyStream(ctx, id)
		switch {
		case err != nil:
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		case v.Stream.State == StreamActive:
			return v, fmt.Errorf("%s: %w: it is not deleted", what, ErrNoStream)
		case v.Stream.State == StreamTearing:
			return v, nil
		}
		v.Stream.State = StreamTearing
		var b batch
		b.when(metastore.At(m.Due.Key, m.Version), metastore.At(StreamKey(id), v.StreamVersion))
		b.put(StreamKey(id), v.Stream.encode())
		v.StreamVersion, _, err = c.commit(ctx, what, b.done())
		if err == nil {
			return v, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return StreamView{}, err
		}
		c.branch("teardown.conflict")
		recs, err := c.store.Get(ctx, m.Due.Key)
		if err != nil {
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		}
		if recs[0].Version != m.Version {
			return StreamView{}, fmt.Errorf("%s: %w", what, ErrMoved)
		}
		if err := c.pause(ctx, round); err != nil {
			return StreamView{}, err
		}
	}
}

// RearmTeardown moves a teardown marker ahead, by at least MinRearm. Its value, the original times among it, goes along, so
// that the queue's age tells the true wait however often the marker is re-armed.
//
// Condition: the marker is at the version judged. A late twin fails on it.
func (c *Catalog) RearmTeardown(ctx context.Context, m MarkerAt, delay time.Duration) error {
	what := "re-arming " + m.Due.Key
	key := DueKey(Teardown, ceilMS(c.clk.Now().Add(max(delay, MinRearm))), m.Due.Subject)
	if key <= m.Due.Key {
		return fmt.Errorf("%s: %w: the clock went back", what, ErrMoved)
	}
	v, err := DecodeTeardownMarker(m.Value)
	if err != nil {
		v = TeardownMarker{Ready: int64(min(m.Due.Order, math.MaxInt64))}
	}
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version))
	b.del(m.Due.Key)
	b.put(key, v.encode())
	return c.resolveBatch(ctx, what, m.Due.Key, b)
}

// TeardownAge is how long a teardown has been due: from when it first was, which the marker's value tells however
// often it was re-armed, else from the time in its key.
func TeardownAge(d Due, value []byte, now time.Time) time.Duration {
	if v, err := DecodeTeardownMarker(value); err == nil {
		return now.Sub(time.UnixMilli(v.Ready))
	}
	return d.PastDue(now)
}

// FinishTeardown is a teardown's last commit: the stream's three records go, with its retention
// marker, where one stands, and the teardown marker.
//
// The caller has found no span of the stream in a scan that began after the stream was tearing, and its
// last slot on every chain below that chain's frontier. No span comes after that: absorb
// is conditional on an active stream, a swap on spans. Conditions: the three records are as in the view, the stream tearing; the marker is at the
// version judged. A crash before it leaves them all: the next run scans and finds nothing to kill. A
// late twin fails on the records, whose id is never used again. What the stream's index of pending work still names goes
// with those markers.
//
// ErrMoved: something else moved them; judge again.
func (c *Catalog) FinishTeardown(ctx context.Context, m MarkerAt, v StreamView) error {
	what := fmt.Sprintf("finishing the teardown of stream %v", v.ID)
	if v.Stream.State != StreamTearing {
		return fmt.Errorf("%s: %w: it is not tearing", what, ErrMoved)
	}
	var b batch
	b.when(metastore.At(StreamKey(v.ID), v.StreamVersion), metastore.At(HeadKey(v.ID), v.HeadVersion),
		metastore.At(MarkKey(v.ID), v.MarkVersion), metastore.At(m.Due.Key, m.Version))
	b.del(StreamKey(v.ID))
	b.del(HeadKey(v.ID))
	b.del(MarkKey(v.ID))
	b.del(m.Due.Key)
	if v.Mark.RetentionKey != "" {
		b.del(v.Mark.RetentionKey)
	}
	return c.resolveBatch(ctx, what, StreamKey(v.ID), b)
}

// ResolveStrayTeardown resolves a teardown marker that is nobody's: its stream's records are
// gone, or the stream is active.
//
// Conditions: the marker is at the version judged, the stream's record as read (absent: Version 0). A
// late twin fails on the marker.
func (c *Catalog) ResolveStrayTeardown(ctx context.Context, m MarkerAt, v StreamView, id StreamID) error {
	c.branch("teardown.stray")
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(StreamKey(id), v.StreamVersion))
	b.del(m.Due.Key)
	return c.resolveBatch(ctx, "resolving the stray "+m.Due.Key, m.Due.Key, b)
}

// frontierPage is how many batch markers FrontierOf reads at once.
const frontierPage = 16

// FrontierOf is [Catalog.Frontier] as the teardown of a stream sees it: a batch marker that is
// flagged damaged and does not name the stream is passed over, since nobody will settle anything of the stream from
// it. Like Frontier it reads the chain record first, and of a retired chain everything is past.
func (c *Catalog) FrontierOf(ctx context.Context, chain ChainID, stream StreamID) (uint64, error) {
	what := fmt.Sprintf("frontier of %s for stream %v", chain, stream)
	at, rewritten, err := c.readCursors(ctx, chain)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", what, err)
	case at.Version == 0:
		return math.MaxUint64, nil
	}
	frontier := at.Chain.Checkpoint
	r := metastore.Range{Start: BatchKey(chain, rewritten), End: metastore.PrefixEnd(BatchPrefix(chain))}
	err = c.walk(ctx, r, frontierPage, func(rec metastore.Record) (bool, error) {
		b, err := DecodeBatch(rec.Value)
		if err == nil && b.Damaged && !slices.ContainsFunc(b.Inventory, func(it SlotItem) bool { return it.Stream == stream }) {
			return true, nil
		}
		// Whatever an unreadable one may name holds the frontier.
		frontier, err = parseHex16(rec.Key[len(BatchPrefix(chain)):])
		return false, err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return frontier, nil
}

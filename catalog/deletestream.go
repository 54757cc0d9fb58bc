package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// Deleted says that a stream was deleted, and until when that may be undone.
type Deleted struct {
	ID StreamID
	// At is when it was deleted, Until when its teardown may begin.
	At, Until time.Time
}

// DeleteStream deletes an active stream.
//
// Conditions: the stream's record and its name are as read. Effects: the stream is marked
// deleted, with the time; its name goes, and is free for a new stream with another id; its
// teardown marker is armed at deletion + UndeleteWindow.
//
// A crash before it leaves nothing. After it reads and appends find no stream (absorb
// is conditional on the record), and the teardown marker watches over what is left of it. Its
// objects stay named by its spans' refs, its slots watched by their chains: eras settle them
// like any other's. A late twin fails on the record, which never becomes the same again.
//
// ErrNoStream: there is none, or not any more; also where another's delete came first.
func (c *Catalog) DeleteStream(ctx context.Context, id StreamID) (_ Deleted, err error) {
	what := fmt.Sprintf("deleting stream %v", id)
	lost := false
	defer func() { err = unsettled(lost, err) }()
	for round := 0; ; round++ {
		v, err := c.ReadAnyStream(ctx, id)
		now := c.clk.Now()
		switch {
		case errors.Is(err, ErrNoStream) && lost:
			// Torn down already: only a delete leads there, and it was under way when this one was.
			c.branch("delete.twin")
			return c.deleted(id, unixMS(now)), nil
		case err != nil:
			return Deleted{}, fmt.Errorf("%s: %w", what, err)
		case v.Stream.State != StreamActive && lost:
			c.branch("delete.twin")
			return c.deleted(id, v.Stream.Deleted), nil
		case v.Stream.State != StreamActive:
			return Deleted{}, fmt.Errorf("%s: %w: it was deleted before", what, ErrNoStream)
		}
		name := NameKey(v.Stream.Name)
		recs, err := c.store.Get(ctx, name)
		if err != nil {
			return Deleted{}, fmt.Errorf("%s: %w", what, err)
		}
		v.Stream.State, v.Stream.Deleted = StreamDeleted, unixMS(now)
		d := c.deleted(id, v.Stream.Deleted)
		until := unixMS(d.Until)
		var b batch
		b.when(metastore.At(StreamKey(id), v.StreamVersion), metastore.At(name, recs[0].Version))
		b.put(StreamKey(id), v.Stream.encode())
		if at, err := DecodeID(recs[0].Value); err == nil && at == id {
			b.del(name)
		}
		b.put(DueKey(Teardown, uint64(max(until, 0)), id.String()), TeardownMarker{Deleted: v.Stream.Deleted, Ready: until}.encode())
		_, maybe, err := c.commit(ctx, what, b.done())
		if err == nil {
			return d, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return Deleted{}, err
		}
		lost = lost || maybe
		c.branch("delete.conflict")
		if err := c.pause(ctx, round); err != nil {
			return Deleted{}, err
		}
	}
}

func (c *Catalog) deleted(id StreamID, atMS int64) Deleted {
	at := time.UnixMilli(atMS)
	return Deleted{ID: id, At: at, Until: at.Add(c.timing.UndeleteWindow)}
}

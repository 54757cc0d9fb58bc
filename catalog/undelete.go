package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// ErrTearing: the stream's teardown has begun, and nothing brings it back.
var ErrTearing = errors.New("the stream is being destroyed")

// ErrNameTaken: another stream has the name by now.
var ErrNameTaken = errors.New("the name belongs to another stream by now")

// UndeleteStream makes a deleted stream active again, under its name, as long as its teardown has not begun. Of one that is active it changes nothing.
//
// Conditions: the stream's record, deleted, and its mark are as read; its name is absent; its teardown marker
// is at the version read. Effects: the stream is active and its name leads to it; the teardown marker goes; its retention marker
// is armed for now, since the duty resolved the one of a deleted stream, and trims and expiry go on where they were.
//
// A crash before it leaves the stream deleted, with its teardown marker. After it the stream is as if it had not been deleted,
// but for appends that were judged meanwhile: those were refused for ever. No object's watch changes: spans, refs and batch
// markers of a deleted stream stand, and eras settle them as any other's. BeginTeardown and this are both conditional on the stream's
// record, and change it: one of the two comes first, and the other finds it so. A late twin fails on the record.
//
// Errors: ErrNoStream: its records are gone, or never were. ErrTearing. ErrNameTaken.
func (c *Catalog) UndeleteStream(ctx context.Context, id StreamID) (_ StreamView, err error) {
	what := fmt.Sprintf("undeleting stream %v", id)
	lost := false
	defer func() { err = unsettled(lost, err) }()
	for round := 0; ; round++ {
		v, err := c.ReadAnyStream(ctx, id)
		switch {
		case err != nil:
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		case v.Stream.State == StreamActive:
			return v, nil // by a twin of this, perhaps: the outcome is the same
		case v.Stream.State == StreamTearing:
			return StreamView{}, fmt.Errorf("%s: %w", what, ErrTearing)
		}
		name := NameKey(v.Stream.Name)
		recs, err := c.store.Get(ctx, name)
		if err != nil {
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		}
		if recs[0].Exists() {
			return StreamView{}, fmt.Errorf("%s: %w: %q", what, ErrNameTaken, v.Stream.Name)
		}
		marker, err := c.teardownOf(ctx, v)
		if err != nil {
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		}
		v.Stream.State, v.Stream.Deleted = StreamActive, 0
		var b batch
		b.when(metastore.At(StreamKey(id), v.StreamVersion), metastore.At(MarkKey(id), v.MarkVersion), metastore.Absent(name))
		if marker.Exists() {
			b.when(metastore.At(marker.Key, marker.Version))
			b.del(marker.Key)
		}
		b.put(name, encodeID(id))
		b.put(StreamKey(id), v.Stream.encode())
		armed := v.Mark.moveRetention(&b, id, uint64(unixMS(c.clk.Now())))
		if armed {
			b.put(MarkKey(id), v.Mark.encode())
		}
		ver, maybe, err := c.commit(ctx, what, b.done())
		if err == nil {
			if v.StreamVersion = ver; armed {
				v.MarkVersion = ver
			}
			return v, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return StreamView{}, err
		}
		lost = lost || maybe
		c.branch("undelete.conflict")
		if err := c.pause(ctx, round); err != nil {
			return StreamView{}, err
		}
	}
}

// teardownOf returns the teardown marker of a deleted stream, where the deletion put it: nobody moves it before the teardown has begun,
// which changes the stream's record. The window may have been another one then: so it may be anywhere
// in its shard from the deletion on.
func (c *Catalog) teardownOf(ctx context.Context, v StreamView) (found metastore.Record, err error) {
	subject := v.ID.String()
	until := unixMS(c.deleted(v.ID, v.Stream.Deleted).Until)
	recs, err := c.store.Get(ctx, DueKey(Teardown, uint64(max(until, 0)), subject))
	if err != nil {
		return found, err
	}
	if recs[0].Exists() {
		return recs[0], nil
	}
	r := ShardRange(Teardown, Shard(subject))
	r.Start = ShardFrom(Teardown, Shard(subject), uint64(max(v.Stream.Deleted, 0)))
	err = c.walk(ctx, r, 256, func(rec metastore.Record) (bool, error) {
		if d, err := ParseDue(rec.Key); err == nil && d.Subject == subject {
			found = rec
		}
		return !found.Exists(), nil
	})
	return found, err
}

package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// A store that was restored from a backup has a lost time line: what it did between the backup and its loss. The
// bucket still has that time line's objects, and its clients still know its ids. What is done from now on must use
// none of their names.

// Restored is the value of cluster/restored, which only a store that was restored from a backup has.
type Restored struct {
	// Epoch is what the epochs of stars count on from that the backup knows nothing of: they may have minted in the lost time line.
	Epoch uint64
	At    int64 // when it was restored last, Unix ms
	// Beginning: its time line has not begun altogether. Nothing may serve from the store until it has: see [Catalog.BeginTimeline].
	Beginning bool
}

// ErrBeginning: a time line was begun in this store, and cut off: some of its counters may still be those of the lost one.
var ErrBeginning = errors.New("the beginning of its new time line after a restore was cut off")

// beginningFormat is the leading byte of a Restored of a time line that has not begun altogether: a program that knows
// nothing of this state refuses the value where it reads it, as when it mints for a star that the backup lacks. It reads it nowhere
// else: no earlier version may be started until the time line has begun.
const beginningFormat = 2

func (v Restored) encode() []byte {
	e := newEncoder(20)
	e.uint(v.Epoch)
	e.int(v.At)
	if v.Beginning {
		e.b[0] = beginningFormat
	}
	return e.b
}

// DecodeRestored reads a Restored.
func DecodeRestored(b []byte) (Restored, error) {
	d, beginning := newDecoderOf(b, beginningFormat)
	v := Restored{Epoch: d.uint(), At: d.int(), Beginning: beginning}
	return v, d.done("restored")
}

// begun refuses a store whose time line has not begun altogether; rec is its cluster/restored.
func begun(rec metastore.Record) error {
	if !rec.Exists() {
		return nil
	}
	v, err := DecodeRestored(rec.Value)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", RestoredKey, err)
	case v.Beginning:
		return ErrBeginning
	}
	return nil
}

const (
	// timelineStep is by how much counters are raised at least where the clock does not say more.
	timelineStep = 1 << 32
	// timelineShift leaves 1024 numbers to each millisecond, more than any counter moves in one: a mint and a create
	// are a commit each, conditional on the counter's last value.
	timelineShift = 10
)

// timelineBegan is when the numbers begin that timelines are given by the clock.
var timelineBegan = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// raised is what a counter goes on from in the time line that begins now: a number of this millisecond's, which no other time line of
// the same backup begins at and no earlier one has come to. That is by far more than 2^32 above a counter that was never
// raised. Where the clock is behind the counter, which a clock that went back is, it is 2^32 above it.
//
// In the 56 bits that a counter of ids has, it is good until the year 4250.
func raised(counter uint64, now time.Time) uint64 {
	if at := now.Sub(timelineBegan).Milliseconds(); at > 0 && uint64(at)<<timelineShift > counter {
		return uint64(at) << timelineShift
	}
	return counter + timelineStep
}

// BeginTimeline makes a store that was restored from a backup ready to serve in a time line of its own. Nothing else
// may have the store open, and nothing may serve from it before: the caller puts the store in its place only after.
//
// Effects:
//  1. cluster/restored names the epoch that stars which the backup does not know begin above (see [Catalog.Mint]), and that
//     the time line is beginning: until the last step [Catalog.EnsureFormat] and [Catalog.Mint] refuse the store.
//  2. Each chain that is not sealed is sealed at its checkpoint. What its slots hold from there on was acknowledged in the lost time
//     line, or never: absorbed now it would come in behind newer records, and a producer that has sent it again since would have it twice.
//     The window behind the seal goes with the chain. What lies beyond, nothing names: an operator's verify with a listing finds it.
//  3. The counter of ids of each shard, whether it exists or not, is raised, so that no stream is given an id that a
//     slot or a client of the lost time line means another one by.
//  4. chain/{star} is raised for every star, so that no slot or bundle is put where one of the lost time line may be.
//  5. cluster/restored says no longer that it is beginning.
//
// All are commits conditional on what they change: a late twin of any fails. The first is a commit of its own, and so is the last, which is conditional on the first: of two
// that begin one at the same time neither takes the other's mark away. A
// crash before the first leaves what was there; one in between a store that is not served from, be it in its place already, as one in
// etcd is; to begin anew on it raises what was raised again, which is harmless, as it is on one that has served. No object's watch changes: each sealed chain keeps its settle marker, and its slots below the checkpoint their batch markers.
//
// ErrStarLive: a route stands, and with it a star. ErrCorruptValue: a record is unreadable, or the store has no format. ErrFutureFormat.
func (c *Catalog) BeginTimeline(ctx context.Context) error {
	if err := c.beginTimeline(ctx); err != nil {
		return fmt.Errorf("beginning a new time line: %w", err)
	}
	return nil
}

func (c *Catalog) beginTimeline(ctx context.Context) error {
	now := c.clk.Now()
	routes, err := c.scan(ctx, metastore.Prefix(RoutesPrefix), 1)
	switch {
	case err != nil:
		return err
	case len(routes.Records) > 0:
		return fmt.Errorf("%w: %s stands", ErrStarLive, routes.Records[0].Key)
	}
	if err := c.CheckFormat(ctx); err != nil {
		return err
	}
	recs, err := c.store.Get(ctx, RestoredKey)
	if err != nil {
		return err
	}
	before := Restored{}
	if recs[0].Exists() {
		if before, err = DecodeRestored(recs[0].Value); err != nil {
			return fmt.Errorf("%s: %w", RestoredKey, err)
		}
	}
	highest := before.Epoch
	if err := c.walk(ctx, metastore.Prefix(ChainsPrefix), timelinePage, func(rec metastore.Record) (bool, error) {
		if _, err := ParseChainKey(rec.Key); err == nil {
			return true, nil
		}
		head, err := DecodeChainHead(rec.Value)
		if err != nil {
			return false, fmt.Errorf("%s: %w", rec.Key, err)
		}
		highest = max(highest, head.Epoch)
		return true, nil
	}); err != nil {
		return err
	}
	epoch := raised(highest, now)
	b := timeline{c: c}
	restored := Restored{Epoch: epoch, At: unixMS(now), Beginning: true}
	beginning, err := b.alone(ctx, recs[0], restored.encode())
	if err != nil {
		return err
	}
	if err := c.walk(ctx, metastore.Prefix(ChainsPrefix), timelinePage, func(rec metastore.Record) (bool, error) {
		value, err := ofNewTimeline(rec, epoch, now)
		if err == nil && value != nil {
			err = b.put(ctx, rec, value)
		}
		return err == nil, err
	}); err != nil {
		return err
	}
	keys := make([]string, Shards)
	for shard := range keys {
		keys[shard] = idsKey(shard)
	}
	counters, err := c.get(ctx, keys...)
	if err != nil {
		return err
	}
	for _, rec := range counters {
		counter := StreamID(0)
		if rec.Exists() {
			if counter, err = DecodeID(rec.Value); err != nil {
				return fmt.Errorf("%s: %w", rec.Key, err)
			}
		}
		if err := b.put(ctx, rec, encodeID(StreamID(raised(uint64(counter), now)))); err != nil {
			return err
		}
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	restored.Beginning = false
	_, err = b.alone(ctx, beginning, restored.encode())
	return err
}

// timelinePage is how many records are read at once.
const timelinePage = 256

// ofNewTimeline is what a record under chain/ becomes; nil: it stays.
func ofNewTimeline(rec metastore.Record, epoch uint64, now time.Time) ([]byte, error) {
	if _, err := ParseChainKey(rec.Key); err != nil {
		head, err := DecodeChainHead(rec.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Key, err)
		}
		head.Epoch = epoch
		return head.encode(), nil
	}
	v, err := DecodeChain(rec.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rec.Key, err)
	}
	if v.State == ChainSealed {
		return nil, nil
	}
	v.State, v.Seal, v.WindowEnd, v.SealedAt = ChainSealed, v.Checkpoint, max(v.WindowEnd, v.Checkpoint+max(v.Window, 1)), unixMS(now)
	return v.encode(), nil
}

// timeline gathers records to write at the versions that they were read at, as many in a commit as fit.
type timeline struct {
	c *Catalog
	b batch
}

func (t *timeline) put(ctx context.Context, rec metastore.Record, value []byte) error {
	t.b.when(metastore.At(rec.Key, rec.Version))
	t.b.append(metastore.Put(rec.Key, value))
	if l := t.c.store.Limits(); len(t.b.ops) == l.MaxOps || t.b.bytes > l.MaxBytes/4 {
		return t.flush(ctx)
	}
	return nil
}

// alone commits one record, with nothing gathered before, and returns it as it stands then. A conflict is another's work, who begins
// a time line at the same time, unless an answer was lost and the value is there.
func (t *timeline) alone(ctx context.Context, rec metastore.Record, value []byte) (metastore.Record, error) {
	var b batch
	b.when(metastore.At(rec.Key, rec.Version))
	b.append(metastore.Put(rec.Key, value))
	v, maybe, err := t.c.commit(ctx, "writing "+rec.Key, b.done())
	if maybe && errors.Is(err, metastore.ErrConflict) {
		recs, rerr := t.c.store.Get(ctx, rec.Key)
		switch {
		case rerr != nil:
			return rec, rerr
		case bytes.Equal(recs[0].Value, value):
			return recs[0], nil
		}
	}
	return metastore.Record{Key: rec.Key, Value: value, Version: v}, err
}

// flush commits what was gathered. A conflict after a lost answer is its own twin: nobody else writes.
func (t *timeline) flush(ctx context.Context) error {
	if len(t.b.ops) == 0 {
		return nil
	}
	_, maybe, err := t.c.commit(ctx, "writing it", t.b.done())
	if maybe && errors.Is(err, metastore.ErrConflict) {
		err = nil
	}
	t.b = batch{}
	return err
}

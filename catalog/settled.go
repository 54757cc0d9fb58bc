package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/metastore"
)

// BatchAt is a batch marker as read.
type BatchAt struct {
	Chain   ChainID
	First   uint64
	Batch   Batch
	Version metastore.Version
}

// Key is the marker's key.
func (b BatchAt) Key() string { return BatchKey(b.Chain, b.First) }

func (b BatchAt) remove(t *batch) {
	key := b.Key()
	t.when(metastore.At(key, b.Version))
	t.del(key)
	t.del(ScheduleKey(b.Chain, b.First, b.Batch.Ready))
	for _, id := range b.Batch.Streams {
		t.del(pendingKey(id, key))
	}
}

// ReadBatch reads a chain's batch marker. ok is false where none stands; a value
// that does not decode is an error wrapping ErrCorruptValue.
func (c *Catalog) ReadBatch(ctx context.Context, chain ChainID, first uint64) (b BatchAt, ok bool, err error) {
	recs, err := c.store.Get(ctx, BatchKey(chain, first))
	if err != nil {
		return BatchAt{}, false, fmt.Errorf("batch marker %s~%x: %w", chain, first, err)
	}
	if !recs[0].Exists() {
		return BatchAt{}, false, nil
	}
	v, err := DecodeBatch(recs[0].Value)
	if err != nil {
		return BatchAt{}, false, fmt.Errorf("%s: %w", recs[0].Key, err)
	}
	return BatchAt{chain, first, v, recs[0].Version}, true, nil
}

// CompleteBatches resolves batch markers whose every slot is rewritten, lowest first.
//
// Conditions of each commit: each marker and the chain's trim record are as read. Effects: the
// markers go with their schedule and pending entries; the chain's trimcheck is armed
// up to the end of the last of them, ready after the trim grace (arming again keeps the larger
// end); their bytes are added to the settled bytes.
//
// A crash before a commit leaves its markers standing: another era finds nothing
// held in their slots and completes them. After it the trimcheck watches the slots. A
// late twin fails on the markers. A marker that moved (ripened, flagged) is ErrMoved, for
// its schedule entry is another now: the caller's next era completes it.
func (c *Catalog) CompleteBatches(ctx context.Context, chain ChainID, ms []BatchAt) error {
	what := "completing batches of " + chain.String()
	limits := c.store.Limits()
	for round := 0; len(ms) > 0; {
		trim, err := c.ReadTrim(ctx, chain)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		check := DueKey(TrimCheck, readyAt(c.clk.Now(), c.timing.TrimGrace), chain.String())
		recs, err := c.store.Get(ctx, check)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		var b batch
		n, bytes, end := 0, uint64(0), uint64(0)
		for ; n < len(ms); n++ {
			if n > 0 && len(b.ops)+5+MaxAttributed > limits.MaxOps {
				break
			}
			ms[n].remove(&b)
			bytes += ms[n].Batch.Bytes
			end = max(end, ms[n].Batch.End)
		}
		up, err := c.mergeTrimCheck(ctx, chain, recs[0], TrimCheckMarker{UpTo: end, Bytes: bytes})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		b.when(metastore.At(check, recs[0].Version))
		b.put(check, up.encode())
		if trim.Version != 0 {
			b.when(metastore.At(TrimKey(chain), trim.Version))
			t := trim.Trim
			t.SettledBytes += bytes
			b.put(TrimKey(chain), t.encode())
		}
		_, _, err = c.commit(ctx, what, b.done())
		switch {
		case err == nil:
			ms, round = ms[n:], 0
			continue
		case !errors.Is(err, metastore.ErrConflict):
			return err
		}
		c.branch("batch.conflict")
		keys := make([]string, n)
		for i, m := range ms[:n] {
			keys[i] = m.Key()
		}
		now, err := c.get(ctx, keys...)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		var left []BatchAt
		for i, rec := range now {
			switch {
			case !rec.Exists():
				// A twin, or another member's era, completed it.
			case rec.Version != ms[i].Version:
				return fmt.Errorf("%s: %w: %s", what, ErrMoved, rec.Key)
			default:
				left = append(left, ms[i])
			}
		}
		ms = append(left, ms[n:]...)
		if err := c.pause(ctx, round); err != nil {
			return err
		}
		round++
	}
	return nil
}

// RipenBatch moves a standing batch marker's ready time to now: its chain owes too
// much, or a stream's teardown waits for it. An already ripe one is left alone.
//
// Conditions: the marker is at the version read. Effects: primary and schedule entry move
// in one commit. A late twin fails on the marker.
func (c *Catalog) RipenBatch(ctx context.Context, m BatchAt) error {
	now := unixMS(c.clk.Now())
	if m.Batch.Ready <= now {
		return nil
	}
	v := m.Batch
	v.Ready = now
	return c.rewriteBatch(ctx, "ripening a batch of "+m.Chain.String(), m, v)
}

// DelayBatch moves the marker of a batch that cannot be settled now to a later ready
// time, at least MinRearm ahead; a flagged one keeps only its damaged inventory, and is attributed to
// the streams in it.
func (c *Catalog) DelayBatch(ctx context.Context, m BatchAt, v Batch, delay time.Duration) error {
	v.Ready = unixMS(c.clk.Now().Add(max(delay, MinRearm)))
	if v.Damaged {
		v.Attribution = Attribution{}
		for _, it := range v.Inventory {
			v.add(it.Stream)
		}
	}
	return c.rewriteBatch(ctx, "delaying a batch of "+m.Chain.String(), m, v)
}

func (c *Catalog) rewriteBatch(ctx context.Context, what string, m BatchAt, v Batch) error {
	var b batch
	b.rewrite(m, v)
	_, _, err := c.commit(ctx, what, b.done())
	if errors.Is(err, metastore.ErrConflict) {
		return fmt.Errorf("%s: %w", what, ErrMoved)
	}
	return err
}

// rewrite adds to b the change of a batch marker's value, with its schedule entry and its
// index entries, conditional on the version read.
func (b *batch) rewrite(m BatchAt, v Batch) {
	b.when(metastore.At(m.Key(), m.Version))
	b.put(m.Key(), v.Encode())
	b.del(ScheduleKey(m.Chain, m.First, m.Batch.Ready))
	b.put(ScheduleKey(m.Chain, m.First, v.Ready), newEncoder(0).b)
	// The index follows the attribution: what a value does not name, nobody removes later.
	for _, id := range m.Batch.Streams {
		if !slices.Contains(v.Streams, id) {
			b.del(pendingKey(id, m.Key()))
		}
	}
	for _, id := range v.Streams {
		if !slices.Contains(m.Batch.Streams, id) {
			b.put(pendingKey(id, m.Key()), newEncoder(0).b)
		}
	}
}

// OwedBatches reads a chain's lowest standing batch markers, limit at most.
func (c *Catalog) OwedBatches(ctx context.Context, chain ChainID, from uint64, limit int) ([]BatchAt, error) {
	page, err := c.scan(ctx, metastore.Range{Start: BatchKey(chain, from), End: metastore.PrefixEnd(BatchPrefix(chain))}, limit)
	if err != nil {
		return nil, fmt.Errorf("batches of %s: %w", chain, err)
	}
	var out []BatchAt
	for _, r := range page.Records {
		first, err := parseHex16(r.Key[len(BatchPrefix(chain)):])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Key, err)
		}
		b, err := DecodeBatch(r.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Key, err)
		}
		out = append(out, BatchAt{chain, first, b, r.Version})
	}
	return out, nil
}

// damagedPage is how many batch markers FirstDamaged looks at.
const damagedPage = 16

// FirstDamaged returns the first of a chain's lowest 16 batch markers that is flagged as damaged, nil if none is, and whether any
// marker stands. One that is unreadable is passed over. A chain that is gone has none.
func (c *Catalog) FirstDamaged(ctx context.Context, chain ChainID) (damaged *BatchAt, standing bool, err error) {
	what := "damaged batches of " + chain.String()
	trim, err := c.ReadTrim(ctx, chain)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", what, err)
	}
	page, err := c.scan(ctx, metastore.Range{Start: BatchKey(chain, trim.Trim.Rewritten), End: metastore.PrefixEnd(BatchPrefix(chain))}, damagedPage)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", what, err)
	}
	for _, r := range page.Records {
		first, err := parseHex16(r.Key[len(BatchPrefix(chain)):])
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", r.Key, err)
		}
		if b, err := DecodeBatch(r.Value); err == nil && b.Damaged {
			return &BatchAt{chain, first, b, r.Version}, true, nil
		}
	}
	return nil, len(page.Records) > 0, nil
}

// DropSchedule removes a schedule entry whose primary is gone or has another ready
// time: it is of no use to anyone, since each commit that moves a primary moves its entry.
func (c *Catalog) DropSchedule(ctx context.Context, key string, version metastore.Version) error {
	return c.deleteAt(ctx, "dropping "+key, key, version)
}

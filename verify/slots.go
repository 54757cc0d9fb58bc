package verify

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// abreast returns what runs the reads of objects.
func (r *run) abreast() *clock.Group { return clock.NewGroup(r.clk, r.o.Abreast) }

// slots reads every slot that a chain records: from the trimmed cursor to the checkpoint, and of a sealed chain
// to its window's end. Those at or above an open chain's checkpoint are not recorded yet.
func (r *run) slots(ctx context.Context, id catalog.ChainID) error {
	recs, err := r.get(ctx, catalog.ChainKey(id), catalog.TrimKey(id))
	if err != nil {
		return err
	}
	c, e1 := catalog.DecodeChain(recs[0].Value)
	t, e2 := catalog.DecodeTrim(recs[1].Value)
	if e1 != nil || e2 != nil {
		return nil // retired since, or reported
	}
	end := c.Checkpoint
	if c.State == catalog.ChainSealed {
		end = max(end, c.WindowEnd)
	}
	tasks := r.abreast()
	for slot := t.Trimmed; slot < end && err == nil; slot++ {
		err = tasks.Go(ctx, "verify/slot", func(ctx context.Context) error {
			c, err := r.evaluateSlot(ctx, id, slot, true)
			if err != nil || c == nil {
				return err
			}
			return r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateSlot(ctx, id, slot, false) })
		})
	}
	if err = errors.Join(err, tasks.Wait(context.WithoutCancel(ctx))); err != nil || r.o.Recorded == nil || c.State == catalog.ChainSealed {
		return err
	}
	return r.announcedSlots(ctx, id, c, end)
}

// announcedSlots tells of the slots of a chain that is not sealed, from a slot on, whose objects exist: the chain's record announces them without
// saying which. A star puts none beyond the first that is not durable and its window, and seals are below the window's end.
func (r *run) announcedSlots(ctx context.Context, id catalog.ChainID, c catalog.Chain, from uint64) error {
	beyond := from + c.Window
	for slot := from; slot < max(beyond, c.WindowEnd); slot++ {
		_, size, claim, err := r.whole(ctx, catalog.SlotKey(id, slot))
		switch {
		case err != nil:
			return err
		case claim == nil:
			r.recorded(catalog.SlotKey(id, slot), size)
		case claim.Kind != ObjectMissing:
			r.recorded(catalog.SlotKey(id, slot), UnknownSize)
		}
		if slot == beyond-c.Window && (claim == nil || claim.Kind != ObjectMissing) {
			beyond++ // it is durable
		}
	}
	return nil
}

// evaluateSlot looks at one slot of a chain.
//
// A slot at or above the settle frontier and below the checkpoint exists: only what lies below the frontier is deleted. The object is looked at
// first, then the cursors, which never go back: a slot at or above the frontier then was so before. A chain that
// is gone by then is retired.
//
// A slot that exists below the checkpoint is watched: by a batch marker, by a trimcheck, or, of a sealed chain, by the settle
// marker. This rests on the trim record, held still by its version: while it stands, no batch was completed, since
// each completion adds to its settled bytes; so the batch that held the slot still stands if it did before, and a
// trimcheck only moved ahead, where a walk in key order cannot miss it.
//
// first: the first look, which may trust what it is told by one marker, and which counts.
func (r *run) evaluateSlot(ctx context.Context, id catalog.ChainID, slot uint64, first bool) (*claim, error) {
	key := catalog.SlotKey(id, slot)
	f, size, c, err := r.whole(ctx, key)
	if err != nil {
		return nil, err
	}
	if c == nil && (f.Kind != format.KindSlot && f.Kind != format.KindSeal || f.Star != id.Star || f.Epoch != id.Epoch || f.Slot != slot) {
		c = amiss(ObjectMismatch, key, "it is the %v of %s~%x at %d, by its own footer", f.Kind, f.Star, f.Epoch, f.Slot)
	}
	if first && (c == nil || c.Kind != ObjectMissing) {
		if c != nil {
			size = UnknownSize
		}
		r.recorded(key, size)
	}
	recs, err := r.get(ctx, catalog.ChainKey(id), catalog.TrimKey(id))
	if err != nil {
		return nil, err
	}
	chain, e1 := catalog.DecodeChain(recs[0].Value)
	trim, e2 := catalog.DecodeTrim(recs[1].Value)
	if e1 != nil || e2 != nil || slot < trim.Trimmed {
		return nil, nil // retired or trimmed since
	}
	if c != nil && c.Kind == ObjectMissing {
		if slot >= chain.Checkpoint {
			return nil, nil // of a sealed chain: its window is being emptied
		}
		if past, err := r.rewritten(ctx, id, slot, trim.Rewritten); err != nil || past {
			return nil, err
		}
		c.Detail = fmt.Sprintf("slot %d of chain %s does not exist, and its records are not rewritten yet", slot, id)
		return c, nil
	}
	if c != nil {
		return c, nil // objects never change: nothing else has to stand still
	}
	if slot >= chain.Checkpoint || chain.State == catalog.ChainSealed {
		return nil, nil // watched by the settle marker, which the walk of trim records asks for
	}
	if b, err := r.batchOf(ctx, id, slot, trim.Rewritten, first); err != nil || b != nil {
		return nil, err
	}
	upTo, err := r.trimUpTo(ctx, id)
	if err != nil || upTo > slot {
		return nil, err
	}
	return amiss(SlotUnwatched, key, "slot %d of chain %s is in no batch marker, and no trimcheck reaches it (trimmed %d, checkpoint %d): nothing will delete it",
		slot, id, trim.Trimmed, chain.Checkpoint).on(recs[1].Version), nil
}

// rewritten tells whether a slot below the checkpoint lies below the settle frontier: whether no batch marker stands from the
// rewritten cursor up to it. One that cannot be read, which is reported, holds everything back.
func (r *run) rewritten(ctx context.Context, id catalog.ChainID, slot, from uint64) (bool, error) {
	page, err := r.page(ctx, metastore.Range{Start: catalog.BatchKey(id, from), End: metastore.PrefixEnd(catalog.BatchPrefix(id))}, 1)
	if err != nil || len(page.Records) == 0 {
		return err == nil, err
	}
	_, first, err := catalog.ParseBatchKey(page.Records[0].Key)
	return err == nil && slot < first, nil
}

// trimUpTo returns how far the chain's trimchecks reach.
func (r *run) trimUpTo(ctx context.Context, id catalog.ChainID) (upTo uint64, err error) {
	subject := id.String()
	err = r.walk(ctx, catalog.ShardRange(catalog.TrimCheck, catalog.Shard(subject)), func(recs []metastore.Record) error {
		for _, rec := range recs {
			if d, err := catalog.ParseDue(rec.Key); err == nil && d.Subject == subject {
				if m, err := catalog.DecodeTrimCheckMarker(rec.Value); err == nil {
					upTo = max(upTo, m.UpTo)
				}
			}
		}
		return nil
	})
	return upTo, err
}

// batch is what a batch marker says of its slots.
type batch struct {
	first, end uint64
	unreadable bool // what it holds is not known
	items      []catalog.SlotItem
}

// holds tells whether the inventory has a run of a stream's offsets in a slot.
func (b *batch) holds(slot uint64, id catalog.StreamID, first, last uint64) bool {
	if b.unreadable {
		return true
	}
	at := sort.Search(len(b.items), func(i int) bool {
		it := &b.items[i]
		return it.Slot > slot || it.Slot == slot && it.Stream >= id
	})
	for ; at < len(b.items) && b.items[at].Slot == slot && b.items[at].Stream == id; at++ {
		if it := &b.items[at]; it.First <= first && last < it.First+it.Count {
			return true
		}
	}
	return false
}

// batchCache keeps the batches looked up last, by their chain, in order of their slots.
type batchCache struct {
	by    map[catalog.ChainID][]*batch
	order []cached
	items int
}

type cached struct {
	chain catalog.ChainID
	b     *batch
}

func newBatchCache() *batchCache { return &batchCache{by: map[catalog.ChainID][]*batch{}} }

// find returns the batch that holds a slot.
func (b *batchCache) find(id catalog.ChainID, slot uint64) *batch {
	list := b.by[id]
	if at := sort.Search(len(list), func(i int) bool { return list[i].end > slot }); at < len(list) && list[at].first <= slot {
		return list[at]
	}
	return nil
}

func (b *batchCache) put(id catalog.ChainID, x *batch) {
	list := b.by[id]
	at := sort.Search(len(list), func(i int) bool { return list[i].first >= x.first })
	if at < len(list) && list[at].first == x.first {
		return
	}
	b.by[id] = append(list[:at:at], append([]*batch{x}, list[at:]...)...)
	b.order = append(b.order, cached{id, x})
	b.items += len(x.items) + 1
	for b.items > cachedItemsMost && len(b.order) > 1 {
		old := b.order[0]
		b.order = b.order[1:]
		b.items -= len(old.b.items) + 1
		list := b.by[old.chain]
		for i, y := range list {
			if y == old.b {
				b.by[old.chain] = append(list[:i:i], list[i+1:]...)
				break
			}
		}
	}
}

// batchOf returns the standing batch marker that holds a slot, or nil. from is a slot at or below which
// none stands, as the rewritten cursor. Markers are found in one direction only, upward: it scans
// what begins in the last slots below, then in twice as many.
//
// With trusting, one seen lately is good enough: a marker that has gone since was complete, and so held no span
// that still stands.
func (r *run) batchOf(ctx context.Context, id catalog.ChainID, slot, from uint64, trusting bool) (*batch, error) {
	if trusting {
		r.mu.Lock()
		b := r.batches.find(id, slot)
		r.mu.Unlock()
		if b != nil {
			return b, nil
		}
	}
	for reach := uint64(64); ; reach *= 2 {
		start := max(from, slot-min(slot, reach))
		var last metastore.Record
		err := r.walk(ctx, metastore.Range{Start: catalog.BatchKey(id, start), End: catalog.BatchKey(id, slot) + "\x00"}, func(recs []metastore.Record) error {
			last = recs[len(recs)-1]
			return nil
		})
		if err != nil {
			return nil, err
		}
		if last.Exists() {
			_, first, e1 := catalog.ParseBatchKey(last.Key)
			v, e2 := catalog.DecodeBatch(last.Value)
			if e1 != nil || e2 != nil {
				// Unreadable, and reported: it stands, and holds back its chain's frontier.
				return &batch{first: slot, end: slot + 1, unreadable: true}, nil
			}
			if v.End <= slot {
				return nil, nil
			}
			b := &batch{first: first, end: v.End, items: v.Inventory}
			sort.Slice(b.items, func(i, j int) bool {
				x, y := &b.items[i], &b.items[j]
				return x.Slot < y.Slot || x.Slot == y.Slot && x.Stream < y.Stream
			})
			r.mu.Lock()
			r.batches.put(id, b)
			r.mu.Unlock()
			return b, nil
		}
		if start == from || start == 0 {
			return nil, nil
		}
	}
}

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// ripenPage is how many batch markers one commit of RipenOwed moves, at most.
const ripenPage = 8

// RipenOwed moves a chain's batch markers from slot from on, and below slot end, to now: its chain owes too much, or a stream's
// teardown waits for them. It returns the slot behind the last that needs no second look, and how many it moved. An already ripe marker, a
// damaged one, which waits for an operator and not for time, and one whose value is unreadable are passed over.
//
// It is best effort, in commits of its own of up to 8 markers. Conditions of each: its markers are at the
// versions read. Effects: primary and schedule entry of each move. Where one of them moved meanwhile
// (it was settled, or ripened by another) the others are moved each by itself. A crash between two commits leaves some
// markers ripe. A late twin fails on the markers. No object's watch changes: a marker watches the same
// slots whenever it is ready.
func (c *Catalog) RipenOwed(ctx context.Context, chain ChainID, from, end uint64) (next uint64, moved int, err error) {
	what := "ripening batches of " + chain.String()
	trim, err := c.ReadTrim(ctx, chain)
	if err != nil {
		return from, 0, fmt.Errorf("%s: %w", what, err)
	}
	from = max(from, trim.Trim.Rewritten)
	page := max(min(ripenPage, c.store.Limits().MaxOps/ripenOps), 1)
	for from < end {
		owed, read, more, err := c.owed(ctx, chain, from, end, page)
		if err != nil {
			return from, moved, fmt.Errorf("%s: %w", what, err)
		}
		n, err := c.ripenAll(ctx, what, owed)
		if moved += n; err != nil {
			return from, moved, err
		}
		if from = max(from, read); !more {
			break
		}
	}
	return from, moved, nil
}

// owed reads the first batch markers of [from, end), and returns the readable ones and the slot behind the last one read.
func (c *Catalog) owed(ctx context.Context, chain ChainID, from, end uint64, limit int) (out []BatchAt, read uint64, more bool, err error) {
	page, err := c.scan(ctx, metastore.Range{Start: BatchKey(chain, from), End: metastore.PrefixEnd(BatchPrefix(chain))}, limit)
	if err != nil {
		return nil, 0, false, err
	}
	for _, r := range page.Records {
		first, err := parseHex16(r.Key[len(BatchPrefix(chain)):])
		if err != nil {
			return nil, 0, false, fmt.Errorf("%s: %w", r.Key, err)
		}
		if first >= end {
			return out, read, false, nil
		}
		read = first + 1
		b, err := DecodeBatch(r.Value)
		if err != nil {
			c.branch("ripen.unreadable")
			continue
		}
		out = append(out, BatchAt{chain, first, b, r.Version})
	}
	return out, read, page.More, nil
}

// ripenAll moves those of the markers that are not ripe, in one commit, or, where that meets a
// conflict, each in one of its own.
func (c *Catalog) ripenAll(ctx context.Context, what string, ms []BatchAt) (moved int, err error) {
	now := unixMS(c.clk.Now())
	var b batch
	var unripe []BatchAt
	for _, m := range ms {
		if m.Batch.Damaged || m.Batch.Ready <= now {
			continue
		}
		v := m.Batch
		v.Ready = now
		b.rewrite(m, v)
		unripe = append(unripe, m)
	}
	if len(unripe) == 0 {
		return 0, nil
	}
	_, _, err = c.commit(ctx, what, b.done())
	switch {
	case err == nil:
		return len(unripe), nil
	case !errors.Is(err, metastore.ErrConflict):
		return 0, err
	}
	c.branch("ripen.conflict")
	for _, m := range unripe {
		err := c.RipenBatch(ctx, m)
		switch {
		case err == nil:
			moved++
		case !errors.Is(err, ErrMoved):
			return moved, err
		}
	}
	return moved, nil
}

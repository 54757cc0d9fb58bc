package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// Reads for operators. Each is made of pages read one after the other, so that
// what it shows was never true at one single instant; nothing decides by it.

// overviewPage is how many records one page of these reads holds.
const overviewPage = 512

// ChainView is a chain as operators see it.
type ChainView struct {
	ID    ChainID
	Chain Chain
	Trim  Trim
	// Live tells that a star holds the chain's route.
	Live bool
	// Damaged, if not nil, is a batch that is held back since slots of it are damaged or missing.
	Damaged *BatchAt
}

// Chains reads all chains that are not retired, by star and epoch.
func (c *Catalog) Chains(ctx context.Context) ([]ChainView, error) {
	stars, err := c.Stars(ctx)
	if err != nil {
		return nil, err
	}
	var out []ChainView
	for _, star := range stars {
		recs, err := c.store.Get(ctx, RouteKey(star))
		if err != nil {
			return nil, fmt.Errorf("route of star %s: %w", star, err)
		}
		live := uint64(0) // epochs begin at 1
		if recs[0].Exists() {
			route, err := DecodeRoute(recs[0].Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", recs[0].Key, err)
			}
			live = route.Epoch
		}
		err = c.walk(ctx, metastore.Prefix(ChainPrefix(star)), overviewPage, func(r metastore.Record) (bool, error) {
			id, err := ParseChainKey(r.Key)
			if err != nil {
				return false, err
			}
			// Both at one revision, later than the page: else the cursors could be out of order.
			recs, err := c.store.Get(ctx, r.Key, TrimKey(id))
			if err != nil {
				return false, err
			}
			if !recs[0].Exists() || !recs[1].Exists() {
				return true, nil // retired since the page was read
			}
			at, err := decodeChainRecord(id, recs[0])
			if err != nil {
				return false, err
			}
			trim, err := DecodeTrim(recs[1].Value)
			if err != nil {
				return false, fmt.Errorf("%s: %w", recs[1].Key, err)
			}
			damaged, _, err := c.FirstDamaged(ctx, id)
			if err != nil {
				return false, err
			}
			out = append(out, ChainView{ID: id, Chain: at.Chain, Trim: trim, Live: id.Epoch == live, Damaged: damaged})
			return true, nil
		})
		if err != nil {
			return nil, fmt.Errorf("chains of star %s: %w", star, err)
		}
	}
	return out, nil
}

// DueView is one queue as operators see it.
type DueView struct {
	Queue Queue
	// Standing counts the markers armed, Ripe those whose ready time has passed.
	Standing, Ripe int
	// Age is how far past its ready time the oldest ripe marker is; 0 where none is
	// ripe, and always of gc, whose order is no time.
	Age time.Duration
	// Capped tells that counting stopped, so that there may be more.
	Capped bool
}

// DueOverview counts the markers of every queue, in the order of priority. It stops
// at most markers (≥ 1) a queue; the age then is that of the oldest marker looked at.
func (c *Catalog) DueOverview(ctx context.Context, most int) ([]DueView, error) {
	now := c.clk.Now()
	out := make([]DueView, 0, len(Queues()))
	for _, q := range Queues() {
		v := DueView{Queue: q}
		for shard := 0; shard < Shards && !v.Capped; shard++ {
			err := c.walk(ctx, ShardRange(q, shard), overviewPage, func(r metastore.Record) (bool, error) {
				if v.Standing == most {
					v.Capped = true
					return false, nil
				}
				v.Standing++
				if late, ripe := c.pastDue(q, r, now); ripe {
					v.Ripe++
					v.Age = max(v.Age, late)
				}
				return true, nil
			})
			if err != nil {
				return nil, fmt.Errorf("queue %s: %w", q, err)
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// pastDue tells whether a marker is ripe and how late it is. One that does not parse
// is ripe: the next pass discards it.
func (c *Catalog) pastDue(q Queue, r metastore.Record, now time.Time) (time.Duration, bool) {
	due, err := ParseDue(r.Key)
	if err != nil || q == GC {
		return 0, true
	}
	late := due.PastDue(now)
	switch q {
	case Teardown:
		if late >= 0 {
			late = TeardownAge(due, r.Value, now)
		}
	case Orphan:
		in, err := DecodeIntent(r.Value)
		if err != nil {
			return 0, true
		}
		late = now.Sub(time.UnixMilli(in.Birth).Add(c.timing.OrphanGrace))
	}
	return max(late, 0), late >= 0
}

// walk hands the records of a range to f, in pages of at most size, until f says stop.
func (c *Catalog) walk(ctx context.Context, r metastore.Range, size int, f func(metastore.Record) (more bool, err error)) error {
	for {
		page, err := c.scan(ctx, r, size)
		if err != nil {
			return err
		}
		for _, rec := range page.Records {
			if more, err := f(rec); err != nil || !more {
				return err
			}
		}
		if !page.More {
			return nil
		}
		r.Start = page.Records[len(page.Records)-1].Key + "\x00"
	}
}

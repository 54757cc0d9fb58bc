package auditor

import (
	"context"
	"slices"
	"sync"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
)

// fetcher reads the slots of an era, each once as long as the cache holds it, for several tasks at
// once.
type fetcher struct {
	a     *Auditor
	chain catalog.ChainID
	most  int64 // bytes held

	mu    sync.Mutex
	by    map[uint64]*fetched
	order []uint64 // least recently used first
	bytes int64
}

// fetched is one slot: being read, or read.
type fetched struct {
	ready  *clock.Event
	body   []byte
	footer format.Footer
	err    error
}

func newFetcher(a *Auditor, chain catalog.ChainID, most int64) *fetcher {
	return &fetcher{a: a, chain: chain, most: most, by: make(map[uint64]*fetched)}
}

// get returns a slot's verified bytes. An error is not remembered but for damage,
// which several reads have agreed on.
func (f *fetcher) get(ctx context.Context, slot uint64) ([]byte, *format.Footer, error) {
	f.mu.Lock()
	x, ok := f.by[slot]
	if !ok {
		x = &fetched{ready: clock.NewEvent(f.a.clk)}
		f.by[slot] = x
	} else if i := slices.Index(f.order, slot); i >= 0 {
		f.order = append(slices.Delete(f.order, i, i+1), slot)
	}
	f.mu.Unlock()
	if ok {
		if err := x.ready.Wait(ctx); err != nil {
			return nil, nil, err
		}
		return x.body, &x.footer, x.err
	}
	x.body, x.footer, x.err = f.a.readSlot(ctx, f.chain, slot)
	f.mu.Lock()
	if x.err != nil && !isCorrupt(x.err) {
		delete(f.by, slot)
	} else {
		f.order = append(f.order, slot)
		f.bytes += int64(len(x.body))
		f.evict()
	}
	f.mu.Unlock()
	x.ready.Set()
	return x.body, &x.footer, x.err
}

// fetchAhead is how many slots of a chunk are read at once.
const fetchAhead = 8

// fetch begins to read the slots of a chunk, several at once and lowest first: one after
// the other they would cost a bucket's latency each, and an era of many its deadline. The units find
// them in the cache; what fails fails the unit that waits for it.
func (e *era) fetch(ctx context.Context, units []unit) *clock.Group {
	var slots []uint64
	for _, u := range units {
		slots = append(slots, u.slots()...)
	}
	slices.Sort(slots)
	slots = slices.Compact(slots)
	g := clock.NewGroup(e.a.clk, 0)
	// A group without a limit starts the task at once.
	_ = g.Go(ctx, "auditor/fetch", func(ctx context.Context) error {
		ahead := clock.NewGroup(e.a.clk, fetchAhead)
		for _, slot := range slots {
			if ahead.Go(ctx, "auditor/fetch", func(ctx context.Context) error {
				_, _, _ = e.slots.get(ctx, slot)
				return nil
			}) != nil {
				break
			}
		}
		return ahead.Wait(context.WithoutCancel(ctx))
	})
	return g
}

// evict forgets the slots used longest ago, but for the last one.
func (f *fetcher) evict() {
	for f.bytes > f.most && len(f.order) > 1 {
		slot := f.order[0]
		f.order = f.order[1:]
		f.bytes -= int64(len(f.by[slot].body))
		delete(f.by, slot)
	}
}

// drop forgets all slots, at the end of a round: the next one has others.
func (f *fetcher) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.by)
	f.order, f.bytes = nil, 0
}

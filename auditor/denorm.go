package auditor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
)

// denorm is the settle rewrite: records move from slots, which hold a flight of many
// streams, to settled objects, which hold one stream or a few small ones. A job is
// an era of one chain, under the chain's lease: rounds of its ripe batch markers, in
// slot order, as long as there are newly ripe ones and half the deadline is left.
//
// Steps of a round, and what a crash after each leaves:
//
//  1. Gather the chain's ripe markers by the schedule index. An entry whose primary is gone or has
//     another ready time is of no use to anyone: it is dropped, at its version.
//  2. Look up in the catalog what the slots of the markers' inventories, or those slots' bundles, still hold, and
//     which small spans beside it are moved along (tail-fill: tier.go says when, fill.go what). Reads only.
//  3. Kill, unread, the spans of tearing or removed streams, and those wholly below the watermark. Slots
//     are watched by the batch marker all the while, and in every step to come.
//  4. Build objects, verifying every block that is copied. In memory only.
//  5. For each object: announce it (intent). Nothing exists yet; a crash leaves an intent, which the
//     orphan duty resolves.
//  6. PUT it, unless past the intent's NotAfter. The intent watches it.
//  7. Swap the spans. What has moved is named by refs, what has not is in its slot; the intent stands. A settled object or
//     bundle that loses a ref has its reap-check armed in the same commit; another chain's slot is watched by its own chain.
//     What MaxOps parted is merged.
//     The batch markers stand: another era finds the rest, and writes it anew.
//  8. Resolve the intent: the refs watch. If every range was placed there is nothing else to
//     announce, else its reap-check is armed. If nothing was placed the intent is left standing, and the orphan duty deletes the object.
//  9. Complete the markers whose every slot is done, lowest first. Each commit arms the chain's
//     trimcheck, which from then on watches the slots. A crash before it leaves markers
//     whose slots hold nothing: another era completes them.
//
// Two eras of one chain at once (a lease lost, or none) write two objects for one range. Each old span moves once: the
// other swap finds it elsewhere and drops it, and what is then referenced only in
// part has its reap-check armed by step 8.
//
// A failed round fails by markers: those whose slots were touched by what failed
// stand and rest, their siblings complete.
//
// A damaged slot (corrupt in every one of several reads) holds back only what it
// held: everything else of its marker moves, then the marker is rewritten to the damaged inventory
// alone, flagged, and looked at again later. It goes once the stream was trimmed past it or removed.
type denorm struct {
	a     *Auditor
	cache int64 // bytes, for each era
}

func newDenorm(a *Auditor) *denorm {
	eras, _ := a.cacheShares()
	return &denorm{a: a, cache: eras}
}

// cacheShares parts the fetch cache's bytes among the jobs that may run at once: seven eighths to
// the eras, each alike, and an eighth to gc, which reads one object page by page.
func (a *Auditor) cacheShares() (era, gc int64) {
	share := a.opts.FetchCacheBytes / int64(a.pool.most)
	return share - share/8, share / 8
}

const (
	// roundPayload bounds the bytes of marker values, and roundItems the inventory, of a round: an
	// inventory grows with the streams in a slot.
	roundPayload = 64 << 20
	roundItems   = 1 << 17
	// damagedRecheck is when a flagged marker is looked at again.
	damagedRecheck = 5 * time.Minute
)

// Judge runs what is ripe of the chains that are placed at this member. An unripe
// entry stops the walk, placed here or not: all behind it are younger.
func (d *denorm) Judge(m catalog.MarkerAt, now time.Time) Verdict {
	if v := ripe(m.Due, now); v != Run {
		return v
	}
	if !d.a.ring.settles(m.Due.Chain.Star) {
		return Skip
	}
	return Run
}

// Handle runs an era.
func (d *denorm) Handle(ctx context.Context, j *Job) (Outcome, error) {
	e := d.era(j)
	half := j.Started.Add(d.a.cat.Timing().JobDeadline / 2)
	progress := false
	for {
		ms, dropped, err := e.gather(ctx)
		if err != nil {
			return Standing, err
		}
		done := 0
		if len(ms) > 0 {
			if done, err = e.round(ctx, ms); err != nil {
				return Standing, err
			}
		}
		progress = progress || done > 0 || dropped > 0
		if done+dropped == 0 || !d.a.clk.Now().Before(half) {
			break
		}
	}
	if progress {
		return Resolved, nil
	}
	return Standing, nil
}

// era returns the era of a job.
func (d *denorm) era(j *Job) *era {
	return &era{
		rewriter:  rewriter{a: d.a, j: j, chain: j.Marker.Due.Chain, cache: newFetcher(d.a, d.cache)},
		from:      j.Marker.Due.Key,
		payload:   roundPayload,
		slotBytes: d.cache - d.cache/4,
		nearBytes: d.cache / 4,
	}
}

// era is one job.
type era struct {
	rewriter
	from    string // where the chain's entries begin in the schedule
	payload int    // bytes of marker values that a round takes
	// What the cache holds at once of the era's own slots and bundles, and of what lies beside its spans.
	slotBytes, nearBytes int64
}

// scheduled is an entry of the schedule index.
type scheduled struct {
	due     catalog.Due
	version metastore.Version
}

// gather reads the chain's ripe markers, in slot order, as many as make a round. It drops the stale
// entries that it meets and tells how many.
func (e *era) gather(ctx context.Context) (ms []catalog.BatchAt, dropped int, err error) {
	defer e.j.step("gather")()
	entries, err := e.ripe(ctx)
	if err != nil {
		return nil, 0, err
	}
	payload, items, bytes := 0, 0, uint64(0)
	for part := range slices.Chunk(entries, gatherPage) {
		keys := make([]string, len(part))
		for i, s := range part {
			keys[i] = s.due.PrimaryKey()
		}
		recs, err := e.a.cat.Store().Get(ctx, keys...)
		if err != nil {
			return nil, dropped, fmt.Errorf("batch markers of %s: %w", e.chain, err)
		}
		for i, s := range part {
			var v catalog.Batch
			if recs[i].Exists() {
				if v, err = catalog.DecodeBatch(recs[i].Value); err != nil {
					// It can't be settled, and holds its chain's frontier until an operator looks.
					e.j.failed(keys[i], fmt.Errorf("%s: %w", keys[i], err))
					continue
				}
			}
			if !recs[i].Exists() || uint64(v.Ready) != s.due.Order {
				if err := e.a.cat.DropSchedule(ctx, s.due.Key, s.version); err != nil {
					return nil, dropped, err
				}
				dropped++
				continue
			}
			payload += len(recs[i].Value)
			items += len(v.Inventory)
			bytes += v.Bytes
			if len(ms) > 0 && (payload > e.payload || items > roundItems || bytes > uint64(e.slotBytes)) {
				return ms, dropped, nil
			}
			ms = append(ms, catalog.BatchAt{Chain: e.chain, First: s.due.First, Batch: v, Version: recs[i].Version})
		}
	}
	return ms, dropped, nil
}

// gatherPage bounds the batch markers of one read: each may be large.
const gatherPage = 16

// ripe reads the chain's ripe entries of the schedule, up to what a round may take, in slot order.
// The next round starts where this one found its first.
func (e *era) ripe(ctx context.Context) ([]scheduled, error) {
	var out []scheduled
	now := e.a.clk.Now()
	r := metastore.Range{Start: e.from, End: catalog.ShardFrom(catalog.Denorm, e.j.Marker.Due.Shard, uint64(now.UnixMilli())+1)}
	for page := 0; page < walkPages && len(out) < e.a.opts.MarkersPerEra; page++ {
		page, err := e.a.cat.Store().Scan(ctx, r, e.a.opts.PageSize)
		if err != nil {
			return nil, fmt.Errorf("schedule of %s: %w", e.chain, err)
		}
		for _, rec := range page.Records {
			due, err := catalog.ParseDue(rec.Key)
			if err != nil || due.Chain != e.chain || e.a.backoff.rests(due.PrimaryKey(), now) {
				continue
			}
			if len(out) < e.a.opts.MarkersPerEra {
				out = append(out, scheduled{due, rec.Version})
			}
		}
		if !page.More || len(page.Records) == 0 {
			break
		}
		r.Start = page.Records[len(page.Records)-1].Key + "\x00"
	}
	if len(out) > 0 {
		e.from = out[0].due.Key
	}
	slices.SortFunc(out, func(x, y scheduled) int { return cmp.Compare(x.due.First, y.due.First) })
	return out, nil
}

// round settles the markers, lowest first, and tells how many of them it completed. An error is one
// of the round as a whole; what fails of single markers is noted there.
func (e *era) round(ctx context.Context, ms []catalog.BatchAt) (int, error) {
	p, err := e.plan(ctx, ms)
	if err != nil {
		return 0, err
	}
	if err := e.killed(ctx, p.kill); err != nil {
		return 0, err
	}
	f := &fates{failed: p.unreadable, damaged: make(map[uint64]bool)}
	for _, units := range p.chunks {
		e.write(ctx, units, f)
		e.cache.dropRanges()
	}
	e.cache.drop()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var done []catalog.BatchAt
	for _, m := range ms {
		ruined, err := f.of(m)
		switch {
		case err != nil:
			e.j.failed(m.Key(), err)
		case len(ruined) > 0:
			if err := e.holdBack(ctx, m, ruined); err != nil {
				e.j.failed(m.Key(), err)
			}
		default:
			done = append(done, m)
		}
	}
	if len(done) == 0 {
		return 0, nil
	}
	if err := e.complete(ctx, done); err != nil {
		return 0, err
	}
	return len(done), nil
}

// complete resolves the markers. One that moved meanwhile (it was ripened) ends the era there:
// what was committed before stays, it and those behind it are found again by the next one.
func (e *era) complete(ctx context.Context, done []catalog.BatchAt) error {
	defer e.j.step("complete")()
	if err := e.a.cat.CompleteBatches(ctx, e.chain, done); err != nil {
		return err
	}
	bytes := uint64(0)
	for _, m := range done {
		e.a.backoff.succeeded(m.Key())
		bytes += m.Batch.Bytes
	}
	e.j.emit(Event{Action: BatchesDone, Chain: e.chain, From: done[0].First, To: done[len(done)-1].Batch.End, Count: len(done), Bytes: int64(bytes)})
	return nil
}

// killed kills what is not worth reading. A stream that is tearing stays so, and a
// watermark only advances: what was judged holds for ever.
func (r *rewriter) killed(ctx context.Context, kill []doomed) error {
	for _, k := range kill {
		n, err := r.a.cat.Kill(ctx, k.spans, func(s catalog.SpanAt) bool { return k.all || s.Span.Last() < k.watermark })
		if err != nil {
			return err
		}
		r.j.emit(Event{Action: SpansKilled, Chain: r.chain, Count: n})
	}
	return nil
}

// holdBack rewrites a marker to hold only what lies in its damaged slots, flagged.
func (e *era) holdBack(ctx context.Context, m catalog.BatchAt, ruined []uint64) error {
	v := m.Batch
	v.Damaged, v.Inventory = true, nil
	for _, it := range m.Batch.Inventory {
		if slices.Contains(ruined, it.Slot) {
			v.Inventory = append(v.Inventory, it)
		}
	}
	for _, slot := range ruined {
		key := catalog.SlotKey(e.chain, slot)
		e.a.log.Warn("a slot is damaged or missing; its batch is held back until its streams are trimmed past it or removed",
			"object", key, "chain", e.chain, "first_slot", m.First, "end_slot", m.Batch.End)
		e.j.emit(Event{Action: SlotDamaged, Chain: e.chain, Object: key, From: m.First, To: m.Batch.End})
	}
	return e.a.cat.DelayBatch(ctx, m, v, damagedRecheck)
}

// fates is what became of the slots of a round: those not noted are done.
type fates struct {
	failed  map[uint64]error
	damaged map[uint64]bool
}

// of returns the damaged slots of a marker, in order, and the first failure among its slots.
func (f *fates) of(m catalog.BatchAt) (ruined []uint64, err error) {
	for _, it := range m.Batch.Inventory {
		if err := f.failed[it.Slot]; err != nil {
			return nil, err
		}
		if f.damaged[it.Slot] && !slices.Contains(ruined, it.Slot) {
			ruined = append(ruined, it.Slot)
		}
	}
	return ruined, nil
}

// write runs the units of one chunk, MemberParallel abreast. Each stream is in one
// unit, so that its ranges move one at a time and in order.
func (e *era) write(ctx context.Context, units []unit, f *fates) {
	fetching := e.fetch(ctx, extents(units))
	g := clock.NewGroup(e.a.clk, e.a.opts.MemberParallel)
	results := make([]unitResult, len(units))
	started := 0
	for i := range units {
		if g.Go(ctx, "auditor/unit", func(ctx context.Context) error {
			results[i] = e.settle(ctx, units[i])
			return nil
		}) != nil {
			break
		}
		started++
	}
	// The end of ctx ends the units, each after its last bucket call, and no sooner: what this waits for
	// must not end with it.
	_ = g.Wait(context.WithoutCancel(ctx))
	_ = fetching.Wait(context.WithoutCancel(ctx))
	for i, u := range units {
		r := results[i]
		if i >= started {
			r.err = ctx.Err()
		}
		for _, s := range r.damaged {
			f.damaged[s] = true
		}
		for _, bad := range r.unfit {
			f.failed[bad.portion.slot] = bad
		}
		if r.err != nil {
			for _, slot := range u.slots() {
				if f.failed[slot] == nil {
					f.failed[slot] = r.err
				}
			}
		}
	}
}

package auditor

import "context"

// pass is one cycle of discovery: the boundary, one look at the front of every
// queue and shard, the rotation over those that have something, and what the duties
// do at a pass's end. Failures are logged; none ends it for the others. It tells whether it ended with ready
// work left: its budget cut the rotation, or a shard that had jobs is longer than what one pass walks.
func (a *Auditor) pass(ctx context.Context) (more bool) {
	pctx, cancel := a.clk.WithTimeout(ctx, a.opts.PassBudget)
	defer cancel()
	a.leases.retry(pctx)
	if err := a.ring.refresh(pctx); err != nil {
		if ctx.Err() == nil {
			a.log.Warn("the ring could not be read; owning nothing until the next pass", "err", err)
		}
		return false
	}
	a.publishStats(pctx)
	more = a.pool.rotate(pctx, ctx, a.open(pctx))
	var last *Registration
	for _, s := range a.sources {
		more = s.finish() || more
		if r := s.reg; r != last && r.PassEnd != nil {
			a.pool.quiet(pctx, r.Queue)
			r.PassEnd(ctx)
		}
		last = s.reg
	}
	return more
}

// open peeks at where each source's walk starts, many in one call, and returns those that have
// something to offer, in order of priority.
func (a *Auditor) open(ctx context.Context) []offer {
	now, front := a.clk.Now(), a.takeFronting()
	bound := uint64(max(now.Add(-a.cat.Timing().MaxClockSkew).UnixMilli(), 0))
	owned := a.ring.shards()
	// Kept from pass to pass: an idle one costs next to nothing.
	a.peekSources, a.peekRanges = a.peekSources[:0], a.peekRanges[:0]
	for _, s := range a.sources {
		if s.reg.AllShards || owned[s.shard] {
			a.peekSources = append(a.peekSources, s)
			a.peekRanges = append(a.peekRanges, s.begin(now, bound, front))
		}
	}
	srcs, ranges := a.peekSources, a.peekRanges
	var live []offer
	most := a.cat.Store().Limits().MaxOps
	for len(srcs) > 0 {
		n := min(most, len(srcs))
		recs, err := a.cat.Store().Peek(ctx, ranges[:n])
		for i, s := range srcs[:n] {
			switch {
			case err != nil:
				s.state = walkFailed
			case s.prime(recs[i], now):
				live = append(live, s)
			}
		}
		if err != nil && ctx.Err() == nil {
			a.log.Warn("queues could not be looked at; the next pass tries again", "shards", n, "err", err)
		}
		srcs, ranges = srcs[n:], ranges[n:]
	}
	return live
}

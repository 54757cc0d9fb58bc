package auditor

import (
	"context"
	"errors"

	"github.com/nova-store/nova/catalog"
)

// pass is one cycle of discovery: the boundary, one look at the front of every
// queue and shard, the rotation over those that have something, and what the duties
// do at a pass's end. Failures are logged; none ends it for the others.
func (a *Auditor) pass(ctx context.Context) {
	pctx, cancel := a.clk.WithTimeout(ctx, a.opts.PassBudget)
	defer cancel()
	a.leases.retry(pctx)
	if err := a.ring.refresh(pctx); err != nil {
		if ctx.Err() == nil {
			a.log.Warn("the ring could not be read; owning nothing until the next pass", "err", err)
		}
		return
	}
	a.pool.rotate(pctx, ctx, a.open(pctx))
	var last *Registration
	for _, s := range a.sources {
		s.finish()
		if r := s.reg; r != last && r.PassEnd != nil {
			a.pool.quiet(pctx, r.Queue)
			r.PassEnd(ctx)
		}
		last = s.reg
	}
}

// open peeks at where each source's walk starts, many in one call, and returns those that have
// something to offer, in order of priority.
func (a *Auditor) open(ctx context.Context) []offer {
	now, front := a.clk.Now(), a.takeFronting()
	// Kept from pass to pass: an idle one costs next to nothing.
	a.peekSources, a.peekRanges = a.peekSources[:0], a.peekRanges[:0]
	for _, s := range a.sources {
		if s.reg.AllShards || a.ring.owns(s.shard) {
			a.peekSources = append(a.peekSources, s)
			a.peekRanges = append(a.peekRanges, s.begin(now, front))
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

// run is the life of a job in its task: the work under the deadline, then the release of the
// lease, under the same deadline, so that a job can't hold a worker for ever; what
// it could not release has leaked, and is retried.
func (j *Job) run(ctx context.Context) {
	jctx, cancel := j.a.clk.WithTimeout(ctx, j.a.cat.Timing().JobDeadline)
	defer cancel()
	out, err := j.reg.Duty.Handle(jctx, j)
	j.a.leases.release(jctx, j.lease)
	if out == Spooled && err == nil {
		return
	}
	if err != nil && ctx.Err() != nil {
		// Cut by the end of Run: no failure of the marker.
		j.a.pool.vacate(j.key)
		return
	}
	j.end(out, err)
}

// end notes what became of a job. One bad marker costs one run of one job: a failure
// is logged and rests, and touches nothing else.
func (j *Job) end(out Outcome, err error) {
	a, due := j.a, j.Marker.Due
	now := a.clk.Now()
	switch {
	case err == nil && j.reg.Grouped:
		// What became of each marker, the group has noted itself. For the position this one
		// counts as standing: the next walk looks again.
	case err == nil && out != Standing:
		a.backoff.succeeded(due.PrimaryKey())
		j.src.gone(due.Key)
	default:
		wait := a.backoff.failed(due.PrimaryKey(), now)
		if err != nil && !errors.Is(err, catalog.ErrMoved) {
			a.log.Warn("a job failed", "queue", j.reg.Queue, "marker", due.Key, "again_in", wait, "err", err)
		}
	}
	a.pool.vacate(j.key)
	j.emit(Event{Action: JobDone, Outcome: out, Took: now.Sub(j.Started), Err: err})
	if err == nil && out == Resolved {
		a.wake.Raise()
	}
}

// failed notes that one marker of a group failed; its siblings go on.
func (j *Job) failed(marker string, err error) {
	wait := j.a.backoff.failed(marker, j.a.clk.Now())
	if !errors.Is(err, catalog.ErrMoved) {
		j.a.log.Warn("a marker of a group failed", "queue", j.reg.Queue, "marker", marker, "again_in", wait, "err", err)
	}
}

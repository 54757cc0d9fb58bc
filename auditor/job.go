package auditor

import (
	"context"
	"errors"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
)

// run is the life of a job in its task: the work under the deadline, then the release of its
// leases, under the same deadline, so that a job can't hold a worker for ever; what
// it could not release has leaked, and is retried.
func (j *Job) run(ctx context.Context) {
	jctx, cancel := j.a.clk.WithTimeout(ctx, j.a.cat.Timing().JobDeadline)
	defer cancel()
	out, err := j.reg.Duty.Handle(jctx, j)
	for i := range j.members {
		j.release(jctx, &j.members[i])
	}
	if out == Spooled && err == nil {
		return
	}
	for i := range j.members {
		switch m := &j.members[i]; {
		case m.ended:
		case err != nil && ctx.Err() != nil:
			// Cut by the end of Run: no failure of the marker.
			j.a.pool.vacate(m.key)
		default:
			j.finish(m, out, err)
		}
	}
}

func (j *Job) release(ctx context.Context, m *member) {
	j.a.leases.release(ctx, m.lease)
	m.lease = nil
}

// end notes what became of a job of one marker. One bad marker costs one run of one job: a failure
// is logged and rests, and touches nothing else.
func (j *Job) end(out Outcome, err error) { j.finish(&j.members[0], out, err) }

// each works on every marker of the group, GroupAbreast at once, and notes what became of each as
// it ends: its lease goes back, its subject is free, and where it failed it rests; no member
// waits for its siblings, or fails with them. Its results are Handle's. Like Handle, f returns only
// when no bucket call of its own is in the air, and so does each.
func (j *Job) each(ctx context.Context, f func(ctx context.Context, m catalog.MarkerAt) (Outcome, error)) (Outcome, error) {
	g := clock.NewGroup(j.a.clk, max(j.reg.GroupAbreast, 1))
	for _, m := range j.Markers {
		if g.Go(ctx, "auditor/member", func(ctx context.Context) error {
			out, err := f(ctx, m)
			if err != nil && errors.Is(ctx.Err(), context.Canceled) {
				return nil // cut by the end of Run: run notes it
			}
			j.release(ctx, j.memberOf(m))
			j.member(m, out, err)
			return nil
		}) != nil {
			break
		}
	}
	// The end of ctx ends the members, each after its last bucket call, and no sooner.
	_ = g.Wait(context.WithoutCancel(ctx))
	return Standing, ctx.Err()
}

// member notes what became of one marker of the group, once; those that no call was made for end as
// Handle's results say.
func (j *Job) member(m catalog.MarkerAt, out Outcome, err error) { j.finish(j.memberOf(m), out, err) }

func (j *Job) memberOf(m catalog.MarkerAt) *member {
	for i := range j.members {
		if j.members[i].marker.Due.Key == m.Due.Key {
			return &j.members[i]
		}
	}
	panic("auditor: " + m.Due.Key + " is no marker of this job")
}

func (j *Job) finish(m *member, out Outcome, err error) {
	a, due := j.a, m.marker.Due
	now := a.clk.Now()
	m.ended = true
	stands := true
	switch {
	case err == nil && j.reg.Grouped:
		a.backoff.succeeded(m.key)
		// What became of each marker, the era has noted itself. For the position this one
		// counts as standing: the next walk looks again.
	case err == nil && out != Standing:
		a.backoff.succeeded(due.PrimaryKey())
		stands = false
	default:
		wait := a.backoff.failed(due.PrimaryKey(), now)
		if err != nil && j.reg.Grouped && !errors.Is(err, catalog.ErrMoved) {
			a.backoff.failed(m.key, now) // or each marker of the chain would begin the same failing era
		}
		if err != nil && (!errors.Is(err, catalog.ErrMoved) || errors.Is(err, errLate)) {
			a.log.Warn("a job failed", "queue", j.reg.Queue, "marker", due.Key, "again_in", wait, "err", err)
		}
	}
	j.src.ended(due.Key, stands)
	a.pool.vacate(m.key)
	a.emit(Event{Duty: string(j.reg.Queue), Action: JobDone, Subject: due.Subject, Outcome: out, Took: now.Sub(j.Started), Err: err})
	if err == nil && out == Resolved {
		a.wake.Raise()
	}
}

// failed notes that one marker of an era failed; its siblings go on.
func (j *Job) failed(marker string, err error) {
	wait := j.a.backoff.failed(marker, j.a.clk.Now())
	if !errors.Is(err, catalog.ErrMoved) {
		j.a.log.Warn("a marker of a group failed", "queue", j.reg.Queue, "marker", marker, "again_in", wait, "err", err)
	}
}

package auditor

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/nova-store/nova/catalog"
)

// teardown takes a deleted stream away, span by span and then its records. Its marker is armed by the
// deletion, ready after the undelete window. A job takes up to teardownGroup markers of a shard and walks
// teardownAbreast streams at a time; each converges, or fails and rests, by itself.
//
// Steps for a stream, and what a crash after each leaves:
//
//  1. deleted → tearing. The stream can't come back, and absorb, which is conditional on an active
//     stream, gives it no span any more. The marker stands, through all steps: the next run goes on from what it finds. The
//     stream's records are gone, or it is active: the marker is nobody's, and is resolved.
//  2. Compare the stream's last slot on every chain with that chain's frontier. One that lies at or above it is still
//     inside a settle job's territory: ripen the chain's owed markers up to that slot, so that the wait is about
//     one settle pass and not the age cap, and re-arm, the original times in the value. Markers of other streams'
//     damaged slots are not waited for; a chain that is retired is past.
//  3. Kill from the start until a fresh look finds no span. Each commit arms the reap-checks of the
//     objects that lose a ref; what is still in slots their chain watches. An era at work on the stream finds its
//     spans gone, and drops them. Out of time: re-arm for more work.
//  4. Finish: the stream's three records, its retention marker, where one stands, and the teardown marker go in one commit.
//     No object's watch changes: the reap-checks stand by themselves.
type teardown struct{ a *Auditor }

const (
	// teardownGroup is how many markers a job takes, teardownAbreast how many streams it walks at a time.
	teardownGroup   = 16
	teardownAbreast = 8
	// teardownTries is how often a run begins anew when the stream's records move under it.
	teardownTries = 3
)

// Judge runs what is ripe.
func (t *teardown) Judge(m catalog.MarkerAt, now time.Time) Verdict { return ripe(m.Due, now) }

// Handle runs the steps above for each marker of the group.
func (t *teardown) Handle(ctx context.Context, j *Job) (Outcome, error) {
	return j.each(ctx, func(ctx context.Context, m catalog.MarkerAt) (Outcome, error) {
		id, err := catalog.ParseStreamID(m.Due.Subject)
		if err != nil {
			return Standing, err
		}
		for try := 1; ; try++ {
			out, err := t.run(ctx, j, m, id)
			if try == teardownTries || !errors.Is(err, catalog.ErrMoved) {
				return out, err
			}
		}
	})
}

// run does what can be done for one stream.
func (t *teardown) run(ctx context.Context, j *Job, m catalog.MarkerAt, id catalog.StreamID) (Outcome, error) {
	cat := t.a.cat
	v, err := cat.BeginTeardown(ctx, m, id)
	switch {
	case errors.Is(err, catalog.ErrNoStream):
		return Resolved, cat.ResolveStrayTeardown(ctx, m, v, id)
	case err != nil:
		return Standing, err
	}
	wait, err := t.owed(ctx, v)
	if err != nil {
		return Standing, err
	}
	if wait {
		j.emit(Event{Action: TeardownWaits, Subject: id.String()})
		return Waiting, cat.RearmTeardown(ctx, m, catalog.MinRearm)
	}
	more, err := t.a.killSpans(ctx, j, id, math.MaxUint64, j.Started.Add(cat.Timing().JobDeadline/2))
	if err != nil {
		return Standing, err
	}
	if more {
		return Resolved, cat.RearmTeardown(ctx, m, catalog.MinRearm)
	}
	if err := cat.FinishTeardown(ctx, m, v); err != nil {
		return Standing, err
	}
	j.emit(Event{Action: StreamTornDown, Subject: id.String()})
	return Resolved, nil
}

// owed tells whether a chain still owes a slot that may hold records of the stream, and ripens what each such
// chain owes up to there. Ripening is best effort: a marker that was missed ripens by itself.
func (t *teardown) owed(ctx context.Context, v catalog.StreamView) (bool, error) {
	owed, ripened := false, 0
	for _, l := range v.Head.Chains {
		frontier, err := t.a.cat.FrontierOf(ctx, l.Chain, v.ID)
		if err != nil {
			return false, err
		}
		if l.Slot < frontier {
			continue
		}
		owed = true
		_, n, err := t.a.cat.RipenOwed(ctx, l.Chain, 0, l.Slot+1)
		if ripened += n; err != nil && ctx.Err() == nil {
			t.a.log.Warn("batch markers not ripened", "chain", l.Chain, "stream", v.ID, "err", err)
		}
	}
	if ripened > 0 {
		t.a.Wake() // this pass has looked at the schedule before
	}
	return owed, nil
}

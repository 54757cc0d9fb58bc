package auditor

import (
	"context"
	"errors"
	"time"

	"github.com/nova-store/nova/catalog"
)

// retention is the physical half of trims and policies: readers judge by watermark and policy at each
// read, so that nothing here changes what is served. A stream has at most one retention marker, whose
// key its mark holds; a trim, a new policy, and appends where policy asks for it arm or move it.
//
// Steps, and what a crash after each leaves:
//
//  1. Read the stream's records. They are gone, or the mark names another marker: this one is
//     nobody's, and is resolved. The stream is deleted or tearing: the marker is resolved too and
//     its key cleared. What is below the watermark goes with all the rest at the teardown, which has a marker of its own; in
//     an undelete window, which may be long, the marker would be ripe for nothing at every pass; and an
//     undelete arms retention anew.
//  2. Compute from policy and clock where the readable spans begin. Reads only.
//  3. Advance the watermark to it, never back. The marker stands, ripe: the next run kills.
//  4. Kill the spans wholly below, in batches. Each commit arms the reap-checks of the objects that lose a
//     ref, slots excepted, which their chain watches. The marker stands: the next run goes on.
//     Out of time: re-arm for more work.
//  5. There is a max age and a span: re-arm for the time at which the first one expires.
//     Else only a trim, a policy or an append makes work, and each arms: resolve and clear the key. Either
//     notes how far the head must come before that span is expired by size, so that
//     the absorb that brings it there, and none before, moves the marker.
//
// Step 5 is conditional on the head where an append can make work. A busy stream moves its head all the time: after a few
// tries the marker is re-armed a marker bucket ahead, whatever the head is.
type retention struct{ a *Auditor }

// Judge runs what is ripe.
func (r *retention) Judge(m catalog.MarkerAt, now time.Time) Verdict { return ripe(m.Due, now) }

// retentionTries is how often a run judges anew when the stream's records move under it.
const retentionTries = 4

// Handle runs the steps above.
func (r *retention) Handle(ctx context.Context, j *Job) (Outcome, error) {
	id, err := catalog.ParseStreamID(j.Marker.Due.Subject)
	if err != nil {
		return Standing, err
	}
	for try := 1; ; try++ {
		out, err := r.run(ctx, j, id, try == retentionTries)
		if try == retentionTries || !errors.Is(err, catalog.ErrMoved) {
			return out, err
		}
	}
}

// run judges and acts once. soon gives up on being exact about appends.
func (r *retention) run(ctx context.Context, j *Job, id catalog.StreamID, soon bool) (Outcome, error) {
	cat := r.a.cat
	v, err := cat.ReadAnyStream(ctx, id)
	switch {
	case errors.Is(err, catalog.ErrNoStream):
		return Resolved, cat.ResolveStrayRetention(ctx, j.Marker, catalog.StreamView{ID: id})
	case err != nil:
		return Standing, err
	case v.Mark.RetentionKey != j.Marker.Due.Key:
		return Resolved, cat.ResolveStrayRetention(ctx, j.Marker, v)
	case v.Stream.State != catalog.StreamActive:
		return Resolved, cat.ResolveRetention(ctx, j.Marker, v, 0)
	}
	readable, err := cat.Readable(ctx, v, r.a.clk.Now())
	if err != nil {
		return Standing, err
	}
	if v, err = cat.AdvanceWatermark(ctx, v, readable.First, readable.FirstBytes); err != nil {
		return Standing, err
	}
	more, err := r.a.killSpans(ctx, j, id, v.Mark.Watermark, j.Started.Add(cat.Timing().JobDeadline/2))
	if err != nil {
		return Standing, err
	}
	if more {
		return Resolved, cat.RearmRetention(ctx, j.Marker, v, r.a.clk.Now(), 0, true)
	}
	first, _, err := cat.Spans(ctx, id, v.Mark.Watermark, 1)
	if err != nil {
		return Standing, err
	}
	next := catalog.Expiring{}
	if len(first) > 0 {
		next = v.Expiring(first[0].Span)
	}
	now := r.a.clk.Now()
	switch {
	case soon && v.Stream.Policy != (catalog.Policy{}):
		at := now.Add(catalog.MarkerBucket)
		if !next.At.IsZero() && next.At.Before(at) {
			at = next.At
		}
		return Waiting, cat.RearmRetention(ctx, j.Marker, v, at, next.Bytes, true)
	case next.At.IsZero():
		return Resolved, cat.ResolveRetention(ctx, j.Marker, v, next.Bytes)
	}
	return Waiting, cat.RearmRetention(ctx, j.Marker, v, next.At, next.Bytes, false)
}

package metrics

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/star"
)

// AuditorEvents returns a listener that counts what an auditor does and passes it on to next, if
// that is not nil.
func (m *Metrics) AuditorEvents(next auditor.Events) auditor.Events { return &auditorEvents{m, next} }

type auditorEvents struct {
	m    *Metrics
	next auditor.Events
}

func (a *auditorEvents) Event(e auditor.Event) {
	ctx, m := context.Background(), a.m
	duty := attribute.String("duty", e.Duty)
	switch e.Action {
	case auditor.JobDone:
		m.jobs.Add(ctx, 1, metric.WithAttributes(duty, attribute.String("outcome", jobOutcome(e))))
		m.jobLatency.Record(ctx, e.Took.Seconds(), metric.WithAttributes(duty))
	case auditor.StepDone:
		m.stepLatency.Record(ctx, e.Took.Seconds(), metric.WithAttributes(duty, attribute.String("step", e.Step)))
	case auditor.LeaseSkipped:
		m.skips.Add(ctx, 1, metric.WithAttributes(duty))
	case auditor.Discarded:
		m.discards.Add(ctx, 1, metric.WithAttributes(duty))
	case auditor.ObjectReaped, auditor.OrphanDeleted:
		m.reclaim(ctx, duty, 1, e.Bytes)
	case auditor.Trimmed, auditor.StarSwept:
		m.reclaim(ctx, duty, e.Count, e.Bytes)
	case auditor.ChainRetired:
		m.reclaim(ctx, duty, int(e.To-e.From), e.Bytes)
	}
	if a.next != nil {
		a.next.Event(e)
	}
}

func (m *Metrics) reclaim(ctx context.Context, duty attribute.KeyValue, objects int, bytes int64) {
	if objects > 0 {
		m.reclaimedObjects.Add(ctx, int64(objects), metric.WithAttributes(duty))
	}
	if bytes > 0 {
		m.reclaimed.Add(ctx, bytes, metric.WithAttributes(duty))
	}
}

// jobOutcome is resolved, waiting or standing; or moved, where someone else acted, and failed.
func jobOutcome(e auditor.Event) string {
	switch {
	case errors.Is(e.Err, catalog.ErrMoved):
		return "moved"
	case e.Err != nil:
		return "failed"
	}
	return e.Outcome.String()
}

// StarEvents returns a listener that counts what a star does and passes it on to next, if that is not nil.
func (m *Metrics) StarEvents(next star.Events) star.Events { return &starEvents{m, next} }

type starEvents struct {
	m    *Metrics
	next star.Events
}

func (s *starEvents) Minted(c catalog.ChainID) {
	s.m.minted.Add(context.Background(), 1)
	if s.next != nil {
		s.next.Minted(c)
	}
}

func (s *starEvents) Fenced(c catalog.ChainID, reason error) {
	s.m.ended.Add(context.Background(), 1)
	if s.next != nil {
		s.next.Fenced(c, reason)
	}
}

func (s *starEvents) Departed(c catalog.ChainID, slot, first uint64, bytes int) {
	if s.next != nil {
		s.next.Departed(c, slot, first, bytes)
	}
}

func (s *starEvents) Landed(c catalog.ChainID, slot uint64, took time.Duration) {
	s.m.slotLatency.Record(context.Background(), took.Seconds())
	if s.next != nil {
		s.next.Landed(c, slot, took)
	}
}

func (s *starEvents) Absorbed(c catalog.ChainID, slots int, checkpoint uint64) {
	s.m.slotsAbsorbed.Add(context.Background(), int64(slots))
	if s.next != nil {
		s.next.Absorbed(c, slots, checkpoint)
	}
}

func (s *starEvents) Appended(records, bytes int, took time.Duration, err error) {
	ctx := context.Background()
	s.m.appendLatency.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("outcome", requestOutcome(err))))
	if err == nil {
		s.m.appendRecords.Add(ctx, int64(records))
		s.m.appendBytes.Add(ctx, int64(bytes))
	}
	if s.next != nil {
		s.next.Appended(records, bytes, took, err)
	}
}

func (s *starEvents) Read(records, bytes int, took time.Duration, err error) {
	ctx := context.Background()
	s.m.readLatency.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("outcome", requestOutcome(err))))
	s.m.readRecords.Add(ctx, int64(records))
	s.m.readBytes.Add(ctx, int64(bytes))
	if s.next != nil {
		s.next.Read(records, bytes, took, err)
	}
}

func (s *starEvents) Branch(name string) {
	if s.next != nil {
		s.next.Branch(name)
	}
}

// requestOutcome tells what the operator has to look at (overloaded, no-room, unknown, failed) from what only
// the client has (refused, cancelled).
func requestOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, star.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, star.ErrOverloaded), errors.Is(err, star.ErrNotReady), errors.Is(err, star.ErrShuttingDown):
		return "overloaded"
	case errors.Is(err, objstore.ErrNoRoom):
		return "no-room"
	case cancelled(err):
		return "cancelled"
	}
	for _, refusal := range []error{
		star.ErrBadRequest, star.ErrTooLarge, star.ErrWrongOffset, star.ErrProducerGap, star.ErrProducerFenced, star.ErrTrimmed,
		star.ErrBeyondEnd, catalog.ErrNoStream, catalog.ErrBadName,
	} {
		if errors.Is(err, refusal) {
			return "refused"
		}
	}
	return "failed"
}

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// Kill removes spans: of a tearing stream, or wholly below the watermark.
//
// Conditions of each commit: each span is at the version read. Effects: the spans go, and exactly
// the refs of the objects named at those versions; the same commit arms the
// reap-check of each of those objects, slots excepted, which their chain watches.
//
// A crash between two commits leaves some spans killed, each with its object's
// reap-check standing. A late twin fails on the spans, which every commit removes.
// A span that is gone counts as killed; one that moved to another object is killed there, as wanted
// allows: it is asked again whether the span as it now is should go.
func (c *Catalog) Kill(ctx context.Context, spans []SpanAt, wanted func(SpanAt) bool) (killed int, err error) {
	limits := c.store.Limits()
	rest := append([]SpanAt(nil), spans...)
	most := max(limits.MaxOps/perSpan, 1)
	for round := 0; len(rest) > 0; {
		n := min(most, len(rest))
		err := c.killOnce(ctx, rest[:n])
		if err == nil {
			killed += n
			rest, round = rest[n:], 0
			continue
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return killed, err
		}
		c.branch("kill.conflict")
		keys := make([]string, n)
		for i, s := range rest[:n] {
			keys[i] = s.Key()
		}
		recs, err := c.get(ctx, keys...)
		if err != nil {
			return killed, fmt.Errorf("reading spans again: %w", err)
		}
		var left []SpanAt
		for i, rec := range recs {
			if !rec.Exists() {
				killed++
				continue
			}
			s, err := decodeSpanRecord(rest[i].Stream, rec)
			if err != nil {
				return killed, err
			}
			if wanted(s) {
				left = append(left, s)
			}
		}
		rest = append(left, rest[n:]...)
		if err := c.pause(ctx, round); err != nil {
			return killed, err
		}
		round++
	}
	return killed, nil
}

func (c *Catalog) killOnce(ctx context.Context, spans []SpanAt) error {
	var b batch
	lost := newArms()
	for _, s := range spans {
		b.when(metastore.At(s.Key(), s.Version))
		b.append(metastore.Delete(s.Key()))
		if !IsSlot(s.Span.Object) {
			b.append(metastore.Delete(RefKey(s.Span.Object, s.Stream, s.Span.Last())))
			lost.addRef(s.Span.Object, s.Stream, s.Span.Last(), false)
		}
	}
	if err := c.armReaps(ctx, &b, lost); err != nil {
		return err
	}
	_, _, err := c.commit(ctx, "killing spans", b.done())
	return err
}

package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// Run is a stretch of one stream's consecutive offsets that moves into a new
// object.
type Run struct {
	Stream StreamID
	// Old are the spans as read: consecutive, without a gap.
	Old []SpanAt
	// Section is the new object's section that holds at least these offsets; its
	// FirstOffset is the offset of its ordinal 0.
	Section *format.Section
}

// Publish is an object that was announced and PUT, and waits to be named.
type Publish struct {
	Object string
	Size   int64
	Intent metastore.Version // as armed
}

// Swapped says what became of a swap's old spans.
type Swapped struct {
	Placed  int // spans that now lie in the new object
	Dropped int // spans that were gone, or held elsewhere, by the time
	// Parted: a run did not fit into one commit and became several spans, beside one another, for MergeRange
	// to join.
	Parted bool
}

// Swap makes spans of old objects spans of a new one.
//
// Conditions of each commit: the new object's intent and each old span are at the versions read.
// Effects, for each run in it, complete in itself: the old spans and their refs go,
// one span over the whole run and its ref come, and the reap-check of every object
// that lost a ref is armed. A commit carries as many runs as MaxOps allows; a
// conflict splits it, down to one run.
//
// An old span is dropped from its run only if it is absent or no longer names the old
// object; any other conflict is retried. A slot has no ref and no reap-check: its
// chain watches it.
//
// A crash between two commits leaves some runs moved and some not. The new object
// is watched by its refs and still by its intent, each old one by what refs it has
// left and by the reap-check armed with the first that it lost. A run that did not fit into one commit is
// left in pieces, each a span with its ref, that nobody need ever join: they read as one would. A late twin fails on
// the old spans, which every commit removes.
//
// ErrIntentLost: the intent was condemned or is gone. The caller gives the object
// up; runs placed before that stand, and the orphan duty finds their refs.
func (c *Catalog) Swap(ctx context.Context, p Publish, runs []Run) (Swapped, error) {
	if p.Intent == 0 {
		// It would demand that no intent stands: that nobody watches.
		return Swapped{}, fmt.Errorf("swapping spans to %s: %w: it was never announced", p.Object, ErrIntentLost)
	}
	s := swap{c: c, p: p, limits: c.store.Limits()}
	for _, r := range runs {
		s.split(r)
	}
	most := len(s.rest)
	for round := 0; len(s.rest) > 0; {
		n := s.fit(most)
		err := s.commit(ctx, s.rest[:n])
		switch {
		case err == nil:
			for _, r := range s.rest[:n] {
				s.out.Placed += len(r.Old)
			}
			s.rest = s.rest[n:]
			most, round = max(2*n, most), 0
			continue
		case !errors.Is(err, metastore.ErrConflict):
			return s.out, err
		}
		c.branch("swap.conflict")
		if err := s.refresh(ctx, n); err != nil {
			return s.out, err
		}
		most = max(n/2, 1)
		if err := c.pause(ctx, round); err != nil {
			return s.out, err
		}
		round++
	}
	return s.out, nil
}

type swap struct {
	c      *Catalog
	p      Publish
	limits metastore.Limits
	rest   []Run
	out    Swapped
}

// perSpan bounds what one old span adds to a commit, in operations: its own delete,
// its ref's, and the reap-check of its object with one pending entry. perRun is the
// new span and its ref.
const (
	perSpan = 4
	perRun  = 2
)

// split cuts a run into pieces that fit into one commit each. Each piece is complete
// in itself: a stretch of spans becomes one span.
func (s *swap) split(r Run) {
	most := max(min((s.limits.MaxOps-perRun-1)/perSpan, 256), 1)
	for len(r.Old) > 0 {
		n := min(most, len(r.Old))
		s.out.Parted = s.out.Parted || n < len(r.Old)
		s.rest = append(s.rest, Run{Stream: r.Stream, Old: r.Old[:n:n], Section: r.Section})
		r.Old = r.Old[n:]
	}
}

// fit returns how many of the next runs go into one commit, at most most, at least one.
func (s *swap) fit(most int) int {
	ops := 1 // the intent's condition
	for n, r := range s.rest {
		ops += perRun + perSpan*len(r.Old)
		if n > 0 && (n >= most || ops > s.limits.MaxOps) {
			return n
		}
	}
	return len(s.rest)
}

// commit tries the runs once.
func (s *swap) commit(ctx context.Context, runs []Run) error {
	var b batch
	b.when(metastore.At(IntentKey(s.p.Object), s.p.Intent))
	lost := newArms()
	for _, r := range runs {
		span := s.merged(r)
		for _, o := range r.Old {
			b.when(metastore.At(o.Key(), o.Version))
			if o.Span.Last() != span.Last() {
				b.append(metastore.Delete(o.Key()))
			}
			if !IsSlot(o.Span.Object) {
				b.append(metastore.Delete(RefKey(o.Span.Object, r.Stream, o.Span.Last())))
				lost.addRef(o.Span.Object, r.Stream, o.Span.Last(), false)
			}
		}
		b.append(metastore.Put(SpanKey(r.Stream, span.Last()), span.Encode()))
		b.append(metastore.Put(RefKey(s.p.Object, r.Stream, span.Last()),
			Ref{Bytes: uint64(span.Length), ObjectSize: uint64(s.p.Size)}.encode()))
	}
	if err := s.c.armReaps(ctx, &b, lost); err != nil {
		return err
	}
	_, _, err := s.c.commit(ctx, "swapping spans to "+s.p.Object, b.done())
	return err
}

// merged is the one span that a run becomes.
func (s *swap) merged(r Run) Span {
	first, last := r.Old[0].Span, r.Old[len(r.Old)-1].Span
	count := last.Last() - first.First + 1
	ordinal := uint32(first.First - r.Section.FirstOffset)
	off, length := r.Section.Range(ordinal, uint32(count))
	bytes := uint64(0)
	for _, o := range r.Old {
		bytes += o.Span.Bytes
	}
	return Span{
		First: first.First, Count: count, Bytes: bytes,
		Object: s.p.Object, Offset: off, Length: length, Ordinal: ordinal,
		FirstTimestamp: first.FirstTimestamp, MaxTimestamp: last.MaxTimestamp, BytePos: last.BytePos,
	}
}

// refresh reads the first n runs and the intent again after a conflict. Spans that a
// twin of ours placed count as placed; those that are gone or held elsewhere are
// dropped, which may part a run in two; the others stay, at their new versions.
func (s *swap) refresh(ctx context.Context, n int) error {
	in, ok, err := s.c.ReadIntent(ctx, s.p.Object)
	if err != nil {
		return err
	}
	lost := !ok || in.Version != s.p.Intent
	var left []Run
	for _, r := range s.rest[:n] {
		keys := make([]string, len(r.Old))
		for i, o := range r.Old {
			keys[i] = o.Key()
		}
		recs, err := s.c.get(ctx, keys...)
		if err != nil {
			return fmt.Errorf("reading spans of stream %v again: %w", r.Stream, err)
		}
		now := make([]SpanAt, len(recs))
		for i, rec := range recs {
			if rec.Exists() {
				if now[i], err = decodeSpanRecord(r.Stream, rec); err != nil {
					return err
				}
			}
		}
		if end := now[len(now)-1]; end.Span.Object == s.p.Object && end.Span.First <= r.Old[0].Span.First {
			s.c.branch("swap.twin")
			s.out.Placed += len(r.Old)
			continue
		}
		part := Run{Stream: r.Stream, Section: r.Section}
		for i, o := range r.Old {
			if now[i].Version != 0 && now[i].Span.Object == o.Span.Object && now[i].Span.First == o.Span.First {
				part.Old = append(part.Old, now[i])
				continue
			}
			s.c.branch("swap.dropped")
			s.out.Dropped++
			if len(part.Old) > 0 {
				left = append(left, part)
				part = Run{Stream: r.Stream, Section: r.Section}
			}
		}
		if len(part.Old) > 0 {
			left = append(left, part)
		}
	}
	s.rest = append(left, s.rest[n:]...)
	if lost && len(s.rest) > 0 {
		return fmt.Errorf("swapping spans to %s: %w", s.p.Object, ErrIntentLost)
	}
	return nil
}

package auditor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// unitResult is what became of a unit. With an error some of its spans have moved
// and some have not.
type unitResult struct {
	damaged []uint64    // slots
	unfit   []slotError // slots of which nothing could be copied
	err     error       // of the unit as a whole
}

// slotError says why nothing was copied from a slot; the object under way is as it was.
type slotError struct {
	slot uint64
	err  error
}

func (e *slotError) Error() string { return e.err.Error() }
func (e *slotError) Unwrap() error { return e.err }

// errUnfit: a slot is not what a span says, though it is not corrupt.
var errUnfit = errors.New("it does not hold the span's records")

// note takes what keeps one slot from being copied and that no retry mends, and returns
// whether it is of that kind.
func (r *unitResult) note(bad slotError) bool {
	switch {
	case isCorrupt(bad.err):
		r.damaged = append(r.damaged, bad.slot)
	case errors.Is(bad.err, objstore.ErrNotFound), errors.Is(bad.err, format.ErrVersion), errors.Is(bad.err, errUnfit):
		r.unfit = append(r.unfit, bad)
	default:
		return false
	}
	return true
}

// isCorrupt tells damage from a failure.
func isCorrupt(err error) bool { return errors.Is(err, format.ErrCorrupt) }

// settle copies a unit's spans into new objects and publishes each as it is full. A slot that can't be
// copied costs its own markers and not those of the others that the unit packs together.
func (e *era) settle(ctx context.Context, u unit) (res unitResult) {
	b := &builder{e: e, w: e.newWriter(), d: format.NewDecoder()}
	for _, p := range u {
		b.left += p.bytes
	}
	for _, p := range u {
		for _, s := range p.spans {
			err := b.add(ctx, p.stream, s)
			var bad *slotError
			if errors.As(err, &bad) {
				err = e.excuse(ctx, s, bad, &res)
			}
			if err != nil {
				res.err = err
				return res
			}
		}
	}
	res.err = b.flush(ctx)
	return res
}

// excuse notes why a span could not be copied, where that is its slot's own affair; else it
// returns the error. A span that lies elsewhere by now needs no copy: another era moved it,
// and its slot was trimmed since.
func (e *era) excuse(ctx context.Context, s catalog.SpanAt, bad *slotError, res *unitResult) error {
	if errors.Is(bad.err, objstore.ErrNotFound) {
		now, ok, err := e.a.cat.ReadSpan(ctx, s.Stream, s.Span.Last())
		switch {
		case err != nil:
			return err
		case !ok || now.Span.Object != s.Span.Object:
			return nil
		}
		bad.err = fmt.Errorf("offsets %d to %d of stream %v are there: %w", s.Span.First, s.Span.Last(), s.Stream, bad.err)
	}
	if !res.note(*bad) {
		return bad.err
	}
	return nil
}

// builder gathers spans into one object after another.
type builder struct {
	e    *era
	w    *format.Writer
	d    *format.Decoder
	runs []catalog.Run // of the object under way; each is a section of it
	n    int           // spans
	left int64         // bytes of the spans not added yet
}

// What a record, a block and a section take beside the records' bytes, at most.
const (
	recordFraming  = 15
	blockFraming   = format.BlockHeaderLength + 14
	sectionFraming = 128
	// sectionsMost bounds the sections of an object, and with them its footer.
	sectionsMost = 4096
)

// add copies a span's records, verified, as they are in its slot. Where nothing was copied, for
// the slot's sake, it fails with a *slotError.
func (b *builder) add(ctx context.Context, id catalog.StreamID, s catalog.SpanAt) error {
	slot := slotOf(s)
	body, footer, err := b.e.slots.get(ctx, slot)
	if err != nil {
		return &slotError{slot, err}
	}
	object, span := s.Span.Object, s.Span
	sec := section(footer, id)
	if sec == nil || span.Offset+span.Length > int64(len(body)) || uint64(span.Ordinal)+span.Count > uint64(sec.Records) {
		// The slot is whole, and not what the span says: nothing may be written from it.
		return &slotError{slot, fmt.Errorf("offsets %d to %d of stream %v: %s: %w", span.First, span.Last(), id, object, errUnfit)}
	}
	// The section's bytes bound the span's. Two blocks in a row hold more than one target.
	most := int64(sec.Bytes) + int64(sec.Records)*recordFraming
	most += (2*most/format.BlockTarget+1)*blockFraming + sectionFraming
	if b.n > 0 && (int64(b.w.Size())+most > b.e.a.opts.SettleObjectMax || len(b.runs) >= sectionsMost) {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	if b.n == 0 {
		b.w.Grow(int(min(b.left+b.left/32+sectionFraming, b.e.a.opts.SettleObjectMax)))
	}
	b.left -= span.Length
	if last := len(b.runs) - 1; last < 0 || b.runs[last].Stream != id || b.end(last) != span.First {
		b.w.Begin(uint64(id), span.First)
		b.runs = append(b.runs, catalog.Run{Stream: id})
	}
	added, err := b.w.AddBlocks(b.d, body[span.Offset:span.Offset+span.Length], uint64(id), span.Ordinal, span.Ordinal+uint32(span.Count))
	if err != nil {
		// The slot was verified as it was read, so this is no damage of it; and the
		// object under way now has a part of the span, which ends the unit.
		return fmt.Errorf("copying from %s, verified before: %v", object, err)
	}
	if uint64(added) != span.Count {
		return fmt.Errorf("offsets %d to %d of stream %v: %s has %d of %d records where the span says", span.First, span.Last(), id, object,
			added, span.Count)
	}
	last := &b.runs[len(b.runs)-1]
	last.Old = append(last.Old, s)
	b.n++
	return nil
}

// end is the offset behind a run.
func (b *builder) end(run int) uint64 {
	old := b.runs[run].Old
	return old[len(old)-1].Span.Last() + 1
}

func section(f *format.Footer, id catalog.StreamID) *format.Section {
	for i := range f.Sections {
		if f.Sections[i].Stream == uint64(id) {
			return &f.Sections[i]
		}
	}
	return nil
}

// flush finishes and publishes the object under way, if there is one.
func (b *builder) flush(ctx context.Context) error {
	if b.n == 0 {
		return nil
	}
	object, footer, err := b.w.Finish()
	runs, n := b.runs, b.n
	b.w.Reset()
	b.runs, b.n = nil, 0
	if err != nil {
		return fmt.Errorf("building a settled object: %w", err)
	}
	for i := range runs {
		runs[i].Section = &footer.Sections[i]
	}
	defer b.e.j.step("publish")()
	return b.e.publish(ctx, object, runs, n)
}

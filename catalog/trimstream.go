package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// BeyondEndError: an offset above the stream's next one.
type BeyondEndError struct{ Offset, Next uint64 }

func (e *BeyondEndError) Error() string {
	return fmt.Sprintf("offset %d is beyond the next offset %d", e.Offset, e.Next)
}

// TrimStream moves a stream's watermark up to an offset, the first that stays
// readable; one at or below it changes nothing. Beyond the next offset it is a
// [BeyondEndError].
//
// Conditions: the stream is active, at the version read; the mark is as read. Effects: the
// watermark moves, and the stream's one retention marker moves to now (the earlier
// time wins).
//
// A crash before it leaves nothing; after it the records are invisible, and the
// retention duty, which the marker announces, kills their spans. No object's watch
// changes. A late twin fails on the mark.
func (c *Catalog) TrimStream(ctx context.Context, id StreamID, upTo uint64) (_ Mark, err error) {
	what := fmt.Sprintf("trimming stream %v to %d", id, upTo)
	lost := false
	defer func() { err = unsettled(lost, err) }()
	for round := 0; ; round++ {
		v, err := c.ReadStream(ctx, id)
		if err != nil {
			return Mark{}, fmt.Errorf("%s: %w", what, err)
		}
		switch {
		case upTo > v.Head.Next:
			return Mark{}, fmt.Errorf("%s: %w", what, &BeyondEndError{upTo, v.Head.Next})
		case upTo <= v.Mark.Watermark:
			return v.Mark, nil
		}
		mark := v.Mark
		mark.Watermark = upTo
		if mark.WatermarkBytes, err = c.bytesBefore(ctx, v, upTo); err != nil {
			return Mark{}, fmt.Errorf("%s: %w", what, err)
		}
		var b batch
		b.when(metastore.At(StreamKey(id), v.StreamVersion), metastore.At(MarkKey(id), v.MarkVersion))
		mark.moveRetention(&b, id, uint64(unixMS(c.clk.Now())))
		b.put(MarkKey(id), mark.encode())
		_, maybe, err := c.commit(ctx, what, b.done())
		if err == nil {
			return mark, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return Mark{}, err
		}
		lost = lost || maybe
		c.branch("trimstream.conflict")
		if err := c.pause(ctx, round); err != nil {
			return Mark{}, err
		}
	}
}

// bytesBefore returns the stream's byte position at an offset, or, inside a span,
// at that span's start: a stream's size is never told too small.
func (c *Catalog) bytesBefore(ctx context.Context, v StreamView, offset uint64) (uint64, error) {
	if offset == v.Head.Next {
		return v.Head.Bytes, nil
	}
	spans, _, err := c.Spans(ctx, v.ID, offset, 1)
	if err != nil {
		return 0, err
	}
	if len(spans) == 0 {
		return 0, fmt.Errorf("%w: no span holds offset %d", metastore.ErrUnavailable, offset)
	}
	return max(v.Mark.WatermarkBytes, spans[0].Span.BytePos-spans[0].Span.Bytes), nil
}

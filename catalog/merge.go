package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// Merge makes one span of a stream's consecutive spans that lie beside one another in one object:
// a swap that writes no bytes. A run of more spans than one commit takes leaves such pieces.
//
// Conditions: each span is at the version read, and its ref exists. Effects: the spans and refs go but
// for the last one's keys, which take over what all of them said.
//
// No intent is needed, and no reap-check: before the commit the object is named by every ref, after it by
// the last one's, at no instant by none, and no byte of it becomes dead. Whoever judged the object alive by a
// ref that went here (reap's stand-down, resolveIntent) demanded in its own commit that this ref exists,
// and looks again. The key under which a reader seeks any of the offsets is there before and after.
//
// A crash leaves all or nothing. A late twin fails on the spans, which the commit moves.
// merged is false where a span is not as read any more, or is not beside the one before; nothing
// is lost then: a swap or a kill had it first, and who comes by next may merge what is left.
//
// Spans that slots hold have no ref and are never merged: they move by the slot.
func (c *Catalog) Merge(ctx context.Context, spans []SpanAt) (merged bool, err error) {
	if len(spans) < 2 {
		return false, nil
	}
	span := spans[0].Span
	for _, s := range spans[1:] {
		if !beside(&span, &s.Span) {
			return false, nil
		}
		end := max(span.Offset+span.Length, s.Span.Offset+s.Span.Length)
		span.Length = end - span.Offset
		span.Count += s.Span.Count
		span.Bytes += s.Span.Bytes
		span.MaxTimestamp, span.BytePos = s.Span.MaxTimestamp, s.Span.BytePos
	}
	id := spans[0].Stream
	what := fmt.Sprintf("merging spans of stream %v in %s", id, span.Object)
	last := RefKey(span.Object, id, span.Last())
	recs, err := c.store.Get(ctx, last)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	if !recs[0].Exists() {
		return false, nil
	}
	ref, err := DecodeRef(recs[0].Value)
	if err != nil {
		return false, fmt.Errorf("%s: %w", last, err)
	}
	var b batch
	for _, s := range spans {
		key := RefKey(span.Object, id, s.Span.Last())
		b.when(metastore.At(s.Key(), s.Version), metastore.Exists(key))
		if key != last {
			b.append(metastore.Delete(s.Key()))
			b.append(metastore.Delete(key))
		}
	}
	b.append(metastore.Put(SpanKey(id, span.Last()), span.Encode()))
	b.append(metastore.Put(last, Ref{Bytes: uint64(span.Length), ObjectSize: ref.ObjectSize}.encode()))
	_, _, err = c.commit(ctx, what, b.done())
	if errors.Is(err, metastore.ErrConflict) {
		c.branch("merge.conflict")
		return false, nil
	}
	return err == nil, err
}

// beside tells whether a span goes on where another ends: in the stream, and in the object. A block at
// the seam may belong to both.
func beside(a, b *Span) bool {
	return a.Object == b.Object && b.First == a.First+a.Count &&
		uint64(b.Ordinal) == uint64(a.Ordinal)+a.Count && b.Offset >= a.Offset && b.Offset <= a.Offset+a.Length
}

// MergeRange merges the spans of a stream in [from, end) that lie beside one another in the
// object: the pieces that a swap left of a run that did not fit into one commit. It makes one span of each
// stretch, in as many commits as that takes, each complete in itself.
func (c *Catalog) MergeRange(ctx context.Context, id StreamID, object string, from, end uint64) error {
	most := max(c.store.Limits().MaxOps/2, 2)
	for from < end {
		spans, more, err := c.Spans(ctx, id, from, most)
		if err != nil {
			return err
		}
		i, n := stretch(spans, object, end)
		switch {
		case n == 0 && (!more || len(spans) < 2):
			return nil
		case n == 0:
			from = spans[len(spans)-1].Span.First // it may go on behind the page
			continue
		}
		merged, err := c.Merge(ctx, spans[i:n])
		if err != nil {
			return err
		}
		if merged {
			from = spans[i].Span.First // what follows may be beside it
		} else {
			from = spans[n-1].Span.Last() + 1
		}
	}
	return nil
}

// stretch returns the first spans of the object, two or more, that lie beside one another and begin
// below end: spans[i:n].
func stretch(spans []SpanAt, object string, end uint64) (i, n int) {
	for i := range spans {
		n := i + 1
		for n < len(spans) && spans[n].Span.First < end && beside(&spans[n-1].Span, &spans[n].Span) {
			n++
		}
		if n > i+1 && spans[i].Span.Object == object {
			return i, n
		}
	}
	return 0, 0
}

package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// contents reads what a page of spans holds, several objects at once. A span that moved while it was
// looked at is looked at where it is now: its offsets are read all the same.
func (r *run) contents(ctx context.Context, recs []metastore.Record) error {
	for round := 0; len(recs) > 0; round++ {
		var mu sync.Mutex
		var moved []catalog.SpanAt
		tasks := r.abreast()
		var err error
		for _, rec := range recs {
			span, id, ok := spanOf(rec)
			if !ok {
				continue // reported
			}
			at := catalog.SpanAt{Stream: id, Span: span, Version: rec.Version}
			err = tasks.Go(ctx, "verify/span", func(ctx context.Context) error {
				gone, err := r.content(ctx, at)
				if gone {
					mu.Lock()
					moved = append(moved, at)
					mu.Unlock()
				}
				return err
			})
			if err != nil {
				break
			}
		}
		if err := errors.Join(err, tasks.Wait(context.WithoutCancel(ctx))); err != nil {
			return err
		}
		if round == confirmTries {
			r.count(func(rep *Report) { rep.Restless += len(moved) })
			return nil
		}
		if recs, err = r.whereNow(ctx, moved); err != nil {
			return err
		}
	}
	return nil
}

// whereNow reads the spans that hold now what other spans held, each once.
func (r *run) whereNow(ctx context.Context, moved []catalog.SpanAt) ([]metastore.Record, error) {
	var out []metastore.Record
	seen := map[string]bool{}
	for _, m := range moved {
		rng := metastore.Range{Start: catalog.SpanKey(m.Stream, m.Span.First), End: metastore.PrefixEnd(catalog.SpanPrefix(m.Stream))}
		err := r.walk(ctx, rng, func(recs []metastore.Record) error {
			for _, rec := range recs {
				if s, _, ok := spanOf(rec); ok && s.First > m.Span.Last() {
					return errStop
				}
				if !seen[rec.Key] {
					seen[rec.Key] = true
					out = append(out, rec)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			return nil, err
		}
	}
	return out, nil
}

// content checks the bytes of one span, and of one in a slot that its slot is kept. gone tells that the
// span is not there any more as given.
func (r *run) content(ctx context.Context, at catalog.SpanAt) (gone bool, err error) {
	c, err := r.lookAt(ctx, at, true)
	if err != nil {
		return false, err
	}
	if c == nil {
		r.count(func(rep *Report) { rep.Records += at.Span.Count; rep.Bytes += at.Span.Bytes })
		return false, nil
	}
	key := at.Key()
	err = r.confirm(ctx, func(ctx context.Context) (*claim, error) {
		recs, err := r.get(ctx, key)
		if err != nil {
			return nil, err
		}
		if recs[0].Version != at.Version {
			gone = true
			return nil, nil
		}
		return r.lookAt(ctx, at, false)
	})
	return gone, err
}

// lookAt looks at what a span names, as if it stood. Held still by the span's version: while the span stands its
// object exists, with these bytes, and, of a slot, in a standing batch marker, for a batch completes only after its last span
// has moved.
func (r *run) lookAt(ctx context.Context, at catalog.SpanAt, first bool) (*claim, error) {
	if id, slot, err := catalog.ParseSlotKey(at.Span.Object); err == nil {
		b, err := r.batchOf(ctx, id, slot, 0, first)
		if err != nil {
			return nil, err
		}
		switch {
		case b == nil:
			return amiss(SpanUnwatched, at.Key(), "offsets %d to %d lie in %s, which no batch marker holds: the slot may be deleted before they moved",
				at.Span.First, at.Span.Last(), at.Span.Object).on(at.Version), nil
		case !b.holds(slot, at.Stream, at.Span.First, at.Span.Last()):
			return amiss(SpanUnwatched, at.Key(), "offsets %d to %d lie in %s, but not in the inventory of its batch marker: the settle rewrite will not find them",
				at.Span.First, at.Span.Last(), at.Span.Object).on(at.Version), nil
		}
	}
	c, err := r.records(ctx, at)
	if c != nil {
		c = c.on(at.Version)
	}
	return c, err
}

// records reads a span's records and compares them with what the span says.
func (r *run) records(ctx context.Context, at catalog.SpanAt) (*claim, error) {
	s := &at.Span
	if err := objstore.CheckKey(s.Object); err != nil {
		return amiss(BadRecord, at.Key(), "it names an object that cannot exist: %v", err), nil
	}
	release, err := r.hogging(ctx, min(s.Length, pieceBytes))
	if err != nil {
		return nil, err
	}
	defer release()
	t := tally{span: s, next: s.Ordinal, decoder: format.NewDecoder(), stream: uint64(at.Stream)}
	if s.Length <= pieceBytes {
		c, err := r.piece(ctx, &t, s.Offset, s.Length)
		if c != nil || err != nil {
			return c, err
		}
		return t.done(at), nil
	}
	f, _, c, err := r.footer(ctx, s.Object)
	if c != nil || err != nil {
		return c, err
	}
	off, length := s.Offset, int64(0)
	found := int64(0)
	for i := range f.Sections {
		sec := &f.Sections[i]
		if sec.Stream != uint64(at.Stream) || s.Offset < sec.Offset || s.Offset+s.Length > sec.Offset+sec.Length {
			continue
		}
		for _, b := range sec.Blocks {
			if b.Offset < s.Offset || b.Offset >= s.Offset+s.Length {
				continue
			}
			if length > 0 && length+b.Length > pieceBytes {
				if c, err := r.piece(ctx, &t, off, length); c != nil || err != nil {
					return c, err
				}
				off, length = off+length, 0
			}
			length += b.Length
			found += b.Length
		}
	}
	if found != s.Length {
		return amiss(ObjectMismatch, s.Object, "its footer has no blocks of stream %s at bytes %d to %d, which the span %s names", at.Stream, s.Offset, s.Offset+s.Length, at.Key()), nil
	}
	if c, err := r.piece(ctx, &t, off, length); c != nil || err != nil {
		return c, err
	}
	return t.done(at), nil
}

// piece reads whole blocks of a span.
func (r *run) piece(ctx context.Context, t *tally, off, length int64) (*claim, error) {
	body, err := r.read(ctx, t.span.Object, off, length)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return amiss(ObjectMissing, t.span.Object, "the object does not exist, and a span of stream %016x names it (offsets %d to %d)", t.stream, t.span.First, t.span.Last()), nil
	case err != nil:
		return nil, err
	case int64(len(body)) < length:
		return amiss(ObjectCorrupt, t.span.Object, "the object ends at byte %d, before byte %d that a span names", off+int64(len(body)), off+length), nil
	}
	err = t.decoder.Records(body, t.stream, t.take)
	if err != nil {
		return unsound(t.span.Object, format.InObject(err, t.span.Object, off)), nil
	}
	return nil, nil
}

// tally counts the records of a span as they are read.
type tally struct {
	decoder *format.Decoder
	stream  uint64
	span    *catalog.Span
	next    uint32 // ordinal
	bytes   uint64
	first   int64
	largest int64
	strange string
}

func (t *tally) take(ordinal uint32, rec format.Record) error {
	end := uint64(t.span.Ordinal) + t.span.Count
	if ordinal < t.span.Ordinal || uint64(ordinal) >= end {
		return nil // of the blocks that it shares with its neighbours
	}
	if ordinal != t.next && t.strange == "" {
		t.strange = fmt.Sprintf("record %d of the section comes where record %d should", ordinal, t.next)
	}
	if ordinal == t.span.Ordinal {
		t.first, t.largest = rec.Timestamp, rec.Timestamp
	}
	t.next = ordinal + 1
	t.bytes += uint64(len(rec.Data))
	t.largest = max(t.largest, rec.Timestamp)
	return nil
}

// done says what the records read are not.
func (t *tally) done(at catalog.SpanAt) *claim {
	s := t.span
	switch {
	case t.strange != "":
	case uint64(t.next) != uint64(s.Ordinal)+s.Count:
		t.strange = fmt.Sprintf("of %d records there are only %d", s.Count, t.next-s.Ordinal)
	case t.bytes != s.Bytes:
		t.strange = fmt.Sprintf("the records have %d bytes, the span says %d", t.bytes, s.Bytes)
	case t.first > s.FirstTimestamp || t.largest > s.MaxTimestamp:
		// Both are the stream's largest so far, at the first record (of older spans: its own) and at the last.
		t.strange = fmt.Sprintf("timestamps from %d to %d, the span says at most %d at the first and %d at the last", t.first, t.largest, s.FirstTimestamp, s.MaxTimestamp)
	default:
		return nil
	}
	return amiss(ObjectMismatch, s.Object, "bytes %d to %d are not what the span %s says: %s", s.Offset, s.Offset+s.Length, at.Key(), t.strange)
}

package verify

import (
	"context"
	"errors"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// streams checks the streams' records, and in step with them the spans: one merge-walk of two
// ranges in the same order. The marks and heads are walked once more for those without a stream.
func (r *run) streams(ctx context.Context) error {
	s := streamStatement()
	from := catalog.SpansPrefix
	err := r.walk(ctx, metastore.Prefix(catalog.StreamsPrefix), func(recs []metastore.Record) error {
		r.count(func(rep *Report) { rep.Streams += len(recs) })
		if err := r.hold(ctx, recs, s); err != nil {
			return err
		}
		var ids []catalog.StreamID
		for _, rec := range recs {
			id, err := catalog.ParseStreamKey(catalog.StreamsPrefix, rec.Key)
			if err != nil {
				continue // reported
			}
			ids = append(ids, id)
			if v, err := catalog.DecodeStream(rec.Value); err == nil && v.State != catalog.StreamActive && (!r.teared.has(id.String()) || r.teared.full) {
				if err := r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateTeardown(ctx, id) }); err != nil {
					return err
				}
			}
		}
		if len(ids) == 0 {
			return nil
		}
		to := metastore.PrefixEnd(catalog.SpanPrefix(ids[len(ids)-1]))
		err := r.spans(ctx, metastore.Range{Start: from, End: to}, ids)
		from = to
		return err
	})
	if err != nil {
		return err
	}
	// Beyond the last stream.
	if err := r.spans(ctx, metastore.Range{Start: from, End: metastore.PrefixEnd(catalog.SpansPrefix)}, nil); err != nil {
		return err
	}
	if err := r.each(ctx, metastore.Prefix(catalog.HeadsPrefix), headStatement()); err != nil {
		return err
	}
	return r.each(ctx, metastore.Prefix(catalog.MarksPrefix), markStatement())
}

// evaluateTeardown: a deleted stream has its teardown marker until its records go, in one commit with the
// marker's. Held still by the stream's record; in between the marker only moved to later times, where a walk in key order cannot miss it.
func (r *run) evaluateTeardown(ctx context.Context, id catalog.StreamID) (*claim, error) {
	key := catalog.StreamKey(id)
	recs, err := r.get(ctx, key)
	if err != nil || !recs[0].Exists() {
		return nil, err
	}
	v, err := catalog.DecodeStream(recs[0].Value)
	if err != nil || v.State == catalog.StreamActive {
		return nil, nil
	}
	found, err := r.standing(ctx, catalog.Teardown, id.String())
	if err != nil || found {
		return nil, err
	}
	return amiss(MarkerMissing, key, "stream %q is deleted, and no teardown marker stands: its records will stay for ever", v.Name).on(recs[0].Version), nil
}

// follow is how far the walk of one stream's spans is.
type follow struct {
	id        catalog.StreamID
	readable  bool   // its offsets must be held; not those of a stream that is being torn down
	watermark uint64 // as read before the spans
	next      uint64 // likewise
	at        uint64 // the next offset that must be held
	before    catalog.Span
}

// spans walks the spans of a range, which holds those of the given streams, in order, and no others that should exist.
func (r *run) spans(ctx context.Context, rng metastore.Range, ids []catalog.StreamID) error {
	streams, err := r.follows(ctx, ids)
	if err != nil {
		return err
	}
	i := 0
	until := func(id catalog.StreamID) error { // ends the streams below id
		for ; i < len(streams) && streams[i].id < id; i++ {
			if err := r.ended(ctx, &streams[i]); err != nil {
				return err
			}
		}
		return nil
	}
	err = r.walk(ctx, rng, func(recs []metastore.Record) error {
		r.count(func(rep *Report) { rep.Spans += len(recs) })
		if err := r.hold(ctx, recs, spanStatement()); err != nil {
			return err
		}
		for _, rec := range recs {
			span, id, ok := spanOf(rec)
			if !ok {
				continue // reported
			}
			if err := until(id); err != nil {
				return err
			}
			if i < len(streams) && streams[i].id == id {
				if err := r.next(ctx, &streams[i], span); err != nil {
					return err
				}
			}
		}
		return r.contents(ctx, recs)
	})
	if err != nil {
		return err
	}
	for ; i < len(streams); i++ {
		if err := r.ended(ctx, &streams[i]); err != nil {
			return err
		}
	}
	return nil
}

// follows reads what the streams' spans must hold. It is a first look: what it makes suspicious is evaluated by itself.
func (r *run) follows(ctx context.Context, ids []catalog.StreamID) ([]follow, error) {
	out := make([]follow, 0, len(ids))
	for len(ids) > 0 {
		n := min(len(ids), max(r.most/3, 1))
		keys := make([]string, 0, 3*n)
		for _, id := range ids[:n] {
			keys = append(keys, catalog.StreamKey(id), catalog.HeadKey(id), catalog.MarkKey(id))
		}
		recs, err := r.get(ctx, keys...)
		if err != nil {
			return nil, err
		}
		for i, id := range ids[:n] {
			f := follow{id: id}
			s, e1 := catalog.DecodeStream(recs[3*i].Value)
			h, e2 := catalog.DecodeHead(recs[3*i+1].Value)
			m, e3 := catalog.DecodeMark(recs[3*i+2].Value)
			if e1 == nil && e2 == nil && e3 == nil && s.State != catalog.StreamTearing {
				f.readable, f.watermark, f.next, f.at = true, m.Watermark, h.Next, m.Watermark
			}
			out = append(out, f)
		}
		ids = ids[n:]
	}
	return out, nil
}

// next takes the stream's next span.
func (r *run) next(ctx context.Context, f *follow, s catalog.Span) error {
	if !f.readable || s.Last() < f.watermark {
		return nil // a leftover of what was trimmed; there may be gaps between such
	}
	at, before := f.at, f.before
	f.at, f.before = s.Last()+1, s
	switch {
	case s.First > at:
		return r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateGap(ctx, f.id, at) })
	case before.Count > 0 && (s.First < at || s.BytePos-s.Bytes != before.BytePos || s.MaxTimestamp < before.MaxTimestamp):
		return r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateSeam(ctx, f.id, at) })
	}
	return nil
}

// ended tells that a stream has no further span.
func (r *run) ended(ctx context.Context, f *follow) error {
	if !f.readable || f.at >= f.next {
		return nil
	}
	return r.confirm(ctx, func(ctx context.Context) (*claim, error) { return r.evaluateGap(ctx, f.id, f.at) })
}

// evaluateGap looks whether an offset is readable and held by no span. Cursors: the next offset is read before the span, so
// that the offset was below it then; the watermark and the state after it, so that the offset was above the one and
// the stream not being torn down, from which there is no way back.
func (r *run) evaluateGap(ctx context.Context, id catalog.StreamID, at uint64) (*claim, error) {
	recs, err := r.get(ctx, catalog.HeadKey(id))
	if err != nil {
		return nil, err
	}
	head, err := catalog.DecodeHead(recs[0].Value)
	if err != nil || at >= head.Next {
		return nil, nil // gone, reported, or the end
	}
	page, err := r.page(ctx, metastore.Range{Start: catalog.SpanKey(id, at), End: metastore.PrefixEnd(catalog.SpanPrefix(id))}, 1)
	if err != nil {
		return nil, err
	}
	if recs, err = r.get(ctx, catalog.StreamKey(id), catalog.MarkKey(id)); err != nil {
		return nil, err
	}
	s, e1 := catalog.DecodeStream(recs[0].Value)
	m, e2 := catalog.DecodeMark(recs[1].Value)
	if e1 != nil || e2 != nil || s.State == catalog.StreamTearing || m.Watermark > at {
		return nil, nil
	}
	to := head.Next
	if len(page.Records) > 0 {
		span, _, ok := spanOf(page.Records[0])
		if !ok || span.First <= at {
			return nil, nil
		}
		to = span.First
	}
	return amiss(SpanGap, catalog.StreamKey(id), "offsets %d to %d of stream %q are held by no span", at, to-1, s.Name), nil
}

// evaluateSeam looks at the span that holds the offset before at and the one after it. One revision: both in one page.
func (r *run) evaluateSeam(ctx context.Context, id catalog.StreamID, at uint64) (*claim, error) {
	page, err := r.page(ctx, metastore.Range{Start: catalog.SpanKey(id, at-1), End: metastore.PrefixEnd(catalog.SpanPrefix(id))}, 2)
	if err != nil || len(page.Records) < 2 {
		return nil, err
	}
	a, _, ok1 := spanOf(page.Records[0])
	b, _, ok2 := spanOf(page.Records[1])
	key := page.Records[1].Key
	switch {
	case !ok1 || !ok2 || a.First > at-1:
		return nil, nil // reported, or killed since
	case b.First <= a.Last():
		return amiss(SpanOverlap, key, "it holds the offsets from %d on, the span before it those up to %d", b.First, a.Last()), nil
	case b.First > a.Last()+1:
		return nil, nil // a gap, which is looked at as such
	case b.BytePos-b.Bytes != a.BytePos:
		return amiss(SpanAccount, key, "it begins at byte %d of the stream, the span before it ends at byte %d", b.BytePos-b.Bytes, a.BytePos), nil
	case b.MaxTimestamp < a.MaxTimestamp:
		return amiss(SpanAccount, key, "the largest timestamp so far goes back from %d to %d", a.MaxTimestamp, b.MaxTimestamp), nil
	}
	return nil, nil
}

// spanOf reads a span's record; ok is false where key and value do not agree.
func spanOf(rec metastore.Record) (s catalog.Span, id catalog.StreamID, ok bool) {
	id, last, e1 := catalog.ParseSpanKey(rec.Key)
	s, e2 := catalog.DecodeSpan(rec.Value)
	return s, id, e1 == nil && e2 == nil && s.Last() == last
}

var errSpanKey = errors.New("its key is not its last offset")

// spanStatement: at one revision a span has its stream, lies below the stream's end, and, where it is held by another
// object than a slot, has the ref by which that object is known to live.
func spanStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, last, err := catalog.ParseSpanKey(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			s, err := catalog.DecodeSpan(rec.Value)
			if err == nil && s.Last() != last {
				err = errSpanKey
			}
			if err != nil {
				return nil, bad(rec, err)
			}
			keys := []string{catalog.StreamKey(id), catalog.HeadKey(id)}
			if !catalog.IsSlot(s.Object) {
				keys = append(keys, catalog.RefKey(s.Object, id, last))
			}
			return keys, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			s, _, _ := spanOf(rec)
			if !named[0].Exists() {
				return amiss(SpanStray, rec.Key, "its stream does not exist")
			}
			if h, err := catalog.DecodeHead(named[1].Value); named[1].Exists() && err == nil && (s.Last() >= h.Next || s.BytePos > h.Bytes) {
				return amiss(SpanStray, rec.Key, "it ends at offset %d and byte %d, beyond the stream's end (%d, %d)", s.Last(), s.BytePos, h.Next, h.Bytes)
			}
			if len(named) > 2 && !named[2].Exists() {
				return amiss(RefMissing, rec.Key, "no ref %s tells that the object %s is still in use", named[2].Key, s.Object)
			}
			return nil
		},
	}
}

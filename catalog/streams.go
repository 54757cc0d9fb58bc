package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// StreamView is a stream's three records, read at one revision.
type StreamView struct {
	ID     StreamID
	Stream Stream
	Head   Head
	Mark   Mark

	StreamVersion, HeadVersion, MarkVersion metastore.Version
}

// CreateStream makes a stream, or finds the one of that name; created tells which.
//
// Conditions: the name is absent; the id counter of the name's shard is as read.
// Effects: the counter moves; the stream's identity, head, mark and name appear.
//
// A crash before it leaves nothing, after it a whole, empty stream. No object is
// involved. A late twin fails on the counter, so that it never revives a stream
// that was deleted in between; the nonce in the identity tells a lost answer that
// landed. metastore.ErrUnknown: an answer was lost, and what became of it could not be read.
func (c *Catalog) CreateStream(ctx context.Context, name string, policy Policy) (v StreamView, created bool, err error) {
	if err := errors.Join(CheckStreamName(name), CheckPolicy(policy)); err != nil {
		return StreamView{}, false, err
	}
	nonce := c.clk.Rand()
	shard := Shard(name)
	lost := false
	defer func() { err = unsettled(lost, err) }()
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, NameKey(name), idsKey(shard))
		if err != nil {
			return StreamView{}, false, fmt.Errorf("creating stream %q: %w", name, err)
		}
		if recs[0].Exists() {
			id, err := DecodeID(recs[0].Value)
			if err != nil {
				return StreamView{}, false, fmt.Errorf("name of stream %q: %w", name, err)
			}
			v, err := c.ReadStream(ctx, id)
			if err == nil {
				return v, v.Stream.Nonce == nonce, nil
			}
			if !errors.Is(err, ErrNoStream) {
				return StreamView{}, false, err
			}
			// Deleted between the two reads: look again.
		} else {
			counter := uint64(0)
			if recs[1].Exists() {
				id, err := DecodeID(recs[1].Value)
				if err != nil {
					return StreamView{}, false, fmt.Errorf("id counter of shard %d: %w", shard, err)
				}
				counter = uint64(id)
			}
			id := StreamID(uint64(shard)<<56 | (counter + 1))
			s := Stream{Name: name, Created: unixMS(c.clk.Now()), Nonce: nonce, Policy: policy}
			var b batch
			b.when(metastore.Absent(NameKey(name)), metastore.At(idsKey(shard), recs[1].Version))
			b.put(idsKey(shard), encodeID(StreamID(counter+1)))
			b.put(NameKey(name), encodeID(id))
			b.put(StreamKey(id), s.encode())
			b.put(HeadKey(id), (&Head{}).encode())
			b.put(MarkKey(id), Mark{}.encode())
			ver, maybe, err := c.commit(ctx, fmt.Sprintf("creating stream %q", name), b.done())
			if err == nil {
				return StreamView{ID: id, Stream: s, StreamVersion: ver, HeadVersion: ver, MarkVersion: ver}, true, nil
			}
			if !errors.Is(err, metastore.ErrConflict) {
				return StreamView{}, false, err
			}
			lost = lost || maybe
			c.branch("create.conflict")
		}
		if err := c.pause(ctx, round); err != nil {
			return StreamView{}, false, err
		}
	}
}

// FindStream returns the id that a name leads to, or ErrNoStream.
func (c *Catalog) FindStream(ctx context.Context, name string) (StreamID, error) {
	if err := CheckStreamName(name); err != nil {
		return 0, err
	}
	recs, err := c.store.Get(ctx, NameKey(name))
	if err != nil {
		return 0, fmt.Errorf("looking up stream %q: %w", name, err)
	}
	if !recs[0].Exists() {
		return 0, fmt.Errorf("%w: %q", ErrNoStream, name)
	}
	id, err := DecodeID(recs[0].Value)
	if err != nil {
		return 0, fmt.Errorf("name of stream %q: %w", name, err)
	}
	return id, nil
}

// ReadStream reads a stream's records at one revision. ErrNoStream: it does not
// exist or is not active.
func (c *Catalog) ReadStream(ctx context.Context, id StreamID) (StreamView, error) {
	v, err := c.ReadAnyStream(ctx, id)
	if err == nil && v.Stream.State != StreamActive {
		return StreamView{}, fmt.Errorf("%w: id %v was deleted", ErrNoStream, id)
	}
	return v, err
}

// ReadAnyStream reads a stream's records at one revision, whatever its state. ErrNoStream: its records
// are gone, or never were.
func (c *Catalog) ReadAnyStream(ctx context.Context, id StreamID) (StreamView, error) {
	recs, err := c.store.Get(ctx, StreamKey(id), HeadKey(id), MarkKey(id))
	if err != nil {
		return StreamView{}, fmt.Errorf("reading stream %v: %w", id, err)
	}
	return decodeStreamView(id, recs)
}

// decodeStreamView reads stream/, head/ and mark/, in this order.
func decodeStreamView(id StreamID, recs []metastore.Record) (StreamView, error) {
	if !recs[0].Exists() {
		return StreamView{}, fmt.Errorf("%w: id %v", ErrNoStream, id)
	}
	v := StreamView{ID: id, StreamVersion: recs[0].Version, HeadVersion: recs[1].Version, MarkVersion: recs[2].Version}
	var e1, e2, e3 error
	v.Stream, e1 = DecodeStream(recs[0].Value)
	v.Head, e2 = DecodeHead(recs[1].Value)
	v.Mark, e3 = DecodeMark(recs[2].Value)
	if err := errors.Join(e1, e2, e3); err != nil {
		return StreamView{}, fmt.Errorf("stream %v: %w", id, err)
	}
	return v, nil
}

// SpanAt is a span as read.
type SpanAt struct {
	Stream  StreamID
	Span    Span
	Version metastore.Version
}

// Key is the span's key.
func (s SpanAt) Key() string { return SpanKey(s.Stream, s.Span.Last()) }

// Spans reads the stream's first spans that hold an offset at or above from,
// limit at most, in order of offsets; more tells that there are further ones.
func (c *Catalog) Spans(ctx context.Context, id StreamID, from uint64, limit int) (spans []SpanAt, more bool, err error) {
	page, err := c.scan(ctx, metastore.Range{Start: SpanKey(id, from), End: metastore.PrefixEnd(SpanPrefix(id))}, limit)
	if err != nil {
		return nil, false, fmt.Errorf("spans of stream %v from %d: %w", id, from, err)
	}
	spans = make([]SpanAt, 0, len(page.Records))
	for _, r := range page.Records {
		s, err := decodeSpanRecord(id, r)
		if err != nil {
			return nil, false, err
		}
		spans = append(spans, s)
	}
	return spans, page.More, nil
}

func decodeSpanRecord(id StreamID, r metastore.Record) (SpanAt, error) {
	s, err := DecodeSpan(r.Value)
	if err != nil {
		return SpanAt{}, fmt.Errorf("%s: %w", r.Key, err)
	}
	if _, last, err := ParseSpanKey(r.Key); err != nil || last != s.Last() {
		return SpanAt{}, fmt.Errorf("%s: %w: it holds offsets %d to %d", r.Key, ErrCorruptValue, s.First, s.Last())
	}
	return SpanAt{Stream: id, Span: s, Version: r.Version}, nil
}

// ReadSpan reads the one span whose last offset is given; ok is false where there is none.
func (c *Catalog) ReadSpan(ctx context.Context, id StreamID, last uint64) (s SpanAt, ok bool, err error) {
	recs, err := c.store.Get(ctx, SpanKey(id, last))
	if err != nil {
		return SpanAt{}, false, fmt.Errorf("span of stream %v at %d: %w", id, last, err)
	}
	if !recs[0].Exists() {
		return SpanAt{}, false, nil
	}
	s, err = decodeSpanRecord(id, recs[0])
	return s, err == nil, err
}

// SpansOf reads the spans that refs stand for, in their order, those that are gone left out.
func (c *Catalog) SpansOf(ctx context.Context, refs []RefAt) ([]SpanAt, error) {
	keys := make([]string, len(refs))
	for i, r := range refs {
		keys[i] = SpanKey(r.Stream, r.Last)
	}
	recs, err := c.get(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading spans by their refs: %w", err)
	}
	spans := make([]SpanAt, 0, len(recs))
	for i, rec := range recs {
		if !rec.Exists() {
			continue
		}
		s, err := decodeSpanRecord(refs[i].Stream, rec)
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	return spans, nil
}

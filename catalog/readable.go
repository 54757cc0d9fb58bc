package catalog

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nova-store/nova/metastore"
)

// Expiry tells which records of a stream its policy has let go, record by record. A record
// is expired if the stream's running maximum timestamp at it is at most ExpiredAt, or
// the stream's byte position at its end is at most BytesBelow. Both only grow along a
// stream, so that what is expired is always its beginning, and how records are laid into
// spans does not enter: merging spans changes nothing.
type Expiry struct {
	// ExpiredAt is in Unix milliseconds; 0: none is expired by age.
	ExpiredAt int64
	// BytesBelow is a byte position; 0: none is expired by size.
	BytesBelow uint64
}

// Expired tells whether a record is: by the running maximum timestamp at it and the byte position at
// its end. Of a whole span: [Span.MaxTimestamp] and [Span.BytePos].
func (e Expiry) Expired(maxTimestamp int64, bytePos uint64) bool {
	return e.ExpiredAt > 0 && maxTimestamp <= e.ExpiredAt || e.BytesBelow > 0 && bytePos <= e.BytesBelow
}

// Expiry judges a stream's policy at a time, without reading anything: by age the records whose running
// maximum timestamp is a max age old, by size those with max bytes or more behind
// their end; and, for ever, what an earlier policy had expired when it was replaced.
func (v StreamView) Expiry(now time.Time) Expiry {
	e := Expiry{ExpiredAt: v.Mark.ExpiredAt, BytesBelow: v.Mark.BytesBelow}
	p := v.Stream.Policy
	if p.MaxAgeMS > 0 {
		e.ExpiredAt = max(e.ExpiredAt, unixMS(now)-p.age().Milliseconds())
	}
	if p.MaxBytes > 0 && v.Head.Bytes > p.MaxBytes {
		e.BytesBelow = max(e.BytesBelow, v.Head.Bytes-p.MaxBytes)
	}
	return e
}

// Expiring is when a span goes as a whole.
type Expiring struct {
	// At is when it expires by age; zero: never.
	At time.Time
	// Bytes is how far the stream's head must come in bytes before it expires by size; 0: never.
	Bytes uint64
}

// Expiring tells when a span expires by the stream's policy. A timestamp too far ahead to be reckoned with counts as never.
func (v StreamView) Expiring(s Span) Expiring {
	var e Expiring
	if p := v.Stream.Policy; p.MaxAgeMS > 0 && s.MaxTimestamp <= math.MaxInt64-p.age().Milliseconds() {
		e.At = time.UnixMilli(s.MaxTimestamp + p.age().Milliseconds())
	}
	if p := v.Stream.Policy; p.MaxBytes > 0 {
		e.Bytes = s.BytePos + min(p.MaxBytes, math.MaxUint64-s.BytePos)
	}
	return e
}

// Readable is where a stream's readable records begin.
//
// First is exact to a span: the watermark, or the first offset of the first span that is not
// expired as a whole. So no record below it is readable, and some at and above it may not
// be: those inside that span that Expiry names. The reader, who sees sizes and timestamps, leaves them
// out; the retention duty, which kills whole spans, waits for the rest.
type Readable struct {
	// First is an offset, the next one if nothing is readable. FirstBytes is the stream's byte position there,
	// or, of a watermark inside a span, at that span's start.
	First, FirstBytes uint64
	Expiry
}

// Readable evaluates watermark and policy at a time. A stream without a policy takes no read,
// else it takes one where nothing new is expired, and a binary search over offsets where something is.
//
// Clocks differ by up to the clock skew: by so much later or earlier a record may be found expired by age.
func (c *Catalog) Readable(ctx context.Context, v StreamView, now time.Time) (Readable, error) {
	r := Readable{First: v.Mark.Watermark, FirstBytes: v.Mark.WatermarkBytes, Expiry: v.Expiry(now)}
	if r.Expiry == (Expiry{}) || r.First >= v.Head.Next {
		return r, nil
	}
	if r.Expired(v.Head.MaxTimestamp, v.Head.Bytes) {
		r.First, r.FirstBytes = v.Head.Next, v.Head.Bytes
		return r, nil
	}
	first, ok, err := c.firstSpan(ctx, v, func(s Span) bool { return !r.Expired(s.MaxTimestamp, s.BytePos) })
	if err != nil {
		return Readable{}, fmt.Errorf("judging the policy of stream %v: %w", v.ID, err)
	}
	if !ok {
		// The head says that the last record is readable, and the catalog has no span for it:
		// the stream moved on, or went, since the view was read.
		return Readable{}, fmt.Errorf("judging the policy of stream %v: %w: its last span is not there", v.ID, metastore.ErrUnavailable)
	}
	if first.Span.First >= v.Head.Next {
		// All that the view tells of went, since it was read.
		r.First, r.FirstBytes = v.Head.Next, v.Head.Bytes
		return r, nil
	}
	if first.Span.First > r.First {
		r.First = first.Span.First
		r.FirstBytes = max(r.FirstBytes, first.Span.BytePos-first.Span.Bytes)
	}
	return r, nil
}

// SeekTime returns the first span at or above the watermark whose running maximum timestamp is at least ts, by a binary
// search over offsets; false where every record is older. Its first record with such a
// timestamp is the first of the stream: a reader looks for it inside.
func (c *Catalog) SeekTime(ctx context.Context, v StreamView, ts int64) (SpanAt, bool, error) {
	if v.Head.Next == 0 || v.Head.MaxTimestamp < ts {
		return SpanAt{}, false, nil
	}
	s, ok, err := c.firstSpan(ctx, v, func(s Span) bool { return s.MaxTimestamp >= ts })
	if err != nil {
		return SpanAt{}, false, fmt.Errorf("seeking time %d in stream %v: %w", ts, v.ID, err)
	}
	return s, ok, nil
}

// firstSpan returns the first span at or above the watermark for which hit holds, given that it
// holds for all behind one for which it does: both timestamps and byte positions
// of spans only grow. The first span is looked at first, since most often it is the one; then offsets are halved.
//
// Spans may merge and be killed while it looks. A merge moves the boundary down to the
// merged span's start, and what was killed had not been hit, so that the answer is right
// for one of the moments of the search.
func (c *Catalog) firstSpan(ctx context.Context, v StreamView, hit func(Span) bool) (found SpanAt, ok bool, err error) {
	lo, hi := v.Mark.Watermark, v.Head.Next
	for at := lo; lo < hi; at = lo + (hi-lo)/2 {
		spans, _, err := c.Spans(ctx, v.ID, at, 1)
		switch {
		case err != nil:
			return SpanAt{}, false, err
		case len(spans) == 0:
			hi = at
		case hit(spans[0].Span):
			found, ok = spans[0], true
			// Of offsets between at and a span that begins above it nothing is left.
			hi = min(at, found.Span.First)
		default:
			lo = spans[0].Span.Last() + 1
		}
	}
	return found, ok, nil
}

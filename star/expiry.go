package star

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// # What is readable, to the record
//
// The catalog knows spans. It says which of them hold nothing readable any more, and leaves the
// first that does, the boundary span, to whoever can look at its records: here. Of the records of
// that span those are expired that lie below both bounds that the catalog gives, which are a
// running maximum of timestamps, and a byte position. Both only grow with the offset, so that what is
// expired is a prefix, and the records behind the boundary span need no look.
//
// A span's first timestamp is the running maximum up to its first record, so that the maximum at each record of the boundary
// span follows from that span alone. Spans that an earlier version wrote hold the first record's own timestamp instead:
// there, where timestamps went back after records that were trimmed since, a record counts as expired by the maximum of its
// own span, that is, by nothing that is younger than the policy allows.

// A scan fetches about scanBytes stored bytes, then twice as many, up to scanBytesMost at once: what it
// looks for is often in the first block.
const (
	scanBytes     = 64 << 10
	scanBytesMost = 4 << 20
)

// FirstOffset returns the first readable offset of a stream as read, by its watermark and its policy now; the
// next offset if nothing is readable. Where the records that decide it can't be read, since they are damaged or
// were rewritten meanwhile, it is exact to a span only: no offset below it is readable.
func (s *Star) FirstOffset(ctx context.Context, view catalog.StreamView) (uint64, error) {
	judged, err := s.cat.Readable(ctx, view, s.clk.Now())
	if err != nil {
		return 0, err
	}
	first, err := s.firstReadable(ctx, &view, &judged, 0)
	switch {
	case errors.Is(err, errTrimmedMeanwhile), errors.Is(err, format.ErrCorrupt), errors.Is(err, catalog.ErrCorruptValue), errors.Is(err, objstore.ErrNotFound):
		return judged.First, nil
	case err != nil:
		return 0, err
	}
	return first, nil
}

// firstReadable returns the stream's first readable offset, exactly, unless from lies
// behind the boundary span: then an offset of that span, which is all that a read at from needs to know.
func (s *Star) firstReadable(ctx context.Context, view *catalog.StreamView, judged *catalog.Readable, from uint64) (uint64, error) {
	if judged.First >= view.Head.Next || judged.ExpiredAt == 0 && judged.BytesBelow == 0 {
		return judged.First, nil
	}
	spans, _, err := s.cat.Spans(ctx, view.ID, judged.First, 1)
	if err != nil {
		return 0, err
	}
	if len(spans) == 0 || spans[0].Span.First > judged.First {
		return judged.First, s.wentMeanwhile(ctx, view.ID, judged.First)
	}
	span := &spans[0].Span
	ages := judged.ExpiredAt != 0 && span.FirstTimestamp <= judged.ExpiredAt
	sizes := judged.BytesBelow != 0 && span.BytePos-span.Bytes <= judged.BytesBelow
	if from > span.Last() || !ages && !sizes {
		return judged.First, nil
	}
	at := s.expired.get(view.ID)
	if at.offset < span.First || at.offset > span.Last() {
		at = expiry{offset: span.First, bytes: span.BytePos - span.Bytes, high: math.MinInt64}
	}
	byAge, byBytes := at.offset, at.offset
	known := at
	err = s.scan(ctx, view.ID, at.offset, min(span.Last()+1, view.Head.Next), func(offset uint64, rec Record) bool {
		at.high = max(at.high, rec.Timestamp)
		at.bytes += uint64(len(rec.Data))
		old, beyond := ages && at.high <= judged.ExpiredAt, sizes && at.bytes <= judged.BytesBelow
		if old {
			byAge = offset + 1
		}
		if beyond {
			byBytes = offset + 1
		}
		if !old && !beyond {
			return false
		}
		at.offset = offset + 1
		known = at
		return true
	})
	if err != nil {
		return 0, err
	}
	if byAge > span.Last() {
		// The span's running maximum is not expired, and it is no record's of the span: the records
		// before it are the younger ones.
		byAge, known.offset = span.First, 0
	}
	if known.offset > 0 {
		s.expired.put(view.ID, known)
	}
	return max(judged.First, byAge, byBytes), nil
}

// wentMeanwhile judges that no span holds a stream's first readable offset by now: errTrimmedMeanwhile where the
// watermark has passed it, for watermarks move before spans go. The star's memory may hold its records still, and
// with them such as had expired before. Otherwise the read finds the hole.
func (s *Star) wentMeanwhile(ctx context.Context, id catalog.StreamID, first uint64) error {
	now, err := s.cat.ReadStream(ctx, id)
	if err == nil && now.Mark.Watermark > first {
		return errTrimmedMeanwhile
	}
	return err
}

// seekTime returns the first offset at which the stream's running maximum of timestamps has
// reached t, or its next offset.
func (s *Star) seekTime(ctx context.Context, view *catalog.StreamView, t time.Time) (uint64, error) {
	ts := t.UnixMilli()
	if t.After(time.UnixMilli(ts)) {
		ts++
	}
	at, ok, err := s.cat.SeekTime(ctx, *view, ts)
	if err != nil {
		return 0, err
	}
	if !ok {
		return view.Head.Next, nil
	}
	found := at.Span.First
	if at.Span.FirstTimestamp >= ts {
		return found, nil
	}
	err = s.scan(ctx, view.ID, at.Span.First, min(at.Span.Last()+1, view.Head.Next), func(offset uint64, rec Record) bool {
		if rec.Timestamp < ts {
			return true
		}
		found = offset
		return false
	})
	// Where no record of the span has reached it, the one before the span had.
	return found, err
}

// errTrimmedMeanwhile: what a scan was to look at is gone; the stream must be judged anew.
var errTrimmedMeanwhile = fmt.Errorf("trimmed while it was looked at: %w", metastore.ErrUnavailable)

// scan shows the records of [from, end) to visit, until it says that it needs no more.
func (s *Star) scan(ctx context.Context, id catalog.StreamID, from, end uint64, visit func(offset uint64, rec Record) (more bool)) error {
	r := reader{s: s, stream: id, next: from, end: end, records: math.MaxInt64, bytes: scanBytes, visit: visit}
	err := r.run(ctx)
	if errors.Is(err, ErrTrimmed) {
		err = errTrimmedMeanwhile
	}
	return err
}

// expiries remembers how far the boundary spans were found expired, so that a reader that
// pages through a large one does not look at all of it for each page. It holds facts about records, which no
// rewrite changes: all below the offset are expired, and expired records stay so.
type expiries struct {
	most int
	mu   sync.Mutex
	at   map[catalog.StreamID]expiry
}

// expiry is a place in a stream: an offset, the byte position there, and the largest timestamp from
// the boundary span's first record, or from an earlier place, up to it.
type expiry struct {
	offset uint64
	bytes  uint64
	high   int64
}

func (e *expiries) init(most int) {
	e.most = most
	e.at = make(map[catalog.StreamID]expiry)
}

func (e *expiries) get(id catalog.StreamID) expiry {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[id]
}

// put keeps a place; a full cache starts afresh.
func (e *expiries) put(id catalog.StreamID, at expiry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old, ok := e.at[id]; ok && old.offset > at.offset {
		return
	} else if !ok && len(e.at) >= e.most {
		clear(e.at)
	}
	e.at[id] = at
}

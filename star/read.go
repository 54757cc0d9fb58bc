package star

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// ReadRequest asks for a stream's records from one position on.
type ReadRequest struct {
	// Stream is the stream's id; if it is 0 the stream is found by Name.
	Stream catalog.StreamID
	Name   string
	// From is the first offset, unless one of the following says otherwise.
	From uint64
	// Start: from the first readable record.
	Start bool
	// Tail: from the stream's next offset, where there is nothing yet.
	Tail bool
	// Back, if above 0: the last so many records, or as many as are readable.
	Back uint64
	// Since, if not zero: from the first readable record at which the stream's running
	// maximum of timestamps has reached that time, to the millisecond, or, where none has, from
	// the next offset.
	Since time.Time
	// MaxRecords and MaxBytes (of payload) bound the answer; 0 means 10,000 and
	// 4 MiB, and more than 1,048,576 and 64 MiB is never given. One record is
	// given however large it is.
	MaxRecords int
	MaxBytes   int64
}

// ReadResult holds the records of [First, Next).
type ReadResult struct {
	Stream catalog.StreamID
	First  uint64
	// Records and their data are the caller's.
	Records   []Record
	Next      uint64 // where to go on
	End       uint64 // the stream's next offset, when this read began
	Watermark uint64 // no offset below it is readable; with a policy further ones may not be
}

const (
	defaultReadRecords = 10_000
	defaultReadBytes   = 4 << 20
	mostReadRecords    = 1 << 20
	mostReadBytes      = 64 << 20
)

// Read reads records in the order of their offsets, without a gap, as far as the
// limits allow. It sees every append acknowledged before it began, and nothing that was trimmed
// before, or that the stream's policy has expired by the star's clock. At the end of
// the stream it gives no records and no error.
//
// Errors: [catalog.ErrNoStream]; [ErrTrimmed], a *TrimmedError with the first readable
// offset; [ErrBeyondEnd]; a *format.CorruptError that names a damaged object, or
// [catalog.ErrCorruptValue] where no span holds the offset: never other bytes than
// those acknowledged. An error behind the first record is left to the next read, which begins with it.
func (s *Star) Read(ctx context.Context, req ReadRequest) (ReadResult, error) {
	start := s.clk.Now()
	out, bytes, err := s.read(ctx, &req)
	if err != nil {
		err = fmt.Errorf("read of %s: %w", streamText(req.Stream, req.Name), err)
	}
	s.events.Read(len(out.Records), int(bytes), s.clk.Now().Sub(start), err)
	return out, err
}

// positionTries bounds how often a read looks for its position anew, since the records that it
// found were trimmed meanwhile.
const positionTries = 4

func (s *Star) read(ctx context.Context, req *ReadRequest) (ReadResult, int64, error) {
	fixed := !req.Start && !req.Tail && req.Back == 0 && req.Since.IsZero()
	for try := 1; ; try++ {
		out, bytes, err := s.readOnce(ctx, req)
		anew := errors.Is(err, errTrimmedMeanwhile) || !fixed && errors.Is(err, ErrTrimmed)
		if !anew || try == positionTries {
			return out, bytes, err
		}
		s.events.Branch("star.read.position")
	}
}

func (s *Star) readOnce(ctx context.Context, req *ReadRequest) (ReadResult, int64, error) {
	view, err := s.viewOf(ctx, req)
	if err != nil {
		return ReadResult{}, 0, err
	}
	judged, err := s.cat.Readable(ctx, view, s.clk.Now())
	if err != nil {
		return ReadResult{}, 0, err
	}
	from, err := s.position(ctx, &view, &judged, req)
	if err != nil {
		return ReadResult{}, 0, err
	}
	end := view.Head.Next
	r := reader{
		s: s, stream: view.ID, next: from, end: end,
		records: limit(int64(req.MaxRecords), defaultReadRecords, mostReadRecords),
		bytes:   limit(req.MaxBytes, defaultReadBytes, mostReadBytes),
		out:     ReadResult{Stream: view.ID, First: from, End: end, Watermark: min(judged.First, from)},
	}
	budget := r.bytes
	err = r.run(ctx)
	r.out.Next = r.next
	if err != nil && (len(r.out.Records) == 0 || ctx.Err() != nil) {
		return ReadResult{}, 0, err
	}
	return r.out, budget - r.bytes, nil
}

// viewOf reads the records of the stream that is asked for.
func (s *Star) viewOf(ctx context.Context, req *ReadRequest) (catalog.StreamView, error) {
	if req.Stream != 0 {
		return s.cat.ReadStream(ctx, req.Stream)
	}
	return s.view(ctx, req.Name)
}

// position is the offset where the read begins: readable, or the stream's next one.
func (s *Star) position(ctx context.Context, view *catalog.StreamView, judged *catalog.Readable, req *ReadRequest) (uint64, error) {
	end := view.Head.Next
	from, exact := req.From, true
	switch {
	case req.Tail:
		return end, nil
	case req.Start:
		from, exact = 0, false
	case req.Back > 0:
		from, exact = end-min(req.Back, end), false
	case !req.Since.IsZero():
		var err error
		if from, err = s.seekTime(ctx, view, req.Since); err != nil {
			return 0, err
		}
		exact = false
	case from > end:
		return 0, &BeyondEndError{Stream: view.ID, From: from, Next: end}
	}
	first, err := s.firstReadable(ctx, view, judged, from)
	switch {
	case err != nil:
		return 0, err
	case from >= first:
		return from, nil
	case exact:
		return 0, &TrimmedError{Stream: view.ID, From: from, First: first}
	}
	return first, nil
}

// limit is a limit as asked for, with a default for none and an upper bound.
func limit(asked, def, most int64) int64 {
	if asked <= 0 {
		return def
	}
	return min(asked, most)
}

// reader is one read under way.
type reader struct {
	s         *Star
	stream    catalog.StreamID
	next, end uint64
	records   int64 // that the limits leave
	bytes     int64
	full      bool                                        // the limits are reached
	visit     func(offset uint64, rec Record) (more bool) // nil: records are taken into out
	out       ReadResult
	arena     []byte
	scratch   []Record

	// Since the last record was found:
	seeks int // that did not find one
	holes int // of them: no span held the offset
}

const (
	// seeksMost bounds how often a read seeks the catalog for one offset.
	seeksMost  = 8
	seekRetry  = 10 * time.Millisecond
	spansAhead = 16
)

func (r *reader) run(ctx context.Context) error {
	for !r.full && r.next < r.end && r.records > 0 {
		if r.fromWindow() {
			continue
		}
		was := r.next
		err := r.fromCatalog(ctx)
		if r.next > was {
			r.seeks, r.holes = 0, 0
		}
		if r.visit != nil {
			r.bytes = min(2*r.bytes, scanBytesMost)
		}
		if err != nil {
			if err := r.again(ctx, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// errHole: a seek did not land on a span that holds the offset.
var errHole = errors.New("no span holds the offset")

// again decides whether the read may seek the catalog once more from the same
// offset: the object was deleted since its span was read, and another holds the records
// now; or the records were trimmed, which the stream's own records tell. A hole
// that is there twice, with the watermark read in between, is no race: watermarks move before
// spans go, and swaps leave none.
func (r *reader) again(ctx context.Context, err error) error {
	r.seeks++
	switch {
	case errors.Is(err, errHole):
		r.s.events.Branch("star.read.hole")
		view, verr := r.s.cat.ReadStream(ctx, r.stream)
		if verr != nil {
			return verr
		}
		if w := view.Mark.Watermark; w > r.next {
			return r.trimmed(ctx, &view)
		}
		if r.holes++; r.holes > 1 {
			return fmt.Errorf("%w: no span of stream %v holds offset %d", catalog.ErrCorruptValue, r.stream, r.next)
		}
		return nil
	case errors.Is(err, catalog.ErrShortPage):
	case errors.Is(err, objstore.ErrNotFound):
		r.s.events.Branch("star.read.moved")
		if r.seeks == 1 {
			return nil
		}
	default:
		return err
	}
	if r.seeks >= seeksMost {
		var missing *missingError
		if errors.As(err, &missing) {
			return &format.CorruptError{Object: missing.object, Reason: "the catalog names it, but it is not there"}
		}
		return err
	}
	return r.s.clk.Sleep(ctx, clock.Jitter(r.s.clk, seekRetry<<r.seeks))
}

// trimmed is the error of a read whose next record was trimmed under it.
func (r *reader) trimmed(ctx context.Context, view *catalog.StreamView) error {
	err := &TrimmedError{Stream: r.stream, From: r.next, First: view.Mark.Watermark}
	if r.visit != nil {
		return err // whoever scans begins anew
	}
	judged, jerr := r.s.cat.Readable(ctx, *view, r.s.clk.Now())
	if jerr != nil {
		return jerr
	}
	first, ferr := r.s.firstReadable(ctx, view, &judged, r.next)
	if ferr != nil {
		return ferr
	}
	err.First = first
	return err
}

// take adds a record, copied, and returns whether there was room for it. A reader that only
// visits shows it instead, and returns whether to go on.
func (r *reader) take(rec Record) bool {
	if r.visit != nil {
		if r.full = !r.visit(r.next, rec); r.full {
			return false
		}
		r.next++
		return true
	}
	n := len(rec.Data)
	if r.records <= 0 || int64(n) > r.bytes && len(r.out.Records) > 0 {
		r.full = true
		return false
	}
	if cap(r.arena)-len(r.arena) < n {
		// Chunks double, up to what the limits leave.
		size := min(max(2*cap(r.arena), 4<<10), 1<<20, int(max(r.bytes, 0)))
		r.arena = make([]byte, 0, max(size, n))
	}
	at := len(r.arena)
	r.arena = append(r.arena, rec.Data...)
	r.out.Records = append(r.out.Records, Record{Timestamp: rec.Timestamp, Data: r.arena[at : at+n : at+n]})
	r.records--
	r.bytes -= int64(n)
	r.next++
	return true
}

// fromWindow takes what the tail window holds from here on, and returns whether that was
// anything.
func (r *reader) fromWindow() bool {
	count := min(r.end-r.next, uint64(r.records))
	r.scratch = r.s.window.records(r.scratch[:0], r.stream, r.next, count, r.bytes)
	for _, rec := range r.scratch {
		if !r.take(rec) {
			break
		}
	}
	return len(r.scratch) > 0
}

// fromCatalog seeks the span that holds the next offset, and takes what it and the
// adjoining ones hold, as far as the limits allow.
func (r *reader) fromCatalog(ctx context.Context) error {
	spans, _, err := r.s.cat.Spans(ctx, r.stream, r.next, spansAhead)
	switch {
	case err != nil:
		return err
	case len(spans) == 0 || spans[0].Span.First > r.next:
		return errHole
	}
	pieces, err := r.plan(ctx, spans)
	if err != nil {
		return err
	}
	if err := r.fetch(ctx, pieces); err != nil {
		return err
	}
	d := r.s.decoders.get()
	defer r.s.decoders.put(d)
	for i := range pieces {
		if r.full {
			break
		}
		if err := r.decode(ctx, d, &pieces[i]); err != nil {
			return err
		}
	}
	return nil
}

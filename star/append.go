package star

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
)

// Record is one record of a stream.
type Record = format.Record

// AppendRequest is one append: all its records or none.
type AppendRequest struct {
	// Stream is the stream's id; if it is 0 the stream is found by Name.
	Stream catalog.StreamID
	Name   string
	// Records, at least one. They, their data included, belong to the star from the
	// call on, which sends them again and keeps them for reads uncopied: nobody may
	// change them again, whatever the call returns. A record without a timestamp (0)
	// gets the star's time.
	Records []Record
	// Expected is the next offset that the stream must have; nil: any.
	Expected *uint64
	// Producer makes the append idempotent: it may be sent again, and appears
	// once. nil: it is not.
	Producer *format.Producer
	// SinceKnown: Producer.Since is the stream's next offset as the client read it
	// before its first try, unchanged in each retry. Otherwise, and if it is 0, the star
	// reads it before its own first try of a first append (sequence 0): then a
	// client's retry is only recognized while the stream knows the producer.
	SinceKnown bool
}

// AppendResult is what became of an append.
type AppendResult struct {
	Stream      catalog.StreamID
	First, Last uint64 // offsets of its records, if OffsetsKnown
	// Duplicate: an earlier try had been absorbed. Of a producer's last append the
	// offsets are known, of an older one not.
	Duplicate    bool
	OffsetsKnown bool
}

// Append appends records to a stream and returns once they are durable and visible.
//
// Errors: [catalog.ErrNoStream], [ErrWrongOffset], [ErrProducerGap],
// [ErrProducerFenced], [ErrTooLarge], [ErrBadRequest], [ErrOverloaded], [objstore.ErrNoRoom], [ErrNotReady],
// [ErrShuttingDown], or the reason why the star stopped: nothing was appended.
// [ErrOutcomeUnknown]: the records may appear later, whole, or never; only an append
// of an idempotent producer can be sent again. If ctx ends first its error is
// returned, with ErrOutcomeUnknown if the append's flight has left.
func (s *Star) Append(ctx context.Context, req AppendRequest) (AppendResult, error) {
	start := s.clk.Now()
	bytes, err := s.checkAppend(&req)
	var r AppendResult
	if err == nil {
		r, err = s.append(ctx, &req, bytes)
	}
	if err != nil {
		err = fmt.Errorf("append to %s: %w", streamText(req.Stream, req.Name), err)
	}
	s.events.Appended(len(req.Records), bytes, s.clk.Now().Sub(start), err)
	return r, err
}

func streamText(id catalog.StreamID, name string) string {
	if id != 0 {
		return "stream " + id.String()
	}
	return fmt.Sprintf("stream %q", name)
}

// checkAppend refuses what can never be appended, and returns the payload's bytes.
func (s *Star) checkAppend(req *AppendRequest) (int, error) {
	bytes := 0
	for i := range req.Records {
		n := len(req.Records[i].Data)
		if n > s.opts.MaxRecordBytes {
			return bytes, &TooLargeError{Record: i, Bytes: n, Most: s.opts.MaxRecordBytes}
		}
		bytes += n
	}
	switch most := max(s.opts.MaxRecordBytes, s.opts.FlightBytes); {
	case bytes > most:
		return bytes, &TooLargeError{Record: -1, Bytes: bytes, Most: most}
	case len(req.Records) == 0:
		return bytes, fmt.Errorf("%w: no records", ErrBadRequest)
	case len(req.Records) > maxAppendRecords:
		return bytes, fmt.Errorf("%w: %d records in one append, at most %d", ErrBadRequest, len(req.Records), maxAppendRecords)
	case req.Producer != nil && (req.Producer.ID == "" || len(req.Producer.ID) > maxProducerID):
		return bytes, fmt.Errorf("%w: a producer id has 1 to %d bytes, this one %d", ErrBadRequest, maxProducerID, len(req.Producer.ID))
	}
	return bytes, nil
}

// append takes the append to the stream's id, and, where a cached id turns out not to
// be active, once more to the one that its name leads to now: the verdict on
// the first was final.
func (s *Star) append(ctx context.Context, req *AppendRequest, bytes int) (AppendResult, error) {
	for again := false; ; again = true {
		id, cached := req.Stream, false
		if id == 0 {
			var err error
			if id, cached, err = s.resolve(ctx, req.Name); err != nil {
				return AppendResult{}, err
			}
		}
		r, err := s.appendTo(ctx, id, req, bytes)
		if err == nil || !errors.Is(err, catalog.ErrNoStream) || errors.Is(err, ErrOutcomeUnknown) {
			return r, err
		}
		if req.Stream == 0 {
			s.names.forget(req.Name, id)
		}
		if !cached || again {
			return AppendResult{}, err
		}
		s.events.Branch("star.name.stale")
	}
}

func (s *Star) appendTo(ctx context.Context, id catalog.StreamID, req *AppendRequest, bytes int) (AppendResult, error) {
	p := &pending{
		stream: id, records: req.Records, stamp: s.clk.Now().UnixMilli(),
		bytes: bytes, weight: int64(bytes) + recordWeight*int64(len(req.Records)) + 256,
		expected: req.Expected, producer: req.Producer,
	}
	if pr := req.Producer; pr != nil && pr.Seq == 0 && pr.Since == 0 && !req.SinceKnown {
		// Read before the first try, and the same in every one.
		view, err := s.cat.ReadStream(ctx, id)
		if err != nil {
			return AppendResult{}, err
		}
		own := *pr
		own.Since = view.Head.Next
		p.producer = &own
	}
	return s.submit(ctx, p)
}

// submit queues an append and waits for its answer.
func (s *Star) submit(ctx context.Context, p *pending) (AppendResult, error) {
	p.parker = s.clk.NewParker()
	s.mu.Lock()
	if err := s.admit(p); err != nil {
		s.mu.Unlock()
		return AppendResult{Stream: p.stream}, err
	}
	s.order++
	p.order = s.order
	s.pending += p.weight
	leaves := s.join(p)
	s.mu.Unlock()
	if leaves {
		s.kick.Raise()
	}
	err := p.parker.Park(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.done:
		return p.result, p.err
	case !p.taken:
		// Still in the queue: its flight leaves without it.
		s.pending -= p.weight
	}
	p.left = true
	if p.taken || p.retried {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return AppendResult{Stream: p.stream}, err
}

// admit refuses an append that cannot be taken now. s.mu is held.
func (s *Star) admit(p *pending) error {
	switch e := s.epoch; {
	case s.stop != nil:
		return s.stop
	case e == nil:
		return ErrNotReady
	case e.durable-e.absorbed >= 4*uint64(s.opts.Window) && e.fenced == nil:
		return fmt.Errorf("%w: %d slots wait to be absorbed", ErrOverloaded, e.durable-e.absorbed)
	case s.pending > 0 && s.pending+p.weight > s.opts.MaxPendingBytes:
		return fmt.Errorf("%w: %d bytes of appends are under way", ErrOverloaded, s.pending)
	}
	return s.opts.Room.Append(p.weight, s.pending)
}

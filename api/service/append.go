package service

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// AppendRequest is one append: its records become visible together, at consecutive
// offsets, or not at all.
type AppendRequest struct {
	Stream  string   // its name, or its id as ByID gives it
	Records [][]byte // at least one; not changed by anyone afterwards
	// Expected, if not nil, is what the stream's next offset must be.
	Expected *uint64
	// Producer, if not nil, makes the append idempotent.
	Producer *Producer
}

// Producer identifies one append of an idempotent producer.
type Producer struct {
	ID    string // 1 to 128 bytes, chosen at random by the producer
	Epoch uint32 // grows whenever another process takes the identity over
	// Sequence is 0 for the producer's, or the epoch's, first append to the stream, and one more for
	// each further one.
	Sequence uint64
	// Since is the stream's next offset as read before the first try of the producer's first
	// append, unchanged in every try.
	Since uint64
}

// AppendResult tells where the records are.
type AppendResult struct {
	// Stream is what a name led to.
	Stream catalog.StreamID
	// First and Last are the offsets of the first and last record, unless
	// OffsetsUnknown.
	First, Last uint64
	// Duplicate tells that an earlier try of the same producer and sequence had been
	// appended; it counts, this one does not.
	Duplicate bool
	// OffsetsUnknown: a duplicate of an append that was not the producer's last one.
	OffsetsUnknown bool
}

// Append appends records to a stream, durably and visibly. Their timestamp is the star's time.
// Errors: those of [star.Star.Append].
func (s *Service) Append(ctx context.Context, req AppendRequest) (AppendResult, error) {
	if err := catalog.CheckStreamName(req.Stream); err != nil {
		return AppendResult{}, err
	}
	if err := checkBounds(req.Records); err != nil {
		return AppendResult{}, err
	}
	in := star.AppendRequest{Expected: req.Expected, Records: make([]star.Record, len(req.Records))}
	in.Stream, in.Name = named(req.Stream)
	for i, r := range req.Records {
		in.Records[i].Data = r // the star gives the time
	}
	if p := req.Producer; p != nil {
		in.Producer = &format.Producer{ID: p.ID, Epoch: p.Epoch, Seq: p.Sequence, Since: p.Since}
		in.SinceKnown = true
		if err := s.checkSince(ctx, req.Stream, p); err != nil {
			return AppendResult{}, err
		}
	}
	out, err := s.star.Append(ctx, in)
	if err != nil {
		return AppendResult{}, err
	}
	return AppendResult{Stream: out.Stream, First: out.First, Last: out.Last, Duplicate: out.Duplicate, OffsetsUnknown: !out.OffsetsKnown}, nil
}

// checkSince refuses a producer's first append whose since is beyond the stream's next offset, which never goes back: it was not read from
// this stream. By it the stream would take a producer whose state it has lost for a new one, and its retry for another append.
func (s *Service) checkSince(ctx context.Context, stream string, p *Producer) error {
	if p.Sequence != 0 || p.Since == 0 {
		return nil
	}
	return s.with(ctx, stream, func(id catalog.StreamID) error {
		v, err := s.cat.ReadStream(ctx, id)
		if err == nil && p.Since > v.Head.Next {
			err = fmt.Errorf("%w: the producer's since is %d, and the stream's next offset is %d: it must be read from this stream, before the first try", star.ErrBadRequest, p.Since, v.Head.Next)
		}
		return err
	})
}

func checkBounds(records [][]byte) error {
	switch {
	case len(records) == 0:
		return fmt.Errorf("%w: an append without records", ErrBadRequest)
	case len(records) > MaxAppendRecords:
		return fmt.Errorf("%w: an append has %d records at most, this one has %d", star.ErrTooLarge, MaxAppendRecords, len(records))
	}
	total := 0
	for i, r := range records {
		if len(r) > MaxRecordBytes {
			return &star.TooLargeError{Record: i, Bytes: len(r), Most: MaxRecordBytes}
		}
		total += len(r)
	}
	if total > MaxAppendBytes {
		return &star.TooLargeError{Record: -1, Bytes: total, Most: MaxAppendBytes}
	}
	return nil
}

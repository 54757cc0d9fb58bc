package service

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/star"
)

// Position says where a read begins. The zero value is the first readable offset.
type Position struct {
	kind positionKind
	n    uint64
	t    time.Time
}

type positionKind uint8

const (
	fromStart positionKind = iota
	fromOffset
	fromTail
	fromLast
	fromTime
)

// FromOffset begins at an offset; one that was trimmed, or is expired, is an error.
func FromOffset(offset uint64) Position { return Position{kind: fromOffset, n: offset} }

// FromTail begins at the offset that the next record gets.
func FromTail() Position { return Position{kind: fromTail} }

// FromLast begins n records before the end, or at the first readable one.
func FromLast(n uint64) Position { return Position{kind: fromLast, n: n} }

// FromTime begins at the first readable record from which on the stream had reached a time: the first whose
// timestamp, or one before it, is not below. Where none is, it is as FromTail.
func FromTime(t time.Time) Position { return Position{kind: fromTime, t: t} }

// ParsePosition reads a position: an offset, "start" or "" for the first readable offset, "tail",
// "-N", or a time of RFC 3339.
func ParsePosition(s string) (Position, error) {
	switch {
	case s == "", s == "start":
		return Position{}, nil
	case s == "tail":
		return FromTail(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return FromTime(t), nil
	}
	digits, last := strings.CutPrefix(s, "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return Position{}, fmt.Errorf("%w: from %q is neither start, nor an offset (0 to 18446744073709551615), nor tail, nor -N for the last N records, nor a time like 2026-01-31T12:00:00Z", ErrBadRequest, s)
	}
	if last {
		return FromLast(n), nil
	}
	return FromOffset(n), nil
}

// String is what ParsePosition reads.
func (p Position) String() string {
	switch p.kind {
	case fromOffset:
		return strconv.FormatUint(p.n, 10)
	case fromTail:
		return "tail"
	case fromLast:
		return "-" + strconv.FormatUint(p.n, 10)
	case fromTime:
		return p.t.Format(time.RFC3339Nano)
	}
	return "start"
}

// ReadRequest is one read: a page of a stream.
type ReadRequest struct {
	Stream string // its name, or its id as ByID gives it
	From   Position
	// MaxRecords and MaxBytes bound the page; 0 is the default. A record
	// larger than MaxBytes is returned alone.
	MaxRecords, MaxBytes int
}

// Record is a record as read.
type Record struct {
	Offset    uint64
	Timestamp int64 // Unix milliseconds
	Data      []byte
}

// ReadResult is a page of a stream.
type ReadResult struct {
	Stream  catalog.StreamID
	Records []Record
	// Next is where to read on.
	Next uint64
	// First is the first readable offset of the stream (with a policy further ones may be expired), End the offset
	// of its next record. The page reached the end where Next = End.
	First, End uint64
}

// Read reads a page. Errors: those of [star.Star.Read].
func (s *Service) Read(ctx context.Context, req ReadRequest) (ReadResult, error) {
	in := star.ReadRequest{}
	in.Stream, in.Name = named(req.Stream)
	var err error
	if in.MaxRecords, err = bound("records", req.MaxRecords, DefaultReadRecords, MaxReadRecords); err != nil {
		return ReadResult{}, err
	}
	bytes, err := bound("bytes", req.MaxBytes, DefaultReadBytes, MaxReadBytes)
	if err != nil {
		return ReadResult{}, err
	}
	in.MaxBytes = int64(bytes)
	switch req.From.kind {
	case fromStart:
		in.Start = true
	case fromOffset:
		in.From = req.From.n
	case fromTail:
		in.Tail = true
	case fromLast:
		in.Tail, in.Back = req.From.n == 0, req.From.n
	case fromTime:
		in.Since, in.Start = req.From.t, req.From.t.IsZero() // the star takes the zero time for none
	}
	out, err := s.star.Read(ctx, in)
	if err != nil {
		return ReadResult{}, err
	}
	page := ReadResult{Stream: out.Stream, Records: make([]Record, len(out.Records)), Next: out.Next, First: out.Watermark, End: out.End}
	for i, r := range out.Records {
		page.Records[i] = Record{Offset: out.First + uint64(i), Timestamp: r.Timestamp, Data: r.Data}
	}
	return page, nil
}

// Follow begins to follow a stream that was just read; see [star.Star.Follow].
func (s *Service) Follow(ctx context.Context, id catalog.StreamID) (*star.Follower, error) {
	return s.star.Follow(ctx, id)
}

// named tells an id from a name.
func named(stream string) (id catalog.StreamID, name string) {
	if id, ok := ParseID(stream); ok {
		return id, ""
	}
	return 0, stream
}

func bound(what string, have, def, most int) (int, error) {
	switch {
	case have == 0:
		return def, nil
	case have < 0 || have > most:
		return 0, fmt.Errorf("%w: an answer is bounded by 1 to %d %s, not %d", ErrBadRequest, most, what, have)
	}
	return have, nil
}

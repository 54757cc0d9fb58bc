package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nova-store/nova/star"
)

// Position says where a read begins. The zero value is the first readable offset.
type Position struct {
	kind positionKind
	n    uint64
}

type positionKind uint8

const (
	fromFirst positionKind = iota
	fromOffset
	fromTail
	fromLast
)

// FromOffset begins at an offset; one that was trimmed is an error.
func FromOffset(offset uint64) Position { return Position{fromOffset, offset} }

// FromTail begins at the offset that the next record gets.
func FromTail() Position { return Position{kind: fromTail} }

// FromLast begins n records before the end, or at the first readable one.
func FromLast(n uint64) Position { return Position{fromLast, n} }

// ParsePosition reads a position: an offset, "tail", "-N", or "" for the first
// readable offset.
func ParsePosition(s string) (Position, error) {
	switch {
	case s == "":
		return Position{}, nil
	case s == "tail":
		return FromTail(), nil
	}
	digits, last := strings.CutPrefix(s, "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return Position{}, fmt.Errorf("%w: from %q is neither an offset (0 to 18446744073709551615), nor tail, nor -N for the last N records", ErrBadRequest, s)
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
	}
	return ""
}

// ReadRequest is one read: a page of a stream.
type ReadRequest struct {
	Stream string
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
	Records []Record
	// Next is where to read on.
	Next uint64
	// First is the first readable offset of the stream, End the offset of its next record. The page reached the end
	// where Next = End.
	First, End uint64
}

// Read reads a page. Errors: those of [star.Star.Read].
func (s *Service) Read(ctx context.Context, req ReadRequest) (ReadResult, error) {
	in := star.ReadRequest{Name: req.Stream}
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
	case fromOffset, fromFirst:
		in.From = req.From.n
	case fromTail:
		in.Tail = true
	case fromLast:
		in.Tail, in.Back = req.From.n == 0, req.From.n
	}
	out, err := s.star.Read(ctx, in)
	// The watermark may move while it is followed: an error that many times in a row says so.
	for try := 0; req.From.kind == fromFirst && try < maxFirstTries; try++ {
		var trimmed *star.TrimmedError
		if !errors.As(err, &trimmed) {
			break
		}
		in.From = trimmed.First
		out, err = s.star.Read(ctx, in)
	}
	if err != nil {
		return ReadResult{}, err
	}
	page := ReadResult{Records: make([]Record, len(out.Records)), Next: out.Next, First: out.Watermark, End: out.End}
	for i, r := range out.Records {
		page.Records[i] = Record{Offset: out.First + uint64(i), Timestamp: r.Timestamp, Data: r.Data}
	}
	return page, nil
}

// maxFirstTries bounds how often a read follows the first readable offset.
const maxFirstTries = 3

func bound(what string, have, def, most int) (int, error) {
	switch {
	case have == 0:
		return def, nil
	case have < 0 || have > most:
		return 0, fmt.Errorf("%w: a read is bounded by 1 to %d %s, not %d", ErrBadRequest, most, what, have)
	}
	return have, nil
}

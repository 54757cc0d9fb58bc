package star

import (
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
)

// Errors of Append and Read. Besides these they return [catalog.ErrNoStream],
// [catalog.ErrBadName], [catalog.ErrCorruptValue] (a stream's metadata does not decode), format.ErrCorrupt (as a *format.CorruptError that names
// the object), the context's error, and what the store or the bucket said.
var (
	// ErrOutcomeUnknown: the records may be absorbed later, whole, or never.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrOverloaded: too much is waiting; nothing happened, try again later.
	ErrOverloaded = errors.New("overloaded")
	// ErrNotReady: the star has not minted its first chain yet; nothing happened.
	ErrNotReady = errors.New("not ready")
	// ErrShuttingDown: the star takes no more appends; nothing happened.
	ErrShuttingDown = errors.New("shutting down")
	// ErrBadRequest: the request breaks a rule that its sender could have known;
	// nothing happened.
	ErrBadRequest = errors.New("bad request")
	// ErrTooLarge: a record or an append exceeds its bound; see [TooLargeError].
	ErrTooLarge = errors.New("too large")
	// ErrWrongOffset: the stream's next offset is not the expected one; see
	// [WrongOffsetError]. Nothing happened.
	ErrWrongOffset = errors.New("wrong expected offset")
	// ErrProducerGap: the sequence leaves out at least one; see [ProducerGapError].
	// Nothing happened.
	ErrProducerGap = errors.New("gap in the producer's sequence")
	// ErrProducerFenced: the producer has a newer epoch. Nothing happened.
	ErrProducerFenced = errors.New("producer fenced by a newer epoch")
	// ErrProducerLost: the producer's state is not known any more, so that an
	// earlier try may have been absorbed. It is an ErrOutcomeUnknown too.
	ErrProducerLost = fmt.Errorf("producer state lost: %w", ErrOutcomeUnknown)
	// ErrTrimmed: the offset lies below the first readable one; see [TrimmedError].
	ErrTrimmed = errors.New("trimmed")
	// ErrBeyondEnd: the offset lies above the stream's next one; see
	// [BeyondEndError].
	ErrBeyondEnd = errors.New("beyond the end of the stream")
)

// TooLargeError says what exceeds which bound; it is an ErrTooLarge.
type TooLargeError struct {
	Record      int // index in the request; -1: the append as a whole
	Bytes, Most int
}

func (e *TooLargeError) Error() string {
	if e.Record < 0 {
		return fmt.Sprintf("an append of %d bytes, at most %d", e.Bytes, e.Most)
	}
	return fmt.Sprintf("record %d has %d bytes, at most %d", e.Record, e.Bytes, e.Most)
}

// Is makes errors.Is(err, ErrTooLarge) hold.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// WrongOffsetError carries the stream's next offset as judged; it is an
// ErrWrongOffset.
type WrongOffsetError struct {
	Stream         catalog.StreamID
	Expected, Next uint64
}

func (e *WrongOffsetError) Error() string {
	return fmt.Sprintf("wrong expected offset %d: the next offset of stream %v is %d", e.Expected, e.Stream, e.Next)
}

// Is makes errors.Is(err, ErrWrongOffset) hold.
func (e *WrongOffsetError) Is(target error) bool { return target == ErrWrongOffset }

// ProducerGapError carries the sequence that the stream expects next of the
// producer; it is an ErrProducerGap.
type ProducerGapError struct {
	Producer  string
	Seq, Next uint64
}

func (e *ProducerGapError) Error() string {
	return fmt.Sprintf("gap in the sequence of producer %q: %d came, %d is next", e.Producer, e.Seq, e.Next)
}

// Is makes errors.Is(err, ErrProducerGap) hold.
func (e *ProducerGapError) Is(target error) bool { return target == ErrProducerGap }

// TrimmedError carries the first readable offset; it is an ErrTrimmed.
type TrimmedError struct {
	Stream      catalog.StreamID
	From, First uint64
}

func (e *TrimmedError) Error() string {
	return fmt.Sprintf("offset %d is trimmed, first readable offset is %d", e.From, e.First)
}

// Is makes errors.Is(err, ErrTrimmed) hold.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

// BeyondEndError carries the stream's next offset; it is an ErrBeyondEnd.
type BeyondEndError struct {
	Stream     catalog.StreamID
	From, Next uint64
}

func (e *BeyondEndError) Error() string {
	return fmt.Sprintf("offset %d is beyond the end of the stream, whose next offset is %d", e.From, e.Next)
}

// Is makes errors.Is(err, ErrBeyondEnd) hold.
func (e *BeyondEndError) Is(target error) bool { return target == ErrBeyondEnd }

// Package format is the one format of every object that Nova puts into a bucket:
// slots, bundles, settled objects and seals. docs/format.md gives the bytes,
// testdata/format pins them.
//
// An object is a header, a body and a footer with a trailer. The body is tiled by
// blocks, each of records of one stream; the consecutive blocks of one stream are a
// section. The footer indexes the sections. Every byte is covered by a CRC32C, and
// every length that is not yet covered by a verified one is bounded, so that a flipped
// bit or a cut is reported as corruption, never returned as data.
//
// The package holds no state and does no I/O. The same calls give the same bytes (with
// a compressing codec: the same bytes from the same version of its library).
package format

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/nova-store/nova/objstore"
)

// Kind is what an object is.
type Kind uint8

const (
	// KindSlot is a flight's batch of records of many streams, or the index of its bundle.
	KindSlot Kind = 1
	// KindBundle holds the records of a flight too large to sit inside its slot.
	KindBundle Kind = 2
	// KindSettled is an object written by the settle rewrite or by gc.
	KindSettled Kind = 3
	// KindSeal ends a dead chain: no records.
	KindSeal Kind = 4
)

func (k Kind) String() string {
	switch k {
	case KindSlot:
		return "slot"
	case KindBundle:
		return "bundle"
	case KindSettled:
		return "settled"
	case KindSeal:
		return "seal"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ofChain says whether objects of this kind belong to a chain's slot.
func (k Kind) ofChain() bool { return k != KindSettled }

// judged says whether sections of this kind keep their appends apart.
func (k Kind) judged() bool { return k == KindSlot || k == KindBundle }

// Version is the format version that this package reads and writes.
const Version = 1

// Sizes, in bytes.
const (
	// MaxRecordBytes is the largest record's payload.
	MaxRecordBytes = 16 << 20
	// MaxObjectBytes is the largest object.
	MaxObjectBytes = objstore.MaxObjectBytes
	// MaxFooterBytes is the largest footer, trailer not counted. It bounds what a
	// hostile footer can make a reader allocate.
	MaxFooterBytes = 16 << 20
	// BlockTarget is the raw size at which a block is closed. Only a single record
	// larger than this makes a larger block.
	BlockTarget = 64 << 10
	// HeaderLength is the length of an object's header: the offset of its first section.
	HeaderLength = 12
	// BlockHeaderLength is the length of a block's header.
	BlockHeaderLength = 44
	// TrailerLength is the length of an object's last part, which finds the footer.
	TrailerLength = 16
	// TailLength is a good first guess at how many last bytes hold footer and trailer.
	TailLength = 16 << 10

	// compressFrom is the raw size from which a codec is tried at all.
	compressFrom = 1 << 10
	// maxRecordFraming bounds the bytes around a record's payload: two varints.
	maxRecordFraming = 10 + 5
	// minRecordLength is the least raw length of a record: two varints of a byte each.
	minRecordLength = 2
	// maxBlockRaw bounds a block's raw length, and so what a decoder allocates.
	maxBlockRaw = MaxRecordBytes + maxRecordFraming
)

// Record is one record of a stream.
type Record struct {
	Timestamp int64 // Unix milliseconds
	Data      []byte
}

// Producer identifies one append of an idempotent producer.
type Producer struct {
	ID    string
	Epoch uint32
	Seq   uint64
	Since uint64 // the stream's next offset, read before the first try
}

// Append is one append inside a slot's section, in the order of its records: what
// absorb judges.
type Append struct {
	Count                        uint32 // records
	Bytes                        uint64 // payload bytes
	FirstTimestamp, MaxTimestamp int64  // of its first record; the largest of its records. Unix milliseconds
	HasExpected                  bool
	Expected                     uint64 // expected next offset; 0 without HasExpected
	HasProducer                  bool
	Producer                     Producer // zero without HasProducer
}

// Block is the byte range of one block in its object.
type Block struct {
	Offset, Length int64  // header and stored payload
	Ordinal        uint32 // of the first record, counted from the section's start
	Records        uint32
	CRC            uint32 // of the block's header, which holds the payload's own
}

// Section is one stream's records within an object: contiguous bytes.
type Section struct {
	Stream                       uint64
	Offset, Length               int64
	Records                      uint32 // at least 1
	Bytes                        uint64 // payload bytes
	FirstTimestamp, MaxTimestamp int64  // of ordinal 0; the largest of all. Unix milliseconds
	FirstOffset                  uint64 // settled objects: the stream offset of ordinal 0; else 0
	Appends                      []Append
	Blocks                       []Block
}

// Range returns the block-aligned byte range of the object that holds the count
// records from ordinal first on: the offset and length of a span. It has no length
// where the section holds none of them.
func (s *Section) Range(first, count uint32) (offset, length int64) {
	end := uint64(first) + uint64(count)
	for _, b := range s.Blocks {
		if uint64(b.Ordinal)+uint64(b.Records) <= uint64(first) {
			continue
		}
		if uint64(b.Ordinal) >= end {
			break
		}
		if length == 0 {
			offset = b.Offset
		}
		length += b.Length
	}
	return offset, length
}

// Footer is the index of an object.
type Footer struct {
	Kind Kind
	// Bundled: this slot holds only the index; the sections and their blocks lie, at the
	// offsets given here, in the bundle of the same star, epoch, slot and flight.
	Bundled     bool
	Star        string // of the chain; settled objects: empty, as are the next three
	Epoch, Slot uint64
	Flight      [16]byte // zero in seals
	// BodyLength is the length of all sections. They tile the bytes from HeaderLength on
	// without a gap. In a bundled slot: of the bundle's body, its own is empty.
	BodyLength int64
	Sections   []Section
}

var (
	// ErrCorrupt: the bytes are not what was written.
	ErrCorrupt = errors.New("format: corrupt object")
	// ErrVersion: the bytes are intact, but of a version, kind or codec that this
	// program does not know. It is no corruption: nothing may be concluded from it.
	ErrVersion = errors.New("format: written by another version of Nova, a later one: upgrade novad")
)

// CorruptError says where an object is corrupt; errors.Is(err, ErrCorrupt).
type CorruptError struct {
	Object string // its key; empty where only bytes were at hand, see InObject
	Offset int64  // of the damaged part (a block, the footer), from the start of the object or of the bytes given
	Reason string
}

func (e *CorruptError) Error() string {
	object := "object"
	if e.Object != "" {
		object = e.Object
	}
	return fmt.Sprintf("%s is corrupt at byte %d: %s", object, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// InObject completes a CorruptError that was found in bytes read from offset base of
// the object of that key. Other errors come back wrapped with the key, nil as nil.
func InObject(err error, object string, base int64) error {
	if err == nil {
		return nil
	}
	var c *CorruptError
	if errors.As(err, &c) && c.Object == "" {
		return &CorruptError{Object: object, Offset: base + c.Offset, Reason: c.Reason}
	}
	return fmt.Errorf("%s: %w", object, err)
}

func corrupt(offset int64, reason string, args ...any) error {
	return &CorruptError{Offset: offset, Reason: fmt.Sprintf(reason, args...)}
}

// castagnoli is never changed after its making.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrTooLarge: a record, an object or its footer exceeds its bound.
var ErrTooLarge = errors.New("format: too large")

// Writer builds one object after another in memory. Begin, Add and EndAppend do not fail:
// the first misuse or excess makes Finish fail. Its buffers stay with it, as large as the
// largest object below 1 MiB that it wrote; nothing is allocated per record. Not for several
// goroutines at once.
type Writer struct {
	kind  Kind
	codec Codec

	star        string
	epoch, slot uint64
	flight      [16]byte

	out  []byte // header and finished blocks
	raw  []byte // records of the open block
	enc  []byte // the codec's output
	open blockHeader
	last int64 // timestamp of the open block's last record

	sections []Section // Blocks and Appends are cut from the lists below by Finish
	parts    []part    // of each section
	blocks   []Block
	appends  []Append
	pending  Append // the records added since the last EndAppend
	streams  map[uint64]struct{}
	footer   int // bound of the footer's length, without the open block
	err      error
}

// part says how many blocks and appends a section has.
type part struct{ blocks, appends int }

var errMisuse = errors.New("format: writer misused")

// NewWriter returns a writer of slots, bundles or settled objects, for which codec is
// tried on each block. (A seal is made by Seal.)
func NewWriter(kind Kind, codec Codec) *Writer {
	w := &Writer{kind: kind, codec: codec, streams: map[uint64]struct{}{}}
	w.Reset()
	return w
}

// Reset drops everything but kind, codec and buffers: the next object begins.
func (w *Writer) Reset() {
	w.star, w.epoch, w.slot, w.flight = "", 0, 0, [16]byte{}
	w.out = appendHeader(w.out[:0], w.kind)
	w.raw, w.open = w.raw[:0], blockHeader{}
	clear(w.appends) // lets go of the producers' ids
	w.sections, w.parts, w.blocks, w.appends = w.sections[:0], w.parts[:0], w.blocks[:0], w.appends[:0]
	w.pending = Append{}
	clear(w.streams)
	w.footer, w.err = maxFixedBytes, nil
	if w.kind < KindSlot || w.kind > KindSettled {
		w.misuse("it cannot write a %v", w.kind)
	}
}

func (w *Writer) misuse(reason string, args ...any) {
	w.fail(fmt.Errorf("%w: %s", errMisuse, fmt.Sprintf(reason, args...)))
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Grow makes room for n more bytes, so that an object whose size is known about is not copied
// again and again while it grows.
func (w *Writer) Grow(n int) { w.out = slices.Grow(w.out, min(max(n, 0), MaxObjectBytes)) }

// SetSlot says which slot the object is (or, a bundle, belongs to). Needed by slots and
// bundles, at any time before Finish; settled objects have none.
func (w *Writer) SetSlot(star string, epoch, slot uint64, flight [16]byte) {
	w.footer += len(star) - len(w.star)
	w.star, w.epoch, w.slot, w.flight = star, epoch, slot, flight
}

// Begin starts a section. firstOffset is the stream offset of the first record to come;
// 0 in slots and bundles, where absorb gives offsets later. There a stream has at most one
// section; in settled objects it may have several. A section must get a record.
func (w *Writer) Begin(stream, firstOffset uint64) {
	w.endSection()
	if w.kind.judged() {
		if firstOffset != 0 {
			w.misuse("a %v gives no offsets, here %d", w.kind, firstOffset)
		}
		if _, twice := w.streams[stream]; twice {
			w.misuse("a second section of stream %016x in a %v", stream, w.kind)
		}
		w.streams[stream] = struct{}{}
	}
	w.sections = append(w.sections, Section{Stream: stream, FirstOffset: firstOffset, Offset: int64(len(w.out))})
	w.parts = append(w.parts, part{})
	w.footer += maxSectionBytes
}

// Add adds a record to the section begun last. data is copied.
func (w *Writer) Add(timestamp int64, data []byte) {
	switch {
	case len(w.sections) == 0:
		w.misuse("a record before the first section")
	case len(data) > MaxRecordBytes:
		w.fail(fmt.Errorf("%w: a record of %d bytes, at most %d", ErrTooLarge, len(data), MaxRecordBytes))
	}
	if w.err != nil {
		return
	}
	s := &w.sections[len(w.sections)-1]
	if len(w.raw) > 0 && len(w.raw)+maxRecordFraming+len(data) > BlockTarget {
		w.endBlock()
	}
	if s.Records == 0 {
		s.FirstTimestamp, s.MaxTimestamp = timestamp, timestamp
	}
	if len(w.raw) == 0 {
		w.open = blockHeader{stream: s.Stream, ordinal: s.Records, base: timestamp}
		w.last = timestamp
	}
	if w.pending.Count == 0 {
		w.pending.FirstTimestamp, w.pending.MaxTimestamp = timestamp, timestamp
	}
	w.raw = binary.AppendVarint(w.raw, timestamp-w.last)
	w.raw = binary.AppendUvarint(w.raw, uint64(len(data)))
	w.raw = append(w.raw, data...)
	w.last = timestamp
	w.open.records++
	s.Records++
	s.Bytes += uint64(len(data))
	s.MaxTimestamp = max(s.MaxTimestamp, timestamp)
	w.pending.Count++
	w.pending.Bytes += uint64(len(data))
	w.pending.MaxTimestamp = max(w.pending.MaxTimestamp, timestamp)
}

// EndAppend closes the append of the records added since the last one. Only a's expected
// offset and producer are read; count, bytes and timestamps are those of the
// records. Slots and bundles need it for every record, settled objects have no appends.
func (w *Writer) EndAppend(a Append) {
	switch {
	case !w.kind.judged():
		w.misuse("a %v has no appends", w.kind)
	case w.pending.Count == 0:
		w.misuse("an append without a record")
	}
	if w.err != nil {
		return
	}
	p := w.pending
	w.pending = Append{}
	if p.HasExpected = a.HasExpected; a.HasExpected {
		p.Expected = a.Expected
	}
	if p.HasProducer = a.HasProducer; a.HasProducer {
		p.Producer = a.Producer
	}
	w.appends = append(w.appends, p)
	w.parts[len(w.parts)-1].appends++
	w.footer += maxAppendBytes + len(p.Producer.ID)
}

// Size bounds the length in bytes that the object would have if it were finished now: it
// is never longer, and shorter by the compression of the open block and a few bytes a section, block and
// append. A record adds at most its length, 15 bytes of framing, and a block's 58.
func (w *Writer) Size() int {
	size := len(w.out) + w.footer + TrailerLength
	if len(w.raw) > 0 {
		size += BlockHeaderLength + len(w.raw) + maxBlockBytes
	}
	return size
}

// endBlock closes the open block, if there is one. The codec is tried from 1 KiB on and
// used where it saves at least an eighth: else decoding would cost more than the
// bytes are worth.
func (w *Writer) endBlock() {
	if len(w.raw) == 0 {
		return
	}
	h, payload := w.open, w.raw
	h.raw = uint32(len(w.raw))
	if w.codec.ID() != storedID && len(w.raw) >= compressFrom {
		w.enc = w.codec.Encode(w.enc[:0], w.raw)
		if len(w.enc) <= len(w.raw)-len(w.raw)/8 {
			h.codec, payload = w.codec.ID(), w.enc
		}
	}
	w.putBlock(h, payload)
	w.raw = w.raw[:0]
}

// putBlock appends a finished block to the section begun last.
func (w *Writer) putBlock(h blockHeader, payload []byte) {
	if len(w.out)+BlockHeaderLength+len(payload) > MaxObjectBytes {
		w.fail(fmt.Errorf("%w: an object of more than %d bytes", ErrTooLarge, MaxObjectBytes))
		return
	}
	b := Block{Offset: int64(len(w.out)), Length: BlockHeaderLength + int64(len(payload)), Ordinal: h.ordinal, Records: h.records}
	w.out = appendBlock(w.out, &h, payload)
	b.CRC = h.crc
	w.blocks = append(w.blocks, b)
	w.parts[len(w.parts)-1].blocks++
	w.sections[len(w.sections)-1].Length += b.Length
	w.footer += maxBlockBytes
}

// endSection closes the section begun last, if there is one.
func (w *Writer) endSection() {
	if len(w.sections) == 0 {
		return
	}
	w.endBlock()
	s := &w.sections[len(w.sections)-1]
	switch {
	case s.Records == 0:
		w.misuse("a section of stream %016x without a record", s.Stream)
	case w.kind.judged() && w.pending.Count > 0:
		w.misuse("%d records of stream %016x belong to no append", w.pending.Count, s.Stream)
	case s.FirstOffset > math.MaxUint64-uint64(s.Records):
		w.misuse("the offsets of stream %016x end before record %d of its section", s.Stream, s.Records)
	}
	w.pending = Append{}
}

// Finish returns the object, which is the caller's, and its footer, just as Parse would
// return it. Reset comes before the next object.
//
// Errors: ErrTooLarge, or a misuse of the methods above.
func (w *Writer) Finish() (object []byte, f Footer, err error) {
	w.endSection()
	f = Footer{
		Kind: w.kind, Star: w.star, Epoch: w.epoch, Slot: w.slot, Flight: w.flight,
		BodyLength: int64(len(w.out)) - HeaderLength, Sections: slices.Clone(w.sections),
	}
	if reason := f.shape(len(w.sections)); reason != "" {
		w.misuse("%s", reason)
	}
	if w.err != nil {
		return nil, Footer{}, fmt.Errorf("write a %v: %w", w.kind, w.err)
	}
	blocks, appends := slices.Clone(w.blocks), slices.Clone(w.appends)
	for i, p := range w.parts {
		f.Sections[i].Blocks, blocks = blocks[:p.blocks:p.blocks], blocks[p.blocks:]
		if p.appends > 0 {
			f.Sections[i].Appends, appends = appends[:p.appends:p.appends], appends[p.appends:]
		}
	}
	w.enc, object, err = finish(w.enc, w.out, &f)
	if len(w.out) >= handOver {
		w.out = nil // it is the object
	}
	w.fail(fmt.Errorf("%w: a second object without a reset", errMisuse))
	return object, f, err
}

// handOver is from which length on a writer gives its buffer away as the object: copying
// would cost more than a new buffer.
const handOver = 1 << 20

// finish returns header and body with the footer behind them, and the scratch that it
// used: a short body is copied, so that its buffer can be used again, a long one handed over.
func finish(scratch, body []byte, f *Footer) (used, object []byte, err error) {
	tail := appendFooter(scratch[:0], f)
	switch {
	case len(tail) > MaxFooterBytes+TrailerLength:
		err = fmt.Errorf("write a %v: %w: its footer has %d bytes, at most %d", f.Kind, ErrTooLarge, len(tail)-TrailerLength, MaxFooterBytes)
	case len(body)+len(tail) > MaxObjectBytes:
		err = fmt.Errorf("write a %v: %w: it has %d bytes, at most %d", f.Kind, ErrTooLarge, len(body)+len(tail), MaxObjectBytes)
	case len(body) >= handOver:
		object = append(body, tail...)
	default:
		object = make([]byte, len(body)+len(tail))
		copy(object[copy(object, body):], tail)
	}
	return tail, object, err
}

// BundleIndex returns the slot of a bundle, given the footer that finished it: the slot
// holds no records, only the bundle's index. Both footers share their sections.
func BundleIndex(bundle Footer) (object []byte, f Footer, err error) {
	if bundle.Kind != KindBundle {
		return nil, Footer{}, fmt.Errorf("%w: the index of a %v", errMisuse, bundle.Kind)
	}
	f = bundle
	f.Kind, f.Bundled = KindSlot, true
	_, object, err = finish(nil, appendHeader(nil, f.Kind), &f)
	return object, f, err
}

// Seal returns the seal of a dead chain's slot: always the same bytes for the same
// arguments, so that whoever puts it a second time has put nothing new. star is a legal
// star name (1 to 63 bytes).
func Seal(star string, epoch, slot uint64) []byte {
	f := Footer{Kind: KindSeal, Star: star, Epoch: epoch, Slot: slot}
	return appendFooter(appendHeader(nil, KindSeal), &f)
}

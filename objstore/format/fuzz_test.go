package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/nova-store/nova/internal/allocation"
)

// repair makes the checksums of header, footer, trailer and of the blocks that follow
// one another from the body's start right, so that a fuzzer gets behind them.
func repair(object []byte) {
	if len(object) < HeaderLength+TrailerLength {
		return
	}
	copy(object, "NOVA\x01")
	binary.LittleEndian.PutUint32(object[8:], checksum(object[:8]))
	trailer := object[len(object)-TrailerLength:]
	end := len(object) - TrailerLength
	if length := int(binary.LittleEndian.Uint32(trailer)); length <= end {
		end -= length
	}
	binary.LittleEndian.PutUint32(trailer[4:], checksum(object[end:len(object)-TrailerLength]))
	binary.LittleEndian.PutUint32(trailer[8:], checksum(trailer[:8]))
	copy(trailer[12:], "nova")
	if end > HeaderLength {
		repairBlocks(object[HeaderLength:end])
	}
}

func repairBlocks(b []byte) {
	for len(b) >= BlockHeaderLength {
		stored := uint64(binary.LittleEndian.Uint32(b[24:]))
		end := min(BlockHeaderLength+stored, uint64(len(b)))
		b[0], b[1], b[3] = blockMagic0, blockMagic1, 0
		binary.LittleEndian.PutUint32(b[36:], checksum(b[BlockHeaderLength:end]))
		binary.LittleEndian.PutUint32(b[40:], checksum(b[:40]))
		b = b[end:]
	}
}

// fuzzSeeds are a few hundred bytes each: a fuzzer wastes its time on more. A slot, a settled object, a bundle
// and its index.
func fuzzSeeds(f *testing.F) [][]byte {
	slot, _ := newlyWritten(f, small(), Stored())
	long := bytes.Repeat([]byte("nova "), 6000)
	settled, _ := newlyWritten(f, input{kind: KindSettled, sections: []sectionInput{{stream: 1, appends: []appendInput{{
		records: []Record{{Timestamp: 1, Data: long}, {Timestamp: 2, Data: long}, {Timestamp: 3, Data: long}},
	}}}}}, Zstd())
	in := small()
	in.kind = KindBundle
	bundle, footer := newlyWritten(f, in, Stored())
	index, _, err := BundleIndex(footer)
	if err != nil {
		f.Fatal(err)
	}
	return [][]byte{slot, settled, bundle, index}
}

func known(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) }

// perByte bounds what decoding allocates for each byte of a footer: an append takes 5 of them and 88 in memory.
const perByte = 64

// FuzzParse: whatever the bytes, Parse and ParseTail neither panic nor disagree, fail with the documented errors
// only, and allocate in proportion to the object. What Parse accepts its own footer writes again, and a footer
// that was written again is the same bytes every time.
func FuzzParse(f *testing.F) {
	for _, object := range fuzzSeeds(f) {
		f.Add(object, uint16(0), true)
		f.Add(object, uint16(40), false)
	}
	f.Add(Seal("a", 1, 2), uint16(16), true)
	f.Fuzz(func(t *testing.T, object []byte, cut uint16, repaired bool) {
		if repaired {
			repair(object)
		}
		var footer Footer
		var err error
		allocation.Bounded(t, perByte*len(object), func() { footer, err = Parse(object) })
		if err != nil {
			if !known(err) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		tail, need, err := ParseTail(int64(len(object)), object[min(int(cut), len(object)):])
		if need > 0 { // as a ranged reader asks, once with a first guess and at most once more
			tail, need, err = ParseTail(int64(len(object)), object[int64(len(object))-need:])
		}
		if need > 0 {
			tail, need, err = ParseTail(int64(len(object)), object[int64(len(object))-need:])
		}
		if err != nil || need != 0 || !reflect.DeepEqual(tail, footer) {
			t.Fatalf("Parse accepts what ParseTail does not, or reads it otherwise: %d, %v", need, err)
		}
		body := object[:HeaderLength]
		if !footer.Bundled {
			body = object[:HeaderLength+footer.BodyLength]
		}
		written := appendFooter(bytes.Clone(body), &tail)
		again, err := Parse(written)
		if err != nil || !reflect.DeepEqual(again, footer) {
			t.Fatalf("the footer does not survive a round trip: %v", err)
		}
		if !bytes.Equal(written, appendFooter(bytes.Clone(body), &again)) {
			t.Fatal("the same footer gives other bytes")
		}
	})
}

// FuzzRecords: whatever the bytes of a range, Records neither panics nor reads past it, counts its ordinals without
// a gap, and allocates a block at most. VerifyBlocks and AddBlocks agree with it, and the records that it finds are
// those that are found again in what they are written to.
func FuzzRecords(f *testing.F) {
	for _, object := range fuzzSeeds(f)[:3] {
		footer, err := Parse(object)
		if err != nil {
			f.Fatal(err)
		}
		s := &footer.Sections[0]
		f.Add(sectionBytes(object, s), s.Stream)
	}
	d, w := NewDecoder(), NewWriter(KindSettled, Stored())
	f.Fuzz(func(t *testing.T, blocks []byte, stream uint64) {
		repairBlocks(blocks)
		count, next := uint32(0), int64(-1)
		var err error
		allocation.Bounded(t, 2*maxBlockRaw+zstdState, func() {
			err = d.Records(blocks, stream, func(ordinal uint32, _ Record) error {
				if next >= 0 && int64(ordinal) != next {
					t.Fatalf("ordinal %d after %d", ordinal, next-1)
				}
				next = int64(ordinal) + 1
				count++
				return nil
			})
		})
		tally, verified := VerifyBlocks(blocks, stream)
		if err != nil {
			if !known(err) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		if len(blocks) == 0 {
			return
		}
		if verified != nil || tally.End-tally.First != count || int64(tally.End) != next {
			t.Fatalf("VerifyBlocks finds [%d, %d) and %v, Records %d records up to %d", tally.First, tally.End, verified, count, next)
		}
		if count > 1<<16 {
			return // megabytes of empty records in a few bytes: to write them again takes seconds
		}
		w.Reset()
		w.Begin(stream, 0)
		added, err := w.AddBlocks(d, blocks, stream, tally.First, tally.End)
		if err != nil || added != count {
			t.Fatalf("AddBlocks takes %d of %d records: %v", added, count, err)
		}
		object, footer, err := w.Finish()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		first, want, err := collect(d, blocks, stream)
		if err != nil || first != tally.First {
			t.Fatalf("read a second time the range begins with %d, not %d: %v", first, tally.First, err)
		}
		s := &footer.Sections[0]
		if _, err := Parse(object); err != nil || s.Records != count {
			t.Fatalf("the object written holds %d of %d records: %v", s.Records, count, err)
		}
		first, got, err := collect(d, sectionBytes(object, s), stream)
		if err != nil || first != 0 {
			t.Fatalf("the object written begins with %d: %v", first, err)
		}
		requireRecords(t, want, got)
	})
}

// zstdState is what the first block that is compressed makes the decoder allocate.
const zstdState = 4 << 20

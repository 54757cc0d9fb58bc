package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
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

// fuzzSeeds are a few hundred bytes each: a fuzzer wastes its time on more.
func fuzzSeeds(f *testing.F) [][]byte {
	slot, _ := newlyWritten(f, small(), Stored())
	long := bytes.Repeat([]byte("nova "), 6000)
	settled, _ := newlyWritten(f, input{kind: KindSettled, sections: []sectionInput{{stream: 1, appends: []appendInput{{
		records: []Record{{Timestamp: 1, Data: long}, {Timestamp: 2, Data: long}, {Timestamp: 3, Data: long}},
	}}}}}, Zstd())
	return [][]byte{slot, settled}
}

func known(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) }

// FuzzParse: whatever the bytes, Parse, ParseTail and Records neither panic nor
// disagree, and fail with the documented errors only. What Parse accepts is an
// object that its own footer writes again.
func FuzzParse(f *testing.F) {
	for _, object := range fuzzSeeds(f) {
		f.Add(object, true)
		f.Add(object, false)
	}
	f.Add(Seal("a", 1, 2), true)
	f.Fuzz(func(t *testing.T, object []byte, repaired bool) {
		if repaired {
			repair(object)
		}
		footer, err := Parse(object)
		if err != nil {
			if !known(err) {
				t.Fatalf("an undocumented error: %v", err)
			}
			return
		}
		tail, need, err := ParseTail(int64(len(object)), object)
		if err != nil || need != 0 {
			t.Fatalf("Parse accepts what ParseTail does not: %d, %v", need, err)
		}
		d := NewDecoder()
		for i := range footer.Sections {
			s := &footer.Sections[i]
			if footer.Bundled {
				continue
			}
			err := d.Records(sectionBytes(object, s), s.Stream, func(uint32, Record) error { return nil })
			if err != nil && !known(err) {
				t.Fatalf("an undocumented error: %v", err)
			}
		}
		body := object[:HeaderLength]
		if !footer.Bundled {
			body = object[:HeaderLength+footer.BodyLength]
		}
		again, err := Parse(appendFooter(append([]byte(nil), body...), &tail))
		if err != nil || len(again.Sections) != len(footer.Sections) {
			t.Fatalf("the footer does not survive a round trip: %v", err)
		}
	})
}

// FuzzRecords: whatever the bytes of a range, Records neither panics nor reads past it,
// and counts its ordinals without a gap.
func FuzzRecords(f *testing.F) {
	for _, object := range fuzzSeeds(f) {
		footer, err := Parse(object)
		if err != nil {
			f.Fatal(err)
		}
		s := &footer.Sections[0]
		f.Add(sectionBytes(object, s), s.Stream)
	}
	f.Fuzz(func(t *testing.T, blocks []byte, stream uint64) {
		repairBlocks(blocks)
		next := int64(-1)
		err := NewDecoder().Records(blocks, stream, func(ordinal uint32, _ Record) error {
			if next >= 0 && int64(ordinal) != next {
				t.Fatalf("ordinal %d after %d", ordinal, next-1)
			}
			next = int64(ordinal) + 1
			return nil
		})
		if err != nil && !known(err) {
			t.Fatalf("an undocumented error: %v", err)
		}
	})
}

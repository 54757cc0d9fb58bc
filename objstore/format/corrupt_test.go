package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireCorrupt checks that a damaged object is refused by Parse and, where its tail
// is what is damaged, by ParseTail, and for the right reason.
func requireCorrupt(t require.TestingT, object []byte, what string) {
	f, err := Parse(object)
	require.ErrorIs(t, err, ErrCorrupt, what)
	require.Equal(t, Footer{}, f, what)
	var c *CorruptError
	require.ErrorAs(t, err, &c)
	require.GreaterOrEqual(t, c.Offset, int64(0))
	require.LessOrEqual(t, c.Offset, int64(len(object)))
}

func TestEveryBitFlipIsDetected(t *testing.T) {
	slot, _ := newlyWritten(t, small(), Stored())
	zstd := input{kind: KindSettled, sections: []sectionInput{{stream: 1, appends: []appendInput{{
		records: []Record{{Timestamp: 1, Data: bytes.Repeat([]byte("nova "), 400)}},
	}}}}}
	settled, _ := newlyWritten(t, zstd, Zstd())
	require.Less(t, len(settled), 300)
	for name, object := range map[string][]byte{"slot": slot, "settled": settled, "seal": Seal("a", 1, 2)} {
		for i := range object {
			for bit := range 8 {
				object[i] ^= 1 << bit
				requireCorrupt(t, object, fmt.Sprintf("%s: bit %d of byte %d", name, bit, i))
				object[i] ^= 1 << bit
			}
		}
	}
}

func TestEveryByteChangeIsDetected(t *testing.T) {
	object, _ := newlyWritten(t, small(), Stored())
	for i := range object {
		was := object[i]
		for v := range 256 {
			if object[i] = byte(v); object[i] == was {
				continue
			}
			if _, err := Parse(object); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d as %#x: %v", i, v, err)
			}
		}
		object[i] = was
	}
}

func TestEveryCutIsDetected(t *testing.T) {
	// A cut that leaves a record which is itself an object, trailer and all, at the end.
	inner, _ := newlyWritten(t, small(), Stored())
	in := small()
	in.sections[1].appends[0].records = []Record{{Timestamp: 1, Data: inner}}
	object, _ := newlyWritten(t, in, Stored())
	require.Positive(t, bytes.Index(object, inner))
	for n := range object {
		requireCorrupt(t, object[:n], fmt.Sprintf("cut after %d bytes", n))
		requireCorrupt(t, object[len(object)-n:], fmt.Sprintf("the last %d bytes alone", n))
		_, _, err := ParseTail(int64(n), object[max(0, n-TailLength):n])
		require.ErrorIs(t, err, ErrCorrupt, "tail of the first %d bytes", n)
	}
	requireCorrupt(t, append(bytes.Clone(object), 0), "a byte too many")
}

// Any change in a block range ends the reading; what was handed out before it is
// what was written.
func TestRecordsDetectsEveryBitFlip(t *testing.T) {
	in := small()
	object, f := newlyWritten(t, in, Stored())
	for i := range f.Sections {
		blocks := sectionBytes(object, &f.Sections[i])
		for at := range blocks {
			for bit := range 8 {
				blocks[at] ^= 1 << bit
				_, got, err := collect(NewDecoder(), blocks, f.Sections[i].Stream)
				require.ErrorIs(t, err, ErrCorrupt, "bit %d of byte %d", bit, at)
				require.Empty(t, got)
				blocks[at] ^= 1 << bit
			}
		}
	}
}

func TestSampledDamageIsDetected(t *testing.T) {
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			in := large()
			original, f := newlyWritten(t, in, codec())
			d := NewDecoder()
			rapid.Check(t, func(t *rapid.T) {
				object := bytes.Clone(original)
				at := rapid.IntRange(0, len(object)-1).Draw(t, "at")
				object[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "xor"))
				requireCorrupt(t, object, "one byte")
				for i := range f.Sections {
					s := &f.Sections[i]
					_, got, err := collect(d, sectionBytes(object, s), s.Stream)
					if within := int64(at) >= s.Offset && int64(at) < s.Offset+s.Length; within {
						require.ErrorIs(t, err, ErrCorrupt)
					} else {
						require.NoError(t, err)
						require.Len(t, got, int(s.Records))
					}
					requireRecords(t, in.sections[i].records()[:len(got)], got)
				}
			})
		})
	}
}

// A whole and undamaged block in the wrong place is found by what it says of itself,
// or by the footer.
func TestMisplacedBlocks(t *testing.T) {
	records := func(b byte) (r []Record) {
		for i := range 3 {
			r = append(r, Record{Timestamp: int64(i), Data: bytes.Repeat([]byte{b, byte(i)}, 25_000)})
		}
		return r
	}
	object := func(b byte, stream uint64) ([]byte, Footer) {
		return newlyWritten(t, input{kind: KindSettled, sections: []sectionInput{{stream: stream, appends: []appendInput{{records: records(b)}}}}}, Stored())
	}
	ours, f := object('a', 1)
	s := &f.Sections[0]
	require.Len(t, s.Blocks, 3)
	block := func(object []byte, i int) []byte { return object[s.Blocks[i].Offset:][:s.Blocks[i].Length] }
	older, _ := object('b', 1)
	foreign, _ := object('a', 2)

	for _, c := range []struct {
		name   string
		place  func(into []byte)
		ranged bool // found without the footer too
	}{
		{"two blocks swapped", func(into []byte) { copy(block(into, 1), block(ours, 2)); copy(block(into, 2), block(ours, 1)) }, true},
		{"a block twice", func(into []byte) { copy(block(into, 2), block(ours, 1)) }, true},
		{"another stream's", func(into []byte) { copy(block(into, 1), block(foreign, 1)) }, true},
		{"another object's of the same place", func(into []byte) { copy(block(into, 1), block(older, 1)) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			into := bytes.Clone(ours)
			c.place(into)
			requireCorrupt(t, into, c.name)
			if c.ranged {
				_, got, err := collect(NewDecoder(), sectionBytes(into, s), 1)
				require.ErrorIs(t, err, ErrCorrupt)
				requireRecords(t, records('a')[:len(got)], got)
			}
		})
	}
}

// Footers whose checksum holds but which say something impossible.
func TestImpossibleFooters(t *testing.T) {
	body := func(object []byte, f Footer) []byte { return object[:HeaderLength+f.BodyLength] }
	slot, _ := newlyWritten(t, small(), Stored())
	settled, _ := newlyWritten(t, large(), Stored())
	for _, c := range []struct {
		name   string
		object []byte
		change func(f *Footer)
	}{
		{"no star", slot, func(f *Footer) { f.Star = "" }},
		{"a long star", slot, func(f *Footer) { f.Star = string(make([]byte, 64)) }},
		{"a body too long", slot, func(f *Footer) { f.BodyLength++ }},
		{"a body too short", slot, func(f *Footer) { f.BodyLength-- }},
		{"bundled with a body", slot, func(f *Footer) { f.Bundled = true }},
		{"a bundled bundle", slot, func(f *Footer) { f.Kind, f.Bundled = KindBundle, true }},
		{"another kind than the header's", slot, func(f *Footer) { f.Kind = KindBundle }},
		{"a seal with records", slot, func(f *Footer) { f.Kind, f.Flight = KindSeal, [16]byte{} }},
		{"no sections", slot, func(f *Footer) { f.Sections = nil }},
		{"a section too few", slot, func(f *Footer) { f.Sections = f.Sections[:1] }},
		{"a stream twice", slot, func(f *Footer) { f.Sections[1].Stream = f.Sections[0].Stream }},
		{"another stream than the block's", slot, func(f *Footer) { f.Sections[0].Stream = 8 }},
		{"offsets in a slot", slot, func(f *Footer) { f.Sections[0].FirstOffset = 1 }},
		{"no appends", slot, func(f *Footer) { f.Sections[0].Appends = nil }},
		{"an append too few", slot, func(f *Footer) { f.Sections[0].Appends = f.Sections[0].Appends[:1] }},
		{"an empty append", slot, func(f *Footer) { f.Sections[0].Appends[0].Count = 0 }},
		{"an append too long", slot, func(f *Footer) { f.Sections[0].Appends[1].Count++ }},
		{"an append of too many bytes", slot, func(f *Footer) { f.Sections[0].Appends[1].Bytes++ }},
		{"an append of impossibly many bytes", slot, func(f *Footer) { f.Sections[0].Appends[0].Bytes = math.MaxUint64 }},
		{"an append that begins at another time", slot, func(f *Footer) { f.Sections[0].Appends[0].FirstTimestamp-- }},
		{"an append past the largest timestamp", slot, func(f *Footer) { f.Sections[0].Appends[1].MaxTimestamp++ }},
		{"a largest timestamp before the first", slot, func(f *Footer) { f.Sections[1].MaxTimestamp-- }},
		{"no records", slot, func(f *Footer) { f.Sections[1].Records = 0 }},
		{"no blocks", slot, func(f *Footer) { f.Sections[1].Blocks = nil }},
		{"an empty block", slot, func(f *Footer) { f.Sections[0].Blocks[0].Records = 0 }},
		{"a block without a payload", slot, func(f *Footer) { f.Sections[0].Blocks[0].Length = BlockHeaderLength }},
		{"a record more", slot, func(f *Footer) {
			f.Sections[1].Records++
			f.Sections[1].Blocks[0].Records++
			f.Sections[1].Appends[0].Count++
		}},
		{"another checksum", slot, func(f *Footer) { f.Sections[0].Blocks[0].CRC++ }},
		{"a settled object of a star", settled, func(f *Footer) { f.Star = "a" }},
		{"a settled object of an epoch", settled, func(f *Footer) { f.Epoch = 1 }},
		{"a settled object of a flight", settled, func(f *Footer) { f.Flight[0] = 1 }},
		{"offsets past the last", settled, func(f *Footer) { f.Sections[0].FirstOffset = math.MaxUint64 - 10 }},
		{"appends in a settled object", settled, func(f *Footer) {
			s := &f.Sections[0]
			s.Appends = []Append{{Count: s.Records, Bytes: s.Bytes, FirstTimestamp: s.FirstTimestamp, MaxTimestamp: s.MaxTimestamp}}
		}},
		{"a block boundary moved", settled, func(f *Footer) { f.Sections[0].Blocks[0].Length--; f.Sections[0].Blocks[1].Length++ }},
		{"a section boundary moved", settled, func(f *Footer) { f.Sections[0].Blocks[0].Length--; f.Sections[1].Blocks[0].Length++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse(c.object)
			require.NoError(t, err)
			b := bytes.Clone(body(c.object, f))
			require.Equal(t, c.object, appendFooter(bytes.Clone(b), &f), "unchanged, it is the object")
			c.change(&f)
			requireCorrupt(t, appendFooter(b, &f), c.name)
		})
	}
}

// Footers that no writer can express: totals, flags and numbers out of bounds.
func TestHostileFooterBytes(t *testing.T) {
	slot, f := newlyWritten(t, small(), Stored())
	footer := slot[HeaderLength+f.BodyLength : len(slot)-TrailerLength]
	fixed := 3 + 2 + 1 + 2 + 16 + 1 // up to the totals: body length is of one byte only if small
	if f.BodyLength > 127 {
		fixed++
	}
	require.Equal(t, []byte{2, 2, 3}, footer[fixed:fixed+3], "sections, blocks, appends")
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
	}{
		{"empty", func([]byte) []byte { return nil }},
		{"a block more in all", func(b []byte) []byte { b[fixed+1]++; return b }},
		{"an append less in all", func(b []byte) []byte { b[fixed+2]--; return b }},
		{"a section more in all", func(b []byte) []byte { b[fixed]++; return b }},
		{"more sections than bytes", func(b []byte) []byte { b[fixed] = 127; return b }},
		{"lists larger than the bytes together", func(b []byte) []byte { b[fixed], b[fixed+1], b[fixed+2] = 5, 12, 16; return b }},
		{"a total without an end", func(b []byte) []byte { return slices.Replace(b, fixed, fixed+1, bytes.Repeat([]byte{0xff}, 11)...) }},
		{"a byte too many", func(b []byte) []byte { return append(b, 0) }},
		{"a byte too few", func(b []byte) []byte { return b[:len(b)-1] }},
		{"an append's unknown flag", func(b []byte) []byte { b[len(b)-1] = 4; return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.change(bytes.Clone(footer))
			requireCorrupt(t, withFooter(slot[:HeaderLength+f.BodyLength], b), c.name)
		})
	}
}

// withFooter puts footer bytes and a trailer of right checksums behind header and body.
func withFooter(body, footer []byte) []byte {
	object := slices.Concat(body, footer)
	at := len(object)
	object = binary.LittleEndian.AppendUint32(object, uint32(len(footer)))
	object = binary.LittleEndian.AppendUint32(object, checksum(footer))
	object = binary.LittleEndian.AppendUint32(object, checksum(object[at:]))
	return append(object, "nova"...)
}

func TestTrailerBounds(t *testing.T) {
	object := Seal("a", 1, 2)
	trailer := object[len(object)-TrailerLength:]
	for _, length := range []uint32{uint32(len(object) - HeaderLength - TrailerLength + 1), MaxFooterBytes + 1, math.MaxUint32} {
		binary.LittleEndian.PutUint32(trailer, length)
		binary.LittleEndian.PutUint32(trailer[8:], checksum(trailer[:8]))
		requireCorrupt(t, object, "a footer longer than the object")
	}
	_, _, err := ParseTail(MaxObjectBytes+1, trailer)
	require.ErrorIs(t, err, ErrCorrupt)
	_, _, err = ParseTail(3, []byte("four"))
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrCorrupt, "a tail longer than the object is the caller's mistake")
}

// Blocks whose checksums hold but which say something impossible.
func TestImpossibleBlocks(t *testing.T) {
	zeros := Zstd().Encode(nil, make([]byte, 1<<20))
	one := []byte{0, 3, 'o', 'n', 'e'}
	for _, c := range []struct {
		name    string
		h       blockHeader
		payload []byte
	}{
		{"no records", blockHeader{raw: 5}, one},
		{"more records than bytes allow", blockHeader{raw: 5, records: 3}, one},
		{"fewer records than bytes", blockHeader{raw: 10, records: 1}, append(one, one...)},
		{"more records than there are", blockHeader{raw: 5, records: 2}, one},
		{"a record's length past the end", blockHeader{raw: 5, records: 1}, []byte{0, 4, 'o', 'n', 'e'}},
		{"a record's length that overflows", blockHeader{raw: 12, records: 1}, append([]byte{0}, bytes.Repeat([]byte{0xff}, 11)...)},
		{"a record's length of the largest number", blockHeader{raw: 11, records: 1}, append(append([]byte{0}, bytes.Repeat([]byte{0xff}, 9)...), 1)},
		{"ordinals past the last", blockHeader{raw: 5, records: 1, ordinal: math.MaxUint32}, one},
		{"stored, but of another length", blockHeader{raw: 6, records: 1}, one},
		{"more stored than raw", blockHeader{codec: zstdID, raw: 4, records: 1}, one},
		{"too much raw", blockHeader{codec: zstdID, raw: maxBlockRaw + 1, records: 1}, zeros},
		{"decodes to more than it says", blockHeader{codec: zstdID, raw: 1 << 19, records: 1}, zeros},
		{"decodes to less than it says", blockHeader{codec: zstdID, raw: 1 << 21, records: 1}, zeros},
		{"does not decode", blockHeader{codec: zstdID, raw: 5, records: 1}, one},
		{"decodes to nothing", blockHeader{codec: zstdID, raw: 5, records: 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := collect(NewDecoder(), appendBlock(nil, &c.h, c.payload), 0)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
	h := blockHeader{raw: 5, records: 1}
	block := appendBlock(nil, &h, one)
	_, got, err := collect(NewDecoder(), block, 0)
	require.NoError(t, err)
	requireRecords(t, []Record{{Data: []byte("one")}}, got)
	block[3] = 1
	binary.LittleEndian.PutUint32(block[40:], checksum(block[:40]))
	_, _, err = collect(NewDecoder(), block, 0)
	require.ErrorIs(t, err, ErrCorrupt, "the reserved byte")
}

// What a later version may write is told apart from damage.
func TestAnotherVersionIsNotCorruption(t *testing.T) {
	resum := func(object []byte) []byte {
		binary.LittleEndian.PutUint32(object[8:], checksum(object[:8]))
		return object
	}
	for name, object := range map[string][]byte{
		"version in the header": func() []byte { o := Seal("a", 1, 2); o[4] = 2; return resum(o) }(),
		"version in the footer": withFooter(Seal("a", 1, 2)[:HeaderLength], []byte{2, 4}),
		"kind":                  withFooter(Seal("a", 1, 2)[:HeaderLength], []byte{1, 5, 0, 99}),
		"flags":                 withFooter(Seal("a", 1, 2)[:HeaderLength], []byte{1, 4, 2, 99}),
	} {
		_, err := Parse(object)
		require.ErrorIs(t, err, ErrVersion, name)
		require.NotErrorIs(t, err, ErrCorrupt, name)
	}
	_, err := Parse(func() []byte { o := Seal("a", 1, 2); o[6] = 1; return resum(o) }())
	require.ErrorIs(t, err, ErrCorrupt, "reserved bytes")
	_, _, err = collect(NewDecoder(), appendBlock(nil, &blockHeader{codec: 9, raw: 5, records: 1}, []byte{0, 3, 'o', 'n', 'e'}), 0)
	require.ErrorIs(t, err, ErrVersion)
}

func TestInObject(t *testing.T) {
	require.NoError(t, InObject(nil, "slot/a/1/0", 5))
	inner := fmt.Errorf("read: %w", corrupt(7, "a reason"))
	err := InObject(inner, "slot/a/1/0", 100)
	require.EqualError(t, err, "slot/a/1/0 is corrupt at byte 107: a reason")
	require.ErrorIs(t, err, ErrCorrupt)
	require.EqualError(t, corrupt(7, "a reason"), "object is corrupt at byte 7: a reason")

	again := InObject(err, "slot/a/1/0", 100)
	var c *CorruptError
	require.ErrorAs(t, again, &c)
	require.EqualValues(t, 107, c.Offset, "not moved twice")

	other := errors.New("other")
	err = InObject(other, "slot/a/1/0", 100)
	require.ErrorIs(t, err, other)
	require.NotErrorIs(t, err, ErrCorrupt)
}

package format

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, codec := drawInput(t), drawCodec(t)
		w := NewWriter(in.kind, codec)
		object, written, err := in.write(w)
		require.NoError(t, err)

		f, err := Parse(object)
		require.NoError(t, err)
		require.Equal(t, written, f)
		require.Equal(t, []any{in.kind, in.star, in.epoch, in.slot, in.flight, false},
			[]any{f.Kind, f.Star, f.Epoch, f.Slot, f.Flight, f.Bundled})
		require.Len(t, f.Sections, len(in.sections))

		d := NewDecoder()
		next := int64(HeaderLength)
		for i, s := range f.Sections {
			want := in.sections[i]
			require.Equal(t, next, s.Offset)
			next += s.Length
			require.Equal(t, want.stream, s.Stream)
			require.Equal(t, want.firstOffset, s.FirstOffset)
			first, got, err := collect(d, sectionBytes(object, &s), s.Stream)
			require.NoError(t, err)
			require.Zero(t, first)
			requireRecords(t, want.records(), got)
			requireFigures(t, want, s)
		}
		require.Equal(t, HeaderLength+f.BodyLength, next)

		again, _, err := in.write(w)
		require.NoError(t, err)
		require.Equal(t, object, again, "the same input after a reset")
	})
}

// requireFigures checks what a section says about its records and appends.
func requireFigures(t require.TestingT, want sectionInput, s Section) {
	figures := func(records []Record) (f Append) {
		f = Append{Count: uint32(len(records)), FirstTimestamp: records[0].Timestamp, MaxTimestamp: math.MinInt64}
		for _, r := range records {
			f.Bytes += uint64(len(r.Data))
			f.MaxTimestamp = max(f.MaxTimestamp, r.Timestamp)
		}
		return f
	}
	all := figures(want.records())
	require.Equal(t, all, Append{Count: s.Records, Bytes: s.Bytes, FirstTimestamp: s.FirstTimestamp, MaxTimestamp: s.MaxTimestamp})
	if s.Appends == nil {
		return
	}
	require.Len(t, s.Appends, len(want.appends))
	for i, a := range want.appends {
		f := figures(a.records)
		f.HasExpected, f.Expected, f.HasProducer, f.Producer = a.a.HasExpected, a.a.Expected, a.a.HasProducer, a.a.Producer
		require.Equal(t, f, s.Appends[i])
	}
}

func TestSlotsAndBundlesAloneHaveAppends(t *testing.T) {
	in := small()
	for _, kind := range []Kind{KindSlot, KindBundle, KindSettled} {
		in.kind = kind
		if kind == KindSettled {
			in.star, in.epoch, in.slot, in.flight = "", 0, 0, [16]byte{}
		}
		object, _ := newlyWritten(t, in, Stored())
		f, err := Parse(object)
		require.NoError(t, err)
		require.Equal(t, kind != KindSettled, f.Sections[0].Appends != nil)
	}
}

// A span's block-aligned range holds its records, nothing of other sections, and no
// block too many.
func TestRangedReadingEqualsFullReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		object, f := newlyWritten(t, in, drawCodec(t))
		i := rapid.IntRange(0, len(f.Sections)-1).Draw(t, "section")
		s, want := f.Sections[i], in.sections[i].records()
		from := rapid.IntRange(0, len(want)-1).Draw(t, "from")
		count := rapid.IntRange(1, len(want)-from).Draw(t, "count")

		offset, length := s.Range(uint32(from), uint32(count))
		require.GreaterOrEqual(t, offset, s.Offset)
		require.LessOrEqual(t, offset+length, s.Offset+s.Length)
		first, got, err := collect(NewDecoder(), object[offset:offset+length], s.Stream)
		require.NoError(t, err)
		require.LessOrEqual(t, int(first), from)
		requireRecords(t, want[from:from+count], got[from-int(first):][:count])

		within := 0
		for _, b := range s.Blocks {
			if int(b.Ordinal) < from+count && from < int(b.Ordinal+b.Records) {
				within += int(b.Length)
			}
		}
		require.EqualValues(t, within, length)
	})
}

func TestRangeOutsideTheSectionIsEmpty(t *testing.T) {
	_, f := newlyWritten(t, small(), Stored())
	for _, r := range [][2]uint32{{3, 1}, {math.MaxUint32, math.MaxUint32}, {0, 0}} {
		_, length := f.Sections[0].Range(r[0], r[1])
		require.Zero(t, length, "%v", r)
	}
}

func TestParseTailEqualsParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object, f := newlyWritten(t, drawInput(t), drawCodec(t))
		size := len(object)
		guess := rapid.IntRange(0, size).Draw(t, "guess")
		got, need, err := ParseTail(int64(size), object[size-guess:])
		require.NoError(t, err)
		for tries := 0; need > 0; tries++ {
			require.Less(t, tries, 2)
			require.Greater(t, need, int64(guess))
			require.LessOrEqual(t, need, int64(size))
			guess = int(need)
			got, need, err = ParseTail(int64(size), object[size-guess:])
			require.NoError(t, err)
		}
		require.Equal(t, f, got)
	})
}

// Blocks do not depend on the codec that the writer was given: a decoder knows all.
func TestDecoderReadsBlocksOfSeveralCodecs(t *testing.T) {
	in := large()
	d := NewDecoder()
	for _, codec := range codecs {
		object, f := newlyWritten(t, in, codec())
		for i := range f.Sections {
			_, got, err := collect(d, sectionBytes(object, &f.Sections[i]), f.Sections[i].Stream)
			require.NoError(t, err)
			requireRecords(t, in.sections[i].records(), got)
		}
	}
}

func TestRecordsStopsAtTheCallersError(t *testing.T) {
	object, f := newlyWritten(t, large(), Zstd())
	enough, calls := errors.New("enough"), 0
	err := NewDecoder().Records(sectionBytes(object, &f.Sections[0]), 1, func(ordinal uint32, _ Record) error {
		if calls++; ordinal == 4 {
			return enough
		}
		return nil
	})
	require.Equal(t, enough, err)
	require.Equal(t, 5, calls)
}

func TestRecordsOfNoBlocks(t *testing.T) {
	_, got, err := collect(NewDecoder(), nil, 1)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A bundled slot is the bundle's index: same sections, no records of its own.
func TestBundleIndex(t *testing.T) {
	in := large()
	in.kind, in.star, in.epoch, in.slot, in.flight = KindBundle, "a", 1, 2, [16]byte{9}
	in.sections[0].firstOffset, in.sections[1].firstOffset = 0, 0
	bundle, bf := newlyWritten(t, in, Zstd())
	slot, sf, err := BundleIndex(bf)
	require.NoError(t, err)
	f, err := Parse(slot)
	require.NoError(t, err)
	require.Equal(t, sf, f)
	require.True(t, f.Bundled)
	require.Equal(t, KindSlot, f.Kind)
	require.Equal(t, bf.Sections, f.Sections)
	require.Less(t, len(slot), len(bundle)/10)
	_, got, err := collect(NewDecoder(), sectionBytes(bundle, &f.Sections[1]), 2)
	require.NoError(t, err)
	requireRecords(t, in.sections[1].records(), got)

	_, _, err = BundleIndex(sf)
	require.Error(t, err, "only a bundle has an index")
}

func TestSeal(t *testing.T) {
	seal := Seal("a", 7, 12)
	require.Equal(t, seal, Seal("a", 7, 12))
	require.NotEqual(t, seal, Seal("a", 7, 13))
	f, err := Parse(seal)
	require.NoError(t, err)
	require.Equal(t, Footer{Kind: KindSeal, Star: "a", Epoch: 7, Slot: 12}, f)
}

// The bytes depend on nothing that a codec did before, and one codec serves several
// goroutines.
func TestSharedCodecIsDeterministic(t *testing.T) {
	want, _ := newlyWritten(t, large(), Zstd())
	codec := Zstd()
	got := make([][]byte, 4)
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			w := NewWriter(KindSettled, codec)
			for range 3 {
				object, _, err := large().write(w)
				if err == nil {
					_, err = Parse(object)
				}
				if err != nil {
					return
				}
				got[i] = object
			}
		})
	}
	group.Wait()
	for _, object := range got {
		require.Equal(t, want, object)
	}
}

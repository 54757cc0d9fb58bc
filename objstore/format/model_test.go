package format

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// input is what a test gives a Writer, as plain data.
type input struct {
	kind     Kind
	star     string
	epoch    uint64
	slot     uint64
	flight   [16]byte
	sections []sectionInput
}

type sectionInput struct {
	stream, firstOffset uint64
	appends             []appendInput
}

type appendInput struct {
	a       Append // expected and producer only
	records []Record
}

func (in input) write(w *Writer) ([]byte, Footer, error) {
	w.Reset()
	if in.star != "" {
		w.SetSlot(in.star, in.epoch, in.slot, in.flight)
	}
	for _, s := range in.sections {
		w.Begin(s.stream, s.firstOffset)
		for _, a := range s.appends {
			for _, r := range a.records {
				w.Add(r.Timestamp, r.Data)
			}
			if in.kind.judged() {
				w.EndAppend(a.a)
			}
		}
	}
	return w.Finish()
}

func (s sectionInput) records() []Record {
	var all []Record
	for _, a := range s.appends {
		all = append(all, a.records...)
	}
	return all
}

// newlyWritten writes an input with a writer of its own.
func newlyWritten(t require.TestingT, in input, codec Codec) ([]byte, Footer) {
	object, f, err := in.write(NewWriter(in.kind, codec))
	require.NoError(t, err)
	return object, f
}

// collect reads blocks and copies their records; first is the ordinal of the first.
func collect(d *Decoder, blocks []byte, stream uint64) (first uint32, all []Record, err error) {
	err = d.Records(blocks, stream, func(ordinal uint32, r Record) error {
		if len(all) == 0 {
			first = ordinal
		}
		all = append(all, Record{Timestamp: r.Timestamp, Data: bytes.Clone(r.Data)})
		return nil
	})
	return first, all, err
}

// requireRecords compares records, an empty payload being equal to a missing one.
func requireRecords(t require.TestingT, want, got []Record) {
	require.Len(t, got, len(want))
	for i := range want { // a require for each of thousands of records would take most of the time
		if want[i].Timestamp != got[i].Timestamp || !bytes.Equal(want[i].Data, got[i].Data) {
			t.Errorf("record %d differs", i)
			t.FailNow()
		}
	}
}

// sectionBytes cuts a section's bytes from the object that holds them.
func sectionBytes(object []byte, s *Section) []byte { return object[s.Offset : s.Offset+s.Length] }

var codecs = map[string]func() Codec{"stored": Stored, "zstd": Zstd}

func drawCodec(t *rapid.T) Codec {
	if rapid.Bool().Draw(t, "zstd") {
		return Zstd()
	}
	return Stored()
}

func drawRecord(t *rapid.T) Record {
	r := Record{Timestamp: rapid.OneOf(
		rapid.Int64Range(1_700_000_000_000, 1_700_000_100_000),
		rapid.Int64(),
		rapid.SampledFrom([]int64{0, -1, math.MinInt64, math.MaxInt64}),
	).Draw(t, "timestamp")}
	switch rapid.IntRange(0, 9).Draw(t, "shape") {
	case 0:
	case 1: // compresses; often more than a block
		r.Data = bytes.Repeat([]byte("nova "), rapid.IntRange(0, 30_000).Draw(t, "repeats"))
	default:
		r.Data = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")
	}
	return r
}

func drawAppend(t *rapid.T) appendInput {
	var a Append
	if a.HasExpected = rapid.Bool().Draw(t, "has expected"); a.HasExpected {
		a.Expected = rapid.Uint64().Draw(t, "expected")
	}
	if a.HasProducer = rapid.Bool().Draw(t, "has producer"); a.HasProducer {
		a.Producer = Producer{
			ID:    rapid.String().Draw(t, "producer"),
			Epoch: rapid.Uint32().Draw(t, "producer epoch"),
			Seq:   rapid.Uint64().Draw(t, "sequence"),
			Since: rapid.Uint64().Draw(t, "since"),
		}
	}
	return appendInput{a: a, records: rapid.SliceOfN(rapid.Custom(drawRecord), 1, 12).Draw(t, "records")}
}

func drawInput(t *rapid.T) input {
	in := input{kind: rapid.SampledFrom([]Kind{KindSlot, KindBundle, KindSettled}).Draw(t, "kind")}
	if in.kind.judged() {
		in.star = rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,62}`).Draw(t, "star")
		in.epoch, in.slot = rapid.Uint64().Draw(t, "epoch"), rapid.Uint64().Draw(t, "slot")
		copy(in.flight[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "flight"))
	}
	for _, stream := range rapid.SliceOfNDistinct(rapid.Uint64(), 1, 5, rapid.ID[uint64]).Draw(t, "streams") {
		s := sectionInput{stream: stream, appends: rapid.SliceOfN(rapid.Custom(drawAppend), 1, 4).Draw(t, "appends")}
		if !in.kind.judged() {
			s.firstOffset = rapid.Uint64Range(0, math.MaxUint64-1000).Draw(t, "first offset")
		}
		in.sections = append(in.sections, s)
	}
	if !in.kind.judged() && rapid.Bool().Draw(t, "a stream twice") {
		in.sections = append(in.sections, in.sections[0])
	}
	return in
}

// small is an object that has a bit of everything, and few bytes.
func small() input {
	return input{
		kind: KindSlot, star: "a", epoch: 3, slot: 300, flight: [16]byte{1, 2, 3},
		sections: []sectionInput{
			{stream: 7, appends: []appendInput{
				{a: Append{HasExpected: true, Expected: 41}, records: []Record{{Timestamp: 1000, Data: []byte("one")}, {Timestamp: 999, Data: nil}}},
				{a: Append{HasProducer: true, Producer: Producer{ID: "p", Epoch: 2, Seq: 9, Since: 40}}, records: []Record{{Timestamp: 1001, Data: []byte("three")}}},
			}},
			{stream: 1 << 60, appends: []appendInput{{records: []Record{{Timestamp: -5, Data: []byte("other")}}}}},
		},
	}
}

// large is a settled object of several blocks a section.
func large() input {
	in := input{kind: KindSettled}
	for stream := uint64(1); stream <= 2; stream++ {
		a := appendInput{}
		for i := range 2000 {
			a.records = append(a.records, Record{Timestamp: int64(i), Data: bytes.Repeat([]byte{byte(i), byte(i >> 3), byte(stream)}, 20+i%17)})
		}
		in.sections = append(in.sections, sectionInput{stream: stream, firstOffset: 100 * stream, appends: []appendInput{a}})
	}
	return in
}

func TestSmallAndLargeAreWhatTheTestsNeed(t *testing.T) {
	object, f := newlyWritten(t, small(), Stored())
	require.Less(t, len(object), 400)
	require.Len(t, f.Sections, 2)
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			_, f := newlyWritten(t, large(), codec())
			require.GreaterOrEqual(t, len(f.Sections[1].Blocks), 3)
		})
	}
}

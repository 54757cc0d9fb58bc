package format

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// noise is n bytes that do not compress, always the same.
func noise(n int) []byte {
	b := make([]byte, n)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(b); err != nil {
		panic(err) // it never fails
	}
	return b
}

func TestMisuseFailsFinish(t *testing.T) {
	var flight [16]byte
	begun := func(w *Writer) {
		w.SetSlot("a", 1, 2, flight)
		w.Begin(1, 0)
		w.Add(1, []byte("x"))
	}
	for _, c := range []struct {
		name string
		kind Kind
		use  func(w *Writer)
	}{
		{"no slot", KindSlot, func(w *Writer) { w.Begin(1, 0); w.Add(1, nil); w.EndAppend(Append{}) }},
		{"no section", KindSlot, func(w *Writer) { w.SetSlot("a", 1, 2, flight) }},
		{"an empty section", KindSlot, func(w *Writer) { begun(w); w.EndAppend(Append{}); w.Begin(2, 0) }},
		{"an empty section before another", KindSettled, func(w *Writer) { w.Begin(2, 0); w.Begin(1, 0); w.Add(1, nil) }},
		{"a stream twice in a slot", KindSlot, func(w *Writer) {
			begun(w)
			w.EndAppend(Append{})
			w.Begin(1, 0)
			w.Add(1, nil)
			w.EndAppend(Append{})
		}},
		{"offsets in a slot", KindBundle, func(w *Writer) {
			w.SetSlot("a", 1, 2, flight)
			w.Begin(1, 5)
			w.Add(1, nil)
			w.EndAppend(Append{})
		}},
		{"a record without a section", KindSettled, func(w *Writer) { w.Add(1, nil) }},
		{"records without an append at the end", KindSlot, begun},
		{"records without an append before a section", KindSlot, func(w *Writer) { begun(w); w.Begin(2, 0); w.Add(1, nil); w.EndAppend(Append{}) }},
		{"an append without records", KindSlot, func(w *Writer) { begun(w); w.EndAppend(Append{}); w.EndAppend(Append{}) }},
		{"an append in a settled object", KindSettled, func(w *Writer) { w.Begin(1, 0); w.Add(1, nil); w.EndAppend(Append{}) }},
		{"an append before any section", KindSlot, func(w *Writer) { w.EndAppend(Append{}) }},
		{"a slot for a settled object", KindSettled, func(w *Writer) { begun(w) }},
		{"a long star", KindSlot, func(w *Writer) { begun(w); w.EndAppend(Append{}); w.SetSlot(strings.Repeat("a", 64), 1, 2, flight) }},
		{"offsets past the last", KindSettled, func(w *Writer) { w.Begin(1, math.MaxUint64); w.Add(1, nil) }},
		{"a seal", KindSeal, func(w *Writer) { w.SetSlot("a", 1, 2, flight) }},
		{"no kind", 0, begun},
		{"twice", KindSettled, func(w *Writer) {
			w.Begin(1, 0)
			w.Add(1, nil)
			_, _, err := w.Finish()
			require.NoError(t, err)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWriter(c.kind, Stored())
			c.use(w)
			object, _, err := w.Finish()
			require.ErrorIs(t, err, errMisuse)
			require.Nil(t, object)
		})
	}
}

// A failed object leaves nothing behind for the next.
func TestResetAfterFailure(t *testing.T) {
	want, _ := newlyWritten(t, small(), Stored())
	w := NewWriter(KindSlot, Stored())
	w.SetSlot("other", 9, 9, [16]byte{9})
	w.Begin(7, 3)
	w.Add(5, []byte("left over"))
	_, _, err := w.Finish()
	require.Error(t, err)
	object, _, err := small().write(w)
	require.NoError(t, err)
	require.Equal(t, want, object)
}

func TestLargestRecord(t *testing.T) {
	data := noise(MaxRecordBytes + 1) // no codec helps: the block is as large as it gets
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(KindSettled, codec())
			w.Begin(1, 0)
			w.Add(1, []byte("before"))
			w.Add(math.MinInt64, data[:MaxRecordBytes])
			w.Add(math.MaxInt64, []byte("after"))
			object, f, err := w.Finish()
			require.NoError(t, err)
			require.Len(t, f.Sections[0].Blocks, 3, "a record over the target has a block of its own")
			_, err = Parse(object)
			require.NoError(t, err)
			_, got, err := collect(NewDecoder(), sectionBytes(object, &f.Sections[0]), 1)
			require.NoError(t, err)
			requireRecords(t, []Record{{1, []byte("before")}, {math.MinInt64, data[:MaxRecordBytes]}, {math.MaxInt64, []byte("after")}}, got)

			w.Reset()
			w.Begin(1, 0)
			w.Add(1, data)
			_, _, err = w.Finish()
			require.ErrorIs(t, err, ErrTooLarge)
		})
	}
}

func TestLargestObjectAndFooter(t *testing.T) {
	w := NewWriter(KindSettled, Stored())
	w.Begin(1, 0)
	data := make([]byte, MaxRecordBytes)
	for w.Size() <= MaxObjectBytes {
		w.Add(1, data)
	}
	_, _, err := w.Finish()
	require.ErrorIs(t, err, ErrTooLarge)
	require.LessOrEqual(t, len(w.out), MaxObjectBytes, "what does not fit is not even kept")

	w = NewWriter(KindSlot, Stored())
	w.SetSlot("a", 1, 1, [16]byte{})
	w.Begin(1, 0)
	w.Add(1, nil)
	w.EndAppend(Append{HasProducer: true, Producer: Producer{ID: strings.Repeat("p", MaxFooterBytes)}})
	_, _, err = w.Finish()
	require.ErrorIs(t, err, ErrTooLarge)
}

// The codec is left out where it does not help.
func TestCodecPerBlock(t *testing.T) {
	noise := noise(4000)
	for _, c := range []struct {
		name string
		data []byte
		want uint8
	}{
		{"under 1 KiB", bytes.Repeat([]byte("a"), 1000), storedID},
		{"helps", bytes.Repeat([]byte("a"), 4000), zstdID},
		{"does not help", noise, storedID},
		{"hardly helps", append(noise[:3900:3900], make([]byte, 100)...), storedID},
	} {
		w := NewWriter(KindSettled, Zstd())
		w.Begin(1, 0)
		w.Add(1, c.data)
		object, f, err := w.Finish()
		require.NoError(t, err)
		h, _, err := readBlock(object[f.Sections[0].Offset:], 0)
		require.NoError(t, err)
		require.Equal(t, c.want, h.codec, c.name)
	}
}

// Size never promises too little, and grows by no more than it says.
func TestSizeBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		w := NewWriter(in.kind, drawCodec(t))
		if in.star != "" {
			w.SetSlot("x", 1, 1, in.flight)
			w.SetSlot(in.star, in.epoch, in.slot, in.flight)
		}
		payload := 0
		for _, s := range in.sections {
			w.Begin(s.stream, s.firstOffset)
			for _, a := range s.appends {
				for _, r := range a.records {
					before := w.Size()
					w.Add(r.Timestamp, r.Data)
					require.LessOrEqual(t, w.Size(), before+len(r.Data)+15+58)
					payload += len(r.Data)
				}
				if in.kind.judged() {
					w.EndAppend(a.a)
				}
			}
		}
		size := w.Size()
		object, _, err := w.Finish()
		require.NoError(t, err)
		require.LessOrEqual(t, len(object), size)
		require.Equal(t, len(object), cap(object), "the caller keeps no more than the object")
	})
}

func TestNothingIsAllocatedPerRecord(t *testing.T) {
	in := large()
	records := 0
	for _, s := range in.sections {
		records += len(s.records())
	}
	for name, codec := range codecs {
		w, d := NewWriter(in.kind, codec()), NewDecoder()
		object, f, err := in.write(w)
		require.NoError(t, err)
		writing := testing.AllocsPerRun(5, func() {
			w.Reset()
			for _, s := range in.sections {
				w.Begin(s.stream, s.firstOffset)
				for _, r := range s.appends[0].records {
					w.Add(r.Timestamp, r.Data)
				}
			}
			if _, _, err := w.Finish(); err != nil {
				panic(err)
			}
		})
		reading := testing.AllocsPerRun(5, func() {
			for i := range f.Sections {
				err := d.Records(sectionBytes(object, &f.Sections[i]), f.Sections[i].Stream, func(uint32, Record) error { return nil })
				if err != nil {
					panic(err)
				}
			}
		})
		require.Less(t, writing, float64(records)/100, name)
		require.Less(t, reading, float64(records)/100, name)
	}
}

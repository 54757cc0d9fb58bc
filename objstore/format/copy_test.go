package format

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever range of whatever sections is copied, the object holds those records, as if
// each had been added by itself, and its sections say the same of them.
func TestAddBlocksIsAdd(t *testing.T) {
	codecs := []Codec{Stored(), Zstd()}
	rapid.Check(t, func(t *rapid.T) {
		const stream = 7
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		copied, added := NewWriter(KindSettled, codec), NewWriter(KindSettled, codec)
		copied.Begin(stream, 100)
		added.Begin(stream, 100)
		d := NewDecoder()
		for range rapid.IntRange(1, 4).Draw(t, "sources") {
			source := NewWriter(KindSlot, codec)
			source.SetSlot("a", 1, 1, [16]byte{})
			source.Begin(stream, 0)
			n := rapid.IntRange(1, 60).Draw(t, "records")
			recs := make([]Record, n)
			for i := range recs {
				size := rapid.SampledFrom([]int{0, 10, 1000, 5000, 40_000, 70_000}).Draw(t, "size")
				recs[i] = Record{Timestamp: rapid.Int64Range(-5, 5).Draw(t, "timestamp"), Data: make([]byte, size)}
				for j := range recs[i].Data {
					recs[i].Data[j] = byte(i * j >> 3)
				}
				source.Add(recs[i].Timestamp, recs[i].Data)
			}
			source.EndAppend(Append{})
			object, f, err := source.Finish()
			require.NoError(t, err)
			first := rapid.IntRange(0, n-1).Draw(t, "first")
			end := rapid.IntRange(first+1, n).Draw(t, "end")
			off, length := f.Sections[0].Range(uint32(first), uint32(end-first))
			got, err := copied.AddBlocks(d, object[off:off+length], stream, uint32(first), uint32(end))
			require.NoError(t, err)
			require.Equal(t, uint32(end-first), got)
			for _, r := range recs[first:end] {
				added.Add(r.Timestamp, r.Data)
			}
		}
		a, fa, err := copied.Finish()
		require.NoError(t, err)
		b, fb, err := added.Finish()
		require.NoError(t, err)
		parsed, err := Parse(a)
		require.NoError(t, err)
		require.Equal(t, fa, parsed)
		x, y := fa.Sections[0], fb.Sections[0]
		require.Equal(t, y.Records, x.Records)
		require.Equal(t, y.Bytes, x.Bytes)
		require.Equal(t, y.FirstTimestamp, x.FirstTimestamp)
		require.Equal(t, y.MaxTimestamp, x.MaxTimestamp)
		require.Equal(t, allRecords(t, b, y), allRecords(t, a, x))
	})
}

type copiedRecord struct {
	ordinal   uint32
	timestamp int64
	data      string
}

func allRecords(t require.TestingT, object []byte, s Section) (out []copiedRecord) {
	err := NewDecoder().Records(object[s.Offset:s.Offset+s.Length], s.Stream, func(o uint32, r Record) error {
		out = append(out, copiedRecord{o, r.Timestamp, string(r.Data)})
		return nil
	})
	require.NoError(t, err)
	return out
}

// A flipped bit in a block that would be copied as it is never gets into an object.
func TestAddBlocksVerifies(t *testing.T) {
	source := NewWriter(KindSettled, Stored())
	source.Begin(1, 0)
	source.Add(1, make([]byte, copyFrom))
	object, f, err := source.Finish()
	require.NoError(t, err)
	off, length := f.Sections[0].Range(0, 1)
	for _, at := range []int64{0, 9, 17, 30, 41, BlockHeaderLength, length - 1} {
		blocks := append([]byte(nil), object[off:off+length]...)
		blocks[at] ^= 1
		w := NewWriter(KindSettled, Stored())
		w.Begin(1, 0)
		_, err := w.AddBlocks(NewDecoder(), blocks, 1, 0, 1)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	w := NewWriter(KindSettled, Stored())
	w.Begin(2, 0)
	_, err = w.AddBlocks(NewDecoder(), object[off:off+length], 2, 0, 1)
	require.ErrorIs(t, err, ErrCorrupt, "another stream's blocks")
}

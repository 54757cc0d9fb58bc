package format

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerifyBlocksTalliesARange(t *testing.T) {
	w := NewWriter(KindSettled, Zstd())
	w.Begin(7, 100)
	for i := range 5000 {
		w.Add(int64(i), fmt.Appendf(nil, "record %d of a stream", i))
	}
	object, f, err := w.Finish()
	require.NoError(t, err)
	s := f.Sections[0]
	require.Greater(t, len(s.Blocks), 1)
	body := object[s.Offset : s.Offset+s.Length]
	tally, err := VerifyBlocks(body, 7)
	require.NoError(t, err)
	require.Equal(t, uint32(5000), tally.End)
	require.Zero(t, tally.First)
	require.Equal(t, len(s.Blocks), tally.Blocks)
	require.Greater(t, tally.Raw, s.Length, "before compression")

	last := s.Blocks[len(s.Blocks)-1]
	tally, err = VerifyBlocks(object[last.Offset:last.Offset+last.Length], 7)
	require.NoError(t, err)
	require.Equal(t, Tally{First: last.Ordinal, End: 5000, Blocks: 1, Raw: tally.Raw}, tally)

	for what, bad := range map[string][]byte{
		"nothing":        nil,
		"cut":            body[:len(body)-1],
		"between blocks": body[1:],
		"a gap":          append(append([]byte(nil), body[:s.Blocks[0].Length]...), body[len(body)-int(last.Length):]...),
	} {
		if len(s.Blocks) == 2 && what == "a gap" {
			continue
		}
		_, err := VerifyBlocks(bad, 7)
		require.ErrorIs(t, err, ErrCorrupt, what)
	}
	_, err = VerifyBlocks(body, 8)
	require.ErrorIs(t, err, ErrCorrupt)
	flipped := append([]byte(nil), body...)
	flipped[len(flipped)/2] ^= 4
	_, err = VerifyBlocks(flipped, 7)
	require.ErrorIs(t, err, ErrCorrupt)
}

package catalog_test

import (
	"testing"

	"github.com/nova-store/nova/catalog"
)

// Neither a trim nor retention takes the watermark back, and neither writes anything where nothing moves.
func TestTheWatermarkOnlyAdvances(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.world.start("a"), s.world.createStream("s")
	s.slots(star, 6, id)
	s.absorbed(star, 6)
	view := func() catalog.StreamView {
		v, err := s.cat.ReadStream(s.Context(), id)
		s.NoError(err)
		return v
	}
	_, err := s.cat.TrimStream(s.Context(), id, 4)
	s.NoError(err)
	at := view()
	s.Equal(uint64(4), at.Mark.Watermark)
	s.Positive(at.Mark.WatermarkBytes)
	for _, lower := range []uint64{0, 3, 4} {
		mark, err := s.cat.TrimStream(s.Context(), id, lower)
		s.NoError(err)
		s.Equal(uint64(4), mark.Watermark)
		_, err = s.cat.AdvanceWatermark(s.Context(), at, lower, 0)
		s.NoError(err)
		s.Equal(at.Mark.Watermark, view().Mark.Watermark)
		s.Equal(at.Mark.WatermarkBytes, view().Mark.WatermarkBytes)
	}
	_, err = s.cat.TrimStream(s.Context(), id, 7)
	var beyond *catalog.BeyondEndError
	s.ErrorAs(err, &beyond)
	s.Equal(uint64(6), beyond.Next)
}

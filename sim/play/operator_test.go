package play

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/api/service"
)

// What an operator is told must fit together.
func TestOperatorsLooks(t *testing.T) {
	require.Empty(t, amissOf(&service.StreamInfo{FirstOffset: 3, NextOffset: 3}, 3))
	require.Contains(t, amissOf(&service.StreamInfo{FirstOffset: 4, NextOffset: 3}, 0), "first readable offset")
	require.Contains(t, amissOf(&service.StreamInfo{NextOffset: 3}, 4), "4 before")

	require.Empty(t, amissIn([]service.ChainInfo{{Trimmed: 1, Rewritten: 1, Checkpoint: 2, Head: 3}}))
	require.NotEmpty(t, amissIn([]service.ChainInfo{{Checkpoint: 2, Head: 1}}))
	require.NotEmpty(t, amissIn([]service.ChainInfo{{Trimmed: 2, Rewritten: 1, Checkpoint: 2, Head: 2}}))

	page := func(next uint64, offsets ...uint64) *service.ReadResult {
		p := &service.ReadResult{Next: next, First: 5, End: 9}
		for _, at := range offsets {
			p.Records = append(p.Records, service.Record{Offset: at})
		}
		return p
	}
	for _, good := range []*service.ReadResult{page(7, 5, 6), page(9), page(5)} {
		require.Empty(t, amissOn(good, service.Position{}))
	}
	for _, bad := range []*service.ReadResult{page(8, 5, 7), page(8, 5, 6), page(6, 4, 5), page(10, 8, 9), page(10)} {
		require.NotEmpty(t, amissOn(bad, service.Position{}))
	}
}

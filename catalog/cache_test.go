package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// However large the heads grow, after they were cached too, a cache stays within its bytes, and within its streams.
func TestCacheIsBounded(t *testing.T) {
	k := NewCache(50)
	for id := range StreamID(200) {
		k.put(id, &cachedStream{})
	}
	require.LessOrEqual(t, len(k.streams), 50)

	k = NewCache(1 << 20)
	producers := make([]ProducerState, MaxProducers)
	for i := range producers {
		producers[i].ID = strings.Repeat("p", 128)
	}
	for id := range StreamID(10_000) {
		s := &cachedStream{}
		k.put(id, s)
		s.head.Producers = producers
		k.put(id, s)
		sum := 0
		for _, s := range k.streams {
			sum += s.bytes
		}
		require.Equal(t, sum, k.bytes)
		require.LessOrEqual(t, k.bytes, cacheBytes)
		if id > 6000 {
			break
		}
	}
	require.NotEmpty(t, k.streams)
	k.purge()
	require.Zero(t, k.bytes)
	off := NewCache(0)
	off.put(1, &cachedStream{})
	require.Empty(t, off.streams)
}

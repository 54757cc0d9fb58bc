package star

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
)

// The window gives, from any offset on, a run without a gap of what was added and not pushed
// out, and never holds more than its bytes.
func TestWindowAgreesWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		w.init(int64(rapid.IntRange(0, 2000).Draw(t, "most")))
		type at struct {
			id     catalog.StreamID
			offset uint64
		}
		model := map[at]string{}
		next := map[catalog.StreamID]uint64{}
		newest := map[catalog.StreamID]int64{}
		for i := range rapid.IntRange(1, 60).Draw(t, "appends") {
			id := catalog.StreamID(rapid.IntRange(1, 3).Draw(t, "stream"))
			first := next[id] + uint64(rapid.IntRange(0, 1).Draw(t, "gap"))
			p := &pending{stream: id, stamp: int64(i + 1)}
			for j := range rapid.IntRange(1, 4).Draw(t, "records") {
				data := string(rune('a'+i%26)) + string(rune('0'+j))
				p.records = append(p.records, Record{Data: []byte(data)})
				model[at{id, first + uint64(j)}] = data
			}
			p.weight = 100 * int64(len(p.records))
			w.add(p, first)
			newest[id] = p.weight
			next[id] = first + uint64(len(p.records))
			require.LessOrEqual(t, w.bytes, max(w.most, 0))
			require.Equal(t, w.bytes == 0, len(w.streams) == 0)
		}
		for id := catalog.StreamID(1); id <= 3; id++ {
			for from := uint64(0); from <= next[id]; from++ {
				count := uint64(rapid.IntRange(1, 9).Draw(t, "count"))
				got := w.records(nil, id, from, count, 1000)
				require.LessOrEqual(t, uint64(len(got)), count)
				for i, r := range got {
					require.Equal(t, model[at{id, from + uint64(i)}], string(r.Data))
					require.NotZero(t, r.Timestamp)
				}
			}
		}
		if w.streams[1] != nil && newest[1] <= w.most {
			require.NotEmpty(t, w.records(nil, 1, next[1]-1, 1, 1000), "the newest is kept longest")
		}
	})
}

func TestFifoKeepsNothingBehind(t *testing.T) {
	var q fifo[*int]
	for i := range 10_000 {
		v := i
		q.push(&v)
		if i >= 10 {
			require.Equal(t, i-10, *q.pop())
		}
	}
	require.Equal(t, 10, q.len())
	require.Less(t, len(q.items), 200)
}

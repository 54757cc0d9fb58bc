package soak

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFactsAreAMap: whatever the runs and their order, the first statement about each offset stays, every later one that
// differs is counted, and the runs are in order, apart, and joined.
func TestFactsAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type record struct {
			client uint32
			seq    uint64
		}
		var f facts
		model := map[uint64]record{}
		for range rapid.IntRange(1, 30).Draw(t, "runs") {
			r := run{
				off: rapid.Uint64Range(0, 40).Draw(t, "off"), n: rapid.Uint64Range(1, 12).Draw(t, "n"),
				client: rapid.Uint32Range(1, 2).Draw(t, "client"),
			}
			r.seq = r.off + rapid.Uint64Range(0, 2).Draw(t, "shift")
			want := uint64(0)
			for k := range r.n {
				said := record{r.client, r.seq + k}
				if known, ok := model[r.off+k]; !ok {
					model[r.off+k] = said
				} else if known != said {
					want++
				}
			}
			if got := f.add(r); got != want {
				t.Fatalf("%+v contradicts %d offsets, not %d", r, want, got)
			}
		}
		n := 0
		for i, r := range f.runs {
			for k := range r.n {
				if (model[r.off+k] != record{r.client, r.seq + k}) {
					t.Fatalf("offset %d: %+v", r.off+k, r)
				}
				n++
			}
			if i > 0 {
				before := f.runs[i-1]
				if before.end() > r.off || before.end() == r.off && before.agrees(r) {
					t.Fatalf("%+v and %+v", before, r)
				}
			}
		}
		if n != len(model) {
			t.Fatalf("%d offsets known, not %d", n, len(model))
		}
	})
}

func TestSpansJoin(t *testing.T) {
	var s spans
	s.add(1, 0, 4)
	s.add(2, 0, 1)
	s.add(1, 4, 2)
	s.add(1, 8, 1)
	require.Equal(t, []span{{1, 0, 6}, {2, 0, 1}, {1, 8, 1}}, s.all)
	require.Equal(t, uint64(3), s.overlap(run{client: 1, seq: 4, n: 5}))
	require.Zero(t, s.overlap(run{client: 3, seq: 0, n: 5}))
}

// Whatever is wrong, the run did not hold: a process that ended by itself, too, also if nothing was lost by it.
func TestHeld(t *testing.T) {
	good := Report{Completed: true, Drained: true}
	require.True(t, good.Held())
	for _, spoil := range []func(*Report){
		func(r *Report) { r.Exits = 1 }, func(r *Report) { r.Crashes = 1 }, func(r *Report) { r.Leaked = 1 },
		func(r *Report) { r.ListedBytes = 1 }, func(r *Report) { r.Drained = false },
	} {
		bad := good
		spoil(&bad)
		require.False(t, bad.Held())
	}
}

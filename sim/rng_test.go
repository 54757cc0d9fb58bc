package sim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/sim"
)

func TestRandRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := sim.NewRand(rapid.Uint64().Draw(t, "seed"), rapid.String().Draw(t, "label"))
		n := rapid.IntRange(1, 1<<40).Draw(t, "n")
		lo := time.Duration(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "lo"))
		hi := lo + time.Duration(rapid.Int64Range(-10, 1<<40).Draw(t, "width"))
		for range 20 {
			require.Less(t, r.N(n), n)
			require.GreaterOrEqual(t, r.N(n), 0)
			d := r.Between(lo, hi)
			require.GreaterOrEqual(t, d, lo)
			require.LessOrEqual(t, d, max(lo, hi))
		}
		again := *r
		require.False(t, r.Chance(0))
		require.True(t, r.Chance(1))
		require.Equal(t, again, *r, "certainty draws nothing")
	})
}

func TestRandIsEven(t *testing.T) {
	r := sim.NewRand(1, "even")
	var count [10]int
	heads := 0
	for range 100_000 {
		count[r.N(10)]++
		if r.Chance(0.25) {
			heads++
		}
	}
	for _, n := range count {
		require.InDelta(t, 10_000, n, 500)
	}
	require.InDelta(t, 25_000, heads, 700)
}

func TestMarks(t *testing.T) {
	w := newWorld(t, sim.Config{})
	w.Mark("b")
	w.Mark("a")
	w.Mark("b")
	sum := sim.Marks{"b": 1}
	sum.Add(w.Marks())
	require.Equal(t, []sim.MarkCount{{Name: "a", Count: 1}, {Name: "b", Count: 3}}, sum.List())
}

package auditor

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTierOf(t *testing.T) {
	const m = 1 << 20
	for _, c := range []struct {
		weight uint64
		tier   int
	}{{0, 0}, {m/512 - 1, 0}, {m / 512, 1}, {m/64 - 1, 1}, {m / 64, 2}, {m/8 - 1, 2}, {m / 8, 3}, {m - 1, 3}, {m, 4}, {64 * m, 4}} {
		require.Equal(t, c.tier, tierOf(c.weight, m), c.weight)
	}
	require.Equal(t, 4, tierOf(1, 1))
}

// stretchOf builds a stretch: o is an era's own span, f another chain's, s a settled one.
func stretchOf(kinds string, weight uint64) []piled {
	var out []piled
	for _, k := range kinds {
		out = append(out, piled{weight: weight, fresh: k != 's', own: k == 'o'})
	}
	return out
}

func TestWindowsFireAtExactlyEight(t *testing.T) {
	const m = 1 << 20
	for _, c := range []struct {
		what, kinds string
		weight      uint64
		want        []window
	}{
		{"alone", "o", 64 << 10, []window{{0, 1}}},
		{"seven are left apart", "sssssso", 64 << 10, []window{{6, 7}}},
		{"eight are one", "ssssssso", 64 << 10, []window{{0, 8}}},
		{"on both sides", "sssossss", 64 << 10, []window{{0, 8}}},
		{"own ones side by side are written together and count as one", "ssssssooo", 64 << 10, []window{{6, 9}}},
		{"and with them eight", "sssssssooo", 64 << 10, []window{{0, 10}}},
		{"another chain's goes along", "ofo", 64 << 10, []window{{0, 3}}},
		{"parted by a settled one", "oso", 64 << 10, []window{{0, 1}, {2, 3}}},
		{"parted, and one by the tier", "osososososososo", 64 << 10, []window{{0, 15}}},
		{"too light together to climb", "ssssssso", 2, []window{{7, 8}}},
		{"what is large stays", "ssssssso", m, []window{{7, 8}}},
		{"a large one of the era's own is written as it is", "o", 5 * m, []window{{0, 1}}},
	} {
		require.Equal(t, c.want, windows(stretchOf(c.kinds, c.weight), m), c.what)
	}
	// A cascade is written once: sixteen times 64 KiB.
	pile := append([]piled{{weight: 512 << 10}}, stretchOf("ssssssso", 64<<10)...)
	require.Equal(t, []window{{0, 9}}, windows(pile, m))
	// A heavier neighbour is not taken where that would not lift it.
	pile = append([]piled{{weight: 300 << 10}}, stretchOf("ssssssso", 16<<10)...)
	require.Equal(t, []window{{1, 9}}, windows(pile, m))
}

// naive finds an own span's window by looking at all of them.
func naive(stretch []piled, done, own int, least uint64) window {
	best, tier := window{own, own + 1}, 0
	for t := 0; t <= tiers; t++ {
		for from := done; from <= own; from++ {
			for to := own + 1; to <= len(stretch); to++ {
				ok := true
				for _, p := range stretch[from:to] {
					ok = ok && (p.fresh || tierOf(p.weight, least) < t)
				}
				if !ok {
					continue
				}
				pieces, settled, sum := 0, false, uint64(0)
				for i := from; i < to; i++ {
					sum += stretch[i].weight
					settled = settled || !stretch[i].fresh
					if i == from || !stretch[i].fresh || !stretch[i-1].fresh {
						pieces++
					}
				}
				fires := t == 0 || settled && pieces >= tierWidth && tierOf(sum, least) >= t
				if w := (window{from, to}); fires && (t > tier || t == tier && to-from >= best.to-best.from) {
					best, tier = w, t
				}
			}
		}
	}
	return best
}

func TestWindowsAgreeWithANaiveSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const least = 4096
		stretch := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) piled {
			p := piled{weight: rapid.SampledFrom([]uint64{1, 7, 8, 50, 64, 100, 511, 512, 600, 4095}).Draw(t, "weight")}
			p.fresh = rapid.IntRange(0, 3).Draw(t, "fresh") == 0
			p.own = p.fresh && rapid.Bool().Draw(t, "own")
			return p
		}), 1, 24).Draw(t, "stretch")
		var want []window
		done := 0
		for i, p := range stretch {
			if p.own && i >= done {
				w := naive(stretch, done, i, least)
				want = append(want, w)
				done = w.to
			}
		}
		require.Equal(t, want, windows(stretch, least))
	})
}

// leaf is what one append brought, and how often it was written.
type leaf struct {
	weight uint64
	writes int
}

// pileUp plays a stream: eras of one or several chains that settle what is theirs by the windows, and trims.
type pileUp struct {
	spans []piled
	in    [][]leaf // of each span
}

func (p *pileUp) era(least uint64, own func(i int) bool) {
	for i := range p.spans {
		p.spans[i].own = p.spans[i].fresh && own(i)
	}
	ws := windows(p.spans, least)
	for _, w := range slices.Backward(ws) {
		var sum uint64
		var leaves []leaf
		for i := w.from; i < w.to; i++ {
			sum += p.spans[i].weight
			for _, l := range p.in[i] {
				l.writes++
				leaves = append(leaves, l)
			}
		}
		p.spans = slices.Replace(p.spans, w.from, w.to, piled{weight: sum})
		p.in = slices.Replace(p.in, w.from, w.to, leaves)
	}
}

func (p *pileUp) append(weight uint64) {
	p.spans = append(p.spans, piled{weight: weight, fresh: true})
	p.in = append(p.in, []leaf{{weight: weight}})
}

// written is how many bytes were written for each that was appended, and how often any one was at most.
func (p *pileUp) written() (ratio float64, most int) {
	appended, written := uint64(0), uint64(0)
	for _, ls := range p.in {
		for _, l := range ls {
			appended += l.weight
			written += l.weight * uint64(l.writes)
			most = max(most, l.writes)
		}
	}
	return float64(written) / float64(appended), most
}

// Whatever the sizes, the order of chains and the trims: a byte is written once, and once more for each tier
// that it climbs; and few spans stay beside one another.
func TestTiersBoundTheBytesWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const least = 1 << 20
		var p pileUp
		sizes := rapid.SampledFrom([][]uint64{{64 << 10}, {1 << 10}, {100, 5 << 10}, {3 << 20}, {10, 2 << 10, 17 << 10, 130 << 10, 900 << 10}}).Draw(t, "sizes")
		for range rapid.IntRange(1, 300).Draw(t, "eras") {
			for range rapid.IntRange(1, 3).Draw(t, "appends") {
				p.append(rapid.SampledFrom(sizes).Draw(t, "size"))
			}
			// Another chain's era comes later, or never.
			chains := rapid.IntRange(1, 3).Draw(t, "chains")
			p.era(least, func(i int) bool { return i%chains == 0 })
			if rapid.IntRange(0, 20).Draw(t, "trim") == 0 {
				n := rapid.IntRange(0, len(p.spans)).Draw(t, "spans")
				p.spans, p.in = p.spans[n:], p.in[n:]
			}
		}
		p.era(least, func(int) bool { return true })
		if len(p.spans) == 0 {
			return
		}
		ratio, most := p.written()
		require.LessOrEqual(t, most, 1+tiers)
		require.LessOrEqual(t, ratio, float64(1+tiers))
		for _, s := range p.spans {
			require.False(t, s.fresh)
		}
	})
}

func TestTiersOfRangesOfOneSize(t *testing.T) {
	const least = 1 << 20
	play := func(size uint64, eras int) (*pileUp, float64) {
		var p pileUp
		for range eras {
			p.append(size)
			p.era(least, func(int) bool { return true })
		}
		ratio, _ := p.written()
		return &p, ratio
	}
	p, ratio := play(64<<10, 1024)
	require.Equal(t, 2.375, ratio, "1 + 7/16 + 15/16")
	require.Len(t, p.spans, 64, "of a megabyte each")
	_, ratio = play(64<<10-100, 22*50)
	require.InDelta(t, 57.0/22, ratio, 1e-9, "sixteen are just short of a megabyte: the cycle takes twenty-two")
	_, ratio = play(2<<20, 100)
	require.Equal(t, 1.0, ratio, "large ranges are written once")
	for _, size := range []uint64{1, 100, 1 << 10, 10 << 10, 100 << 10, 500 << 10} {
		p, ratio := play(size, 3000)
		require.LessOrEqual(t, ratio, 4.5, size)
		small := 0
		for _, s := range p.spans {
			if s.weight < least {
				small++
			}
		}
		require.LessOrEqual(t, small, 3*tierWidth+least/512/int(min(size, least/512)), size)
	}
}

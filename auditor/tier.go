package auditor

import "github.com/nova-store/nova/catalog"

// Tail-fill decides which small settled spans a new range is written together with.
//
// A span's weight is what its records take at least, before compression: payload and two bytes a
// record. It is the same in whatever object the records lie, and adds up as spans are joined. By their
// weight spans are of five tiers: with M = --settle-object-min, tier 0 is below M/512, 1 below M/64, 2
// below M/8, 3 below M, and 4 is settled for good: tail-fill leaves it alone.
//
// # The rule
//
// A new range is written with the spans beside it as one of tier t, where the spans of tiers below t that adjoin it
// without a gap, it included, are tierWidth or more and together of tier t or above; with the largest such t, so that
// a cascade writes once. Otherwise the range is written alone, and packed with those of other streams.
//
// # The bound
//
// Every settled byte that is written again comes out at least one tier above the one it was in, since tiers
// are by weight, which is exact. There are four tiers to climb. So it is written once as it leaves
// its slot and at most four times after that: bytes rewritten over bytes appended are at most 1 + tiers = 5,
// whatever the sizes, and however often chains alternate on a stream.
//
// Ranges of one size do better, for a tier is climbed by eight at once and the newest of the eight is
// written for the first time. With M = 1 MiB and 64 KiB an era: eight are merged into 512 KiB (7/16 of the
// megabyte so far is written twice), and the sixteenth takes along those 512 KiB and its seven siblings: 1 + 7/16 +
// 15/16 = 2.375. Ranges of M and more are written once.
//
// gc's share comes on top: a revision writes at most as many bytes as are dead in the object
// (--gc-min-dead-ratio 0.5), and every dead byte died by a move that is counted above, or by a kill. Streams that fill alike
// die together, object by object, and leave gc nothing.
//
// How many spans stay beside one another is bounded as well: of each tier fewer than tierWidth can
// adjoin, but for tier 0, whose spans have no least weight (as many as make M/512), and a
// larger one may lock fewer than tierWidth smaller ones in on its far side.
const (
	tierWidth = 8
	tiers     = 4 // to climb
)

// weight is what tiers go by.
func weight(s *catalog.Span) uint64 { return s.Bytes + 2*s.Count }

// tierOf returns the tier of a weight; least is M.
func tierOf(weight, least uint64) int {
	t := tiers
	for t > 0 && weight < least {
		t--
		least /= tierWidth
	}
	return t
}

// piled is a span of a stretch without a gap, as the rule sees it.
type piled struct {
	weight uint64
	fresh  bool // never settled: a slot or bundle holds it
	own    bool // of the era's batch markers: it must move
}

// window is a part of a stretch, half open.
type window struct{ from, to int }

// windows returns which parts of a stretch are to be written, each as one span: every own span is
// in one, and they do not overlap.
func windows(stretch []piled, least uint64) []window {
	var out []window
	done := 0
	for i := 0; i < len(stretch); i++ {
		if !stretch[i].own || i < done {
			continue
		}
		// What was never settled is written for the first time by someone: it goes along.
		w := window{i, i + 1}.grow(stretch, done, 0, least)
		for t := tiers; t > 0; t-- {
			if c := w.grow(stretch, done, t, least); c.fires(stretch, t, least) {
				w = c
				break
			}
		}
		out = append(out, w)
		done = w.to
	}
	return out
}

// grow widens a window by the fresh spans that adjoin it, and by the settled ones of tiers below t.
func (w window) grow(stretch []piled, from, t int, least uint64) window {
	takes := func(p *piled) bool { return p.fresh || tierOf(p.weight, least) < t }
	for w.from > from && takes(&stretch[w.from-1]) {
		w.from--
	}
	for w.to < len(stretch) && takes(&stretch[w.to]) {
		w.to++
	}
	return w
}

// fires tells whether the window's spans are many enough, and heavy enough together, to be
// one span of tier t. Fresh ones side by side count as one.
func (w window) fires(stretch []piled, t int, least uint64) bool {
	n, settled, sum, before := 0, 0, uint64(0), false
	for _, p := range stretch[w.from:w.to] {
		sum += p.weight
		if !p.fresh {
			settled++
		}
		if !p.fresh || !before {
			n++
		}
		before = p.fresh
	}
	return settled > 0 && n >= tierWidth && tierOf(sum, least) >= t
}

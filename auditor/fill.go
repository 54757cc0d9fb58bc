package auditor

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/nova-store/nova/catalog"
)

// Tail-fill looks at the spans beside an era's own ranges of a stream. A span may be taken
//
//   - of any settled object, if it is below --settle-object-min: the swap takes the object's ref and
//     arms its reap-check in the same commit;
//   - of a slot or bundle of another chain, if it lies before the last of the era's own spans and is that small: else
//     two stars that take turns on a stream would leave a span an absorb. Its own chain's batch marker stands
//     on, and watches the slot until that chain's era, which finds nothing held there, completes it; so no frontier
//     moves by it, and no slot is trimmed before its own chain says so. Should both eras move the span at once, one swap
//     finds it elsewhere and drops it.
//
// Not taken are spans wholly below the watermark, which retention kills, those behind a gap, and what this
// chain's other batch markers hold: slots that are not ripe, or damaged.
const (
	// nearMost is how many spans beside an era's own are looked at, on either side.
	nearMost = 64
	// nearPages bounds the pages of a look.
	nearPages = 16
	// nearReach is how far ahead of the era's own ranges the look begins: this many times
	// the records that --settle-object-min holds, as large as the era's.
	nearReach = 2
)

// fill returns what is written of a stream: the era's own spans, and with them those beside them
// that the tiers say.
func (e *era) fill(ctx context.Context, own piece, watermark uint64) (piece, error) {
	near, err := e.near(ctx, own, watermark)
	if err != nil {
		return piece{}, err
	}
	if len(near) == 0 {
		return own, nil
	}
	all := append(near, own.spans...)
	slices.SortStableFunc(all, func(x, y portion) int { return cmp.Compare(x.Span.First, y.Span.First) })
	// A look later than that at the own ones may show what took their place.
	var sound []portion
	for _, p := range all {
		last := len(sound) - 1
		switch overlaps := last >= 0 && p.Span.First <= sound[last].Span.Last(); {
		case !overlaps:
			sound = append(sound, p)
		case p.own && !sound[last].own:
			sound[last] = p
		}
	}
	return e.choose(own.stream, sound), nil
}

// near reads the spans beside a stream's own ones that may be taken.
func (e *era) near(ctx context.Context, own piece, watermark uint64) ([]portion, error) {
	l := look{first: own.spans[0].Span.First, last: own.spans[len(own.spans)-1].Span.Last(), watermark: watermark,
		mine: make(map[uint64]bool, len(own.spans))}
	records, heavy := uint64(0), uint64(0)
	for i := range own.spans {
		records += own.spans[i].Span.Count
		heavy += weight(&own.spans[i].Span)
		l.mine[own.spans[i].Span.Last()] = true
	}
	for l.reach = nearReach*(uint64(e.a.opts.SettleObjectMin)/max(heavy/records, 1)) + 1; ; l.reach /= 16 {
		near, arrived, err := e.lookFrom(ctx, own.stream, l)
		if err != nil {
			return nil, err
		}
		if arrived || l.reach == 0 {
			return bound(near, l.first, len(own.spans), e.nearBytes), nil
		}
	}
}

// look is where the spans beside an era's own are looked for.
type look struct {
	first, last uint64          // offsets of the era's own
	mine        map[uint64]bool // their last offsets
	watermark   uint64
	reach       uint64 // offsets ahead of first and behind last
}

// lookFrom reads spans from reach ahead of the era's own on. arrived is false where so many are there that
// the look did not come to the era's own: a shorter one does.
func (e *era) lookFrom(ctx context.Context, id catalog.StreamID, l look) (near []portion, arrived bool, err error) {
	from := max(l.watermark, l.first-min(l.first, l.reach))
	behind := 0
	for page := 0; page < nearPages; page++ {
		spans, more, err := e.a.cat.Spans(ctx, id, from, min(len(l.mine)+nearMost, spanPage))
		if errors.Is(err, catalog.ErrCorruptValue) {
			return near, true, nil // what lies behind it is left where it is
		}
		if err != nil {
			return nil, false, err
		}
		for _, sp := range spans {
			from = sp.Span.Last() + 1
			_, _, transit := catalog.TransitSlot(sp.Span.Object)
			if sp.Span.First > l.last {
				if behind++; behind > nearMost || transit {
					return near, true, nil
				}
			}
			if !l.mine[sp.Span.Last()] && e.takes(&sp.Span) {
				near = append(near, portion{SpanAt: sp})
			}
		}
		if !more || len(spans) == 0 || from > l.last+1+l.reach {
			return near, true, nil
		}
	}
	return near, from > l.first, nil
}

// bound keeps of the spans ahead of the era's own the nearest, and no more bytes than the cache holds of
// what is beside: where it is too much, other chains' slots are left to their own eras, then what is furthest ahead.
func bound(near []portion, first uint64, own int, most int64) []portion {
	ahead := 0
	for ahead < len(near) && near[ahead].Span.First < first {
		ahead++
	}
	near = near[max(ahead-nearMost, 0):]
	bytes := int64(0)
	for i := range near {
		bytes += near[i].Span.Length
	}
	if bytes > most || len(near) > own+2*nearMost {
		near = slices.DeleteFunc(near, func(p portion) bool {
			fresh := !catalog.IsSettled(p.Span.Object)
			if fresh {
				bytes -= p.Span.Length
			}
			return fresh
		})
	}
	for ; len(near) > 0 && (bytes > most || len(near) > own+2*nearMost); near = near[1:] {
		bytes -= near[0].Span.Length
	}
	return near
}

// takes tells whether a span from the watermark on, which is not the era's own, may be taken.
func (e *era) takes(s *catalog.Span) bool {
	chain, _, transit := catalog.TransitSlot(s.Object)
	return weight(s) < uint64(e.a.opts.SettleObjectMin) && (!transit || chain != e.chain)
}

// choose applies the tiers to spans in the order of their offsets.
func (r *rewriter) choose(id catalog.StreamID, spans []portion) piece {
	out := piece{stream: id}
	least := uint64(r.a.opts.SettleObjectMin)
	for len(spans) > 0 {
		n := 1
		for n < len(spans) && spans[n].Span.First == spans[n-1].Span.Last()+1 {
			n++
		}
		pile := make([]piled, n)
		for i := range pile {
			s := &spans[i]
			pile[i] = piled{weight: weight(&s.Span), fresh: !catalog.IsSettled(s.Span.Object), own: s.own}
		}
		for _, w := range windows(pile, least) {
			for _, s := range spans[w.from:w.to] {
				out.add(s)
			}
		}
		spans = spans[n:]
	}
	out.lend()
	return out
}

// lend gives each span that is not the era's own the slot of the nearest own one before it, or else
// after it: where the work is parted by slots it stays with its neighbour.
func (p *piece) lend() {
	slot, known := uint64(0), false
	for i := range p.spans {
		s := &p.spans[i]
		switch {
		case s.own:
			if !known {
				for k := range i {
					p.spans[k].slot = s.slot
				}
			}
			slot, known = s.slot, true
		case known:
			s.slot = slot
		}
	}
}

// sound returns the piece without those spans beside the era's own whose bytes can't be had: one that is
// damaged or moved away meanwhile must not hold the era's own back. The tiers are then asked again, as if a
// gap were there.
func (r *rewriter) sound(ctx context.Context, p piece) (piece, error) {
	bad := -1
	for i, s := range p.spans {
		if s.own {
			continue
		}
		_, _, err := r.cache.blocks(ctx, s)
		var lost *sourceError
		switch {
		case err == nil:
			continue
		case !errors.As(err, &lost) || !isCorrupt(lost.err) && !lasting(lost.err):
			return p, err
		}
		bad = i
		break
	}
	if bad < 0 {
		return p, nil
	}
	r.j.emit(Event{Action: NeighbourLeft, Object: p.spans[bad].Span.Object})
	return r.sound(ctx, r.choose(p.stream, slices.Delete(slices.Clone(p.spans), bad, bad+1)))
}

package auditor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nova-store/nova/catalog"
)

// plan is what a round does.
type plan struct {
	kill []doomed
	// chunks are done one after the other. The slots of a chunk fit into the fetch
	// cache together, so that each is read once.
	chunks [][]unit
	// unreadable are the slots of streams of which a span record does not decode.
	unreadable map[uint64]error
}

// doomed are spans of one stream that are killed unread.
type doomed struct {
	spans     []catalog.SpanAt
	all       bool // the stream is tearing or gone
	watermark uint64
}

// piece is what one stream has to move: its portions, in the order of their offsets.
type piece struct {
	stream catalog.StreamID
	spans  []portion
	bytes  int64 // of their block ranges
}

// add appends a portion.
func (p *piece) add(s portion) {
	p.spans = append(p.spans, s)
	p.bytes += s.Span.Length
}

// unit is work for one task, and becomes one object or several: a large piece, or
// small ones that are packed together.
type unit []piece

// slots returns the slots of the era's chain whose records the unit moves.
func (u unit) slots() []uint64 {
	var out []uint64
	for _, p := range u {
		for _, s := range p.spans {
			if s.own {
				out = append(out, s.slot)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (u unit) bytes() (n int64) {
	for _, p := range u {
		n += p.bytes
	}
	return n
}

// extents decides where the portions of the units are read.
func extents(units []unit) []extent {
	var all []*portion
	for _, u := range units {
		for i := range u {
			for k := range u[i].spans {
				all = append(all, &u[i].spans[k])
			}
		}
	}
	return assign(all)
}

// streamItems is the inventory of one stream over all markers of a round.
type streamItems struct {
	id        catalog.StreamID
	items     []catalog.SlotItem
	all       bool // every span of it is to be killed
	watermark uint64
}

// doomed tells whether a span is not worth reading.
func (s *streamItems) doomed(sp catalog.SpanAt) bool { return s.all || sp.Span.Last() < s.watermark }

// plan looks up what is still held by the slots of the markers, and shares it out.
func (e *era) plan(ctx context.Context, ms []catalog.BatchAt) (plan, error) {
	defer e.j.step("plan")()
	streams := inventory(ms)
	if err := e.readStreams(ctx, streams); err != nil {
		return plan{}, err
	}
	p := plan{unreadable: make(map[uint64]error)}
	var pieces []piece
	for _, s := range streams {
		spans, err := e.held(ctx, s)
		if errors.Is(err, catalog.ErrCorruptValue) {
			// One span record that does not decode costs its stream's slots, and not the whole era.
			for _, it := range s.items {
				p.unreadable[it.Slot] = err
			}
			continue
		}
		if err != nil {
			return plan{}, err
		}
		k := doomed{all: s.all, watermark: s.watermark}
		keep := piece{stream: s.id}
		for _, sp := range spans {
			if s.doomed(sp.SpanAt) {
				k.spans = append(k.spans, sp.SpanAt)
				continue
			}
			keep.add(sp)
		}
		if len(k.spans) > 0 {
			p.kill = append(p.kill, k)
		}
		if len(keep.spans) > 0 {
			if keep, err = e.fill(ctx, keep, s.watermark); err != nil {
				return plan{}, err
			}
			pieces = append(pieces, keep)
		}
	}
	for _, c := range chunk(pieces, e.slotBytes) {
		for _, part := range apart(c, e.nearBytes) {
			p.chunks = append(p.chunks, share(part, e.a.opts.SettleObjectMin, e.a.opts.SettleObjectMax))
		}
	}
	return p, nil
}

// inventory gathers the items of the markers by stream, streams in the order in
// which they appear, a stream's items in the order of their offsets.
func inventory(ms []catalog.BatchAt) []*streamItems {
	var out []*streamItems
	by := make(map[catalog.StreamID]*streamItems)
	for _, m := range ms {
		for _, it := range m.Batch.Inventory {
			s := by[it.Stream]
			if s == nil {
				s = &streamItems{id: it.Stream}
				by[it.Stream] = s
				out = append(out, s)
			}
			s.items = append(s.items, it)
		}
	}
	for _, s := range out {
		slices.SortFunc(s.items, func(x, y catalog.SlotItem) int { return cmp.Compare(x.First, y.First) })
	}
	return out
}

// readStreams finds out which streams are tearing or gone, and where the watermarks are.
func (r *rewriter) readStreams(ctx context.Context, streams []*streamItems) error {
	store := r.a.cat.Store()
	most := max(store.Limits().MaxOps/2, 1)
	for part := range slices.Chunk(streams, most) {
		keys := make([]string, 0, 2*len(part))
		for _, s := range part {
			keys = append(keys, catalog.StreamKey(s.id), catalog.MarkKey(s.id))
		}
		recs, err := store.Get(ctx, keys...)
		if err != nil {
			return fmt.Errorf("reading streams: %w", err)
		}
		for i, s := range part {
			stream, mark := recs[2*i], recs[2*i+1]
			if !stream.Exists() || !mark.Exists() {
				s.all = true // its teardown is over: the three records went together
				continue
			}
			// One record that does not decode must not hold back a whole era: its stream's spans are moved like any other's.
			v, e1 := catalog.DecodeStream(stream.Value)
			w, e2 := catalog.DecodeMark(mark.Value)
			if err := errors.Join(e1, e2); err != nil {
				r.a.log.Warn("stream's records are unreadable, its spans are kept", "stream", s.id.String(), "err", err)
			}
			s.all = e1 == nil && v.State == catalog.StreamTearing
			if e2 == nil {
				s.watermark = w.Watermark
			}
		}
	}
	return nil
}

// spanPage bounds the spans of one read.
const spanPage = 256

// held returns the stream's spans that lie in the very slots of its items, or in those slots' bundles, in
// order of offsets.
func (e *era) held(ctx context.Context, s *streamItems) ([]portion, error) {
	var out []portion
	for i := 0; i < len(s.items); {
		// Items whose offsets follow one another are one walk.
		from, end, n := s.items[i].First, s.items[i].First, i
		for ; n < len(s.items) && s.items[n].First <= end; n++ {
			end = max(end, s.items[n].First+s.items[n].Count)
		}
		mine := make(map[uint64]bool, n-i)
		for _, it := range s.items[i:n] {
			mine[it.Slot] = true
		}
		for more := true; more && from < end; {
			var spans []catalog.SpanAt
			var err error
			spans, more, err = e.a.cat.Spans(ctx, s.id, from, min(spanPage, 2*(n-i)+1))
			if err != nil {
				return nil, err
			}
			for _, sp := range spans {
				if sp.Span.First >= end {
					more = false
					break
				}
				if chain, slot, ok := catalog.TransitSlot(sp.Span.Object); ok && chain == e.chain && mine[slot] {
					out = append(out, portion{SpanAt: sp, own: true, slot: slot})
				}
				from = sp.Span.Last() + 1
			}
			more = more && len(spans) > 0
		}
		i = n
	}
	return out, nil
}

// What a slot's footer takes for a section and for itself, about: the catalog tells
// only how long spans are.
const (
	slotFraming = 512
	spanFraming = 160
)

// chunk parts pieces by the era's slots, lowest first, so that the slots of a chunk have most bytes
// together, as far as their spans tell; a slot larger than that is a chunk of its own. A piece that is parted
// becomes several spans, whatever the tiers said.
func chunk(pieces []piece, most int64) [][]piece {
	sizes := make(map[uint64]int64)
	var order []uint64
	for _, p := range pieces {
		for _, s := range p.spans {
			if _, ok := sizes[s.slot]; !ok {
				order = append(order, s.slot)
				sizes[s.slot] = slotFraming
			}
			if s.own {
				sizes[s.slot] += s.Span.Length + spanFraming
			}
		}
	}
	slices.Sort(order)
	var bounds []uint64 // the first slot of each chunk but the first
	sum := int64(0)
	for _, slot := range order {
		if sum > 0 && sum+sizes[slot] > most {
			bounds = append(bounds, slot)
			sum = 0
		}
		sum += sizes[slot]
	}
	if len(bounds) == 0 {
		if len(pieces) == 0 {
			return nil
		}
		return [][]piece{pieces}
	}
	out := make([][]piece, len(bounds)+1)
	for _, p := range pieces {
		for _, s := range p.spans {
			at, exact := slices.BinarySearch(bounds, s.slot)
			if exact {
				at++
			}
			c := out[at]
			if len(c) == 0 || c[len(c)-1].stream != p.stream {
				c = append(c, piece{stream: p.stream})
			}
			c[len(c)-1].add(s)
			out[at] = c
		}
	}
	return out
}

// apart parts the pieces of a chunk so that what lies beside the era's own spans has most bytes in
// each part; a piece that has more by itself is a part of its own. The slots stay in the cache meanwhile.
func apart(pieces []piece, most int64) [][]piece {
	var out [][]piece
	from, sum := 0, int64(0)
	for i, p := range pieces {
		n := int64(0)
		for _, s := range p.spans {
			if !s.own {
				n += s.Span.Length
			}
		}
		if sum > 0 && sum+n > most {
			out = append(out, pieces[from:i])
			from, sum = i, 0
		}
		sum += n
	}
	return append(out, pieces[from:])
}

// share makes units of the pieces of a chunk: a piece of at least least bytes is a
// unit of its own, the others are packed together up to most bytes.
func share(pieces []piece, least, most int64) []unit {
	var out []unit
	var pack unit
	packed := int64(0)
	for _, p := range pieces {
		if p.bytes >= least {
			out = append(out, unit{p})
			continue
		}
		if len(pack) > 0 && packed+p.bytes > most {
			out = append(out, pack)
			pack, packed = nil, 0
		}
		pack = append(pack, p)
		packed += p.bytes
	}
	if len(pack) > 0 {
		out = append(out, pack)
	}
	return out
}

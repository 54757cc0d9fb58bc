package auditor

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/objstore/format"
)

// portion is a span that is to be copied, and where its bytes are read.
type portion struct {
	catalog.SpanAt
	// own: a slot of the era's chain holds it, or that slot's bundle, and slot is which;
	// of the others slot is that of the nearest own one beside it.
	own  bool
	slot uint64
	from extent
}

// extent is a stretch of an object that one request reads: a slot as a whole, since an era wants
// most of it; of a bundle or a settled object the blocks that are wanted, and those close by.
type extent struct {
	object      string
	off, length int64 // length < 0: the whole object
}

func whole(object string) extent { return extent{object: object, length: -1} }

// fetcher reads extents, each once as long as the cache holds it, for several tasks at once.
type fetcher struct {
	a    *Auditor
	most int64 // bytes held

	mu     sync.Mutex
	by     map[extent]*fetched
	recent *list.List // of *fetched that were read; used longest ago first
	bytes  int64
}

// fetched is one extent: being read, or read.
type fetched struct {
	extent extent
	ready  *clock.Event
	body   []byte
	err    error
	at     *list.Element // nil: being read
}

func newFetcher(a *Auditor, most int64) *fetcher {
	return &fetcher{a: a, most: most, by: make(map[extent]*fetched), recent: list.New()}
}

// get returns an extent's bytes; those of a whole object are verified. An error is not
// remembered but for damage, which several reads have agreed on.
func (f *fetcher) get(ctx context.Context, e extent) ([]byte, error) {
	f.mu.Lock()
	x, ok := f.by[e]
	if !ok {
		x = &fetched{extent: e, ready: clock.NewEvent(f.a.clk)}
		f.by[e] = x
	} else if x.at != nil {
		f.recent.MoveToBack(x.at)
	}
	f.mu.Unlock()
	if ok {
		if err := x.ready.Wait(ctx); err != nil {
			return nil, err
		}
		return x.body, x.err
	}
	x.body, x.err = f.a.readExtent(ctx, e)
	f.mu.Lock()
	if x.err != nil && !isCorrupt(x.err) {
		delete(f.by, e)
	} else {
		x.at = f.recent.PushBack(x)
		f.bytes += int64(len(x.body))
		f.evict()
	}
	f.mu.Unlock()
	x.ready.Set()
	return x.body, x.err
}

// evict forgets the extents used longest ago, but for the last one.
func (f *fetcher) evict() {
	for f.bytes > f.most && f.recent.Len() > 1 {
		f.forget(f.recent.Front())
	}
}

func (f *fetcher) forget(at *list.Element) {
	x := f.recent.Remove(at).(*fetched)
	f.bytes -= int64(len(x.body))
	delete(f.by, x.extent)
}

// drop forgets everything that was read, at the end of a round: the next one wants other extents.
func (f *fetcher) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.recent.Len() > 0 {
		f.forget(f.recent.Front())
	}
}

// dropRanges forgets all but whole objects, at the end of a chunk: the next one wants other ranges.
func (f *fetcher) dropRanges() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := f.recent.Front(); at != nil; {
		next := at.Next()
		if at.Value.(*fetched).extent.length >= 0 {
			f.forget(at)
		}
		at = next
	}
}

// readExtent reads an extent. A slot is verified whole; the blocks of a range are verified by whom they are
// for, who knows where they begin.
func (a *Auditor) readExtent(ctx context.Context, e extent) ([]byte, error) {
	if e.length >= 0 {
		return a.bucket.getRange(ctx, e.object, e.off, e.length)
	}
	if chain, slot, err := catalog.ParseSlotKey(e.object); err == nil {
		body, _, err := a.readSlot(ctx, chain, slot)
		return body, err
	}
	body, _, err := a.readObject(ctx, e.object)
	return body, err
}

// sourceError says why nothing was copied of a portion; the object under way is as it was.
type sourceError struct {
	portion portion
	err     error
}

func (e *sourceError) Error() string {
	s := e.portion.Span
	return fmt.Sprintf("offsets %d to %d of stream %v in %s: %v", s.First, s.Last(), e.portion.Stream, s.Object, e.err)
}
func (e *sourceError) Unwrap() error { return e.err }

// errUnfit: an object is not what a span says, though it is not corrupt.
var errUnfit = errors.New("it does not hold the span's records")

// blocks returns the verified blocks of a portion. All errors are *sourceError but the
// context's; one that wraps format.ErrCorrupt says that the range looked
// corrupt on each of several reads.
func (f *fetcher) blocks(ctx context.Context, p portion) ([]byte, format.Tally, error) {
	fail := func(err error) ([]byte, format.Tally, error) {
		if ctx.Err() != nil {
			return nil, format.Tally{}, err
		}
		return nil, format.Tally{}, &sourceError{p, err}
	}
	body, err := f.get(ctx, p.from)
	if err != nil {
		return fail(err)
	}
	s := &p.Span
	for read := 1; ; read++ {
		off := s.Offset - p.from.off
		short := off < 0 || off+s.Length > int64(len(body))
		var t format.Tally
		if short {
			err = &format.CorruptError{Offset: int64(len(body)), Reason: "the object ends before the span does"}
		} else {
			body = body[off : off+s.Length]
			t, err = format.VerifyBlocks(body, uint64(p.Stream))
		}
		if err == nil && (s.Ordinal < t.First || uint64(s.Ordinal)+s.Count > uint64(t.End)) {
			err = errUnfit
		}
		switch {
		case err == nil:
			return body, t, nil
		case p.from.length < 0:
			// The object is whole, and not what the span says: nothing may be written from it.
			return fail(fmt.Errorf("%w: %v", errUnfit, err))
		case !isCorrupt(err) || read == reads:
			return fail(format.InObject(err, s.Object, s.Offset))
		}
		// The damage may have been on the way.
		if err := f.a.pause(ctx, read); err != nil {
			return fail(err)
		}
		p.from = extent{s.Object, s.Offset, s.Length}
		if body, err = f.a.readExtent(ctx, p.from); err != nil {
			return fail(err)
		}
	}
}

const (
	// fetchAhead is how many extents of a chunk are read at once.
	fetchAhead = 8
	// extentGap is how many bytes that nobody wants are read rather than make another
	// request, and extentMost how long an extent of several ranges gets.
	extentGap  = 64 << 10
	extentMost = 8 << 20
)

// assign decides where each portion is read, and returns the extents, lowest slot first. Ranges of one object
// that lie close together are one extent.
func assign(ps []*portion) []extent {
	slices.SortStableFunc(ps, func(x, y *portion) int {
		switch {
		case x.Span.Object != y.Span.Object:
			return cmp.Compare(x.Span.Object, y.Span.Object)
		case x.own != y.own && x.own:
			return -1 // what is read whole takes the others along
		case x.own != y.own:
			return 1
		}
		return cmp.Compare(x.Span.Offset, y.Span.Offset)
	})
	var out []extent
	joined := make([]int, len(ps))
	for k, p := range ps {
		s := &p.Span
		if len(out) == 0 || !out[len(out)-1].takes(s) {
			e := extent{s.Object, s.Offset, s.Length}
			if p.own && catalog.IsSlot(s.Object) {
				e = whole(s.Object)
			}
			out = append(out, e)
		}
		last := &out[len(out)-1]
		if last.length >= 0 {
			last.length = max(last.length, s.Offset+s.Length-last.off)
		}
		joined[k] = len(out) - 1
	}
	for k, p := range ps {
		p.from = out[joined[k]]
	}
	return out
}

// takes tells whether the extent may grow by a span's range, which begins no lower.
func (e extent) takes(s *catalog.Span) bool {
	if e.object != s.Object {
		return false
	}
	end := s.Offset + s.Length
	return e.length < 0 || end <= e.off+e.length || s.Offset <= e.off+e.length+extentGap && end-e.off <= extentMost
}

// fetch begins to read extents, several at once: one after
// the other they would cost a bucket's latency each, and an era of many its deadline. The units find
// them in the cache; what fails fails the unit that waits for it.
func (r *rewriter) fetch(ctx context.Context, extents []extent) *clock.Group {
	g := clock.NewGroup(r.a.clk, 0)
	// A group without a limit starts the task at once.
	_ = g.Go(ctx, "auditor/fetch", func(ctx context.Context) error {
		ahead := clock.NewGroup(r.a.clk, fetchAhead)
		for _, e := range extents {
			if ahead.Go(ctx, "auditor/fetch", func(ctx context.Context) error {
				_, _ = r.cache.get(ctx, e)
				return nil
			}) != nil {
				break
			}
		}
		return ahead.Wait(context.WithoutCancel(ctx))
	})
	return g
}

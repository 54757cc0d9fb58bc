package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
)

// gc writes what is alive of an object into a revision, where much of the object is dead. Reap arms its
// marker, in the commit in which it stands down from an object that is still named.
//
// Steps, and what a crash after each leaves:
//
//  1. Read the refs again. None names the object: arm its reap-check and resolve, in one commit. What is dead is
//     not worth a rewrite any more (the object is as alive as it was, or has a smaller sibling's size): resolve. The
//     refs, or the reap-checks that their going armed, watch the object all along, in every step.
//  2. Kill, unread, the spans of tearing or removed streams, and those wholly below the watermark: each kill arms
//     the object's reap-check.
//  3. Copy the other ranges, verified, into a revision: intent, PUT, swaps, resolve of the intent, as
//     in steps 5 to 8 of denorm and by the same code. Each swap arms the old object's
//     reap-check. A crash leaves some spans moved and some not; the marker stands, and another run finds those left.
//  4. Resolve the marker. A crash before it: another run finds no ref, or what is left of them.
//
// Two runs at once (a lease lost, or none) write two revisions: each span moves once, what is then named
// only in part has its reap-check armed by the resolve of its intent.
//
// Refs are read in pages, and a page's ranges are all that is held in memory beside the revision being
// built: an object may have any number of refs.
//
// A range that is damaged stays where it is, the others move. The marker then stands and rests, a Warn each
// time, until the range is trimmed or its stream removed: it is the one thing that tells of it.
type gc struct {
	a     *Auditor
	cache int64 // bytes, for each job
}

func newGC(a *Auditor) *gc {
	_, cache := a.cacheShares()
	return &gc{a: a, cache: cache}
}

// Judge runs every marker: it was armed because there is work. An object key that no bucket could hold
// names nothing: nobody could ever rewrite it.
func (g *gc) Judge(m catalog.MarkerAt, _ time.Time) Verdict {
	if objstore.CheckKey(m.Due.Object()) != nil {
		return Discard
	}
	return Run
}

// gcPage bounds the refs whose ranges are copied together.
const gcPage = 256

// Handle runs the steps above.
func (g *gc) Handle(ctx context.Context, j *Job) (Outcome, error) {
	at := catalog.GCAt{
		Key: j.Marker.Due.Key, Object: j.Marker.Due.Object(),
		Marker: catalog.DecodeGCMarker(j.Marker.Value), Version: j.Marker.Version,
	}
	done := j.step("judge")
	live, err := g.a.liveness(ctx, at.Object)
	done()
	switch {
	case err != nil:
		return Standing, err
	case len(live.first) == 0:
		return Resolved, g.a.cat.ResolveGC(ctx, at, true)
	case live.reclaim == 0:
		return Resolved, g.a.cat.ResolveGC(ctx, at, false)
	}
	r := &rewriter{a: g.a, j: j, cache: newFetcher(g.a, g.cache)}
	if err := r.revise(ctx, at.Object); err != nil {
		return Standing, err
	}
	j.emit(Event{Action: ObjectRevised, Object: at.Object, Bytes: int64(live.reclaim)})
	return Resolved, g.a.cat.ResolveGC(ctx, at, false)
}

// revise moves all that is alive of an object, steps 2 and 3.
func (r *rewriter) revise(ctx context.Context, object string) error {
	var res unitResult
	b := r.newBuilder(0)
	from := catalog.RefPrefix(object)
	for more := true; more; {
		var refs []catalog.RefAt
		var err error
		if refs, more, err = r.a.cat.RefsFrom(ctx, object, from, gcPage); err != nil {
			return err
		}
		if len(refs) == 0 {
			break
		}
		from = refs[len(refs)-1].Key + "\x00"
		ps, err := r.alive(ctx, object, refs)
		if err != nil {
			return err
		}
		if err := r.copyAll(ctx, b, ps, &res); err != nil {
			return err
		}
		r.cache.drop()
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	if len(res.damaged)+len(res.unfit) > 0 {
		return fmt.Errorf("%d ranges of %s stay where they are: %w", len(res.damaged)+len(res.unfit), object, res.first)
	}
	return nil
}

// copyAll adds the portions to the builder, as they are ordered; their bytes are read in the order of the object's.
func (r *rewriter) copyAll(ctx context.Context, b *builder, ps []portion, res *unitResult) error {
	for len(ps) > 0 {
		n, bytes := 0, int64(0)
		for n < len(ps) && (n == 0 || bytes+ps[n].Span.Length <= r.cache.most) {
			bytes += ps[n].Span.Length
			n++
		}
		part := ps[:n]
		ps = ps[n:]
		wanted := make([]*portion, n)
		for i := range part {
			wanted[i] = &part[i]
		}
		fetching := r.fetch(ctx, assign(wanted))
		var err error
		for i := range part {
			err = b.add(ctx, part[i])
			var bad *sourceError
			if errors.As(err, &bad) {
				err = r.excuse(ctx, bad, res)
			}
			if err != nil {
				break
			}
		}
		_ = fetching.Wait(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
	}
	return nil
}

// alive returns the spans that the refs name, and kills those of them that are not worth a copy.
func (r *rewriter) alive(ctx context.Context, object string, refs []catalog.RefAt) ([]portion, error) {
	var streams []*streamItems
	for _, ref := range refs {
		if n := len(streams); n == 0 || streams[n-1].id != ref.Stream {
			streams = append(streams, &streamItems{id: ref.Stream})
		}
	}
	if err := r.readStreams(ctx, streams); err != nil {
		return nil, err
	}
	spans, err := r.a.cat.SpansOf(ctx, refs)
	if err != nil {
		return nil, err
	}
	var out []portion
	var kill []doomed
	s := streams[0]
	for _, sp := range spans {
		for s.id != sp.Stream {
			streams = streams[1:]
			s = streams[0]
		}
		switch {
		case sp.Span.Object != object:
			// It moved since its ref was read.
		case s.doomed(sp):
			kill = append(kill, doomed{spans: []catalog.SpanAt{sp}, all: s.all, watermark: s.watermark})
		default:
			out = append(out, portion{SpanAt: sp})
		}
	}
	return out, r.killed(ctx, kill)
}

const (
	// livePage bounds the refs of one read when an object's live bytes are counted, livePages the reads. One
	// with more refs is left to the kill that brings it below.
	livePage  = 1024
	livePages = 64
)

// live is how much of an object is alive.
type live struct {
	first   []catalog.RefAt // its first refs; none: nothing names it
	reclaim uint64          // dead bytes, where they are worth a rewrite, else 0
}

// liveness adds up what an object's refs leave dead.
func (a *Auditor) liveness(ctx context.Context, object string) (live, error) {
	refs, more, err := a.cat.Refs(ctx, object, 1)
	if err != nil || len(refs) == 0 || !catalog.IsSettled(object) {
		return live{first: refs}, err
	}
	out, size, alive := live{first: refs}, refs[0].Ref.ObjectSize, refs[0].Ref.Bytes
	for page := 0; more; page++ {
		if page == livePages {
			return out, nil
		}
		if refs, more, err = a.cat.RefsFrom(ctx, object, refs[len(refs)-1].Key+"\x00", livePage); err != nil {
			return live{}, err
		}
		for _, ref := range refs {
			alive += ref.Ref.Bytes
		}
		if page == 0 {
			out.first = append(out.first, refs[:min(len(refs), catalog.MaxAttributed)]...)
		}
		if len(refs) == 0 {
			break
		}
	}
	dead := size - min(alive, size)
	if dead >= uint64(a.opts.GCMinDeadBytes) && float64(dead) >= a.opts.GCMinDeadRatio*float64(size) {
		out.reclaim = dead
	}
	return out, nil
}

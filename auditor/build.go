package auditor

import (
	"context"
	"errors"
	"fmt"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// rewriter moves spans into new objects: what the settle rewrite and gc have in common.
type rewriter struct {
	a     *Auditor
	j     *Job
	chain catalog.ChainID // of the era; gc has none
	cache *fetcher
}

// newWriter returns a writer of settled objects.
func (r *rewriter) newWriter() *format.Writer {
	return format.NewWriter(format.KindSettled, r.a.opts.Codec)
}

// unitResult is what became of a unit. With an error some of its spans have moved
// and some have not.
type unitResult struct {
	damaged []uint64       // slots
	unfit   []*sourceError // of slots of which nothing could be copied
	first   *sourceError   // of those two
	err     error          // of the unit as a whole
}

// note takes what keeps one slot from being copied and that no retry mends, and returns
// whether it is of that kind.
func (r *unitResult) note(bad *sourceError) bool {
	switch {
	case isCorrupt(bad.err) || errors.Is(bad.err, objstore.ErrNotFound):
		// What is missing though the catalog, read again, still says that it is there, is lost, until somebody brings
		// it back: others must not wait for it any more than for a bad checksum.
		r.damaged = append(r.damaged, bad.portion.slot)
	case lasting(bad.err):
		r.unfit = append(r.unfit, bad)
	default:
		return false
	}
	if r.first == nil {
		r.first = bad
	}
	return true
}

// isCorrupt tells damage from a failure.
func isCorrupt(err error) bool { return errors.Is(err, format.ErrCorrupt) }

// lasting tells that no retry of a read mends what it met, though it is no damage.
func lasting(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, format.ErrVersion) || errors.Is(err, errUnfit)
}

// settle copies a unit's spans into new objects and publishes each as it is full. A slot that can't be
// copied costs its own markers and not those of the others that the unit packs together.
func (r *rewriter) settle(ctx context.Context, u unit) (res unitResult) {
	b := r.newBuilder(u.bytes())
	for _, p := range u {
		p, err := r.sound(ctx, p)
		if err != nil {
			res.err = err
			return res
		}
		for _, s := range p.spans {
			err := b.add(ctx, s)
			var bad *sourceError
			switch {
			case !errors.As(err, &bad):
			case !s.own && (isCorrupt(bad.err) || lasting(bad.err)):
				err = nil // it was sound a moment ago, and may stay where it is
			default:
				err = r.excuse(ctx, bad, &res)
			}
			if err != nil {
				res.err = err
				return res
			}
		}
	}
	res.err = b.flush(ctx)
	return res
}

// excuse notes why a portion could not be copied, where that is its slot's own affair; else it
// returns the error. A span that lies elsewhere by now needs no copy: another era moved it,
// and its object was trimmed or reaped since.
func (r *rewriter) excuse(ctx context.Context, bad *sourceError, res *unitResult) error {
	if errors.Is(bad.err, objstore.ErrNotFound) {
		there, err := r.there(ctx, bad.portion)
		if err != nil || !there {
			return err
		}
	}
	if !res.note(bad) {
		return bad
	}
	return nil
}

// there tells whether the catalog still says that a portion lies where it was.
func (r *rewriter) there(ctx context.Context, p portion) (bool, error) {
	now, ok, err := r.a.cat.ReadSpan(ctx, p.Stream, p.Span.Last())
	return ok && now.Span.Object == p.Span.Object, err
}

// builder gathers spans into one object after another.
type builder struct {
	r    *rewriter
	w    *format.Writer
	d    *format.Decoder
	runs []catalog.Run // of the object under way; each is a section of it
	n    int           // spans
	left int64         // bytes of the spans not added yet
}

// newBuilder returns a builder that expects spans of about so many bytes.
func (r *rewriter) newBuilder(bytes int64) *builder {
	return &builder{r: r, w: r.newWriter(), d: format.NewDecoder(), left: bytes}
}

// What a block and a section take beside the records, at most. The first record of a block
// may take more bytes for its timestamp where it becomes one among others.
const (
	blockFraming   = format.BlockHeaderLength + 14 + 10
	sectionFraming = 128
	// sectionsMost bounds the sections of an object, and with them its footer.
	sectionsMost = 4096
)

// add copies a portion's records, verified, as they are in its object. Where nothing was copied, for
// the source's sake, it fails with a *sourceError.
func (b *builder) add(ctx context.Context, p portion) error {
	blocks, tally, err := b.r.cache.blocks(ctx, p)
	if err != nil {
		return err
	}
	span := &p.Span
	// Two blocks in a row hold more than one target.
	most := tally.Raw + (int64(tally.Blocks)+2*tally.Raw/format.BlockTarget+1)*blockFraming + sectionFraming
	if b.n > 0 && (int64(b.w.Size())+most > b.r.a.opts.SettleObjectMax || len(b.runs) >= sectionsMost) {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	if b.n == 0 {
		b.w.Grow(int(min(max(b.left, span.Length)+b.left/32+sectionFraming, b.r.a.opts.SettleObjectMax)))
	}
	b.left -= span.Length
	if last := len(b.runs) - 1; last < 0 || b.runs[last].Stream != p.Stream || b.end(last) != span.First {
		b.w.Begin(uint64(p.Stream), span.First)
		b.runs = append(b.runs, catalog.Run{Stream: p.Stream})
	}
	added, err := b.w.AddBlocks(b.d, blocks, uint64(p.Stream), span.Ordinal, span.Ordinal+uint32(span.Count))
	if err != nil {
		// The blocks were verified, so this is no damage of them; and the
		// object under way now has a part of the span, which ends the unit.
		return fmt.Errorf("copying from %s, verified before: %v", span.Object, err)
	}
	if uint64(added) != span.Count {
		return fmt.Errorf("offsets %d to %d of stream %v: %s has %d of %d records where the span says", span.First, span.Last(), p.Stream, span.Object,
			added, span.Count)
	}
	last := &b.runs[len(b.runs)-1]
	last.Old = append(last.Old, p.SpanAt)
	b.n++
	return nil
}

// end is the offset behind a run.
func (b *builder) end(run int) uint64 {
	old := b.runs[run].Old
	return old[len(old)-1].Span.Last() + 1
}

// flush finishes and publishes the object under way, if there is one.
func (b *builder) flush(ctx context.Context) error {
	if b.n == 0 {
		return nil
	}
	object, footer, err := b.w.Finish()
	runs, n := b.runs, b.n
	b.w.Reset()
	b.runs, b.n = nil, 0
	if err != nil {
		return fmt.Errorf("building a settled object: %w", err)
	}
	for i := range runs {
		runs[i].Section = &footer.Sections[i]
	}
	defer b.r.j.step("publish")()
	return b.r.publish(ctx, object, runs, n)
}

package auditor

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
)

// trimcheck deletes the slots whose records were all rewritten. A marker is armed with each
// completed batch, up to its end, ready after the trim grace.
//
// Steps, and what a crash after each leaves:
//
//  1. Read the chain record. It is gone: the chain is retired, its objects were
//     deleted before; resolve.
//  2. Frontier: the first slot that is not known rewritten. Reads only.
//  3. Advance the rewritten cursor to it. Only a cursor moved; the marker watches
//     the slots [trimmed, upTo) as before.
//  4. Delete the slots [trimmed, min(frontier, upTo)), in batches. Those deleted need no
//     watcher; the others have the marker. Nothing reads them: no span names a slot
//     below the frontier, since a batch's marker is resolved only after all its spans moved.
//     A reader that had looked up a span before finds its object gone, and looks again.
//  5. After each batch, advance the trimmed cursor over the slots whose deletion was
//     confirmed, and no further: a later run starts there. Before it, the deletion is repeated.
//  6. trimmed ≥ upTo: resolve. Else a lower batch is still owed: re-arm.
//
// No PUT of these slots can land any more: the marker is ready a trim grace after its batch
// was completed, and its slots, as all below them, were absorbed before that; the grace exceeds
// session TTL + put horizon + clock skew, by which a slot's last try has ended.
type trimcheck struct{ a *Auditor }

// Judge runs what is ripe.
func (t *trimcheck) Judge(m catalog.MarkerAt, now time.Time) Verdict { return ripe(m.Due, now) }

// Handle runs the steps above.
func (t *trimcheck) Handle(ctx context.Context, j *Job) (Outcome, error) {
	cat := t.a.cat
	id, err := catalog.ParseChainSubject(j.Marker.Due.Subject)
	if err != nil {
		return Standing, err
	}
	chain, err := cat.ReadChain(ctx, id)
	if err != nil {
		return Standing, err
	}
	if chain.Version == 0 {
		return Resolved, cat.ResolveMarker(ctx, j.Marker)
	}
	upTo := chain.Chain.Checkpoint // of an unreadable value: the largest that it can have had
	v, err := catalog.DecodeTrimCheckMarker(j.Marker.Value)
	if err == nil {
		upTo = v.UpTo
	}
	frontier, err := cat.Frontier(ctx, id)
	if err != nil {
		return Standing, err
	}
	trim, err := cat.AdvanceTrim(ctx, id, frontier, 0) // ErrMoved of a chain retired meanwhile
	if err != nil {
		return Standing, err
	}
	from, end := trim.Trim.Trimmed, min(frontier, upTo)
	trimmed := from
	if trimmed < end {
		done := j.step("delete")
		err = t.a.deleteSlots(ctx, id, trimmed, end, func(upTo uint64) error {
			at, err := cat.AdvanceTrim(ctx, id, 0, upTo)
			trimmed = max(trimmed, at.Trim.Trimmed)
			return err
		})
		done()
	}
	gone := int64(0) // the bytes are accounted for once, when the marker's last slot is gone
	if trimmed >= upTo {
		gone = int64(v.Bytes)
	}
	if trimmed > from || gone > 0 {
		j.emit(Event{Action: Trimmed, Chain: id, From: from, To: trimmed, Count: int(trimmed - from), Bytes: gone})
	}
	switch {
	case err != nil:
		return Standing, fmt.Errorf("trimming %s: %w", id, err)
	case trimmed >= upTo:
		return Resolved, cat.ResolveMarker(ctx, j.Marker)
	}
	// The lower batch arms its own check when it completes; this one only has to come after.
	return Waiting, cat.RearmTrimCheck(ctx, j.Marker, upTo, cat.Timing().TrimGrace)
}

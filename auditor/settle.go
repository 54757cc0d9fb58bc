package auditor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nova-store/nova/catalog"
)

// settle ends chains whose star will never return, so that its last slots become
// spans and nothing can be committed to it any more. Each chain has one settle marker for as
// long as its records exist; it watches the chain's slots at and above the checkpoint.
//
// Steps, and what a crash after each leaves:
//
//  1. Read trim and chain record. They are gone, or name another settle marker: this one
//     is nobody's, and is resolved.
//  2. The star lives (its route names this epoch): re-arm, backing off from the recheck to ten
//     times that. Nothing else was touched.
//  3. Fence: open becomes fencing, so that the star absorbs no more, or this run's nonce is
//     put into a chain that is fencing already. The marker stands; the next run takes
//     over by a nonce of its own, and this one can then neither absorb nor mark the chain sealed.
//  4. Walk from the checkpoint to the seal: the first slot that holds one or accepts one, put if-absent, once the
//     chain record says how far seals may come. Slots
//     below it are fixed from then on; those beyond, a gap, were never acknowledged. Seals are always the same bytes, at or
//     above the checkpoint, so the marker watches them.
//  5. Absorb what lies below, exactly as the star would have. Each commit moves the
//     checkpoint; slots pass from the settle marker's watch to a batch marker's, and their bundles
//     from their intents' to their refs'. The next run goes on at the new checkpoint.
//  6. Put seals in the W−1 slots after the seal: of flights in the air there, each now meets a
//     seal or has landed, and what landed is never absorbed. The star never put beyond, since slots being
//     PUT are below the first not known durable + W, and the seal's was not.
//  7. Mark the chain sealed, with the time and the window's end. Re-arm.
//  8. Sealed: re-arm until all that was absorbed is trimmed and the retire grace has passed,
//     so that no PUT to this chain can land any more. All the while the marker
//     watches the window.
//  9. Delete the objects from the trimmed cursor to the window's end; a repeat finds them gone.
//  10. Retire: chain record, trim record and marker go in one commit.
//
// A damaged slot (corrupt or, behind it a slot that says it was durable, missing; or with a bundle
// of which that is true; in every one of several reads, never a time-out) ends the
// absorb and not the walk: what lies above the checkpoint was never acknowledged,
// and a slot whose verdicts can't be judged leaves those behind it undecided too. It goes with
// the window at the chain's retirement.
//
// Bundles of slots that are never absorbed are not deleted here: their intents stand, and the orphan
// duty judges them once the seal, or the chain's end, says that nothing may name them any more.
//
// A marker whose subject is a star and not a chain belongs to a decommission: see decommission.go.
type settle struct{ a *Auditor }

// Judge runs what is ripe.
func (s *settle) Judge(m catalog.MarkerAt, now time.Time) Verdict { return ripe(m.Due, now) }

const (
	settleFirst = 5 * time.Second  // after the sealing
	settleNext  = 10 * time.Second // while trimming and grace are awaited
	// recheckMost is how many times the recheck a live chain's marker backs off to.
	recheckMost = 10
)

// Handle runs the steps above.
func (s *settle) Handle(ctx context.Context, j *Job) (Outcome, error) {
	cat := s.a.cat
	if !strings.Contains(j.Marker.Due.Subject, "~") {
		return s.decommission(ctx, j)
	}
	id, err := catalog.ParseChainSubject(j.Marker.Due.Subject)
	if err != nil {
		return Standing, err
	}
	trim, err := cat.ReadTrim(ctx, id)
	if err != nil {
		return Standing, err
	}
	chain, err := cat.ReadChain(ctx, id)
	if err != nil {
		return Standing, err
	}
	recheck := cat.Timing().SettleRecheck
	if trim.Version == 0 || chain.Version == 0 || trim.Trim.SettleKey != j.Marker.Due.Key {
		// RearmSettle resolves it, unless the records have come to name it.
		return Resolved, cat.RearmSettle(ctx, j.Marker, id, recheck)
	}
	if chain.Chain.State == catalog.ChainSealed {
		return s.retire(ctx, j, chain, trim)
	}
	dead, err := cat.ReadDead(ctx, id)
	if err != nil {
		return Standing, err
	}
	if !dead.Dead {
		before := time.Duration(catalog.DecodeSettleMarker(j.Marker.Value).Delay) * time.Millisecond
		next := min(max(2*before, recheck), recheckMost*recheck)
		return Waiting, cat.RearmSettle(ctx, j.Marker, id, next)
	}
	fence, err := cat.TakeFence(ctx, chain, dead)
	if err != nil {
		return Standing, err
	}
	j.emit(Event{Action: Fenced, Chain: id})
	done := j.step("seal")
	sealed, err := (&sealing{a: s.a, j: j, fence: fence}).run(ctx)
	done()
	if err != nil {
		return Standing, fmt.Errorf("sealing %s: %w", id, err)
	}
	j.emit(Event{Action: ChainSealed, Chain: id, From: sealed.Chain.Seal, To: sealed.Chain.WindowEnd})
	return Waiting, cat.RearmSettle(ctx, j.Marker, id, min(settleFirst, recheck))
}

// retire takes a sealed chain away, once it may.
func (s *settle) retire(ctx context.Context, j *Job, chain catalog.ChainAt, trim catalog.TrimAt) (Outcome, error) {
	cat, id, c := s.a.cat, chain.ID, chain.Chain
	grace := time.UnixMilli(c.SealedAt).Add(cat.Timing().RetireGrace)
	// The checkpoint is the seal, or the damaged slot at which the absorb ended.
	if trim.Trim.Trimmed < c.Checkpoint || !s.a.clk.Now().After(grace) {
		return Waiting, cat.RearmSettle(ctx, j.Marker, id, min(settleNext, cat.Timing().SettleRecheck))
	}
	done := j.step("delete")
	err := s.a.deleteSlots(ctx, id, trim.Trim.Trimmed, c.WindowEnd, nil)
	done()
	if err != nil {
		return Standing, fmt.Errorf("emptying %s: %w", id, err)
	}
	if err := cat.Retire(ctx, j.Marker, chain, trim); err != nil {
		return Standing, err
	}
	j.emit(Event{Action: ChainRetired, Chain: id, From: trim.Trim.Trimmed, To: c.WindowEnd})
	return Resolved, nil
}

// errLate: this run's seals may not be put any more.
var errLate = fmt.Errorf("past the time of this run's seals: %w", catalog.ErrMoved)

// late tells whether a PUT that must not land after a time comes too late; a zero time is no limit.
func (a *Auditor) late(notAfter time.Time) bool {
	return !notAfter.IsZero() && !a.clk.Now().Before(notAfter)
}

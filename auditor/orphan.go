package auditor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// orphan judges intents that were not resolved within the orphan grace: their publisher
// died, gave the object up, or found every range of it owned elsewhere.
//
// A bundle's intent is left alone for as long as the bundle's slot may be absorbed: unless the chain record is gone, or the
// checkpoint is above the slot, or the chain is sealed at or below it. Each is for ever, and none
// lets an absorb come that names the bundle; so no absorb meets a condemned intent.
//
// Steps, and what a crash after each leaves:
//
//  1. Probe one ref. If one names the object: resolve the intent, conditional on a ref in the same commit,
//     which arms the object's reap-check: the publisher may have died between two swaps,
//     and no kill will ever announce the bytes that were not referenced. Ref and reap-check watch.
//  2. Condemn: rewrite the intent. Every swap is conditional on the intent's version, so that
//     from here on no publisher can name the object, however late. The intent still watches it.
//  3. Probe again: a swap may have landed between 1 and 2. If one did: as in 1.
//  4. Delete the object. The intent stands: a crash has the deletion repeated.
//  5. Resolve the intent at the version of the condemnation. A publisher that PUT and then found its
//     intent lost has armed it anew, condemned: then it stands, and is judged again.
//
// No PUT of the object can land any more: the orphan grace, counted from the intent's birth,
// exceeds job deadline + put horizon + clock skew.
type orphan struct{ a *Auditor }

// Judge skips what is younger than the grace: the order is by object, which is no order
// of age. An unreadable intent is left standing: it may be an object's only watcher.
func (o *orphan) Judge(m catalog.MarkerAt, now time.Time) Verdict {
	if objstore.CheckKey(m.Due.Object()) != nil {
		return Discard
	}
	in, err := catalog.DecodeIntent(m.Value)
	if err != nil || !now.After(time.UnixMilli(in.Birth).Add(o.a.cat.Timing().OrphanGrace)) {
		return Skip
	}
	return Run
}

// Handle runs the steps above.
func (o *orphan) Handle(ctx context.Context, j *Job) (Outcome, error) {
	cat := o.a.cat
	v, err := catalog.DecodeIntent(j.Marker.Value)
	if err != nil {
		return Standing, err
	}
	in := catalog.IntentAt{Intent: v, Object: j.Marker.Due.Object(), Version: j.Marker.Version, Readable: true}
	if wanted, err := o.absorbable(ctx, in); err != nil || wanted {
		return Standing, err
	}
	if named, err := o.probe(ctx, j, in.Object, in.Version); named || err != nil {
		return Resolved, err
	}
	version := in.Version
	if !in.Condemned {
		if version, err = cat.Condemn(ctx, in); err != nil {
			return Standing, err
		}
		j.emit(Event{Action: IntentCondemn, Object: in.Object})
	}
	if named, err := o.probe(ctx, j, in.Object, version); named || err != nil {
		return Resolved, err
	}
	if err := o.a.bucket.delete(ctx, []string{in.Object})[0]; err != nil {
		return Standing, fmt.Errorf("deleting the orphan %s: %w", in.Object, err)
	}
	j.emit(Event{Action: OrphanDeleted, Object: in.Object})
	return Resolved, cat.ResolveCondemned(ctx, in.Object, version)
}

// absorbable tells whether the slot that an intent names may yet be absorbed, and the
// object named by it.
func (o *orphan) absorbable(ctx context.Context, in catalog.IntentAt) (bool, error) {
	if in.Chain.Star == "" {
		return false, nil
	}
	c, err := o.a.cat.ReadChain(ctx, in.Chain)
	if err != nil || c.Version == 0 || c.Chain.Checkpoint > in.Slot {
		return false, err
	}
	return c.Chain.State != catalog.ChainSealed || c.Chain.Seal > in.Slot, nil
}

// probe resolves the intent if a ref names its object, and tells whether one does.
func (o *orphan) probe(ctx context.Context, j *Job, object string, version metastore.Version) (named bool, err error) {
	refs, _, err := o.a.cat.Refs(ctx, object, 1)
	if err != nil || len(refs) == 0 {
		return false, err
	}
	err = o.a.cat.ResolveIntent(ctx, object, version, false)
	if errors.Is(err, catalog.ErrIntentLost) {
		err = fmt.Errorf("%w (%w)", catalog.ErrMoved, err)
	}
	if err != nil {
		return false, err
	}
	j.emit(Event{Action: IntentResolved, Object: object})
	return true, nil
}

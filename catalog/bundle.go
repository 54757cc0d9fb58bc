package catalog

import (
	"context"

	"github.com/nova-store/nova/metastore"
)

// A flight too large for its slot is two objects. The star announces the bundle (an intent that
// names chain and slot), PUTs it, and then the slot, which holds the bundle's index. The
// slot's PUT is the commit, as ever.
//
// Who watches the bundle, and what a crash after each step leaves:
//
//  1. Intent armed, nothing PUT, or the bundle PUT: the intent watches. No slot names
//     the bundle. The slot may still come, so the orphan duty leaves the intent alone as long as the chain may
//     absorb the slot: until the chain record is gone, or its checkpoint is above the slot, or it is sealed at
//     or below it. Each of these is for ever, since cursors never go back and epochs never come again.
//  2. Slot PUT: the slot implies the bundle, which was durable before. Its chain's settle
//     marker watches the slot, the intent still the bundle.
//  3. Absorbed: the spans name the bundle and their refs watch it. The intent goes in this very commit,
//     conditional on its version: a bundle that is condemned is named by nobody. Absorb needs the chain record at
//     a checkpoint ≤ slot and not sealed, and the orphan duty condemns only where that can't be any more; so
//     the intent of a slot that is absorbed always stands. Where it does not (somebody meddled with
//     the store), the bundle may be deleted at any moment, and absorb refuses: ErrIntentLost.
//  4. Where a part of its records was turned down, no kill will ever announce those bytes: the
//     same commit arms the bundle's reap-check, as ResolveIntent does. Where all were, nothing
//     names the bundle: its intent stands, and the orphan duty, which may now judge it, deletes it.
//  5. Settled: the swap takes the refs, and arms the bundle's reap-check.
//
// A slot that is never absorbed goes with its chain's window; its bundle's intent stands for the
// orphan duty.

// What a bundled slot adds to a commit, in operations: its intent and its reap-check; a ref for each
// span; for each stream a pending entry of the reap-check. In conditions it adds two.
const (
	perBundle       = 2
	perBundleSpan   = 1
	perBundleStream = 1
)

// bundleSize is the length of the bundle: its footer is as long as its slot's, whose body is empty.
func (in *SlotIn) bundleSize() int64 { return in.Size + in.Footer.BodyLength }

// bytes is the length of the slot's objects.
func (in *SlotIn) bytes() int64 {
	if in.Footer.Bundled {
		return in.Size + in.bundleSize()
	}
	return in.Size
}

// object is what holds the slot's records.
func (in *SlotIn) object(c ChainID) string {
	if in.Footer.Bundled {
		return BundleKey(c, in.Slot, in.Footer.Flight)
	}
	return SlotKey(c, in.Slot)
}

// readIntents finds the versions of the bundles' intents; again: whatever was known is read anew.
//
// It is called before the chain record is read. An intent that is gone when the chain record, read later, still
// has the slot at its checkpoint was not taken by a twin or by another's absorb. A chain
// record that is cached would be no such later read.
func (a *absorb) readIntents(ctx context.Context, again bool) error {
	a.intents = nil
	var keys []string
	var slots []uint64
	for i := range a.req.Slots {
		in := &a.req.Slots[i]
		if !in.Footer.Bundled {
			continue
		}
		if a.intents == nil {
			a.intents = make(map[uint64]metastore.Version)
		}
		if in.Intent != 0 && !again {
			a.intents[in.Slot] = in.Intent
			continue
		}
		slots = append(slots, in.Slot)
		keys = append(keys, IntentKey(in.object(a.req.Chain)))
	}
	recs, err := a.c.get(ctx, keys...)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		v, err := DecodeIntent(rec.Value)
		if !rec.Exists() || err != nil || v.Condemned {
			a.cache.purge()
			continue
		}
		a.intents[slots[i]] = rec.Version
	}
	return nil
}

// resolveBundle passes the watch over a bundle from its intent to its refs, if it has any. placed is
// how many of its records were accepted.
func (a *absorb) resolveBundle(b *batch, in *SlotIn, placed uint64) {
	if placed == 0 {
		a.c.branch("bundle.unplaced")
		return
	}
	object := in.object(a.req.Chain)
	key := IntentKey(object)
	b.when(metastore.At(key, a.intents[in.Slot]))
	b.append(metastore.Delete(key))
	all := uint64(0)
	for i := range in.Footer.Sections {
		all += uint64(in.Footer.Sections[i].Records)
	}
	if placed == all {
		return
	}
	a.c.branch("bundle.partly")
	for i := range in.Footer.Sections {
		a.lost.add(object, StreamID(in.Footer.Sections[i].Stream), false)
	}
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// Armed is an intent as its publisher holds it.
type Armed struct {
	Object   string
	Version  metastore.Version
	NotAfter time.Time // of the PUT; zero where the put horizon is 0
}

// newIntent says of a bundle which slot may yet name it: what its key says.
func newIntent(object string) (in Intent) {
	if chain, slot, _, err := ParseBundleKey(object); err == nil {
		in.Chain, in.Slot = chain, slot
	}
	return in
}

// ArmIntent announces an object before its PUT.
//
// Condition: no intent of the object stands. Effect: one does, which names chain and slot
// where the object is a bundle. From then on the orphan duty watches the object, existing or not.
// The key is of a ULID, or of a flight's id, that was never used: a late twin, after the intent came
// and went, leaves a marker that the orphan duty resolves, and no more.
//
// NotAfter counts from a clock read before the first try.
func (c *Catalog) ArmIntent(ctx context.Context, object string) (Armed, error) {
	start := c.clk.Now()
	in := newIntent(object)
	in.Birth, in.Nonce = unixMS(start), c.clk.Rand()
	armed := Armed{Object: object, NotAfter: c.timing.notAfter(start)}
	var b batch
	b.when(metastore.Absent(IntentKey(object)))
	b.put(IntentKey(object), in.encode())
	v, maybe, err := c.commit(ctx, "announcing "+object, b.done())
	if err == nil {
		armed.Version = v
		return armed, nil
	}
	if !maybe || !errors.Is(err, metastore.ErrConflict) {
		return Armed{}, err
	}
	got, ok, err := c.ReadIntent(ctx, object)
	if err != nil {
		return Armed{}, err
	}
	if !ok || got.Nonce != in.Nonce || got.Condemned {
		return Armed{}, fmt.Errorf("announcing %s: %w", object, ErrIntentLost)
	}
	c.branch("intent.twin")
	armed.Version = got.Version
	return armed, nil
}

// IntentAt is an intent as read. Readable is false where its value does not decode.
type IntentAt struct {
	Intent
	Object   string
	Version  metastore.Version
	Readable bool
}

// ReadIntent reads an object's intent; ok is false where none stands.
func (c *Catalog) ReadIntent(ctx context.Context, object string) (in IntentAt, ok bool, err error) {
	recs, err := c.store.Get(ctx, IntentKey(object))
	if err != nil {
		return IntentAt{}, false, fmt.Errorf("intent of %s: %w", object, err)
	}
	if !recs[0].Exists() {
		return IntentAt{Object: object}, false, nil
	}
	v, err := DecodeIntent(recs[0].Value)
	return IntentAt{Intent: v, Object: object, Version: recs[0].Version, Readable: err == nil}, true, nil
}

// RefAt is a ref as read.
type RefAt struct {
	Key    string
	Stream StreamID
	Last   uint64
	Ref    Ref
}

// Refs reads the first refs of an object, limit at most; more tells that there are
// further ones. None and a nil error mean that nothing names the object.
func (c *Catalog) Refs(ctx context.Context, object string, limit int) (refs []RefAt, more bool, err error) {
	return c.RefsFrom(ctx, object, RefPrefix(object), limit)
}

// RefsFrom is Refs from a key on, by which an object's refs are read in pages.
func (c *Catalog) RefsFrom(ctx context.Context, object, from string, limit int) (refs []RefAt, more bool, err error) {
	page, err := c.scan(ctx, metastore.Range{Start: from, End: metastore.PrefixEnd(RefPrefix(object))}, limit)
	if err != nil {
		return nil, false, fmt.Errorf("refs of %s: %w", object, err)
	}
	for _, r := range page.Records {
		_, id, last, err := ParseRefKey(r.Key)
		if err != nil {
			return nil, false, fmt.Errorf("refs of %s: %w", object, err)
		}
		ref, err := DecodeRef(r.Value)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", r.Key, err)
		}
		refs = append(refs, RefAt{r.Key, id, last, ref})
	}
	return refs, page.More, nil
}

// ResolveIntent ends an intent once a ref names its object: the primitive by which
// the watch over a published object passes from its intent to its refs.
//
// Conditions: the intent is at the version judged; one of the object's refs exists
// in the same commit. Effects: the intent goes; unless whole is true (the publisher
// itself, which placed every range of the object), the object's reap-check is
// armed, since no kill will announce the bytes that were never referenced.
//
// A crash before it leaves the intent to the orphan duty; after it the ref watches.
// A late twin fails on the intent.
//
// ErrIntentLost: the intent changed or is gone. ErrMoved: no ref names the object;
// the intent stands.
func (c *Catalog) ResolveIntent(ctx context.Context, object string, version metastore.Version, whole bool) error {
	what := "resolving the intent of " + object
	for round := 0; ; round++ {
		refs, more, err := c.Refs(ctx, object, MaxAttributed)
		if err != nil {
			return err
		}
		if len(refs) == 0 {
			c.branch("intent.unplaced")
			return fmt.Errorf("%s: %w: no ref names it", what, ErrMoved)
		}
		var b batch
		b.when(metastore.At(IntentKey(object), version), metastore.Exists(refs[0].Key))
		b.del(IntentKey(object))
		if !whole {
			a := newArms()
			for _, r := range refs {
				a.addRef(object, r.Stream, r.Last, more)
			}
			if err := c.armReaps(ctx, &b, a); err != nil {
				return err
			}
		}
		_, maybe, err := c.commit(ctx, what, b.done())
		if !errors.Is(err, metastore.ErrConflict) {
			return err
		}
		in, ok, rerr := c.ReadIntent(ctx, object)
		switch {
		case rerr != nil:
			return rerr
		case !ok && maybe:
			c.branch("intent.resolve.twin")
			return nil
		case !ok || in.Version != version:
			return fmt.Errorf("%s: %w", what, ErrIntentLost)
		}
		c.branch("intent.resolve.conflict")
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

// Condemn tells an intent's publisher that it came too late: every swap is
// conditional on the intent's version, so that a slow publisher and the orphan
// duty cannot both win.
//
// Condition: the intent is at the version judged. Effect: it is rewritten, condemned; it stands. The
// version returned is what the resolve must name. A late twin fails on the version.
func (c *Catalog) Condemn(ctx context.Context, in IntentAt) (metastore.Version, error) {
	what := "condemning " + in.Object
	v := in.Intent
	v.Condemned, v.Nonce = true, c.clk.Rand()
	var b batch
	b.when(metastore.At(IntentKey(in.Object), in.Version))
	b.put(IntentKey(in.Object), v.encode())
	ver, maybe, err := c.commit(ctx, what, b.done())
	if err == nil {
		return ver, nil
	}
	if !errors.Is(err, metastore.ErrConflict) {
		return 0, err
	}
	if maybe {
		got, ok, err := c.ReadIntent(ctx, in.Object)
		if err != nil {
			return 0, err
		}
		if ok && got.Nonce == v.Nonce {
			c.branch("condemn.twin")
			return got.Version, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", what, ErrMoved)
}

// ResolveCondemned ends the intent of an object that was deleted, at the version
// that the condemnation gave. If it was armed anew meanwhile it stands: ErrMoved.
//
// While the bucket keeps NotAfter nothing is lost without the condition, which is why no mutant drops it. After the
// condemnation only GiveUp and a late twin of the announcement write the key, and no swap is conditional on a version of
// theirs while a PUT may yet land: every try of the announcement has one birth and one NotAfter, and the
// orphan grace, counted from that birth, exceeds job deadline + put horizon + clock skew (where the horizon is 0 the
// intent is busy, or the chain alive, until the PUT has returned). No key is announced for another object. So what a newer intent
// names was deleted before this, and whoever judges it finds nothing. The condition is the second line, for a bucket or a
// clock that breaks its bound: there the newer intent is the only watcher of an object that came too late.
func (c *Catalog) ResolveCondemned(ctx context.Context, object string, version metastore.Version) error {
	return c.deleteAt(ctx, "resolving the condemned intent of "+object, IntentKey(object), version)
}

// GiveUp arms an object's intent anew, condemned: a publisher that PUT and then
// found its intent condemned or gone does so, and never swaps to the object. The orphan duty,
// which may have looked before the PUT, looks again.
//
// Condition: the intent is as just read. Effect: it stands, condemned, born now; a bundle's keeps its
// chain and slot. A late twin leaves an intent that the orphan duty resolves, and no more.
func (c *Catalog) GiveUp(ctx context.Context, object string) error {
	what := "giving up " + object
	c.branch("publish.given.up")
	for round := 0; ; round++ {
		in, _, err := c.ReadIntent(ctx, object)
		if err != nil {
			return err
		}
		v := newIntent(object)
		v.Birth, v.Condemned, v.Nonce = unixMS(c.clk.Now()), true, c.clk.Rand()
		var b batch
		b.when(metastore.At(IntentKey(object), in.Version))
		b.put(IntentKey(object), v.encode())
		if _, _, err = c.commit(ctx, what, b.done()); !errors.Is(err, metastore.ErrConflict) {
			return err
		}
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

// deleteAt deletes one marker at the version judged. An absent key counts as
// resolved; another version is ErrMoved: someone armed the same key anew, and it stands.
func (c *Catalog) deleteAt(ctx context.Context, what, key string, version metastore.Version) error {
	var b batch
	b.when(metastore.At(key, version))
	b.del(key)
	return c.resolveBatch(ctx, what, key, b)
}

// resolveBatch commits a batch that deletes the marker key at the version judged,
// among its conditions. A conflict with the key gone counts as resolved.
func (c *Catalog) resolveBatch(ctx context.Context, what, key string, b batch) error {
	_, _, err := c.commit(ctx, what, b.done())
	if !errors.Is(err, metastore.ErrConflict) {
		return err
	}
	recs, rerr := c.store.Get(ctx, key)
	if rerr != nil {
		return fmt.Errorf("%s: %w", what, rerr)
	}
	if !recs[0].Exists() {
		return nil
	}
	c.branch("resolve.moved")
	return fmt.Errorf("%s: %w", what, ErrMoved)
}

// Discard resolves a marker whose key does not parse: nobody could ever run it.
func (c *Catalog) Discard(ctx context.Context, key string, version metastore.Version) error {
	return c.deleteAt(ctx, "discarding "+key, key, version)
}

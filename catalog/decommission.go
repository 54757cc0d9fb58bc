package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// ErrNoStar: no star of that name ever minted a chain.
var ErrNoStar = errors.New("no such star")

// ErrStarLive: the star runs, or its session has not ended yet.
var ErrStarLive = errors.New("the star is live: stop it first")

// Decommission retires a star's name for good: it can never mint again.
//
// Conditions: the registration, the route, which is absent, and chain/{star} are as read. So no mint
// comes between: it moves chain/{star} and is itself conditional on the registration.
// Effects: the registration is retired; a settle marker whose subject is the star is armed for now.
//
// A crash before it leaves the star as it was. After it the star's chains settle, trim and retire by
// their own settle markers, as those of any star that is gone; the star's marker waits for that, and
// stands until what a delayed PUT may have left is swept. A late twin fails on the registration.
//
// Of a star that is retired already nothing is written, and already is true. ErrNoStar, ErrStarLive:
// nothing was written either.
func (c *Catalog) Decommission(ctx context.Context, star string) (already bool, err error) {
	if err := CheckNodeName(star); err != nil {
		return false, err
	}
	what := "decommissioning star " + star
	lost := false
	defer func() { err = unsettled(lost, err) }()
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, StarKey(star), RouteKey(star), ChainHeadKey(star))
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		if !recs[0].Exists() {
			return false, fmt.Errorf("%s: %w", what, ErrNoStar)
		}
		v, err := DecodeStar(recs[0].Value)
		switch {
		case err != nil:
			return false, fmt.Errorf("%s: %s: %w", what, recs[0].Key, err)
		case v.Retired:
			// By a twin of this, perhaps: the outcome is the same.
			return !lost, nil
		case recs[1].Exists():
			return false, fmt.Errorf("%s: %w", what, ErrStarLive)
		}
		v.Retired = true
		var b batch
		for _, rec := range recs {
			b.when(metastore.At(rec.Key, rec.Version))
		}
		b.put(StarKey(star), v.encode())
		b.put(DueKey(Settle, uint64(unixMS(c.clk.Now())), star), SweepMarker{}.encode())
		_, maybe, err := c.commit(ctx, what, b.done())
		if !errors.Is(err, metastore.ErrConflict) {
			return false, err
		}
		lost = lost || maybe
		c.branch("decommission.conflict")
		if err := c.pause(ctx, round); err != nil {
			return false, err
		}
	}
}

// StarAt is a star's registration as read; Version 0 means that there is none.
type StarAt struct {
	Name    string
	Star    Star
	Version metastore.Version
}

// ReadStar reads a star's registration.
func (c *Catalog) ReadStar(ctx context.Context, star string) (StarAt, error) {
	recs, err := c.store.Get(ctx, StarKey(star))
	if err != nil {
		return StarAt{}, fmt.Errorf("registration of star %s: %w", star, err)
	}
	if !recs[0].Exists() {
		return StarAt{Name: star}, nil
	}
	v, err := DecodeStar(recs[0].Value)
	if err != nil {
		return StarAt{}, fmt.Errorf("%s: %w", recs[0].Key, err)
	}
	return StarAt{star, v, recs[0].Version}, nil
}

// HasChains tells whether a star has a chain that is not retired.
func (c *Catalog) HasChains(ctx context.Context, star string) (bool, error) {
	page, err := c.scan(ctx, metastore.Prefix(ChainPrefix(star)), 1)
	if err != nil {
		return false, fmt.Errorf("chains of star %s: %w", star, err)
	}
	return len(page.Records) > 0, nil
}

// Unnamed returns those of the objects that no intent announces and no ref names.
//
// Intents are read before refs: an absorb, or a swap and the resolve behind it, that comes in between moves an object from
// the one to the other.
func (c *Catalog) Unnamed(ctx context.Context, objects []string) ([]string, error) {
	keys := make([]string, len(objects))
	for i, o := range objects {
		keys[i] = IntentKey(o)
	}
	intents, err := c.get(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading intents: %w", err)
	}
	var left []string
	for i, rec := range intents {
		if !rec.Exists() {
			left = append(left, objects[i])
		}
	}
	var out []string
	most := c.store.Limits().MaxOps
	for len(left) > 0 {
		n := min(most, len(left))
		ranges := make([]metastore.Range, n)
		for i, o := range left[:n] {
			ranges[i] = metastore.Prefix(RefPrefix(o))
		}
		first, err := c.store.Peek(ctx, ranges)
		if err != nil {
			return nil, fmt.Errorf("reading refs: %w", err)
		}
		for i, rec := range first {
			if !rec.Exists() {
				out = append(out, left[i])
			}
		}
		left = left[n:]
	}
	return out, nil
}

// RearmSweep moves a retired star's settle marker ahead, by at least MinRearm.
//
// Condition: the marker is at the version judged. A late twin fails on it.
func (c *Catalog) RearmSweep(ctx context.Context, m MarkerAt, v SweepMarker, delay time.Duration) error {
	delay = max(delay, MinRearm)
	v.Delay = delay.Milliseconds()
	key := DueKey(Settle, uint64(unixMS(c.clk.Now().Add(delay))), m.Due.Subject)
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version))
	b.put(key, v.encode())
	b.del(m.Due.Key)
	return c.resolveBatch(ctx, "re-arming "+m.Due.Key, m.Due.Key, b)
}

// ResolveSweep resolves the settle marker of a star of which nothing is left in the bucket, and notes that in the
// registration. Where the star is not retired the marker is nobody's, for retiring and arming are
// one commit: it goes, and nothing is noted.
//
// Conditions: marker and registration are as read. A crash before it has the sweep repeated. A
// late twin fails on the marker.
func (c *Catalog) ResolveSweep(ctx context.Context, m MarkerAt, star StarAt) error {
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(StarKey(star.Name), star.Version))
	b.del(m.Due.Key)
	if star.Star.Retired {
		v := star.Star
		v.Swept = true
		b.put(StarKey(star.Name), v.encode())
	}
	return c.resolveBatch(ctx, "resolving "+m.Due.Key, m.Due.Key, b)
}

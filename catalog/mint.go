package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/metastore"
)

// maxAnnounced is how many earlier epochs one mint re-announces in its own commit.
const maxAnnounced = 8

// ripenOps is what one of them adds to the commit.
const ripenOps = 3

// MintRequest is what a star mints a chain with.
type MintRequest struct {
	Star        string
	Incarnation uint64 // of the process, drawn once at its start
	Previous    uint64 // the epoch that this process minted last; 0: none yet
	Session     metastore.SessionID
	Address     string
	Window      uint64 // W
}

// Mint starts a new epoch of a star.
//
// Conditions: the registration is as read and not retired; chain/{star} is as read;
// the trim record of each re-announced epoch is as read; cluster/restored is as read, so that none is minted across the beginning of a time line. Effects: chain/{star} moves to
// the new epoch, the first or, in a store that was restored from a backup, one above all that the star may have minted
// in the lost time line; the registration (at the first mint), the chain and trim records
// and the chain's settle marker appear; the route names the epoch, under the
// session; the settle markers of the newest 8 epochs not retired yet move to now.
//
// A crash before it leaves nothing. After it the chain stands empty, watched by its
// settle marker, which lives as long as the chain: whatever slot is PUT later has
// that watcher already. Older epochs than the newest 8 are left to [Catalog.Reannounce], best
// effort, since their markers stand anyway: so a star with any number of old
// epochs can always mint, and does not wait for them. A late twin fails on chain/{star}, which every mint moves.
//
// ErrReplaced: a newer epoch of another incarnation stands; the process must stop.
// ErrRetired: the star was decommissioned. ErrSessionGone: open another session. ErrBeginning: see [Catalog.BeginTimeline].
func (c *Catalog) Mint(ctx context.Context, req MintRequest) (ChainID, error) {
	if err := CheckNodeName(req.Star); err != nil {
		return ChainID{}, err
	}
	what := "minting a chain of star " + req.Star
	nonce := c.clk.Rand()
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, StarKey(req.Star), ChainHeadKey(req.Star), RestoredKey)
		if err != nil {
			return ChainID{}, fmt.Errorf("%s: %w", what, err)
		}
		if err := begun(recs[2]); err != nil {
			return ChainID{}, fmt.Errorf("%s: %w", what, err)
		}
		star, head := Star{Created: unixMS(c.clk.Now())}, ChainHead{}
		if recs[0].Exists() {
			if star, err = DecodeStar(recs[0].Value); err != nil {
				return ChainID{}, fmt.Errorf("%s: %w", what, err)
			}
		}
		if recs[1].Exists() {
			if head, err = DecodeChainHead(recs[1].Value); err != nil {
				return ChainID{}, fmt.Errorf("%s: %w", what, err)
			}
		} else if recs[2].Exists() {
			restored, err := DecodeRestored(recs[2].Value)
			if err != nil {
				return ChainID{}, fmt.Errorf("%s: %s: %w", what, RestoredKey, err)
			}
			head.Epoch = restored.Epoch
		}
		switch {
		case head.Nonce == nonce && head.Incarnation == req.Incarnation:
			c.branch("mint.twin")
			return ChainID{req.Star, head.Epoch}, nil
		case star.Retired:
			return ChainID{}, fmt.Errorf("%s: %w", what, ErrRetired)
		case req.Previous != 0 && head.Epoch > req.Previous && head.Incarnation != req.Incarnation:
			return ChainID{}, fmt.Errorf("%s: %w: it holds epoch %d, this process held %d", what, ErrReplaced, head.Epoch, req.Previous)
		}
		chain := ChainID{req.Star, head.Epoch + 1}
		now := c.clk.Now()
		var newest []trimAt // of those whose marker is not ripe yet
		if err := c.unretired(ctx, req.Star, head.Epoch, func(t trimAt) error {
			if !t.ripe(now) {
				newest = append(newest, t)
				newest = newest[max(len(newest)-maxAnnounced, 0):]
			}
			return nil
		}); err != nil {
			return ChainID{}, fmt.Errorf("%s: %w", what, err)
		}
		var b batch
		b.when(metastore.At(StarKey(req.Star), recs[0].Version), metastore.At(ChainHeadKey(req.Star), recs[1].Version), metastore.At(RestoredKey, recs[2].Version))
		if !recs[0].Exists() {
			b.put(StarKey(req.Star), star.encode())
		}
		b.put(ChainHeadKey(req.Star), ChainHead{chain.Epoch, req.Incarnation, nonce}.encode())
		b.put(ChainKey(chain), Chain{State: ChainOpen, Window: req.Window}.encode())
		settle := DueKey(Settle, uint64(unixMS(now.Add(c.timing.SettleRecheck))), chain.String())
		b.put(TrimKey(chain), Trim{SettleKey: settle}.encode())
		b.put(settle, SettleMarker{}.encode())
		b.write(metastore.PutUnder(req.Session, RouteKey(req.Star), Route{req.Address, chain.Epoch}.encode()))
		for _, t := range slices.Backward(newest) {
			if len(b.ops)+ripenOps > c.store.Limits().MaxOps {
				break
			}
			t.ripenSettle(&b, now)
		}
		_, _, err = c.commit(ctx, what, b.done())
		if err == nil {
			return chain, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return ChainID{}, err
		}
		c.branch("mint.conflict")
		if err := c.pause(ctx, round); err != nil {
			return ChainID{}, err
		}
	}
}

// Reannounce moves the settle markers of the star's epochs before chain to now, each in a commit of
// its own, so that they are settled soon: what the mint of chain had no room for. It is
// best effort, since the markers stand and ripen by themselves: one that moved meanwhile, or whose commit failed, is left as it is.
//
// Each commit is conditional on the trim record that names the marker, and changes it: a late
// twin fails. It returns the error of a read, or ctx's.
func (c *Catalog) Reannounce(ctx context.Context, chain ChainID) error {
	what := "re-announcing the epochs before " + chain.String()
	err := c.unretired(ctx, chain.Star, chain.Epoch-1, func(t trimAt) error {
		var b batch
		if !t.ripenSettle(&b, c.clk.Now()) {
			return nil
		}
		if _, _, err := c.commit(ctx, what, b.done()); err != nil {
			c.branch("mint.announce.failed")
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// trimAt is a trim record as read.
type trimAt struct {
	chain   ChainID
	trim    Trim
	version metastore.Version
}

// unretired hands f the trim records of a star's epochs up to newest that are not
// retired, oldest first. An unreadable one is left out: its marker stands.
func (c *Catalog) unretired(ctx context.Context, star string, newest uint64, f func(trimAt) error) error {
	r := metastore.Range{Start: "trim/" + star + "/", End: TrimKey(ChainID{star, newest}) + "\x00"}
	return c.walk(ctx, r, 256, func(rec metastore.Record) (bool, error) {
		epoch, err := parseHex16(rec.Key[len("trim/")+len(star)+1:])
		if err != nil {
			return true, nil
		}
		if t, err := DecodeTrim(rec.Value); err == nil {
			return true, f(trimAt{ChainID{star, epoch}, t, rec.Version})
		}
		return true, nil
	})
}

// ripe tells whether the chain's settle marker is ripe already, or can't be moved.
func (t trimAt) ripe(now time.Time) bool {
	due, err := ParseDue(t.trim.SettleKey)
	return err != nil || due.Order <= uint64(unixMS(now))
}

// ripenSettle adds to b the move of the chain's settle marker to now, conditional
// on the trim record that names it. An already ripe marker is left alone, and false returned.
func (t trimAt) ripenSettle(b *batch, now time.Time) bool {
	if t.ripe(now) {
		return false
	}
	ready := uint64(unixMS(now))
	key := DueKey(Settle, ready, t.chain.String())
	b.when(metastore.At(TrimKey(t.chain), t.version))
	b.append(metastore.Delete(t.trim.SettleKey))
	b.append(metastore.Put(key, SettleMarker{}.encode()))
	nt := t.trim
	nt.SettleKey = key
	b.append(metastore.Put(TrimKey(t.chain), nt.encode()))
	return true
}

// DropRoute ends a chain's liveness at a clean stop: its route goes and its settle
// marker moves to now, in one commit.
//
// Conditions: the route names this epoch, at the version read; the trim record is
// as read. A crash before it is a crash of the star: the session's end drops the
// route and the settle marker ripens by itself. A late twin fails on the route.
func (c *Catalog) DropRoute(ctx context.Context, chain ChainID) error {
	what := "dropping the route of " + chain.String()
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, RouteKey(chain.Star), TrimKey(chain))
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !recs[0].Exists() {
			return nil
		}
		if route, err := DecodeRoute(recs[0].Value); err != nil || route.Epoch != chain.Epoch {
			return err
		}
		var b batch
		b.when(metastore.At(RouteKey(chain.Star), recs[0].Version))
		b.del(RouteKey(chain.Star))
		if recs[1].Exists() {
			t, err := DecodeTrim(recs[1].Value)
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			trimAt{chain, t, recs[1].Version}.ripenSettle(&b, c.clk.Now())
		}
		if _, _, err = c.commit(ctx, what, b.done()); !errors.Is(err, metastore.ErrConflict) {
			return err
		}
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

// HoldsRoute tells whether the star's route names this chain's epoch: whether the
// chain's star is alive. Only the mint of that epoch writes such a route, under the
// star's session.
func (c *Catalog) HoldsRoute(ctx context.Context, chain ChainID) (bool, error) {
	recs, err := c.store.Get(ctx, RouteKey(chain.Star))
	if err != nil {
		return false, fmt.Errorf("reading the route of %s: %w", chain, err)
	}
	if !recs[0].Exists() {
		return false, nil
	}
	route, err := DecodeRoute(recs[0].Value)
	return err == nil && route.Epoch == chain.Epoch, err
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// Dead tells whether a chain's star is gone for good, as far as the records say,
// and what a fence must be conditional on.
type Dead struct {
	Dead  bool
	conds []metastore.Cond
}

// ReadDead judges a chain's liveness: it is alive while its star's route names its
// epoch. Dead are a chain whose route is absent, or names another epoch, and a chain
// whose star has minted a newer one.
func (c *Catalog) ReadDead(ctx context.Context, id ChainID) (Dead, error) {
	recs, err := c.store.Get(ctx, RouteKey(id.Star), ChainHeadKey(id.Star))
	if err != nil {
		return Dead{}, fmt.Errorf("liveness of %s: %w", id, err)
	}
	if recs[1].Exists() {
		head, err := DecodeChainHead(recs[1].Value)
		if err != nil {
			return Dead{}, fmt.Errorf("%s: %w", recs[1].Key, err)
		}
		if head.Epoch > id.Epoch {
			// Epochs never go back: no condition is needed any more.
			return Dead{Dead: true}, nil
		}
	}
	if recs[0].Exists() {
		route, err := DecodeRoute(recs[0].Value)
		if err != nil {
			return Dead{}, fmt.Errorf("%s: %w", recs[0].Key, err)
		}
		if route.Epoch == id.Epoch {
			return Dead{}, nil
		}
	}
	return Dead{Dead: true, conds: []metastore.Cond{metastore.At(RouteKey(id.Star), recs[0].Version)}}, nil
}

// Fence is a run of the settle duty on a dead chain.
type Fence struct {
	Chain    ChainAt
	Nonce    uint64
	NotAfter time.Time // of this run's seals; zero where the put horizon is 0
}

// TakeFence begins a run of the settle duty on a dead chain: an open one becomes
// fencing, so that its star can absorb no more; a fencing or sealed one gets this
// run's nonce, so that a run that slept meanwhile can neither absorb nor, past its NotAfter, seal.
//
// Conditions: the chain record is as read; of an open chain also the route, absent or of
// another epoch at the version read, unless chain/{star} names a newer epoch. NotAfter
// counts from a clock read before the first try. A late twin fails on the chain record.
//
// A crash after it leaves a fencing chain, which its settle marker watches; the
// next run takes it over. ErrMoved: judge again.
func (c *Catalog) TakeFence(ctx context.Context, at ChainAt, dead Dead) (Fence, error) {
	what := "fencing " + at.ID.String()
	start := c.clk.Now()
	f := Fence{Chain: at, Nonce: c.clk.Rand(), NotAfter: c.timing.notAfter(start)}
	v := at.Chain
	var conds []metastore.Cond
	if v.State == ChainOpen {
		v.State = ChainFencing
		conds = dead.conds
	}
	v.SettleNonce = f.Nonce
	now, err := c.commitChain(ctx, what, "fence.twin", at, v, func(now Chain) bool { return now.SettleNonce == f.Nonce }, conds...)
	if err != nil {
		return Fence{}, err
	}
	f.Chain = now
	return f, nil
}

// commitChain gives a chain's record a new value, at the version read and under further conditions. Where a try's answer was
// lost and a later one conflicts, mine tells of the record as it is then whether that was this call's own twin; twin
// is that branch's name. ErrMoved: it was not.
func (c *Catalog) commitChain(ctx context.Context, what, twin string, at ChainAt, v Chain, mine func(now Chain) bool, conds ...metastore.Cond) (ChainAt, error) {
	var b batch
	b.when(metastore.At(ChainKey(at.ID), at.Version))
	b.when(conds...)
	b.put(ChainKey(at.ID), v.encode())
	ver, maybe, err := c.commit(ctx, what, b.done())
	if err == nil {
		return ChainAt{at.ID, v, ver}, nil
	}
	if !errors.Is(err, metastore.ErrConflict) {
		return ChainAt{}, err
	}
	if maybe {
		now, err := c.ReadChain(ctx, at.ID)
		if err != nil {
			return ChainAt{}, unsettled(maybe, err)
		}
		if now.Version != 0 && mine(now.Chain) {
			c.branch(twin)
			return now, nil
		}
	}
	return ChainAt{}, fmt.Errorf("%s: %w", what, ErrMoved)
}

// AnnounceSeals notes, before a run of the settle duty puts seals, up to which slot it will: the chain's
// retirement deletes as far as any run has put one. Runs may differ in where they
// find the first empty slot, since one may have read a slot, or a seal of an earlier run, damaged, and gone on; and a seal of a run that
// is dead may land late.
//
// Condition: the chain record is as this run left it. Effect: the window's end moves up, never back. A crash
// after it leaves a fencing chain, as before. A late twin fails on the chain record. ErrMoved: another run took over.
func (c *Catalog) AnnounceSeals(ctx context.Context, at ChainAt, windowEnd uint64) (ChainAt, error) {
	if windowEnd <= at.Chain.WindowEnd {
		return at, nil
	}
	what := "announcing the seals of " + at.ID.String()
	v := at.Chain
	v.WindowEnd = windowEnd
	return c.commitChain(ctx, what, "seals.twin", at, v, func(now Chain) bool { return now == v })
}

// SealChain marks a fenced chain sealed: nothing can be committed to it any more.
//
// The caller has put the seals of [seal, windowEnd) if-absent and absorbed what lay
// below. Condition: the chain record is as this run left it. Effects: state, seal, window's
// end (or that of an earlier run, which has announced seals further up) and the time. A late twin fails on the chain record. ErrMoved: another run took over.
func (c *Catalog) SealChain(ctx context.Context, at ChainAt, seal, windowEnd uint64) (ChainAt, error) {
	what := "sealing " + at.ID.String()
	v := at.Chain
	v.State, v.Seal, v.WindowEnd, v.SealedAt = ChainSealed, seal, max(v.WindowEnd, windowEnd), unixMS(c.clk.Now())
	return c.commitChain(ctx, what, "seal.twin", at, v, func(now Chain) bool { return now.State == ChainSealed && now.SettleNonce == v.SettleNonce })
}

// RearmSettle moves a chain's settle marker ahead, by at least MinRearm. It touches
// only the marker and the trim record, so that a live chain's absorbs do not meet it.
//
// Conditions: the marker is at the version judged; the trim record is as read. A late twin fails on
// the marker. Where the trim record names another marker, this one is a leftover of
// nobody's: it is resolved. Where it is gone, the chain is retired: likewise.
func (c *Catalog) RearmSettle(ctx context.Context, m MarkerAt, id ChainID, delay time.Duration) error {
	what := "re-arming the settle marker of " + id.String()
	for round := 0; ; round++ {
		trim, err := c.ReadTrim(ctx, id)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if trim.Version == 0 || trim.Trim.SettleKey != m.Due.Key {
			return c.resolveStraySettle(ctx, what, m, id, trim)
		}
		delay = max(delay, MinRearm)
		key := DueKey(Settle, uint64(unixMS(c.clk.Now().Add(delay))), id.String())
		t := trim.Trim
		t.SettleKey = key
		var b batch
		b.when(metastore.At(m.Due.Key, m.Version), metastore.At(TrimKey(id), trim.Version))
		if key != m.Due.Key {
			b.del(m.Due.Key)
		}
		b.put(key, SettleMarker{Delay: delay.Milliseconds()}.encode())
		b.put(TrimKey(id), t.encode())
		_, _, err = c.commit(ctx, what, b.done())
		if !errors.Is(err, metastore.ErrConflict) {
			return err
		}
		recs, err := c.store.Get(ctx, m.Due.Key)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if recs[0].Version != m.Version {
			return fmt.Errorf("%s: %w", what, ErrMoved)
		}
		c.branch("settle.rearm.conflict")
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

// resolveStraySettle removes a settle marker that the chain's trim record does not
// name, on condition that it still does not.
func (c *Catalog) resolveStraySettle(ctx context.Context, what string, m MarkerAt, id ChainID, trim TrimAt) error {
	c.branch("settle.stray")
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(TrimKey(id), trim.Version))
	b.del(m.Due.Key)
	return c.resolveBatch(ctx, what, m.Due.Key, b)
}

// Retire ends a sealed chain: its records and its settle marker go.
//
// The caller has deleted every object from the trimmed cursor to the window's end,
// after the trimmed cursor reached the seal and the retire grace had passed since the sealing,
// so that no PUT to the chain can land any more. (Where a damaged slot ended the absorb, the trimmed cursor
// reaches the checkpoint and no further; the rest goes with the window.) Conditions: chain record, trim record and
// settle marker are as read. A crash before it leaves all three: the next run deletes
// what is gone already, and retires. A late twin fails on them.
func (c *Catalog) Retire(ctx context.Context, m MarkerAt, at ChainAt, trim TrimAt) error {
	what := "retiring " + at.ID.String()
	var b batch
	b.when(metastore.At(ChainKey(at.ID), at.Version), metastore.At(TrimKey(at.ID), trim.Version), metastore.At(m.Due.Key, m.Version))
	b.del(ChainKey(at.ID))
	b.del(TrimKey(at.ID))
	b.del(m.Due.Key)
	// Not the marker but the chain record tells a twin of this, or another member's, from
	// a marker that moved: the chain then stands.
	return c.resolveBatch(ctx, what, ChainKey(at.ID), b)
}

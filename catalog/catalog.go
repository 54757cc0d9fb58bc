// Package catalog is the keyspace: every key and value that Nova keeps in its
// metadata store, and every transition between them as one atomic commit.
//
// Whoever wants to know what a crash can leave behind reads this package alone.
// An object of the bucket is watched by a ref that names it, by its intent, by a
// due marker, or, a slot, by its chain; liveness changes only through four
// primitives, which every duty calls and none re-implements:
//
//   - [Catalog.Absorb]: released slots become spans.
//   - [Catalog.Swap]: spans of one object become spans of another.
//   - [Catalog.Kill]: a span goes.
//   - [Catalog.ResolveIntent]: a published object no longer needs its intent.
//
// # Lost answers
//
// A commit whose answer was lost is repeated, the very same batch, until the answer is
// definite. That settles it because every transition here changes a key that it is
// conditional on; the few that do not say in their comment why a late twin of
// theirs is harmless. A conflict after a lost answer may be one's own twin: each
// transition says how it tells.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
)

var (
	// ErrFenced: the chain is no longer the caller's to absorb.
	ErrFenced = errors.New("chain fenced")
	// ErrReplaced: another incarnation minted a newer epoch under the same name.
	ErrReplaced = errors.New("replaced by another process of the same name")
	// ErrRetired: the star's name was decommissioned and cannot mint.
	ErrRetired = errors.New("star is retired")
	// ErrIntentLost: the intent was condemned or is gone; its publisher must give
	// the object up.
	ErrIntentLost = errors.New("intent condemned or gone")
	// ErrMoved: the record is no longer as the caller judged it; judge again.
	ErrMoved = errors.New("record moved on")
	// ErrNoStream: no active stream of that name or id.
	ErrNoStream = errors.New("no such stream")
	// ErrLeaseHeld: another member holds the lease.
	ErrLeaseHeld = errors.New("lease held by another member")
)

// Catalog runs the transitions of one keyspace. It has no state of its own and is
// safe for concurrent use.
type Catalog struct {
	store  metastore.Store
	clk    clock.Clock
	timing Timing
	branch func(name string)
}

// New returns the catalog of a store. branch, if not nil, is told the name of each
// rare branch taken (a conflict, a lost answer found landed, a swap dropped), for
// metrics and for the simulator's coverage marks.
func New(store metastore.Store, clk clock.Clock, timing Timing, branch func(name string)) *Catalog {
	if branch == nil {
		branch = func(string) {}
	}
	return &Catalog{store: store, clk: clk, timing: timing, branch: branch}
}

// Store returns the store beneath, for reads.
func (c *Catalog) Store() metastore.Store { return c.store }

// Timing returns the timing in force.
func (c *Catalog) Timing() Timing { return c.timing }

const (
	retryFirst = 10 * time.Millisecond
	retryMost  = time.Second
)

// commit repeats b until its outcome is definite, or ctx ends, which leaves it
// unknown. maybe tells that an earlier try was lost: a conflict may then be one's own twin.
func (c *Catalog) commit(ctx context.Context, what string, b metastore.Batch) (v metastore.Version, maybe bool, err error) {
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		v, err := c.store.Commit(ctx, b)
		switch {
		case err == nil:
			return v, maybe, nil
		case maybe && errors.Is(err, metastore.ErrUnavailable):
			// This try did nothing; the lost one may have.
		case !errors.Is(err, metastore.ErrUnknown):
			err = fmt.Errorf("%s: %w", what, err)
			if errors.Is(err, metastore.ErrConflict) {
				return 0, maybe, err
			}
			return 0, maybe, unsettled(maybe, err)
		}
		maybe = true
		c.branch("commit.lost")
		if serr := c.clk.Sleep(ctx, clock.Jitter(c.clk, delay)); serr != nil {
			return 0, maybe, unsettled(maybe, fmt.Errorf("%s: %w (%w)", what, err, serr))
		}
	}
}

// unsettled makes the error with which a transition ends also an ErrUnknown where a try of it was lost: that one may
// have landed, or may land yet, whatever the last try or the read after it says.
func unsettled(lost bool, err error) error {
	if err == nil || !lost || errors.Is(err, metastore.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w (an earlier try was lost: %w)", err, metastore.ErrUnknown)
}

// ErrShortPage: a page of a range holds nothing and says that there is more. It is an ErrUnavailable of the store.
var ErrShortPage = fmt.Errorf("an empty page that says more: %w", metastore.ErrUnavailable)

// scan reads a page of a range. One that holds nothing and says that there is more tells nothing: it is a
// failed read, never "nothing is there", on which deletions would rest.
func (c *Catalog) scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	page, err := c.store.Scan(ctx, r, limit)
	if err == nil && page.More && len(page.Records) == 0 {
		c.branch("scan.empty")
		return metastore.Page{}, ErrShortPage
	}
	return page, err
}

// pause waits before the next round of a transition that met a conflict: not at all after the
// first, then longer and longer, with jitter, so that two contenders part.
func (c *Catalog) pause(ctx context.Context, round int) error {
	if round == 0 {
		return ctx.Err()
	}
	return c.clk.Sleep(ctx, clock.Jitter(c.clk, min(retryFirst<<min(round, 8), retryMost)))
}

// get reads keys at one revision where they fit into one call, else in several.
func (c *Catalog) get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	most := c.store.Limits().MaxOps
	if len(keys) <= most {
		return c.store.Get(ctx, keys...)
	}
	out := make([]metastore.Record, 0, len(keys))
	for len(keys) > 0 {
		n := min(most, len(keys))
		recs, err := c.store.Get(ctx, keys[:n]...)
		if err != nil {
			return nil, err
		}
		out = append(out, recs...)
		keys = keys[n:]
	}
	return out, nil
}

// batch collects the conditions and operations of one commit. A key is written
// once: a second put replaces the first.
type batch struct {
	conds []metastore.Cond
	ops   []metastore.Op
	bytes int
}

func (b *batch) when(conds ...metastore.Cond) { b.conds = append(b.conds, conds...) }

func (b *batch) write(op metastore.Op) {
	for i := range b.ops {
		if b.ops[i].Key == op.Key {
			b.bytes += len(op.Value) - len(b.ops[i].Value)
			b.ops[i] = op
			return
		}
	}
	b.bytes += len(op.Key) + len(op.Value)
	b.ops = append(b.ops, op)
}

func (b *batch) put(key string, value []byte) { b.write(metastore.Put(key, value)) }

// del removes a key, unless the batch puts it: a move of a marker onto its own
// key is one put.
func (b *batch) del(key string) {
	for i := range b.ops {
		if b.ops[i].Key == key {
			return
		}
	}
	b.write(metastore.Delete(key))
}

// append adds an operation whose key is known to be new, without the search.
func (b *batch) append(op metastore.Op) {
	b.bytes += len(op.Key) + len(op.Value)
	b.ops = append(b.ops, op)
}

func (b *batch) done() metastore.Batch { return metastore.Batch{Conds: b.conds, Ops: b.ops} }

// checkFormat refuses a cluster/format that this program does not read.
func checkFormat(rec metastore.Record) error {
	f, err := DecodeFormat(rec.Value)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", FormatKey, err)
	case f.Version > FormatVersion:
		return fmt.Errorf("%s: %w: it has format %d, this program reads format %d: %w", FormatKey, ErrCorruptValue, f.Version, FormatVersion, ErrFutureFormat)
	case f.Version != FormatVersion || f.Shards != Shards:
		return fmt.Errorf("%s: %w: it has format %d with %d shards, this program reads format %d with %d",
			FormatKey, ErrCorruptValue, f.Version, f.Shards, FormatVersion, Shards)
	}
	return nil
}

// CheckFormat refuses a keyspace of another format, or of none. Errors: ErrFutureFormat, ErrCorruptValue.
func (c *Catalog) CheckFormat(ctx context.Context) error {
	recs, err := c.store.Get(ctx, FormatKey)
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", FormatKey, err)
	case !recs[0].Exists():
		return fmt.Errorf("%w: there is no %s: it is no store of Nova's, or an empty one", ErrCorruptValue, FormatKey)
	}
	return checkFormat(recs[0])
}

// EnsureFormat writes cluster/format at the first start and refuses a keyspace of another
// format, or of a time line that has not begun altogether (ErrBeginning). A late twin of its put finds the key, which is never deleted.
func (c *Catalog) EnsureFormat(ctx context.Context) error {
	for round := 0; ; round++ {
		recs, err := c.store.Get(ctx, FormatKey, RestoredKey)
		if err != nil {
			return fmt.Errorf("reading %s: %w", FormatKey, err)
		}
		if recs[0].Exists() {
			if err := checkFormat(recs[0]); err != nil {
				return err
			}
			return begun(recs[1])
		}
		var b batch
		b.when(metastore.Absent(FormatKey))
		b.put(FormatKey, Format{Version: FormatVersion, Shards: Shards}.encode())
		if _, _, err := c.commit(ctx, "writing "+FormatKey, b.done()); err != nil && !errors.Is(err, metastore.ErrConflict) {
			return err
		}
		if err := c.pause(ctx, round); err != nil {
			return err
		}
	}
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nova-store/nova/metastore"
)

// TrimAt is a trim record as read; Version 0 means that the chain is retired.
type TrimAt struct {
	Trim    Trim
	Version metastore.Version
}

// ReadTrim reads a chain's trim record.
func (c *Catalog) ReadTrim(ctx context.Context, chain ChainID) (TrimAt, error) {
	recs, err := c.store.Get(ctx, TrimKey(chain))
	if err != nil {
		return TrimAt{}, fmt.Errorf("trim record of %s: %w", chain, err)
	}
	if !recs[0].Exists() {
		return TrimAt{}, nil
	}
	t, err := DecodeTrim(recs[0].Value)
	if err != nil {
		return TrimAt{}, fmt.Errorf("%s: %w", recs[0].Key, err)
	}
	return TrimAt{t, recs[0].Version}, nil
}

// ChainAt is a chain record as read; Version 0 means that the chain is retired.
type ChainAt struct {
	ID      ChainID
	Chain   Chain
	Version metastore.Version
}

// ReadChain reads a chain record.
func (c *Catalog) ReadChain(ctx context.Context, id ChainID) (ChainAt, error) {
	recs, err := c.store.Get(ctx, ChainKey(id))
	if err != nil {
		return ChainAt{}, fmt.Errorf("chain %s: %w", id, err)
	}
	return decodeChainRecord(id, recs[0])
}

func decodeChainRecord(id ChainID, r metastore.Record) (ChainAt, error) {
	if !r.Exists() {
		return ChainAt{ID: id}, nil
	}
	v, err := DecodeChain(r.Value)
	if err != nil {
		return ChainAt{}, fmt.Errorf("%s: %w", r.Key, err)
	}
	return ChainAt{id, v, r.Version}, nil
}

// Frontier returns the first slot of a chain that is not known rewritten: the lowest
// standing batch marker's, or, where none stands, the checkpoint. Of a retired
// chain everything is past: MaxUint64.
//
// It reads the chain record *first*. In the other order an absorb could slip in
// between: the marker it arms is not seen, its checkpoint is, and an unsettled slot
// would be called settled. The checkpoint returned is the one already read.
func (c *Catalog) Frontier(ctx context.Context, id ChainID) (uint64, error) {
	chain, rewritten, err := c.readCursors(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("frontier of %s: %w", id, err)
	}
	if chain.Version == 0 {
		return math.MaxUint64, nil
	}
	// No marker stands below the rewritten cursor: starting there spares the store
	// the deleted ones.
	page, err := c.scan(ctx, metastore.Range{Start: BatchKey(id, rewritten), End: metastore.PrefixEnd(BatchPrefix(id))}, 1)
	if err != nil {
		return 0, fmt.Errorf("frontier of %s: %w", id, err)
	}
	if len(page.Records) == 0 {
		return chain.Chain.Checkpoint, nil
	}
	return parseHex16(page.Records[0].Key[len(BatchPrefix(id)):])
}

// readCursors reads a chain's record and its rewritten cursor at one revision.
func (c *Catalog) readCursors(ctx context.Context, id ChainID) (at ChainAt, rewritten uint64, err error) {
	recs, err := c.store.Get(ctx, ChainKey(id), TrimKey(id))
	if err != nil {
		return ChainAt{}, 0, err
	}
	if at, err = decodeChainRecord(id, recs[0]); err != nil || !recs[1].Exists() {
		return at, 0, err
	}
	trim, err := DecodeTrim(recs[1].Value)
	if err != nil {
		return ChainAt{}, 0, fmt.Errorf("%s: %w", recs[1].Key, err)
	}
	return at, trim.Rewritten, nil
}

// AdvanceTrim moves a chain's cursors up. One that would go back is left where it is.
//
// Condition: the trim record is as read. A late twin fails on it. Of a retired chain
// nothing is left to move: ErrMoved.
func (c *Catalog) AdvanceTrim(ctx context.Context, id ChainID, rewritten, trimmed uint64) (TrimAt, error) {
	what := "advancing the cursors of " + id.String()
	for round := 0; ; round++ {
		at, err := c.ReadTrim(ctx, id)
		if err != nil {
			return TrimAt{}, fmt.Errorf("%s: %w", what, err)
		}
		if at.Version == 0 {
			return TrimAt{}, fmt.Errorf("%s: %w: the chain is retired", what, ErrMoved)
		}
		t := at.Trim
		t.Rewritten = max(t.Rewritten, rewritten)
		t.Trimmed = max(t.Trimmed, trimmed)
		if t == at.Trim {
			return at, nil
		}
		var b batch
		b.when(metastore.At(TrimKey(id), at.Version))
		b.put(TrimKey(id), t.encode())
		v, _, err := c.commit(ctx, what, b.done())
		if err == nil {
			return TrimAt{t, v}, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return TrimAt{}, err
		}
		c.branch("trim.conflict")
		if err := c.pause(ctx, round); err != nil {
			return TrimAt{}, err
		}
	}
}

// MarkerAt is a marker as judged.
type MarkerAt struct {
	Due     Due
	Value   []byte
	Version metastore.Version
}

// OwedSince is from when on a marker of a queue ordered by time, or of denorm, has been owed: its ready
// time, or of a teardown, however often it was re-armed, the first.
func (m MarkerAt) OwedSince() time.Time {
	if m.Due.Queue == Teardown {
		if v, err := DecodeTeardownMarker(m.Value); err == nil {
			return time.UnixMilli(v.Ready)
		}
	}
	return m.Due.ReadyAt()
}

// ResolveMarker resolves a marker at the version judged. ErrMoved: it was armed anew.
func (c *Catalog) ResolveMarker(ctx context.Context, m MarkerAt) error {
	return c.deleteAt(ctx, "resolving "+m.Due.Key, m.Due.Key, m.Version)
}

// mergeTrimCheck returns what a trimcheck must say that takes the place of the one at
// rec: the larger end, and the bytes of both. An unreadable one may have been the last watcher of any slot below the
// checkpoint.
func (c *Catalog) mergeTrimCheck(ctx context.Context, id ChainID, rec metastore.Record, want TrimCheckMarker) (TrimCheckMarker, error) {
	if !rec.Exists() {
		return want, nil
	}
	if old, err := DecodeTrimCheckMarker(rec.Value); err == nil {
		return TrimCheckMarker{max(want.UpTo, old.UpTo), want.Bytes + old.Bytes}, nil
	}
	at, err := c.ReadChain(ctx, id)
	return TrimCheckMarker{max(want.UpTo, at.Chain.Checkpoint), want.Bytes}, err
}

// RearmTrimCheck moves a chain's trimcheck ahead, rounded up as when it was armed, so that
// the checks of a chain that is held back collapse into few. Where the new key already
// stands the larger end is kept.
//
// Conditions: the marker is at the version judged, the new key as read. A late twin fails on the marker.
func (c *Catalog) RearmTrimCheck(ctx context.Context, m MarkerAt, upTo uint64, delay time.Duration) error {
	what := "re-arming " + m.Due.Key
	key := DueKey(TrimCheck, readyAt(c.clk.Now(), max(delay, MinRearm)), m.Due.Subject)
	if key <= m.Due.Key {
		return fmt.Errorf("%s: %w: the clock went back", what, ErrMoved)
	}
	recs, err := c.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	id, err := ParseChainSubject(m.Due.Subject)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	old, _ := DecodeTrimCheckMarker(m.Value) // the caller has taken the end from it, or a careful one
	v, err := c.mergeTrimCheck(ctx, id, recs[0], TrimCheckMarker{upTo, old.Bytes})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var b batch
	b.when(metastore.At(m.Due.Key, m.Version), metastore.At(key, recs[0].Version))
	b.del(m.Due.Key)
	b.put(key, v.encode())
	return c.resolveBatch(ctx, what, m.Due.Key, b)
}

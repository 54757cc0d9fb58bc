package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// hashes is a set of 64-bit hashes of bounded size. Once it is full it knows nothing more of what it
// was not given: the caller then looks for itself.
type hashes struct {
	set  map[uint64]struct{}
	full bool
}

func (h *hashes) add(s string) {
	switch {
	case len(h.set) < hashesMost:
		if h.set == nil {
			h.set = map[uint64]struct{}{}
		}
		h.set[xxhash.Sum64String(s)] = struct{}{}
	default:
		h.full = true
	}
}

func (h *hashes) has(s string) bool {
	_, ok := h.set[xxhash.Sum64String(s)]
	return ok
}

// markers checks all due markers, queue by queue and shard by shard, and the schedule of batches.
func (r *run) markers(ctx context.Context) error {
	for _, q := range catalog.Queues() {
		s := r.markerStatement(q)
		var before metastore.Record // the last batch marker
		err := r.walk(ctx, metastore.Prefix(catalog.QueuePrefix(q)), func(recs []metastore.Record) error {
			r.count(func(*Report) { r.queues[q] += len(recs) })
			if err := r.hold(ctx, recs, s); err != nil {
				return err
			}
			for _, rec := range recs {
				if err := r.gather(ctx, q, before, rec); err != nil {
					return err
				}
				before = rec
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("queue %s: %w", q, err)
		}
	}
	if err := r.strangeQueues(ctx); err != nil {
		return err
	}
	if err := r.each(ctx, metastore.Prefix(catalog.SchedulePrefix), scheduleStatement()); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return r.each(ctx, metastore.Prefix(catalog.GCPrefix), gcRecordStatement())
}

// strangeQueues reports what stands under no queue's name. Between the eight, nothing does.
func (r *run) strangeQueues(ctx context.Context) error {
	queues := catalog.Queues()
	slices.Sort(queues)
	from, end := catalog.DuePrefix, metastore.PrefixEnd(catalog.DuePrefix)
	for i := 0; i <= len(queues); i++ {
		to := end
		if i < len(queues) {
			to = catalog.QueuePrefix(queues[i])
		}
		err := r.each(ctx, metastore.Range{Start: from, End: to}, decodes(func(metastore.Record) error { return fmt.Errorf("no such queue") }))
		if err != nil {
			return err
		}
		if i < len(queues) {
			from = metastore.PrefixEnd(to)
		}
	}
	return nil
}

// gather remembers what later walks ask for, looks at what an intent announces, and compares neighbouring batches.
func (r *run) gather(ctx context.Context, q catalog.Queue, before, rec metastore.Record) error {
	switch q {
	case catalog.Teardown:
		if d, err := catalog.ParseDue(rec.Key); err == nil {
			r.teared.add(d.Subject)
		}
	case catalog.Reap:
		if d, err := catalog.ParseDue(rec.Key); err == nil {
			r.reaped.add(d.Object())
		}
	case catalog.Orphan:
		if d, err := catalog.ParseDue(rec.Key); err == nil && objstore.CheckKey(d.Object()) == nil {
			return r.announced(ctx, d.Object())
		}
	case catalog.Denorm:
		return r.neighbours(ctx, before, rec)
	}
	return nil
}

// neighbours: batches of a chain do not overlap. A marker is never extended, and each is armed at the checkpoint, so that two
// that stand at one revision and overlap are a fault.
func (r *run) neighbours(ctx context.Context, before, rec metastore.Record) error {
	overlap := func(a, b metastore.Record) bool {
		c, _, e1 := catalog.ParseBatchKey(a.Key)
		d, first, e2 := catalog.ParseBatchKey(b.Key)
		v, e3 := catalog.DecodeBatch(a.Value)
		return e1 == nil && e2 == nil && e3 == nil && c == d && v.End > first
	}
	if before.Key == "" || !overlap(before, rec) {
		return nil
	}
	return r.confirm(ctx, func(ctx context.Context) (*claim, error) {
		recs, err := r.get(ctx, before.Key, rec.Key)
		if err != nil || !recs[0].Exists() || !recs[1].Exists() || !overlap(recs[0], recs[1]) {
			return nil, err
		}
		v, _ := catalog.DecodeBatch(recs[0].Value)
		return amiss(CursorOrder, rec.Key, "the batch before it reaches to slot %d, into this one: %s", v.End, before.Key), nil
	})
}

// markerStatement is what must hold of a queue's markers: key and value can be read, the shard is the
// subject's, what the marker speaks of exists, and the index entries that live and die with it stand.
func (r *run) markerStatement(q catalog.Queue) statement {
	parse := func(rec metastore.Record) (catalog.Due, *claim) {
		d, err := catalog.ParseDue(rec.Key)
		switch {
		case err != nil:
			return d, bad(rec, err)
		case d.Shard != catalog.Shard(d.Subject):
			return d, amiss(MarkerMisplaced, rec.Key, "%s belongs to shard %02x", d.Subject, catalog.Shard(d.Subject)).on(rec.Version)
		}
		if err := catalog.CheckValueFormat(rec.Value); err != nil {
			return d, bad(rec, err)
		}
		if q == catalog.Reap || q == catalog.GC || q == catalog.Orphan {
			if err := objstore.CheckKey(d.Object()); err != nil {
				return d, bad(rec, err)
			}
		}
		return d, nil
	}
	pendings := func(rec metastore.Record, a catalog.Attribution) []string {
		keys := make([]string, len(a.Streams))
		for i, id := range a.Streams {
			keys[i] = catalog.PendingKey(id, rec.Key)
		}
		return keys
	}
	indexed := func(rec metastore.Record, entries []metastore.Record) *claim {
		for _, e := range entries {
			if !e.Exists() {
				return amiss(IndexMissing, rec.Key, "its entry %s in the index by stream is missing", e.Key)
			}
		}
		return nil
	}
	switch q {
	case catalog.Teardown:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				return []string{catalog.StreamsPrefix + d.Subject}, c
			},
			judge: func(rec metastore.Record, named []metastore.Record) *claim {
				s, err := catalog.DecodeStream(named[0].Value)
				switch {
				case !named[0].Exists():
					return amiss(MarkerStray, rec.Key, "the stream that is to be torn down does not exist")
				case err == nil && s.State == catalog.StreamActive:
					return amiss(MarkerStray, rec.Key, "stream %q is to be torn down, but is not deleted", s.Name)
				}
				return nil
			},
		}
	case catalog.Settle:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				if c != nil {
					return nil, c
				}
				if id, err := catalog.ParseChainSubject(d.Subject); err == nil {
					return []string{catalog.TrimKey(id)}, nil
				}
				return []string{catalog.StarKey(d.Subject)}, nil // a decommission
			},
			judge: func(rec metastore.Record, named []metastore.Record) *claim {
				if strings.HasPrefix(named[0].Key, catalog.StarsPrefix) {
					if s, err := catalog.DecodeStar(named[0].Value); !named[0].Exists() || err == nil && !s.Retired {
						return amiss(MarkerStray, rec.Key, "it sweeps a star that is not decommissioned")
					}
					return nil
				}
				if t, err := catalog.DecodeTrim(named[0].Value); !named[0].Exists() || err == nil && t.SettleKey != rec.Key {
					return amiss(MarkerStray, rec.Key, "its chain is retired, or has another settle marker")
				}
				return nil
			},
		}
	case catalog.Retention:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				return []string{catalog.MarksPrefix + d.Subject}, c
			},
			judge: func(rec metastore.Record, named []metastore.Record) *claim {
				if m, err := catalog.DecodeMark(named[0].Value); !named[0].Exists() || err == nil && m.RetentionKey != rec.Key {
					return amiss(MarkerStray, rec.Key, "its stream does not exist, or has another retention marker")
				}
				return nil
			},
		}
	case catalog.TrimCheck:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				if c != nil {
					return nil, c
				}
				if _, err := catalog.DecodeTrimCheckMarker(rec.Value); err != nil {
					return nil, bad(rec, err)
				}
				id, _ := catalog.ParseChainSubject(d.Subject)
				return []string{catalog.ChainKey(id)}, nil
			},
			judge: func(rec metastore.Record, named []metastore.Record) *claim {
				// Of a retired chain everything is past; its last checks resolve by themselves.
				m, _ := catalog.DecodeTrimCheckMarker(rec.Value)
				if c, err := catalog.DecodeChain(named[0].Value); named[0].Exists() && err == nil && m.UpTo > c.Checkpoint {
					return amiss(CursorOrder, rec.Key, "it trims up to slot %d, beyond the checkpoint %d", m.UpTo, c.Checkpoint)
				}
				return nil
			},
		}
	case catalog.Reap:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				if c == nil && catalog.IsSlot(d.Object()) {
					c = amiss(MarkerStray, rec.Key, "slots are deleted by their chain, never by a reap-check").on(rec.Version)
				}
				a, known := attribution(rec)
				if c == nil && !known {
					c = bad(rec, catalog.ErrCorruptValue)
				}
				return pendings(rec, a), c
			},
			judge: indexed,
		}
	case catalog.GC:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				d, c := parse(rec)
				a, known := attribution(rec)
				if c == nil && !known {
					c = bad(rec, catalog.ErrCorruptValue)
				}
				return append([]string{catalog.GCKey(d.Object())}, pendings(rec, a)...), c
			},
			judge: func(rec metastore.Record, named []metastore.Record) *claim {
				if g, err := catalog.DecodeGCRecord(named[0].Value); !named[0].Exists() || err == nil && g.Marker != rec.Key {
					return amiss(MarkerStray, rec.Key, "%s, which holds the object to one gc marker, is missing or names another", named[0].Key)
				}
				return indexed(rec, named[1:])
			},
		}
	case catalog.Orphan:
		return statement{
			needs: func(rec metastore.Record) ([]string, *claim) {
				_, c := parse(rec)
				if c == nil {
					if _, err := catalog.DecodeIntent(rec.Value); err != nil {
						c = bad(rec, err)
					}
				}
				return nil, c
			},
			judge: func(metastore.Record, []metastore.Record) *claim { return nil },
		}
	}
	return batchStatement(pendings, indexed)
}

// batchStatement is markerStatement of denorm: the batch lies below its chain's checkpoint and at or above its rewritten
// cursor, and its entries in the schedule and by stream stand, since they move in its own commits.
func batchStatement(pendings func(metastore.Record, catalog.Attribution) []string, indexed func(metastore.Record, []metastore.Record) *claim) statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, first, err := catalog.ParseBatchKey(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			b, err := catalog.DecodeBatch(rec.Value)
			if err == nil && b.End <= first {
				err = fmt.Errorf("the batch ends at slot %d, before it begins", b.End)
			}
			for _, it := range b.Inventory {
				if err == nil && (it.Slot < first || it.Slot >= b.End || it.Count == 0) {
					err = fmt.Errorf("its inventory holds slot %d, outside the batch, or no records", it.Slot)
				}
			}
			if err != nil {
				return nil, bad(rec, err)
			}
			return append([]string{catalog.ChainKey(id), catalog.TrimKey(id), catalog.ScheduleKey(id, first, b.Ready)}, pendings(rec, b.Attribution)...), nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			id, first, _ := catalog.ParseBatchKey(rec.Key)
			b, _ := catalog.DecodeBatch(rec.Value)
			if !named[0].Exists() || !named[1].Exists() {
				return amiss(MarkerStray, rec.Key, "a batch of chain %s, which is retired or lost its records", id)
			}
			c, e1 := catalog.DecodeChain(named[0].Value)
			t, e2 := catalog.DecodeTrim(named[1].Value)
			switch {
			case e1 == nil && b.End > c.Checkpoint:
				return amiss(CursorOrder, rec.Key, "the batch reaches to slot %d, beyond the checkpoint %d", b.End, c.Checkpoint)
			case e2 == nil && first < t.Rewritten:
				return amiss(CursorOrder, rec.Key, "the batch begins at slot %d, below the rewritten cursor %d: its slots may be deleted", first, t.Rewritten)
			case !named[2].Exists():
				return amiss(IndexMissing, rec.Key, "its entry %s in the schedule is missing: no auditor will find it", named[2].Key)
			}
			return indexed(rec, named[3:])
		},
	}
}

// scheduleStatement: an entry of the schedule has a batch marker with that ready time.
func scheduleStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			d, err := catalog.ParseDue(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			if d.Shard != catalog.Shard(d.Subject) {
				return nil, amiss(MarkerMisplaced, rec.Key, "%s belongs to shard %02x", d.Subject, catalog.Shard(d.Subject)).on(rec.Version)
			}
			return []string{d.PrimaryKey()}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			d, _ := catalog.ParseDue(rec.Key)
			if b, err := catalog.DecodeBatch(named[0].Value); !named[0].Exists() || err == nil && uint64(b.Ready) != d.Order {
				return amiss(MarkerStray, rec.Key, "the batch marker %s does not stand, or has another ready time", named[0].Key)
			}
			return nil
		},
	}
}

// gcRecordStatement: the gc marker that gc/{object} names stands; both are written and deleted together.
func gcRecordStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			if _, err := catalog.ParseGCKey(rec.Key); err != nil {
				return nil, bad(rec, err)
			}
			g, err := catalog.DecodeGCRecord(rec.Value)
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{g.Marker}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			if !named[0].Exists() {
				return amiss(MarkerMissing, rec.Key, "the gc marker that it names does not stand: %s", named[0].Key)
			}
			return nil
		},
	}
}

// pending checks the index by stream: each entry's marker stands and names the stream, for an entry lives and dies
// with its marker.
func (r *run) pending(ctx context.Context) error {
	s := statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			_, key, err := catalog.ParsePendingKey(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{key}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			id, _, _ := catalog.ParsePendingKey(rec.Key)
			if !named[0].Exists() {
				return amiss(MarkerStray, rec.Key, "the marker that it lists does not stand: %s", named[0].Key)
			}
			a, known := attribution(named[0])
			if known && !slices.Contains(a.Streams, id) {
				return amiss(MarkerStray, rec.Key, "the marker %s is not attributed to this stream, so that nobody will remove the entry", named[0].Key)
			}
			return nil
		},
	}
	return r.walk(ctx, metastore.Prefix(catalog.PendingsPrefix), func(recs []metastore.Record) error {
		r.count(func(rep *Report) { rep.Pending += len(recs) })
		return r.hold(ctx, recs, s)
	})
}

// attribution reads which streams a marker is attributed to; known is false where its value does not tell.
func attribution(rec metastore.Record) (a catalog.Attribution, known bool) {
	switch {
	case strings.HasPrefix(rec.Key, catalog.QueuePrefix(catalog.Denorm)):
		b, err := catalog.DecodeBatch(rec.Value)
		return b.Attribution, err == nil
	case strings.HasPrefix(rec.Key, catalog.QueuePrefix(catalog.Reap)):
		a = catalog.DecodeReapMarker(rec.Value).Attribution
	case strings.HasPrefix(rec.Key, catalog.QueuePrefix(catalog.GC)):
		a = catalog.DecodeGCMarker(rec.Value).Attribution
	default:
		return a, true // of the other queues nothing is listed by stream
	}
	// An unreadable value decodes as shared by streams unknown.
	return a, len(a.Streams) > 0 || !a.Shared
}

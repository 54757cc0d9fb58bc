package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// cluster checks the format, the registrations, the routes, the id counters and the names, and that no
// record of an unknown kind is there.
func (r *run) cluster(ctx context.Context) error {
	recs, err := r.get(ctx, catalog.FormatKey)
	if err != nil {
		return err
	}
	// It is written once and never changed: one read is enough.
	f, err := catalog.DecodeFormat(recs[0].Value)
	switch {
	case !recs[0].Exists():
		r.report(amiss(WrongFormat, catalog.FormatKey, "the record that tells the format of the keyspace is missing").Finding)
	case err != nil || f.Version != catalog.FormatVersion || f.Shards != catalog.Shards:
		r.report(amiss(WrongFormat, catalog.FormatKey, "format %d with %d shards; this program reads format %d with %d", f.Version, f.Shards, catalog.FormatVersion, catalog.Shards).Finding)
	}
	for _, part := range []struct {
		prefix string
		s      statement
	}{
		{catalog.RestoredKey, restoredStatement()},
		{catalog.TimingsPrefix, decodes(func(rec metastore.Record) error { _, err := catalog.DecodeNodeTiming(rec.Value); return err })},
		{catalog.StarsPrefix, starStatement()},
		{catalog.RoutesPrefix, routeStatement()},
		{catalog.IDsPrefix, decodes(func(rec metastore.Record) error { _, err := catalog.DecodeID(rec.Value); return err })},
		{catalog.NamePrefix, nameStatement()},
	} {
		if err := r.each(ctx, metastore.Prefix(part.prefix), part.s); err != nil {
			return err
		}
	}
	return r.unknown(ctx)
}

// unknown reports records between the kinds that are known. It reads nothing else: a range
// between two kinds is empty.
func (r *run) unknown(ctx context.Context) error {
	known := []string{ // in order
		catalog.LeasesPrefix, catalog.ChainsPrefix, "cluster/", catalog.DuePrefix, catalog.GCPrefix, catalog.HeadsPrefix, catalog.IDsPrefix,
		catalog.MarksPrefix, catalog.NamePrefix, catalog.PendingsPrefix, catalog.RefsPrefix, catalog.SchedulePrefix, catalog.SpansPrefix,
		catalog.StreamsPrefix, catalog.TrimsPrefix,
	}
	from := "\x00"
	for _, prefix := range append(known, "") {
		err := r.each(ctx, metastore.Range{Start: from, End: prefix}, decodes(func(metastore.Record) error {
			return errors.New("no record of a kind that this program knows")
		}))
		if err != nil {
			return err
		}
		if prefix != "" {
			from = metastore.PrefixEnd(prefix)
		}
	}
	return nil
}

// bad is a record that says nothing.
func bad(rec metastore.Record, err error) *claim {
	return amiss(BadRecord, rec.Key, "it cannot be read: %v", err).on(rec.Version)
}

// decodes is the statement that a record can be read.
func decodes(read func(metastore.Record) error) statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			if err := read(rec); err != nil {
				return nil, bad(rec, err)
			}
			return nil, nil
		},
		judge: func(metastore.Record, []metastore.Record) *claim { return nil },
	}
}

// starStatement: a registration names a star that minted; both came with its first mint.
func starStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			star := rec.Key[len(catalog.StarsPrefix):]
			if _, err := catalog.DecodeStar(rec.Value); err != nil {
				return nil, bad(rec, err)
			}
			if err := catalog.CheckNodeName(star); err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.ChainHeadKey(star)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			if !named[0].Exists() {
				return amiss(ChainIncomplete, rec.Key, "the star is registered, but %s, which holds its newest epoch, is missing", named[0].Key)
			}
			return nil
		},
	}
}

// restoredStatement: the time line that a restore began has begun altogether.
func restoredStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			switch v, err := catalog.DecodeRestored(rec.Value); {
			case err != nil:
				return nil, bad(rec, err)
			case v.Beginning:
				return nil, amiss(TimelineCutOff, rec.Key, "a time line was begun after a restore, and cut off: some counters may still be those of the lost one")
			}
			return nil, nil
		},
		judge: func(metastore.Record, []metastore.Record) *claim { return nil },
	}
}

// routeStatement: a route names an epoch that its star minted, not above the newest: the mint writes both.
func routeStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			if _, err := catalog.DecodeRoute(rec.Value); err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.ChainHeadKey(rec.Key[len(catalog.RoutesPrefix):])}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			route, _ := catalog.DecodeRoute(rec.Value)
			head, err := catalog.DecodeChainHead(named[0].Value)
			if !named[0].Exists() || err == nil && head.Epoch < route.Epoch {
				return amiss(ChainIncomplete, rec.Key, "the route names epoch %d, and %s says that it was never minted", route.Epoch, named[0].Key)
			}
			return nil
		},
	}
}

// nameStatement: a name leads to an active stream of that name. Create makes both, delete takes the name in the
// commit that marks the stream deleted.
func nameStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.DecodeID(rec.Value)
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.StreamKey(id)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			name := rec.Key[len(catalog.NamePrefix):]
			if !named[0].Exists() {
				return amiss(NameMismatch, rec.Key, "the name leads to %s, which does not exist", named[0].Key)
			}
			s, err := catalog.DecodeStream(named[0].Value)
			switch {
			case err != nil:
				return nil // the walk of streams reports it
			case s.Name != name:
				return amiss(NameMismatch, rec.Key, "the name leads to %s, whose name is %q", named[0].Key, s.Name)
			case s.State != catalog.StreamActive:
				return amiss(NameMismatch, rec.Key, "the name leads to %s, which is deleted", named[0].Key)
			}
			return nil
		},
	}
}

// streamStatement: a stream has its head and its mark, an active one its name, and its id is below
// its shard's counter. Create makes them in one commit; teardown deletes the three in one.
func streamStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.ParseStreamKey(catalog.StreamsPrefix, rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			s, err := catalog.DecodeStream(rec.Value)
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.HeadKey(id), catalog.MarkKey(id), catalog.IDsKey(id.Shard()), catalog.NameKey(s.Name)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			id, _ := catalog.ParseStreamKey(catalog.StreamsPrefix, rec.Key)
			s, _ := catalog.DecodeStream(rec.Value)
			for _, of := range named[:2] {
				if !of.Exists() {
					return amiss(StreamIncomplete, rec.Key, "stream %q has no record %s", s.Name, of.Key)
				}
			}
			if counter, err := catalog.DecodeID(named[2].Value); err == nil && uint64(counter) < id.Counter() || !named[2].Exists() {
				return amiss(StreamIncomplete, rec.Key, "the counter %s is behind the id of stream %q: the id would be given out again", named[2].Key, s.Name)
			}
			if s.State != catalog.StreamActive {
				return nil
			}
			if to, err := catalog.DecodeID(named[3].Value); !named[3].Exists() || err == nil && to != id {
				return amiss(NameMismatch, rec.Key, "the active stream's name %q does not lead to it", s.Name)
			}
			return nil
		},
	}
}

// headStatement and markStatement: they belong to a stream, with cursors in order; a mark's
// retention marker stands, since every commit that moves the one moves the other.
func headStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.ParseStreamKey(catalog.HeadsPrefix, rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			if _, err := catalog.DecodeHead(rec.Value); err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.StreamKey(id)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			if !named[0].Exists() {
				return amiss(StreamIncomplete, rec.Key, "its stream's record %s is missing", named[0].Key)
			}
			return nil
		},
	}
}

func markStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.ParseStreamKey(catalog.MarksPrefix, rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			m, err := catalog.DecodeMark(rec.Value)
			if err != nil {
				return nil, bad(rec, err)
			}
			keys := []string{catalog.StreamKey(id), catalog.HeadKey(id)}
			if m.RetentionKey != "" {
				keys = append(keys, m.RetentionKey)
			}
			return keys, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			m, _ := catalog.DecodeMark(rec.Value)
			if !named[0].Exists() {
				return amiss(StreamIncomplete, rec.Key, "its stream's record %s is missing", named[0].Key)
			}
			if h, err := catalog.DecodeHead(named[1].Value); err == nil && (m.Watermark > h.Next || m.WatermarkBytes > h.Bytes) {
				return amiss(CursorOrder, rec.Key, "the trim watermark (offset %d, byte %d) is beyond the stream's end (%d, %d)", m.Watermark, m.WatermarkBytes, h.Next, h.Bytes)
			}
			if len(named) > 2 && !named[2].Exists() {
				return amiss(MarkerMissing, rec.Key, "the retention marker that it names does not stand: %s", named[2].Key)
			}
			return nil
		},
	}
}

// chains checks the chains' records, their cursors and markers, and every slot that they record.
func (r *run) chains(ctx context.Context) error {
	err := r.walk(ctx, metastore.Prefix(catalog.ChainsPrefix), func(recs []metastore.Record) error {
		var heads, chains []metastore.Record
		for _, rec := range recs {
			if strings.Count(rec.Key, "/") == 1 {
				heads = append(heads, rec)
			} else {
				chains = append(chains, rec)
			}
		}
		if err := r.hold(ctx, heads, chainHeadStatement()); err != nil {
			return err
		}
		if err := r.hold(ctx, chains, chainStatement()); err != nil {
			return err
		}
		for _, rec := range chains {
			id, err := catalog.ParseChainKey(rec.Key)
			if err != nil {
				continue // reported
			}
			r.count(func(rep *Report) { rep.Chains++ })
			if err := r.slots(ctx, id); err != nil {
				return fmt.Errorf("slots of %s: %w", id, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.each(ctx, metastore.Prefix(catalog.TrimsPrefix), trimStatement())
}

// chainHeadStatement: a star's newest epoch belongs to a registered star.
func chainHeadStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			if _, err := catalog.DecodeChainHead(rec.Value); err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.StarKey(rec.Key[len(catalog.ChainsPrefix):])}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			if !named[0].Exists() {
				return amiss(ChainIncomplete, rec.Key, "the star that minted it is not registered: %s is missing", named[0].Key)
			}
			return nil
		},
	}
}

// chainStatement: a chain has its trim record and a newest epoch at or above its own, and its cursors are in
// order: trimmed ≤ rewritten ≤ checkpoint ≤ seal. Mint and retire write chain and trim record together; the cursors
// only follow each other.
func chainStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.ParseChainKey(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			if _, err := catalog.DecodeChain(rec.Value); err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.TrimKey(id), catalog.ChainHeadKey(id.Star)}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			id, _ := catalog.ParseChainKey(rec.Key)
			c, _ := catalog.DecodeChain(rec.Value)
			if !named[0].Exists() {
				return amiss(ChainIncomplete, rec.Key, "chain %s has no record %s", id, named[0].Key)
			}
			if h, err := catalog.DecodeChainHead(named[1].Value); !named[1].Exists() || err == nil && h.Epoch < id.Epoch {
				return amiss(ChainIncomplete, rec.Key, "%s says that epoch %d was never minted", named[1].Key, id.Epoch)
			}
			t, err := catalog.DecodeTrim(named[0].Value)
			switch {
			case err != nil:
				return nil // the walk of trim records reports it
			case t.Trimmed > t.Rewritten || t.Rewritten > c.Checkpoint:
				return amiss(CursorOrder, rec.Key, "trimmed %d, rewritten %d and checkpoint %d must be in this order", t.Trimmed, t.Rewritten, c.Checkpoint)
			case c.State == catalog.ChainSealed && (c.Checkpoint > c.Seal || c.Seal >= c.WindowEnd):
				return amiss(CursorOrder, rec.Key, "checkpoint %d, seal %d and window's end %d must be in this order", c.Checkpoint, c.Seal, c.WindowEnd)
			}
			return nil
		},
	}
}

// trimStatement: a trim record has its chain, and the settle marker that it names stands: every commit
// that moves the one moves the other, and it lives as long as the chain.
func trimStatement() statement {
	return statement{
		needs: func(rec metastore.Record) ([]string, *claim) {
			id, err := catalog.ParseTrimKey(rec.Key)
			if err != nil {
				return nil, bad(rec, err)
			}
			t, err := catalog.DecodeTrim(rec.Value)
			if err != nil {
				return nil, bad(rec, err)
			}
			return []string{catalog.ChainKey(id), t.SettleKey}, nil
		},
		judge: func(rec metastore.Record, named []metastore.Record) *claim {
			id, _ := catalog.ParseTrimKey(rec.Key)
			if !named[0].Exists() {
				return amiss(ChainIncomplete, rec.Key, "its chain's record %s is missing", named[0].Key)
			}
			if !named[1].Exists() {
				return amiss(MarkerMissing, rec.Key, "chain %s has no settle marker: %q does not stand, and nobody will end the chain", id, named[1].Key)
			}
			return nil
		},
	}
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nova-store/nova/metastore"
)

// ListStreams reads the active streams whose name begins with prefix and sorts behind after (empty: from the
// first), in order of names, limit (≥ 1) at most; more tells that there are further ones.
// Streams deleted while it reads are left out.
func (c *Catalog) ListStreams(ctx context.Context, prefix, after string, limit int) (streams []StreamView, more bool, err error) {
	r := metastore.Prefix(NamePrefix + prefix)
	if after != "" {
		r.Start = max(r.Start, NameKey(after)+"\x00")
	}
	most := max(c.store.Limits().MaxOps/3, 1)
	for more = true; more && len(streams) < limit; {
		page, err := c.scan(ctx, r, min(limit-len(streams), most))
		if err != nil {
			return nil, false, fmt.Errorf("listing streams: %w", err)
		}
		if more = page.More; len(page.Records) == 0 {
			break
		}
		r.Start = page.Records[len(page.Records)-1].Key + "\x00"
		keys := make([]string, 0, 3*len(page.Records))
		ids := make([]StreamID, 0, len(page.Records))
		for _, rec := range page.Records {
			id, err := DecodeID(rec.Value)
			if err != nil {
				return nil, false, fmt.Errorf("%s: %w", rec.Key, err)
			}
			ids = append(ids, id)
			keys = append(keys, StreamKey(id), HeadKey(id), MarkKey(id))
		}
		recs, err := c.get(ctx, keys...)
		if err != nil {
			return nil, false, fmt.Errorf("listing streams: %w", err)
		}
		for i, id := range ids {
			v, err := decodeStreamView(id, recs[3*i:3*i+3])
			switch {
			case errors.Is(err, ErrNoStream):
			case err != nil:
				return nil, false, err
			case v.Stream.State == StreamActive:
				streams = append(streams, v)
			}
		}
	}
	return streams, more, nil
}

// PendingItem is one marker that a stream's index of pending work names.
type PendingItem struct {
	Queue Queue
	Key   string // of the marker
	// Subject is the object of a reap or gc marker, star~epoch~slot of a batch.
	Subject string
	// Ready is when it is ripe; zero of gc, which is always.
	Ready time.Time
	// Bytes are a batch's object bytes, of all its streams, or what a gc marker promises to reclaim; else 0.
	Bytes uint64
	// Shared: the marker concerns more streams than the MaxAttributed that it is attributed to by
	// name. A stream beyond those does not find it here.
	Shared bool
	// Damaged: a batch of which some slots can't be read.
	Damaged bool
}

// Pending reads the work that waits for a stream, whatever the stream's state, also of one whose
// records are gone: one bounded scan of its index, and the markers that it names. limit is ≥ 1; more tells that there are
// further ones. A marker resolved meanwhile is left out.
func (c *Catalog) Pending(ctx context.Context, id StreamID, limit int) (items []PendingItem, more bool, err error) {
	what := fmt.Sprintf("pending work of stream %v", id)
	page, err := c.scan(ctx, metastore.Prefix(PendingPrefix(id)), limit)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", what, err)
	}
	keys := make([]string, len(page.Records))
	items = make([]PendingItem, 0, len(page.Records))
	for i, r := range page.Records {
		f := strings.SplitN(strings.TrimPrefix(r.Key, PendingPrefix(id)), "~", 3)
		if len(f) != 3 {
			return nil, false, fmt.Errorf("%s: %w: key %q", what, ErrCorruptValue, r.Key)
		}
		keys[i] = "due/" + f[0] + "/" + f[1] + "/" + f[2]
	}
	recs, err := c.get(ctx, keys...)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", what, err)
	}
	for _, r := range recs {
		if r.Exists() {
			items = append(items, pendingItem(r))
		}
	}
	return items, page.More, nil
}

func pendingItem(r metastore.Record) PendingItem {
	q, rest, _ := strings.Cut(strings.TrimPrefix(r.Key, "due/"), "/")
	it := PendingItem{Queue: Queue(q), Key: r.Key}
	_, it.Subject, _ = strings.Cut(rest, "/")
	if it.Queue == Denorm {
		if b, err := DecodeBatch(r.Value); err == nil {
			it.Ready, it.Bytes, it.Shared, it.Damaged = time.UnixMilli(b.Ready), b.Bytes, b.Shared, b.Damaged
		}
		return it
	}
	due, err := ParseDue(r.Key)
	if err != nil {
		return it
	}
	it.Subject = due.Object()
	switch it.Queue {
	case Reap:
		it.Ready, it.Shared = time.UnixMilli(int64(due.Order)), DecodeReapMarker(r.Value).Shared
	case GC:
		it.Bytes, it.Shared = ^due.Order, DecodeGCMarker(r.Value).Shared
	}
	return it
}

package auditor

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// DueAge is the backlog of one queue that is ordered by time, in the shards that this member owns.
type DueAge struct {
	Queue catalog.Queue
	// Age is how far past its ready time the oldest pending marker is. 0: markers stand, and
	// none is ripe, which is no backlog: under an age cap a standing marker is the policy working.
	Age time.Duration
}

// agePage bounds the markers of one shard that are looked at where age is not the order: teardown's
// re-arms carry their original time along.
const agePage = 16

// DueAges returns the age of each queue ordered by time, in the order of priority. A queue without a
// marker in the shards owned is left out, and so is every queue of a member that is not on the ring.
//
// It reads the first marker of each shard, from the very front, in as few calls as the store's
// limits allow; each shard that holds a teardown takes one bounded page more. It may be called at any time, from any task.
func (a *Auditor) DueAges(ctx context.Context) ([]DueAge, error) {
	var srcs []*source
	var ranges []metastore.Range
	for _, s := range a.sources {
		if s.reg.TimeOrdered && a.ring.owns(s.shard) {
			srcs, ranges = append(srcs, s), append(ranges, s.whole)
		}
	}
	var out []DueAge
	store := a.cat.Store()
	most := store.Limits().MaxOps
	now := a.clk.Now()
	for at := 0; at < len(srcs); at += most {
		end := min(at+most, len(srcs))
		recs, err := store.Peek(ctx, ranges[at:end])
		if err != nil {
			return nil, fmt.Errorf("peeking at the queues: %w", err)
		}
		for i, s := range srcs[at:end] {
			if !recs[i].Exists() {
				continue
			}
			standing := recs[i : i+1]
			if s.reg.Queue == catalog.Teardown {
				page, err := store.Scan(ctx, s.whole, agePage)
				if err != nil {
					return nil, fmt.Errorf("reading %s: %w", s.reg.Queue, err)
				}
				standing = page.Records
			}
			if n := len(out); n == 0 || out[n-1].Queue != s.reg.Queue {
				out = append(out, DueAge{Queue: s.reg.Queue})
			}
			for _, rec := range standing {
				last := &out[len(out)-1]
				last.Age = max(last.Age, age(rec, now))
			}
		}
	}
	return out, nil
}

// age is how long a marker has been owed; not above 0 where it is not ripe, or malformed.
func age(rec metastore.Record, now time.Time) time.Duration {
	due, err := catalog.ParseDue(rec.Key)
	if err != nil {
		return 0
	}
	return now.Sub(catalog.MarkerAt{Due: due, Value: rec.Value, Version: rec.Version}.OwedSince())
}

package catalog

import (
	"context"
	"fmt"

	"github.com/nova-store/nova/metastore"
)

// NodeStats is what a member of the ring says of itself, for operators and for who sizes the
// pool. Nothing in Nova decides by it.
type NodeStats struct {
	Version     string // of the program
	Started     int64  // Unix ms of the auditor's start
	Published   int64  // Unix ms of this record
	Workers     uint64 // jobs that can run at once
	Utilization uint64 // worker time spent on jobs since the record before, in permille
}

func (v NodeStats) encode() []byte {
	e := newEncoder(32 + len(v.Version))
	e.string(v.Version)
	e.int(v.Started)
	e.int(v.Published)
	e.uint(v.Workers)
	e.uint(v.Utilization)
	return e.b
}

// DecodeNodeStats reads a NodeStats.
func DecodeNodeStats(b []byte) (NodeStats, error) {
	d := newDecoder(b)
	v := NodeStats{Version: d.string(), Started: d.int(), Published: d.int(), Workers: d.uint(), Utilization: d.uint()}
	return v, d.done("node stats")
}

// PublishStats puts a member's stats under the session of its announcement, with which they go. A late twin
// dies with that session, and until then shows an older record once more.
func (c *Catalog) PublishStats(ctx context.Context, session metastore.SessionID, member string, s NodeStats) error {
	var b batch
	b.write(metastore.PutUnder(session, StatsKey(member), s.encode()))
	_, _, err := c.commit(ctx, "publishing the stats of member "+member, b.done())
	return err
}

// MemberStats is a member's stats as read.
type MemberStats struct {
	Member string
	NodeStats
}

// Stats reads what the members say of themselves, in the order of their names.
func (c *Catalog) Stats(ctx context.Context) ([]MemberStats, error) {
	var out []MemberStats
	err := c.walk(ctx, metastore.Prefix(StatsPrefix), 512, func(rec metastore.Record) (bool, error) {
		s, err := DecodeNodeStats(rec.Value)
		if err != nil {
			return false, fmt.Errorf("%s: %w", rec.Key, err)
		}
		out = append(out, MemberStats{rec.Key[len(StatsPrefix):], s})
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading node stats: %w", err)
	}
	return out, nil
}

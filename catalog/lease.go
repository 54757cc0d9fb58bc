package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nova-store/nova/metastore"
)

// Lease is who works on a job, and until when.
type Lease struct {
	Holder   string
	Deadline int64
	Nonce    uint64
}

func (v Lease) encode() []byte {
	e := newEncoder(32 + len(v.Holder))
	e.string(v.Holder)
	e.int(v.Deadline)
	e.uint(v.Nonce)
	return e.b
}

// DecodeLease reads a Lease.
func DecodeLease(b []byte) (Lease, error) {
	d := newDecoder(b)
	v := Lease{Holder: d.string(), Deadline: d.int(), Nonce: d.uint()}
	return v, d.done("lease")
}

// Claim takes a job's lease under the session, until now + JobDeadline, and returns the version that a
// release must name. ErrLeaseHeld: another holds it and its deadline has not passed.
//
// Leases spare duplicate work and nothing rests on them: a late twin of a claim holds
// a job back until its deadline, or its session's end, and no longer.
func (c *Catalog) Claim(ctx context.Context, session metastore.SessionID, job, holder string) (metastore.Version, error) {
	what := "claiming " + job
	key := LeaseKey(job)
	recs, err := c.store.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	now := c.clk.Now()
	if recs[0].Exists() {
		if l, err := DecodeLease(recs[0].Value); err == nil && l.Deadline > unixMS(now) {
			return 0, fmt.Errorf("%s: %w: %s", what, ErrLeaseHeld, l.Holder)
		}
		c.branch("lease.takeover")
	}
	l := Lease{Holder: holder, Deadline: unixMS(now.Add(c.timing.JobDeadline)), Nonce: c.clk.Rand()}
	var b batch
	b.when(metastore.At(key, recs[0].Version))
	b.write(metastore.PutUnder(session, key, l.encode()))
	v, maybe, err := c.commit(ctx, what, b.done())
	if err == nil {
		return v, nil
	}
	if !errors.Is(err, metastore.ErrConflict) {
		return 0, err
	}
	if maybe {
		recs, err := c.store.Get(ctx, key)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
		if got, err := DecodeLease(recs[0].Value); err == nil && got.Nonce == l.Nonce {
			return recs[0].Version, nil
		}
	}
	return 0, fmt.Errorf("%s: %w", what, ErrLeaseHeld)
}

// Release gives a lease back, at the version that was claimed. One that was taken
// over is left alone.
func (c *Catalog) Release(ctx context.Context, job string, version metastore.Version) error {
	err := c.deleteAt(ctx, "releasing "+job, LeaseKey(job), version)
	if errors.Is(err, ErrMoved) {
		return nil
	}
	return err
}

// Announce puts a member on the ring, under a session of the announcement's own. A
// late twin dies with that session.
func (c *Catalog) Announce(ctx context.Context, session metastore.SessionID, member string) error {
	if err := CheckNodeName(member); err != nil {
		return err
	}
	var b batch
	e := newEncoder(10)
	e.int(unixMS(c.clk.Now()))
	b.write(metastore.PutUnder(session, MemberKey(member), e.b))
	_, _, err := c.commit(ctx, "announcing member "+member, b.done())
	return err
}

// Roster reads the names of the announced members, sorted.
func (c *Catalog) Roster(ctx context.Context) ([]string, error) {
	return c.names(ctx, MembersPrefix, nil)
}

// Stars reads the names of the registered stars that may still have chains,
// sorted: active ones, and retired ones until they are swept, which is after their last chain is gone.
func (c *Catalog) Stars(ctx context.Context) ([]string, error) {
	return c.names(ctx, StarsPrefix, func(value []byte) bool {
		v, err := DecodeStar(value)
		return err != nil || !v.Swept
	})
}

// names reads the names under a prefix whose values are wanted; nil: all.
func (c *Catalog) names(ctx context.Context, prefix string, wanted func(value []byte) bool) ([]string, error) {
	var out []string
	err := c.walk(ctx, metastore.Prefix(prefix), 512, func(rec metastore.Record) (bool, error) {
		if wanted == nil || wanted(rec.Value) {
			out = append(out, rec.Key[len(prefix):])
		}
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", prefix, err)
	}
	slices.Sort(out)
	return out, nil
}

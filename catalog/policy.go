package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
)

// MaxPolicyAge and MaxPolicyBytes bound a policy, so that times and positions that are
// reckoned with it stay far from overflow.
const (
	MaxPolicyAge   = 100 * 365 * 24 * time.Hour
	MaxPolicyBytes = uint64(1) << 62
)

// ErrBadPolicy: a stream's policy is out of bounds.
var ErrBadPolicy = errors.New("bad policy")

// CheckPolicy refuses a max age that is negative or above MaxPolicyAge, and max bytes above
// MaxPolicyBytes, with ErrBadPolicy (wrapped). 0 is no bound.
func CheckPolicy(p Policy) error {
	switch {
	case p.MaxAgeMS < 0:
		return fmt.Errorf("%w: a max age of %d ms is negative", ErrBadPolicy, p.MaxAgeMS)
	case p.MaxAgeMS > MaxPolicyAge.Milliseconds():
		return fmt.Errorf("%w: a max age of %d ms is above 100 years (%d ms)", ErrBadPolicy, p.MaxAgeMS, MaxPolicyAge.Milliseconds())
	case p.MaxBytes > MaxPolicyBytes:
		return fmt.Errorf("%w: max bytes of %d are above 2^62", ErrBadPolicy, p.MaxBytes)
	}
	return nil
}

// age is the max age; one that an earlier version let in is cut to what can be reckoned with.
func (p Policy) age() time.Duration {
	return time.Duration(min(max(p.MaxAgeMS, 0), MaxPolicyAge.Milliseconds())) * time.Millisecond
}

// SetPolicy is ChangePolicy to p whatever the policy was.
func (c *Catalog) SetPolicy(ctx context.Context, id StreamID, p Policy) (StreamView, error) {
	return c.ChangePolicy(ctx, id, func(Policy) Policy { return p })
}

// ChangePolicy gives a stream the policy that change makes of its present one, and returns the stream's records as they
// then are; the policy that it has already changes nothing. change depends on its argument alone; it is called again when
// someone else changed the stream meanwhile, so that two changes of one field each do not undo one another.
//
// Conditions: the stream is active, at the version read; the mark is as read; where the old policy goes by
// bytes, or has expired all there is by age, also the head. Effects: the policy; the watermark moves to what the old policy
// expired, and the mark keeps how far that reached into the span at the watermark, so that
// nothing becomes readable again under a longer policy; the stream's one retention marker
// moves to now, where the earlier time wins, so that the duty judges by the new one.
//
// A crash before it leaves nothing; after it retention is armed, and readers judge by
// the policy at once. No object's watch changes. A late twin fails on the stream's record.
// Errors: ErrBadPolicy; ErrNoStream; metastore.ErrUnknown where an answer was lost and what became of it could not be read, or
// someone else has set another policy since, so that nobody can tell whether this one ever held.
func (c *Catalog) ChangePolicy(ctx context.Context, id StreamID, change func(Policy) Policy) (_ StreamView, err error) {
	what := fmt.Sprintf("setting the policy of stream %v", id)
	var p Policy
	lost := metastore.Version(0) // the stream's version on which a lost try was conditional
	defer func() { err = unsettled(lost != 0, err) }()
	for round := 0; ; round++ {
		v, err := c.ReadStream(ctx, id)
		if err != nil {
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		}
		switch {
		case lost == 0:
			if p = change(v.Stream.Policy); p == v.Stream.Policy {
				return v, nil
			}
			if err := CheckPolicy(p); err != nil {
				return StreamView{}, fmt.Errorf("%s: %w", what, err)
			}
		case v.Stream.Policy == p:
			c.branch("policy.twin")
			return v, nil
		case v.StreamVersion != lost:
			return StreamView{}, fmt.Errorf("%s: %w: it was changed again since", what, metastore.ErrUnknown)
		}
		now := c.clk.Now()
		old, err := c.Readable(ctx, v, now)
		if err != nil {
			return StreamView{}, fmt.Errorf("%s: %w", what, err)
		}
		var b batch
		b.when(metastore.At(StreamKey(id), v.StreamVersion), metastore.At(MarkKey(id), v.MarkVersion))
		all := old.ExpiredAt > 0 && v.Head.MaxTimestamp <= old.ExpiredAt
		if all || v.Stream.Policy.MaxBytes > 0 {
			b.when(metastore.At(HeadKey(id), v.HeadVersion))
		}
		v.Stream.Policy = p
		v.Mark.advance(old.First, old.FirstBytes)
		if !all {
			// Timestamps are whatever a producer says: where all there is has expired, the watermark alone
			// says so, for records to come may be as old. Else what comes has a larger running maximum.
			v.Mark.ExpiredAt = max(v.Mark.ExpiredAt, old.ExpiredAt)
		}
		v.Mark.BytesBelow = max(v.Mark.BytesBelow, old.BytesBelow)
		v.Mark.NextBytes = 0
		v.Mark.moveRetention(&b, id, uint64(unixMS(now)))
		b.put(StreamKey(id), v.Stream.encode())
		b.put(MarkKey(id), v.Mark.encode())
		ver, maybe, err := c.commit(ctx, what, b.done())
		if err == nil {
			v.StreamVersion, v.MarkVersion = ver, ver
			return v, nil
		}
		if !errors.Is(err, metastore.ErrConflict) {
			return StreamView{}, err
		}
		if maybe {
			lost = v.StreamVersion
		}
		c.branch("policy.conflict")
		if err := c.pause(ctx, round); err != nil {
			return StreamView{}, err
		}
	}
}

// advance moves the watermark up, never back.
func (m *Mark) advance(first, bytes uint64) {
	m.Watermark = max(m.Watermark, first)
	m.WatermarkBytes = max(m.WatermarkBytes, bytes)
}

// moveRetention adds to b the move of the stream's one retention marker to a ready time, unless it
// stands earlier already, and tells whether it did. The caller puts the mark.
func (m *Mark) moveRetention(b *batch, id StreamID, ready uint64) bool {
	if old, err := ParseDue(m.RetentionKey); err == nil && old.Order <= ready {
		return false
	}
	key := DueKey(Retention, ready, id.String())
	if m.RetentionKey != "" {
		b.append(metastore.Delete(m.RetentionKey))
	}
	b.append(metastore.Put(key, RetentionMarker{}.encode()))
	m.RetentionKey = key
	return true
}

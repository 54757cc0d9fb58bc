package clock

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Limiter is a token bucket on a Clock: a budget of units per second.
type Limiter struct {
	clk Clock
	lim *rate.Limiter // nil: unlimited
}

// NewLimiter returns a bucket of perSecond units a second that holds burst units
// at most. perSecond ≤ 0 means unlimited.
func NewLimiter(clk Clock, perSecond float64, burst int) *Limiter {
	if perSecond <= 0 {
		return &Limiter{clk: clk}
	}
	return &Limiter{clk: clk, lim: rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))}
}

// Pay takes n units, sleeping until the bucket has earned them. A price above
// the burst is paid in instalments.
func (l *Limiter) Pay(ctx context.Context, n int) error {
	if l.lim == nil {
		return nil
	}
	for n > 0 {
		part := min(n, l.lim.Burst())
		now := l.clk.Now()
		r := l.lim.ReserveN(now, part)
		if !r.OK() {
			return fmt.Errorf("budget: %d units exceed the burst of %d", part, l.lim.Burst())
		}
		if d := r.DelayFrom(now); d > 0 {
			if err := l.clk.Sleep(ctx, d); err != nil {
				r.CancelAt(l.clk.Now())
				return err
			}
		}
		n -= part
	}
	return nil
}

// RoundUp rounds t up to a multiple of bucket since the epoch, so that ready
// times collapse into few distinct ones. A bucket ≤ 0 leaves t alone.
func RoundUp(t time.Time, bucket time.Duration) time.Time {
	if bucket <= 0 {
		return t
	}
	ns := t.UnixNano()
	b := int64(bucket)
	switch r := ns % b; {
	case r > 0:
		ns += b - r
	case r < 0: // before the epoch the remainder is negative
		ns -= r
	}
	return time.Unix(0, ns).UTC()
}

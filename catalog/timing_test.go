package catalog

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A refusal names what contradicts one another, so that whoever configured it can be told.
func TestUnsafeTimingNamesTheFields(t *testing.T) {
	timing := DefaultTiming(false)
	timing.OrphanGrace = time.Minute
	var unsafe *UnsafeTimingError
	require.ErrorAs(t, timing.Validate(false), &unsafe)
	require.Equal(t, []string{"OrphanGrace", "JobDeadline", "PutHorizon", "MaxClockSkew"}, unsafe.Fields)
	timing = DefaultTiming(true)
	timing.OrphanGrace = time.Minute
	require.ErrorAs(t, timing.Validate(true), &unsafe)
	require.Equal(t, []string{"OrphanGrace", "JobDeadline"}, unsafe.Fields, "what counts as 0 is no part of it")
	timing = DefaultTiming(true)
	timing.UndeleteWindow = -1
	require.ErrorAs(t, timing.Validate(true), &unsafe)
	require.Equal(t, []string{"UndeleteWindow"}, unsafe.Fields)
}

func TestTimingValidate(t *testing.T) {
	require.NoError(t, DefaultTiming(true).Validate(true))
	require.NoError(t, DefaultTiming(false).Validate(false))
	require.ErrorIs(t, DefaultTiming(true).Validate(false), ErrUnsafeTiming)
	require.ErrorIs(t, DefaultTiming(false).Validate(true), ErrUnsafeTiming)

	const tick = time.Nanosecond
	// A grace must exceed its sum: at the sum it is refused, a tick above it is not.
	for _, c := range []struct {
		name     string
		embedded bool
		change   func(*Timing)
		ok       bool
	}{
		{"horizon on an embedded store", true, func(t *Timing) { t.PutHorizon = tick }, false},
		{"no horizon on a shared store", false, func(t *Timing) { t.PutHorizon = 0 }, false},
		{"longest upload", false, func(t *Timing) { t.LongestUpload, t.MaxClockSkew = t.PutHorizon-tick, 0 }, true},
		{"longest upload up to the horizon", false, func(t *Timing) { t.LongestUpload = t.PutHorizon }, false},
		{"longest upload below 0", false, func(t *Timing) { t.LongestUpload = -tick }, false},
		{"longest upload without a horizon", true, func(t *Timing) { t.LongestUpload = tick }, false},
		{"horizon below 0", false, func(t *Timing) { t.PutHorizon = -tick }, false},
		{"no TTL", true, func(t *Timing) { t.SessionTTL = 0 }, false},
		{"no deadline", true, func(t *Timing) { t.JobDeadline = 0 }, false},
		{"skew below 0", true, func(t *Timing) { t.MaxClockSkew = -tick }, false},
		{"a session of twice the skew", false, func(t *Timing) { t.SessionTTL = 2 * t.MaxClockSkew }, true},
		{"a session of less", false, func(t *Timing) { t.SessionTTL = 2*t.MaxClockSkew - tick }, false},
		{"a horizon of twice the skew and an upload", false, func(t *Timing) { t.PutHorizon, t.LongestUpload = 2*t.MaxClockSkew+5, 5 }, true},
		{"a horizon of less", false, func(t *Timing) { t.PutHorizon, t.LongestUpload = 2*t.MaxClockSkew+4, 5 }, false},
		{"embedded: a session of less", true, func(t *Timing) { t.SessionTTL = t.MaxClockSkew }, true},
		{"no skew", false, func(t *Timing) { t.MaxClockSkew = 0 }, true},
		{"age cap below 0", true, func(t *Timing) { t.SettleAgeCap = -tick }, false},
		{"no age cap", true, func(t *Timing) { t.SettleAgeCap = 0 }, true},
		{"no recheck", true, func(t *Timing) { t.SettleRecheck = 0 }, false},

		{"retire grace at the sum", false, func(t *Timing) { t.RetireGrace = t.SessionTTL + t.PutHorizon + t.MaxClockSkew }, false},
		{"retire grace above it", false, func(t *Timing) { t.RetireGrace = t.SessionTTL + t.PutHorizon + t.MaxClockSkew + tick }, true},
		{"trim grace at the sum", false, func(t *Timing) { t.TrimGrace = t.SessionTTL + t.PutHorizon + t.MaxClockSkew }, false},
		{"trim grace above it", false, func(t *Timing) { t.TrimGrace = t.SessionTTL + t.PutHorizon + t.MaxClockSkew + tick }, true},
		{"reap grace at the sum", false, func(t *Timing) { t.ReapGrace = t.PutHorizon + t.MaxClockSkew }, false},
		{"reap grace above it", false, func(t *Timing) { t.ReapGrace = t.PutHorizon + t.MaxClockSkew + tick }, true},
		{"orphan grace at the sum", false, func(t *Timing) { t.OrphanGrace = t.JobDeadline + t.PutHorizon + t.MaxClockSkew }, false},
		{"orphan grace above it", false, func(t *Timing) { t.OrphanGrace = t.JobDeadline + t.PutHorizon + t.MaxClockSkew + tick }, true},
		{"a sum beyond the longest duration", false, func(t *Timing) {
			t.SessionTTL, t.MaxClockSkew, t.ReapGrace, t.OrphanGrace = math.MaxInt64, time.Hour, 2*time.Hour, 2*time.Hour
		}, false},

		// Embedded, TTL and skew count as 0, the job deadline does not.
		{"embedded: the shortest graces", true, func(t *Timing) {
			t.RetireGrace, t.TrimGrace, t.ReapGrace, t.OrphanGrace = tick, tick, tick, t.JobDeadline+tick
		}, true},
		{"embedded: no retire grace", true, func(t *Timing) { t.RetireGrace = 0 }, false},
		{"embedded: no trim grace", true, func(t *Timing) { t.TrimGrace = 0 }, false},
		{"embedded: no reap grace", true, func(t *Timing) { t.ReapGrace = 0 }, false},
		{"embedded: orphan grace at the deadline", true, func(t *Timing) { t.OrphanGrace = t.JobDeadline }, false},
		{"the issue's short ones", true, func(t *Timing) {
			t.SettleAgeCap, t.ReapGrace, t.TrimGrace, t.RetireGrace = time.Second, time.Second, time.Second, time.Second
			t.OrphanGrace, t.PutHorizon = time.Hour, 0
		}, true},
	} {
		timing := DefaultTiming(c.embedded)
		c.change(&timing)
		if c.ok {
			require.NoError(t, timing.Validate(c.embedded), c.name)
		} else {
			require.ErrorIs(t, timing.Validate(c.embedded), ErrUnsafeTiming, c.name)
		}
	}
}

// A ready time never comes before the grace has passed, and at most a bucket and a
// millisecond after it; two arms of one bucket share it.
func TestReadyAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, rapid.Int64Range(0, 1<<61).Draw(t, "now"))
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "grace"))
		ready := time.UnixMilli(int64(readyAt(now, d)))
		require.False(t, ready.Before(now.Add(d)))
		require.Less(t, ready.Sub(now.Add(d)), min(MarkerBucket, max(d, 1))+time.Millisecond)
	})
	base := time.UnixMilli(30_000 * 1000)
	require.Equal(t, uint64(30_000*1000+60_000), readyAt(base.Add(time.Nanosecond), MarkerBucket))
	require.Equal(t, uint64(30_000*1000+60_000), readyAt(base.Add(MarkerBucket), MarkerBucket))
	require.Equal(t, uint64(30_000*1000+2_000), readyAt(base.Add(time.Nanosecond), time.Second), "a short grace has short buckets")
}

package catalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
)

// MarkerBucket is what ready times are rounded up to, so that those who announce
// the same thing at about the same time write one marker.
const MarkerBucket = 30 * time.Second

// MinRearm is the least that a marker is re-armed ahead, so that no duty spins.
const MinRearm = 5 * time.Second

// MinSessionTTL is the shortest session: a keep-alive, a third of it apart, must have time to be answered.
const MinSessionTTL = 100 * time.Millisecond

// Timing holds every duration that correctness or policy of the keyspace rests on.
// Two processes on one keyspace must run with the same one.
type Timing struct {
	// PutHorizon bounds how long after its announcement a PUT may take effect.
	// 0 is legal only where a dead process cannot write: embedded store, local
	// directory.
	PutHorizon time.Duration
	// SessionTTL is how long a session outlives its last keep-alive.
	SessionTTL time.Duration
	// MaxClockSkew bounds how far two nodes' clocks differ.
	MaxClockSkew time.Duration
	// JobDeadline bounds one job of the auditor, and with it a publish.
	JobDeadline time.Duration

	// SettleAgeCap is how long absorbed slots wait for more before they are settled.
	SettleAgeCap time.Duration
	// SettleOwedBytes is how many absorbed bytes a chain may owe to the settle
	// rewrite before its markers are armed ready now.
	SettleOwedBytes uint64
	// SettleRecheck is how often a live chain is looked at.
	SettleRecheck time.Duration
	// ReapGrace, TrimGrace, RetireGrace and OrphanGrace are the waits before an
	// unreferenced object is probed, a rewritten slot deleted, a sealed chain
	// retired and an unresolved intent judged.
	ReapGrace, TrimGrace, RetireGrace, OrphanGrace time.Duration
	// UndeleteWindow is how long after its deletion a stream's teardown begins (0: at once).
	UndeleteWindow time.Duration
}

// DefaultTiming returns the defaults: for an embedded store with a local directory
// (horizon 0), or for a shared store.
func DefaultTiming(embedded bool) Timing {
	t := Timing{
		PutHorizon:      2 * time.Minute,
		SessionTTL:      10 * time.Second,
		MaxClockSkew:    2 * time.Second,
		JobDeadline:     10 * time.Minute,
		SettleAgeCap:    time.Minute,
		SettleOwedBytes: 32 << 20,
		SettleRecheck:   time.Minute,
		ReapGrace:       3 * time.Minute,
		TrimGrace:       3 * time.Minute,
		RetireGrace:     3 * time.Minute,
		OrphanGrace:     time.Hour,
	}
	if embedded {
		t.PutHorizon = 0
		t.ReapGrace, t.TrimGrace, t.RetireGrace = 30*time.Second, 30*time.Second, 30*time.Second
	}
	return t
}

// ErrUnsafeTiming: a configuration under which a late PUT could land with nobody
// to watch it.
var ErrUnsafeTiming = errors.New("unsafe timing")

// Validate refuses a timing that breaks the one timing assumption: a PUT takes
// effect, if ever, before its announcement + PutHorizon. The retire and trim
// graces must exceed SessionTTL + PutHorizon + MaxClockSkew, since the first try
// of a slot that was retried may still be under way; the reap grace PutHorizon +
// MaxClockSkew; the orphan grace JobDeadline + PutHorizon + MaxClockSkew. Where
// the process's death ends its writes (embedded), TTL and skew count as 0.
func (t Timing) Validate(embedded bool) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrUnsafeTiming}, a...)...)
	}
	ttl, skew := t.SessionTTL, t.MaxClockSkew
	if embedded {
		if t.PutHorizon != 0 {
			return bad("the put horizon must be 0 on an embedded store with a local directory, not %v", t.PutHorizon)
		}
		ttl, skew = 0, 0
	} else if t.PutHorizon <= 0 {
		return bad("the put horizon must be above 0 on a shared store")
	}
	switch {
	case t.SessionTTL < MinSessionTTL:
		return bad("the session TTL of %v leaves no time for a keep-alive; it must be %v at least", t.SessionTTL, MinSessionTTL)
	case t.JobDeadline <= 0 || t.MaxClockSkew < 0:
		return bad("the job deadline must be above 0, the clock skew not below")
	case t.SettleAgeCap < 0 || t.SettleRecheck <= 0:
		return bad("the settle recheck must be above 0, the age cap not below")
	case t.UndeleteWindow < 0 || t.UndeleteWindow > MaxPolicyAge:
		return bad("the undelete window must be 0 to 100 years")
	}
	for _, g := range []struct {
		name       string
		have, over time.Duration
		rule       string
	}{
		{"retire grace", t.RetireGrace, ttl + t.PutHorizon + skew, "session TTL + put horizon + clock skew"},
		{"trim grace", t.TrimGrace, ttl + t.PutHorizon + skew, "session TTL + put horizon + clock skew"},
		{"reap grace", t.ReapGrace, t.PutHorizon + skew, "put horizon + clock skew"},
		{"orphan grace", t.OrphanGrace, t.JobDeadline + t.PutHorizon + skew, "job deadline + put horizon + clock skew"},
	} {
		if g.have <= g.over {
			return bad("the %s of %v must exceed %s = %v", g.name, g.have, g.rule, g.over)
		}
	}
	return nil
}

// readyAt is now + d, rounded up to the marker bucket, or to d where that is shorter.
func readyAt(now time.Time, d time.Duration) uint64 {
	return ceilMS(clock.RoundUp(now.Add(d), min(MarkerBucket, d)))
}

// ceilMS is a time in the whole milliseconds of ready times: rounded up, never down.
func ceilMS(t time.Time) uint64 {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++
	}
	return uint64(max(ms, 0))
}

func unixMS(t time.Time) int64 { return t.UnixMilli() }

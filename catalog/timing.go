package catalog

import (
	"errors"
	"fmt"
	"math"
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
// Those of two processes on one keyspace may differ as far as [Timing.Beside] says.
type Timing struct {
	// PutHorizon bounds how long after its announcement a PUT may take effect.
	// 0 is legal only where a dead process cannot write: embedded store, local
	// directory.
	PutHorizon time.Duration
	// LongestUpload is the part of PutHorizon for which a PUT may go on that its bucket
	// judged to be in time: NotAfter is so much before the horizon's end. A bucket that looks at the time
	// when a request begins has one; 0 where it looks when the effect happens.
	LongestUpload time.Duration
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

// UnsafeTimingError names the fields of a [Timing] that are out of bounds or contradict one another; it is an
// ErrUnsafeTiming.
type UnsafeTimingError struct {
	// Fields of Timing, first the one that is too small or too large, then those that say so.
	Fields []string
	Reason string
}

func (e *UnsafeTimingError) Error() string { return ErrUnsafeTiming.Error() + ": " + e.Reason }

// Is makes errors.Is(err, ErrUnsafeTiming) hold.
func (e *UnsafeTimingError) Is(target error) bool { return target == ErrUnsafeTiming }

// Validate refuses a timing that breaks the one timing assumption: a PUT takes
// effect, if ever, before its announcement + PutHorizon. The retire and trim
// graces must exceed SessionTTL + PutHorizon + MaxClockSkew, since the first try
// of a slot that was retried may still be under way; the reap grace PutHorizon +
// MaxClockSkew; the orphan grace JobDeadline + PutHorizon + MaxClockSkew. And a PUT must
// come to be in time: it is good for what is left of a session, or for the horizon less the longest upload, and the bucket that judges it may be
// ahead by the skew. Both must be twice that, so that half is left (docs/adr/0025-puts-outlast-the-skew.md). Where
// the process's death ends its writes (embedded), TTL and skew count as 0.
func (t Timing) Validate(embedded bool) error {
	if err := t.safe(embedded); err != nil || embedded {
		return err
	}
	inTime := timingTerm{"PutHorizon", "put horizon", t.PutHorizon - t.LongestUpload}
	if t.LongestUpload != 0 {
		inTime.text += " less the longest upload"
	}
	for _, good := range []timingTerm{{"SessionTTL", "session TTL", t.SessionTTL}, inTime} {
		if err := good.mustOutlast(timingTerm{"MaxClockSkew", "clock skew", t.MaxClockSkew}); err != nil {
			return err
		}
	}
	return nil
}

// safe checks what deletion rests on: all that [Timing.Validate] asks for but for the last.
func (t Timing) safe(embedded bool) error {
	bad := func(field, format string, a ...any) error {
		return &UnsafeTimingError{Fields: []string{field}, Reason: fmt.Sprintf(format, a...)}
	}
	ttl, skew := t.SessionTTL, t.MaxClockSkew
	if embedded {
		if t.PutHorizon != 0 {
			return bad("PutHorizon", "the put horizon must be 0 on an embedded store with a local directory, not %v", t.PutHorizon)
		}
		ttl, skew = 0, 0
	} else if t.PutHorizon <= 0 {
		return bad("PutHorizon", "the put horizon must be above 0 on a shared store")
	}
	if t.LongestUpload != 0 && (t.LongestUpload < 0 || t.LongestUpload >= t.PutHorizon) {
		return bad("PutHorizon", "the put horizon of %v must exceed the longest upload, %v", t.PutHorizon, t.LongestUpload)
	}
	switch {
	case t.SessionTTL < MinSessionTTL:
		return bad("SessionTTL", "the session TTL of %v leaves no time for a keep-alive; it must be %v at least", t.SessionTTL, MinSessionTTL)
	case t.JobDeadline <= 0:
		return bad("JobDeadline", "the job deadline must be above 0")
	case t.MaxClockSkew < 0:
		return bad("MaxClockSkew", "the clock skew must not be below 0")
	case t.SettleAgeCap < 0:
		return bad("SettleAgeCap", "the settle age cap must not be below 0")
	case t.SettleRecheck <= 0:
		return bad("SettleRecheck", "the settle recheck must be above 0")
	case t.UndeleteWindow < 0 || t.UndeleteWindow > MaxPolicyAge:
		return bad("UndeleteWindow", "the undelete window must be 0 to 100 years")
	}
	horizon := timingTerm{"PutHorizon", "put horizon", t.PutHorizon}
	session, clocks := timingTerm{"SessionTTL", "session TTL", ttl}, timingTerm{"MaxClockSkew", "clock skew", skew}
	for _, g := range []struct {
		grace timingTerm
		over  []timingTerm
	}{
		{timingTerm{"RetireGrace", "retire grace", t.RetireGrace}, []timingTerm{session, horizon, clocks}},
		{timingTerm{"TrimGrace", "trim grace", t.TrimGrace}, []timingTerm{session, horizon, clocks}},
		{timingTerm{"ReapGrace", "reap grace", t.ReapGrace}, []timingTerm{horizon, clocks}},
		{timingTerm{"OrphanGrace", "orphan grace", t.OrphanGrace}, []timingTerm{{"JobDeadline", "job deadline", t.JobDeadline}, horizon, clocks}},
	} {
		if err := g.grace.mustExceed(g.over); err != nil {
			return err
		}
	}
	return nil
}

// timingTerm is one duration of a rule.
type timingTerm struct {
	field, text string
	value       time.Duration
}

// mustExceed refuses a grace that does not exceed the sum, and names it and what the sum is made of. A sum beyond the longest
// duration counts as that one, which no grace exceeds. No term is below 0.
func (g timingTerm) mustExceed(over []timingTerm) error {
	fields, rule, sum := []string{g.field}, "", time.Duration(0)
	for i, o := range over {
		if i > 0 {
			rule += " + "
		}
		rule += o.text
		sum += min(o.value, math.MaxInt64-sum)
		if o.value != 0 {
			fields = append(fields, o.field)
		}
	}
	if g.value > sum {
		return nil
	}
	return &UnsafeTimingError{Fields: fields, Reason: fmt.Sprintf("the %s of %v must exceed %s = %v", g.text, g.value, rule, sum)}
}

// mustOutlast refuses what a PUT is good for, of which less than half would be left at its start by a clock that is ahead by the skew.
func (g timingTerm) mustOutlast(skew timingTerm) error {
	if g.value/2 >= skew.value {
		return nil
	}
	return &UnsafeTimingError{Fields: []string{g.field, skew.field}, Reason: fmt.Sprintf("the %s of %v must be at least twice the %s of %v, or what a node puts may never be in time where the bucket's clock is ahead of its own", g.text, g.value, skew.text, skew.value)}
}

// notAfter is that of a PUT that is announced by a commit whose first try begins at start: the zero time where the
// horizon is 0.
func (t Timing) notAfter(start time.Time) time.Time {
	if t.PutHorizon == 0 {
		return time.Time{}
	}
	return start.Add(t.PutHorizon - t.LongestUpload)
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

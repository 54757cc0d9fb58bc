package catalog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Nodes need not have the same timing, but each must wait for what the other may still write.
func TestTimingBeside(t *testing.T) {
	base := DefaultTiming(false)
	for name, c := range map[string]struct {
		change func(*Timing)
		differ []string
		unsafe []string // what is refused, first the field that is too small
	}{
		"equal":                     {change: func(*Timing) {}},
		"what no deletion rests on": {change: func(o *Timing) { o.SettleAgeCap, o.UndeleteWindow, o.LongestUpload = time.Hour, time.Hour, time.Second }},
		"longer graces": {
			change: func(o *Timing) { o.TrimGrace, o.ReapGrace = time.Hour, time.Hour },
			differ: []string{"ReapGrace", "TrimGrace"},
		},
		"a shorter horizon": {change: func(o *Timing) { o.PutHorizon = time.Minute }, differ: []string{"PutHorizon"}},
		"a shorter grace that still exceeds": {
			change: func(o *Timing) { o.RetireGrace = base.SessionTTL + base.PutHorizon + base.MaxClockSkew + 1 },
			differ: []string{"RetireGrace"},
		},
		"a shorter grace, legal with its own shorter horizon": {
			change: func(o *Timing) { o.PutHorizon, o.ReapGrace = 10*time.Second, 20*time.Second },
			differ: []string{"PutHorizon", "ReapGrace"}, unsafe: []string{"ReapGrace", "PutHorizon", "MaxClockSkew"},
		},
		"a longer horizon, legal with its own longer graces": {
			change: func(o *Timing) {
				o.PutHorizon, o.ReapGrace, o.TrimGrace, o.RetireGrace = time.Hour, 2*time.Hour, 2*time.Hour, 2*time.Hour
				o.OrphanGrace = 3 * time.Hour
			},
			differ: []string{"PutHorizon", "ReapGrace", "TrimGrace", "RetireGrace", "OrphanGrace"},
			unsafe: []string{"RetireGrace", "SessionTTL", "PutHorizon", "MaxClockSkew"},
		},
		"a longer job deadline": {
			change: func(o *Timing) { o.JobDeadline, o.OrphanGrace = time.Hour, 2*time.Hour },
			differ: []string{"JobDeadline", "OrphanGrace"}, unsafe: []string{"OrphanGrace", "JobDeadline", "PutHorizon", "MaxClockSkew"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := base
			c.change(&other)
			require.NoError(t, other.Validate(false), "by itself it is legal")
			for _, side := range []struct{ a, b Timing }{{base, other}, {other, base}} {
				differ, err := side.a.Beside(side.b.OfNode("b"))
				require.Equal(t, c.differ, differ)
				if c.unsafe == nil {
					require.NoError(t, err)
					continue
				}
				var unsafe *UnsafeTimingError
				require.ErrorAs(t, err, &unsafe)
				require.Equal(t, c.unsafe, unsafe.Fields)
			}
		})
	}
}

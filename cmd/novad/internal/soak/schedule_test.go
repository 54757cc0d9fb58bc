package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSchedules: half an hour has the faults that it must have, of etcd and of S3 only one at a time, and
// the same seed the same ones.
func TestSchedules(t *testing.T) {
	for _, form := range []Form{Cluster, Single} {
		for seed := range uint64(50) {
			all := schedule(seed, form, 30*time.Minute, SessionTTL)
			require.Equal(t, all, schedule(seed, form, 30*time.Minute, SessionTTL))
			require.NotEqual(t, all, schedule(seed+1, form, 30*time.Minute, SessionTTL))
			count := map[faultKind]int{}
			type oneAtATime struct {
				kind faultKind
				role role
			}
			until := map[oneAtATime]time.Duration{}
			for i, f := range all {
				count[f.Kind]++
				require.LessOrEqual(t, f.At, 30*time.Minute-calm)
				require.GreaterOrEqual(t, f.At, calm)
				if i > 0 {
					require.GreaterOrEqual(t, f.At, all[i-1].At)
				}
				if f.Kind == faultPause {
					require.Greater(t, f.For, SessionTTL)
				}
				if f.Kind == faultRestart || f.Kind == faultFill {
					key := oneAtATime{f.Kind, f.Role}
					require.Greater(t, f.At, until[key])
					until[key] = f.At + f.For
				}
			}
			require.GreaterOrEqual(t, count[faultKill], 130, "kills")
			require.GreaterOrEqual(t, count[faultPause], 30, "pauses")
			if form == Cluster {
				require.GreaterOrEqual(t, count[faultRestart], 35)
				require.Zero(t, count[faultFill])
			} else {
				require.GreaterOrEqual(t, count[faultFill], 20)
				require.Zero(t, count[faultRestart])
			}
		}
	}
}

func TestCrashesAreCounted(t *testing.T) {
	log := "{\"level\":\"INFO\"}\npanic: oh no\n\ngoroutine 1 [running]:\nfatal error: all goroutines are asleep\nno panic: here\n" + strings.Repeat("x", 10_000) + "\npanic: at the end"
	n, err := countCrashes(strings.NewReader(log))
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

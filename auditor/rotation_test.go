package auditor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

// shut is a store that can't walk one range while shut is set.
type shut struct {
	metastore.Store
	end  string
	shut *bool
}

func (s shut) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	if *s.shut && r.End == s.end {
		return metastore.Page{}, fmt.Errorf("scanning: %w", metastore.ErrUnavailable)
	}
	return s.Store.Scan(ctx, r, limit)
}

// shuttable gives the harness a store that can't walk its shard while the returned variable is set.
func (h *harness) shuttable() *bool {
	failing := true
	h.a.cat = catalog.New(shut{h.inc.Store(), catalog.ShardRange(catalog.Reap, h.shard).End, &failing}, h.inc.Clock(), quick(true), nil)
	return &failing
}

// elsewhere returns the n-th shard's subject of those that are not the harness's shard.
func elsewhere(n int) string {
	seen := map[int]bool{catalog.Shard(object(0)): true}
	for i := 0; ; i++ {
		s := fmt.Sprintf("settled!%06d", i)
		if shard := catalog.Shard(s); !seen[shard] {
			if seen[shard] = true; n == 0 {
				return s
			}
			n--
		}
	}
}

// asked is a source that must not be asked again once it had nothing to offer.
type asked struct {
	*source
	t     *testing.T
	jobs  int
	spent bool
}

func (a *asked) next(ctx context.Context) func(ctx context.Context) {
	require.False(a.t, a.spent, "asked after it had left")
	run := a.source.next(ctx)
	if run == nil {
		a.spent = true
	} else {
		a.jobs++
	}
	return run
}

// One that is exhausted, one that stopped at an unripe marker and one whose store failed leave the rotation, each after
// what it had to offer, and the others go on.
func TestASourceLeavesTheRotation(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.shuttable()
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Minute, object(0)) // can't be walked
		for i := range 3 {
			h.arm(ctx, time.Duration(i-30)*time.Second, elsewhere(0))
			h.arm(ctx, time.Duration(i-30)*time.Second, elsewhere(1))
		}
		unripe := h.arm(ctx, time.Hour, elsewhere(1))
		require.NoError(t, h.a.ring.refresh(ctx))
		var live []offer
		by := map[int]*asked{}
		for _, o := range h.a.open(ctx) {
			a := &asked{source: o.(*source), t: t}
			by[a.shard] = a
			live = append(live, a)
		}
		require.Len(t, live, 3)
		h.a.pool.rotate(ctx, ctx, live)
		require.NoError(t, h.a.pool.tasks.Wait(ctx))
		for shard, want := range map[int]struct {
			jobs  int
			state walkState
		}{
			h.shard:                     {0, walkFailed},
			catalog.Shard(elsewhere(0)): {3, walkDone},
			catalog.Shard(elsewhere(1)): {3, walkDone},
		} {
			require.True(t, by[shard].spent)
			require.Equal(t, want.jobs, by[shard].jobs)
			require.Equal(t, want.state, by[shard].state)
		}
		require.Contains(t, h.markers(catalog.Reap), unripe)
	})
}

// A shard that can't be walked is told of, and is walked again by the next pass.
func TestAFailedSourceIsLoggedAndTriedAgain(t *testing.T) {
	var log strings.Builder
	h := newHarnessRig(t, func(o *Options) { o.Logger = textLogger(&log) })
	failing := h.shuttable()
	h.do(func(ctx context.Context) {
		h.arm(ctx, -time.Minute, object(0))
		h.arm(ctx, -time.Minute, elsewhere(0))
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{elsewhere(0)}, h.d.ran, "it holds nobody else back")
		require.Contains(t, log.String(), "level=WARN")
		require.Contains(t, log.String(), fmt.Sprintf("queue=reap shard=%d", h.shard))
		*failing = false
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{elsewhere(0), object(0)}, h.d.ran)
	})
}

// A pass whose budget ends before its work is followed by the next one at once, not after the idle interval.
func TestAPassCutByItsBudgetIsFollowedAtOnce(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		require.NoError(t, h.inc.Clock().Sleep(ctx, 7*time.Second))
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	h.do(func(ctx context.Context) {
		for i := range 10 {
			h.arm(ctx, time.Duration(i-60)*time.Second, object(i))
		}
	})
	start := h.w.Time()
	var looks []time.Duration
	h.w.OnStep(func(s *sim.StepInfo) {
		if s.Op == sim.OpPeek {
			looks = append(looks, h.w.Time().Sub(start))
		}
	})
	h.inc.Go("run", func(ctx context.Context) { require.NoError(t, h.a.Run(ctx)) })
	h.w.RunFor(75 * time.Second)
	require.Len(t, h.d.ran, 10)
	require.Empty(t, h.markers(catalog.Reap))
	require.Contains(t, looks, 30*time.Second, "the first pass ended with its budget, and the second began")
	h.inc.Interrupt()
	h.w.RunFor(time.Minute)
}

// Who came, which stars are registered, and what leases are left to give back is found out at the start of each pass.
func TestABoundaryRefreshesSeatAndLeases(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		h.mint(ctx, "a", 4)
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.a.Seat().Shards, catalog.Shards)
		require.Equal(t, []string{"a"}, h.a.Seat().Stars)

		s, err := h.cat.Store().OpenSession(ctx, time.Hour)
		require.NoError(t, err)
		require.NoError(t, h.cat.Announce(ctx, s.ID(), "n"))
		h.mint(ctx, "b", 4)
		h.mint(ctx, "c", 4)
		l, err := h.a.leases.claim(ctx, "a job")
		require.NoError(t, err)
		h.a.leases.leaked = append(h.a.leases.leaked, *l)
		require.Len(t, leasesIn(h.rig), 1)

		h.passes(ctx, h.a, 1, 0)
		require.Empty(t, leasesIn(h.rig))
		require.Equal(t, Deal("m", []string{"m", "n"}, []string{"a", "b", "c"}), h.a.Seat())
		require.Less(t, len(h.a.Seat().Shards), catalog.Shards)
	})
}

// A job that fails is told of, and that is all: those beside it run on, and so does the member.
func TestAFailedJobIsAWarningAlone(t *testing.T) {
	var log strings.Builder
	h := newHarnessRig(t, func(o *Options) { o.Logger, o.Workers = textLogger(&log), 4 })
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		if j.Marker.Due.Subject == object(0) {
			return Standing, errors.New("poisoned")
		}
		if err := h.inc.Clock().Sleep(ctx, 3*time.Second); err != nil {
			return Standing, err
		}
		return Resolved, h.cat.ResolveMarker(ctx, j.Marker)
	}
	var bad string
	h.do(func(ctx context.Context) {
		h.arm(ctx, -3*time.Second, object(1))
		bad = h.arm(ctx, -2*time.Second, object(0))
		h.arm(ctx, -time.Second, object(2))
	})
	running := true
	h.inc.Go("run", func(ctx context.Context) {
		require.NoError(t, h.a.Run(ctx))
		running = false
	})
	h.w.RunFor(4 * time.Second)
	require.Equal(t, []string{bad}, h.markers(catalog.Reap), "its siblings resolved")
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	require.Contains(t, log.String(), "marker="+bad)
	require.Contains(t, log.String(), "err=poisoned")
	require.True(t, running)
	h.inc.Interrupt()
	h.w.RunFor(time.Minute)
	require.False(t, running)
}

// A lost claim is nothing to tell of, unless the marker is so long past due that its holder must be wedged.
func TestALostClaimOfALongDueMarkerIsAWarning(t *testing.T) {
	var log strings.Builder
	h := newHarnessRig(t, func(o *Options) { o.Logger = textLogger(&log) })
	h.do(func(ctx context.Context) {
		key := h.arm(ctx, -5*time.Minute, object(0))
		s, err := h.cat.Store().OpenSession(ctx, time.Hour)
		require.NoError(t, err)
		_, err = h.cat.Claim(ctx, s.ID(), key, "other")
		require.NoError(t, err)
		h.passes(ctx, h.a, 1, time.Second)
		require.Len(t, h.did(LeaseSkipped), 1)
		require.NotContains(t, log.String(), "level=WARN")
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.did(LeaseSkipped), 2)
		require.Contains(t, log.String(), "level=WARN")
		require.Contains(t, log.String(), "job="+key)
	})
}

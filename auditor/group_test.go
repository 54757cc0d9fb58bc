package auditor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
)

// groups makes the fake duty one that works on groups; f is what it does with each member.
func (h *harness) groups(upTo, abreast int, f func(ctx context.Context, m catalog.MarkerAt) (Outcome, error)) {
	reg := h.a.sources[0].reg
	reg.GroupUpTo, reg.GroupAbreast = upTo, abreast
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) { return j.each(ctx, f) }
}

// A job takes up to as many markers as a group holds, from one source, and works on so many abreast.
func TestGroupsAreGathered(t *testing.T) {
	h := newHarnessRig(t, nil)
	var sizes []int
	abreast, most := 0, 0
	h.groups(16, 8, func(ctx context.Context, m catalog.MarkerAt) (Outcome, error) {
		abreast++
		most = max(most, abreast)
		defer func() { abreast-- }()
		require.NoError(t, h.inc.Clock().Sleep(ctx, time.Second))
		return Resolved, h.cat.ResolveMarker(ctx, m)
	})
	inner := h.d.handle
	h.d.handle = func(ctx context.Context, j *Job) (Outcome, error) {
		require.Equal(t, j.Markers[0], j.Marker)
		require.Len(t, leasesIn(h.rig), len(j.Markers), "each member has a lease of its own")
		sizes = append(sizes, len(j.Markers))
		return inner(ctx, j)
	}
	h.do(func(ctx context.Context) {
		for i := range 20 {
			h.arm(ctx, time.Duration(i-60)*time.Second, object(i))
		}
		unripe := h.arm(ctx, time.Hour, object(20))
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{unripe}, h.markers(catalog.Reap))
		require.Equal(t, []int{16, 4}, sizes, "the unripe marker ends the gathering, and not the group")
		require.Equal(t, 8, most)
		require.Empty(t, leasesIn(h.rig))
		require.Len(t, h.did(JobDone), 20, "each member is accounted for")
		require.Zero(t, len(h.a.pool.busy))
	})
}

// A member that fails stands and rests by itself; its siblings resolve. One that a peer has leased is left out.
func TestMembersConvergeByThemselves(t *testing.T) {
	h := newHarnessRig(t, nil)
	bad := errors.New("bad")
	h.groups(16, 2, func(ctx context.Context, m catalog.MarkerAt) (Outcome, error) {
		switch m.Due.Subject {
		case object(1):
			return Standing, bad
		case object(3):
			return Waiting, h.cat.ResolveMarker(ctx, m)
		}
		return Resolved, h.cat.ResolveMarker(ctx, m)
	})
	h.do(func(ctx context.Context) {
		var keys []string
		for i := range 5 {
			keys = append(keys, h.arm(ctx, time.Duration(i-60)*time.Second, object(i)))
		}
		s, err := h.cat.Store().OpenSession(ctx, time.Minute)
		require.NoError(t, err)
		_, err = h.cat.Claim(ctx, s.ID(), keys[2], "other")
		require.NoError(t, err)
		h.passes(ctx, h.a, 1, 0)
		require.Equal(t, []string{keys[1], keys[2]}, h.markers(catalog.Reap))
		require.Len(t, h.did(LeaseSkipped), 1)
		require.Equal(t, keys[1], h.a.sources[h.shard].pos, "what stands holds the position")
		require.Equal(t, map[Outcome]int{Standing: 1, Resolved: 2, Waiting: 1}, outcomes(h.did(JobDone)))
	})
}

func outcomes(es []Event) map[Outcome]int {
	out := map[Outcome]int{}
	for _, e := range es {
		out[e.Outcome]++
	}
	return out
}

// A member that has ended is free again at once, whatever its siblings do.
func TestAMemberDoesNotWaitForItsSiblings(t *testing.T) {
	h := newHarnessRig(t, func(o *Options) { o.Workers = 4 })
	ran := map[string]int{}
	h.groups(2, 2, func(ctx context.Context, m catalog.MarkerAt) (Outcome, error) {
		ran[m.Due.Subject]++
		if m.Due.Subject == object(0) {
			return Standing, h.inc.Clock().Sleep(ctx, time.Minute/2)
		}
		return Standing, nil
	})
	h.do(func(ctx context.Context) {
		h.arm(ctx, -2*time.Second, object(0))
		h.arm(ctx, -time.Second, object(1))
		h.a.pass(ctx)
		require.NoError(t, h.inc.Clock().Sleep(ctx, backoffFirst))
		h.a.pass(ctx)
		require.Equal(t, map[string]int{object(0): 1, object(1): 2}, ran)
		require.NoError(t, h.a.pool.tasks.Wait(ctx))
	})
}

// What no call was made for when the job's deadline ended counts as failed, and the lease goes back by its end.
func TestAGroupThatIsCutLeavesItsMembersStanding(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.groups(4, 1, func(ctx context.Context, m catalog.MarkerAt) (Outcome, error) {
		return Standing, h.inc.Clock().Sleep(ctx, 24*time.Hour)
	})
	h.do(func(ctx context.Context) {
		for i := range 4 {
			h.arm(ctx, time.Duration(i-60)*time.Second, object(i))
		}
		h.passes(ctx, h.a, 1, 0)
		require.Len(t, h.markers(catalog.Reap), 4)
		require.Len(t, h.did(JobDone), 4)
		for _, e := range h.did(JobDone) {
			require.ErrorIs(t, e.Err, context.DeadlineExceeded)
		}
		require.Zero(t, len(h.a.pool.busy))
		require.Len(t, h.a.backoff.by, 4)
	})
}

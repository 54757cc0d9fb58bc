package auditor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
)

func names(t *rapid.T, label string, least int) []string {
	out := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,12}`), least, 12, rapid.ID[string]).Draw(t, label)
	slices.Sort(out)
	return out
}

func TestDealGivesEveryShardAndStarOneSeat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roster, stars := names(t, "roster", 1), names(t, "stars", 0)
		shards, seats := map[int]int{}, map[string]int{}
		least, most := len(stars), 0
		for _, m := range roster {
			seat := Deal(m, roster, stars)
			require.True(t, slices.IsSorted(seat.Stars))
			least, most = min(least, len(seat.Stars)), max(most, len(seat.Stars))
			for _, s := range seat.Shards {
				shards[s]++
			}
			for _, s := range seat.Stars {
				seats[s]++
			}
		}
		require.Len(t, shards, catalog.Shards)
		require.Len(t, seats, len(stars))
		for s, n := range shards {
			require.Equal(t, 1, n, "shard %d", s)
		}
		for s, n := range seats {
			require.Equal(t, 1, n, "star %s", s)
		}
		require.LessOrEqual(t, most-least, 1, "stars are dealt evenly")
		out := Deal("~nobody", roster, stars)
		require.Empty(t, out.Shards, "a member that is not announced owns nothing")
		require.Empty(t, out.Stars)
	})
}

func TestRendezvousMovesOnlyWhatItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roster := names(t, "roster", 2)
		leaver := rapid.SampledFrom(roster).Draw(t, "leaver")
		rest := slices.DeleteFunc(slices.Clone(roster), func(m string) bool { return m == leaver })
		for shard := range catalog.Shards {
			with, without := owner(roster, shard), owner(rest, shard)
			if with != leaver {
				// Read the other way round: who joins takes shards for itself and moves no other.
				require.Equal(t, with, without, "shard %d", shard)
			}
		}
	})
}

func TestRendezvousIsBalanced(t *testing.T) {
	// Over many rosters of n each member has 64/n shards on average; the names are fixed,
	// and so is the result.
	for n := 2; n <= 8; n++ {
		share := make([]int, n)
		const rosters = 200
		for k := range rosters {
			roster := make([]string, n)
			for i := range roster {
				roster[i] = fmt.Sprintf("node-%d-%d", k, i)
			}
			for shard := range catalog.Shards {
				share[slices.Index(roster, owner(roster, shard))]++
			}
		}
		for i, s := range share {
			require.InEpsilon(t, float64(rosters*catalog.Shards)/float64(n), float64(s), 0.1, "member %d of %d", i, n)
		}
	}
}

func TestRingSessionLost(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		require.False(t, a.Announced())
		require.NoError(t, a.ring.refresh(ctx))
		require.True(t, a.Announced())
		require.True(t, a.Live())
		require.Len(t, a.Seat().Shards, catalog.Shards)
		require.Equal(t, []string{"m"}, a.Seat().Members)

		// Nobody keeps it alive: the announcement goes with its session.
		require.NoError(t, r.inc.Clock().Sleep(ctx, 3*r.cat.Timing().SessionTTL))
		require.False(t, a.Live(), "it cannot know yet that it is gone, but that it was not kept alive")
		members, err := r.cat.Roster(ctx)
		require.NoError(t, err)
		require.Empty(t, members)
		require.Error(t, a.ring.refresh(ctx))
		require.False(t, a.ring.owns(0), "a member whose session is gone owns nothing")
		require.Empty(t, a.Seat().Shards)
		require.NoError(t, a.ring.refresh(ctx), "announced anew under another session")
		require.True(t, a.ring.owns(0))
		a.withdraw(ctx)
		require.False(t, a.Announced())
		members, err = r.cat.Roster(ctx)
		require.NoError(t, err)
		require.Empty(t, members)
	})
	require.Len(t, r.did(SessionLost), 1)
	require.Len(t, r.did(Announced), 2)
}

func TestRunKeepsItsPlaceAndWithdraws(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	ended := false
	r.inc.Go("run", func(ctx context.Context) {
		require.NoError(t, a.Run(ctx))
		ended = true
	})
	r.w.RunFor(5 * time.Minute)
	require.True(t, a.Announced())
	require.True(t, a.Live())
	require.Empty(t, r.did(SessionLost), "it is kept alive for many TTLs")
	r.do(func(ctx context.Context) { require.Error(t, a.Run(ctx), "it runs already") })
	r.inc.Interrupt()
	r.w.RunFor(time.Minute)
	require.True(t, ended)
	require.Equal(t, Withdrawn, r.events[len(r.events)-1].Action)
	require.False(t, r.w.StoreView().Get(catalog.MemberKey("m")).Exists())
}

// deaf is a store that never answers a keep-alive.
type deaf struct {
	metastore.Store
	clk   clock.Clock
	asked map[metastore.SessionID]int
}

type deafSession struct {
	metastore.Session
	d *deaf
}

func (d *deaf) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	s, err := d.Store.OpenSession(ctx, ttl)
	return deafSession{s, d}, err
}

func (s deafSession) KeepAlive(ctx context.Context) error {
	s.d.asked[s.ID()]++
	return clock.NewEvent(s.d.clk).Wait(ctx)
}

// A keep-alive that is never answered is given up in time for the other session's, and for
// its own next try.
func TestAKeepAliveThatHangsIsGivenUp(t *testing.T) {
	r := newRig(t, false)
	d := &deaf{r.inc.Store(), r.inc.Clock(), map[metastore.SessionID]int{}}
	r.cat = catalog.New(d, d.clk, quick(false), nil)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		require.NoError(t, a.ring.refresh(ctx))
		_, err := a.leases.claim(ctx, "job")
		require.NoError(t, err)
		ring, leases := a.ring.live().ID(), a.leases.live().ID()
		keeping, stop := d.clk.WithTimeout(ctx, 2*r.cat.Timing().SessionTTL)
		defer stop()
		require.NoError(t, a.keepAlive(keeping))
		require.GreaterOrEqual(t, d.asked[ring], 2)
		require.GreaterOrEqual(t, d.asked[leases], 1)
	})
}

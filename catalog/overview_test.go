package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
)

// stopped is a clock that shows what it was set to.
type stopped struct {
	clock.Real
	now time.Time
}

func (c *stopped) Now() time.Time { return c.now }

func overviewCatalog(t *testing.T) (*catalog.Catalog, *stopped) {
	t.Helper()
	store, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	clk := &stopped{now: time.UnixMilli(1_800_000_000_000)}
	return catalog.New(store, clk, catalog.DefaultTiming(true), nil), clk
}

func put(t *testing.T, cat *catalog.Catalog, keys ...string) {
	t.Helper()
	var b metastore.Batch
	for _, k := range keys {
		b.Ops = append(b.Ops, metastore.Put(k, []byte{1}))
	}
	_, err := cat.Store().Commit(t.Context(), b)
	require.NoError(t, err)
}

func TestDueOverviewTellsRipeFromStanding(t *testing.T) {
	cat, clk := overviewCatalog(t)
	at := func(d time.Duration) uint64 { return uint64(clk.now.Add(d).UnixMilli()) }
	chain := catalog.ChainID{Star: "s", Epoch: 1}
	put(t, cat,
		catalog.DueKey(catalog.Reap, at(-time.Minute), "settled!A"),
		catalog.DueKey(catalog.Reap, at(-time.Hour), "settled!B"),
		catalog.DueKey(catalog.Reap, at(time.Second), "settled!C"),
		catalog.DueKey(catalog.GC, at(time.Hour), "settled!D"),
		catalog.ScheduleKey(chain, 7, int64(at(0))),
		"due/settle/00/malformed",
	)
	_, err := cat.ArmIntent(t.Context(), catalog.SettledKey("E"))
	require.NoError(t, err)
	view := func(most int) map[catalog.Queue]catalog.DueView {
		views, err := cat.DueOverview(t.Context(), most)
		require.NoError(t, err)
		require.Len(t, views, 8)
		by := make(map[catalog.Queue]catalog.DueView)
		for i, v := range views {
			require.Equal(t, catalog.Queues()[i], v.Queue)
			by[v.Queue] = v
		}
		return by
	}
	by := view(100)
	require.Equal(t, catalog.DueView{Queue: catalog.Reap, Standing: 3, Ripe: 2, Age: time.Hour}, by[catalog.Reap])
	require.Equal(t, catalog.DueView{Queue: catalog.GC, Standing: 1, Ripe: 1}, by[catalog.GC], "its order is no time")
	require.Equal(t, catalog.DueView{Queue: catalog.Denorm, Standing: 1, Ripe: 1}, by[catalog.Denorm], "ripe from its ready time on")
	require.Equal(t, catalog.DueView{Queue: catalog.Settle, Standing: 1, Ripe: 1}, by[catalog.Settle], "the next pass discards it")
	require.Equal(t, catalog.DueView{Queue: catalog.Orphan, Standing: 1}, by[catalog.Orphan])
	require.Equal(t, catalog.DueView{Queue: catalog.Teardown}, by[catalog.Teardown])

	clk.now = clk.now.Add(cat.Timing().OrphanGrace + 2*time.Second)
	require.Equal(t, catalog.DueView{Queue: catalog.Orphan, Standing: 1, Ripe: 1, Age: 2 * time.Second}, view(100)[catalog.Orphan])

	capped := view(2)[catalog.Reap]
	require.True(t, capped.Capped)
	require.Equal(t, 2, capped.Standing)
	require.False(t, view(3)[catalog.Reap].Capped, "nothing was left out")
}

func TestDueOverviewReadsPastOnePage(t *testing.T) {
	cat, clk := overviewCatalog(t)
	const n = 1500 // of one shard, beyond two pages
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if subject := fmt.Sprintf("settled!%d", i); catalog.Shard(subject) == 5 {
			keys = append(keys, catalog.DueKey(catalog.Reap, uint64(clk.now.UnixMilli()), subject))
		}
	}
	for len(keys) > 0 {
		put(t, cat, keys[:500]...)
		keys = keys[500:]
	}
	views, err := cat.DueOverview(t.Context(), 10000)
	require.NoError(t, err)
	require.Equal(t, n, views[3].Ripe)
}

func TestChainsShowsEveryChainUntilItIsRetired(t *testing.T) {
	cat, _ := overviewCatalog(t)
	chains, err := cat.Chains(t.Context())
	require.NoError(t, err)
	require.Empty(t, chains)
	session, err := cat.Store().OpenSession(t.Context(), time.Minute)
	require.NoError(t, err)
	mint := func(star string, previous uint64) catalog.ChainID {
		id, err := cat.Mint(t.Context(), catalog.MintRequest{Star: star, Incarnation: 1, Previous: previous, Session: session.ID(), Window: 16})
		require.NoError(t, err)
		return id
	}
	b1 := mint("b", 0)
	b2 := mint("b", b1.Epoch)
	a1 := mint("a", 0)
	ids := func() (ids []catalog.ChainID, live []bool) {
		chains, err := cat.Chains(t.Context())
		require.NoError(t, err)
		for _, c := range chains {
			ids, live = append(ids, c.ID), append(live, c.Live)
		}
		return ids, live
	}
	got, live := ids()
	require.Equal(t, []catalog.ChainID{a1, b1, b2}, got)
	require.Equal(t, []bool{true, false, true}, live)

	// The session's end takes the routes; a retired chain is gone.
	require.NoError(t, session.Close(t.Context()))
	_, err = cat.Store().Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.ChainKey(b1)), metastore.Delete(catalog.TrimKey(b1))}})
	require.NoError(t, err)
	got, live = ids()
	require.Equal(t, []catalog.ChainID{a1, b2}, got)
	require.Equal(t, []bool{false, false}, live)
}

// A chain's cursors are read together: however fast it is settled meanwhile, they are in order.
func TestChainsCursorsAreOfOneMoment(t *testing.T) {
	s := newSetup(t, 128)
	a, owed := s.settledSlots(1)
	id := owed[0].Batch.Inventory[0].Stream
	rewritten := func(owed []catalog.BatchAt, upTo uint64) {
		s.NoError(s.cat.CompleteBatches(s.Context(), a.chain, owed))
		_, err := s.cat.AdvanceTrim(s.Context(), a.chain, upTo, 0)
		s.NoError(err)
	}
	rewritten(owed, 1)
	s.during("get", 1, func() {
		s.slots(a, 1, id)
		s.absorbed(a, 1)
		s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)[1:]}), 3)
		owed, err := s.cat.OwedBatches(s.Context(), a.chain, 1, 2)
		s.NoError(err)
		rewritten(owed, 2)
	})
	chains, err := s.cat.Chains(s.Context())
	s.NoError(err)
	s.Len(chains, 1)
	s.Equal(uint64(2), chains[0].Trim.Rewritten)
	s.LessOrEqual(chains[0].Trim.Rewritten, chains[0].Chain.Checkpoint)
}

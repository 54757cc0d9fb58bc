package auditor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim"
)

func TestDueAges(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.do(func(ctx context.Context) {
		clk := h.inc.Clock()
		ages := func() []DueAge {
			out, err := h.a.DueAges(ctx)
			require.NoError(t, err)
			return out
		}
		h.arm(ctx, -time.Hour, object(0))
		require.Empty(t, ages(), "a member that is not on the ring has no shards to tell of")
		require.NoError(t, h.a.ring.refresh(ctx))
		require.Equal(t, []DueAge{{catalog.Reap, time.Hour}}, ages())
		h.arm(ctx, -2*time.Hour, object(1)+"x") // most likely another shard
		require.Equal(t, []DueAge{{catalog.Reap, 2 * time.Hour}}, ages(), "the oldest of all shards")

		h.passes(ctx, h.a, 1, 0)
		require.Empty(t, ages(), "an empty queue has no age")
		h.arm(ctx, time.Minute, object(2))
		require.Equal(t, []DueAge{{catalog.Reap, 0}}, ages(), "an unripe marker is no backlog, and no silence either")
		require.NoError(t, clk.Sleep(ctx, 61*time.Second))
		require.Equal(t, []DueAge{{catalog.Reap, time.Second}}, ages())

		h.w.Node("a").Partition(true, false, false)
		_, err := h.a.DueAges(ctx)
		require.Error(t, err)
		h.w.Node("a").Partition(false, false, false)
		require.NoError(t, h.a.ring.withdraw(ctx))
		require.Empty(t, ages(), "who left tells nothing")
	})
}

// Looking at all shards of a queue takes as few calls as the limits allow.
func TestDueAgesArePeekedTogether(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.a.register(Registration{Queue: catalog.GC, Duty: h.d}) // not ordered by time: it has no age
	h.do(func(ctx context.Context) {
		require.NoError(t, h.a.ring.refresh(ctx))
		peeks, scans := h.inc.Node().Ops(sim.OpPeek), h.inc.Node().Ops(sim.OpScan)
		_, err := h.a.DueAges(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, h.inc.Node().Ops(sim.OpPeek)-peeks, "64 ranges, and 128 go into one call")
		require.Zero(t, h.inc.Node().Ops(sim.OpScan)-scans)
	})
}

// A teardown is as old as its deletion, however often it was re-armed, and whatever younger marker
// stands before it.
func TestDueAgeOfTeardownsFromTheFirstTime(t *testing.T) {
	h := newHarnessRig(t, nil)
	h.a.register(Registration{Queue: catalog.Teardown, Duty: h.d, TimeOrdered: true})
	h.do(func(ctx context.Context) {
		require.NoError(t, h.a.ring.refresh(ctx))
		clk := h.inc.Clock()
		id := h.stream(ctx, "s")
		_, err := h.cat.DeleteStream(ctx, id)
		require.NoError(t, err)
		age := func() time.Duration {
			ages, err := h.a.DueAges(ctx)
			require.NoError(t, err)
			require.Len(t, ages, 1)
			require.Equal(t, catalog.Teardown, ages[0].Queue)
			return ages[0].Age.Round(time.Second)
		}
		for i := range 5 {
			require.NoError(t, clk.Sleep(ctx, time.Minute))
			m := h.markers(catalog.Teardown)
			require.Len(t, m, 1)
			recs, err := h.cat.Store().Get(ctx, m...)
			require.NoError(t, err)
			due, err := catalog.ParseDue(m[0])
			require.NoError(t, err)
			require.NoError(t, h.cat.RearmTeardown(ctx, catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}, 10*time.Second))
			require.Equal(t, time.Duration(i+1)*time.Minute, age(), "re-armed ahead, and owed all the same")
		}
		// A younger one comes first in the same shard.
		younger := catalog.DueKey(catalog.Teardown, uint64(clk.Now().UnixMilli()), id.String())
		_, err = h.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(younger, nil)}})
		require.NoError(t, err)
		require.Equal(t, 5*time.Minute, age())
	})
}

package star_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// A slot that the auditor cannot settle holds back its chain; so that this one does not grow, the star goes on with another.
func TestDamagedSlotEndsTheChain(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 15}), "n", nil)
	r.create("s")
	r.mustAppend("s", "a")
	r.mustAppend("s", "b")
	chain, _, ok := r.star.Chain()
	require.True(t, ok)
	wait := func() { r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, 3*time.Minute)) }) }
	wait()
	same, _, _ := r.star.Chain()
	require.Equal(t, chain, same, "a batch that merely waits is no damage")
	r.run(func(ctx context.Context) {
		owed, err := r.cat.OwedBatches(ctx, chain, 0, 10)
		require.NoError(t, err)
		require.NotEmpty(t, owed)
		v := owed[len(owed)-1].Batch
		v.Damaged = true
		require.NoError(t, r.cat.DelayBatch(ctx, owed[len(owed)-1], v, time.Hour))
	})
	wait()
	r.mustAppend("s", "c")
	next, _, ok := r.star.Chain()
	require.True(t, ok)
	require.Equal(t, catalog.ChainID{Star: chain.Star, Epoch: chain.Epoch + 1}, next)
	require.Len(t, r.events.fenced, 1)
	require.Equal(t, []string{"a", "b", "c"}, r.all("s"))
	wait()
	same, _, _ = r.star.Chain()
	require.Equal(t, next, same, "the damage is the old chain's")
	views := []catalog.ChainView{}
	r.run(func(ctx context.Context) {
		var err error
		views, err = r.cat.Chains(ctx)
		require.NoError(t, err)
	})
	require.Len(t, views, 2)
	require.NotNil(t, views[0].Damaged)
	require.Nil(t, views[1].Damaged)
}

// A chain that was settled whole is not looked at again before it grows.
func TestGuardCostsAnIdleChainNothing(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 16}), "n", nil)
	r.create("s")
	r.mustAppend("s", "a")
	chain, _, _ := r.star.Chain()
	r.run(func(ctx context.Context) {
		owed, err := r.cat.OwedBatches(ctx, chain, 0, 10)
		require.NoError(t, err)
		require.NoError(t, r.cat.CompleteBatches(ctx, chain, owed))
		require.NoError(t, r.clk.Sleep(ctx, 5*time.Minute))
	})
	scans := r.inc.Node().Ops(sim.OpScan)
	r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, time.Hour)) })
	require.Equal(t, scans, r.inc.Node().Ops(sim.OpScan))
	_, err := r.append(star.AppendRequest{Name: "s", Records: records("b")})
	require.NoError(t, err)
	r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, 5*time.Minute)) })
	require.Greater(t, r.inc.Node().Ops(sim.OpScan), scans)
}

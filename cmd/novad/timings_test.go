package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
)

// A node does not start beside one with which its timing is unsafe, and says which flags; beside another timing that is safe it warns.
func TestTimingsOfNodes(t *testing.T) {
	store, err := pebblestore.Open("meta", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	ctx, clk := context.Background(), clock.NewReal()
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	join := func(node string, change func(*catalog.Timing)) (*timings, error) {
		timing := catalog.DefaultTiming(false)
		change(&timing)
		require.NoError(t, timing.Validate(false))
		return joinTimings(ctx, catalog.New(store, clk, timing, nil), clk, log, node)
	}
	same := func(*catalog.Timing) {}
	quick := func(timing *catalog.Timing) { timing.PutHorizon, timing.TrimGrace = 10*time.Second, 30*time.Second }
	longer := func(timing *catalog.Timing) { timing.TrimGrace = time.Hour }

	a, err := join("a", same)
	require.NoError(t, err)
	a.start()
	b, err := join("b", same)
	require.NoError(t, err)
	require.NoError(t, b.close(ctx))
	require.Empty(t, logged.String())

	_, err = join("b", quick)
	var usage *usageError
	require.True(t, errors.As(err, &usage), "%v", err)
	require.NotContains(t, err.Error(), "\n")
	for _, part := range []string{"node a", "--trim-grace", "--put-horizon", "trim grace of 30s"} {
		require.ErrorContains(t, err, part)
	}
	b, err = join("b", longer)
	require.NoError(t, err, "what was refused has left nothing")
	require.Contains(t, logged.String(), "level=WARN")
	require.Contains(t, logged.String(), "flags=--trim-grace")

	// One that is killed leaves its record, and its successor keeps one of its own.
	again, err := join("a", same)
	require.NoError(t, err)
	for _, n := range []*timings{a, b} {
		require.NoError(t, n.close(ctx))
	}
	_, err = join("c", quick)
	require.ErrorContains(t, err, "node a")
	require.NoError(t, again.close(ctx))
	c, err := join("c", quick)
	require.NoError(t, err, "now nobody else runs")
	require.NoError(t, c.close(ctx))
}

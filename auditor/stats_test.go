package auditor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

func TestStatsAreNextToTheAnnouncement(t *testing.T) {
	for _, embedded := range []bool{true, false} {
		r := newRig(t, embedded)
		r.do(func(ctx context.Context) {
			a := r.auditor(func(o *Options) {
				// Shorter than a session lives: nothing keeps it alive here.
				o.Version, o.Workers, o.IdleInterval = "v9", 2, 2*time.Second
			})
			r.passes(ctx, a, 1, a.opts.IdleInterval)
			stats, err := r.cat.Stats(ctx)
			require.NoError(t, err)
			require.Len(t, stats, 1)
			require.Equal(t, "m", stats[0].Member)
			require.Equal(t, "v9", stats[0].Version)
			require.EqualValues(t, 2, stats[0].Workers)
			require.Zero(t, stats[0].Utilization)
			started := stats[0].Started

			// Half of the time since the last record one of two workers is busy: a quarter.
			now := r.inc.Clock().Now()
			a.pool.work.change(now.Add(-a.opts.IdleInterval/2), 1)
			r.passes(ctx, a, 1, 0)
			stats, err = r.cat.Stats(ctx)
			require.NoError(t, err)
			require.InDelta(t, 250, stats[0].Utilization, 10)
			require.Equal(t, started, stats[0].Started, "the start is told, not the record's time")
			require.Greater(t, stats[0].Published, started)

			before := stats[0].Published
			r.passes(ctx, a, 1, a.opts.IdleInterval/2)
			stats, err = r.cat.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, before, stats[0].Published, "a busy auditor, pass upon pass, does not publish at each")

			routes, _, err := keysOf(ctx, r, "cluster/routes/")
			require.NoError(t, err)
			require.Empty(t, routes, "an auditor is not a star")

			a.withdraw(ctx)
			stats, err = r.cat.Stats(ctx)
			require.NoError(t, err)
			require.Empty(t, stats, "they go with the announcement")
		})
	}
}

// keysOf returns the keys under a prefix.
func keysOf(ctx context.Context, r *rig, prefix string) (keys []string, more bool, err error) {
	page, err := r.cat.Store().Scan(ctx, metastore.Prefix(prefix), 100)
	for _, rec := range page.Records {
		keys = append(keys, rec.Key)
	}
	return keys, page.More, err
}

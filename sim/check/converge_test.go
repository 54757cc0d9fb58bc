package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim/check"
)

var live = []string{"n"}

func TestConverged(t *testing.T) {
	f := plantIn(t, (*fixture).empty, func(x *fixture) {
		x.put("probe/n", []byte("any bytes")) // start-up's are exempt
		require.Empty(t, x.c.Unsettled(live))
		x.c.Finish(live)
	})
	require.Nil(t, f)
}

func TestConvergence(t *testing.T) {
	entry := *newValue()
	for _, tc := range []planted{
		{"a marker", func(x *fixture) {
			x.commit(metastore.Put(catalog.DueKey(catalog.Reap, 1, "settled!1"), *newValue().int(0).uint(0, 0)))
		}, check.Convergence, "a marker stands: due/reap/"},
		{"a batch", func(x *fixture) {
			x.commit(metastore.Put(catalog.BatchKey(x.chain, 0), catalog.Batch{End: 1, Ready: 1}.Encode()),
				metastore.Put(catalog.ScheduleKey(x.chain, 0, 1), entry))
		}, check.Convergence, "owes the batch at slot 0"},
		{"an object that only its gc marker watches", func(x *fixture) {
			key := catalog.DueKey(catalog.GC, 1, "settled!1")
			x.commit(metastore.Put(key, *newValue().uint(0, 0)), metastore.Put(catalog.GCKey("settled/1"), *newValue().string(key)))
			b, _ := x.body(format.KindSettled, catalog.ChainID{}, 0, part{x.id, 1, 2})
			x.put("settled/1", b)
		}, check.Convergence, "a marker stands: due/gc/"},
		{"a slot", func(x *fixture) {
			x.slot(0, part{x.id, 1, 2})
		}, check.Convergence, "keeps slot 0"},
		{"a schedule entry", func(x *fixture) {
			x.commit(metastore.Put(catalog.ScheduleKey(x.chain, 0, 1), entry))
		}, check.Convergence, "1 entries that no marker owes"},
		{"a pending entry", func(x *fixture) {
			x.commit(metastore.Put(catalog.PendingPrefix(x.id)+"reap~00~0000000000000001~settled!1", entry))
		}, check.Convergence, "1 entries that no marker owes"},
		{"a marker without its pending entry", func(x *fixture) {
			x.commit(metastore.Put(catalog.DueKey(catalog.Reap, 1, "settled!1"), *newValue().int(0).uint(0, 1, uint64(x.id))))
		}, check.Convergence, "owes 1 that are not there"},
		{"a gc record", func(x *fixture) {
			x.commit(metastore.Put(catalog.GCKey("settled/1"), *newValue().string("due/gc/00/x")))
		}, check.Bounded, "its gc marker is \"\", and gc/ names"},
		{"a retention marker that is missing", func(x *fixture) {
			x.commit(metastore.Put(catalog.MarkKey(x.id), *newValue().uint(0, 0).string("due/retention/00/x")))
		}, check.Bounded, "which does not stand"},
		{"a settle marker of another key", func(x *fixture) {
			x.retrim(func(c *catalog.Trim) { c.SettleKey += "0" })
		}, check.Watched, "it names no standing settle marker"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := plantIn(t, (*fixture).empty, func(x *fixture) {
				tc.do(x)
				x.c.Finish(live)
			})
			require.NotNil(t, f, "nothing was found")
			require.Equal(t, tc.invariant, f.Invariant, f.Report())
			require.Contains(t, f.Text, tc.text)
		})
	}
}

// A chain whose star does not run must be retired, and so must all but a star's newest.
func TestDeadChains(t *testing.T) {
	f := plantIn(t, (*fixture).empty, func(x *fixture) { x.c.Finish(nil) })
	require.NotNil(t, f)
	require.Contains(t, f.Text, "a marker stands: due/settle/")
	f = plantIn(t, (*fixture).empty, func(x *fixture) {
		old := x.chain
		session, err := x.inc.Store().OpenSession(x.ctx, 1e12)
		require.NoError(t, err)
		_, err = x.cat.Mint(x.ctx, catalog.MintRequest{Star: "n", Address: "n", Window: window, Session: session.ID(), Incarnation: 1, Previous: old.Epoch})
		require.NoError(t, err)
		require.Contains(t, x.c.Unsettled(live), old.String())
		x.c.Finish(live)
	})
	require.NotNil(t, f)
	require.Equal(t, check.Convergence, f.Invariant)
}

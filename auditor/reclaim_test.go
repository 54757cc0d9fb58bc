package auditor

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

// armSettle writes a settle marker for now, whatever it is for.
func (r *rig) armSettle(ctx context.Context, subject string) string {
	key := catalog.DueKey(catalog.Settle, uint64(r.inc.Clock().Now().UnixMilli()), subject)
	_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte{1, 0})}})
	require.NoError(r.t, err)
	return key
}

// settledStreams makes n streams of two records, settles them into one object and returns it.
func settledStreams(ctx context.Context, r *rig, a *Auditor, n int) (ids []catalog.StreamID, object string) {
	s := r.mint(ctx, "a", 4)
	var parts []part
	for i := range n {
		ids = append(ids, r.stream(ctx, fmt.Sprint(i)))
		parts = append(parts, part{id: ids[i], n: 2, size: 10})
	}
	s.flight(ctx, parts...)
	r.passes(ctx, a, 3, time.Second)
	_, objects := r.read(ctx, ids[0], 0)
	require.Len(r.t, settledOnly(r.t, objects), 1)
	return ids, objects[0]
}

func (r *rig) kill(ctx context.Context, id catalog.StreamID) {
	spans, _, err := r.cat.Spans(ctx, id, 0, 10)
	require.NoError(r.t, err)
	_, err = r.cat.Kill(ctx, spans, func(catalog.SpanAt) bool { return true })
	require.NoError(r.t, err)
}

func TestReapStandsDownAndReaps(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		ids, object := settledStreams(ctx, r, a, 2)
		r.kill(ctx, ids[0])
		require.Len(t, r.markers(catalog.Reap), 1)
		r.passes(ctx, a, 1, 3*time.Second)
		require.True(t, r.w.BucketView().Has(object))
		r.passes(ctx, a, 1, 0)
		require.Len(t, r.did(ObjectAlive), 1)
		require.Empty(t, r.markers(catalog.Reap), "a ref watches it")

		r.kill(ctx, ids[1])
		r.passes(ctx, a, 2, 3*time.Second)
		require.Len(t, r.did(ObjectReaped), 1)
		require.Empty(t, r.objects("settled/"))
		require.Empty(t, r.markers(catalog.Reap))
		require.Empty(t, a.pool.busy)
	})
}

func TestReapWaitsForAnIntent(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		ids, object := settledStreams(ctx, r, a, 1)
		r.kill(ctx, ids[0])
		_, err := r.cat.ArmIntent(ctx, object) // a publish in several commits is not over
		require.NoError(t, err)
		var orders []uint64
		for range 20 {
			r.passes(ctx, a, 1, 5*time.Second)
			m := r.markers(catalog.Reap)
			require.Len(t, m, 1)
			require.True(t, r.w.BucketView().Has(object))
			due, err := catalog.ParseDue(m[0])
			require.NoError(t, err)
			if n := len(orders); n == 0 || orders[n-1] != due.Order {
				orders = append(orders, due.Order)
			}
		}
		require.GreaterOrEqual(t, len(orders), 4)
		require.Greater(t, orders[len(orders)-1]-orders[len(orders)-2], orders[2]-orders[1], "further and further apart")

		// The orphan duty ends it: nothing names the object.
		r.passes(ctx, a, 6, 2*time.Minute)
		require.Empty(t, r.objects("settled/"))
		require.Empty(t, r.markers(catalog.Reap))
		require.Empty(t, r.markers(catalog.Orphan))
	})
}

// A probe whose read fails is a failure, never "dead".
func TestReapProbeThatFails(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		_, object := settledStreams(ctx, r, a, 1)
		key := catalog.DueKey(catalog.Reap, 1, strings.ReplaceAll(object, "/", "!"))
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte{9, 9, 9})}})
		require.NoError(t, err)
		recs, err := r.cat.Store().Get(ctx, key)
		require.NoError(t, err)
		due, err := catalog.ParseDue(key)
		require.NoError(t, err)
		j := &Job{a: a, reg: registration(a, catalog.Reap), Marker: catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}}
		reap := j.reg.Duty.(*reap)
		r.w.SetFaults(sim.Faults{StoreUnavailable: 1})
		out, err := reap.Handle(ctx, j)
		require.ErrorIs(t, err, metastore.ErrUnavailable)
		require.Equal(t, Standing, out)
		require.Zero(t, reap.size())
		r.w.StopFaults()
		out, err = reap.Handle(ctx, j)
		require.NoError(t, err, "an unreadable value is no reason to give the marker up")
		require.Equal(t, Resolved, out)
		require.True(t, r.w.BucketView().Has(object))
	})
}

func TestReapSpoolsAndDeletesInBatches(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.ReapSpool, o.Workers = 4, 4 })
	r.do(func(ctx context.Context) {
		var ops []metastore.Op
		for i := range 10 {
			o := fmt.Sprintf("settled/%04d", i)
			require.NoError(t, r.inc.Bucket().Put(ctx, o, []byte("x"), objstore.PutOptions{IfAbsent: true}))
			ops = append(ops, metastore.Put(catalog.DueKey(catalog.Reap, 1, strings.ReplaceAll(o, "/", "!")), []byte{1, 0, 0, 0}))
		}
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: ops})
		require.NoError(t, err)
		before := r.inc.Node().Ops(sim.OpBucketDelete)
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.objects("settled/"))
		require.Empty(t, r.markers(catalog.Reap))
		batches := r.inc.Node().Ops(sim.OpBucketDelete) - before
		require.GreaterOrEqual(t, batches, 3)
		require.Less(t, batches, 10)
		require.Empty(t, a.pool.busy)
	})
}

func TestReapKeepsWhatWasNotConfirmed(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		ids, object := settledStreams(ctx, r, a, 1)
		r.kill(ctx, ids[0])
		r.w.SetFaults(sim.Faults{DeletePartial: 1})
		r.passes(ctx, a, 4, 2*time.Second)
		require.Len(t, r.markers(catalog.Reap), 1)
		r.w.StopFaults()
		r.passes(ctx, a, 4, 10*time.Second)
		require.Empty(t, r.markers(catalog.Reap))
		require.False(t, r.w.BucketView().Has(object))
	})
}

func TestOrphans(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		ids, named := settledStreams(ctx, r, a, 1)
		_, err := r.cat.ArmIntent(ctx, named) // a publisher that died before its resolve
		require.NoError(t, err)
		never, put := catalog.SettledKey("0NEVER"), catalog.SettledKey("0PUT")
		for _, o := range []string{never, put} {
			_, err := r.cat.ArmIntent(ctx, o)
			require.NoError(t, err)
		}
		require.NoError(t, r.inc.Bucket().Put(ctx, put, []byte("x"), objstore.PutOptions{IfAbsent: true}))
		r.passes(ctx, a, 2, r.cat.Timing().OrphanGrace/4)
		require.Len(t, r.markers(catalog.Orphan), 3, "younger than the grace: left standing")
		require.Len(t, r.objects("settled/"), 2)

		r.passes(ctx, a, 4, r.cat.Timing().OrphanGrace/2)
		require.Empty(t, r.markers(catalog.Orphan))
		require.Equal(t, []string{named}, r.objects("settled/"))
		require.Len(t, r.did(IntentResolved), 1)
		require.Len(t, r.did(IntentCondemn), 2)
		require.NotEmpty(t, r.did(ObjectAlive), "the resolve armed a reap-check, which stood down")
		data, _ := r.read(ctx, ids[0], 0)
		require.Len(t, data, 2)
	})
}

func TestOrphanLeavesAnUnreadableIntent(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		key := catalog.IntentKey(catalog.SettledKey("0X"))
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte("?"))}})
		require.NoError(t, err)
		r.passes(ctx, a, 5, time.Hour)
		require.Equal(t, []string{key}, r.markers(catalog.Orphan))
	})
}

func TestTrimCheckWaitsForALowerBatch(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 3 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		// The middle batch completes first, as another era might have it.
		owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
		require.NoError(t, err)
		require.NoError(t, r.cat.DelayBatch(ctx, owed[0], owed[0].Batch, time.Minute))
		r.passes(ctx, a, 5, 5*time.Second)
		require.Zero(t, r.cursors(ctx, s.chain).Trimmed)
		require.Len(t, r.objects("slot/"), 3, "nothing at or above the lowest standing batch goes")
		require.Len(t, r.markers(catalog.TrimCheck), 1, "it stands until it is trimmed up to its end")
		r.passes(ctx, a, 10, 10*time.Second)
		require.Equal(t, uint64(3), r.cursors(ctx, s.chain).Trimmed)
		require.Empty(t, r.objects("slot/"))
		require.Empty(t, r.markers(catalog.TrimCheck))
	})
}

func TestTrimAdvancesOverConfirmedDeletionsOnly(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 6 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		r.w.SetFaults(sim.Faults{DeletePartial: 0.4})
		for range 10 {
			r.passes(ctx, a, 1, 3*time.Second)
			trimmed := r.cursors(ctx, s.chain).Trimmed
			for slot := range trimmed {
				require.False(t, r.w.BucketView().Has(catalog.SlotKey(s.chain, slot)), "slot %d of %d", slot, trimmed)
			}
		}
		r.w.StopFaults()
		r.passes(ctx, a, 5, time.Minute)
		require.Equal(t, s.next, r.cursors(ctx, s.chain).Trimmed)
		require.Empty(t, r.markers(catalog.TrimCheck))
	})
}

func TestTrimCheckOfARetiredChainResolves(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		key := catalog.DueKey(catalog.TrimCheck, 1, catalog.ChainID{Star: "gone", Epoch: 1}.String())
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte{1, 9})}})
		require.NoError(t, err)
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.markers(catalog.TrimCheck))
	})
}

// An idle member costs a look at the ring, the stars and the fronts, and nothing else.
func TestIdleCost(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		for i := range 50 {
			r.stream(ctx, fmt.Sprint(i))
		}
		r.passes(ctx, a, 1, 0)
		n := r.inc.Node()
		ops := func() [4]int {
			return [4]int{n.Ops(sim.OpGet), n.Ops(sim.OpScan), n.Ops(sim.OpPeek), n.Ops(sim.OpCommit)}
		}
		before := ops()
		r.passes(ctx, a, 1, 0)
		after := ops()
		ranges := len(a.sources)
		require.Equal(t, [4]int{0, 2, (ranges + 127) / 128, 0},
			[4]int{after[0] - before[0], after[1] - before[1], after[2] - before[2], after[3] - before[3]})
	})
}

func TestRequestsArePaid(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.RequestRate, o.RewriteRate = 1, 1<<30 })
	r.do(func(ctx context.Context) {
		start := r.inc.Clock().Now()
		for range 11 {
			_, err := a.bucket.stat(ctx, "settled/none")
			require.ErrorIs(t, err, objstore.ErrNotFound)
		}
		require.GreaterOrEqual(t, r.inc.Clock().Now().Sub(start), 10*time.Second)
	})
}

func TestNewRefuses(t *testing.T) {
	r := newRig(t, true)
	o := r.options()
	o.Member = "no/slash"
	_, err := New(r.cat, r.inc.Bucket(), r.inc.Clock(), o)
	require.ErrorIs(t, err, catalog.ErrBadName)
	o = r.options()
	o.Embedded = false
	_, err = New(r.cat, r.inc.Bucket(), r.inc.Clock(), o)
	require.ErrorIs(t, err, catalog.ErrUnsafeTiming)
}

// A bundle that its slot's absorb may yet name is left alone.
func TestOrphanWaitsForTheSlotOfABundle(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
		bundle := "bundle/a/0000000000000001/0000000000000000-f"
		// Format, birth, condemned, nonce, chain, slot 0.
		v := binary.AppendVarint([]byte{1}, r.inc.Clock().Now().UnixMilli())
		v = append(v, 0, 7, 1, 'a', 1, 0)
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.IntentKey(bundle), v)}})
		require.NoError(t, err)
		require.NoError(t, r.inc.Bucket().Put(ctx, bundle, []byte("x"), objstore.PutOptions{IfAbsent: true}))
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*r.cat.Timing().OrphanGrace))
		r.passes(ctx, a, 2, time.Minute)
		require.True(t, r.w.BucketView().Has(bundle))
		s.flight(ctx, part{id: x, n: 1, size: 10}) // the slot was absorbed without it
		r.passes(ctx, a, 3, 5*time.Minute)
		require.False(t, r.w.BucketView().Has(bundle))
		require.Empty(t, r.markers(catalog.Orphan))
	})
}

// registration returns the registration of a queue's duty.
func registration(a *Auditor, q catalog.Queue) *Registration {
	for _, s := range a.sources {
		if s.reg.Queue == q {
			return s.reg
		}
	}
	return nil
}

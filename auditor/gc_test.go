package auditor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// heap settles n streams of 10 KB each into one object.
func heap(ctx context.Context, r *rig, a *Auditor, n int) (ids []catalog.StreamID, object string) {
	s := r.mint(ctx, "a", 4)
	var parts []part
	for i := range n {
		ids = append(ids, r.stream(ctx, fmt.Sprint(i)))
		parts = append(parts, part{id: ids[i], n: 10, size: 1000})
	}
	s.flight(ctx, parts...)
	r.passes(ctx, a, 6, 2*time.Second)
	_, objects := r.read(ctx, ids[0], 0)
	require.Len(r.t, settledOnly(r.t, objects), 1)
	require.Empty(r.t, r.objects("slot/"))
	return ids, objects[0]
}

func small(o *Options) { o.GCMinDeadBytes, o.GCMinDeadRatio = 1000, 0.5 }

func TestGCMovesWhatIsAlive(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(small)
	r.do(func(ctx context.Context) {
		ids, object := heap(ctx, r, a, 10)
		for _, id := range ids[:4] {
			r.kill(ctx, id)
		}
		r.passes(ctx, a, 4, 2*time.Second)
		require.Empty(t, r.did(ObjectRevised), "less than half is dead")
		require.Equal(t, []string{object}, r.objects("settled/"))
		for _, id := range ids[4:7] {
			r.kill(ctx, id)
		}
		want := map[catalog.StreamID][][]byte{}
		for _, id := range ids[7:] {
			want[id], _ = r.read(ctx, id, 0)
		}
		r.passes(ctx, a, 6, 2*time.Second)
		require.Len(t, r.did(ObjectRevised), 1)
		require.False(t, r.w.BucketView().Has(object), "its reap-check was armed by the swaps")
		left := r.objects("settled/")
		require.Len(t, left, 1)
		body, _ := r.w.BucketView().Get(left[0])
		require.Less(t, len(body), 35_000)
		for id, data := range want {
			got, objects := r.read(ctx, id, 0)
			require.Equal(t, data, got)
			require.Equal(t, left, objects)
		}
		for _, q := range []catalog.Queue{catalog.GC, catalog.Reap, catalog.Orphan} {
			require.Empty(t, r.markers(q))
		}
		require.Empty(t, gcRecords(r))
	})
}

func gcRecords(r *rig) (keys []string) {
	r.w.StoreView().Scan(metastore.Prefix("gc/"), func(rec metastore.Record) bool {
		keys = append(keys, rec.Key)
		return true
	})
	return keys
}

// marked kills all but one stream of a heap and lets reap arm gc, which is kept from running.
func marked(ctx context.Context, r *rig, a *Auditor) (ids []catalog.StreamID, object string) {
	ids, object = heap(ctx, r, a, 4)
	for _, id := range ids[1:] {
		r.kill(ctx, id)
	}
	at := ""
	for at == "" {
		require.NoError(r.t, r.inc.Clock().Sleep(ctx, time.Second))
		for _, key := range r.markers(catalog.Reap) {
			m := r.markerAt(ctx, key)
			live, err := a.liveness(ctx, object)
			require.NoError(r.t, err)
			require.Positive(r.t, live.reclaim)
			require.NoError(r.t, r.cat.StandDownReap(ctx, catalog.ReapAt{
				Key: key, Object: object, Marker: catalog.DecodeReapMarker(m.Value), Version: m.Version,
			}, live.first, live.reclaim))
			at = key
		}
	}
	require.Len(r.t, r.markers(catalog.GC), 1)
	return ids, object
}

func (r *rig) markerAt(ctx context.Context, key string) catalog.MarkerAt {
	recs, err := r.cat.Store().Get(ctx, key)
	require.NoError(r.t, err)
	due, err := catalog.ParseDue(key)
	require.NoError(r.t, err)
	return catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}
}

func TestGCOfWhatNothingNames(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(small)
	r.do(func(ctx context.Context) {
		ids, object := marked(ctx, r, a)
		r.kill(ctx, ids[0])
		// Without the reap-check of the kill, gc is the last that knows of the object.
		m := r.markerAt(ctx, r.markers(catalog.Reap)[0])
		require.NoError(t, r.cat.ResolveReaps(ctx, []catalog.ReapAt{{
			Key: m.Due.Key, Object: object, Marker: catalog.DecodeReapMarker(m.Value), Version: m.Version,
		}})[0])
		require.Empty(t, r.markers(catalog.Reap))
		out, err := newGC(a).Handle(ctx, r.job(ctx, a, catalog.GC))
		require.NoError(t, err)
		require.Equal(t, Resolved, out)
		require.Empty(t, r.markers(catalog.GC))
		require.Empty(t, gcRecords(r))
		require.Len(t, r.markers(catalog.Reap), 1)
		r.passes(ctx, a, 4, 2*time.Second)
		require.False(t, r.w.BucketView().Has(object))
		require.Empty(t, r.markers(catalog.Reap))
	})
}

// job makes a job of the one marker of a queue, without a harness.
func (r *rig) job(ctx context.Context, a *Auditor, q catalog.Queue) *Job {
	keys := r.markers(q)
	require.Len(r.t, keys, 1)
	return &Job{a: a, reg: &Registration{Queue: q}, Marker: r.markerAt(ctx, keys[0])}
}

func TestGCWithoutGainResolves(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(small)
	r.do(func(ctx context.Context) {
		_, object := marked(ctx, r, a)
		a.opts.GCMinDeadBytes = 1 << 20 // another configuration since
		out, err := newGC(a).Handle(ctx, r.job(ctx, a, catalog.GC))
		require.NoError(t, err)
		require.Equal(t, Resolved, out)
		require.Empty(t, r.markers(catalog.GC))
		require.Empty(t, gcRecords(r))
		require.Empty(t, r.did(Settled)[1:])
		require.True(t, r.w.BucketView().Has(object))
	})
}

// Trimmed and tearing streams' spans are killed, not moved; then nothing is left to write.
func TestGCKillsUnread(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(small)
	r.do(func(ctx context.Context) {
		ids, object := marked(ctx, r, a)
		r.setWatermark(ctx, ids[0], 10)
		reads := r.inc.Node().Ops(opGet)
		out, err := newGC(a).Handle(ctx, r.job(ctx, a, catalog.GC))
		require.NoError(t, err)
		require.Equal(t, Resolved, out)
		require.Equal(t, reads, r.inc.Node().Ops(opGet))
		require.Empty(t, r.spans(ctx, ids[0]))
		require.NotEmpty(t, r.markers(catalog.Reap))
		r.passes(ctx, a, 4, 2*time.Second)
		require.False(t, r.w.BucketView().Has(object))
	})
}

// A damaged range stays; the others move, and the marker stands to tell of it.
func TestGCLeavesADamagedRange(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(small)
	r.do(func(ctx context.Context) {
		ids, object := heap(ctx, r, a, 6)
		for _, id := range ids[2:] {
			r.kill(ctx, id)
		}
		span := r.spans(ctx, ids[0])[0].Span
		body, _ := r.w.BucketView().Get(object)
		bad := append([]byte(nil), body...)
		bad[span.Offset+format.BlockHeaderLength+5] ^= 1
		require.NoError(t, r.inc.Bucket().Delete(ctx, []string{object})[0])
		require.NoError(t, r.inc.Bucket().Put(ctx, object, bad, objstore.PutOptions{IfAbsent: true}))
		r.passes(ctx, a, 5, 5*time.Second)
		require.Len(t, r.markers(catalog.GC), 1)
		require.Equal(t, object, r.spans(ctx, ids[0])[0].Span.Object)
		require.NotEqual(t, object, r.spans(ctx, ids[1])[0].Span.Object)
		require.True(t, r.w.BucketView().Has(object))
		r.kill(ctx, ids[0])
		r.passes(ctx, a, 8, time.Minute)
		require.Empty(t, r.markers(catalog.GC))
		require.False(t, r.w.BucketView().Has(object))
	})
}

// An object with more refs than a page moves page by page, within the cache's share.
func TestGCInPages(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { small(o); o.FetchCacheBytes = 64 << 10 })
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		var ids []catalog.StreamID
		for i := range 900 {
			ids = append(ids, r.stream(ctx, fmt.Sprint(i)))
		}
		var all []part
		for _, id := range ids {
			all = append(all, part{id: id, n: 2, size: 50})
		}
		// A commit bounds the streams of a slot: several slots, one round, one object.
		for len(all) > 0 {
			s.flight(ctx, all[:15]...)
			all = all[15:]
		}
		a.opts.FetchCacheBytes = 64 << 10
		r.passes(ctx, a, 3, time.Second)
		before := r.objects("settled/")
		for i, id := range ids {
			if i%3 != 0 {
				r.kill(ctx, id)
			}
		}
		r.passes(ctx, a, 8, 2*time.Second)
		for _, o := range before {
			require.False(t, r.w.BucketView().Has(o))
		}
		for i, id := range ids {
			if i%3 == 0 {
				got, objects := r.read(ctx, id, 0)
				require.Len(t, got, 2)
				settledOnly(t, objects)
			}
		}
		require.Empty(t, r.markers(catalog.GC))
		require.Empty(t, r.markers(catalog.Reap))
	})
}

// A malformed object key is nobody's work; everything else is run, whatever its value.
func TestGCJudges(t *testing.T) {
	g := &gc{}
	bad, err := catalog.ParseDue(catalog.DueKey(catalog.GC, 1, "settled!"+strings.Repeat("x", 600)))
	require.NoError(t, err)
	require.Equal(t, Discard, g.Judge(catalog.MarkerAt{Due: bad}, time.Time{}))
	good, err := catalog.ParseDue(catalog.DueKey(catalog.GC, 1, "settled!x"))
	require.NoError(t, err)
	require.Equal(t, Run, g.Judge(catalog.MarkerAt{Due: good, Value: []byte("?")}, time.Time{}))
}

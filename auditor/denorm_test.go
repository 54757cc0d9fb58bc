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
	"github.com/nova-store/nova/sim"
)

// settledOnly requires that all spans of a stream lie in settled objects, and returns those.
func settledOnly(t testing.TB, objects []string) []string {
	for _, o := range objects {
		require.True(t, strings.HasPrefix(o, "settled/"), o)
	}
	return objects
}

func TestDenormPacksSmallStreamsAndGivesLargeOnesTheirOwn(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) {
		o.SettleObjectMin, o.SettleObjectMax = 100<<10, 180<<10
	})
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		large := r.stream(ctx, "large")
		var small []catalog.StreamID
		for i := range 20 {
			small = append(small, r.stream(ctx, fmt.Sprintf("small-%d", i)))
		}
		for range 12 {
			parts := []part{{id: large, n: 50, size: 1000}}
			for i, id := range small {
				parts = append(parts, part{id: id, n: 1 + i%3, size: 20})
			}
			s.flight(ctx, parts...)
		}
		want, slots := r.read(ctx, large, 0)
		require.Len(t, want, 600)
		require.Len(t, slots, 12)
		wantSmall := map[catalog.StreamID][][]byte{}
		for _, id := range small {
			wantSmall[id], _ = r.read(ctx, id, 0)
		}

		reads := r.inc.Node().Ops(opGet)
		r.passes(ctx, a, 3, time.Second)
		require.Equal(t, 12, r.inc.Node().Ops(opGet)-reads, "each slot is read once an era")

		got, objects := r.read(ctx, large, 0)
		require.Equal(t, want, got)
		require.Len(t, settledOnly(t, objects), 4, "600 KB in objects of up to 180 KiB, cut at spans")
		for _, o := range objects {
			body, ok := r.w.BucketView().Get(o)
			require.True(t, ok)
			require.LessOrEqual(t, len(body), 180<<10)
		}
		packs := map[string]bool{}
		for _, id := range small {
			got, objects := r.read(ctx, id, 0)
			require.Equal(t, wantSmall[id], got)
			require.Len(t, settledOnly(t, objects), 1)
			packs[objects[0]] = true
		}
		require.Len(t, packs, 1, "packed together")
		for _, o := range objects {
			require.False(t, packs[o], "the large stream shares no object")
		}
		require.Empty(t, r.markers(catalog.Denorm))
		require.Empty(t, r.markers(catalog.Orphan), "every intent is resolved")
		require.Empty(t, r.markers(catalog.Reap), "every range was placed: nothing to reap")

		// The slots go after the trim grace.
		r.passes(ctx, a, 4, 3*time.Second)
		require.Empty(t, r.objects("slot/"))
		trim := r.cursors(ctx, s.chain)
		require.Equal(t, uint64(12), trim.Rewritten)
		require.Equal(t, uint64(12), trim.Trimmed)
		require.Empty(t, r.markers(catalog.TrimCheck))
	})
}

func TestDenormMergesContiguousSpans(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, id := r.mint(ctx, "a", 4), r.stream(ctx, "x")
		for range 5 {
			s.flight(ctx, part{id: id, n: 3, size: 10})
		}
		r.passes(ctx, a, 3, time.Second)
		spans, _, err := r.cat.Spans(ctx, id, 0, 10)
		require.NoError(t, err)
		require.Len(t, spans, 1, "one span, one ref")
		require.Equal(t, uint64(15), spans[0].Span.Count)
	})
}

func TestDenormKeepsGapsOfOtherChainsApart(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		one, two, id := r.mint(ctx, "a", 4), r.mint(ctx, "b", 4), r.stream(ctx, "x")
		for i := range 6 {
			s := one
			if i%2 == 1 {
				s = two
			}
			s.flight(ctx, part{id: id, n: 2, size: 10 + i})
		}
		want, _ := r.read(ctx, id, 0)
		r.passes(ctx, a, 4, time.Second)
		got, objects := r.read(ctx, id, 0)
		require.Equal(t, want, got)
		settledOnly(t, objects)
		require.Empty(t, r.markers(catalog.Denorm))
	})
}

func TestDenormKillsUnread(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, kept, trimmed, torn := r.mint(ctx, "a", 4), r.stream(ctx, "kept"), r.stream(ctx, "trimmed"), r.stream(ctx, "torn")
		s.flight(ctx, part{id: trimmed, n: 4, size: 10}, part{id: torn, n: 4, size: 10})
		s.flight(ctx, part{id: kept, n: 4, size: 10}, part{id: trimmed, n: 4, size: 10})
		r.setWatermark(ctx, trimmed, 4)
		r.setTearing(ctx, torn)
		reads := r.inc.Node().Ops(opGet)
		r.passes(ctx, a, 3, time.Second)
		require.Equal(t, 1, r.inc.Node().Ops(opGet)-reads, "what is killed is not read")
		spans, _, err := r.cat.Spans(ctx, torn, 0, 10)
		require.NoError(t, err)
		require.Empty(t, spans)
		_, objects := r.read(ctx, trimmed, 4)
		settledOnly(t, objects)
		require.Empty(t, r.markers(catalog.Denorm))
		require.Equal(t, 2, countOf(r.did(SpansKilled)))
	})
}

func countOf(es []Event) (n int) {
	for _, e := range es {
		n += e.Count
	}
	return n
}

func TestDenormHoldsBackADamagedSlot(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 8), r.stream(ctx, "x"), r.stream(ctx, "y")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		// The star's bytes were good when it absorbed them; what the bucket has is not.
		body, f := s.slot(ctx, 1000, part{id: x, n: 2, size: 10}, part{id: y, n: 2, size: 10})
		bad := append([]byte(nil), body...)
		bad[len(bad)/2] ^= 1
		s.put(ctx, s.next, bad)
		s.absorb(ctx, body, f)
		s.flight(ctx, part{id: y, n: 2, size: 10})
		r.passes(ctx, a, 3, time.Second)

		require.Len(t, r.did(SlotDamaged), 1)
		require.Equal(t, uint64(2), r.did(SlotDamaged)[0].To)
		owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
		require.NoError(t, err)
		require.Len(t, owed, 1, "its siblings are done")
		require.True(t, owed[0].Batch.Damaged)
		require.Len(t, owed[0].Batch.Inventory, 2)
		require.Equal(t, 2, countOf(r.did(BatchesDone)))
		r.passes(ctx, a, 5, 2*time.Second)
		require.Equal(t, uint64(1), r.cursors(ctx, s.chain).Trimmed, "nothing at or above it is trimmed")

		// Its streams are trimmed past it: it goes.
		r.setWatermark(ctx, x, 4)
		r.setWatermark(ctx, y, 2)
		r.passes(ctx, a, 3, damagedRecheck)
		require.Empty(t, r.markers(catalog.Denorm))
		require.Equal(t, s.next, r.cursors(ctx, s.chain).Trimmed)
	})
}

func TestDenormMissingSlot(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x, y := r.mint(ctx, "a", 8), r.stream(ctx, "x"), r.stream(ctx, "y")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		s.flight(ctx, part{id: x, n: 2, size: 10}, part{id: y, n: 2, size: 10})
		require.NoError(t, r.inc.Bucket().Delete(ctx, []string{catalog.SlotKey(s.chain, 0)})[0])
		r.passes(ctx, a, 2, time.Second)
		owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
		require.NoError(t, err)
		require.Len(t, owed, 1, "the catalog says that it is there: held back, not passed over, and none of its siblings'")
		require.Equal(t, uint64(0), owed[0].First)
		require.True(t, owed[0].Batch.Damaged)
		data, _ := r.read(ctx, y, 0)
		require.Len(t, data, 2)
		for id, want := range map[catalog.StreamID]uint64{x: 0, y: 2} {
			frontier, err := r.cat.FrontierOf(ctx, s.chain, id)
			require.NoError(t, err)
			require.Equal(t, want, frontier, "a stream that is not in it need not wait")
		}
	})
}

func TestDenormDropsStaleScheduleEntries(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		stale := []metastore.Op{
			metastore.Put(catalog.ScheduleKey(s.chain, 0, 5), []byte{1}),   // of another ready time
			metastore.Put(catalog.ScheduleKey(s.chain, 700, 6), []byte{1}), // of no primary
		}
		_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: stale})
		require.NoError(t, err)
		r.passes(ctx, a, 1, 0)
		require.Len(t, r.markers(catalog.Denorm), 1, "its own entry is not ripe yet")
		r.passes(ctx, a, 1, 2*time.Second)
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.markers(catalog.Denorm))
	})
}

// Chains placed at another member are left standing, whoever owns the shard.
func TestDenormSkipsChainsPlacedElsewhere(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.Member = "m1" })
	r.do(func(ctx context.Context) {
		session, err := r.cat.Store().OpenSession(ctx, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.cat.Announce(ctx, session.ID(), "m2"))
		x := r.stream(ctx, "x")
		var stars []*chainStar
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			s := r.mint(ctx, name, 8)
			s.flight(ctx, part{id: x, n: 1, size: 10})
			stars = append(stars, s)
		}
		r.passes(ctx, a, 3, time.Second)
		require.Equal(t, []string{"a", "c", "e", "g"}, a.Seat().Stars)
		for i, s := range stars {
			owed, err := r.cat.OwedBatches(ctx, s.chain, 0, 10)
			require.NoError(t, err)
			require.Len(t, owed, i%2, s.chain)
		}
	})
}

func TestDenormErasAreBounded(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.MarkersPerEra, o.PageSize = 3, 2 })
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 8 {
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		require.NoError(t, r.inc.Clock().Sleep(ctx, 3*time.Second))
		r.passes(ctx, a, 1, 0)
		done := r.did(BatchesDone)
		require.Len(t, done, 3, "rounds of three markers, in one era")
		for i, e := range done {
			require.Equal(t, uint64(3*i), e.From, "in slot order")
		}
		jobs := 0
		for _, e := range r.did(JobDone) {
			if e.Duty == string(catalog.Denorm) {
				jobs++
			}
		}
		require.Equal(t, 1, jobs)
	})
}

// The slots of a round that do not fit into the fetch cache together are done in parts, each
// slot still read once.
func TestDenormReadsEachSlotOnceHoweverSmallTheCache(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.FetchCacheBytes = 6000 })
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 16)
		var ids []catalog.StreamID
		for i := range 6 {
			ids = append(ids, r.stream(ctx, fmt.Sprint(i)))
		}
		var in []catalog.SlotIn
		for slot := range uint64(10) {
			var parts []part
			for _, id := range ids {
				parts = append(parts, part{id: id, n: 2, size: 100})
			}
			body, f := s.slot(ctx, slot, parts...)
			in = append(in, catalog.SlotIn{Slot: slot, Size: int64(len(body)), Footer: &f})
		}
		for len(in) > 0 {
			out, err := r.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: s.chain, Slots: in})
			require.NoError(t, err)
			in = in[out.Slots:]
		}
		reads := r.inc.Node().Ops(opGet)
		r.passes(ctx, a, 3, time.Second)
		require.Empty(t, r.markers(catalog.Denorm))
		require.Greater(t, len(r.did(Settled)), 1, "in parts")
		require.Equal(t, 10, r.inc.Node().Ops(opGet)-reads)
		for _, id := range ids {
			data, objects := r.read(ctx, id, 0)
			require.Len(t, data, 20)
			settledOnly(t, objects)
		}
	})
}

func TestPublishOfALostIntentIsGivenUp(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	// The orphan duty of another member condemns the intent as soon as the object is there.
	condemn := true
	r.w.OnBucket(func(e *sim.BucketEffect) {
		if condemn && strings.HasPrefix(e.Key, "settled/") {
			condemn = false
			object := e.Key
			r.inc.Go("condemn", func(ctx context.Context) {
				in, ok, err := r.cat.ReadIntent(ctx, object)
				require.NoError(t, err)
				require.True(t, ok)
				_, err = r.cat.Condemn(ctx, in)
				require.NoError(t, err)
			})
		}
	})
	r.w.SetFaults(sim.Faults{BucketLatency: sim.Latency{Base: 100 * time.Millisecond}})
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		r.passes(ctx, a, 3, time.Second)
		require.Len(t, r.did(ObjectGivenUp), 1)
		given := r.did(ObjectGivenUp)[0].Object
		in, ok, err := r.cat.ReadIntent(ctx, given)
		require.NoError(t, err)
		require.True(t, ok && in.Condemned, "armed anew, condemned")
		refs, _, err := r.cat.Refs(ctx, given, 1)
		require.NoError(t, err)
		require.Empty(t, refs)

		r.passes(ctx, a, 3, backoffFirst)
		_, objects := r.read(ctx, x, 0)
		require.Len(t, settledOnly(t, objects), 1)
		require.NotEqual(t, given, objects[0])
		r.passes(ctx, a, 3, r.cat.Timing().OrphanGrace)
		require.Equal(t, objects, r.objects("settled/"), "the object given up is gone")
		require.Empty(t, r.markers(catalog.Orphan))
	})
}

func TestPutIsNotMadePastItsTime(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		e := &rewriter{a: a, j: &Job{a: a, reg: &Registration{}}}
		armed, err := r.cat.ArmIntent(ctx, catalog.SettledKey("01X"))
		require.NoError(t, err)
		require.NoError(t, r.inc.Clock().Sleep(ctx, r.cat.Timing().PutHorizon))
		require.ErrorIs(t, e.putObject(ctx, armed, []byte("x")), objstore.ErrExpired)
		require.Empty(t, r.objects("settled/"))
	})
}

func TestPutFindsOutWhatBecameOfIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults sim.Faults
		there  bool
	}{
		{"landed", sim.Faults{PutUnknownEffect: 1}, true},
		{"never landed", sim.Faults{PutUnknownNoEffect: 1}, false},
		{"throttled", sim.Faults{BucketThrottle: 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, false)
			a := r.auditor(nil)
			r.do(func(ctx context.Context) {
				e := &rewriter{a: a, j: &Job{a: a, reg: &Registration{}}}
				armed, err := r.cat.ArmIntent(ctx, catalog.SettledKey("01X"))
				require.NoError(t, err)
				r.w.SetFaults(c.faults)
				err = e.putObject(ctx, armed, []byte("x"))
				require.Equal(t, c.there, err == nil, "%v", err)
				require.Equal(t, c.there, r.w.BucketView().Has(armed.Object))
			})
		})
	}
}

// An object of the right key and size that is another: the publish fails, and its intent stands for the orphan duty.
func TestPutComparesTheBytes(t *testing.T) {
	r := newRig(t, false)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		e := &rewriter{a: a, j: &Job{a: a, reg: &Registration{}}}
		for body, want := range map[string]bool{"right": true, "wrong": false} {
			armed, err := r.cat.ArmIntent(ctx, catalog.SettledKey("01"+body))
			require.NoError(t, err)
			require.NoError(t, r.inc.Bucket().Put(ctx, armed.Object, []byte(body), objstore.PutOptions{NotAfter: armed.NotAfter}))
			require.Equal(t, want, e.putObject(ctx, armed, []byte("right")) == nil)
		}
	})
}

// Where a PUT has no NotAfter the orphan duty leaves the intent of a publish alone that
// is still under way in this process, however long it takes.
func TestOrphanLeavesAPublishUnderWay(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(func(o *Options) { o.Workers = 4 })
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 2, size: 10})
		require.NoError(t, r.inc.Clock().Sleep(ctx, 2*time.Second))
		// The first PUT is on its way for longer than the orphan grace, which exceeds the job's deadline.
		puts := 0
		r.w.OnStep(func(s *sim.StepInfo) {
			switch {
			case s.Op == sim.OpCommit && puts == 0 && strings.HasPrefix(s.Keys[0], "due/orphan/"):
				r.w.SetFaults(sim.Faults{BucketLatency: sim.Latency{Base: 3 * r.cat.Timing().OrphanGrace}})
			case s.Op == sim.OpBucketPut:
				puts++
				r.w.SetFaults(sim.Faults{})
			}
		})
		for range 20 {
			a.Wake()
			a.pass(ctx)
			// No pass may fall on the moment in which the PUT is answered: the publish is over then.
			require.NoError(t, r.inc.Clock().Sleep(ctx, 50*time.Second))
			require.Empty(t, r.did(IntentCondemn))
			if a.Busy() == 0 {
				break
			}
		}
		require.Positive(t, puts)
		r.passes(ctx, a, 20, time.Minute)
		_, objects := r.read(ctx, x, 0)
		settledOnly(t, objects)
		require.Equal(t, objects, r.objects("settled/"))
		require.Empty(t, r.markers(catalog.Orphan))
	})
}

// A stream whose records do not decode (damage, or a later format) holds back neither its era nor itself.
func TestDenormSettlesBesideUnreadableRecords(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		damaged, sound := r.stream(ctx, "damaged"), r.stream(ctx, "sound")
		s.flight(ctx, part{id: damaged, n: 3, size: 20}, part{id: sound, n: 2, size: 20})
		for _, key := range []string{catalog.StreamKey(damaged), catalog.MarkKey(damaged)} {
			require.NoError(t, rewrite(ctx, r, key, func(b []byte) []byte { return append([]byte{0xff}, b...) }))
		}
		r.passes(ctx, a, 3, time.Second)
		for id, n := range map[catalog.StreamID]int{damaged: 3, sound: 2} {
			got, objects := r.read(ctx, id, 0)
			require.Len(t, got, n)
			settledOnly(t, objects)
		}
	})
}

// What has no room is not announced: the marker stands, and is settled once there is room. What needs none goes on.
func TestDenormWithoutRoom(t *testing.T) {
	r := newRig(t, true)
	free := int64(1 << 10)
	a := r.auditor(func(o *Options) {
		o.Room = objstore.NewRoom(1<<20, func() time.Time { return time.Unix(0, 0).Add(r.w.Elapsed()) }, func() (int64, error) { return free, nil })
	})
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 4)
		kept, removed := r.stream(ctx, "kept"), r.stream(ctx, "removed")
		s.flight(ctx, part{id: kept, n: 3, size: 20})
		s.flight(ctx, part{id: removed, n: 3, size: 20})
		r.setTearing(ctx, removed)
		r.passes(ctx, a, 3, time.Second)
		require.Empty(t, r.objects("settled/"))
		require.Empty(t, r.markers(catalog.Orphan))
		require.NotEmpty(t, r.markers(catalog.Denorm))
		got, objects := r.read(ctx, kept, 0)
		require.Len(t, got, 3)
		require.True(t, strings.HasPrefix(objects[0], "slot/"))
		free = 1 << 20
		r.passes(ctx, a, 10, 10*time.Second)
		require.Empty(t, r.markers(catalog.Denorm))
		got, objects = r.read(ctx, kept, 0)
		require.Len(t, got, 3)
		settledOnly(t, objects)
	})
}

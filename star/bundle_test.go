package star_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

func inline100(o *star.Options) { o.InlineBytes, o.TailBytes = 100, -1 }

// objects returns the keys in the bucket under a prefix.
func (r *rig) objects(prefix string) (keys []string) {
	r.w.BucketView().Scan(prefix, func(key string, _ []byte) bool {
		keys = append(keys, key)
		return true
	})
	return keys
}

// intents returns the objects that are announced.
func (r *rig) intents() (objects []string) {
	for shard := range catalog.Shards {
		r.w.StoreView().Scan(catalog.ShardRange(catalog.Orphan, shard), func(rec metastore.Record) bool {
			due, err := catalog.ParseDue(rec.Key)
			require.NoError(r.t, err)
			objects = append(objects, due.Object())
			return true
		})
	}
	return objects
}

// The announcement comes first, then the bundle, then the slot, which holds the index alone; the
// refs are there before the intent is gone.
func TestLargeFlightsHaveBundles(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", inline100)
		id := r.create("s")
		r.mustAppend("s", strings.Repeat("i", 100))
		var order []string
		r.bucket.put = func(ctx context.Context, key string, put func() error) error {
			order = append(order, key)
			if catalog.IsBundle(key) {
				require.Equal(t, []string{key}, r.intents())
			}
			return put()
		}
		large := strings.Repeat("x", 60)
		r.mustAppend("s", large, large)
		bundles := r.objects("bundle/")
		require.Len(t, bundles, 1)
		require.Equal(t, []string{bundles[0], r.slot(1)}, order)
		chain, slot, _, err := catalog.ParseBundleKey(bundles[0])
		require.NoError(t, err)
		mine, _, _ := r.star.Chain()
		require.Equal(t, mine, chain)
		require.Equal(t, uint64(1), slot)

		index, _ := w.BucketView().Get(r.slot(1))
		footer, err := format.Parse(index)
		require.NoError(t, err)
		require.True(t, footer.Bundled)
		require.Less(t, len(index), 250)
		body, _ := w.BucketView().Get(bundles[0])
		parsed, err := format.Parse(body)
		require.NoError(t, err)
		require.Equal(t, footer.Sections, parsed.Sections)
		require.Empty(t, r.intents())
		r.run(func(ctx context.Context) {
			refs, _, err := r.cat.Refs(ctx, bundles[0], 2)
			require.NoError(t, err)
			require.Len(t, refs, 1)
			require.Equal(t, id, refs[0].Stream)
			require.Equal(t, uint64(len(body)), refs[0].Ref.ObjectSize)
		})
		require.Equal(t, []string{strings.Repeat("i", 100), large, large}, r.all("s"))
	})
}

// A flight that is slow because of its bundle holds back the release of those behind it, and
// nothing else: they fly, within the window, and all are released in order.
func TestBundlesKeepTheWindowAndTheOrder(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 60, MaxOps: catalog.LeastOps, Faults: sim.Faults{
		BucketLatency: sim.Latency{Base: 5 * time.Millisecond, Jitter: 200 * time.Millisecond, Tail: 4},
	}})
	r := newRig(t, w, "n", func(o *star.Options) { o.Window, o.FlightBytes, o.InlineBytes = 4, 1, 100 })
	id := r.create("s")
	var as []*answer
	var want []string
	for i := range 60 {
		data := fmt.Sprint(i)
		if i%3 == 0 {
			data += strings.Repeat("x", 100)
		}
		want = append(want, data)
		as = append(as, r.begin(star.AppendRequest{Stream: id, Records: records(data)}))
	}
	r.wait(as...)
	require.Len(t, r.objects("bundle/"), 20)
	require.Equal(t, uint64(3), r.events.ahead, "the window is used, and kept")
	require.ElementsMatch(t, want, r.all("s"))
	require.Empty(t, r.intents())
	require.Empty(t, r.events.fenced)
}

// Of a bundled slot each span has a ref, and what is turned down a reap-check: the flight is cut
// so that all of that fits one commit of the least size.
func TestFlightsWithBundlesFitOneCommit(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 65, MaxOps: catalog.LeastOps}), "n", func(o *star.Options) { o.InlineBytes, o.Linger = 1, time.Second })
	names := []string{"s0", "s1", "s2"}
	r.create(names...)
	release, held := r.holdPuts()
	as := []*answer{r.begin(star.AppendRequest{Name: "s0", Records: records("")})}
	r.until(func() bool { return *held == 1 })
	for _, name := range names {
		for i := range 5 {
			req := star.AppendRequest{Name: name, Records: records("xx")}
			if i%2 == 1 {
				req.Expected = ptr(uint64(77))
			}
			as = append(as, r.begin(req))
			r.w.RunFor(time.Millisecond)
		}
	}
	r.until(func() bool { return *held > 1 })
	release()
	r.wait(as...)
	for i, a := range as[1:] {
		if i%5%2 == 1 {
			require.ErrorIs(t, a.err, star.ErrWrongOffset)
			continue
		}
		require.NoError(t, a.err)
	}
	require.Empty(t, r.events.fenced)
	require.NotEmpty(t, r.objects("bundle/"))
}

// A bundle that can't be stored: nothing of its flight can be absorbed, and its producer is told
// so. Its slot's number is given, so the star goes on in another chain. The intent stands.
func TestBundleThatIsNotStored(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context, put func() error) error{
		"refused":       func(context.Context, func() error) error { return objstore.ErrTooLarge },
		"out of reach":  func(context.Context, func() error) error { return objstore.ErrThrottled },
		"not confirmed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 61}), "n", inline100)
			id := r.create("s")
			if fail == nil {
				fail = func(ctx context.Context, put func() error) error {
					err := put()
					_ = r.clk.Sleep(ctx, time.Hour)
					return errors.Join(objstore.ErrUnknown, err)
				}
			}
			r.bucket.put = func(ctx context.Context, key string, put func() error) error {
				if !catalog.IsBundle(key) {
					return put()
				}
				return fail(ctx, put)
			}
			_, err := r.append(star.AppendRequest{Stream: id, Records: records(strings.Repeat("x", 101))})
			require.ErrorIs(t, err, star.ErrNotReady)
			require.NotErrorIs(t, err, star.ErrOutcomeUnknown)
			require.Len(t, r.events.fenced, 1)
			require.Len(t, r.intents(), 1)
			require.Empty(t, r.objects("slot/"))
			r.bucket.put = nil
			r.until(func() bool { return r.star.Ready() == nil })
			r.mustAppend("s", strings.Repeat("y", 101))
			require.Equal(t, []string{strings.Repeat("y", 101)}, r.all("s"))
			require.Len(t, r.intents(), 1, "the orphan duty's")
		})
	}
}

// The epoch ends while a bundle is on its way: its slot was not begun, so its append goes on in
// the next one, with a bundle of its own.
func TestBundleOfAnAbandonedEpoch(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", inline100)
		id := r.create("s")
		release, held := r.holdPuts()
		a := r.begin(star.AppendRequest{Stream: id, Records: records(strings.Repeat("x", 101))})
		r.until(func() bool { return *held == 1 })
		before := r.intents()
		require.Len(t, before, 1)
		w.ExpireSession(w.StoreView().Session(catalog.RouteKey("a")))
		r.until(func() bool { return *held == 0 })
		release()
		r.wait(a)
		require.NoError(t, a.err)
		require.Len(t, r.all("s"), 1)
		require.Equal(t, before, r.intents())
		bundles := r.objects("bundle/")
		require.NotContains(t, bundles, before[0])
		require.Len(t, bundles, 1)
	})
}

// Another's object in the slot of a bundle: the intent is left to the orphan duty.
func TestBundleWhoseSlotIsLost(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 62, Embedded: true}), "n", inline100)
	id := r.create("s")
	chain, _, _ := r.star.Chain()
	r.bucket.put = func(ctx context.Context, key string, put func() error) error {
		if catalog.IsBundle(key) {
			r.bucket.put = nil
			seal := format.Seal(chain.Star, chain.Epoch, 0)
			require.NoError(t, r.bucket.Put(ctx, catalog.SlotKey(chain, 0), seal, objstore.PutOptions{IfAbsent: true}))
		}
		return put()
	}
	large := strings.Repeat("x", 101)
	_, err := r.append(star.AppendRequest{Stream: id, Records: records(large)})
	require.ErrorIs(t, err, star.ErrOutcomeUnknown, "its slot was sent")
	require.Equal(t, r.objects("bundle/"), r.intents())
	r.mustAppend("s", large)
	require.Len(t, r.all("s"), 1)
}

// An object of the bundle's key and size that is not the bundle: no slot comes to name it.
func TestBundleIsToldByItsBytes(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 64, Embedded: true}), "n", inline100)
	id := r.create("s")
	r.bucket.put = func(ctx context.Context, key string, put func() error) error {
		if !catalog.IsBundle(key) {
			return put()
		}
		r.bucket.put = nil
		require.NoError(t, put())
		body, err := r.bucket.Get(ctx, key, 0, -1)
		require.NoError(t, err)
		body[len(body)/2] ^= 1
		require.NoError(t, r.bucket.Put(ctx, key, body, objstore.PutOptions{}))
		return objstore.ErrExists
	}
	_, err := r.append(star.AppendRequest{Stream: id, Records: records(strings.Repeat("x", 101))})
	require.ErrorContains(t, err, "another object")
	require.NotErrorIs(t, err, star.ErrOutcomeUnknown)
	require.Empty(t, r.objects("slot/"))
	require.Len(t, r.intents(), 1, "the orphan duty's")
}

// Answers that get lost, puts that land twice or late: the bundle is told by its key and its bytes.
func TestBundlePutFindsOutWhatBecameOfIt(t *testing.T) {
	for name, f := range map[string]sim.Faults{
		"landed":        {PutUnknownEffect: 0.5},
		"never landed":  {PutUnknownNoEffect: 0.5},
		"throttled":     {BucketThrottle: 0.5},
		"commits lost":  {CommitUnknownEffect: 0.3, CommitUnknownNoEffect: 0.3},
		"store is away": {StoreUnavailable: 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, sim.Config{Seed: 63})
			r := newRig(t, w, "n", inline100)
			r.create("s")
			w.SetFaults(f)
			var want []string
			for i := range 20 {
				want = append(want, fmt.Sprint(i)+strings.Repeat("x", 100))
				r.mustAppend("s", want[i])
			}
			w.StopFaults()
			require.Equal(t, want, r.all("s"))
			require.Len(t, r.objects("bundle/"), 20)
			require.Empty(t, r.events.fenced)
		})
	}
}

// The largest record goes through, is read in pieces, and read on after its bundle was settled
// and deleted under the read, whatever the star remembers of the bundle.
func TestReadOfALargeBundleFollowsASwap(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 64}), "n", noTail)
	id := r.create("s")
	var recs []star.Record
	for i := range 300 {
		recs = append(recs, star.Record{Timestamp: int64(i + 1), Data: []byte(strings.Repeat(fmt.Sprintf("%03d ", i), 8<<10))})
	}
	_, err := r.append(star.AppendRequest{Stream: id, Records: recs})
	require.NoError(t, err)
	largest := strings.Repeat("m", format.MaxRecordBytes)
	r.mustAppend("s", largest)
	bundles := r.objects("bundle/")
	require.Len(t, bundles, 2)
	read := func(from uint64) []string {
		res, err := r.read(star.ReadRequest{Name: "s", From: from, MaxRecords: 2})
		require.NoError(t, err)
		return texts(res.Records)
	}
	want := texts(recs)
	require.True(t, slices.Equal(want[100:102], read(100)))
	require.True(t, slices.Equal([]string{largest}, read(300)))
	gets := 0
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		gets++
		r.bucket.get = nil
		require.Equal(t, bundles[0], key)
		spans, _, err := r.cat.Spans(ctx, id, 0, 1)
		require.NoError(t, err)
		w := format.NewWriter(format.KindSettled, format.Stored())
		w.Begin(uint64(id), 0)
		for _, rec := range recs {
			w.Add(rec.Timestamp, rec.Data)
		}
		body, footer, err := w.Finish()
		require.NoError(t, err)
		armed, err := r.cat.ArmIntent(ctx, catalog.SettledKey("01"))
		require.NoError(t, err)
		require.NoError(t, r.bucket.Put(ctx, armed.Object, body, objstore.PutOptions{IfAbsent: true, NotAfter: armed.NotAfter}))
		_, err = r.cat.Swap(ctx, catalog.Publish{Object: armed.Object, Size: int64(len(body)), Intent: armed.Version},
			[]catalog.Run{{Stream: id, Old: spans, Section: &footer.Sections[0]}})
		require.NoError(t, err)
		require.NoError(t, r.bucket.Delete(ctx, []string{bundles[0]})[0])
		return get()
	}
	require.True(t, slices.Equal(want[200:202], read(200)))
	require.Equal(t, 1, gets)
	require.Equal(t, 1, r.events.branches["star.read.moved"])
}

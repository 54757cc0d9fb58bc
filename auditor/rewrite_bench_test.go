package auditor

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
)

// All sizes in bytes, ranges as well as --settle-object-min and -max and the fetch cache, are divided by the scale, so
// that the tiers are climbed as at full size. 1 is full size, and takes tens of gigabytes of memory.
var rewriteScale = flag.Int("rewrite.scale", 16, "divides all sizes of BenchmarkRewrite")

// memBucket is a bucket in memory that counts what is put.
type memBucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	settled int64 // bytes put under settled/, ever
	gets    int
}

func (m *memBucket) Put(_ context.Context, key string, body []byte, opt objstore.PutOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; ok && opt.IfAbsent {
		return objstore.ErrExists
	}
	m.objects[key] = body
	if catalog.IsSettled(key) {
		m.settled += int64(len(body))
	}
	return nil
}

func (m *memBucket) Get(_ context.Context, key string, off, n int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	body, ok := m.objects[key]
	if !ok {
		return nil, objstore.ErrNotFound
	}
	body = body[min(off, int64(len(body))):]
	if n >= 0 {
		body = body[:min(n, int64(len(body)))]
	}
	return body, nil
}

func (m *memBucket) Stat(_ context.Context, key string) (objstore.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.objects[key]
	if !ok {
		return objstore.Info{}, objstore.ErrNotFound
	}
	return objstore.Info{Key: key, Size: int64(len(body))}, nil
}

func (m *memBucket) Delete(_ context.Context, keys []string) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.objects, key)
	}
	return make([]error, len(keys))
}

func (m *memBucket) List(context.Context, string, string, int) ([]objstore.Info, error) {
	panic("the auditor lists nothing here")
}

// alive returns how many settled objects there are, and their bytes.
func (m *memBucket) alive() (n int, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, body := range m.objects {
		if catalog.IsSettled(key) {
			n, bytes = n+1, bytes+int64(len(body))
		}
	}
	return n, bytes
}

// BenchmarkRewrite counts, and times nothing: the bytes that the auditor put (tail-fill's and gc's included) over the
// bytes appended, and what a settled record takes beside its 100 bytes. A real auditor on a Pebble store, whose
// file system is in memory, and a bucket that is a map.
func BenchmarkRewrite(b *testing.B) {
	for _, c := range []struct {
		name    string
		streams int
		bytes   int // of a stream an era, at full size
		eras    int
		skip    int // of a hundred times, in which a stream is not appended to in an era
	}{
		{"10000small", 10_000, 64 << 10, 16, 0},
		{"10000uneven", 10_000, 64 << 10, 24, 33},
		{"10large", 10, 4 << 20, 16, 0},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				rewriteOnce(b, c.streams, c.bytes / *rewriteScale, c.eras, c.skip)
			}
		})
	}
}

const recordBytes = 100

func rewriteOnce(b *testing.B, streams, bytes, eras, skip int) {
	ctx := context.Background()
	store, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(b, err)
	defer func() { require.NoError(b, store.Close()) }()
	bucket := &memBucket{objects: make(map[string][]byte)}
	clk, timing, scale := clock.NewReal(), catalog.DefaultTiming(true), int64(*rewriteScale)
	timing.SettleAgeCap, timing.TrimGrace, timing.RetireGrace, timing.ReapGrace = 0, time.Millisecond, time.Millisecond, time.Millisecond
	cat := catalog.New(store, clk, timing, nil)
	a, err := New(cat, bucket, clk, Options{Member: "m", Workers: 4, Embedded: true, SettleObjectMin: 1 << 20 / scale, SettleObjectMax: 64 << 20 / scale,
		FetchCacheBytes: 256 << 20 / scale, GCMinDeadBytes: 1 << 20 / scale})
	require.NoError(b, err)
	ids := make([]catalog.StreamID, streams)
	for i := range ids {
		v, _, err := cat.CreateStream(ctx, fmt.Sprint(i), catalog.Policy{})
		require.NoError(b, err)
		ids[i] = v.ID
	}
	session, err := store.OpenSession(ctx, time.Minute)
	require.NoError(b, err)
	chain, err := cat.Mint(ctx, catalog.MintRequest{Star: "a", Incarnation: 1, Session: session.ID(), Window: 4})
	require.NoError(b, err)

	rng := rand.New(rand.NewPCG(1, 2))
	record := make([]byte, recordBytes)
	cost, most := cat.FlightCost(true, false, false)
	slot, records := uint64(0), 0
	flight := func(ids []catalog.StreamID) {
		w := format.NewWriter(format.KindSlot, format.Stored())
		w.SetSlot("a", chain.Epoch, slot, [16]byte{1})
		for _, id := range ids {
			w.Begin(uint64(id), 0)
			for range (bytes + recordBytes - 1) / recordBytes {
				for i := range record {
					record[i] = byte(rng.Uint32())
				}
				w.Add(clk.Now().UnixMilli(), record)
				records++
			}
			w.EndAppend(format.Append{})
		}
		body, f, err := w.Finish()
		require.NoError(b, err)
		require.NoError(b, bucket.Put(ctx, catalog.SlotKey(chain, slot), body, objstore.PutOptions{IfAbsent: true}))
		_, err = cat.Absorb(ctx, catalog.AbsorbRequest{Chain: chain, Slots: []catalog.SlotIn{{Slot: slot, Size: int64(len(body)), Footer: &f}}})
		require.NoError(b, err)
		slot++
	}
	drain := func() {
		for quiet := 0; quiet < 2; {
			a.Wake()
			a.pass(ctx)
			require.NoError(b, a.pool.tasks.Wait(ctx))
			require.NoError(b, clk.Sleep(ctx, 3*time.Millisecond))
			quiet++
			for _, q := range []catalog.Queue{catalog.Denorm, catalog.Reap, catalog.GC} {
				for shard := range catalog.Shards {
					page, err := store.Scan(ctx, catalog.ShardRange(q, shard), 1)
					require.NoError(b, err)
					if len(page.Records) > 0 {
						quiet = 0
					}
				}
			}
		}
	}
	perSlot := min(most/cost, 32<<20/int(scale)/bytes+1)
	for range eras {
		var some []catalog.StreamID
		for _, id := range ids {
			if rng.IntN(100) >= skip {
				some = append(some, id)
			}
			if len(some) == perSlot {
				flight(some)
				some = some[:0]
			}
		}
		if len(some) > 0 {
			flight(some)
		}
		drain()
	}
	appended := int64(records) * recordBytes
	objects, alive := bucket.alive()
	b.ReportMetric(float64(bucket.settled)/float64(appended), "rewritten/appended")
	b.ReportMetric(float64(alive)/float64(appended), "alive/appended")
	if skip == 0 { // else some of what is alive is dead in part, and not yet worth a rewrite
		b.ReportMetric(float64(alive)/float64(records)-recordBytes, "overhead-B/record")
	}
	b.ReportMetric(float64(objects), "objects")
	b.ReportMetric(float64(bucket.gets)/float64(slot), "gets/slot")
	b.ReportMetric(0, "ns/op")
}

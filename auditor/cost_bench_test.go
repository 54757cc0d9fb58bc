package auditor

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/format"
)

var idleStreams = flag.Int("idle-streams", 1_000_000, "the larger number of idle streams of BenchmarkCostFollowsWork")

// tally counts what is asked of a store and a bucket.
type tally struct{ calls, keys, requests atomic.Int64 }

func (t *tally) add(keys int) { t.calls.Add(1); t.keys.Add(int64(keys)) }

type tallyStore struct {
	metastore.Store
	t *tally
}

func (s tallyStore) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	s.t.add(len(keys))
	return s.Store.Get(ctx, keys...)
}

func (s tallyStore) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	page, err := s.Store.Scan(ctx, r, limit)
	s.t.add(len(page.Records) + 1)
	return page, err
}

func (s tallyStore) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	s.t.add(len(rs))
	return s.Store.Peek(ctx, rs)
}

func (s tallyStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	s.t.add(len(b.Conds) + len(b.Ops))
	return s.Store.Commit(ctx, b)
}

type tallyBucket struct {
	objstore.Bucket
	t *tally
}

func (b tallyBucket) Put(ctx context.Context, key string, body []byte, opt objstore.PutOptions) error {
	b.t.requests.Add(1)
	return b.Bucket.Put(ctx, key, body, opt)
}

func (b tallyBucket) Get(ctx context.Context, key string, off, n int64) ([]byte, error) {
	b.t.requests.Add(1)
	return b.Bucket.Get(ctx, key, off, n)
}

func (b tallyBucket) Stat(ctx context.Context, key string) (objstore.Info, error) {
	b.t.requests.Add(1)
	return b.Bucket.Stat(ctx, key)
}

func (b tallyBucket) Delete(ctx context.Context, keys []string) []error {
	b.t.requests.Add(1)
	return b.Bucket.Delete(ctx, keys)
}

// cost is what one number of idle streams costs.
type cost struct {
	callsPerMarker, keysPerMarker, requestsPerMarker float64
	callsPerPass, keysPerPass                        float64
	heap                                             float64 // bytes in use after a collection
	pebble                                           float64 // bytes that Pebble holds outside of it
	created                                          time.Duration
}

const (
	costStreams = 64  // that work
	costSlots   = 100 // of work, each one batch
	costPasses  = 100 // idle ones
)

// measureCost makes idle streams, starts anew, does a fixed amount of work, and counts.
func measureCost(b *testing.B, idle int) (c cost) {
	ctx, dir, clk := context.Background(), b.TempDir(), clock.NewReal()
	open := func() *pebblestore.Store {
		store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{MinFreeBytes: -1})
		require.NoError(b, err)
		return store
	}
	store := open()
	began := time.Now()
	makeIdle(b, catalog.New(store, clk, catalog.DefaultTiming(true), nil), idle)
	c.created = time.Since(began)
	require.NoError(b, store.Close())

	store = open()
	bucket, err := dirbucket.Open(filepath.Join(dir, "bucket"), dirbucket.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, bucket.Close()); require.NoError(b, store.Close()) }()
	fillBudgets(b, store)
	var t tally
	timing := catalog.DefaultTiming(true)
	timing.SettleAgeCap, timing.TrimGrace, timing.ReapGrace = time.Millisecond, time.Millisecond, time.Millisecond
	cat := catalog.New(tallyStore{store, &t}, clk, timing, nil)
	a, err := New(cat, tallyBucket{bucket, &t}, clk, Options{Member: "m", Embedded: true})
	require.NoError(b, err)
	session, err := store.OpenSession(ctx, time.Minute)
	require.NoError(b, err)
	chain, err := cat.Mint(ctx, catalog.MintRequest{Star: "a", Incarnation: 1, Session: session.ID(), Window: 16})
	require.NoError(b, err)
	ids := make([]catalog.StreamID, costStreams)
	for i := range ids {
		v, _, err := cat.CreateStream(ctx, fmt.Sprint("busy-", i), catalog.Policy{})
		require.NoError(b, err)
		ids[i] = v.ID
	}
	for slot := range uint64(costSlots) {
		w := format.NewWriter(format.KindSlot, format.Stored())
		w.SetSlot("a", chain.Epoch, slot, [16]byte{1})
		for _, id := range ids {
			w.Begin(uint64(id), 0)
			w.Add(int64(slot), make([]byte, 100))
			w.EndAppend(format.Append{})
		}
		body, f, err := w.Finish()
		require.NoError(b, err)
		require.NoError(b, bucket.Put(ctx, catalog.SlotKey(chain, slot), body, objstore.PutOptions{IfAbsent: true}))
		_, err = cat.Absorb(ctx, catalog.AbsorbRequest{Chain: chain, Slots: []catalog.SlotIn{{Slot: slot, Size: int64(len(body)), Footer: &f}}})
		require.NoError(b, err)
	}
	pass := func() {
		a.pass(ctx)
		require.NoError(b, a.pool.tasks.Wait(ctx))
	}
	require.NoError(b, clk.Sleep(ctx, 20*time.Millisecond))
	t.reset()
	for range 3 { // settle, trim, and what those left
		pass()
		require.NoError(b, clk.Sleep(ctx, 20*time.Millisecond))
	}
	at, err := cat.ReadTrim(ctx, chain)
	require.NoError(b, err)
	require.EqualValues(b, costSlots, at.Trim.Trimmed, "all of the work is done")
	c.callsPerMarker, c.keysPerMarker, c.requestsPerMarker = t.per(costSlots)
	t.reset()
	for range costPasses {
		pass()
	}
	c.callsPerPass, c.keysPerPass, _ = t.per(costPasses)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.heap, c.pebble = float64(m.HeapInuse), float64(store.MemoryBytes())
	return c
}

func (t *tally) reset() { t.calls.Store(0); t.keys.Store(0); t.requests.Store(0) }

func (t *tally) per(n float64) (calls, keys, requests float64) {
	return float64(t.calls.Load()) / n, float64(t.keys.Load()) / n, float64(t.requests.Load()) / n
}

// fillBudgets brings Pebble's memtables and block cache to the sizes that they have in any node that has run
// for a while: they are budgets, used up whatever is in the store. What is left to tell is what idle streams add.
func fillBudgets(b *testing.B, store *pebblestore.Store) {
	ctx, r := context.Background(), rand.New(rand.NewPCG(1, 2))
	for i := range 160 {
		value := make([]byte, 0, 1<<20)
		for len(value) < cap(value) {
			value = binary.LittleEndian.AppendUint64(value, r.Uint64())
		}
		ops := make([]metastore.Op, 0, 256)
		for j := range cap(ops) {
			ops = append(ops, metastore.Put(fmt.Sprintf("zz/%03d/%03d", i, j), value[j<<12:(j+1)<<12]))
		}
		_, err := store.Commit(ctx, metastore.Batch{Ops: ops})
		require.NoError(b, err)
	}
	for i := range 160 {
		_, err := store.Scan(ctx, metastore.Prefix(fmt.Sprintf("zz/%03d/", i)), 256)
		require.NoError(b, err)
	}
}

// makeIdle makes idle streams as anybody would, one create after the other, but one task for each shard of
// names: those of one shard move the same counter.
func makeIdle(b *testing.B, cat *catalog.Catalog, n int) {
	var names [catalog.Shards][]string
	for i := range n {
		name := fmt.Sprint("idle-", i)
		names[catalog.Shard(name)] = append(names[catalog.Shard(name)], name)
	}
	var all sync.WaitGroup
	for _, part := range names {
		all.Go(func() {
			for _, name := range part {
				if _, _, err := cat.CreateStream(context.Background(), name, catalog.Policy{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkCostFollowsWork compares the same work beside 1,000 and beside 1,000,000 idle streams (-idle-streams), in one run:
// calls and keys of the metadata store and requests of the bucket for each settled batch marker, those of an idle
// pass, and the memory afterwards. Each ratio is the larger number's figure over the smaller one's.
func BenchmarkCostFollowsWork(b *testing.B) {
	for b.Loop() {
		few, many := measureCost(b, 1000), measureCost(b, *idleStreams)
		b.ReportMetric(many.callsPerMarker/few.callsPerMarker, "ratio-calls/marker")
		b.ReportMetric(many.keysPerMarker/few.keysPerMarker, "ratio-keys/marker")
		b.ReportMetric(many.requestsPerMarker/few.requestsPerMarker, "ratio-requests/marker")
		b.ReportMetric(many.callsPerPass/few.callsPerPass, "ratio-calls/idle-pass")
		b.ReportMetric(many.keysPerPass/few.keysPerPass, "ratio-keys/idle-pass")
		b.ReportMetric((many.heap+many.pebble)/(few.heap+few.pebble), "ratio-memory")
		b.ReportMetric(many.callsPerMarker, "calls/marker")
		b.ReportMetric(many.keysPerMarker, "keys/marker")
		b.ReportMetric(many.requestsPerMarker, "requests/marker")
		b.ReportMetric(many.callsPerPass, "calls/idle-pass")
		b.ReportMetric(many.keysPerPass, "keys/idle-pass")
		b.ReportMetric(few.heap/(1<<20), "MiB-heap-few")
		b.ReportMetric(many.heap/(1<<20), "MiB-heap-many")
		b.ReportMetric(few.pebble/(1<<20), "MiB-pebble-few")
		b.ReportMetric(many.pebble/(1<<20), "MiB-pebble-many")
		b.ReportMetric(many.created.Seconds(), "s-to-create")
	}
}

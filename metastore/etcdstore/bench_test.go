//go:build etcd

package etcdstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/etcdstore/etcdtest"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// counted counts calls, each of which is one round trip, and the time that they take.
type counted struct {
	metastore.Store
	reads, commits, nanos atomic.Int64
}

func (c *counted) took(kind *atomic.Int64, since time.Time) {
	kind.Add(1)
	c.nanos.Add(int64(time.Since(since)))
}

func (c *counted) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	defer c.took(&c.reads, time.Now())
	return c.Store.Get(ctx, keys...)
}

func (c *counted) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	defer c.took(&c.reads, time.Now())
	return c.Store.Scan(ctx, r, limit)
}

func (c *counted) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	defer c.took(&c.reads, time.Now())
	return c.Store.Peek(ctx, rs)
}

func (c *counted) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	defer c.took(&c.commits, time.Now())
	return c.Store.Commit(ctx, b)
}

// report prints what was counted, for each of n things.
func (c *counted) report(b *testing.B, n int, thing string) {
	reads, commits := c.reads.Swap(0), c.commits.Swap(0)
	b.ReportMetric(float64(reads)/float64(n), "reads/"+thing)
	b.ReportMetric(float64(commits)/float64(n), "commits/"+thing)
	if calls := reads + commits; calls > 0 {
		b.ReportMetric(float64(c.nanos.Swap(0))/float64(calls)/1e6, "ms/call-of-"+thing)
	}
}

// BenchmarkRoundTrips appends, one record at a time, and settles what was appended, on a cluster of three on this machine: round
// trips and latencies of an append and of a settled batch marker (retention, trims and reaps included). Objects are in a
// directory, so that nothing else takes time.
func BenchmarkRoundTrips(b *testing.B) {
	const appends = 200
	for b.Loop() {
		ctx, clk := b.Context(), clock.NewReal()
		store, err := etcdstore.New(etcdtest.Start(b).Client(b), "bench/", etcdstore.Options{})
		require.NoError(b, err)
		bucket, err := dirbucket.Open(b.TempDir(), dirbucket.Options{})
		require.NoError(b, err)
		timing := catalog.DefaultTiming(true)
		timing.TrimGrace, timing.ReapGrace, timing.SettleAgeCap = time.Millisecond, time.Millisecond, time.Millisecond
		serving, auditing := &counted{Store: store}, &counted{Store: store}
		cat := catalog.New(serving, clk, timing, nil)
		st, err := star.New(cat, bucket, clk, star.Options{Name: "a", Embedded: true})
		require.NoError(b, err)
		stopped := make(chan error, 1)
		go func() { stopped <- st.Run(ctx) }()
		for st.Ready() != nil {
			require.NoError(b, clk.Sleep(ctx, time.Millisecond))
		}
		v, _, err := cat.CreateStream(ctx, "s", catalog.Policy{})
		require.NoError(b, err)
		request := star.AppendRequest{Stream: v.ID, Records: []star.Record{{Data: make([]byte, 100)}}}
		_, err = st.Append(ctx, request)
		require.NoError(b, err)

		serving.report(b, 1, "start")
		began := time.Now()
		for range appends {
			_, err := st.Append(ctx, request)
			require.NoError(b, err)
		}
		b.ReportMetric(time.Since(began).Seconds()*1e3/appends, "ms/append")
		serving.report(b, appends, "append")

		a, err := auditor.New(catalog.New(auditing, clk, timing, nil), bucket, clk, auditor.Options{
			Member: "a", Embedded: true, IdleInterval: 10 * time.Millisecond, Codec: format.Zstd(),
		})
		require.NoError(b, err)
		running, stop := context.WithCancel(ctx)
		audited := make(chan error, 1)
		began = time.Now()
		go func() { audited <- a.Run(running) }()
		chain, head, _ := st.Chain()
		for {
			at, err := cat.ReadTrim(ctx, chain)
			require.NoError(b, err)
			if at.Trim.Trimmed == head {
				break
			}
			require.NoError(b, clk.Sleep(ctx, 5*time.Millisecond))
		}
		b.ReportMetric(time.Since(began).Seconds()*1e3/float64(head), "ms/marker")
		auditing.report(b, int(head), "marker")
		stop()
		require.NoError(b, <-audited)
		require.NoError(b, st.Drain(ctx))
		require.NoError(b, <-stopped)
		require.NoError(b, bucket.Close())
	}
}

// BenchmarkPeek reads the first of 1,000 and of 100,000 keys: etcd counts a range to its end whatever the limit is.
func BenchmarkPeek(b *testing.B) {
	store, err := etcdstore.New(etcdtest.Start(b).Client(b), "bench/", etcdstore.Options{})
	require.NoError(b, err)
	for _, n := range []int{1_000, 100_000} {
		prefix := fmt.Sprintf("%d/", n)
		for at := 0; at < n; {
			var batch metastore.Batch
			for range min(store.Limits().MaxOps, n-at) {
				batch.Ops = append(batch.Ops, metastore.Put(fmt.Sprintf("%s%08d", prefix, at), make([]byte, 50)))
				at++
			}
			_, err := store.Commit(b.Context(), batch)
			require.NoError(b, err)
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				_, err := store.Peek(b.Context(), []metastore.Range{metastore.Prefix(prefix)})
				require.NoError(b, err)
			}
		})
	}
}

package star_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
)

// node is a star on the embedded store and a local directory.
type node struct {
	star *star.Star
	cat  *catalog.Catalog
	stop func()
}

func openNode(t testing.TB, dir string, change func(*star.Options)) *node {
	store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{})
	require.NoError(t, err)
	objects, err := dirbucket.Open(filepath.Join(dir, "objects"), dirbucket.Options{})
	require.NoError(t, err)
	clk := clock.NewReal()
	cat := catalog.New(store, clk, catalog.DefaultTiming(true), nil)
	require.NoError(t, cat.EnsureFormat(context.Background()))
	opts := star.Options{Name: "a", Embedded: true}
	if change != nil {
		change(&opts)
	}
	s, err := star.New(cat, objects, clk, opts)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	for s.Ready() != nil {
		require.NoError(t, clk.Sleep(context.Background(), time.Millisecond))
	}
	return &node{s, cat, func() {
		require.NoError(t, s.Drain(context.Background()))
		require.NoError(t, <-done)
		require.NoError(t, objects.Close())
		require.NoError(t, store.Close())
	}}
}

// Many tasks, real files, a restart: everything is read back, from memory and from
// the bucket.
func TestRealStoreAndDirectory(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	n := openNode(t, dir, nil)
	const streams, tasks, each = 4, 16, 25
	for i := range streams {
		_, _, err := n.cat.CreateStream(ctx, fmt.Sprint("s", i), catalog.Policy{})
		require.NoError(t, err)
	}
	var mu sync.Mutex
	content := map[string]map[uint64]string{}
	var wg sync.WaitGroup
	for i := range tasks {
		wg.Go(func() {
			name := fmt.Sprint("s", i%streams)
			for seq := range uint64(each) {
				data := fmt.Sprintf("%d-%d", i, seq)
				req := star.AppendRequest{Name: name, Records: records(data, data)}
				if i%2 == 0 {
					req.Producer = &format.Producer{ID: fmt.Sprint(i), Seq: seq}
				}
				res, err := n.star.Append(ctx, req)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if content[name] == nil {
					content[name] = map[uint64]string{}
				}
				content[name][res.First], content[name][res.Last] = data, data
				mu.Unlock()
				read, err := n.star.Read(ctx, star.ReadRequest{Name: name, From: res.First, MaxRecords: 2})
				if err != nil || len(read.Records) != 2 || string(read.Records[1].Data) != data {
					t.Errorf("append %s is not there: %v", data, err)
				}
			}
		})
	}
	wg.Wait()
	for range 2 {
		for name, want := range content {
			res, err := n.star.Read(ctx, star.ReadRequest{Name: name})
			require.NoError(t, err)
			require.Len(t, res.Records, len(want))
			require.Equal(t, 2*each*tasks/streams, len(want))
			for i, r := range res.Records {
				require.Equal(t, want[uint64(i)], string(r.Data))
			}
		}
		n.stop()
		n = openNode(t, dir, nil)
	}
	n.stop()
}

// BenchmarkAppend is durable appends of 1 KiB by so many tasks, on the embedded
// store and a local directory.
func BenchmarkAppend(b *testing.B) {
	for _, tasks := range []int{1, 64} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			ctx := context.Background()
			n := openNode(b, b.TempDir(), nil)
			defer n.stop()
			v, _, err := n.cat.CreateStream(ctx, "s", catalog.Policy{})
			require.NoError(b, err)
			data := make([]byte, 1<<20)
			rnd := rand.New(rand.NewPCG(1, 2))
			for i := range data {
				data[i] = byte(rnd.Uint32())
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range tasks {
				wg.Go(func() {
					for i := left.Add(-1); i >= 0; i = left.Add(-1) {
						at := i % 1023 << 10
						record := star.Record{Timestamp: 1, Data: data[at : at+1024]}
						if _, err := n.star.Append(ctx, star.AppendRequest{Stream: v.ID, Records: []star.Record{record}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			_, head, _ := n.star.Chain()
			b.ReportMetric(float64(b.N)/float64(head), "appends/slot")
		})
	}
}

// BenchmarkRead is sequential reads of a MiB each, from memory and from the bucket.
func BenchmarkRead(b *testing.B) {
	for name, tail := range map[string]int64{"tail": 64 << 20, "bucket": -1} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			n := openNode(b, b.TempDir(), func(o *star.Options) { o.TailBytes = tail })
			defer n.stop()
			_, _, err := n.cat.CreateStream(ctx, "s", catalog.Policy{})
			require.NoError(b, err)
			for range 32 {
				var recs []star.Record
				for range 1024 {
					recs = append(recs, star.Record{Timestamp: 1, Data: bytes.Repeat([]byte("0123456789abcdef"), 64)})
				}
				_, err := n.star.Append(ctx, star.AppendRequest{Name: "s", Records: recs})
				require.NoError(b, err)
			}
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			at := uint64(0)
			for b.Loop() {
				res, err := n.star.Read(ctx, star.ReadRequest{Name: "s", From: at, MaxBytes: 1 << 20})
				if err != nil {
					b.Fatal(err)
				}
				if at = res.Next; at == res.End {
					at = 0
				}
			}
		})
	}
}

// BenchmarkAppendLargest is durable appends of a record of 16 MiB, in a bundle and in the slot itself.
func BenchmarkAppendLargest(b *testing.B) {
	for name, inline := range map[string]int{"bundle": 1 << 20, "inline": format.MaxRecordBytes} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			n := openNode(b, b.TempDir(), func(o *star.Options) { o.InlineBytes, o.TailBytes = inline, -1 })
			defer n.stop()
			v, _, err := n.cat.CreateStream(ctx, "s", catalog.Policy{})
			require.NoError(b, err)
			data := make([]byte, format.MaxRecordBytes)
			_, err = rand.NewChaCha8([32]byte{1}).Read(data)
			require.NoError(b, err)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				record := star.Record{Timestamp: 1, Data: data}
				if _, err := n.star.Append(ctx, star.AppendRequest{Stream: v.ID, Records: []star.Record{record}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

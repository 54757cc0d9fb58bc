package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// commitsOf runs b.N commits by so many goroutines.
func commitsOf(b *testing.B, committers int, commit func(i uint64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, committers)
	b.ReportAllocs()
	b.ResetTimer()
	for w := range committers {
		wg.Go(func() {
			for errs[w] == nil {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				errs[w] = commit(uint64(i))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	for _, err := range errs {
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

const benchValueBytes = 100

// BenchmarkCommit compares durable commits of two rows, one of them conditional, with Pebble's own synced
// commits of the same bytes.
func BenchmarkCommit(b *testing.B) {
	ctx := context.Background()
	value := make([]byte, benchValueBytes)
	for _, committers := range []int{1, 64} {
		b.Run(fmt.Sprintf("pebble/committers=%d", committers), func(b *testing.B) {
			db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: discard{}})
			require.NoError(b, err)
			defer db.Close()
			commitsOf(b, committers, func(i uint64) error {
				batch := db.NewBatch()
				for _, prefix := range []string{"\x01row/", "\x01due/"} {
					op := batch.SetDeferred(len(prefix)+8, versionLen+len(value))
					copy(op.Key, prefix)
					binary.BigEndian.PutUint64(op.Key[len(prefix):], i)
					copy(op.Value[versionLen:], value)
					if err := op.Finish(); err != nil {
						return err
					}
				}
				if err := batch.Commit(pebble.Sync); err != nil {
					return err
				}
				return batch.Close()
			})
		})
		b.Run(fmt.Sprintf("store/committers=%d", committers), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			require.NoError(b, err)
			defer s.Close()
			commitsOf(b, committers, func(i uint64) error {
				row := string(binary.BigEndian.AppendUint64([]byte("row/"), i))
				due := string(binary.BigEndian.AppendUint64([]byte("due/"), i))
				_, err := s.Commit(ctx, metastore.Batch{
					Conds: []metastore.Cond{metastore.Absent(row)},
					Ops:   []metastore.Op{metastore.Put(row, value), metastore.Put(due, value)},
				})
				return err
			})
		})
	}
}

type discard struct{}

func (discard) Infof(string, ...any)      {}
func (discard) Errorf(string, ...any)     {}
func (discard) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// BenchmarkPeek reads the front of a queue: of a fresh store, of one whose markers
// were almost all resolved just now, and of one whose were all. The first read,
// which steps over the tombstones and learns where they end, is reported apart.
func BenchmarkPeek(b *testing.B) {
	const standing = 1000
	for _, resolved := range []int{0, 400_000, 1_000_000} {
		for _, left := range []int{standing, 0} {
			if resolved == 0 && left == 0 {
				continue
			}
			b.Run(fmt.Sprintf("resolved=%d/standing=%d", resolved, left), func(b *testing.B) {
				s := openQueue(b, resolved, left)
				defer s.Close()
				due := []metastore.Range{metastore.Prefix("due/reap/00/")}
				peek := func() {
					recs, err := s.Peek(context.Background(), due)
					if err != nil || recs[0].Exists() != (left > 0) {
						b.Fatal(recs, err)
					}
				}
				start := time.Now()
				peek()
				first := time.Since(start)
				b.ReportAllocs()
				for b.Loop() {
					peek()
				}
				b.ReportMetric(float64(first.Nanoseconds()), "ns/first")
			})
		}
	}
}

func dueKey(i int) string { return fmt.Sprintf("due/reap/00/%016x~settled!%026d", i, i) }

// openQueue arms markers, resolves the first of them, and leaves the rest standing.
func openQueue(b *testing.B, resolved, standing int) *Store {
	return openQueueIn(b, b.TempDir(), resolved, standing)
}

func openQueueIn(b *testing.B, dir string, resolved, standing int) *Store {
	s, err := Open(dir, Options{})
	require.NoError(b, err)
	commit := func(from, to int, op func(key string) metastore.Op) {
		for i := from; i < to; i += 1000 {
			var batch metastore.Batch
			for j := i; j < min(i+1000, to); j++ {
				batch.Ops = append(batch.Ops, op(dueKey(j)))
			}
			_, err := s.Commit(context.Background(), batch)
			require.NoError(b, err)
		}
	}
	value := make([]byte, 50)
	commit(0, resolved+standing, func(key string) metastore.Op { return metastore.Put(key, value) })
	commit(0, resolved, metastore.Delete)
	return s
}

// BenchmarkDeadPrefix is the front of a shard from which a million markers were resolved, against that of
// a fresh store: a limit-1 peek, warm (the median of rounds), and the first one after the store was opened again (the median and
// the worst of several openings; the file cache stays warm), both in one run.
func BenchmarkDeadPrefix(b *testing.B) {
	const standing, openings = 1000, 9
	for _, resolved := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("resolved=%d", resolved), func(b *testing.B) {
			var warm, cold, worst [2]time.Duration
			for i, n := range []int{0, resolved} {
				dir := b.TempDir()
				s := openQueueIn(b, dir, n, standing)
				peek := func() {
					recs, err := s.Peek(context.Background(), []metastore.Range{metastore.Prefix("due/reap/00/")})
					if err != nil || !recs[0].Exists() {
						b.Fatal(recs, err)
					}
				}
				peek()
				const rounds, peeks = 41, 100
				var times []time.Duration
				for range rounds {
					start := time.Now()
					for range peeks {
						peek()
					}
					times = append(times, time.Since(start)/peeks)
				}
				slices.Sort(times)
				warm[i] = times[rounds/2]
				var firsts []time.Duration
				for range openings {
					require.NoError(b, s.Close())
					var err error
					s, err = Open(dir, Options{})
					require.NoError(b, err)
					start := time.Now()
					peek()
					firsts = append(firsts, time.Since(start))
				}
				slices.Sort(firsts)
				cold[i], worst[i] = firsts[openings/2], firsts[openings-1]
				require.NoError(b, s.Close())
			}
			b.ReportMetric(0, "ns/op") // what is looked at is not b.N
			b.ReportMetric(float64(warm[0].Nanoseconds()), "ns/fresh")
			b.ReportMetric(float64(warm[1].Nanoseconds()), "ns/resolved")
			b.ReportMetric(float64(warm[1])/float64(warm[0]), "ratio")
			b.ReportMetric(float64(cold[0].Nanoseconds()), "ns/cold-fresh")
			b.ReportMetric(float64(cold[1].Nanoseconds()), "ns/cold-resolved")
			b.ReportMetric(float64(cold[1])/float64(cold[0]), "cold-ratio")
			b.ReportMetric(float64(worst[0].Nanoseconds()), "ns/worst-fresh")
			b.ReportMetric(float64(worst[1].Nanoseconds()), "ns/worst-resolved")
		})
	}
}

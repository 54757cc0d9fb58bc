package dirbucket

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var benchSizes = []struct {
	name  string
	bytes int
}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"1MiB", 1 << 20}}

// writers shares b.N calls of f among n goroutines.
func writers(b *testing.B, n int, f func(i int64) error) {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, n)
	for w := range n {
		all.Go(func() {
			for errs[w] == nil {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				errs[w] = f(i)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
}

// BenchmarkPut is a durable put if-absent into one folder.
func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%s/writers=%d", size.name, n), func(b *testing.B) {
				bucket, err := Open(b.TempDir(), Options{})
				require.NoError(b, err)
				body := make([]byte, size.bytes)
				b.SetBytes(int64(size.bytes))
				b.ResetTimer()
				writers(b, n, func(i int64) error {
					return bucket.Put(b.Context(), fmt.Sprintf("slot/a/1/%d", i), body, ifAbsent)
				})
				b.StopTimer()
				require.NoError(b, bucket.Close())
			})
		}
	}
}

// BenchmarkBareFsync is what the disk gives: append to one open file of one's own, and fsync it.
func BenchmarkBareFsync(b *testing.B) {
	for _, size := range benchSizes {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("size=%s/writers=%d", size.name, n), func(b *testing.B) {
				dir := b.TempDir()
				files := make(chan *os.File, n)
				for i := range n {
					f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
					require.NoError(b, err)
					files <- f
				}
				body := make([]byte, size.bytes)
				b.SetBytes(int64(size.bytes))
				b.ResetTimer()
				writers(b, n, func(int64) error {
					f := <-files
					defer func() { files <- f }()
					if _, err := f.Write(body); err != nil {
						return err
					}
					return f.Sync()
				})
				b.StopTimer()
				for range n {
					require.NoError(b, (<-files).Close())
				}
			})
		}
	}
}

// BenchmarkGet is a warm read of a range.
func BenchmarkGet(b *testing.B) {
	bucket, err := Open(b.TempDir(), Options{})
	require.NoError(b, err)
	require.NoError(b, bucket.Put(b.Context(), "settled/x", make([]byte, 8<<20), ifAbsent))
	for _, size := range benchSizes {
		b.Run("size="+size.name, func(b *testing.B) {
			b.SetBytes(int64(size.bytes))
			for b.Loop() {
				_, err := bucket.Get(b.Context(), "settled/x", 1<<20, int64(size.bytes))
				require.NoError(b, err)
			}
		})
	}
	require.NoError(b, bucket.Close())
}

package buckettest

import (
	"context"
	"sync"
	"testing"

	"github.com/nova-store/nova/objstore"
)

// Do is Harness.Do of a bucket that may be called from any goroutine.
func Do(t *testing.T, _ objstore.Bucket, f func(ctx context.Context)) { f(t.Context()) }

// Parallel is Harness.Parallel of a bucket that may be called from any goroutine.
func Parallel(t *testing.T, _ objstore.Bucket, n int, f func(ctx context.Context, i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(t.Context(), i)
		})
	}
	close(start)
	all.Wait()
}

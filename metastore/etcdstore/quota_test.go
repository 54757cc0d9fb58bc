//go:build etcd

package etcdstore_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/etcdstore"
	"github.com/nova-store/nova/metastore/etcdstore/etcdtest"
)

// TestACommitAsTheQuotaRunsOutIsUnknown: a transaction that was let in before the quota ran out is applied after it, and
// answered with "no space" all the same. Whoever took that for "nothing happened" would be wrong.
func TestACommitAsTheQuotaRunsOutIsUnknown(t *testing.T) {
	const workers, each = 48, 60
	o := &opener{cluster: etcdtest.Start(t, "--quota-backend-bytes=8388608")}
	s := o.open(t, etcdstore.Options{})
	value := bytes.Repeat([]byte("x"), 16<<10)
	var mu sync.Mutex
	failed := map[string]error{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d/%d", w, i)
				if _, err := s.Commit(t.Context(), metastore.Batch{Conds: []metastore.Cond{metastore.Absent(key)}, Ops: []metastore.Op{metastore.Put(key, value)}}); err != nil {
					mu.Lock()
					failed[key] = err
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, failed, "the quota has not run out")
	landed := 0
	for key, err := range failed {
		recs, rerr := s.Get(t.Context(), key)
		require.NoError(t, rerr)
		if recs[0].Exists() {
			landed++
			require.ErrorIs(t, err, metastore.ErrUnknown, "%s landed, and its commit failed with %v", key, err)
		}
	}
	t.Logf("of %d commits that failed, %d landed", len(failed), landed)
	// What only deletes goes on.
	_, err := s.Commit(t.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Delete("0/0")}})
	require.NoError(t, err)
}

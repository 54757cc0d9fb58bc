package star_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
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

// Three stars on one store and one bucket append to one stream at once, while a reader of each follows it. Offsets stay
// dense, every reader sees the one order that the acknowledgements tell, and the whole is what was acknowledged: nothing
// missing, nothing twice, though each producer goes on at another star after every append.
func TestStarsSideBySide(t *testing.T) {
	const stars, writers, appends = 3, 4, 15
	ctx, dir := t.Context(), t.TempDir()
	store, err := pebblestore.Open(filepath.Join(dir, "meta"), pebblestore.Options{})
	require.NoError(t, err)
	objects, err := dirbucket.Open(filepath.Join(dir, "objects"), dirbucket.Options{})
	require.NoError(t, err)
	clk := clock.NewReal()

	nodes := make([]*star.Star, stars)
	ended := make([]chan error, stars)
	var id catalog.StreamID
	for i := range nodes {
		// A catalog each, and with it caches of its own: what stars know of one another is in the store.
		cat := catalog.New(store, clk, catalog.DefaultTiming(true), nil)
		require.NoError(t, cat.EnsureFormat(ctx))
		nodes[i], err = star.New(cat, objects, clk, star.Options{Name: fmt.Sprint("star-", i), Embedded: true})
		require.NoError(t, err)
		ended[i] = make(chan error, 1)
		go func() { ended[i] <- nodes[i].Run(context.Background()) }()
		for nodes[i].Ready() != nil {
			require.NoError(t, clk.Sleep(ctx, time.Millisecond))
		}
		v, _, err := cat.CreateStream(ctx, "s", catalog.Policy{})
		require.NoError(t, err)
		require.True(t, i == 0 || v.ID == id, "they see one stream")
		id = v.ID
	}

	total, sent := 0, map[string]bool{}
	for w := range stars * writers {
		for n := range appends {
			for r := range batch(w, n) {
				sent[text(w, n, r)] = true
				total++
			}
		}
	}

	var mu sync.Mutex
	acknowledged := make(map[uint64]string, total)
	var working sync.WaitGroup
	for w := range stars * writers {
		working.Go(func() {
			for n := range appends {
				var data []string
				for r := range batch(w, n) {
					data = append(data, text(w, n, r))
				}
				req := star.AppendRequest{Name: "s", Records: records(data...)}
				at := nodes[w%stars]
				if w%2 == 0 {
					req.Producer = &format.Producer{ID: fmt.Sprint("writer-", w), Seq: uint64(n)}
					at = nodes[(w+n)%stars]
				}
				res, err := at.Append(ctx, req)
				if err != nil || res.Last-res.First+1 != uint64(len(data)) {
					t.Errorf("append %d of writer %d: %+v, %v", n, w, res, err)
					return
				}
				mu.Lock()
				for i, d := range data {
					acknowledged[res.First+uint64(i)] = d
				}
				mu.Unlock()
			}
		})
	}
	seen := make([][]string, stars)
	for i, at := range nodes {
		working.Go(func() {
			f, err := at.Follow(ctx, id)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			for next := uint64(0); len(seen[i]) < total; {
				if err := f.Wait(ctx, next); err != nil {
					t.Error(err)
					return
				}
				page, err := at.Read(ctx, star.ReadRequest{Stream: id, From: next})
				if err != nil {
					t.Error(err)
					return
				}
				if page.Next != next+uint64(len(page.Records)) {
					t.Errorf("star %d reads %d records from %d on, and then %d comes", i, len(page.Records), next, page.Next)
					return
				}
				next = page.Next
				for _, r := range page.Records {
					seen[i] = append(seen[i], string(r.Data))
				}
			}
		})
	}
	working.Wait()
	for i, at := range nodes {
		require.NoError(t, at.Drain(context.Background()))
		require.NoError(t, <-ended[i])
	}
	require.NoError(t, objects.Close())
	require.NoError(t, store.Close())

	require.Len(t, acknowledged, total, "each offset was given once")
	for i := range seen {
		require.Len(t, seen[i], total)
		for offset, data := range seen[i] {
			require.Equal(t, acknowledged[uint64(offset)], data, "star %d, offset %d", i, offset)
			require.True(t, sent[data], data)
		}
	}
	found := map[string]bool{}
	for _, data := range seen[0] {
		found[data] = true
	}
	require.Equal(t, sent, found)
}

// batch is how many records an append has: 1 to 3.
func batch(writer, n int) int { return 1 + (writer+n)%3 }

func text(writer, n, record int) string { return fmt.Sprintf("%d-%d-%d", writer, n, record) }

package pebblestore

import (
	"fmt"
	"maps"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/metastore"
)

// TestGapsHoldNoKey: whatever is put, deleted, and learned from views new and
// old, no known gap ever holds a key, and gaps neither overlap nor touch.
func TestGapsHoldNoKey(t *testing.T) {
	keys := rapid.StringMatching(`[a-c]{1,3}`)
	rapid.Check(t, func(rt *rapid.T) {
		var g gaps
		states := []map[string]bool{{}} // the keys of each view
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				now := states[len(states)-1]
				last := ""
				g.known.Scan(func(start string, gp gap) bool {
					require.Less(rt, start, gp.end)
					require.True(rt, last == "" || last < start, "%q does not end before %q", last, start)
					last = gp.end
					for key := range now {
						require.False(rt, key >= start && key < gp.end, "%q is in [%q, %q)", key, start, gp.end)
					}
					return true
				})
			},
			"view": func(rt *rapid.T) {
				next := maps.Clone(states[len(states)-1])
				for range rapid.IntRange(1, 4).Draw(rt, "changes") {
					c := change{key: keys.Draw(rt, "key"), put: rapid.Bool().Draw(rt, "put")}
					if next[c.key] = c.put; !c.put {
						delete(next, c.key)
					}
					g.change(uint64(len(states)), c)
				}
				states = append(states, next)
			},
			"learn": func(rt *rapid.T) {
				seq := max(0, len(states)-1-rapid.IntRange(0, 3).Draw(rt, "age"))
				start, end := keys.Draw(rt, "start"), keys.Draw(rt, "end")
				for key := range states[seq] {
					if key >= start && key < end {
						end = key
					}
				}
				g.learn(uint64(seq), start, end)
			},
		})
	})
}

// TestGapsForgetOldPuts: what was learned from a view so old that the puts since are
// no longer known is not believed.
func TestGapsForgetOldPuts(t *testing.T) {
	var g gaps
	g.change(1, change{key: "b", put: true})
	for i := range maxPuts {
		g.change(2, change{key: fmt.Sprint("z", i), put: true})
	}
	g.learn(0, "a", "c")
	require.Zero(t, g.known.Len())
	g.learn(1, "c", "d")
	require.Equal(t, "d", g.skip("c"))
}

// TestGapsAreBounded: the number of gaps does not grow with the keys of a
// queue that fills, nor without bound.
func TestGapsAreBounded(t *testing.T) {
	var g gaps
	g.learn(0, "due/", "due0")
	for i := range 1000 {
		g.change(1, change{key: fmt.Sprintf("due/%04d", i), put: true})
	}
	require.Equal(t, 2, g.known.Len())
	require.Equal(t, "due/0000", g.skip("due/"))
	for i := range 1000 {
		g.change(2, change{key: fmt.Sprintf("due/%04d", i)})
	}
	require.Equal(t, "due/0000\x00", g.skip("due/"))
	g.learn(2, g.skip("due/"), "due/0999")
	require.Equal(t, "due/0999", g.skip("due/"))
	g.change(3, change{key: "due/0999"})
	require.Equal(t, "due0", g.skip("due/"), "joined with what lies behind the last put")
	require.Equal(t, 1, g.known.Len())

	for i := range 3 * maxGaps {
		start := fmt.Sprintf("%06d", i)
		g.learn(3, start, start+"\x00")
	}
	require.LessOrEqual(t, g.known.Len(), maxGaps)
}

// TestFrontOfAQueue: once it was read, the front of a queue is found without
// stepping over what was resolved there, whatever happens behind and before it.
func TestFrontOfAQueue(t *testing.T) {
	const markers = 3000
	s := openMem(t, vfs.NewCrashableMem(), Options{})
	write := func(from, to int, op func(i int) metastore.Op) {
		for ; from < to; from += 1000 {
			var b metastore.Batch
			for i := from; i < min(from+1000, to); i++ {
				b.Ops = append(b.Ops, op(i))
			}
			_, err := s.Commit(t.Context(), b)
			require.NoError(t, err)
		}
	}
	arm := func(i int) metastore.Op { return metastore.Put(fmt.Sprintf("due/%06d", i), []byte("m")) }
	resolve := func(i int) metastore.Op { return metastore.Delete(fmt.Sprintf("due/%06d", i)) }
	steps := func(want string) int {
		t.Helper()
		due := metastore.Prefix("due/")
		v, from, err := s.views.acquire(nil, due)
		require.NoError(t, err)
		defer s.views.release(v)
		c, err := s.newCursor(v)
		require.NoError(t, err)
		defer c.close()
		if found := c.seek(due, from[0]); want == "" {
			require.False(t, found)
			return c.steps()
		}
		rec, err := c.record()
		require.NoError(t, err)
		require.Equal(t, want, rec.Key)
		return c.steps()
	}

	write(0, markers+100, arm)
	write(0, markers, resolve)
	require.Greater(t, steps("due/003000"), markers/2, "the first read steps over them")
	require.Less(t, steps("due/003000"), learnSteps)

	// Work goes on at the front and far behind.
	for i := range 50 {
		write(markers+i, markers+i+1, resolve)
		write(2*markers+i, 2*markers+i+1, arm)
		require.Less(t, steps(fmt.Sprintf("due/%06d", markers+i+1)), learnSteps+1)
	}

	// A marker armed before the front is found at once, and leaves no trace.
	write(17, 18, arm)
	require.Less(t, steps("due/000017"), learnSteps)
	write(17, 18, resolve)
	require.Less(t, steps("due/003050"), learnSteps)

	// An empty queue.
	write(markers+50, markers+100, resolve)
	write(2*markers, 2*markers+50, resolve)
	steps("")
	require.Less(t, steps(""), learnSteps)
}

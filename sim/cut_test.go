package sim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

// four puts four objects.
func four(ctx context.Context, inc *sim.Incarnation) (keys []string) {
	for i := range 4 {
		key := fmt.Sprintf("o/%d", i)
		_ = inc.Bucket().Put(ctx, key, []byte("b"), inTime(inc))
		keys = append(keys, key)
	}
	return keys
}

func left(w *sim.World) (keys []string) {
	w.BucketView().Scan("o/", func(key string, _ []byte) bool { keys = append(keys, key); return true })
	return keys
}

// A delete of several keys can be cut in the middle, and then half of them are gone.
func TestCutInTheMiddleOfADelete(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		for side, want := range map[sim.Side]int{sim.Before: 4, sim.Middle: 2, sim.After: 0} {
			w := newWorld(t, sim.Config{Embedded: embedded})
			w.KillAt(sim.Kill{Step: 5, Side: side})
			inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) { _ = inc.Bucket().Delete(ctx, four(ctx, inc)) })
			idle(t, w)
			require.True(t, inc.Dead(), side)
			require.Len(t, left(w), want, side)
		}
	}
	// Of one key there is no middle.
	w := newWorld(t, sim.Config{})
	w.KillAt(sim.Kill{Step: 1, Side: sim.Middle})
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) { _ = inc.Bucket().Delete(ctx, []string{"o/0"}) })
	idle(t, w)
	require.Len(t, w.Planned(), 1)
}

// A process that is killed at any moment may leave any part of a delete done.
func TestDeathTearsADelete(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		remains := map[int]int{}
		for seed := range uint64(60) {
			w := newWorld(t, sim.Config{Seed: seed, Embedded: embedded, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Second}}})
			inc := w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) { _ = inc.Bucket().Delete(ctx, four(ctx, inc)) })
			w.RunFor(8500 * time.Millisecond)
			inc.Kill()
			idle(t, w)
			remains[len(left(w))]++
		}
		for n := range 5 {
			require.NotZero(t, remains[n], "%d of 4 remain, embedded=%v: %v", n, embedded, remains)
		}
	}
}

// What becomes of the other calls in the air is a matter of the side, not of chance.
func TestOthersAtACut(t *testing.T) {
	type fate struct{ own, others bool }
	for _, embedded := range []bool{false, true} {
		for side, want := range map[sim.Side]fate{
			sim.Before: {false, false}, sim.BeforeOthers: {false, true}, sim.After: {true, true}, sim.AfterAlone: {true, false},
		} {
			for seed := range uint64(8) {
				w := newWorld(t, sim.Config{Seed: seed, Embedded: embedded, Classes: true, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Second}}})
				w.KillAt(sim.Kill{Step: 4, Side: side})
				w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
					for i := range 2 {
						inc.Go("put", func(ctx context.Context) { _ = inc.Bucket().Put(ctx, fmt.Sprint("o/", i), nil, inTime(inc)) })
					}
					_ = inc.Clock().Sleep(ctx, time.Millisecond)
					_, _ = inc.Store().Commit(ctx, put("k", "v"))
				})
				idle(t, w)
				require.Empty(t, w.Planned(), side)
				require.Equal(t, want.own, w.StoreView().Get("k").Exists(), side)
				n := 0
				if want.others {
					n = 2
				}
				require.Len(t, left(w), n, side)
			}
		}
	}
}

// The cuts of a step are told apart where they can differ.
func TestClassesOfConcurrentCalls(t *testing.T) {
	w := newWorld(t, sim.Config{Classes: true, Faults: sim.Faults{BucketLatency: sim.Latency{Base: time.Second}}})
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		inc.Go("put", func(ctx context.Context) {
			_ = inc.Bucket().Put(ctx, "o/9", nil, objstore.PutOptions{NotAfter: inTime(inc).NotAfter})
		})
		_ = inc.Clock().Sleep(ctx, time.Millisecond)
		_, _ = inc.Store().Commit(ctx, put("k", "v"))
		_ = inc.Clock().Sleep(ctx, time.Minute)
		_ = inc.Bucket().Delete(ctx, []string{"o/1", "o/2"})
	})
	idle(t, w)
	of := func(op sim.Op) (sides []sim.Side) {
		for _, c := range w.Classes() {
			if c.Op == op {
				sides = append(sides, c.Side)
			}
		}
		slices.Sort(sides)
		return sides
	}
	require.Equal(t, []sim.Side{sim.Before, sim.After, sim.BeforeOthers, sim.AfterAlone}, of(sim.OpCommit))
	require.Equal(t, []sim.Side{sim.Before, sim.After, sim.Middle}, of(sim.OpBucketDelete))
	require.Equal(t, []sim.Side{sim.Before, sim.After}, of(sim.OpBucketPut))
}

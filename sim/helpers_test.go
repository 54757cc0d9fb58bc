package sim_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

func newWorld(t testing.TB, cfg sim.Config) *sim.World {
	w := sim.New(cfg)
	t.Cleanup(w.Close)
	return w
}

// idle runs the world until nothing is left to happen.
func idle(t testing.TB, w *sim.World) {
	t.Helper()
	res := w.RunUntilIdle(1000 * time.Hour)
	if res.Finding != nil {
		t.Fatal(res.Finding.Report())
	}
	require.Equal(t, sim.Reached, res.Reason)
}

func put(key, value string) metastore.Batch {
	return metastore.Batch{Ops: []metastore.Op{metastore.Put(key, []byte(value))}}
}

// inTime are the options of a put that has an hour.
func inTime(inc *sim.Incarnation) objstore.PutOptions {
	return objstore.PutOptions{IfAbsent: true, NotAfter: inc.Clock().Now().Add(time.Hour)}
}

// everyFault is a world at its worst.
func everyFault() sim.Faults {
	lat := sim.Latency{Base: 100 * time.Microsecond, Jitter: 3 * time.Millisecond, Tail: 6}
	return sim.Faults{
		StoreLatency: lat, BucketLatency: lat, NetLatency: lat,
		StoreUnavailable: 0.1, CommitUnavailable: 0.03, DeadLate: 1, CommitUnknownNoEffect: 0.03, CommitUnknownEffect: 0.03, CommitUnknownLate: 0.03,
		CommitLateMax: 5 * time.Second, CommitSlow: 0.2, CommitSlowMax: 500 * time.Millisecond, ScanShort: 0.2,
		SessionLate: 0.2, SessionEarly: 0.1, SessionLateMax: 10 * time.Second,
		BucketThrottle: 0.03, BucketReadError: 0.03, PutUnknownNoEffect: 0.03, PutUnknownEffect: 0.03, PutUnknownLate: 0.05,
		PutLateMax: time.Minute, DeleteUnknown: 0.05, DeletePartial: 0.05, ListLag: time.Second,
		CorruptRead: 0.05, TruncateRead: 0.05, NetLost: 0.05,
	}
}

// busy makes a process whose tasks use everything that an incarnation has.
func busy(ctx context.Context, inc *sim.Incarnation) {
	clk, st, b := inc.Clock(), inc.Store(), inc.Bucket()
	sess, err := st.OpenSession(ctx, 5*time.Second)
	for err != nil {
		_ = clk.Sleep(ctx, time.Second)
		sess, err = st.OpenSession(ctx, 5*time.Second)
	}
	clk.Go(ctx, "keep-alive", func(ctx context.Context) {
		for sess.KeepAlive(ctx) == nil && clk.Sleep(ctx, time.Second) == nil {
			_, _ = st.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.PutUnder(sess.ID(), "cluster/"+inc.Node().Name(), nil)}})
		}
	})
	for i := range 4 {
		clk.Go(ctx, fmt.Sprint("worker-", i), func(ctx context.Context) {
			for ctx.Err() == nil {
				one, cancel := clk.WithTimeout(ctx, time.Duration(1+clk.Rand()%20)*time.Millisecond)
				key := fmt.Sprintf("k/%d", clk.Rand()%8)
				recs, err := st.Get(one, key, "head")
				if err == nil {
					_, _ = st.Commit(one, metastore.Batch{
						Conds: []metastore.Cond{metastore.At(key, recs[0].Version)},
						Ops:   []metastore.Op{metastore.Put(key, []byte(key)), metastore.Delete("head")},
					})
				}
				cancel()
				page, _ := st.Scan(ctx, metastore.Prefix("k/"), 4)
				if n := len(page.Records); page.More {
					_, _ = st.Scan(ctx, metastore.Range{Start: page.Records[n-1].Key + "\x00", End: metastore.PrefixEnd("k/")}, 4)
				}
				object := fmt.Sprintf("slot/%d", clk.Rand()%8)
				_ = b.Put(ctx, object, []byte(fmt.Sprint(len(page.Records))), inTime(inc))
				_, _ = b.Get(ctx, object, 0, -1)
				_, _ = b.List(ctx, "slot/", "", 3)
				_ = b.Delete(ctx, []string{object, "slot/9"})
				_ = clk.Sleep(ctx, time.Duration(clk.Rand()%uint64(50*time.Millisecond)))
			}
		})
	}
}

// chaos is a run in which everything happens, and its hash.
func chaos(t testing.TB, cfg sim.Config) *sim.World {
	cfg.Faults = everyFault()
	w := newWorld(t, cfg)
	names := []string{"a", "b", "c"}
	if cfg.Embedded {
		names = names[:1]
	}
	for i, name := range names {
		n := w.Node(name)
		n.SetClock(time.Duration(i)*time.Second, i*100)
		n.Start(busy)
	}
	w.OnKill(func(inc *sim.Incarnation) { inc.Node().Start(busy) })
	client := w.Client("client")
	client.Go(func(ctx context.Context) {
		for {
			n := w.Node(names[client.Rand.N(len(names))])
			if inc := n.Current(); inc != nil {
				_, _ = sim.Call(ctx, client, inc, "read", func(ctx context.Context) error {
					_, err := inc.Store().Get(ctx, "k/1")
					return err
				})
			}
			_ = client.Clock().Sleep(ctx, 10*time.Millisecond)
		}
	})
	w.Go("nemesis", func(ctx context.Context) {
		topo := w.Topology()
		for {
			_ = w.HarnessClock().Sleep(ctx, topo.Between(0, 3*time.Second))
			inc := w.Node(names[topo.N(len(names))]).Current()
			switch topo.N(4) {
			case 0:
				inc.Kill()
			case 1:
				w.KillAt(sim.Kill{Step: w.Steps() + 1 + topo.N(20), Side: sim.Side(topo.N(2)), Drawn: true})
			case 2:
				inc.Pause()
				_ = w.HarnessClock().Sleep(ctx, topo.Between(0, 10*time.Second))
				inc.Resume()
			default:
				inc.Node().Partition(topo.Chance(0.5), topo.Chance(0.5), topo.Chance(0.5))
				_ = w.HarnessClock().Sleep(ctx, topo.Between(0, 2*time.Second))
				inc.Node().Partition(false, false, false)
			}
		}
	})
	res := w.Run(func() bool { return w.Steps() >= 30_000 })
	if res.Finding != nil {
		t.Fatal(res.Finding.Report())
	}
	return w
}

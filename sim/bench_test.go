package sim_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/sim"
)

// steps runs tasks tasks of one node, each repeating body, until b.N steps are done.
func steps(b *testing.B, cfg sim.Config, tasks int, body func(ctx context.Context, inc *sim.Incarnation, task, round int)) {
	// A world is small, so that the usual percentage would have the collector run
	// all the time; whoever simulates in earnest sets it too.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	cfg.Seed = 1
	w := sim.New(cfg)
	defer w.Close()
	w.Node("n").Start(func(ctx context.Context, inc *sim.Incarnation) {
		for i := range tasks {
			inc.Go("t", func(ctx context.Context) {
				for round := 0; ; round++ {
					body(ctx, inc, i, round)
				}
			})
		}
	})
	b.ReportAllocs()
	before := cpuTime(b)
	b.ResetTimer()
	w.Run(func() bool { return w.Steps() >= b.N })
	b.ReportMetric(float64(w.Steps())/(cpuTime(b)-before).Seconds(), "steps/cpu-s")
}

// cpuTime is what the process has used so far: on a machine with other work to do
// it says more than the time that passed.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkSleepSteps(b *testing.B) {
	for _, tasks := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			steps(b, sim.Config{}, tasks, func(ctx context.Context, inc *sim.Incarnation, task, round int) {
				_ = inc.Clock().Sleep(ctx, time.Duration(1+(task*7+round*13)%1000)*time.Microsecond)
			})
		})
	}
}

// storeStep is one step of a mix of calls: a commit of one condition and three
// operations on a queue of a few hundred markers, a point read, a peek.
func storeStep(ctx context.Context, inc *sim.Incarnation, task, round int, keys [][3]string) {
	k := keys[(task*31+round/3)%len(keys)]
	st := inc.Store()
	switch round % 3 {
	case 0:
		_, _ = st.Commit(ctx, metastore.Batch{
			Conds: []metastore.Cond{metastore.Exists("chain/a")},
			Ops: []metastore.Op{
				metastore.Put(k[0], value), metastore.Put(k[1], value), metastore.Delete(k[2]),
			},
		})
	case 1:
		_, _ = st.Get(ctx, k[0], k[1])
	default:
		_, _ = st.Peek(ctx, []metastore.Range{{Start: "due/", End: "due0"}})
	}
}

var value = make([]byte, 100)

func storeKeys() [][3]string {
	keys := make([][3]string, 300)
	for i := range keys {
		keys[i] = [3]string{
			fmt.Sprintf("due/denorm/%02x/%016x~star~00000001", i%64, i),
			fmt.Sprintf("head/%02x%014x", i%64, i),
			fmt.Sprintf("due/denorm/%02x/%016x~star~00000001", (i+7)%64, (i+7)%300),
		}
	}
	return keys
}

func BenchmarkStoreSteps(b *testing.B) {
	keys := storeKeys()
	for _, lat := range []bool{false, true} {
		cfg := sim.Config{}
		if lat {
			cfg.Faults.StoreLatency = sim.Latency{Base: 200 * time.Microsecond, Jitter: time.Millisecond, Tail: 3}
		}
		b.Run(fmt.Sprintf("latency=%v", lat), func(b *testing.B) {
			steps(b, cfg, 20, func(ctx context.Context, inc *sim.Incarnation, task, round int) {
				storeStep(ctx, inc, task, round, keys)
			})
		})
	}
}

func BenchmarkBucketSteps(b *testing.B) {
	body := make([]byte, 256)
	steps(b, sim.Config{Embedded: true}, 20, func(ctx context.Context, inc *sim.Incarnation, task, round int) {
		key := "slot/a/1/" + string(rune('a'+task))
		switch round % 3 {
		case 0:
			_ = inc.Bucket().Put(ctx, key, body, objstore.PutOptions{IfAbsent: true})
		case 1:
			_, _ = inc.Bucket().Get(ctx, key, 0, -1)
		default:
			_ = inc.Bucket().Delete(ctx, []string{key})
		}
	})
}

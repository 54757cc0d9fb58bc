package sim_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
)

func chaosHash(t *testing.T, seed uint64) string {
	shared := chaos(t, sim.Config{Seed: seed})
	embedded := chaos(t, sim.Config{Seed: seed, Embedded: true})
	return fmt.Sprintf("%016x %016x", shared.Hash(), embedded.Hash())
}

func TestRunsAreEqual(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := chaosHash(t, 7)
	require.Equal(t, first, chaosHash(t, 7), "one after the other")
	runtime.GOMAXPROCS(2)
	require.Equal(t, first, chaosHash(t, 7), "on two processors")
	require.NotEqual(t, first, chaosHash(t, 8), "another seed")
}

// TestProcessesAreEqual compares with another process, in which maps are hashed
// otherwise, another time zone holds, and there is one processor.
func TestProcessesAreEqual(t *testing.T) {
	const env = "SIM_PRINT_HASH"
	hash := chaosHash(t, 7)
	if os.Getenv(env) != "" {
		fmt.Println("hash:", hash)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcessesAreEqual$")
	cmd.Env = append(os.Environ(), env+"=1", "GOMAXPROCS=1", "TZ=Asia/Kathmandu")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "hash: "+hash)
}

// TestChaosMeetsEverything guards the test above: a fault that is never met
// could not have been seen to differ.
func TestChaosMeetsEverything(t *testing.T) {
	marks := sim.Marks{}
	for seed := uint64(7); seed < 13; seed++ {
		marks.Add(chaos(t, sim.Config{Seed: seed}).Marks())
	}
	for _, mark := range []string{
		"fault/store-unavailable", "fault/commit-unknown-no-effect", "fault/commit-unknown-effect", "fault/commit-unknown-late",
		"fault/commit-slow", "fault/scan-short", "fault/session-late", "fault/session-early", "fault/throttle", "fault/bucket-read-error",
		"fault/put-unknown-no-effect", "fault/put-unknown-effect", "fault/put-unknown-late", "fault/delete-unknown", "fault/delete-partial",
		"fault/commit-unavailable", "fault/session-answer-lost", "fault/dead-late", "fault/died-before-effect", "fault/reordered",
		"late/commit", "late/commit-of-the-dead", "late/commit-after-a-read", "late/put", "late/put-of-the-dead", "late/put-after-a-read",
		"store/session-ended-of-the-living", "store/session-ended-with-the-dead", "store/scan-interleaved",
		"fault/list-lag", "fault/corrupt-read", "fault/truncate-read", "fault/unreachable", "net/request-lost", "net/answer-lost",
	} {
		require.NotZero(t, marks[mark], mark)
	}
}

// TestHashCoversValues: what is written is part of the run, not only its keys.
func TestHashCoversValues(t *testing.T) {
	hash := func(value string) uint64 {
		l := newLab(t, sim.Config{})
		l.do(t, 1, func(ctx ctxt, _ int) { _, _ = l.inc.Store().Commit(ctx, put("k", value)) })
		return l.w.Hash()
	}
	require.Equal(t, hash("a"), hash("a"))
	require.NotEqual(t, hash("a"), hash("b"))
}

// TestStreamsAreIndependent: draws for one concern do not shift another's.
func TestStreamsAreIndependent(t *testing.T) {
	a, b := sim.New(sim.Config{Seed: 3}), sim.New(sim.Config{Seed: 3})
	defer a.Close()
	defer b.Close()
	a.Workload().Uint64()
	require.Equal(t, a.Topology().Uint64(), b.Topology().Uint64())
	require.NotEqual(t, a.Workload().Uint64(), b.Workload().Uint64())
}

// TestMemoryIsFlat: a long run with many deaths keeps nothing of what is over.
func TestMemoryIsFlat(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 5, Faults: everyFault(), RingSize: 64})
	w.OnKill(func(inc *sim.Incarnation) { inc.Node().Start(busy) })
	w.Node("a").Start(busy)
	w.Node("b").Start(busy)
	heap := func(steps int) (bytes uint64, coroutines int) {
		for to := w.Steps() + steps; w.Steps() < to; {
			w.RunFor(200 * time.Millisecond)
			w.Node("a").Current().Kill()
		}
		require.Nil(t, w.Found())
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, w.Coroutines()
	}
	before, _ := heap(20_000)
	after, coroutines := heap(60_000)
	require.Less(t, after, before+1<<20)
	require.Less(t, coroutines, 64, "coroutines are used again")
}

func TestNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	w := sim.New(sim.Config{Seed: 9, Faults: everyFault(), Watchdog: time.Hour})
	w.OnStepEnd(func() {
		n := runtime.NumGoroutine()
		// What an earlier test left running may end meanwhile.
		before = min(before, n-w.Coroutines())
		if n > before+w.Coroutines() {
			w.Finding("goroutine", "", fmt.Sprintf("%d goroutines, %d expected", n, before+w.Coroutines()))
		}
	})
	w.OnKill(func(inc *sim.Incarnation) { inc.Node().Start(busy) })
	w.Node("a").Start(busy)
	for range 20 {
		res := w.RunFor(100 * time.Millisecond)
		require.Nil(t, res.Finding)
		w.Node("a").Current().Kill()
	}
	require.Greater(t, w.Steps(), 500)
	w.Close()
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "a closed world leaves nothing")
}

func TestTraceOfOneKey(t *testing.T) {
	l := newLab(t, sim.Config{Embedded: true})
	var lines int
	l.do(t, 1, func(ctx ctxt, _ int) {
		_, _ = l.inc.Store().Commit(ctx, put("ref/settled!x/1", "v"))
		_ = l.inc.Bucket().Put(ctx, "settled/x", nil, inTime(l.inc))
		_ = l.inc.Bucket().Put(ctx, "settled/y", nil, inTime(l.inc))
	})
	for _, e := range l.w.TraceOf(0, func(e *sim.Event) bool { return e.Touches("settled/x") }) {
		require.NotContains(t, e.String(), "settled/y")
		lines++
	}
	require.Equal(t, 4, lines, "issue and effect of two calls")
	require.True(t, strings.Contains(l.w.Trace(0)[0].String(), "up"))
}

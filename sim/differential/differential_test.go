package differential

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// TestMain bounds the test to a few seconds, unless -rapid.checks asks for more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// drawSettings draws the node, down to its legal minimum.
func drawSettings(t *rapid.T) settings {
	ms := func(name string, lo, hi int) time.Duration {
		return time.Duration(rapid.IntRange(lo, hi).Draw(t, name)) * time.Millisecond
	}
	s := settings{
		timing:    catalog.DefaultTiming(true),
		seed:      rapid.Uint64().Draw(t, "seed"),
		maxOps:    rapid.SampledFrom([]int{catalog.LeastOps, 128, 1024}).Draw(t, "ops"),
		window:    rapid.IntRange(1, 4).Draw(t, "window"),
		inline:    rapid.SampledFrom([]int{1, 500, 1 << 20}).Draw(t, "inline"),
		objectMin: rapid.SampledFrom([]int64{1, 1000, 1 << 20}).Draw(t, "object"),
		unsynced:  rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "unsynced"),
	}
	t2 := &s.timing
	t2.SettleAgeCap, t2.SettleRecheck = ms("cap", 0, 1000), 5*time.Second
	t2.ReapGrace, t2.TrimGrace, t2.RetireGrace = ms("reap", 1, 1000), ms("trim", 1, 1000), ms("retire", 1, 1000)
	t2.JobDeadline = 10 * time.Second
	t2.OrphanGrace = t2.JobDeadline + ms("orphan", 1, 5000)
	lat := sim.Latency{Base: 100 * time.Microsecond, Jitter: 2 * time.Millisecond, Tail: 2}
	s.faults = sim.Faults{StoreLatency: lat, BucketLatency: lat}
	if rapid.Bool().Draw(t, "faults") {
		f := &s.faults
		f.StoreUnavailable, f.CommitUnavailable, f.CommitUnknownNoEffect, f.CommitUnknownEffect = 0.02, 0.02, 0.02, 0.02
		f.ScanShort, f.BucketThrottle, f.BucketReadError, f.DeletePartial = 0.2, 0.02, 0.02, 0.1
	}
	return s
}

// TestSameLogicalState plays one history on the simulated dependencies and on real ones.
func TestSameLogicalState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := drawSettings(rt)
		history := rapid.SliceOfN(actions(), 5, 40).Draw(rt, "history")
		// However few are drawn: each process crashes at least once.
		history = append(history, action{verb: crash, steps: rapid.IntRange(1, 100).Draw(rt, "last steps")}, action{verb: tick, duration: 30 * time.Second})
		dir, err := os.MkdirTemp(t.TempDir(), "bucket")
		require.NoError(rt, err)
		real := &genuine{fs: vfs.NewCrashableMem(), dir: dir, maxOps: cfg.maxOps, unsynced: cfg.unsynced, rng: rand.New(rand.NewPCG(cfg.seed, 1))}
		one := newSide(cfg, cfg.faults, simulated{})
		defer one.w.Close()
		other := newSide(cfg, sim.Faults{}, real)
		defer func() {
			other.w.Close()
			require.NoError(rt, real.ended(true))
			require.NoError(rt, os.RemoveAll(dir))
		}()
		m, lives := model{}, map[string]int{}
		for _, a := range history {
			if (a.verb == create) == (m[a.stream] != nil) && a.verb != tick && a.verb != crash && a.verb != reopen {
				continue // nothing to do it to, or it is there
			}
			for _, s := range []*side{one, other} {
				s.play(a, m)
				requireHeld(rt, s, "%s", a)
			}
			m.apply(a, lives)
		}
		finish(rt, m, one, "the simulated dependencies")
		finish(rt, m, other, "Pebble and a directory")
		require.NotZero(rt, real.crashes, "no process has crashed: nothing was tried")
	})
}

// apply does an action to the model.
func (m model) apply(a action, lives map[string]int) {
	s := m[a.stream]
	switch a.verb {
	case create:
		m[a.stream] = &modelled{policy: a.policy, life: lives[a.stream]}
	case add:
		s.append(payloads(a, s))
	case trim:
		s.first = max(s.first, uint64(len(s.records)*a.percent/100))
	case policy:
		s.policy = a.policy
		s.expire()
	case remove:
		lives[a.stream]++
		delete(m, a.stream)
	}
}

// finish compares what a side holds with the model, has it verified, and then deletes every stream: nothing may be left.
func finish(t *rapid.T, m model, s *side, what string) {
	s.w.StopFaults()
	s.w.DropKills()
	names := slices.Sorted(maps.Keys(m))
	state := s.state(names)
	requireHeld(t, s, "reading back from %s", what)
	require.Equal(t, m.state(), state, "the logical state on %s", what)
	rep := s.verify()
	requireHeld(t, s, "verifying %s", what)
	require.Zero(t, rep.Amiss, "%s: %v", what, rep.Findings)
	for _, name := range names {
		s.play(action{verb: remove, stream: name}, m)
	}
	left := s.left()
	requireHeld(t, s, "deleting all from %s", what)
	require.Empty(t, left, "what is left of deleted streams on %s", what)
}

func requireHeld(t *rapid.T, s *side, format string, a ...any) {
	if f := s.w.Found(); f != nil {
		t.Fatalf(format+"\n%s", append(a, f.Report())...)
	}
}

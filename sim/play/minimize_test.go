package play

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
)

// planted breaks an invariant of its own: no settled object may be put once a node was killed.
func planted(w *sim.World) {
	killed := false
	w.OnKill(func(inc *sim.Incarnation) { killed = killed || !inc.Exited() })
	w.OnBucket(func(e *sim.BucketEffect) {
		if killed && !e.Delete && strings.HasPrefix(e.Key, "settled/") {
			w.Finding("planted", e.Key, "a settled object after a kill")
		}
	})
}

// plantedSeed is the first seed that fails by the planted bug.
func plantedSeed(t *testing.T) *Saved {
	t.Helper()
	for seed := uint64(1); seed < 50; seed++ {
		if s, o := SaveSeed(seed, Options{Attach: planted}); o.Finding != nil {
			return s
		}
	}
	t.Fatal("no seed meets the planted bug")
	return nil
}

// What is left of a failing run is smaller, fails by the same invariant, and plays again to the
// same hash; the kill is still there, since nothing breaks without it.
func TestMinimize(t *testing.T) {
	s := plantedSeed(t)
	m, err := Minimize(context.Background(), s, MinimizeOptions{Parallel: 2, Schedules: 2, Attach: planted})
	require.NoError(t, err)
	require.Equal(t, "planted", m.Outcome.Finding.Invariant)
	require.Less(t, m.Outcome.Steps, s.Steps)
	require.Regexp(t, "chaos/(kill|slept|leave)", strings.Join(m.Chance, "\n"))

	was, is := s.Plan.size(), m.Saved.Plan.size()
	require.Less(t, is.faults, was.faults)
	require.Less(t, is.operations, was.operations)
	require.LessOrEqual(t, is.nodes, was.nodes)
	require.Len(t, m.Saved.Plan.writers, 1)
	require.Len(t, m.Saved.Plan.streams, 1)
	require.Equal(t, is.faults, len(m.Saved.Plan.faultsOn()))
	require.Regexp(t, "(?m)^  (fault|sleep) ", m.Remains)

	r, err := reread(t, m.Saved).Play(Options{Attach: planted})
	require.NoError(t, err)
	require.True(t, r.Same)
	require.Equal(t, m.Outcome.Hash, r.Hash)
	require.Equal(t, m.Outcome.Finding.Error(), r.Finding.Error())

	r, err = reread(t, m.Saved).Play(Options{})
	require.NoError(t, err)
	require.Nil(t, r.Finding, "the program itself is not at fault")
}

func TestMinimizeRefuses(t *testing.T) {
	held, _ := SaveSeed(3, Options{})
	_, err := Minimize(context.Background(), held, MinimizeOptions{})
	require.ErrorContains(t, err, "the run holds")
	scenario, _, err := SaveScenario(small+"expect next s 3\n", "small.nova", 0, nil, Options{})
	require.NoError(t, err)
	_, err = Minimize(context.Background(), scenario, MinimizeOptions{})
	require.ErrorContains(t, err, "run of the scenario")
}

// Where there is no time, nothing is lost: what is given back is the run itself.
func TestMinimizeWithoutTime(t *testing.T) {
	s := plantedSeed(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m, err := Minimize(ctx, s, MinimizeOptions{Attach: planted})
	require.NoError(t, err)
	require.Equal(t, s.Hash, m.Saved.Hash)
	require.Equal(t, m.From, m.To)
}

// Each reduction makes a plan that is no larger, and that can be played.
func TestReductionsAreSound(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		p := draw(seed)
		was := p.size()
		for _, r := range p.reductions() {
			q := p.clone()
			r.do(q)
			if !q.sound() {
				continue
			}
			is := q.size()
			require.LessOrEqual(t, is.faults, was.faults, r.what)
			require.LessOrEqual(t, is.operations, was.operations, r.what)
			require.LessOrEqual(t, is.clients, was.clients, r.what)
			require.Len(t, q.skews, len(q.nodes), r.what)
			require.Len(t, q.drifts, len(q.nodes), r.what)
			for i := range q.writers {
				require.NotEmpty(t, q.writers[i].streams, r.what)
			}
		}
		require.Equal(t, was, p.size(), "a reduction is of the copy")
	}
}

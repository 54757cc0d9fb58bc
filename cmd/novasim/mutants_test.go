package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim/mutant"
)

// laboratory is a tree of mutants whose programs are told what they do: which runs break, and what.
type laboratory struct {
	root  string
	mu    sync.Mutex
	fails map[string]map[string]string // mutant, arguments of a run, invariant
	runs  []string
}

func newLaboratory(t *testing.T, mutants map[string]string) *laboratory {
	l := &laboratory{root: t.TempDir(), fails: map[string]map[string]string{}}
	for name, header := range mutants {
		l.write(t, filepath.Join(mutant.Dir, name+".patch"), header+"\n\n--- a/x.go\n+++ b/x.go\n")
	}
	l.write(t, "testdata/scenarios/guard.nova", small)
	return l
}

func (l *laboratory) write(t *testing.T, name, text string) {
	path := filepath.Join(l.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// breaks lets the runs of a mutant's program whose arguments begin so break an invariant.
func (l *laboratory) breaks(name, args, invariant string) {
	if l.fails[name] == nil {
		l.fails[name] = map[string]string{}
	}
	l.fails[name][args] = invariant
}

func (l *laboratory) run(_ context.Context, program string, args ...string) ([]byte, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	command := strings.Join(args, " ")
	l.runs = append(l.runs, program+": "+command)
	for prefix, invariant := range l.fails[program] {
		if !strings.HasPrefix(command, prefix+" ") {
			continue
		}
		if invariant == "" {
			return []byte("it panicked"), exitFailed, nil
		}
		replay := "novasim -scenario testdata/scenarios/guard.nova -seed 0"
		first, second, several := strings.Cut(invariant, " ")
		switch {
		case several:
			return fmt.Appendf(nil, `{"invariant":%q,"broken":2,"replay":%q,"scenarios":[{"invariant":%q,"replay":%q},{"replay":""},{"invariant":%q,"replay":"novasim -scenario testdata/scenarios/second.nova"}]}`,
				first, replay, first, replay, second), exitBroken, nil
		case strings.Contains(command, "-seeds"):
			return fmt.Appendf(nil, `{"seeds":7,"broken":[{"invariant":%q}],"replay":"novasim -seed 7"}`, invariant), exitBroken, nil
		case strings.HasPrefix(command, "-seed"):
			replay = "novasim " + prefix
		case strings.Contains(command, "-cut"):
			return fmt.Appendf(nil, `{"invariant":%q,"broken":1,"cuts":9,"replay":"%s -cut 5:after"}`, invariant, replay), exitBroken, nil
		}
		return fmt.Appendf(nil, `{"invariant":%q,"replay":%q}`, invariant, replay), exitBroken, nil
	}
	return []byte(`{"invariant":"","broken":[]}`), exitHeld, nil
}

// hunt hunts the mutants of the laboratory.
func (l *laboratory) hunt(t *testing.T, f mutantFlags) (status int, rep huntReport, errOut string) {
	t.Helper()
	mutants, err := mutant.Load(l.root)
	require.NoError(t, err)
	h := &hunter{root: l.root, seeds: 150, quick: f.quick, run: l.run, remove: func(string) {},
		build: func(_ context.Context, m *mutant.Mutant) (string, error) {
			if m == nil {
				return "control", nil
			}
			if strings.HasPrefix(m.Name, "wrong") {
				return "", errors.New("it does not apply")
			}
			return m.Name, nil
		}}
	var out, e bytes.Buffer
	c := &command{flags: flags{parallel: 2, output: "json", mutantFlags: f}, out: &out, errOut: &e}
	status = c.huntAll(h, mutants, true)
	if out.Len() > 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), &rep))
	}
	return status, rep, e.String()
}

func (r *huntReport) of(name string) mutantReport {
	for _, m := range r.Mutants {
		if m.Mutant == name {
			return m
		}
	}
	return mutantReport{}
}

func TestMutantsCaught(t *testing.T) {
	l := newLaboratory(t, map[string]string{
		"by-seed":      "A bug.\nMust break: 1-watched or 2-no-dangling.",
		"by-scenario":  "A bug.\nMust break: 3-nothing-lost.",
		"by-second":    "A bug.\nMust break: 3-nothing-lost.",
		"by-late-seed": "A bug.\nMust break: 1-watched.",
		"by-cut":       "A bug.\nMust break: 9-cost, or any other.",
		"guarded":      "A bug.\nMust break: 1-watched.\nGuarded by: testdata/scenarios/guard.nova",
	})
	l.breaks("by-seed", "-seeds", "2-no-dangling")
	l.breaks("by-scenario", "-scenario", "3-nothing-lost")
	l.breaks("by-cut", "-cut all", "8-convergence")
	l.breaks("by-second", "-scenario testdata/scenarios -fail-fast=false", "expectation 3-nothing-lost")
	l.breaks("by-late-seed", "-seeds", "9-cost")
	l.breaks("by-late-seed", "-first 101 -seeds 50", "1-watched")
	l.breaks("guarded", "-seeds", "1-watched")
	l.breaks("guarded", "-cut all -scenario testdata/scenarios/guard.nova", "expectation")
	status, rep, errOut := l.hunt(t, mutantFlags{mutants: true, update: true})
	require.Equal(t, exitHeld, status, errOut)
	require.Equal(t, "held", rep.Verdict)
	require.Contains(t, l.runs[0], "control: -seeds 150 ", "it begins without a mutant")
	require.Contains(t, l.runs[1], "control: -cut all ")

	seed := rep.of("by-seed")
	require.Equal(t, caught, seed.Verdict)
	require.Equal(t, "2-no-dangling", seed.Invariant)
	require.Equal(t, 7, seed.Seeds)
	require.Equal(t, "novasim -seed 7", seed.Replay)
	require.Equal(t, "novasim -scenario testdata/scenarios/guard.nova -seed 0", rep.of("by-scenario").Replay)
	require.Equal(t, 9, rep.of("by-cut").Cuts)
	require.Equal(t, "novasim -scenario testdata/scenarios/second.nova", rep.of("by-second").Replay, "by what it must break")
	require.Equal(t, 107, rep.of("by-late-seed").Seeds)
	require.Equal(t, "expectation", rep.of("guarded").Guards[0].Invariant)
	require.Contains(t, strings.Join(l.runs, "\n"), "control: -seed 7 ", "what breaks holds without the mutant")

	// Where they were caught is known now, and enough.
	l.runs = nil
	for _, place := range []string{"-seed 7", "-scenario testdata/scenarios/guard.nova -seed 0"} {
		l.breaks("by-seed", place, "1-watched")
		l.breaks("guarded", place, "1-watched")
	}
	l.breaks("by-scenario", "-scenario testdata/scenarios/guard.nova", "3-nothing-lost")
	l.breaks("by-second", "-scenario testdata/scenarios/second.nova", "3-nothing-lost")
	l.breaks("by-late-seed", "-seed 7", "1-watched")
	l.breaks("by-cut", "-scenario testdata/scenarios/guard.nova -seed 0 -cut 5:after", "9-cost")
	status, rep, errOut = l.hunt(t, mutantFlags{mutants: true, quick: true})
	require.Equal(t, exitHeld, status, errOut)
	require.Len(t, rep.Mutants, 6)
	for _, run := range l.runs {
		require.True(t, strings.HasPrefix(run, "control: ") || !strings.Contains(run, "-seeds"), run)
	}

	// Where one is not caught any more it is searched, and that is told.
	delete(l.fails["by-seed"], "-seed 7")
	status, rep, errOut = l.hunt(t, mutantFlags{mutants: true, quick: true})
	require.Equal(t, exitHeld, status, errOut)
	require.Equal(t, "-seed 7: it is not caught there by now; searched", rep.of("by-seed").Note)
	require.Equal(t, 7, rep.of("by-seed").Seeds)
}

func TestMutantsThatAreNotCaught(t *testing.T) {
	l := newLaboratory(t, map[string]string{
		"survivor":  "A bug.\nMust break: 1-watched.",
		"misread":   "A bug.\nMust break: 1-watched.",
		"unguarded": "A bug.\nMust break: 1-watched.\nGuarded by: testdata/scenarios/guard.nova",
	})
	l.breaks("misread", "-seeds", "9-cost")
	l.breaks("unguarded", "-seeds", "1-watched")
	status, rep, _ := l.hunt(t, mutantFlags{mutants: true})
	require.Equal(t, exitBroken, status)
	require.Equal(t, "broken", rep.Verdict)
	require.Equal(t, []string{"misread", "survivor", "unguarded"}, rep.Survivors)
	require.Equal(t, survived, rep.of("survivor").Verdict)
	require.Equal(t, misread, rep.of("misread").Verdict)
	require.Equal(t, unguarded, rep.of("unguarded").Verdict)

	// What does not build, and a program that fails, are neither.
	l = newLaboratory(t, map[string]string{
		"wrong":  "A bug.\nMust break: 1-watched.",
		"broken": "A bug.\nMust break: 1-watched.",
	})
	l.breaks("broken", "-seeds", "")
	status, rep, _ = l.hunt(t, mutantFlags{mutants: true})
	require.Equal(t, exitFailed, status)
	require.Equal(t, []string{"broken", "wrong"}, rep.Failed)
	require.Equal(t, "it does not apply", rep.of("wrong").Error)
	require.Contains(t, rep.of("broken").Error, "it panicked")

	// Nothing is said of mutants where the control breaks, at first or where a mutant does.
	l = newLaboratory(t, map[string]string{"m": "A bug.\nMust break: 1-watched."})
	l.breaks("m", "-seeds", "1-watched")
	l.breaks("control", "-seed 7", "1-watched")
	status, rep, _ = l.hunt(t, mutantFlags{mutants: true})
	require.Equal(t, exitFailed, status)
	require.Contains(t, rep.of("m").Error, "without the mutant too")
	l.breaks("control", "-seeds", "1-watched")
	status, _, errOut := l.hunt(t, mutantFlags{mutants: true})
	require.Equal(t, exitBroken, status)
	require.Contains(t, errOut, "without any mutant 1-watched breaks")
}

// A cut where a mutant was caught once, of a step that the run of another program does not have, holds there.
func TestCutThatAnotherProgramHasNot(t *testing.T) {
	h := &hunter{run: func(context.Context, string, ...string) ([]byte, int, error) {
		return []byte("novasim: no kill strikes at 9:before: the run has 3 steps\n"), exitUsage, nil
	}}
	r, err := h.play(t.Context(), "program", "-cut", "9:before", "-scenario", "s.nova")
	require.NoError(t, err)
	require.True(t, r.holds())
}

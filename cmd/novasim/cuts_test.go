package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pair is a scenario of two nodes in which either could do all the work.
const pair = `world shared
timing put-horizon=2s session-ttl=1s max-clock-skew=100ms settle-age-cap=100ms settle-recheck=5s reap-grace=3s trim-grace=4s retire-grace=4s job-deadline=10s orphan-grace=20s
node a window=2
node b window=2
start a b
create s
append s records=2
converge
`

func TestCutKinds(t *testing.T) {
	path := script(t, small+"converge\n")
	v := object(t, exitHeld, "-cut", "sample:20", "-scenario", path)
	require.Equal(t, "the only node", v["mode"])
	sum := map[string]float64{}
	duties := map[string]bool{}
	for _, k := range v["kinds"].([]any) {
		k := k.(map[string]any)
		require.Equal(t, []string{"cuts", "duty", "kind", "of", "of_steps", "steps"}, fields(k))
		for _, n := range []string{"cuts", "of", "steps", "of_steps"} {
			sum[n] += k[n].(float64)
		}
		duties[k["duty"].(string)] = true
	}
	require.Equal(t, v["cuts"], sum["cuts"], "each cut is of one duty and kind")
	require.Equal(t, v["of"], sum["of"])
	require.Equal(t, v["steps"], sum["steps"])
	require.Equal(t, object(t, exitHeld, "-scenario", path)["steps"], sum["of_steps"], "and so is each step")
	require.Subset(t, slices.Collect(maps.Keys(duties)), []string{"boot", "star", "auditor", "calls", "settle", "denorm"})
}

func TestCutsOfADuty(t *testing.T) {
	path := script(t, small+"converge\n")
	all := object(t, exitHeld, "-cut", "sample:1", "-scenario", path)
	settle := object(t, exitHeld, "-cut", "duty=settle", "-scenario", path)
	require.Less(t, settle["of"], all["of"])
	require.Greater(t, settle["of"], 0.0)
	require.Equal(t, settle["of"], settle["cuts"])
	three := object(t, exitHeld, "-cut", "sample:3,duty=settle", "-scenario", path)
	require.Equal(t, 3.0, three["cuts"])
	require.Equal(t, settle["of"], three["of"])

	_, out, _ := novasim("-cut", "sample:3,duty=settle", "-scenario", path)
	require.Regexp(t, `3 of \d+ cuts, which stand for \d+ steps, of the only node`, out)
	require.Regexp(t, `(?m)^│ settle +│`, out)
}

// A second kill strikes in the recovery from the first, and here it makes a third chain. Which ones are
// drawn is a matter of the seed alone.
func TestCutPairs(t *testing.T) {
	text := strings.Replace(small, "retire-grace=1s", "retire-grace=60s", 1) + "append s records=1 times=6 after=100ms\n"
	v := object(t, exitHeld, "-cut", "pairs:6", "-scenario", script(t, text))
	require.Equal(t, 6.0, v["cuts"])
	require.Greater(t, v["of"], 6.0)

	path := script(t, text+"expect chains <=2\n")
	object(t, exitHeld, "-cut", "duty=calls", "-scenario", path)
	first := object(t, exitBroken, "-cut", "pairs:20,duty=calls", "-parallel", "2", "-scenario", path)
	require.Equal(t, "expectation", first["invariant"])
	require.Regexp(t, ` -cut \d+:(before|after)\+\d+:(before|after)$`, first["replay"])
	require.Equal(t, first["replay"], object(t, exitBroken, "-cut", "pairs:20,duty=calls", "-parallel", "1", "-scenario", path)["replay"])
	again := object(t, exitBroken, strings.Fields(first["replay"].(string))[1:]...)
	require.Equal(t, first["text"], again["text"])
}

// A kill that strikes nowhere is a wrong command, not a success.
func TestCutThatMisses(t *testing.T) {
	for _, more := range [][]string{nil, {"-save", filepath.Join(t.TempDir(), "s.json")}} {
		code, out, errOut := novasim(append([]string{"-cut", "99999999:before", "-scenario", script(t, small)}, more...)...)
		require.Equal(t, exitUsage, code)
		require.Empty(t, out)
		require.Regexp(t, `no kill strikes at 99999999:before: the run has \d+ steps`, errOut)
	}
}

// To kill one node while the other goes on, until that has taken over or at once, or all with it, are different worlds.
func TestCutNode(t *testing.T) {
	path := script(t, pair)
	cut := func(more ...string) map[string]any {
		return object(t, exitHeld, append([]string{"-cut", "sample:4", "-scenario", path}, more...)...)
	}
	here, away, all := cut(), cut("-cut-node", "b"), cut("-cut-node", "all")
	require.Equal(t, "one node, others go on", here["mode"])
	require.Equal(t, "one node, away until others took over", away["mode"])
	require.Equal(t, "all nodes at once", all["mode"])
	require.Less(t, away["of"], here["of"])
	require.Equal(t, here["of"], all["of"])
	hashes := map[any]bool{}
	for _, node := range []string{"", "b", "all"} {
		args := []string{"-cut", "90:after", "-scenario", path}
		if node != "" {
			args = append(args, "-cut-node", node)
		}
		hashes[object(t, exitHeld, args...)["hash"]] = true
	}
	require.Len(t, hashes, 3)
}

func TestCutsStopAtTheFirst(t *testing.T) {
	path := script(t, small+"expect chains 1\n")
	first := object(t, exitBroken, "-cut", "sample:50", "-parallel", "1", "-scenario", path)
	require.Equal(t, 1.0, first["broken"])
	require.Less(t, first["cuts"], 50.0)
	every := object(t, exitBroken, "-cut", "sample:50", "-fail-fast=false", "-scenario", path)
	require.Greater(t, every["broken"], 1.0)
	require.Equal(t, 50.0, every["cuts"])
	require.Equal(t, first["replay"], every["replay"])
}

func TestSeveralScenarios(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	a, b := write("a.nova", small), write("known/b.nova", pair)
	write("notes.txt", "not a scenario")

	v := object(t, exitHeld, "-scenario", dir)
	require.Equal(t, []string{"broken", "cuts", "invariant", "kinds", "mode", "of", "scenarios", "steps", "verdict", "wall_seconds"}, fields(v))
	both := v["scenarios"].([]any)
	require.Len(t, both, 2)
	require.Equal(t, a, both[0].(map[string]any)["scenario"])
	require.Equal(t, b, both[1].(map[string]any)["scenario"])
	require.Equal(t, object(t, exitHeld, "-scenario", a)["steps"].(float64)+object(t, exitHeld, "-scenario", b)["steps"].(float64), v["steps"])

	v = object(t, exitHeld, "-cut", "sample:3", "-scenario", b, "-scenario", filepath.Join(dir, "*.nova"), "-scenario", a)
	require.Equal(t, 6.0, v["cuts"], "each once")
	require.Equal(t, "the only node or one of several", v["mode"])
	_, out, _ := novasim("-cut", "sample:3", "-scenario", dir)
	require.Contains(t, out, "\n2 scenarios, all held: 6 of ")

	write("c.nova", small+"expect next s 3\n")
	v = object(t, exitBroken, "-scenario", dir)
	require.Equal(t, "expectation", v["invariant"])
	require.Contains(t, v["replay"], "c.nova")
	require.Len(t, v["scenarios"], 2, "it ends at the first that breaks")
	require.Len(t, object(t, exitBroken, "-fail-fast=false", "-scenario", dir)["scenarios"], 3)
	status, _, errOut := novasim("-cut", "3:after", "-scenario", dir)
	require.Equal(t, exitUsage, status)
	require.Contains(t, errOut, "is of one scenario; these are 3")
}

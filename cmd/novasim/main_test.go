package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// novasim runs the program in this process.
func novasim(args ...string) (status int, out, errOut string) {
	var o, e bytes.Buffer
	status = run(args, &o, &e)
	return status, o.String(), e.String()
}

// object runs the program with -output json and decodes its one object.
func object(t *testing.T, want int, args ...string) map[string]any {
	t.Helper()
	status, out, errOut := novasim(append(args, "-output", "json")...)
	require.Equal(t, want, status, errOut)
	require.Equal(t, 1, strings.Count(out, "\n"), "one line: %s", out)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	return v
}

func fields(v map[string]any) []string { return slices.Sorted(maps.Keys(v)) }

// script writes a scenario and returns its path.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.nova")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const small = `world embedded
timing settle-age-cap=100ms settle-recheck=5s reap-grace=1s trim-grace=1s retire-grace=1s job-deadline=20s orphan-grace=30s
node a window=2
start a
create s
append s records=2
`

const canary = "../../testdata/canary/expects-too-much.nova"

func TestSeed(t *testing.T) {
	v := object(t, exitHeld, "-seed", "42")
	require.Equal(t, []string{"faults", "hash", "invariant", "marks", "seed", "steps", "verdict", "virtual_seconds", "wall_seconds"}, fields(v))
	require.Equal(t, 42.0, v["seed"])
	require.Equal(t, "held", v["verdict"])
	require.Equal(t, "", v["invariant"])
	require.Regexp(t, `^[0-9a-f]{16}$`, v["hash"])
	require.Greater(t, v["steps"], 0.0)
	require.Greater(t, v["virtual_seconds"], 0.0)
	require.IsType(t, []any{}, v["faults"])
	require.NotEmpty(t, v["marks"])

	again := object(t, exitHeld, "-seed", "42", "-parallel", "1")
	require.Equal(t, v["hash"], again["hash"])
	require.Equal(t, v["marks"], again["marks"])
	require.NotEqual(t, v["hash"], object(t, exitHeld, "-seed", "43")["hash"])
	require.Equal(t, 0.0, object(t, exitHeld, "-seed", "0")["seed"], "0 is a seed as any other")

	status, out, _ := novasim("-seed", "42")
	require.Equal(t, exitHeld, status)
	require.Contains(t, out, "seed 42 held: ")
	require.Contains(t, out, "hash "+v["hash"].(string))
}

func TestSeeds(t *testing.T) {
	v := object(t, exitHeld, "-seeds", "3", "-first", "7", "-parallel", "2")
	require.Equal(t, []string{"broken", "marks", "seeds", "steps", "verdict", "virtual_seconds", "wall_seconds"}, fields(v))
	require.Equal(t, 3.0, v["seeds"])
	require.Equal(t, "held", v["verdict"])
	require.Empty(t, v["broken"])
	steps := 0.0
	for _, seed := range []string{"7", "8", "9"} {
		steps += object(t, exitHeld, "-seed", seed)["steps"].(float64)
	}
	require.Equal(t, steps, v["steps"], "-seeds runs the seeds from -first on")

	status, out, _ := novasim("-seeds", "2", "-parallel", "1")
	require.Equal(t, exitHeld, status)
	require.Regexp(t, `^2 seeds held: \d+ steps`, out)
	require.Contains(t, out, "auditor/settled", "the marks are listed")
}

// A sweep writes the hash of each seed, the same each time, and the seeds that fail, and goes on.
func TestSweepFiles(t *testing.T) {
	dir := t.TempDir()
	one, other, failures := filepath.Join(dir, "one"), filepath.Join(dir, "other"), filepath.Join(dir, "failures")
	v := object(t, exitHeld, "-seeds", "20", "-first", "30", "-steps", "200", "-twice", "-hashes", one, "-failures", failures)
	require.Equal(t, 20.0, v["seeds"])
	require.LessOrEqual(t, v["steps"], 20*200.0)
	object(t, exitHeld, "-seeds", "20", "-first", "30", "-steps", "200", "-parallel", "1", "-hashes", other)
	first, err := os.ReadFile(one)
	require.NoError(t, err)
	require.Regexp(t, `^30 [0-9a-f]{16} \d+\n31 `, string(first))
	require.Equal(t, 20, strings.Count(string(first), "\n"))
	second, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
	none, err := os.ReadFile(failures)
	require.NoError(t, err)
	require.Empty(t, none)

	s := &sweeping{c: &command{}, marks: sim.Marks{}}
	f, err := os.OpenFile(failures, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	s.done(&play.Outcome{Seed: 7, Finding: &sim.Finding{Invariant: "1-watched", Object: "o", Text: "a\nb"}}, f)
	s.done(&play.Outcome{Seed: 8}, f)
	written, err := os.ReadFile(failures)
	require.NoError(t, err)
	require.Equal(t, "novasim -seed 7\t1-watched\to\ta\n", string(written))

	status, _, errOut := novasim("-seeds", "1", "-hashes", filepath.Join(one, "no"))
	require.Equal(t, exitUsage, status)
	require.NotEmpty(t, errOut)
}

// A sweep that is interrupted tells what came of it, and that it is not all.
func TestSweepIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sweep := func(output string) (int, string) {
		var out bytes.Buffer
		c := &command{flags: flags{first: 1, seeds: 100, parallel: 1, output: output, stopAt: true}, out: &out, errOut: io.Discard}
		s := c.newSweep(ctx)
		s.play = func(seed uint64) play.Outcome {
			if seed == 3 {
				cancel()
			}
			return play.Outcome{Seed: seed, Steps: 7, Marks: sim.Marks{"a/b": 1}}
		}
		return s.run(), out.String()
	}
	code, out := sweep("text")
	require.Equal(t, exitBroken, code)
	require.Contains(t, out, "3 seeds held, interrupted: 21 steps")
	require.Contains(t, out, "3  a/b")
	code, out = sweep("json")
	require.Equal(t, exitBroken, code)
	require.Contains(t, out, `"interrupted":true`)
}

// A panic of the harness names its seed, is noted, and does not end the sweep.
func TestSweepSurvivesAPanic(t *testing.T) {
	failures := filepath.Join(t.TempDir(), "failures")
	var out bytes.Buffer
	c := &command{flags: flags{first: 1, seeds: 4, parallel: 1, output: "text", failures: failures}, out: &out, errOut: io.Discard}
	s := c.newSweep(t.Context())
	s.play = func(seed uint64) play.Outcome {
		if seed == 2 {
			panic("out of order")
		}
		return play.Outcome{Seed: seed}
	}
	require.Equal(t, exitFailed, s.run())
	require.Contains(t, out.String(), "4 seeds broken")
	require.Contains(t, out.String(), "replay: novasim -seed 2")
	require.Contains(t, out.String(), "TestSweepSurvivesAPanic", "the stack")
	written, err := os.ReadFile(failures)
	require.NoError(t, err)
	require.Equal(t, "novasim -seed 2\tharness\tseed 2\tthe simulator panicked: out of order\n", string(written))
}

func TestDuration(t *testing.T) {
	require.GreaterOrEqual(t, object(t, exitHeld, "-duration", "20ms", "-parallel", "1")["seeds"], 1.0)
	require.Equal(t, 1.0, object(t, exitHeld, "-seeds", "1", "-duration", "1h")["seeds"], "whichever ends first")
}

func TestScenario(t *testing.T) {
	path := script(t, small+"expect next s 2\n")
	v := object(t, exitHeld, "-scenario", path)
	require.Equal(t, "held", v["verdict"])
	require.Equal(t, 0.0, v["seed"])
	require.NotEqual(t, v["hash"], object(t, exitHeld, "-scenario", path, "-seed", "5")["hash"], "the seed is of the scheduling")
	_, out, _ := novasim("-scenario", path)
	require.Contains(t, out, path+" held: ")
}

func TestCuts(t *testing.T) {
	path := script(t, small)
	v := object(t, exitHeld, "-cut", "sample:9", "-scenario", path)
	require.Equal(t, []string{"broken", "cuts", "invariant", "kinds", "mode", "of", "scenario", "steps", "verdict", "wall_seconds"}, fields(v))
	require.Equal(t, path, v["scenario"])
	require.Equal(t, 9.0, v["cuts"])
	require.Greater(t, v["of"], 9.0)
	require.Equal(t, 0.0, v["broken"])

	all := object(t, exitHeld, "-cut", "all", "-scenario", path)
	require.Equal(t, v["of"], all["cuts"])
	require.Equal(t, v["of"], all["of"])
	require.Equal(t, object(t, exitHeld, "-scenario", path)["steps"], all["steps"], "all cuts stand for every step")

	one := object(t, exitHeld, "-cut", "5:after", "-scenario", path)
	require.Equal(t, "held", one["verdict"])
	require.NotEqual(t, one["hash"], object(t, exitHeld, "-cut", "5:before", "-scenario", path)["hash"])
}

// replayOf returns the arguments of the command that a report prints.
func replayOf(t *testing.T, out string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^replay: novasim (.*)$`).FindStringSubmatch(out)
	require.NotNil(t, m, out)
	return strings.Fields(m[1])
}

// finding returns the lines of a report that say what broke.
func finding(out string) []string {
	return regexp.MustCompile(`(?m)^(?:invariant|object|step) .*$`).FindAllString(out, -1)
}

// What must fail fails, says what and where, and the command that it prints finds the same.
func TestCanary(t *testing.T) {
	status, out, _ := novasim("-scenario", canary)
	require.Equal(t, exitBroken, status)
	require.Contains(t, out, "invariant  expectation\nobject     line 7\n")
	require.Contains(t, out, "expected next s to be 3, it is 2")
	require.Contains(t, out, "what happened last")
	status, again, _ := novasim(replayOf(t, out)...)
	require.Equal(t, exitBroken, status)
	require.Len(t, finding(out), 3)
	require.Equal(t, finding(out), finding(again))

	v := object(t, exitBroken, "-scenario", canary)
	require.Equal(t, "broken", v["verdict"])
	require.Equal(t, "expectation", v["invariant"])
	require.Contains(t, v["replay"], canary)

	// A scenario that does not hold uncut is reported, and not cut.
	v = object(t, exitBroken, "-cut", "all", "-scenario", canary)
	require.Equal(t, "expectation", v["invariant"])
	require.Equal(t, 0.0, v["cuts"])
	require.Equal(t, 1.0, v["broken"])
}

// A cut that breaks is named by the step and the side that replay it: here the kill makes a
// second chain, of which the script does not know.
func TestCutThatBreaks(t *testing.T) {
	path := script(t, small+"expect chains 1\n")
	status, out, _ := novasim("-cut", "all", "-parallel", "2", "-scenario", path)
	require.Equal(t, exitBroken, status)
	require.Contains(t, out, "invariant  expectation")
	status, again, _ := novasim(replayOf(t, out)...)
	require.Equal(t, exitBroken, status)
	require.Equal(t, finding(out), finding(again))
	v := object(t, exitBroken, "-cut", "all", "-scenario", path)
	require.Greater(t, v["broken"], 0.0)
	require.Regexp(t, ` -cut \d+:(before|after)$`, v["replay"])
}

func TestTrace(t *testing.T) {
	status, out, _ := novasim("-seed", "3", "-trace", "-")
	require.Equal(t, exitHeld, status)
	require.Greater(t, strings.Count(out, "\n"), 100)
	require.Contains(t, out, "commit")

	file := filepath.Join(t.TempDir(), "trace")
	v := object(t, exitHeld, "-seed", "3", "-trace", file)
	require.Equal(t, object(t, exitHeld, "-seed", "3")["hash"], v["hash"], "a trace changes nothing")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, string(written)), "the same events, in a file")

	status, _, errOut := novasim("-seed", "3", "-trace", filepath.Join(file, "no"))
	require.Equal(t, exitUsage, status)
	require.NotEmpty(t, errOut)
}

func TestUsage(t *testing.T) {
	path := script(t, small)
	for args, want := range map[string]string{
		"":                                       "nothing to run",
		"-first 5":                               "-first is where a sweep begins",
		"-first 5 -seed 3":                       "-first is where a sweep begins",
		"-mutants nowhere":                       `no mutant is called "nowhere"`,
		"-seed":                                  "flag needs an argument",
		"-nope":                                  "flag provided but not defined",
		"-seed x":                                "invalid value",
		"-seed -1":                               "invalid value",
		"-seed 1 -seeds 2":                       "give -first instead",
		"-seed 1 -duration 1s":                   "give -first instead",
		"-seeds -2":                              "must be above 0",
		"-seeds 0":                               "must be above 0",
		"-duration 0s":                           "must be above 0",
		"-cut-node b -scenario " + path:          `no scenario has a node "b"`,
		"-seeds 2 -parallel 0":                   "must be above 0",
		"-duration -1s":                          "must be above 0",
		"-seed 1 extra":                          `unexpected argument "extra"`,
		"-seed 1 -output xml":                    "text or json",
		"-seed 1 -trace - -output json":          "give the trace a file",
		"-seeds 2 -trace t":                      "-trace is of one run",
		"-seed 1 -cut all":                       "-cut needs a -scenario",
		"-scenario nowhere.nova":                 "nowhere.nova",
		"-scenario main.go":                      `main.go:1: no such statement`,
		"-seeds 2 -scenario " + path:             "give -seed instead",
		"-cut some -scenario " + path:            "-cut is all",
		"-cut sample:0 -scenario " + path:        "how many cuts?",
		"-cut pairs:x -scenario " + path:         "how many cuts?",
		"-cut duty=sweep -scenario " + path:      "the duties are teardown, settle, ",
		"-cut all,5:after -scenario " + path:     "-cut is all",
		"-cut all -cut-node b -scenario " + path: `no scenario has a node "b"`,
		"-cut duty=gc -scenario " + path:         "nothing was cut: no scenario has a step of duty gc",
		"-scenario *.nowhere":                    "matches nothing",
		"-scenario ../../docs":                   "holds no scenario",
		"-quick -seed 1":                         "belong to -mutants",
		"-mutants -seed 1":                       "-mutants takes no -seed",
		"-seed 1 -output markdown":               "text or json",
		"-cut x:before -scenario " + path:        "is no step",
		"-cut 3:beside -scenario " + path:        "-cut is all",
		"-cut all -trace t -scenario " + path:    "-trace is of one run",
		"-bench -seed 3":                         "-bench takes no",
		"-seed 3 -profile p":                     "-profile is of -bench",
		"-seed 3 -twice":                         "are of a sweep",
		"-seeds 3 -steps -1":                     "-steps must be above 0",
	} {
		status, out, errOut := novasim(strings.Fields(args)...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out, args)
		require.Contains(t, errOut, want, args)
		require.Regexp(t, "^novasim: ", errOut, args)
		if !strings.Contains(args, "main.go") { // what is no scenario is told in three lines
			require.Equal(t, 1, strings.Count(errOut, "\n"), "%s: one line: %s", args, errOut)
		}
	}
	status, out, errOut := novasim("-help")
	require.Equal(t, exitHeld, status)
	require.Empty(t, errOut)
	require.Contains(t, out, "-seeds N")
	require.Contains(t, out, "Exit status: ")
}

// When the harness itself is at fault nothing was shown, neither held nor broken.
func TestSimulatorFailed(t *testing.T) {
	path := script(t, "world embedded\nnode a~b\nstart a~b\ncreate s\n")
	status, _, _ := novasim("-scenario", path)
	require.Equal(t, exitFailed, status)
}

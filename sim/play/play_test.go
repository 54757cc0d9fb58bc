package play

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// A handful of seeds of each kind of world holds; CI runs thousands by novasim.
func TestSeedsHold(t *testing.T) {
	worlds := map[bool]int{}
	for seed := uint64(1); seed <= 24; seed++ {
		o := Seed(seed, Options{})
		if o.Finding != nil {
			t.Fatalf("seed %d:\n%s", seed, o.Finding.Report())
		}
		worlds[draw(seed).config.Embedded]++
	}
	require.Len(t, worlds, 2, "both worlds must be among the seeds")
}

// Seeds that once broke hold: they show what they are noted for as long as what a seed draws stays as it is.
func TestSeedsThatOnceBrokeHold(t *testing.T) {
	for seed, was := range map[uint64]string{
		8217:         "expired records served from memory when their span was trimmed",
		18912:        "no put in time, with a session shorter than the clock skew",
		64394:        "a stream taken for one that is there, whose creation was answered after its deletion (in the harness)",
		202612020426: "an idle watch across an epoch that was minted anew (in the harness)",
	} {
		if o := Seed(seed, Options{}); o.Finding != nil {
			t.Errorf("seed %d, once: %s\n%s", seed, was, o.Finding.Report())
		}
	}
}

// A run is a pure function of its seed, on one processor or several.
func TestHashIsOfTheSeed(t *testing.T) {
	for _, seed := range []uint64{7, 8} {
		first := Seed(seed, Options{})
		before := runtime.GOMAXPROCS(1)
		second := Seed(seed, Options{})
		runtime.GOMAXPROCS(before)
		require.Equal(t, first.Hash, second.Hash)
		require.Equal(t, first.Steps, second.Steps)
		require.Equal(t, first.Marks, second.Marks)
	}
	require.NotEqual(t, Seed(7, Options{}).Hash, Seed(8, Options{}).Hash)
}

func load(t *testing.T, path string) *Script {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s, err := ParseScript(filepath.Base(path), f)
	require.NoError(t, err)
	return s
}

// Every scenario of the tree plays through, and ends in the same state whatever its seed.
func TestScenariosPlay(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.nova")
	require.NoError(t, err)
	known, err := filepath.Glob("../../testdata/scenarios/known/*.nova")
	require.NoError(t, err)
	require.Len(t, known, 10)
	for _, path := range append(files, known...) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := load(t, path)
			first := Scenario(s, 1, nil, false, Options{})
			require.Nil(t, first.Finding)
			second := Scenario(s, 2, nil, false, Options{})
			require.Nil(t, second.Finding)
			_, differ := sameState(first.State, second.State)
			require.Empty(t, differ)
		})
	}
}

const small = `
world embedded
timing settle-age-cap=100ms settle-recheck=5s reap-grace=1s trim-grace=1s retire-grace=1s job-deadline=20s orphan-grace=30s
node a window=2
start a
create s
append s records=2
converge
`

// A class of cuts has one outcome: every cut of a small scenario is made, with and
// without classes, and those of one class must end alike.
func TestClassesStandForTheirCuts(t *testing.T) {
	s, err := ParseScript("small", strings.NewReader(small))
	require.NoError(t, err)
	uncut := Scenario(s, 1, nil, true, Options{})
	require.Nil(t, uncut.Finding)
	steps := 0
	for _, c := range uncut.Classes {
		steps += c.Steps
	}
	require.Equal(t, uncut.Steps, steps, "the classes must stand for every step")
	require.Less(t, len(uncut.Classes), 2*uncut.Steps)
	endless, cuts := 0, 0
	for step := 1; step <= uncut.Steps; step++ {
		for _, side := range []sim.Side{sim.Before, sim.After} {
			o := CutAt(s, 1, Cut{Kills: []sim.Kill{{Step: step, Side: side}}}, &uncut, Options{})
			require.Nil(t, o.Finding, "step %d %v", step, side)
			if len(o.Missed) > 0 { // a wait that is not over in the end
				require.Equal(t, sim.After, side, "step %d", step)
				endless++
			}
			cuts++
		}
	}
	require.Less(t, endless, cuts/20)
}

// A cut that strikes nowhere is no success.
func TestCutsThatMiss(t *testing.T) {
	s, err := ParseScript("small", strings.NewReader(small))
	require.NoError(t, err)
	for text, kill := range map[string]sim.Kill{
		"no kill strikes at 99999:before: the run has ":                      {Step: 99_999},
		"no kill strikes at 1:middle: the step is no delete of several keys": {Step: 1, Side: sim.Middle},
	} {
		_, err := ScenarioAt(s, 1, &Cut{Kills: []sim.Kill{kill}}, Options{})
		require.ErrorContains(t, err, text)
		_, _, err = SaveScenario(small, "small", 1, &Cut{Kills: []sim.Kill{kill}}, Options{})
		require.ErrorContains(t, err, text)
	}
	_, err = ScenarioAt(s, 1, &Cut{Kills: []sim.Kill{{Step: 5}}}, Options{})
	require.NoError(t, err)
}

// A cut that ends in another state is reported with what touched the stream.
func TestCutThatEndsElsewhere(t *testing.T) {
	s, err := ParseScript("small", strings.NewReader(small))
	require.NoError(t, err)
	uncut := Scenario(s, 1, nil, false, Options{})
	require.NotEmpty(t, uncut.Live)
	cut := Cut{Kills: []sim.Kill{{Step: 40}}}
	finding := func(change func(o *ScenarioOutcome)) *sim.Finding {
		want := uncut
		want.State, want.Live = maps.Clone(uncut.State), slices.Clone(uncut.Live)
		change(&want)
		f := CutAt(s, 1, cut, &want, Options{}).Finding
		require.NotNil(t, f)
		require.Equal(t, check.Convergence, f.Invariant)
		return f
	}
	f := finding(func(o *ScenarioOutcome) { o.State["s"] = check.Logical{Watermark: 7} })
	require.Equal(t, "logical state of s", f.Object)
	require.NotEmpty(t, f.Touched)
	require.NotEmpty(t, f.Last)
	for _, e := range f.Touched {
		require.Contains(t, strings.Join(e.Keys, " "), "00000000000001")
	}
	require.Contains(t, finding(func(o *ScenarioOutcome) { delete(o.State, "s") }).Text, "is not there without the cut")
	require.Contains(t, finding(func(o *ScenarioOutcome) { o.State["t"] = o.State["s"] }).Text, "stream t is gone")
	delete(uncut.State, "s") // as many streams, of other names
	require.Contains(t, finding(func(o *ScenarioOutcome) { o.State["t"] = check.Logical{} }).Text, "stream s is ")
	f = finding(func(o *ScenarioOutcome) { o.State = Scenario(s, 1, nil, false, Options{}).State; o.Live = nil })
	require.Equal(t, "live objects", f.Object)
	require.NotEmpty(t, f.Touched)
}

// What seeds end with, scenarios and their cuts end with.
func TestScenariosAreVerified(t *testing.T) {
	s, err := ParseScript("small", strings.NewReader(small))
	require.NoError(t, err)
	o := Scenario(s, 1, nil, false, Options{})
	require.Equal(t, 1, o.Marks["verify/run"])
	require.Equal(t, 1, o.Marks["check/histories"])
}

// The canary: what must fail fails, and is reported with what touched it.
func TestCanary(t *testing.T) {
	s := load(t, "../../testdata/canary/expects-too-much.nova")
	o := Scenario(s, 1, nil, false, Options{})
	require.NotNil(t, o.Finding)
	require.Equal(t, "expectation", o.Finding.Invariant)
	require.Contains(t, o.Finding.Report(), "expected next s to be 3, it is 2")
}

// BenchmarkSeeds is simulated steps with all checkers on.
func BenchmarkSeeds(b *testing.B) {
	steps := 0
	for i := 0; b.Loop(); i++ {
		o := Seed(uint64(i+1), Options{})
		if o.Finding != nil {
			b.Fatal(o.Finding.Report())
		}
		steps += o.Steps
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
}

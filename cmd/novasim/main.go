// Command novasim runs Nova's production code in a seeded, deterministic simulation
// and says whether its invariants hold.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// Exit statuses.
const (
	exitHeld = iota
	exitBroken
	exitUsage
	exitFailed
)

// flags are the command line.
type flags struct {
	seed      uint64
	seeds     int
	first     uint64
	duration  time.Duration
	parallel  int
	args      []string // behind the flags
	scenario  string   // the first of scenarios
	scenarios []string // files
	cut       string
	cutNode   string
	plan      cutFlag // what cut and cutNode say
	output    string
	bench     bool
	stopAt    bool
	marks     string
	mutantFlags
	reading
	steps    int
	twice    bool
	hashes   string
	failures string
	profile  string
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errOut io.Writer) (status int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(errOut, "novasim: the simulator failed: %v\n\n%s", r, debug.Stack())
			status = exitFailed
		}
	}()
	// A world lives for a moment and leaves little: collecting less often is most of the speed.
	debug.SetGCPercent(800)
	var f flags
	fs := flag.NewFlagSet("novasim", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // it would print all flags behind each mistake
	fs.Usage = func() {}
	fs.Uint64Var(&f.seed, "seed", 0, "run seed `N`; with a scenario: the seed of its scheduling")
	fs.IntVar(&f.seeds, "seeds", 0, "run `N` seeds, from -first on")
	fs.Uint64Var(&f.first, "first", 1, "`N` is the first seed of -seeds or -duration")
	fs.DurationVar(&f.duration, "duration", 0, "run seeds for this long, as 90s or 8h: a `duration`")
	fs.IntVar(&f.parallel, "parallel", runtime.NumCPU(), "run `N` worlds at once")
	var patterns []string
	fs.Func("scenario", "play this `file`, all of a directory or a glob; may be given again", func(s string) error {
		patterns = append(patterns, s)
		return nil
	})
	fs.StringVar(&f.cut, "cut", "", cutHelp)
	fs.StringVar(&f.cutNode, "cut-node", "", cutNodeHelp)
	fs.StringVar(&f.output, "output", "text", "print the result as `text` or json; of -mutants also as markdown")
	fs.BoolVar(&f.bench, "bench", false, "measure simulated steps per second")
	fs.BoolVar(&f.stopAt, "fail-fast", true, "end a sweep at the first failure; with -failures: false, unless given")
	fs.IntVar(&f.steps, "steps", 0, "end each seed of a sweep after `N` steps, without its phase of convergence")
	fs.BoolVar(&f.twice, "twice", false, "run each seed of a sweep twice, and compare")
	fs.StringVar(&f.hashes, "hashes", "", "write the hash of each seed of a sweep to this `file`, to be compared with another")
	fs.StringVar(&f.failures, "failures", "", "append the seeds of a sweep that fail to this `file`, each as it fails, and go on")
	fs.StringVar(&f.profile, "profile", "", "write a profile of -bench to this `file`, for go tool pprof")
	fs.StringVar(&f.marks, "require-marks", "", "with -seeds or -duration: play the scenarios of this `folder` too, and fail if a coverage mark was hit by neither")
	f.mutantFlags.register(fs)
	f.reading.register(fs)
	given := map[string]bool{}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help(out, fs)
		return exitHeld
	case err != nil:
		fmt.Fprintf(errOut, "novasim: %v (see novasim -h)\n", err)
		return exitUsage
	}
	fs.Visit(func(fl *flag.Flag) { given[fl.Name] = true })
	f.args = fs.Args()
	usage := func(format string, a ...any) int {
		fmt.Fprintf(errOut, "novasim: "+format+"\n", a...)
		return exitUsage
	}
	var err error
	if f.scenarios, err = scenarioFiles(patterns); err != nil {
		return usage("%v", err)
	}
	if len(f.scenarios) > 0 {
		f.scenario = f.scenarios[0]
	}
	if f.plan, err = parseCut(f.cut, f.cutNode); err != nil {
		return usage("%v", err)
	}
	switch {
	case !f.mutants && len(f.args) > 0:
		return usage("unexpected argument %q; a scenario is given with -scenario", f.args[0])
	case f.output != "text" && f.output != "json" && (f.output != "markdown" || !f.mutants):
		return usage("-output is text or json, not %q", f.output)
	case given["seeds"] && f.seeds < 1 || f.parallel < 1:
		return usage("-seeds and -parallel must be above 0")
	case (f.cut != "" || f.cutNode != "") && f.scenario == "":
		return usage("-cut needs a -scenario")
	case len(f.scenarios) > 1 && len(f.plan.at) > 0:
		return usage("-cut STEP:SIDE is of one scenario; these are %d", len(f.scenarios))
	case f.scenario != "" && (f.seeds > 0 || f.duration > 0):
		return usage("a -scenario is played under one seed: give -seed instead of -seeds or -duration")
	case f.bench && (f.scenario != "" || f.seeds > 0 || f.duration > 0 || given["seed"]):
		return usage("-bench takes no -scenario, -seed, -seeds or -duration")
	case f.profile != "" && !f.bench:
		return usage("-profile is of -bench")
	case given["steps"] && f.steps < 1:
		return usage("-steps must be above 0")
	case (f.steps > 0 || f.twice || f.hashes != "" || f.failures != "") && f.seeds == 0 && f.duration == 0:
		return usage("-steps, -twice, -hashes and -failures are of a sweep: give them with -seeds or -duration")
	case given["first"] && f.seeds == 0 && f.duration == 0:
		return usage("-first is where a sweep begins: give it with -seeds or -duration")
	case given["duration"] && f.duration <= 0:
		return usage("-duration must be above 0")
	case f.marks != "" && f.seeds == 0 && f.duration == 0:
		return usage("-require-marks is of many runs: give -seeds or -duration")
	case given["seed"] && (f.seeds > 0 || f.duration > 0):
		return usage("-seed is one seed, -seeds and -duration are many: give -first instead")
	}
	if wrong := f.mutantFlags.misread(given); wrong != "" {
		return usage("%s", wrong)
	}
	if wrong := f.misread(given); wrong != "" {
		return usage("%s", wrong)
	}
	if f.failures != "" && !given["fail-fast"] {
		f.stopAt = false
	}
	c := &command{flags: f, out: out, errOut: errOut}
	switch {
	case f.mutants:
		return c.hunt()
	case f.replay != "":
		return c.replayed()
	case f.minimize:
		return c.minimized()
	case f.bench:
		return c.benchmark()
	case f.scenario != "":
		return c.play()
	case f.seeds > 0 || f.duration > 0:
		return c.sweep()
	case given["seed"]:
		return c.one()
	}
	return usage("nothing to run: give -seed, -seeds, -duration, -scenario, -replay, -mutants or -bench (see novasim -h)")
}

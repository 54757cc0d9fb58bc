package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nova-store/nova/sim/mutant"
)

const (
	// mutantSeeds is how many seeds a mutant may take to be caught, unless -seeds says otherwise.
	mutantSeeds = 2000
	// fewSeeds are those that a mutant is tried with before the scenarios, which cost less than all seeds.
	fewSeeds = 100
	// controlSeeds is how many the control run takes where only some mutants are looked at.
	controlSeeds = 50
	// runMost bounds one run of a program with a mutant in it: it may never end.
	runMost = 20 * time.Minute
	// scenariosDir holds the scenarios, from the root of the tree.
	scenariosDir = "testdata/scenarios"
)

// Verdicts on a mutant.
const (
	caught     = "caught"
	survived   = "survived"
	misread    = "caught by another"   // and not by an invariant that it must break
	unguarded  = "not by its scenario" // which it says that it is guarded by
	unjudgable = "failed"              // it does not apply or build, or the program did not do its work
)

// mutantFlags are the flags by which the checkers are checked.
type mutantFlags struct{ mutants, quick, update bool }

func (f *mutantFlags) register(fs *flag.FlagSet) {
	fs.BoolVar(&f.mutants, "mutants", false, "the checker's checker: build each bug of "+mutant.Dir+", or those named behind the flags, and expect it to be caught")
	fs.BoolVar(&f.quick, "quick", false, "with -mutants: first of all where each was caught last, and search only if it holds there")
	fs.BoolVar(&f.update, "update", false, "with -mutants: note where each was caught, for -quick")
}

// misread says what is wrong with the flags, or "".
func (f *mutantFlags) misread(given map[string]bool) string {
	if !f.mutants {
		if f.quick || f.update {
			return "-quick and -update belong to -mutants"
		}
		return ""
	}
	takes := []string{"mutants", "quick", "update", "seeds", "parallel", "output"}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(takes, name) {
			return fmt.Sprintf("-mutants takes no -%s; it takes names of mutants, and -%s", name, strings.Join(takes[1:], ", -"))
		}
	}
	return ""
}

// mutantReport is the JSON of one mutant.
type mutantReport struct {
	Mutant    string  `json:"mutant"`
	MustBreak string  `json:"must_break"`
	Verdict   string  `json:"verdict"`
	Invariant string  `json:"invariant"`
	Seeds     int     `json:"seeds"` // that it took, and cuts; both 0 where a place was known
	Cuts      int     `json:"cuts"`
	Build     float64 `json:"build_seconds"`
	Wall      float64 `json:"wall_seconds"` // of all runs
	Replay    string  `json:"replay,omitempty"`
	Guards    []catch `json:"guards"`
	Note      string  `json:"note,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// catch is a run that broke an invariant.
type catch struct {
	Scenario  string `json:"scenario,omitempty"`
	Invariant string `json:"invariant"`
	Replay    string `json:"replay"`
	seeds     int
	cuts      int
}

// huntReport is the JSON of all mutants.
type huntReport struct {
	Verdict   string         `json:"verdict"`
	Control   string         `json:"control"`
	Mutants   []mutantReport `json:"mutants"`
	Survivors []string       `json:"survivors"` // those that were not caught as they must be
	Failed    []string       `json:"failed"`    // those of which nothing is known
	Wall      float64        `json:"wall_seconds"`
}

// hunt is -mutants.
func (c *command) hunt() int {
	root, err := mutant.Root(".")
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	mutants, err := mutant.Load(root, c.args...)
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		if errors.Is(err, mutant.ErrUnknown) {
			return exitUsage
		}
		return exitFailed
	}
	work, err := os.MkdirTemp("", "novasim-mutants-")
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitFailed
	}
	defer os.RemoveAll(work)
	b := &mutant.Builder{Root: root, Work: work}
	h := &hunter{root: root, seeds: cmp.Or(c.seeds, mutantSeeds), quick: c.quick, build: b.Build, remove: b.Remove,
		run: func(ctx context.Context, program string, args ...string) ([]byte, int, error) {
			return runProgram(ctx, root, program, args...)
		}}
	return c.huntAll(h, mutants, len(c.args) == 0)
}

// huntAll hunts the mutants, side by side, and reports. all tells whether they are all that there are.
func (c *command) huntAll(h *hunter, mutants []mutant.Mutant, all bool) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	var err error
	if h.places, err = mutant.ReadPlaces(h.root); err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitFailed
	}
	rep := huntReport{Verdict: "held", Mutants: make([]mutantReport, len(mutants)), Survivors: []string{}, Failed: []string{}}
	held, err := h.checkControl(ctx, mutants, all && !h.quick, c.parallel)
	switch {
	case err != nil:
		fmt.Fprintf(c.errOut, "novasim: the control run, without a mutant: %v\n", err)
		return exitFailed
	case !held.holds():
		fmt.Fprintf(c.errOut, "novasim: without any mutant %s breaks; nothing can be said of mutants before that is mended\nreplay: %s\n", held.Invariant, held.Replay)
		return exitBroken
	}
	rep.Control = "held"
	bar := newProgress(c.errOut, len(mutants), "mutants")
	var lines sync.Mutex // the workers print beside each other
	c.inOrder(len(mutants), func(i int) bool {
		if ctx.Err() != nil {
			return false
		}
		r := h.hunt(ctx, &mutants[i])
		rep.Mutants[i] = r
		if bar.bar == nil {
			lines.Lock()
			fmt.Fprintf(c.errOut, "%s: %s\n", r.Mutant, r.brief())
			lines.Unlock()
		}
		bar.add(1)
		return true
	})
	bar.clear()
	if ctx.Err() != nil {
		fmt.Fprintln(c.errOut, "novasim: interrupted")
		return exitFailed
	}
	for _, r := range rep.Mutants {
		switch r.Verdict {
		case caught:
		case unjudgable:
			rep.Failed = append(rep.Failed, r.Mutant)
		default:
			rep.Survivors = append(rep.Survivors, r.Mutant)
		}
	}
	if len(rep.Survivors)+len(rep.Failed) > 0 {
		rep.Verdict = "broken"
	}
	rep.Wall = time.Since(start).Seconds()
	c.printHunt(&rep)
	if c.update {
		if err := h.keep(rep.Mutants, mutants, all); err != nil {
			fmt.Fprintf(c.errOut, "novasim: %v\n", err)
			return exitFailed
		}
	}
	switch {
	case len(rep.Failed) > 0:
		return exitFailed
	case len(rep.Survivors) > 0:
		return exitBroken
	}
	return exitHeld
}

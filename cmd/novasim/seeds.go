package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// command is one run of the program.
type command struct {
	flags
	out, errOut io.Writer
}

// report is the JSON of one run.
type report struct {
	Seed      uint64         `json:"seed"`
	Verdict   string         `json:"verdict"`
	Invariant string         `json:"invariant"`
	Object    string         `json:"object,omitempty"`
	Text      string         `json:"text,omitempty"`
	Steps     int            `json:"steps"`
	Virtual   float64        `json:"virtual_seconds"`
	Wall      float64        `json:"wall_seconds"`
	Hash      string         `json:"hash"`
	Faults    []string       `json:"faults"`
	Marks     map[string]int `json:"marks"`
	Replay    string         `json:"replay,omitempty"`
}

func verdict(f *sim.Finding) string {
	if f == nil {
		return "held"
	}
	return "broken"
}

func newReport(o *play.Outcome, wall time.Duration) report {
	r := report{Seed: o.Seed, Verdict: verdict(o.Finding), Steps: o.Steps, Virtual: o.Virtual.Seconds(), Wall: wall.Seconds(),
		Hash: fmt.Sprintf("%016x", o.Hash), Faults: o.Faults, Marks: o.Marks}
	if r.Faults == nil {
		r.Faults = []string{}
	}
	if o.Finding != nil {
		r.Invariant, r.Object, r.Text = o.Finding.Invariant, o.Finding.Object, o.Finding.Text
	}
	return r
}

func (c *command) json(v any) {
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a closed standard output is nobody's concern
}

// status turns a finding into the exit status: one of the harness itself is a failure
// of the simulator.
func status(f *sim.Finding) int {
	switch {
	case f == nil:
		return exitHeld
	case f.Invariant == "harness":
		return exitFailed
	}
	return exitBroken
}

func (c *command) one() int {
	replay := fmt.Sprintf("novasim -seed %d", c.seed)
	start := time.Now()
	var o play.Outcome
	if err := c.observed(replay, func(opt play.Options) (*play.Outcome, error) {
		if c.save == "" {
			o = play.Seed(c.seed, opt)
			return &o, nil
		}
		var s *play.Saved
		s, o = play.SaveSeed(c.seed, opt)
		return &o, c.write(s)
	}); err != nil {
		return c.failed(err)
	}
	wall := time.Since(start)
	if c.output == "json" {
		r := newReport(&o, wall)
		if o.Finding != nil {
			r.Replay = replay
		}
		c.json(r)
		return status(o.Finding)
	}
	fmt.Fprintf(c.out, "seed %d %s: %d steps, %v of virtual time in %v, hash %016x\n",
		o.Seed, verdict(o.Finding), o.Steps, o.Virtual.Round(time.Millisecond), wall.Round(time.Millisecond), o.Hash)
	fmt.Fprintf(c.out, "faults: %s\n", strings.Join(o.Faults, ", "))
	if o.Finding != nil {
		fmt.Fprintf(c.out, "\n%s\nwhat the seed had drawn\n%s\nreplay: %s\n%s", o.Finding.Report(), o.Plan, replay, nextOf(c.seed))
	}
	return status(o.Finding)
}

// sweepReport is the JSON of many runs.
type sweepReport struct {
	Seeds   int            `json:"seeds"`
	Verdict string         `json:"verdict"`
	Broken  []report       `json:"broken"`
	Steps   int            `json:"steps"`
	Virtual float64        `json:"virtual_seconds"`
	Wall    float64        `json:"wall_seconds"`
	Marks   map[string]int `json:"marks"`
	Replay  string         `json:"replay,omitempty"`
}

// sweep runs seeds until all are done, the time is over, or one broke.
func (c *command) sweep() int {
	start := time.Now()
	var mu sync.Mutex
	var next atomic.Uint64
	next.Store(c.first)
	marks := sim.Marks{}
	var broken []play.Outcome
	steps, n := 0, 0
	var virtual time.Duration
	worker := func() {
		for {
			seed := next.Add(1) - 1
			if c.seeds > 0 && seed >= c.first+uint64(c.seeds) || c.duration > 0 && time.Since(start) > c.duration {
				return
			}
			mu.Lock()
			stop := c.stopAt && len(broken) > 0
			mu.Unlock()
			if stop {
				return
			}
			o := play.Seed(seed, play.Options{})
			mu.Lock()
			n++
			steps += o.Steps
			virtual += o.Virtual
			marks.Add(o.Marks)
			if o.Finding != nil {
				broken = append(broken, o)
			}
			mu.Unlock()
		}
	}
	parallel(c.parallel, worker)
	wall := time.Since(start)
	slices.SortFunc(broken, func(a, b play.Outcome) int { return int(int64(a.Seed) - int64(b.Seed)) })
	var first *sim.Finding
	plan := ""
	r := sweepReport{Seeds: n, Verdict: "held", Broken: []report{}, Steps: steps, Virtual: virtual.Seconds(), Wall: wall.Seconds(), Marks: marks}
	for i := range broken {
		if first == nil {
			first, plan = broken[i].Finding, broken[i].Plan
			r.Verdict, r.Replay = "broken", fmt.Sprintf("novasim -seed %d", broken[i].Seed)
		}
		r.Broken = append(r.Broken, newReport(&broken[i], 0))
	}
	if c.output == "json" {
		c.json(r)
		return status(first)
	}
	fmt.Fprintf(c.out, "%d seeds %s: %d steps, %v of virtual time in %v (%.0f steps/s), %d broken\n",
		n, r.Verdict, steps, virtual.Round(time.Second), wall.Round(time.Millisecond), float64(steps)/wall.Seconds(), len(broken))
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		fmt.Fprintf(c.out, "  %8d  %s\n", marks[name], name)
	}
	if first != nil {
		fmt.Fprintf(c.out, "\n%s\nwhat the seed had drawn\n%s\nreplay: %s\n", first.Report(), plan, r.Replay)
	}
	return status(first)
}

// parallel runs n workers at once, each to its end. A panic in one is the caller's.
func parallel(n int, worker func()) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[any]
	for range n {
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					failed.CompareAndSwap(nil, &r)
				}
			}()
			worker()
		})
	}
	wg.Wait()
	if r := failed.Load(); r != nil {
		panic(*r)
	}
}

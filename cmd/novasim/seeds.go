package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
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

// told reports one run: as JSON, and then that is all, or by its first line.
func (c *command) told(what string, o *play.Outcome, replay string, wall time.Duration) (all bool) {
	if c.output == "json" {
		r := newReport(o, wall)
		if o.Finding != nil {
			r.Replay = replay
		}
		c.json(r)
		return true
	}
	fmt.Fprintf(c.out, "%s %s: %d steps, %v of virtual time in %v, hash %016x\n",
		what, verdict(o.Finding), o.Steps, o.Virtual.Round(time.Millisecond), wall.Round(time.Millisecond), o.Hash)
	return false
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
	if c.told(fmt.Sprintf("seed %d", o.Seed), &o, replay, time.Since(start)) {
		return status(o.Finding)
	}
	fmt.Fprintf(c.out, "faults: %s\n", strings.Join(o.Faults, ", "))
	if o.Finding != nil {
		fmt.Fprintf(c.out, "\n%s\nwhat the seed had drawn\n%s\nreplay: %s\n%s", o.Finding.Report(), o.Plan, replay, nextOf(c.seed))
	}
	return status(o.Finding)
}

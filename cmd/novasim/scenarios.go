package main

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// scenarioReport is the JSON of a sweep of cuts.
type scenarioReport struct {
	Scenario  string  `json:"scenario"`
	Verdict   string  `json:"verdict"`
	Invariant string  `json:"invariant"`
	Object    string  `json:"object,omitempty"`
	Text      string  `json:"text,omitempty"`
	Cuts      int     `json:"cuts"`
	Of        int     `json:"of"`
	Steps     int     `json:"steps"`
	Broken    int     `json:"broken"`
	Wall      float64 `json:"wall_seconds"`
	Replay    string  `json:"replay,omitempty"`
}

// play plays a scenario: uncut, with one cut, or with every one.
func (c *command) play() int {
	text, err := os.ReadFile(c.scenario)
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	script, err := play.ParseScript(c.scenario, bytes.NewReader(text))
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	if c.cut == "" {
		return c.playOnce(script, text, nil)
	}
	limit, step, side, err := parseCut(c.cut)
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	if step > 0 {
		k := &sim.Kill{Step: step}
		if side == "after" {
			k.Side = sim.After
		}
		return c.playOnce(script, text, k)
	}
	return c.cutAll(script, limit)
}

func (c *command) playOnce(script *play.Script, text []byte, cut *sim.Kill) int {
	start := time.Now()
	replay := fmt.Sprintf("novasim -scenario %s -seed %d", c.scenario, c.seed)
	if cut != nil {
		replay += fmt.Sprintf(" -cut %d:%s", cut.Step, cut.Side)
	}
	var o play.Outcome
	if err := c.observed(replay, func(opt play.Options) (*play.Outcome, error) {
		if c.save == "" {
			o = play.ScenarioAt(script, c.seed, cut, opt).Outcome
			return &o, nil
		}
		s, saved, err := play.SaveScenario(string(text), c.scenario, c.seed, cut, opt)
		if err != nil {
			return nil, err
		}
		o = saved
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
	fmt.Fprintf(c.out, "%s %s: %d steps, %v of virtual time in %v, hash %016x\n", script.Name, verdict(o.Finding),
		o.Steps, o.Virtual.Round(time.Millisecond), wall.Round(time.Millisecond), o.Hash)
	if o.Finding != nil {
		fmt.Fprintf(c.out, "\n%s\nreplay: %s\nnext:   %s -html page.html\n", o.Finding.Report(), replay, replay)
	}
	return status(o.Finding)
}

func (c *command) cutAll(script *play.Script, limit int) int {
	start := time.Now()
	rep := play.Cuts(script, c.seed, limit, func(n int, do func(i int)) {
		var next atomic.Int64
		parallel(c.parallel, func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= n {
					return
				}
				do(i)
			}
		})
	})
	r := scenarioReport{Scenario: script.Name, Verdict: verdict(rep.FirstFinding), Cuts: rep.Cuts, Of: rep.Of, Steps: rep.Steps,
		Broken: rep.Broken, Wall: time.Since(start).Seconds()}
	if f := rep.FirstFinding; f != nil {
		r.Invariant, r.Object, r.Text = f.Invariant, f.Object, f.Text
		r.Replay = fmt.Sprintf("novasim -scenario %s -seed %d", c.scenario, c.seed)
		if rep.First != nil {
			r.Replay += fmt.Sprintf(" -cut %d:%s", rep.First.FirstStep, rep.First.Side)
		}
	}
	if c.output == "json" {
		c.json(r)
		return status(rep.FirstFinding)
	}
	fmt.Fprintf(c.out, "%s %s: %d of %d cuts, which stand for %d steps, in %.1f s; %d broken\n",
		r.Scenario, r.Verdict, r.Cuts, r.Of, r.Steps, r.Wall, r.Broken)
	if rep.FirstFinding != nil {
		fmt.Fprintf(c.out, "\n%s\nreplay: %s\n", rep.FirstFinding.Report(), r.Replay)
	}
	return status(rep.FirstFinding)
}

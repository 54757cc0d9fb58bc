package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/play"
)

// scenarioReport is the JSON of one scenario, and of its cuts.
type scenarioReport struct {
	Scenario  string       `json:"scenario,omitempty"`
	Verdict   string       `json:"verdict"`
	Invariant string       `json:"invariant"`
	Object    string       `json:"object,omitempty"`
	Text      string       `json:"text,omitempty"`
	Mode      string       `json:"mode"`
	Cuts      int          `json:"cuts"`
	Of        int          `json:"of"`
	Steps     int          `json:"steps"`
	Broken    int          `json:"broken"`
	Kinds     []kindReport `json:"kinds"`
	Wall      float64      `json:"wall_seconds"`
	Replay    string       `json:"replay,omitempty"`
}

// totalReport is the JSON of several scenarios: their sums, what broke first, and each of them.
type totalReport struct {
	scenarioReport
	Scenarios []scenarioReport `json:"scenarios"`
}

// load reads a scenario.
func load(path string) (*play.Script, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return play.ParseScript(path, file)
}

// loadAll reads scenarios.
func loadAll(paths []string) ([]*play.Script, error) {
	var scripts []*play.Script
	for _, path := range paths {
		script, err := load(path)
		if err != nil {
			return nil, err
		}
		scripts = append(scripts, script)
	}
	return scripts, nil
}

// play plays scenarios: uncut, with one cut, or with every one. All are read before one is played.
func (c *command) play() int {
	scripts, err := loadAll(c.scenarios)
	if err == nil && c.plan.Node != "" && !slices.ContainsFunc(scripts, func(s *play.Script) bool {
		return slices.ContainsFunc(s.Nodes, func(n play.NodeConfig) bool { return n.Name == c.plan.Node })
	}) {
		err = fmt.Errorf("no scenario has a node %q, which -cut-node asks for", c.plan.Node)
	}
	if err != nil {
		fmt.Fprintf(c.errOut, "novasim: %v\n", err)
		return exitUsage
	}
	if len(scripts) == 1 && !c.plan.sweep {
		var cut *play.Cut
		if len(c.plan.at) > 0 {
			cut = &play.Cut{Kills: c.plan.at, Mode: c.plan.Mode}
		}
		return c.playOnce(scripts[0], cut)
	}
	return c.playAll(scripts)
}

func (c *command) playOnce(script *play.Script, cut *play.Cut) int {
	start := time.Now()
	replay := c.replayOf(script, cut)
	var o play.Outcome
	if err := c.observed(replay, func(opt play.Options) (*play.Outcome, error) {
		if c.save == "" {
			r, err := play.ScenarioAt(script, c.seed, cut, opt)
			o = r.Outcome
			return &o, unusableOf(err)
		}
		text, err := os.ReadFile(c.scenario)
		if err != nil {
			return nil, unusable{err}
		}
		s, saved, err := play.SaveScenario(string(text), c.scenario, c.seed, cut, opt)
		if err != nil {
			return nil, unusableOf(err)
		}
		s.From, o = replay, saved
		return &o, c.write(s)
	}); err != nil {
		return c.failed(err)
	}
	if c.told(script.Name, &o, replay, time.Since(start)) {
		return status(o.Finding)
	}
	if o.Finding != nil {
		fmt.Fprintf(c.out, "\n%s\nreplay: %s\n%s", o.Finding.Report(), replay, c.pageNext(replay))
	}
	return status(o.Finding)
}

// unusableOf tells of a cut that strikes nowhere that it is a matter of the command line.
func unusableOf(err error) error {
	if missed := (*play.MissedError)(nil); errors.As(err, &missed) {
		return unusable{err}
	}
	return err
}

// replayOf is the command that plays a scenario again, with that cut.
func (c *command) replayOf(script *play.Script, cut *play.Cut) string {
	s := fmt.Sprintf("novasim -scenario %s -seed %d", quote(script.Name), c.seed)
	if cut != nil {
		s += " -cut " + cut.String()
		if c.cutNode != "" {
			s += " -cut-node " + quote(c.cutNode)
		}
	}
	return s
}

// pageNext says how to look at what a command of replayOf plays, unless that has just been done. The page is named
// after the scenario.
func (c *command) pageNext(replay string) string {
	if c.html != "" {
		return ""
	}
	name := strings.TrimSuffix(filepath.Base(words(replay)[2]), ".nova")
	return fmt.Sprintf("next:   %s -html %s\n", replay, quote(name+".html"))
}

// playAll plays several scenarios, or makes the cuts of one or several.
func (c *command) playAll(scripts []*play.Script) int {
	start := time.Now()
	total := totalReport{scenarioReport: scenarioReport{Verdict: "held", Kinds: []kindReport{}}, Scenarios: []scenarioReport{}}
	var first *sim.Finding
	for i, script := range scripts {
		r, f := c.playOne(script, fmt.Sprintf("%d of %d %s", i+1, len(scripts), filepath.Base(script.Name)))
		total.Scenarios = append(total.Scenarios, r)
		total.Cuts, total.Of, total.Steps, total.Broken = total.Cuts+r.Cuts, total.Of+r.Of, total.Steps+r.Steps, total.Broken+r.Broken
		total.Kinds = addKinds(total.Kinds, r.Kinds)
		if i == 0 {
			total.Mode = r.Mode
		} else if total.Mode != r.Mode {
			total.Mode = "the only node or one of several"
		}
		if f != nil && first == nil {
			first = f
			total.Verdict, total.Invariant, total.Object, total.Text, total.Replay = r.Verdict, r.Invariant, r.Object, r.Text, r.Replay
		}
		if c.output == "text" && (!c.plan.sweep || r.Of > 0 || f != nil) {
			c.printOne(&r)
		}
		if first != nil && c.stopAt {
			break
		}
	}
	total.Wall = time.Since(start).Seconds()
	if first == nil && c.plan.sweep && total.Of == 0 {
		fmt.Fprintf(c.errOut, "novasim: nothing was cut: no scenario has a step%s\n", c.plan.asked())
		return exitUsage
	}
	switch {
	case c.output == "json" && len(scripts) == 1:
		c.json(total.Scenarios[0])
	case c.output == "json":
		c.json(total)
	default:
		c.printTotal(&total, len(scripts), first)
	}
	return status(first)
}

// playOne plays one of several scenarios, or makes its cuts.
func (c *command) playOne(script *play.Script, what string) (scenarioReport, *sim.Finding) {
	start := time.Now()
	r := scenarioReport{Scenario: script.Name, Mode: "uncut", Kinds: []kindReport{}}
	var f *sim.Finding
	var cut *play.Cut
	if c.plan.sweep {
		plan := c.plan.CutPlan
		plan.FailFast = c.stopAt
		var bar progress
		rep := play.Cuts(script, c.seed, plan, func(n int, do func(i int) bool) {
			bar = newProgress(c.errOut, n, what)
			c.inOrder(n, func(i int) bool {
				defer bar.add(1)
				return do(i)
			})
		})
		bar.clear()
		f, cut = rep.FirstFinding, rep.First
		r.Mode = cutMode(script, plan.Mode)
		r.Cuts, r.Of, r.Steps, r.Broken, r.Kinds = rep.Cuts, rep.Of, rep.Steps, rep.Broken, kindReports(rep.Kinds)
	} else {
		o := play.Scenario(script, c.seed, nil, false, play.Options{})
		f, r.Steps = o.Finding, o.Steps
		if f != nil {
			r.Broken = 1
		}
	}
	r.Verdict, r.Wall = verdict(f), time.Since(start).Seconds()
	if f != nil {
		r.Invariant, r.Object, r.Text, r.Replay = f.Invariant, f.Object, f.Text, c.replayOf(script, cut)
	}
	return r, f
}

// cutMode says who dies at a cut.
func cutMode(script *play.Script, m play.CutMode) string {
	switch {
	case m == play.CutAll:
		return "all nodes at once"
	case len(script.Nodes) == 1:
		return "the only node"
	case m == play.CutAway:
		return "one node, away until others took over"
	}
	return "one node, others go on"
}

// inOrder runs do(0) to do(n-1) by as many workers as are asked for, until all are done or one
// returns false.
func (c *command) inOrder(n int, do func(i int) bool) {
	var next atomic.Int64
	var ended atomic.Bool
	parallel(c.parallel, func() {
		for !ended.Load() {
			i := int(next.Add(1) - 1)
			if i >= n {
				return
			}
			if !do(i) {
				ended.Store(true)
			}
		}
	})
}

func (c *command) printOne(r *scenarioReport) {
	if !c.plan.sweep {
		fmt.Fprintf(c.out, "%s %s: %d steps in %.1f s\n", r.Scenario, r.Verdict, r.Steps, r.Wall)
		return
	}
	fmt.Fprintf(c.out, "%s %s: %s, in %.1f s; %d broken\n", r.Scenario, r.Verdict, c.howMany(r), r.Wall, r.Broken)
}

// howMany says how many cuts were made, and for what they stand.
func (c *command) howMany(r *scenarioReport) string {
	if c.plan.Pairs > 0 {
		return fmt.Sprintf("%d pairs of cuts, whose first are of %d, of %s", r.Cuts, r.Of, r.Mode)
	}
	return fmt.Sprintf("%d of %d cuts, which stand for %d steps, of %s", r.Cuts, r.Of, r.Steps, r.Mode)
}

func (c *command) printTotal(total *totalReport, scenarios int, first *sim.Finding) {
	if scenarios > 1 {
		word := "all held"
		if first != nil {
			word = fmt.Sprintf("%d of them played", len(total.Scenarios))
		}
		if c.plan.sweep {
			fmt.Fprintf(c.out, "\n%d scenarios, %s: %s, in %.1f s; %d broken\n", scenarios, word, c.howMany(&total.scenarioReport), total.Wall, total.Broken)
		} else {
			fmt.Fprintf(c.out, "\n%d scenarios, %s: %d steps in %.1f s; %d broken\n", scenarios, word, total.Steps, total.Wall, total.Broken)
		}
	}
	if c.plan.sweep && len(total.Kinds) > 0 {
		fmt.Fprintf(c.out, "\n%s\n", kindTable(total.Kinds))
	}
	if first != nil {
		fmt.Fprintf(c.out, "\n%s\nreplay: %s\n%s", first.Report(), total.Replay, c.pageNext(total.Replay))
	}
}

package play

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// ScenarioOutcome is what became of one play of a scenario.
type ScenarioOutcome struct {
	Outcome
	// State is the logical state at the end. Appends are numbered by their place in
	// the script.
	State map[string]check.Logical
	// Live is what the objects in the bucket hold at the end.
	Live []string
	// Classes are the classes of cuts, if they were asked for.
	Classes []sim.Class
}

// Scenario plays a script, with kills at that cut, if it is not nil: nodes are then started
// again as its mode says. Appends are idempotent, one producer a stream, and repeated until
// their outcome is definite, so that the logical state at the end is that of the
// uncut run.
func Scenario(s *Script, seed uint64, cut *Cut, classes bool, opt Options) ScenarioOutcome {
	cfg := sim.Config{Seed: seed, Embedded: s.Embedded, Classes: classes, Duty: duty, Sink: opt.Sink, Decisions: opt.Decisions, MaxSteps: 2_000_000, MaxOps: s.maxOps}
	cfg.Faults.StoreLatency = sim.Latency{Base: s.latency}
	cfg.Faults.BucketLatency = sim.Latency{Base: 2 * s.latency}
	g := newGame(cfg)
	defer g.w.Close()
	opt.attach(g.w)
	g.chaosOver = true // nobody starts a process again that another has replaced
	for _, n := range s.Nodes {
		g.configure(n)
	}
	if cut != nil {
		for _, k := range cut.Kills {
			k.Then = func(inc *sim.Incarnation) { g.struck(inc, cut.Mode) }
			g.w.KillAt(k)
		}
	}
	p := newPlayer(g, cut != nil)
	for i := range s.steps {
		verbs[s.steps[i].verb].play(p, &s.steps[i])
		if g.w.Found() != nil {
			break
		}
	}
	p.calm()
	if g.w.Found() == nil {
		// Wherever the kill struck, the last statement included.
		g.finish(g.converge(bound(g.configs[g.order[0]])))
	}
	out := ScenarioOutcome{State: g.check.State(), Live: g.check.Live(), Classes: g.w.Classes()}
	steps := g.w.Steps()
	// Not of the script, and not cut: the world has converged.
	g.quiet()
	g.readBack()
	g.drain()
	out.Outcome = g.outcome(seed, nil)
	out.Steps = steps
	return out
}

// struck does to the nodes what the mode of a cut says, once one of them was killed by it.
func (g *game) struck(inc *sim.Incarnation, mode CutMode) {
	name := inc.Node().Name()
	const soon = 100 * time.Millisecond
	if mode == CutAway && g.alive() == "" {
		mode = CutHere // nobody is there to take over
	}
	switch mode {
	case CutHere:
		g.restartAfter(name, soon)
	case CutAway:
		cfg := g.configs[name]
		g.downed[name] = true
		g.w.At(2*cfg.Timing.SessionTTL+cfg.Timing.MaxClockSkew+2*cfg.IdleInterval, func() {
			delete(g.downed, name)
			if g.w.Found() == nil {
				g.up(name)
			}
		})
	case CutAll:
		g.restartAfter(name, soon)
		for _, other := range g.order {
			if o := g.w.Node(other).Current(); o != nil {
				o.Kill()
				g.restartAfter(other, soon)
			}
		}
	}
}

// sameState compares two logical states and says how they differ, or "".
func sameState(want, have map[string]check.Logical) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !want[name].Equal(have[name]) {
			return fmt.Sprintf("stream %s is %+v, %+v without the cut", name, have[name], want[name])
		}
	}
	if len(want) != len(have) {
		return fmt.Sprintf("%d streams, %d without the cut", len(have), len(want))
	}
	return ""
}

// cutFinding makes a finding of a logical state that differs.
func cutFinding(o *ScenarioOutcome, text string) *sim.Finding {
	return &sim.Finding{Invariant: check.Convergence, Object: "logical state", Text: text, Step: o.Steps}
}

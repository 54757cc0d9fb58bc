package play

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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
	// Missed are the kills that never struck, of a run that holds: there was no such step.
	Missed []sim.Kill
}

// Scenario plays a script, with kills at that cut, if it is not nil: nodes are then started
// again as its mode says. Appends are idempotent, one producer a stream, and repeated until
// their outcome is definite, so that the logical state at the end is that of the
// uncut run.
func Scenario(s *Script, seed uint64, cut *Cut, classes bool, opt Options) ScenarioOutcome {
	return playScript(s, seed, cut, nil, classes, opt)
}

// playScript is Scenario; where uncut is not nil, the end must be that.
func playScript(s *Script, seed uint64, cut *Cut, uncut *ScenarioOutcome, classes bool, opt Options) ScenarioOutcome {
	cfg := sim.Config{Seed: seed, Embedded: s.Embedded, Classes: classes, Duty: duty, Sink: opt.Sink, Decisions: opt.Decisions, MaxSteps: 2_000_000, MaxOps: s.maxOps}
	cfg.BucketSkew = s.bucketClock
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
			k.Then = func(inc *sim.Incarnation) { g.struck(inc, k, cut.Mode) }
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
	if g.w.Found() == nil {
		// What the script itself strikes may be met no more after a cut.
		out.Missed = slices.DeleteFunc(g.w.Planned(), func(k sim.Kill) bool { return k.Drawn })
		if uncut != nil {
			g.compare(uncut, &out)
		}
	}
	// Not of the script, and not cut: the world has converged.
	g.w.DropKills()
	g.quiet()
	g.readBack()
	g.drain()
	g.verify()
	g.judge()
	out.Outcome = g.outcome(seed, nil)
	out.Steps = steps
	return out
}

// struck does to the nodes what the mode of a cut says, once one of them was killed by it.
func (g *game) struck(inc *sim.Incarnation, k sim.Kill, mode CutMode) {
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
				o.KillAs(k)
				g.restartAfter(other, soon)
			}
		}
	}
}

// compare has it as a finding that the end of a cut run is not that of the uncut one.
func (g *game) compare(uncut, cut *ScenarioOutcome) {
	if name, text := sameState(uncut.State, cut.State); text != "" {
		key := g.check.Subject(name)
		g.w.FindingOf(check.Convergence, "logical state of "+name, text, func(e *sim.Event) bool { return e.Touches(key) })
		return
	}
	if slices.Equal(uncut.Live, cut.Live) {
		return
	}
	// What is in one of the two alone leads to the objects.
	var keys []string
	for _, line := range slices.Concat(uncut.Live, cut.Live) {
		if !slices.Contains(uncut.Live, line) || !slices.Contains(cut.Live, line) {
			kind, _, _ := strings.Cut(line, " ")
			keys = append(keys, kind+"/")
		}
	}
	g.w.FindingOf(check.Convergence, "live objects", fmt.Sprintf("the objects in the bucket hold %v, %v without the cut", cut.Live, uncut.Live), func(e *sim.Event) bool {
		return e.Op == sim.OpBucketPut || e.Op == sim.OpBucketDelete || slices.ContainsFunc(keys, e.Touches)
	})
}

// sameState compares two logical states; it returns the name of the first stream, of those of both, in which they differ, and how, or "".
func sameState(want, have map[string]check.Logical) (name, text string) {
	names := maps.Clone(want)
	maps.Copy(names, have)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, wanted := want[name]
		h, has := have[name]
		switch {
		case !wanted:
			return name, fmt.Sprintf("stream %s is %+v, and is not there without the cut", name, h)
		case !has:
			return name, fmt.Sprintf("stream %s is gone, %+v without the cut", name, w)
		case !w.Equal(h):
			return name, fmt.Sprintf("stream %s is %+v, %+v without the cut", name, h, w)
		}
	}
	return "", ""
}

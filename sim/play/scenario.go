package play

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	// Classes are the classes of cuts, if they were asked for.
	Classes []sim.Class
}

// Scenario plays a script, with a kill at that cut, if it is not nil: the node is then started
// again at once. Appends are idempotent, one producer a stream, and repeated until
// their outcome is definite, so that the logical state at the end is that of the
// uncut run.
func Scenario(s *Script, seed uint64, cut *sim.Kill, classes bool, opt Options) ScenarioOutcome {
	cfg := sim.Config{Seed: seed, Embedded: s.Embedded, Classes: classes, Sink: opt.Sink, MaxSteps: 2_000_000}
	cfg.Faults.StoreLatency = sim.Latency{Base: time.Millisecond}
	cfg.Faults.BucketLatency = sim.Latency{Base: 2 * time.Millisecond}
	g := newGame(cfg)
	defer g.w.Close()
	for _, n := range s.Nodes {
		g.configure(n)
	}
	if cut != nil {
		k := *cut
		k.Then = func(inc *sim.Incarnation) { g.restartAfter(inc.Node().Name(), 100*time.Millisecond) }
		g.w.KillAt(k)
	}
	p := player{g: g, producers: make(map[string]*producer), pauseAt: make(map[string]string)}
	g.w.OnBucket(p.objectPut)
	for i := range s.steps {
		p.play(&s.steps[i])
		if g.w.Found() != nil {
			break
		}
	}
	if g.w.Found() == nil {
		// Wherever the kill struck, the last statement included.
		g.finish(g.converge(bound(g.configs[g.order[0]])))
	}
	out := ScenarioOutcome{State: g.check.State(), Classes: g.w.Classes()}
	steps := g.w.Steps()
	// Not of the script, and not cut: the world has converged.
	g.quiet()
	g.readBack()
	g.drain()
	out.Outcome = g.outcome(seed, nil)
	out.Steps = steps
	return out
}

type player struct {
	g          *game
	producers  map[string]*producer
	registered int // producers, ever
	// pauseAt are the nodes that pause once they have put their next object with that prefix.
	pauseAt map[string]string
}

func (p *player) objectPut(e *sim.BucketEffect) {
	if e.Delete || e.Inc == nil {
		return
	}
	name := e.Inc.Node().Name()
	if at := p.pauseAt[name]; at == "" || !strings.HasPrefix(e.Key, at) {
		return
	}
	delete(p.pauseAt, name)
	p.g.w.Mark("scenario/paused-at-put")
	e.Inc.Pause()
}

func (p *player) fail(st *statement, text string, args ...any) {
	p.g.w.Finding("expectation", fmt.Sprintf("line %d", st.line), fmt.Sprintf(text, args...))
}

func (p *player) play(st *statement) {
	g := p.g
	switch st.verb {
	case "start":
		for _, n := range st.args {
			g.up(n)
		}
	case "kill":
		for _, n := range st.args {
			if inc := g.w.Node(n).Current(); inc != nil {
				inc.Kill()
			}
		}
	case "drain":
		g.stopping = true
		for _, n := range st.args {
			if inc := g.w.Node(n).Current(); inc != nil {
				inc.Interrupt()
				g.w.RunUntil(func() bool { return inc.Dead() }, time.Minute)
			}
		}
		g.stopping = false
	case "pause", "resume":
		for _, n := range st.args {
			p.pauseAt[n] = pausePoints[st.opts["at"]]
			switch inc := g.w.Node(n).Current(); {
			case inc == nil || p.pauseAt[n] != "":
			case st.verb == "pause":
				inc.Pause()
			default:
				inc.Resume()
			}
		}
	case "create":
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) { g.create(ctx, c, stream, st.policy()) })
	case "append":
		for _, stream := range st.args {
			p.register(stream)
		}
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) { p.append(ctx, c, st, stream) })
	case "tick":
		d, _ := time.ParseDuration(st.args[0]) // checked when it was parsed
		g.w.RunFor(d)
	case "converge":
		if converged := g.converge(bound(g.configs[g.order[0]])); g.w.Found() == nil {
			g.finish(converged)
		}
	case "read":
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
			if err := g.readUntil(ctx, c, stream); err != nil {
				p.fail(st, "reading %s: %v", stream, err)
			}
		})
	case "trim":
		upTo, _ := strconv.ParseUint(st.args[1], 10, 64) // checked when it was parsed
		st := &statement{line: st.line, verb: st.verb, args: st.args[:1]}
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
			g.until(ctx, c, func(q *Process) bool { return g.trim(ctx, c, q, stream, upTo) == nil })
		})
	case "policy":
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) {
			g.until(ctx, c, func(q *Process) bool { return g.setPolicy(ctx, c, q, stream, st.policy()) == nil })
		})
	case "decommission":
		for _, n := range st.args {
			g.gone[n] = true
			if inc := g.w.Node(n).Current(); inc != nil {
				inc.Kill()
			}
		}
		p.together(st, func(ctx context.Context, c *sim.Client, node string) { g.retire(ctx, c, g.star(node)) })
	case "delete":
		p.together(st, func(ctx context.Context, c *sim.Client, stream string) { g.deleteStream(ctx, c, stream) })
		for _, stream := range st.args {
			delete(p.producers, stream)
		}
	case "expect":
		p.expect(st)
	}
}

// together runs f for each stream side by side, and the world until all have ended.
func (p *player) together(st *statement, f func(ctx context.Context, c *sim.Client, stream string)) {
	g := p.g
	for _, stream := range st.args {
		g.goClient("client/"+stream, func(ctx context.Context, c *sim.Client) { f(ctx, c, stream) })
	}
	if st.opts["wait"] == "no" {
		return
	}
	if r := g.w.RunUntil(func() bool { return g.clients == 0 }, time.Hour); r.Reason != sim.Reached && g.w.Found() == nil {
		p.fail(st, "%s does not end: %v", st.verb, r.Reason)
	}
}

// register makes a stream's producer, in the order of the script.
func (p *player) register(stream string) {
	if p.producers[stream] == nil {
		p.registered++
		p.producers[stream] = &producer{id: "p/" + stream, fresh: true, numbered: true, next: uint64(p.registered) << 32}
	}
}

// append sends the statement's appends to one stream, by the stream's one producer.
func (p *player) append(ctx context.Context, c *sim.Client, st *statement, stream string) {
	pr := p.producers[stream]
	pr.ago, _ = time.ParseDuration(st.opts["ago"]) // checked when it was parsed
	for i := range st.number("times", 1) {
		if after := st.opts["after"]; after != "" && i > 0 {
			d, _ := time.ParseDuration(after)
			_ = c.Clock().Sleep(ctx, d)
		}
		if !p.g.produce(ctx, c, pr, stream, st.number("records", 1), st.number("size", 50)) && p.g.w.Found() == nil {
			p.fail(st, "an append to %s has no definite outcome", stream)
		}
	}
}

func (p *player) expect(st *statement) {
	e, err := parseExpectation(st.args)
	if err != nil {
		p.fail(st, "%v", err)
		return
	}
	if text := e.judge(p.g.check); text != "" {
		p.fail(st, "%s", text)
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

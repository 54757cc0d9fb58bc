package play

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/trace"
)

// MinimizeOptions say how long and how hard a failing run is made smaller.
type MinimizeOptions struct {
	// Parallel is how many worlds run at once; at least 1.
	Parallel int
	// Schedules is how many are tried of each candidate in the last round; 0 means 128.
	Schedules int
	// Attach, if not nil, is given each world before anything happens in it.
	Attach func(*sim.World)
	// Progress, if not nil, is called now and then, by one goroutine at a time.
	Progress func(Progress)
}

// Progress tells how far a minimization has come.
type Progress struct {
	Runs  int    // worlds played
	Kept  int    // reductions that still failed
	Now   string // what is tried
	Steps int    // of the smallest so far
	Size  string // likewise
}

// Minimized is the smallest failing run that was found.
type Minimized struct {
	Saved    *Saved
	Outcome  Outcome
	From, To string // the sizes
	FromStep int    // steps of the run that it began with
	Runs     int
	Kept     []string // the reductions, in order
	// Remains describes the plan, Chance what chance did in it, a line each.
	Remains string
	Chance  []string
}

// HoldsError is what Minimize is answered of a run that does not fail.
type HoldsError struct{ Outcome Outcome }

func (*HoldsError) Error() string { return "the run holds: there is nothing to minimize" }

// Minimize makes a failing run of a seed smaller as long as it fails by the same invariant, until
// nothing more can be dropped or ctx ends: faults, clients, nodes, streams, operations, then steps. Another schedule may be
// needed for a smaller plan to fail, so several are tried of each, more in each round. In the end single decisions of
// chance are made plain: faults that were drawn and did not matter.
//
// It is delta debugging over the parts of the plan (Zeller and Hildebrandt, 2002), and over the decisions
// as Hypothesis does it (MacIver and Donaldson, 2020). The result is the least that was met, not the least there is.
func Minimize(ctx context.Context, s *Saved, opt MinimizeOptions) (*Minimized, error) {
	if s.Plan == nil {
		return nil, fmt.Errorf("it is a run of the scenario %s, which is as small as its author has made it: only the run of a seed is minimized", s.Name)
	}
	first, err := s.Play(Options{Attach: opt.Attach})
	switch {
	case err != nil:
		return nil, err
	case first.Finding == nil:
		return nil, &HoldsError{first.Outcome}
	case first.Finding.Invariant == "harness":
		return nil, fmt.Errorf("the simulator itself fails in it: %w", first.Finding)
	}
	m := &minimizer{ctx: ctx, opt: opt, invariant: first.Finding.Invariant, plan: s.Plan.clone(), decisions: s.Decisions, steps: first.Steps, faults: faultsOf(&first.Outcome)}
	m.opt.Parallel = max(opt.Parallel, 1)
	if m.opt.Schedules <= 0 {
		m.opt.Schedules = 128
	}
	from := m.plan.size().String()
	m.shrinkPlan()
	m.fewerSteps()
	m.calm()
	out := &Minimized{From: from, FromStep: first.Steps, Runs: int(m.runs.Load()), Kept: m.kept}
	var chance []string
	m.plan.names = m.plan.faultsOn()
	record := m.decisions.Replay()
	out.Saved, out.Outcome = savePlan(m.plan, "minimized from "+s.From, Options{Decisions: record, Attach: opt.Attach, Sink: func(e *sim.Event) {
		if e.Kind == sim.EvMark && trace.Fault(e.Outcome) {
			chance = append(chance, e.String())
		}
	}})
	out.Saved.Decisions = m.decisions
	if out.Outcome.Finding == nil || out.Outcome.Finding.Invariant != m.invariant || record.Left() != nil {
		return nil, fmt.Errorf("the minimized run does not play again as it did: the world is not deterministic")
	}
	out.To, out.Remains, out.Chance = m.plan.size().String(), m.plan.remains(), chance
	return out, nil
}

// minimizer holds the smallest failing run so far.
type minimizer struct {
	ctx       context.Context
	opt       MinimizeOptions
	invariant string

	plan      *plan
	decisions *sim.Decisions
	steps     int
	faults    int // that happened in it

	seed uint64 // the last that was tried
	runs atomic.Int64
	kept []string
}

// try is one run of a candidate.
type try struct {
	plan      *plan
	decisions *sim.Decisions // to follow, as far as they fit; nil: the plan's seed
	outcome   Outcome
	taken     *sim.Decisions
}

// most is how many more steps than the smallest run a candidate may take: one that goes on for long
// after that has missed the failure.
func (m *minimizer) most() int { return m.steps + m.steps/2 + 2000 }

// play runs the candidates, several at once, and returns the first in their order that still fails and that
// better accepts, or nil.
func (m *minimizer) play(tries []*try, better func(*try) bool) *try {
	for len(tries) > 0 && m.ctx.Err() == nil {
		batch := tries[:min(len(tries), m.opt.Parallel)]
		tries = tries[len(batch):]
		var wg sync.WaitGroup
		for _, t := range batch {
			wg.Go(func() { m.one(t) })
		}
		wg.Wait()
		for _, t := range batch {
			f := t.outcome.Finding
			if f != nil && f.Invariant == m.invariant && t.outcome.Steps < m.most() && better(t) {
				return t
			}
		}
	}
	return nil
}

func (m *minimizer) one(t *try) {
	m.runs.Add(1)
	d := sim.RecordDecisions()
	if t.decisions != nil {
		d = t.decisions.Bend()
	}
	t.outcome = t.plan.play(Options{Decisions: d, Attach: m.opt.Attach, MaxSteps: m.most()})
	if t.decisions != nil {
		d = d.Taken()
	}
	t.taken = d
}

func (m *minimizer) keep(t *try, what string) {
	m.plan, m.decisions, m.steps, m.faults = t.plan, t.taken, t.outcome.Steps, faultsOf(&t.outcome)
	if n := len(m.kept); n == 0 || m.kept[n-1] != what {
		m.kept = append(m.kept, what)
	}
}

func (m *minimizer) tell(what string) {
	if m.opt.Progress != nil {
		m.opt.Progress(Progress{Runs: int(m.runs.Load()), Kept: len(m.kept), Now: what, Steps: m.steps, Size: m.plan.size().String()})
	}
}

// seedsAtFirst is how many schedules are tried of each candidate in the first round; in each further one it is
// four times as many, until the last has found nothing.
const seedsAtFirst = 2

func (m *minimizer) shrinkPlan() {
	for seeds := seedsAtFirst; seeds <= m.opt.Schedules && m.ctx.Err() == nil; {
		if !m.round(seeds) {
			seeds *= 4
		}
	}
}

// round tries each reduction once, and again after it was kept.
func (m *minimizer) round(seeds int) (any bool) {
	tried := make(map[string]bool)
	for m.ctx.Err() == nil {
		r := m.next(tried)
		if r == nil {
			return any
		}
		tried[r.what] = true
		m.tell("without " + r.what)
		smaller := m.plan.clone()
		r.do(smaller)
		if !smaller.sound() {
			continue
		}
		if t := m.play(m.schedules(smaller, seeds), func(*try) bool { return true }); t != nil {
			m.keep(t, r.what)
			delete(tried, r.what)
			any = true
		}
	}
	return any
}

func (m *minimizer) next(tried map[string]bool) *reduction {
	for _, r := range m.plan.reductions() {
		if !tried[r.what] {
			return &r
		}
	}
	return nil
}

// schedules are so many runs of the plan: one that follows what the smallest run decided, as far
// as that fits, and others of new seeds.
func (m *minimizer) schedules(p *plan, n int) []*try {
	out := []*try{{plan: p, decisions: m.decisions}}
	for range n - 1 {
		m.seed++
		q := p.clone()
		q.config.Seed = m.seed
		out = append(out, &try{plan: q})
	}
	return out
}

// fewerSteps looks for a schedule of the plan that fails sooner.
func (m *minimizer) fewerSteps() {
	for m.ctx.Err() == nil {
		m.tell("fewer steps")
		// Worth it only if it is clearly less: 1 in 16.
		t := m.play(m.schedules(m.plan, min(64, m.opt.Schedules)), func(t *try) bool { return t.outcome.Steps < m.steps-m.steps/16 })
		if t == nil {
			return
		}
		m.keep(t, "steps")
	}
}

// calm makes decisions plain that need not be as they are: chunks of each stream, halved down to single ones. What is kept
// has fewer faults that happened, or as many in fewer steps, or is as plain in all else.
func (m *minimizer) calm() {
	for _, label := range m.decisions.Streams() {
		if strings.HasPrefix(label, "rand/") {
			continue // what nodes draw themselves: nonces, of which no two may be equal
		}
		for chunk := m.decisions.Len(label); chunk >= 1 && m.ctx.Err() == nil; chunk /= 2 {
			if chunk < 64 && m.decisions.Len(label)/chunk > 512 {
				break // one by one it would take longer than it is worth
			}
			for at := 0; at < m.decisions.Len(label) && m.ctx.Err() == nil; {
				m.tell("calmer " + label)
				var tries []*try
				for len(tries) < m.opt.Parallel && at < m.decisions.Len(label) {
					if d, ok := m.decisions.Calmed(label, at, at+chunk); ok {
						tries = append(tries, &try{plan: m.plan, decisions: d})
					}
					at += chunk
				}
				if t := m.play(tries, m.calmer); t != nil {
					m.keep(t, "chance in "+label)
				}
			}
		}
	}
}

func (m *minimizer) calmer(t *try) bool {
	n := faultsOf(&t.outcome)
	return n < m.faults && t.outcome.Steps <= m.steps || n == m.faults && t.outcome.Steps <= m.steps
}

// faultsOf is how many faults happened in a run, by its marks.
func faultsOf(o *Outcome) int {
	n := 0
	for name, hits := range o.Marks {
		if trace.Fault(name) {
			n += hits
		}
	}
	return n
}

package play

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// Outcome is what became of a run.
type Outcome struct {
	Seed    uint64
	Finding *sim.Finding
	Steps   int
	Virtual time.Duration
	Hash    uint64
	Faults  []string
	Marks   sim.Marks
	// Plan is what the seed drew before its world began, for people; empty of a scenario.
	Plan string
}

// Options of a run.
type Options struct {
	// Sink is given every event of the trace.
	Sink func(*sim.Event)
	// Attach, if not nil, is given the world before anything happens in it.
	Attach func(*sim.World)
	// Decisions, if not nil, are written down, or followed instead of the seed.
	Decisions *sim.Decisions
	// MaxSteps, if above 0, ends the run after so many steps.
	MaxSteps int
	// Short, if above 0, ends the run of a seed after so many steps, or where its phase with faults ends: what has held until
	// then is its verdict.
	Short int
}

func (o *Options) attach(w *sim.World) {
	if o.Attach != nil {
		o.Attach(w)
	}
}

// safetyMost bounds the virtual time of the phase with faults.
const safetyMost = 10 * time.Minute

// Seed runs one seed: a world, its nodes and clients, under the faults that the seed draws; then
// without faults until it has converged; then everything is read back, and the nodes drain.
func Seed(seed uint64, opt Options) Outcome {
	p := draw(seed)
	return p.play(opt)
}

// play runs the plan as it is. What it has not fixed is drawn from the plan's seed, or from the decisions
// of opt.
func (p *plan) play(opt Options) Outcome {
	cfg := p.config
	cfg.Sink, cfg.Decisions = opt.Sink, opt.Decisions
	if opt.MaxSteps > 0 {
		cfg.MaxSteps = opt.MaxSteps
	}
	if opt.Short > 0 {
		cfg.MaxSteps = opt.Short
	}
	g := newGame(cfg)
	defer g.w.Close()
	opt.attach(g.w)
	g.backdateMost = p.lives.backdate
	for i, n := range p.nodes {
		g.configure(n)
		g.w.Node(n.Name).SetClock(p.skews[i], p.drifts[i])
	}
	for i, name := range g.order {
		g.join(name, p.joins[i])
	}
	for i, wp := range p.writers {
		g.goClient(fmt.Sprintf("w%d", i), func(ctx context.Context, c *sim.Client) { g.write(ctx, c, p, wp) })
	}
	for i := range p.readers {
		g.goClient(fmt.Sprintf("r%d", i), func(ctx context.Context, c *sim.Client) {
			pause, rounds := 2*time.Second, 40
			if p.readPause > 0 {
				pause, rounds = p.readPause, 200
			}
			g.read(ctx, c, p.streams, rounds, pause)
		})
	}
	if p.looks > 0 {
		g.goClient("operator", func(ctx context.Context, c *sim.Client) { g.operate(ctx, c, p.streams, p.looks, 2*time.Second) })
	}
	if p.retired != "" {
		g.goClient("decommission", func(ctx context.Context, c *sim.Client) {
			_ = c.Clock().Sleep(ctx, p.retiredAt)
			g.decommission(ctx, c, p.retired)
		})
	}
	if p.stall > 0 {
		g.stall(p.stall, p.nodes[0].Timing.OrphanGrace)
	}
	if p.lives.rounds > 0 {
		g.goClient("lives", func(ctx context.Context, c *sim.Client) { g.live(ctx, c, p) })
	}
	if p.chaos.every > 0 {
		g.chaos(p.chaos)
	}
	g.w.RunUntil(func() bool { return g.clients == 0 }, safetyMost)
	if opt.Short > 0 {
		return g.outcome(cfg.Seed, p.names)
	}
	if p.sleep > 0 && g.clients == 0 {
		g.sleepThrough(p)
	}
	if !p.garbage { // which it finds, until the auditor has discarded it
		g.verify() // in the middle of everything
	}
	converged := false
	if g.w.Found() == nil {
		g.chaosOver = true
		g.w.DropKills()
		converged = g.converge(bound(p.nodes[0]))
		g.finish(converged)
	}
	if converged {
		g.quiet()
		g.readBack()
		g.drain()
		g.verify()
	}
	history := g.judgeHistories()
	o := g.outcome(cfg.Seed, p.names)
	o.Plan = p.String() + history
	return o
}

// bound is how long a world may take to converge: every grace and re-arm several times over, and long backlogs on a bucket
// of seconds a call, which seeds 10308 and 18794 have.
func bound(n NodeConfig) time.Duration {
	t := n.Timing
	return 40*time.Minute + 10*(t.SettleRecheck+t.TrimGrace+t.RetireGrace+t.ReapGrace+t.SettleAgeCap+t.JobDeadline) + 3*t.OrphanGrace
}

// judgeHistories judges what clients were told, in a share of the runs and in each that has failed; it returns
// a line about it for the report of another finding.
func (g *game) judgeHistories() string {
	// Drawn as all else is, so that a saved run, which has no seed, is judged as it was.
	if g.w.Found() == nil && g.w.Stream("histories").N(4) != 0 {
		return ""
	}
	return g.judge()
}

// judge is judgeHistories in every run.
func (g *game) judge() string {
	failed := g.w.Found() != nil
	g.w.Mark("check/histories")
	stream, text, undecided := g.histories.Judge()
	if undecided > 0 {
		g.w.Mark("check/histories-undecided")
	}
	switch {
	case text == "":
		return "  clients: what they were told is what a log of its own for each stream could have told them\n"
	case failed:
		return "  clients: " + text + "\n"
	default:
		g.w.Finding(check.Lost, stream, text)
		return ""
	}
}

func (g *game) outcome(seed uint64, faults []string) Outcome {
	return Outcome{Seed: seed, Finding: g.w.Found(), Steps: g.w.Steps(), Virtual: g.w.Elapsed(),
		Hash: g.w.Hash(), Faults: faults, Marks: g.w.Marks()}
}

package play

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nova-store/nova/sim"
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
	g := newGame(cfg)
	defer g.w.Close()
	opt.attach(g.w)
	g.backdateMost = p.lives.backdate
	for i, n := range p.nodes {
		g.configure(n)
		g.w.Node(n.Name).SetClock(p.skews[i], p.drifts[i])
	}
	for _, name := range g.order {
		g.up(name)
	}
	for i, wp := range p.writers {
		g.goClient(fmt.Sprintf("w%d", i), func(ctx context.Context, c *sim.Client) { g.write(ctx, c, p, wp) })
	}
	for i := range p.readers {
		g.goClient(fmt.Sprintf("r%d", i), func(ctx context.Context, c *sim.Client) {
			g.read(ctx, c, p.streams, 40, 2*time.Second)
		})
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
	if !p.garbage { // which it finds, until the auditor has discarded it
		g.verify() // in the middle of everything
	}
	converged := false
	if g.w.Found() == nil {
		g.chaosOver = true
		converged = g.converge(bound(p.nodes[0]))
		g.finish(converged)
	}
	if converged {
		g.quiet()
		g.readBack()
		g.drain()
		g.verify()
	}
	o := g.outcome(cfg.Seed, p.names)
	o.Plan = p.String()
	return o
}

// bound is how long a world may take to converge: every grace and re-arm several times over.
func bound(n NodeConfig) time.Duration {
	t := n.Timing
	return 10*time.Minute + 10*(t.SettleRecheck+t.TrimGrace+t.RetireGrace+t.ReapGrace+t.SettleAgeCap+t.JobDeadline) + 3*t.OrphanGrace
}

func (g *game) outcome(seed uint64, faults []string) Outcome {
	return Outcome{Seed: seed, Finding: g.w.Found(), Steps: g.w.Steps(), Virtual: g.w.Elapsed(),
		Hash: g.w.Hash(), Faults: faults, Marks: g.w.Marks()}
}

// stall has a node stop, now and then, between the PUT of a settled object and the commit that
// would name it, for about as long as an orphan may grow old.
func (g *game) stall(chance float64, grace time.Duration) {
	r := g.w.Stream("stall")
	g.w.OnBucket(func(e *sim.BucketEffect) {
		if e.Delete || e.Inc == nil || e.Inc.Dead() || g.chaosOver || !strings.HasPrefix(e.Key, "settled/") || !r.Chance(chance) {
			return
		}
		g.w.Mark("chaos/stall")
		inc := e.Inc
		inc.Pause()
		g.w.At(grace+r.Between(0, grace), inc.Resume)
	})
}

// chaos starts what befalls the nodes while clients work.
func (g *game) chaos(c chaosPlan) {
	r := g.w.Topology()
	client := g.w.Client("chaos")
	client.Go(func(ctx context.Context) {
		for g.clients > 0 && !g.chaosOver && g.w.Found() == nil {
			if client.Clock().Sleep(ctx, r.Between(c.every/2, c.every)) != nil || g.chaosOver {
				return
			}
			name := g.order[r.N(len(g.order))]
			node := g.w.Node(name)
			inc := node.Current()
			if inc == nil {
				continue
			}
			switch {
			case r.Chance(c.kill):
				g.w.Mark("chaos/kill")
				inc.Kill()
				g.restartAfter(name, r.Between(0, c.down))
			case r.Chance(c.drain):
				g.w.Mark("chaos/drain")
				inc.Interrupt()
			case r.Chance(c.pause):
				g.w.Mark("chaos/pause")
				inc.Pause()
				g.w.At(r.Between(0, 2*c.down), func() { inc.Resume() })
			case r.Chance(c.cut):
				g.w.Mark("chaos/partition")
				node.Partition(r.Chance(0.5), r.Chance(0.5), r.Chance(0.3))
				g.w.At(r.Between(0, c.down), func() { node.Partition(false, false, false) })
			case r.Chance(c.clock):
				g.w.Mark("chaos/clock-step")
				node.SetClock(r.Between(-c.skew, c.skew), 0)
			case r.Chance(c.outage):
				g.w.Mark("chaos/outage")
				g.w.SetOutage(r.Chance(0.5), r.Chance(0.5))
				g.w.At(r.Between(0, c.down), func() { g.w.SetOutage(false, false) })
			case r.Chance(c.expire):
				if id := g.w.StoreView().Session("cluster/routes/" + name); id != 0 {
					g.w.Mark("chaos/expire")
					g.w.ExpireSession(id)
				}
			}
		}
	})
}

package play

import (
	"context"
	"strings"
	"time"

	"github.com/nova-store/nova/sim"
)

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
				g.killSomehow(r, name, c.down)
			case r.Chance(c.drain):
				g.w.Mark("chaos/drain")
				inc.Interrupt()
			case r.Chance(c.pause):
				g.w.Mark("chaos/pause")
				inc.Pause()
				g.w.At(r.Between(0, c.pauseMost), func() { inc.Resume() })
			case r.Chance(c.cut):
				g.w.Mark("chaos/partition")
				node.Partition(r.Chance(0.5), r.Chance(0.5), r.Chance(0.3))
				g.w.At(r.Between(0, c.down), func() { node.Partition(false, false, false) })
			case r.Chance(c.clock):
				g.w.Mark("chaos/clock-step")
				node.SetClock(r.Between(-c.skew, c.skew), 0)
			case r.Chance(c.leave):
				g.leave(r, name, c.down)
			case r.Chance(c.storm):
				g.storm(r, c.down)
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

// killSomehow kills the node now, or whoever issues a step that is soon to come, before or after its effect, and
// perhaps once more while it recovers.
func (g *game) killSomehow(r *sim.Rand, name string, down time.Duration) {
	if r.N(3) == 0 {
		g.w.Mark("chaos/kill")
		g.w.Node(name).Current().Kill()
		g.restartAfter(name, r.Between(0, down))
		return
	}
	again := r.N(3) == 0
	g.killAtStep(r, 400, func(inc *sim.Incarnation) {
		g.restartAfter(inc.Node().Name(), r.Between(0, down/4))
		if again && !g.chaosOver {
			g.w.Mark("chaos/kill-again")
			g.killAtStep(r, 150, func(inc *sim.Incarnation) { g.restartAfter(inc.Node().Name(), r.Between(0, down/4)) })
		}
	})
}

// killAtStep plans the death of whoever issues one of the next so many steps.
func (g *game) killAtStep(r *sim.Rand, within int, then func(*sim.Incarnation)) {
	side := sim.Side(r.N(2))
	g.w.KillAt(sim.Kill{Step: g.w.Steps() + 1 + r.N(within), Side: side, Drawn: true, Then: func(inc *sim.Incarnation) {
		g.w.Mark("chaos/kill-" + side.String())
		then(inc)
	}})
}

// join starts a node, at once or as one that comes later.
func (g *game) join(name string, in time.Duration) {
	if in == 0 {
		g.up(name)
		return
	}
	g.away[name] = true
	g.w.At(in, func() {
		g.away[name] = false
		if g.w.Found() == nil {
			g.w.Mark("chaos/join")
			g.up(name)
		}
	})
}

// leave has a node drain, or die, and stay away for much longer than a restart takes, so that others take over what was its.
func (g *game) leave(r *sim.Rand, name string, down time.Duration) {
	if g.away[name] {
		return
	}
	g.w.Mark("chaos/leave")
	g.join(name, time.Second+r.Between(down, 10*down))
	if inc := g.w.Node(name).Current(); r.Chance(0.5) {
		inc.Interrupt()
	} else {
		inc.Kill()
	}
}

// storm is a time in which half of all commits are on their way for long, so that they conflict, or in which the
// bucket refuses most of what it is asked.
func (g *game) storm(r *sim.Rand, most time.Duration) {
	if g.storming || g.chaosOver {
		return
	}
	g.storming = true
	before := g.w.Faults()
	f := before
	if r.Chance(0.5) {
		g.w.Mark("chaos/conflict-storm")
		f.CommitSlow, f.CommitSlowMax = 0.5, r.Between(20*time.Millisecond, 2*time.Second)
	} else {
		g.w.Mark("chaos/throttle-storm")
		f.BucketThrottle = 0.7
	}
	g.w.SetFaults(f)
	g.w.At(r.Between(0, most), func() {
		g.storming = false
		if !g.chaosOver {
			g.w.SetFaults(before)
		}
	})
}

// sleepThrough stops every process, one way or another, lets hours or months pass, which costs nothing since nobody does
// anything, and begins again with a few clients.
func (g *game) sleepThrough(p *plan) {
	r := g.w.Stream("sleep")
	g.w.DropKills()
	g.stopping, g.asleep = true, true
	for _, name := range g.order {
		switch inc := g.w.Node(name).Current(); {
		case inc == nil:
		case r.Chance(0.5) && !inc.Paused():
			inc.Interrupt()
		default:
			inc.Kill()
		}
	}
	g.w.RunFor(time.Minute)
	for _, name := range g.order {
		if inc := g.w.Node(name).Current(); inc != nil {
			inc.Kill()
		}
		g.w.Node(name).SetClock(g.w.Node(name).Skew(), 0) // what sets clocks works, or it would be off by minutes
	}
	g.w.RunFor(p.sleep)
	g.w.Mark("chaos/slept")
	g.stopping, g.asleep = false, false
	for _, name := range g.order {
		g.up(name)
	}
	for i, wp := range p.writers[:min(len(p.writers), 2)] {
		wp.appends = min(wp.appends, 6)
		wp.kind = min(wp.kind, writeExpecting)
		g.goClient("after"+string(rune('0'+i)), func(ctx context.Context, c *sim.Client) { g.write(ctx, c, p, wp) })
	}
	g.w.RunUntil(func() bool { return g.clients == 0 }, safetyMost)
}

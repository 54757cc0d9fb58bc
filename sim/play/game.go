package play

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// game is one world with its nodes, clients and checker.
type game struct {
	w         *sim.World
	check     *check.Checker
	processes map[string]*Process
	configs   map[string]NodeConfig
	order     []string         // nodes in the order in which they were configured
	nextID    uint64           // of appends
	deletions map[string]lives // of streams, by name
	histories *check.Histories // of clients
	gone      map[string]bool  // nodes that are not started again: their star is decommissioned
	away      map[string]bool  // nodes that stay away for now
	storming  bool             // see storm
	asleep    bool             // nobody is started, see sleepThrough
	downed    map[string]bool  // nodes that a cut keeps down for a while
	// Records say that they are up to so old: timestamps are whatever a producer says.
	backdate     *sim.Rand
	backdateMost time.Duration
	clients      int // client tasks that have not ended
	chaosOver    bool
	stopping     bool // processes that exit are not started again
	over         bool // nor those that died
}

func newGame(cfg sim.Config) *game {
	w := sim.New(cfg)
	g := &game{w: w, check: check.New(w), histories: check.NewHistories(), processes: make(map[string]*Process), configs: make(map[string]NodeConfig), deletions: make(map[string]lives), gone: make(map[string]bool), away: make(map[string]bool), downed: make(map[string]bool),
		backdate: w.Stream("backdate")}
	w.OnKill(func(inc *sim.Incarnation) {
		// What stopped cleanly is started again, as a supervisor does.
		if inc.Exited() && !g.stopping {
			g.restartAfter(inc.Node().Name(), 500*time.Millisecond)
		}
	})
	return g
}

func (g *game) configure(cfg NodeConfig) {
	if _, ok := g.configs[cfg.Name]; !ok {
		g.order = append(g.order, cfg.Name)
	}
	g.configs[cfg.Name] = cfg
	g.check.Assume(cfg.Timing)
	g.check.AssumeGC(cmp.Or(cfg.GCMinDeadBytes, 1<<20), cmp.Or(cfg.GCMinDeadRatio, 0.5))
}

// up makes the node run, if it does not. A process that was replaced by another of
// the same star stays down once faults are over, or the two would go on for ever.
func (g *game) up(name string) {
	node := g.w.Node(name)
	switch inc := node.Current(); {
	case inc == nil && (g.gone[name] || g.downed[name] || g.asleep || g.away[name] && !g.chaosOver):
	case inc == nil && g.chaosOver && g.processes[name] != nil && g.processes[name].replaced:
	case inc == nil:
		if g.w.Embedded() && g.alive() != "" {
			return
		}
		g.boot(g.configs[name])
	case inc.Paused():
		inc.Resume()
	}
}

// alive returns a node whose process lives, or "".
func (g *game) alive() string {
	for _, name := range g.order {
		if g.w.Node(name).Current() != nil {
			return name
		}
	}
	return ""
}

// restartAfter starts the node again after a while, should nobody else have.
func (g *game) restartAfter(name string, d time.Duration) {
	g.w.At(d, func() {
		if g.w.Found() == nil && !g.over {
			g.up(name)
		}
	})
}

// serving returns a process that serves, tried in an order that begins at pick.
func (g *game) serving(pick int) *Process {
	n := len(g.order)
	for i := range n {
		name := g.order[(pick+i)%n]
		p := g.processes[name]
		if p != nil && p.Star != nil && !p.Inc.Dead() && !p.Inc.Paused() {
			return p
		}
	}
	return nil
}

// stars returns the names of the nodes whose process serves at this moment.
func (g *game) stars() []string {
	var out []string
	for _, name := range g.order {
		if p := g.processes[name]; p != nil && g.configs[name].Serve && !p.Inc.Dead() && !p.replaced {
			out = append(out, g.star(name))
		}
	}
	return out
}

func (g *game) star(node string) string {
	cfg := g.configs[node]
	return cfg.star()
}

// converge lets time pass without faults until nothing is left to do, for at most so
// long, and tells whether that was reached. Nodes that died are started again.
func (g *game) converge(most time.Duration) bool {
	g.w.StopFaults()
	for _, name := range g.order {
		g.w.Node(name).SetClock(g.w.Node(name).Skew(), 0)
	}
	for spent, next := time.Duration(0), look; spent < most; spent, next = spent+next, max(look, spent/64) {
		for _, name := range g.order {
			g.up(name)
		}
		if r := g.w.RunFor(next); r.Reason != sim.TimeUp && r.Reason != sim.Idle {
			return false
		}
		if g.clients == 0 && g.unsettled() == "" {
			return true
		}
	}
	return false
}

// unsettled returns what keeps the world from having converged, or "": a commit or a put that may yet come is work to be.
func (g *game) unsettled() string {
	if n := g.w.Pending(); n > 0 {
		return fmt.Sprintf("%d calls are on their way for which nobody waits", n)
	}
	return g.check.Unsettled(g.stars())
}

// finish judges a world that should have converged, and whose clients should have ended.
func (g *game) finish(converged bool) {
	g.check.Finish(g.stars())
	if !converged && g.w.Found() == nil {
		g.w.Finding(check.Convergence, "clients", fmt.Sprintf("%d client tasks have not had their answers, long after faults have stopped", g.clients))
	}
}

// look is how often the liveness phase asks whether the world has converged, while it is young.
const look = 2 * time.Second

// goClient starts a task of the harness that counts as a client until it returns.
func (g *game) goClient(name string, f func(ctx context.Context, c *sim.Client)) {
	c := g.w.Client(name)
	g.clients++
	c.Go(func(ctx context.Context) {
		f(ctx, c)
		g.clients--
	})
}

// readBack reads every stream through a living star, and compares it, offset by
// offset, with what was absorbed. It runs the world until that is done.
func (g *game) readBack() {
	if g.serving(0) == nil || g.w.Found() != nil {
		return
	}
	names := slices.Sorted(maps.Keys(g.check.State()))
	done := false
	g.w.Client("read-back").Go(func(ctx context.Context) {
		c := g.w.Client("read-back")
		for i, name := range names {
			// By each of the stars in turn: all see the same.
			if err := g.readAll(ctx, c, g.serving(i), name); err != nil {
				g.w.Finding(check.Lost, name, fmt.Sprintf("reading back stream %q: %v", name, err))
			}
		}
		done = true
	})
	if r := g.w.RunUntil(func() bool { return done }, time.Hour); r.Reason != sim.Reached && g.w.Found() == nil {
		g.w.Finding(check.Convergence, "read-back", "reading back did not end: "+r.Reason.String())
	}
}

// drain stops every process as a signal does, and lets it exit.
func (g *game) drain() {
	if g.w.Found() != nil {
		return
	}
	g.stopping, g.over = true, true
	for _, name := range g.order {
		if inc := g.w.Node(name).Current(); inc != nil {
			inc.Interrupt()
		}
	}
	if r := g.w.RunUntil(func() bool { return g.alive() == "" }, 10*time.Minute); r.Reason != sim.Reached && g.w.Found() == nil {
		name := g.alive()
		g.w.Finding(check.Convergence, name, fmt.Sprintf("a drained process does not exit (%s): %v", r.Reason, g.w.Node(name).Current().TaskNames()))
	}
}

package play

import (
	"fmt"
	"slices"
	"time"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/sim/check"
)

// quiet judges a world that has converged, in which nobody asks for anything and all nodes stay as
// they are: invariants 5 and 9.
func (g *game) quiet() {
	if g.w.Found() != nil {
		return
	}
	// Announcements of the dead end with their sessions; then a pass of each member reads the roster.
	most := time.Minute
	for _, name := range g.order {
		cfg := g.configs[name]
		most += 3*cfg.Timing.SessionTTL + 3*cfg.IdleInterval
	}
	r := g.w.RunUntil(func() bool { return g.seats() == "" }, most)
	switch {
	case g.w.Found() != nil:
		return
	case r.Reason != sim.Reached:
		g.w.Finding(check.Seats, "ring", fmt.Sprintf("%v after the last change of the roster: %s", most, g.seats()))
		return
	}
	g.idle()
}

// members are the auditors of living processes, by the names that they are announced with.
func (g *game) members() (names []string, of map[string]*auditor.Auditor) {
	of = make(map[string]*auditor.Auditor)
	for _, name := range g.order {
		if p := g.processes[name]; p != nil && p.Auditor != nil && !p.Inc.Dead() && !p.Inc.Paused() {
			names = append(names, name)
			of[name] = p.Auditor
		}
	}
	slices.Sort(names)
	return names, of
}

// seats says what is wrong with the seats that the ring has dealt, or "": every member sees
// the same roster, every shard has one owner, and every star with a chain one seat.
func (g *game) seats() string {
	names, of := g.members()
	if len(names) == 0 {
		return ""
	}
	owners := make([]string, catalog.Shards)
	placed := make(map[string]string)
	for _, name := range names {
		seat := of[name].Seat()
		if !slices.Equal(seat.Members, names) {
			return fmt.Sprintf("%s takes %v for the roster, which is %v", name, seat.Members, names)
		}
		for _, shard := range seat.Shards {
			if owners[shard] != "" {
				return fmt.Sprintf("shard %02x belongs to %s and to %s", shard, owners[shard], name)
			}
			owners[shard] = name
		}
		for _, star := range seat.Stars {
			if placed[star] != "" {
				return fmt.Sprintf("the chains of star %s are placed at %s and at %s", star, placed[star], name)
			}
			placed[star] = name
		}
	}
	if shard := slices.Index(owners, ""); shard >= 0 {
		return fmt.Sprintf("shard %02x belongs to nobody", shard)
	}
	for _, star := range g.check.ChainStars() {
		if placed[star] == "" {
			return fmt.Sprintf("the chains of star %s are placed nowhere", star)
		}
	}
	return ""
}

const (
	// idlePasses is for how many passes of each member idle watches, idleLeast for how long at least.
	idlePasses = 4
	idleLeast  = 3 * catalog.MinRearm
	// idleTries is how often idle watches again, since a policy's time had come, a star minted anew or a cut killed one. Stars that mint more
	// often than that do it without an end.
	idleTries = 50
)

// idle is invariant 9 at its plainest: where no work is armed, none is armed but by policy, and what a pass asks of the store is
// bounded by a constant, whatever streams, objects and retired chains there are, and of the
// bucket it asks nothing. It is also that a world that has converged stays so: work that arms work
// for ever is found here.
func (g *game) idle() {
	names, _ := g.members()
	d := idleLeast
	for _, name := range names {
		cfg := g.configs[name]
		d = max(d, idlePasses*cfg.IdleInterval)
	}
	early, policies := make(map[catalog.StreamID]bool), false
	for range idleTries {
		if most := bound(g.configs[g.order[0]]); g.unsettled() != "" && !g.converge(most) {
			if g.w.Found() == nil {
				g.w.Finding(check.Convergence, "idle", fmt.Sprintf("work without an end: %s", g.unsettled()))
			}
			return
		}
		before, armed, running, chains := make(map[string]asked), g.check.Armed(), g.running(), g.check.StandingChains()
		for _, name := range names {
			before[name] = g.asked(name)
		}
		explained := g.check.Explains(g.w.Time().Add(d), early)
		if r := g.w.RunFor(d); r.Reason != sim.TimeUp && r.Reason != sim.Idle {
			return
		}
		left := g.unsettled()
		if !slices.Equal(running, g.running()) {
			continue // a cut killed one
		}
		if !slices.Equal(chains, g.check.StandingChains()) {
			continue // a star found that its session had ended, and minted anew: seed 202612020426
		}
		if n := g.check.Armed() - armed; !explained && (n > 0 || left != "") {
			g.w.Finding(check.Cost, "idle", fmt.Sprintf("in %v in which nobody asked for anything, and nothing was to expire, %d markers were armed, the last %s; %s", d, n, g.check.LastArmed(), left))
			return
		} else if n > 0 || left != "" {
			policies = true // whose time has come: that is work
			continue
		}
		for _, name := range names {
			g.idled(name, d, before[name])
		}
		g.w.Mark("quiet/judged")
		return
	}
	if policies {
		return // spans may expire one by one for longer than anybody watches
	}
	g.w.Finding(check.Cost, "idle", fmt.Sprintf("%d times, each of %v, something was done in a world in which nobody asks for anything", idleTries, d))
}

// running are the incarnations of the nodes, nil of one that is down.
func (g *game) running() []*sim.Incarnation {
	out := make([]*sim.Incarnation, len(g.order))
	for i, name := range g.order {
		out[i] = g.w.Node(name).Current()
	}
	return out
}

// idled judges what a node has asked for in d without work.
func (g *game) idled(name string, d time.Duration, before asked) {
	cfg, spent := g.configs[name], g.asked(name)
	store, bucket := spent.store-before.store, spent.bucket-before.bucket
	if most := g.idleMost(&cfg, d); store > most {
		g.w.Finding(check.Cost, name, fmt.Sprintf("in %v without work it asked the store %d times; what idle passes need comes to %d at most", d, store, most))
	}
	if bucket > 0 {
		g.w.Finding(check.Cost, name, fmt.Sprintf("in %v without work it asked the bucket %d times", d, bucket))
	}
}

// idleMost bounds the calls that a node needs in d when it has nothing to do: in a pass the roster, the stars and a
// look at the front of each queue's shards, as many a call as the store takes; two sessions, a route and the node's stats
// kept alive; and a look at each live chain now and then. Streams and objects do not enter.
func (g *game) idleMost(cfg *NodeConfig, d time.Duration) int {
	ranges := len(catalog.Queues()) * catalog.Shards
	ops := g.w.MaxOps()
	pass := (ranges+ops-1)/ops + 8
	passes := int(d/cfg.IdleInterval) + 2
	looks := g.check.Chains() * (int(d/catalog.MinRearm) + 2)
	kept := 6 * (int(d/(cfg.Timing.SessionTTL/3)) + 2)
	return passes*pass + 12*looks + kept + 20
}

type asked struct{ store, bucket int }

// asked is how many calls a node has made of its dependencies.
func (g *game) asked(name string) asked {
	n := g.w.Node(name)
	a := asked{}
	for _, op := range []sim.Op{sim.OpGet, sim.OpScan, sim.OpPeek, sim.OpCommit} {
		a.store += n.Ops(op)
	}
	for _, op := range []sim.Op{sim.OpBucketPut, sim.OpBucketGet, sim.OpBucketStat, sim.OpBucketDelete, sim.OpBucketList} {
		a.bucket += n.Ops(op)
	}
	return a
}

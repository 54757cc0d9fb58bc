package play

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// reduction is one way to make a plan smaller.
type reduction struct {
	what string // names it, also for people
	do   func(p *plan)
}

// size is how much a plan makes happen. Smaller ones are easier to understand.
type size struct{ faults, clients, operations, nodes, streams int }

func (p *plan) size() size {
	n := size{nodes: len(p.nodes), clients: len(p.writers) + p.readers, streams: len(p.streams)}
	for i := range p.writers {
		n.operations += p.writers[i].appends * max(p.writers[i].burst, 1)
	}
	if p.looks > 0 {
		n.clients++
		n.operations += p.looks
	}
	if p.lives.rounds > 0 {
		n.clients++
		n.operations += p.lives.rounds
	}
	n.faults = len(p.faultsOn())
	return n
}

func (n size) String() string {
	return fmt.Sprintf("%s, %s, %s, %s, %s", count(n.faults, "fault"), count(n.clients, "client"), count(n.operations, "operation"),
		count(n.streams, "stream"), count(n.nodes, "node"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// faultsOn returns the names of what can go wrong in the plan, with their strength.
func (p *plan) faultsOn() []string {
	var on []string
	f := reflect.ValueOf(p.config.Faults)
	for i := range f.NumField() {
		if v := f.Field(i); v.Kind() == reflect.Float64 && v.Float() > 0 {
			on = append(on, fmt.Sprintf("%s %.4g", f.Type().Field(i).Name, v.Float()))
		}
	}
	if p.chaos.every > 0 {
		for _, c := range p.chaos.fields() {
			if v, ok := c.at.(*float64); ok && *v > 0 {
				on = append(on, fmt.Sprintf("%s %.4g", c.name, *v))
			}
		}
	}
	if p.stall > 0 {
		on = append(on, fmt.Sprintf("stalled publishers %.4g", p.stall))
	}
	if p.sleep > 0 {
		on = append(on, fmt.Sprintf("all asleep for %v", p.sleep))
	}
	if p.garbage {
		on = append(on, "unreadable markers")
	}
	if p.retired != "" {
		on = append(on, "decommission of "+p.retired)
	}
	return on
}

// sound tells whether the plan is one that must hold: a node must serve and one audit, or a world
// would fail for want of them, and not by what is looked for.
func (p *plan) sound() bool {
	serve, audit := false, false
	for i := range p.nodes {
		n := &p.nodes[i]
		serve = serve || n.Serve && n.Name != p.retired
		audit = audit || n.Audit && n.Name != p.retired
	}
	return serve && audit && len(p.streams) > 0
}

// reductions lists what could be taken from the plan: the most at once first.
func (p *plan) reductions() []reduction {
	var out []reduction
	add := func(applies bool, what string, do func(*plan)) {
		if applies {
			out = append(out, reduction{what, do})
		}
	}
	f := &p.config.Faults
	plain := sim.Faults{StoreLatency: f.StoreLatency, BucketLatency: f.BucketLatency, NetLatency: f.NetLatency}
	add(*f != plain, "all faults of store, bucket and network", func(p *plan) { p.config.Faults = plain })
	add(p.chaos.every > 0, "all chaos", func(p *plan) { p.chaos = chaosPlan{} })
	add(p.lives.rounds > 0, "all that befalls streams", func(p *plan) { p.lives = livesPlan{policies: p.lives.policies} })
	add(p.readers > 0, "readers", func(p *plan) { p.readers = 0 })
	add(p.looks > 0, "the operator", func(p *plan) { p.looks = 0 })
	add(p.retired != "", "the decommission", func(p *plan) { p.retired, p.retiredAt = "", 0 })
	add(p.garbage, "unreadable markers", func(p *plan) { p.garbage = false })
	add(p.stall > 0, "stalled publishers", func(p *plan) { p.stall = 0 })
	add(p.sleep > 0, "the sleep", func(p *plan) { p.sleep = 0 })
	add(slices.ContainsFunc(p.joins, func(d time.Duration) bool { return d > 0 }), "late joins", func(p *plan) { clear(p.joins) })
	add(p.lives.backdate > 0, "old timestamps", func(p *plan) { p.lives.backdate = 0 })
	add(slices.ContainsFunc(p.lives.policies, func(q catalog.Policy) bool { return q != catalog.Policy{} }), "policies at creation",
		func(p *plan) { p.lives.policies = nil })
	p.reduceLists(add)
	p.reduceFaults(add)
	p.reduceLives(add)
	p.reduceWriters(add)
	p.reduceSettings(add)
	return out
}

type adder func(applies bool, what string, do func(*plan))

// reduceLists drops clients, nodes and streams.
func (p *plan) reduceLists(add adder) {
	for i := range p.writers {
		add(len(p.writers) > 1, fmt.Sprintf("all writers but %d", i), func(p *plan) { p.writers = p.writers[i : i+1] })
	}
	for i := range p.writers {
		add(len(p.writers) > 2, fmt.Sprintf("writer %d", i), func(p *plan) { p.writers = slices.Delete(p.writers, i, i+1) })
	}
	for i := range p.nodes {
		add(len(p.nodes) > 1, fmt.Sprintf("all nodes but %d", i), func(p *plan) { p.keepNodes(func(j int) bool { return j == i }) })
	}
	for i := range p.nodes {
		add(len(p.nodes) > 2, fmt.Sprintf("node %d", i), func(p *plan) { p.keepNodes(func(j int) bool { return j != i }) })
	}
	n := len(p.streams)
	for i := range min(n, 6) {
		add(n > 1, fmt.Sprintf("all streams but %d", i), func(p *plan) { p.keepStreams(func(j int) bool { return j == i }) })
	}
	add(n > 3, "the second half of the streams", func(p *plan) { p.keepStreams(func(j int) bool { return j < n/2 }) })
	add(n > 3, "the first half of the streams", func(p *plan) { p.keepStreams(func(j int) bool { return j >= n/2 }) })
	for i := range n {
		add(n > 2, fmt.Sprintf("stream %d", i), func(p *plan) { p.keepStreams(func(j int) bool { return j != i }) })
	}
}

// keep returns the elements whose place is to be kept; lists that run beside the nodes may be empty.
func keep[T any](list []T, at func(i int) bool) []T {
	var out []T
	for i := range list {
		if at(i) {
			out = append(out, list[i])
		}
	}
	return out
}

func (p *plan) keepNodes(at func(i int) bool) {
	for i := range p.nodes {
		if p.nodes[i].Name == p.retired && !at(i) {
			p.retired, p.retiredAt = "", 0
		}
	}
	p.joins = keep(p.joins, at)
	p.nodes, p.skews, p.drifts = keep(p.nodes, at), keep(p.skews, at), keep(p.drifts, at)
}

func (p *plan) keepStreams(at func(i int) bool) {
	p.lives.policies = keep(p.lives.policies, at)
	p.streams = keep(p.streams, at)
	for i := range p.writers {
		w := &p.writers[i]
		w.streams = keep(w.streams, func(j int) bool { return slices.Contains(p.streams, w.streams[j]) })
	}
	p.writers = slices.DeleteFunc(p.writers, func(w writerPlan) bool { return len(w.streams) == 0 })
}

// reduceFaults switches each fault off that is on.
func (p *plan) reduceFaults(add adder) {
	f := reflect.ValueOf(p.config.Faults)
	for i := range f.NumField() {
		if f.Field(i).Kind() == reflect.Float64 {
			add(f.Field(i).Float() > 0, "fault "+f.Type().Field(i).Name, func(p *plan) {
				reflect.ValueOf(&p.config.Faults).Elem().Field(i).SetFloat(0)
			})
		}
	}
	for i, c := range p.chaos.fields() {
		if v, ok := c.at.(*float64); ok {
			add(p.chaos.every > 0 && *v > 0, "chaos "+c.name, func(p *plan) { *p.chaos.fields()[i].at.(*float64) = 0 })
		}
	}
}

func (p *plan) reduceLives(add adder) {
	l := &p.lives
	if l.rounds == 0 {
		return
	}
	add(l.rounds > 1, "all rounds but one", func(p *plan) { p.lives.rounds = 1 })
	add(l.rounds > 3, "half of the rounds", func(p *plan) { p.lives.rounds /= 2 })
	add(l.rounds > 1, "a round", func(p *plan) { p.lives.rounds-- })
	kinds := 0
	for _, v := range []float64{l.trim, l.policy, l.remove} {
		if v > 0 {
			kinds++
		}
	}
	add(kinds > 1 && l.trim > 0, "trims", func(p *plan) { p.lives.trim = 0 })
	add(kinds > 1 && l.policy > 0, "policy changes", func(p *plan) { p.lives.policy = 0 })
	add(kinds > 1 && l.remove > 0, "deletions", func(p *plan) { p.lives.remove = 0 })
	add(l.undelete > 0, "undoing deletions", func(p *plan) { p.lives.undelete = 0 })
	add(l.all, "what befalls all streams at once", func(p *plan) { p.lives.all = false })
	add(l.stagger > 0, "the stagger", func(p *plan) { p.lives.stagger = 0 })
	add(l.settled, "waiting for what is settled", func(p *plan) { p.lives.settled = false })
	for i := range l.policies {
		add(l.policies[i] != catalog.Policy{}, fmt.Sprintf("the policy of stream %d", i), func(p *plan) { p.lives.policies[i] = catalog.Policy{} })
	}
}

func (p *plan) reduceWriters(add adder) {
	for i := range p.writers {
		w := &p.writers[i]
		of := func(what string) string { return fmt.Sprintf("%s of writer %d", what, i) }
		add(w.appends > 1, of("all appends but one"), func(p *plan) { p.writers[i].appends = 1 })
		add(w.appends > 3, of("half of the appends"), func(p *plan) { p.writers[i].appends /= 2 })
		add(w.appends > 7, of("a quarter of the appends"), func(p *plan) { p.writers[i].appends -= p.writers[i].appends / 4 })
		add(w.appends > 1, of("an append"), func(p *plan) { p.writers[i].appends-- })
		add(w.burst > 1, of("the burst"), func(p *plan) { p.writers[i].burst = 1 })
		add(w.burst > 3, of("half of the burst"), func(p *plan) { p.writers[i].burst /= 2 })
		add(w.records > 1, of("records but one"), func(p *plan) { p.writers[i].records = 1 })
		add(w.size > 1, of("bytes but the least"), func(p *plan) { p.writers[i].size = 1 })
		add(w.epochEvery > 0, of("new epochs"), func(p *plan) { p.writers[i].epochEvery = 0 })
		add(w.producersPerSeat > 1, of("producers but one"), func(p *plan) { p.writers[i].producersPerSeat = 1 })
		add(w.kind == writeExpecting, of("expectations"), func(p *plan) { p.writers[i].kind = writePlain })
		for j := range w.streams {
			add(len(w.streams) > 1, fmt.Sprintf("streams but %d of writer %d", j, i), func(p *plan) {
				p.writers[i].streams = p.writers[i].streams[j : j+1]
			})
		}
		add(w.pause > 0, of("pauses"), func(p *plan) { p.writers[i].pause = 0 })
	}
}

// reduceSettings makes settings plain that need not be special.
func (p *plan) reduceSettings(add adder) {
	off := slices.ContainsFunc(p.skews, func(d time.Duration) bool { return d != 0 }) || slices.ContainsFunc(p.drifts, func(n int) bool { return n != 0 })
	add(off, "clocks that are off", func(p *plan) {
		clear(p.skews)
		clear(p.drifts)
	})
	add(p.config.BucketSkew != 0, "the bucket's clock that is off", func(p *plan) { p.config.BucketSkew = 0 })
	f := &p.config.Faults
	even := sim.Latency{Base: time.Millisecond}
	uneven := func(l sim.Latency) bool { return l.Jitter > 0 || l.Tail > 0 }
	add(uneven(f.BucketLatency), "uneven latency of the bucket", func(p *plan) { p.config.Faults.BucketLatency = even })
	add(uneven(f.NetLatency), "uneven latency of the network", func(p *plan) { p.config.Faults.NetLatency = even })
	add(uneven(f.StoreLatency), "uneven latency of the store", func(p *plan) { p.config.Faults.StoreLatency = even })
	n := &p.nodes[0]
	each := func(applies bool, what string, set func(n *NodeConfig)) {
		add(applies, what, func(p *plan) {
			for i := range p.nodes {
				set(&p.nodes[i])
			}
		})
	}
	each(n.Compress, "compression", func(n *NodeConfig) { n.Compress = false })
	each(n.NoLeases, "working without leases", func(n *NodeConfig) { n.NoLeases = false })
	each(n.Workers > 1, "workers but one", func(n *NodeConfig) { n.Workers = 1 })
	each(n.MemberParallel > 1, "jobs at once but one", func(n *NodeConfig) { n.MemberParallel = 1 })
	each(n.Window > 1, "flights at once but one", func(n *NodeConfig) { n.Window = 1 })
	each(n.InlineBytes > 0, "bundles", func(n *NodeConfig) { n.InlineBytes = 0 })
	for i := range p.nodes {
		n := &p.nodes[i]
		servers := 0
		for j := range p.nodes {
			servers += boolean(p.nodes[j].Serve)
		}
		add(n.Serve && n.Audit && servers > 1, "the star of node "+n.Name, func(p *plan) { p.nodes[i].Serve = false })
	}
}

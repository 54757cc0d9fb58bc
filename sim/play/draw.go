package play

import (
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// plan is everything that a seed draws before its world begins: swarm testing, in
// which each seed has a few faults on, in a strength of its own, rather than all of
// them a little.
type plan struct {
	config    sim.Config
	nodes     []NodeConfig
	skews     []time.Duration
	drifts    []int
	writers   []writerPlan
	readers   int
	looks     int           // rounds of an operator who looks at what there is
	readPause time.Duration // between two reads of a reader, at most; 0: 2 s
	lives     livesPlan
	retired   string          // a node that is stopped for good, and its star decommissioned
	retiredAt time.Duration   // when
	garbage   bool            // markers that nobody can read are among the others
	joins     []time.Duration // when each node is started first
	sleep     time.Duration   // for how long all is down, in the middle of it; 0: not at all
	stall     float64         // the chance that a node stops once it has put an object that nothing names yet
	streams   []string
	chaos     chaosPlan
	names     []string // of the faults that are on
}

// chaosPlan is what befalls nodes while clients work. Each rate is the chance that a
// round of chaos does it.
type chaosPlan struct {
	every                                          time.Duration
	kill, pause, cut, drain, expire, outage, clock float64
	leave, storm                                   float64
	down                                           time.Duration // how long a node stays dead, at most
	pauseMost                                      time.Duration // how long one is stopped, at most
	skew                                           time.Duration // a clock that is set again is off by so much at most
}

// draw makes a seed's plan. It draws from a stream of its own, so that the plan of a
// seed depends on nothing else.
func draw(seed uint64) plan {
	r := sim.NewRand(seed, "plan")
	p := plan{config: sim.Config{Seed: seed, Embedded: r.Chance(0.4), MaxSteps: 3_000_000}}
	p.config.MaxOps = []int{32, 48, 128, 128, 1024}[r.N(5)]
	t := drawTiming(r, p.config.Embedded)
	p.drawNodes(r, t)
	p.drawStreams(r)
	p.drawFaults(r)
	p.drawChaos(r)
	p.drawLives(sim.NewRand(seed, "lives"))
	p.drawBundles(sim.NewRand(seed, "bundles"))
	p.drawRetired(sim.NewRand(seed, "decommission"))
	p.drawReads(sim.NewRand(seed, "reads"))
	p.drawMore(sim.NewRand(seed, "more"))
	switch {
	case p.config.Embedded && r.Chance(0.3):
		p.contend(r)
	case !p.config.Embedded && r.Chance(0.3):
		p.crawl(r)
	}
	p.drawBucketClock(sim.NewRand(seed, "bucket-clock"))
	if r := sim.NewRand(seed, "operator"); r.Chance(0.3) {
		p.looks = 5 + r.N(30)
	}
	p.drawReaders(sim.NewRand(seed, "readers"))
	return p
}

// drawBucketClock draws how far the clock is off by which the bucket judges whether a put comes too late: as far as
// production allows of any.
func (p *plan) drawBucketClock(r *sim.Rand) {
	if half := p.nodes[0].Timing.MaxClockSkew / 2; !p.config.Embedded && half > 0 && p.on(r, "bucket-clock", 0.5) {
		p.config.BucketSkew = r.Between(-half, half)
	}
}

// drawReaders draws, rarely, readers who read all the time, of stars that keep next to nothing in memory, from a slow bucket that
// refuses many of their reads: meanwhile the object that they want is rewritten without what was trimmed of it, and reaped.
func (p *plan) drawReaders(r *sim.Rand) {
	if !p.config.Embedded || !r.Chance(0.15) {
		return
	}
	p.names = append(p.names, "hasty-readers")
	p.streams = p.streams[:0]
	for i := range 3 + r.N(3) {
		p.streams = append(p.streams, fmt.Sprintf("s%02d", i))
	}
	p.writers = p.writers[:0]
	for range 3 {
		p.writers = append(p.writers, writerPlan{kind: writePlain, streams: p.streams, appends: 60 + r.N(60), records: 2, size: 50, burst: 4, pause: time.Second})
	}
	p.readers, p.readPause = 3+r.N(3), ms(r, 20*time.Millisecond, 100*time.Millisecond)
	p.lives = livesPlan{rounds: 60, gap: time.Second, trim: 1}
	p.config.Faults.BucketReadError = 0.3
	p.config.Faults.BucketLatency = sim.Latency{Base: 10 * time.Millisecond, Jitter: ms(r, 200*time.Millisecond, time.Second)}
	for i := range p.nodes {
		n := &p.nodes[i]
		n.TailBytes, n.GCMinDeadBytes, n.GCMinDeadRatio, n.IdleInterval = 1, 1, 0.01, ms(r, 5*time.Millisecond, 40*time.Millisecond)
		t := &n.Timing
		t.SettleAgeCap, t.SettleRecheck, t.SettleOwedBytes = ms(r, 0, 200*time.Millisecond), 5*time.Second, 1
		t.TrimGrace, t.ReapGrace = ms(r, time.Millisecond, 20*time.Millisecond), ms(r, time.Millisecond, 20*time.Millisecond)
		// One job asks such a bucket for dozens of objects.
		longer := max(0, time.Minute-t.JobDeadline)
		t.JobDeadline, t.OrphanGrace = t.JobDeadline+longer, t.OrphanGrace+longer
	}
}

// drawLives draws what befalls streams, from a stream of its own: policies, from none to ages
// of a second; trims; streams that are deleted while all else of them is in the air.
func (p *plan) drawLives(r *sim.Rand) {
	l := &p.lives
	undelete := time.Duration(0)
	if r.Chance(0.5) {
		undelete = ms(r, 0, 20*time.Second)
	}
	ratio := []float64{0.01, 0.3, 0.5, 0.9}[r.N(4)]
	for i := range p.nodes {
		p.nodes[i].Timing.UndeleteWindow, p.nodes[i].GCMinDeadRatio = undelete, ratio
	}
	p.garbage = r.Chance(0.1)
	if p.on(r, "old-timestamps", 0.3) {
		l.backdate = ms(r, time.Second, time.Minute)
	}
	l.age = []time.Duration{2 * time.Second, 10 * time.Second, 5 * time.Minute}[r.N(3)]
	l.bytes = 200 << r.N(8)
	l.away = ms(r, 0, 10*time.Second)
	if r.Chance(0.4) {
		p.names = append(p.names, "policies")
		for range p.streams {
			l.policies = append(l.policies, l.drawPolicy(r))
		}
	}
	if !r.Chance(0.7) {
		return
	}
	l.rounds, l.gap, l.all = 1+r.N(10), ms(r, 500*time.Millisecond, 20*time.Second), r.Chance(0.3)
	l.trim = r.Float64()
	if p.on(r, "policy-changes", 0.4) {
		l.trim /= 2
		l.policy = 1 - l.trim
	}
	if p.on(r, "deletions", 0.4) {
		l.trim, l.policy, l.remove = l.trim/2, l.policy/2, 0.5
		if undelete > 0 {
			l.undelete = []float64{0, 0.5, 0.9}[r.N(3)]
		}
	}
}

// drawBundles draws how much a flight's slot may hold itself: from next to nothing, so that every flight
// has a bundle, to more than any holds.
func (p *plan) drawBundles(r *sim.Rand) {
	inline := 0
	if p.on(r, "bundles", 0.5) {
		inline = []int{1, 100, 500, 2000}[r.N(4)]
	}
	for i := range p.nodes {
		p.nodes[i].InlineBytes = inline
	}
}

// drawReads draws whether reads of the store may take their time, so that two that follow each other see
// different worlds.
func (p *plan) drawReads(r *sim.Rand) {
	if p.on(r, "reads-slow", 0.3) {
		p.config.Faults.ReadSlow, p.config.Faults.ReadSlowMax = strength(r), ms(r, 10*time.Millisecond, time.Second)
	}
}

// drawMore draws the rarer things: what nodes do beside dying, refusals, effects that outlive a
// process by long, listings that lag, and a sleep of months.
func (p *plan) drawMore(r *sim.Rand) {
	f, c, t := &p.config.Faults, &p.chaos, p.nodes[0].Timing
	c.pauseMost = 2 * c.down
	p.joins = make([]time.Duration, len(p.nodes))
	if p.on(r, "commit-unavailable", 0.2) {
		f.CommitUnavailable = strength(r)
	}
	if c.every > 0 && p.on(r, "storms", 0.2) {
		c.storm = 0.3
	}
	if p.on(r, "months", 0.15) {
		p.lives.age, p.lives.backdate = 90*24*time.Hour, 100*24*time.Hour
		for i := range p.lives.policies {
			p.lives.policies[i] = p.lives.drawPolicy(r)
		}
	}
	if p.on(r, "sleep", 0.1) {
		p.sleep = time.Hour << r.N(12)
	}
	if p.config.Embedded {
		if half := t.MaxClockSkew / 2; c.every > 0 && half > 0 && p.on(r, "clock-steps", 0.3) {
			c.clock, c.skew = 0.3, half
		}
		return
	}
	if p.on(r, "dead-late", 0.4) {
		f.DeadLate = 0.5
		f.CommitLateMax = max(f.CommitLateMax, ms(r, time.Second, time.Minute))
		f.PutLateMax = max(f.PutLateMax, ms(r, time.Second, time.Minute))
	}
	if p.retired != "" && p.on(r, "list-lag", 0.5) {
		f.ListLag = ms(r, 0, t.RetireGrace)
	}
	if c.pause > 0 && p.on(r, "long-pauses", 0.3) {
		c.pauseMost = 2 * t.OrphanGrace
	}
	if len(p.nodes) < 2 {
		return
	}
	if c.every > 0 && p.on(r, "members-leave", 0.3) {
		c.leave = 0.3
	}
	if p.on(r, "members-join", 0.3) {
		for i := 1; i < len(p.joins); i++ {
			p.joins[i] = ms(r, 0, time.Minute)
		}
	}
}

// drawRetired draws whether a star is decommissioned: the last one's, where another is left to serve.
func (p *plan) drawRetired(r *sim.Rand) {
	last := &p.nodes[len(p.nodes)-1]
	if p.config.Embedded || len(p.nodes) < 2 || !last.Serve || last.Star != "" || !p.on(r, "decommission", 0.4) {
		return
	}
	p.retired, p.retiredAt = last.Name, ms(r, 0, 30*time.Second)
}

// setClock draws how far a node's clock is off, and how it drifts: never further than
// production's own bound, over any run.
func (p *plan) setClock(r *sim.Rand, node int) {
	const far = 30 * time.Millisecond // what 20 ppm come to in the longest safety phase, and more
	p.skews[node], p.drifts[node], p.chaos.skew = 0, 0, 0
	if p.config.Embedded {
		return
	}
	if half := p.nodes[node].Timing.MaxClockSkew/2 - far; half > 0 {
		p.chaos.skew = half
		p.skews[node], p.drifts[node] = r.Between(-half, half), r.N(41)-20
	}
}

// ms draws a whole number of milliseconds, so that times print short.
func ms(r *sim.Rand, lo, hi time.Duration) time.Duration {
	return r.Between(lo, hi).Truncate(time.Millisecond)
}

// drawTiming draws legal timings down to their least, so that deletion and every
// re-arm is always within reach.
func drawTiming(r *sim.Rand, embedded bool) catalog.Timing {
	t := catalog.DefaultTiming(embedded)
	t.SettleAgeCap = ms(r, 0, 5*time.Second)
	t.SettleRecheck = ms(r, 5*time.Second, 40*time.Second)
	t.SettleOwedBytes = uint64(1 + r.N(64<<10))
	t.JobDeadline = ms(r, 5*time.Second, time.Minute)
	t.SessionTTL = ms(r, time.Second, 10*time.Second)
	t.MaxClockSkew = ms(r, 0, 2*time.Second)
	// From a millisecond above the least up to seconds, each size as often as another.
	over := func(d time.Duration) time.Duration {
		return d + ms(r, 1, time.Duration(2<<r.N(12))*time.Millisecond) + time.Millisecond
	}
	if embedded {
		t.ReapGrace, t.TrimGrace, t.RetireGrace = over(0), over(0), over(0)
		t.OrphanGrace = over(t.JobDeadline)
		return t
	}
	t.PutHorizon = ms(r, 2*time.Second, 20*time.Second)
	t.MaxClockSkew = min(t.MaxClockSkew, t.SessionTTL/2, t.PutHorizon/2)
	base := t.PutHorizon + t.MaxClockSkew
	t.ReapGrace, t.OrphanGrace = over(base), over(base+t.JobDeadline)
	t.TrimGrace, t.RetireGrace = over(base+t.SessionTTL), over(base+t.SessionTTL)
	return t
}

func (p *plan) drawNodes(r *sim.Rand, t catalog.Timing) {
	n := 1
	if !p.config.Embedded {
		n = 1 + r.N(3)
	}
	noLeases := r.Chance(0.15)
	for i := range n {
		c := NodeConfig{
			Name: string(rune('a' + i)), Serve: true, Audit: true, Timing: t, Embedded: p.config.Embedded,
			Window: 1 + r.N(6), FlightBytes: 200 << r.N(10), SlotDeadline: ms(r, time.Second, 10*time.Second),
			Workers: 1 + r.N(4), IdleInterval: ms(r, 200*time.Millisecond, 5*time.Second),
			MarkersPerEra: 1 + r.N(16), MemberParallel: 1 + r.N(4), SettleObjectMin: int64(100 << r.N(10)),
			PageSize: 1 + r.N(64), GCMinDeadBytes: int64(1 + r.N(2000)), NoLeases: noLeases, Compress: r.Chance(0.1),
		}
		if i > 0 && r.Chance(0.4) {
			c.Serve, c.Audit = r.Chance(0.5), true
		}
		if i > 0 && r.Chance(0.05) {
			c.Star = "a" // someone started the same star twice
		}
		p.nodes = append(p.nodes, c)
		p.skews, p.drifts = append(p.skews, 0), append(p.drifts, 0)
		p.setClock(r, i)
	}
}

func (p *plan) drawStreams(r *sim.Rand) {
	n := 1 + r.N(4)
	if r.Chance(0.2) {
		n = 5 + r.N(20) // many small ones in one slot
	}
	for i := range n {
		p.streams = append(p.streams, fmt.Sprintf("s%02d", i))
	}
	writers := 1 + r.N(5)
	for range writers {
		w := writerPlan{
			kind: writerKind(r.N(3)), appends: 3 + r.N(25), records: 1 + r.N(6), size: 1 + r.N(300),
			pause: ms(r, 0, 400*time.Millisecond), burst: 1 + r.N(6), producersPerSeat: 1 + r.N(3),
		}
		if r.Chance(0.3) {
			w.pause = ms(r, time.Second, 20*time.Second)
			w.appends = min(w.appends, 10)
		}
		if r.Chance(0.3) {
			w.epochEvery = 2 + r.N(6)
		}
		from := r.N(n)
		w.streams = append(w.streams, p.streams[from:min(n, from+1+r.N(n))]...)
		p.writers = append(p.writers, w)
	}
	if r.Chance(0.03) {
		// More producers on one stream than a head remembers.
		p.writers = append(p.writers, writerPlan{kind: writeIdempotent, streams: p.streams[:1], appends: 100, records: 1, size: 20, producersPerSeat: 90})
	}
	if r.Chance(0.04) {
		// One whose first append is forgotten before it is tried again.
		p.writers = append(p.writers, writerPlan{kind: writeForgotten, streams: p.streams[:1], appends: 2, records: 2, size: 20, burst: 8})
	}
	p.readers = r.N(3)
}

// on draws whether a fault is on, and notes its name.
func (p *plan) on(r *sim.Rand, name string, chance float64) bool {
	if !r.Chance(chance) {
		return false
	}
	p.names = append(p.names, name)
	return true
}

// strength is small mostly, and large now and then.
func strength(r *sim.Rand) float64 {
	return []float64{0.002, 0.01, 0.03, 0.1, 0.25}[r.N(5)]
}

func (p *plan) drawFaults(r *sim.Rand) {
	f := &p.config.Faults
	lat := func() sim.Latency {
		return sim.Latency{Base: ms(r, 0, 3*time.Millisecond), Jitter: ms(r, 0, 10*time.Millisecond), Tail: r.N(8)}
	}
	f.StoreLatency, f.BucketLatency, f.NetLatency = lat(), lat(), lat()
	if p.on(r, "bucket-slow", 0.1) {
		// A read may find that its object went after its span was looked up.
		f.BucketLatency.Jitter = ms(r, 20*time.Millisecond, 100*time.Millisecond)
	}
	if p.on(r, "store-unavailable", 0.3) {
		f.StoreUnavailable = strength(r)
	}
	if p.on(r, "scan-short", 0.3) {
		f.ScanShort = 0.5
	}
	if p.on(r, "net-lost", 0.3) {
		f.NetLost = strength(r)
	}
	if p.on(r, "bucket-throttle", 0.3) {
		f.BucketThrottle = strength(r)
	}
	if p.on(r, "bucket-read-error", 0.3) {
		f.BucketReadError = strength(r)
	}
	if p.on(r, "corrupt-read", 0.1) {
		f.CorruptRead = []float64{0.02, 0.6}[r.N(2)] // now and then in every one of several reads
	}
	if p.on(r, "truncate-read", 0.1) {
		f.TruncateRead = 0.02
	}
	if p.on(r, "delete-partial", 0.3) {
		f.DeletePartial = 0.3
	}
	if p.on(r, "commit-unknown", 0.4) {
		f.CommitUnknownNoEffect, f.CommitUnknownEffect = strength(r), strength(r)
	}
	if p.config.Embedded {
		return
	}
	if p.on(r, "commit-late", 0.4) {
		f.CommitUnknownLate, f.CommitLateMax = strength(r), ms(r, time.Second, time.Minute)
	}
	if p.on(r, "commit-slow", 0.3) {
		f.CommitSlow, f.CommitSlowMax = strength(r), ms(r, 10*time.Millisecond, 2*time.Second)
	}
	if p.on(r, "put-unknown", 0.4) {
		f.PutUnknownNoEffect, f.PutUnknownEffect = strength(r), strength(r)
	}
	if p.on(r, "put-late", 0.4) {
		f.PutUnknownLate, f.PutLateMax = strength(r), ms(r, time.Second, time.Minute)
	}
	if p.on(r, "delete-unknown", 0.3) {
		f.DeleteUnknown = strength(r)
	}
	if p.on(r, "session-late", 0.3) {
		f.SessionLate, f.SessionLateMax = 0.5, ms(r, time.Second, 20*time.Second)
	}
	if p.on(r, "session-early", 0.2) {
		f.SessionEarly = 0.05
	}
}

func (p *plan) drawChaos(r *sim.Rand) {
	c := &p.chaos
	if r.Chance(0.1) {
		return
	}
	c.every = ms(r, 200*time.Millisecond, 10*time.Second)
	c.down = ms(r, 100*time.Millisecond, 20*time.Second)
	if p.on(r, "kill", 0.7) {
		c.kill = 0.5
	}
	if p.on(r, "drain", 0.3) {
		c.drain = 0.2
	}
	if p.config.Embedded {
		return
	}
	if p.on(r, "pause", 0.4) {
		c.pause = 0.3
	}
	if p.on(r, "partition", 0.4) {
		c.cut = 0.3
	}
	if p.on(r, "session-expiry", 0.2) {
		c.expire = 0.3
	}
	if p.on(r, "clock-steps", 0.3) {
		c.clock = 0.3
	}
	if p.on(r, "outage", 0.2) {
		c.outage = 0.3
	}
}

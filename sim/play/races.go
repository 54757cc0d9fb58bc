package play

import (
	"fmt"
	"time"

	"github.com/nova-store/nova/sim"
)

// The worlds that are drawn for one kind of race.

// trimAll has every stream trimmed again and again, side by side, and nothing else befall them.
func (p *plan) trimAll(rounds int, gap time.Duration) {
	p.lives = livesPlan{backdate: p.lives.backdate, rounds: rounds, gap: gap, all: true, trim: 1}
}

// crawl makes a world in which commits may be on their way for longer than a job may take and
// an orphan may grow old: a publisher's swap is overtaken by the orphan duty that gives its object
// up, a killer's commit by the reap-check that it leans on.
func (p *plan) crawl(r *sim.Rand) {
	p.names = append(p.names, "crawling-commits")
	t := p.nodes[0].Timing
	t.JobDeadline = ms(r, 3*time.Second, 6*time.Second)
	t.PutHorizon = ms(r, time.Second, 2*time.Second)
	t.MaxClockSkew = min(t.MaxClockSkew, 200*time.Millisecond)
	t.SessionTTL = ms(r, time.Second, 3*time.Second)
	base := t.PutHorizon + t.MaxClockSkew
	t.ReapGrace = base + ms(r, time.Millisecond, time.Second)
	t.OrphanGrace = base + t.JobDeadline + ms(r, time.Millisecond, time.Second)
	t.TrimGrace, t.RetireGrace = base+t.SessionTTL+ms(r, time.Millisecond, time.Second), base+t.SessionTTL+ms(r, time.Millisecond, time.Second)
	t.SettleAgeCap = ms(r, 0, time.Second)
	for i := range p.nodes {
		n := &p.nodes[i]
		n.Timing, n.Workers, n.IdleInterval = t, 2+r.N(3), ms(r, 100*time.Millisecond, time.Second)
		p.setClock(r, i)
	}
	f := &p.config.Faults
	p.joins, p.sleep = make([]time.Duration, len(p.nodes)), 0
	f.CommitSlow, f.CommitSlowMax = 0.1+float64(r.N(4))*0.1, 2*t.OrphanGrace
	f.DeletePartial = 0.3
	f.BucketReadError = []float64{0, 0.1, 0.5}[r.N(3)]
	p.trimAll(4+r.N(8), ms(r, time.Second, 6*time.Second))
	if r.Chance(0.5) {
		// In peace: a kill would spare the publisher its waking.
		p.names = append(p.names, "stalled-publishers")
		p.stall, p.chaos.every = 0.3, 0
	}
}

// contend makes a world in which many streams share packed objects and are trimmed
// side by side, with a reap grace of the order of a commit's latency: killers that
// lean on one reap-check meet the duty that judges it.
func (p *plan) contend(r *sim.Rand) {
	p.names = append(p.names, "contended-reaps")
	p.streams = p.streams[:0]
	for i := range 9 + r.N(12) {
		p.streams = append(p.streams, fmt.Sprintf("s%02d", i))
	}
	p.writers = p.writers[:0]
	for range 4 {
		p.writers = append(p.writers, writerPlan{kind: writePlain, streams: p.streams, appends: 60 + r.N(60), records: 2, size: 20, burst: 4, pause: 100 * time.Millisecond})
	}
	p.trimAll(20+r.N(20), ms(r, 300*time.Millisecond, 2*time.Second))
	p.config.Faults.StoreLatency = sim.Latency{Base: time.Millisecond, Jitter: ms(r, 5*time.Millisecond, 40*time.Millisecond), Tail: r.N(3)}
	grace := ms(r, 5*time.Millisecond, 100*time.Millisecond)
	if r.Chance(0.7) {
		// A few commits arrive when the reap-check that they lean on has just become ripe.
		p.config.Faults.CommitSlow, p.config.Faults.CommitSlowMax = []float64{0.06, 0.2, 0.5}[r.N(3)], ms(r, grace, 4*grace)+20*time.Millisecond
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		n.Timing.SettleAgeCap = ms(r, 0, 300*time.Millisecond)
		n.Timing.ReapGrace, n.GCMinDeadBytes, n.InlineBytes = grace, 1<<20, 0
		n.IdleInterval, n.Workers, n.SettleObjectMin = ms(r, 5*time.Millisecond, 40*time.Millisecond), 8+r.N(24), 1<<20
	}
	// Of what is settled, one after the other, so that a kill comes when the check of an earlier one is ripe.
	p.lives.settled, p.lives.stagger = true, time.Duration(1+r.N(6))*grace
	if r.Chance(0.5) {
		p.lean(r)
	}
}

// lean makes it a world of few streams, of which each object holds several spans, since a
// swap of many is cut to fit small commits. They are killed one by one, side by side: each kill
// but the first finds that the object's reap-check says all that is needed already.
func (p *plan) lean(r *sim.Rand) {
	p.names = append(p.names, "leaning-kills")
	p.config.MaxOps = 32
	p.streams = p.streams[:6]
	for i := range p.writers {
		w := &p.writers[i]
		w.streams, w.records, w.burst, w.appends = p.streams, 1, 6, 150
	}
	grace := ms(r, 20*time.Millisecond, 100*time.Millisecond)
	f := &p.config.Faults
	f.StoreLatency = sim.Latency{Base: time.Millisecond, Jitter: ms(r, time.Millisecond, 5*time.Millisecond), Tail: r.N(3)}
	f.BucketLatency = f.StoreLatency
	f.CommitSlow, f.CommitSlowMax = 0.2, ms(r, grace, 3*grace)
	for i := range p.nodes {
		n := &p.nodes[i]
		n.Timing.SettleAgeCap, n.Timing.ReapGrace = ms(r, 50*time.Millisecond, 200*time.Millisecond), grace
		n.FlightBytes, n.Window, n.MarkersPerEra = 100, 6, 16+r.N(32)
		n.IdleInterval = ms(r, 5*time.Millisecond, 15*time.Millisecond)
	}
	// Trimmed late enough for what it kills to be settled, and in peace.
	p.trimAll(20, ms(r, 2*time.Second, 4*time.Second))
	p.lives.settled, p.lives.stagger, p.chaos.every = true, time.Duration(1+r.N(4))*grace, 0
}

package play

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
)

// Long is a world for measurements: one node, without faults, that goes on for as long as is asked, with all checkers on.
type Long struct{ g *game }

// newLong boots the node of a Long on the defaults of novad, but for what cfg says.
func newLong(seed uint64, change func(cfg *NodeConfig)) *Long {
	lat := sim.Latency{Base: time.Millisecond, Jitter: time.Millisecond}
	g := newGame(sim.Config{Seed: seed, Embedded: true, MaxOps: 1024, Faults: sim.Faults{StoreLatency: lat, BucketLatency: lat, NetLatency: lat}})
	cfg := NodeConfig{Name: "a", Serve: true, Audit: true, Embedded: true, Timing: catalog.DefaultTiming(true)}
	change(&cfg)
	g.configure(cfg)
	g.up("a")
	return &Long{g}
}

// NewBusy returns a world in which clients append without a pause to streams that a policy keeps short, and read them.
func NewBusy(seed uint64) *Long {
	l := newLong(seed, func(cfg *NodeConfig) {
		t := &cfg.Timing
		t.SettleAgeCap, t.TrimGrace, t.ReapGrace, t.RetireGrace = time.Second, time.Second, time.Second, time.Second
		cfg.IdleInterval, cfg.Workers = time.Second, 4
		cfg.TailBytes = 1 << 20 // full before the heap is looked at
	})
	g := l.g
	p := &plan{}
	for i := range 8 {
		p.streams = append(p.streams, fmt.Sprintf("s%d", i))
		p.lives.policies = append(p.lives.policies, catalog.Policy{MaxBytes: 2000})
	}
	for i, kind := range []writerKind{writePlain, writeIdempotent, writeIdempotent, writeExpecting} {
		w := writerPlan{kind: kind, streams: p.streams, appends: 1 << 40, records: 4, size: 100, burst: 4, producersPerSeat: 2}
		g.goClient(fmt.Sprintf("w%d", i), func(ctx context.Context, c *sim.Client) { g.write(ctx, c, p, w) })
	}
	g.goClient("r", func(ctx context.Context, c *sim.Client) { g.read(ctx, c, p.streams, 1<<40, 100*time.Millisecond) })
	return l
}

// NewIdle returns a world of that many streams, each with a few settled records, in which then nobody asks for
// anything: what goes on is sessions kept alive, and passes that find nothing.
func NewIdle(seed uint64, streams int) *Long {
	l := newLong(seed, func(*NodeConfig) {})
	g := l.g
	g.goClient("w", func(ctx context.Context, c *sim.Client) {
		for i := range streams {
			name := fmt.Sprintf("s%d", i)
			g.create(ctx, c, name, catalog.Policy{})
			g.produce(ctx, c, &producer{id: "p", fresh: true}, name, 2, 100)
		}
	})
	g.w.RunUntil(func() bool { return g.clients == 0 }, time.Hour)
	g.w.RunFor(time.Hour) // until all is settled
	return l
}

// Run goes on for that many steps at least, or, where that is 0, for that long.
func (l *Long) Run(steps int, d time.Duration) *sim.Finding {
	if steps == 0 {
		return l.g.w.RunFor(d).Finding
	}
	until := l.g.w.Steps() + steps
	return l.g.w.Run(func() bool { return l.g.w.Steps() >= until }).Finding
}

// Steps and Elapsed are how far the world has come.
func (l *Long) Steps() int             { return l.g.w.Steps() }
func (l *Long) Elapsed() time.Duration { return l.g.w.Elapsed() }

// Close ends the world.
func (l *Long) Close() { l.g.w.Close() }

// NewSleepers returns a world of tasks that only sleep: what the scheduler does by itself, without any call of a dependency,
// any code under test, and any checker. Steps counts as for the others.
func NewSleepers(seed uint64, tasks int) *Long {
	g := &game{w: sim.New(sim.Config{Seed: seed, Embedded: true})}
	g.w.Node("a").Start(func(ctx context.Context, inc *sim.Incarnation) {
		for i := range tasks {
			inc.Go("sleeper", func(ctx context.Context) {
				for round := 0; ctx.Err() == nil; round++ {
					_ = inc.Clock().Sleep(ctx, time.Duration(1+(i*7+round*13)%1000)*time.Microsecond)
				}
			})
		}
	})
	return &Long{g}
}

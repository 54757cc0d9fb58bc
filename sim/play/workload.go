package play

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// writerKind is how a client appends.
type writerKind uint8

const (
	writePlain      writerKind = iota // new bytes whenever the outcome is unknown
	writeIdempotent                   // a producer, retried until definite
	writeExpecting                    // at an expected offset, as a lock-free log is kept
	writeForgotten                    // producers that try their first append again after a crowd of others
)

// writerPlan is one client of a workload.
type writerPlan struct {
	kind             writerKind
	streams          []string
	appends          int
	records, size    int
	pause            time.Duration
	epochEvery       int // an idempotent producer begins a new epoch after so many appends; 0: never
	burst            int // a plain writer sends so many at once
	producersPerSeat int // an idempotent writer rotates over so many producer names
}

// write runs a writer to its end.
func (g *game) write(ctx context.Context, c *sim.Client, p *plan, plan writerPlan) {
	for _, s := range plan.streams {
		g.create(ctx, c, s, p.policyOf(s))
	}
	producers := make(map[string]*producer)
	for i := 0; i < plan.appends && ctx.Err() == nil && g.w.Found() == nil; i++ {
		stream := plan.streams[c.Rand.N(len(plan.streams))]
		n, size := 1+c.Rand.N(plan.records), 20+c.Rand.N(plan.size)
		switch plan.kind {
		case writePlain:
			g.burst(ctx, c, plan, stream, n, size)
		case writeIdempotent:
			id := fmt.Sprintf("%s/%s/%d", c.Name(), stream, c.Rand.N(plan.producersPerSeat))
			p := producers[id]
			if p == nil {
				p = &producer{id: id, fresh: true}
				producers[id] = p
			}
			if plan.epochEvery > 0 && p.seq > 0 && c.Rand.N(plan.epochEvery) == 0 {
				p.epoch++
				p.seq, p.fresh = 0, true
				g.w.Mark("client/new-epoch")
			}
			_ = g.produce(ctx, c, p, stream, n, size)
		case writeExpecting:
			g.expect(ctx, c, stream, n, size)
		case writeForgotten:
			g.forgotten(ctx, c, plan, stream, n, size)
		}
		if plan.pause > 0 {
			_ = c.Clock().Sleep(ctx, c.Rand.Between(0, plan.pause))
		}
	}
}

// burst sends several plain appends at once and waits for all answers.
func (g *game) burst(ctx context.Context, c *sim.Client, plan writerPlan, stream string, n, size int) {
	left := max(plan.burst, 1)
	done := c.Clock().NewParker()
	for i := range left {
		a := g.newAppend(stream, n, size, false)
		pick := c.Rand.N(len(g.order))
		c.Go(func(ctx context.Context) {
			g.appendOnce(ctx, c, a, pick+i)
			if left--; left == 0 {
				done.Unpark()
			}
		})
	}
	_ = done.Park(ctx)
}

// produce sends the producer's next append until its outcome is definite, and returns nil if it is there. A
// producer whose state was lost goes on in a new epoch; an append whose expected offset was wrong leaves it as it was.
func (g *game) produce(ctx context.Context, c *sim.Client, p *producer, stream string, n, size int) error {
	if p.fresh || p.lives != g.lives(stream) {
		if !p.fresh {
			// Another stream of that name, to which this is a new producer.
			p.epoch, p.seq, p.fresh = p.epoch+1, 0, true
		}
		p.lives = g.lives(stream)
		since, ok := g.nextOffset(ctx, c, stream)
		if !ok {
			return catalog.ErrNoStream
		}
		p.since, p.fresh = since, false
	}
	var a appendArgs
	if p.numbered {
		a = g.numberedAppend(p.next, stream, n, size, true, p.ago)
		p.next++
	} else {
		a = g.newAppend(stream, n, size, true)
	}
	a.lives, a.expected, a.strange = p.lives, p.expected, p.strange
	a.producer = &format.Producer{ID: p.id, Epoch: p.epoch, Seq: p.seq, Since: p.since}
	err := g.appendUntil(ctx, c, a)
	switch {
	case err == nil:
		p.seq++
	case !errors.Is(err, star.ErrWrongOffset):
		p.epoch++
		p.seq, p.fresh = 0, true
	}
	return err
}

// forgotten sends a new producer's first append, then those of more other producers than a head
// remembers, then the first one again: it is there once, whatever became of its first try.
func (g *game) forgotten(ctx context.Context, c *sim.Client, plan writerPlan, stream string, n, size int) {
	lives := g.lives(stream)
	g.histories.Spoil(stream) // first tries are sent beside the one that counts
	since, ok := g.nextOffset(ctx, c, stream)
	if !ok {
		return
	}
	first := func() appendArgs {
		a := g.newAppend(stream, n, size, true)
		a.lives = lives
		a.producer = &format.Producer{ID: fmt.Sprintf("%s/%d", c.Name(), a.id), Since: since}
		return a
	}
	mine := first()
	if p := g.serving(c.Rand.N(len(g.order))); p != nil {
		if res, err := g.send(ctx, c, p, mine); err == nil {
			g.check.Acknowledged(mine.id, res.Stream, res.First, res.Last, res.OffsetsKnown)
		}
	}
	mine.again = true
	left := catalog.MaxProducers + plan.burst
	crowd := left
	done := c.Clock().NewParker()
	var next func()
	next = func() {
		crowd--
		a := first()
		c.Go(func(ctx context.Context) {
			g.appendOnce(ctx, c, a, c.Rand.N(len(g.order)))
			if left--; left == 0 {
				done.Unpark()
			}
			if crowd > 0 {
				next()
			}
		})
	}
	for range plan.burst {
		next()
	}
	if done.Park(ctx) == nil && g.appendUntil(ctx, c, mine) == nil {
		g.w.Mark("client/remembered")
	}
}

// nextOffset reads a stream's next offset, again until it can.
func (g *game) nextOffset(ctx context.Context, c *sim.Client, stream string) (uint64, bool) {
	type answer struct {
		next uint64
		err  error
	}
	for ctx.Err() == nil && g.w.Found() == nil {
		if p := g.serving(c.Rand.N(len(g.order))); p != nil {
			asked := g.histories.Look(stream)
			ans, err := sim.Call(ctx, c, p.Inc, "next", func(ctx context.Context) answer {
				id, err := p.Cat.FindStream(ctx, stream)
				if err != nil {
					return answer{err: err}
				}
				v, err := p.Cat.ReadStream(ctx, id)
				return answer{v.Head.Next, err}
			})
			switch {
			case err == nil && ans.err == nil:
				asked.Landed(ans.next)
				return ans.next, true
			case err == nil && errors.Is(ans.err, catalog.ErrNoStream):
				return 0, false
			}
		}
		_ = c.Clock().Sleep(ctx, 100*time.Millisecond)
	}
	return 0, false
}

// expect appends at the offset that it has just read, and expects to lose races.
func (g *game) expect(ctx context.Context, c *sim.Client, stream string, n, size int) {
	next, ok := g.nextOffset(ctx, c, stream)
	if !ok {
		return
	}
	a := g.newAppend(stream, n, size, false)
	a.expected = &next
	known, there := g.appendOnce(ctx, c, a, c.Rand.N(len(g.order)))
	if known && !there {
		g.w.Mark("client/expectation-failed")
	}
}

package auditor

import (
	"context"
	"slices"
	"sync"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
)

// pool runs jobs: workers at once, and max(1, workers/2) of one duty, so that a fat
// queue delays only itself.
type pool struct {
	clk   clock.Clock
	most  int // of one duty
	slots *clock.Semaphore
	tasks *clock.Group
	ended *clock.Signal // raised as each job ends

	mu   sync.Mutex
	held map[catalog.Queue]int // jobs that run
	work meter
	busy map[string]bool // keys of jobs that run or are spooled
}

func newPool(clk clock.Clock, workers int) *pool {
	return &pool{
		clk:   clk,
		most:  max(1, workers/2),
		slots: clock.NewSemaphore(clk, int64(workers)),
		tasks: clock.NewGroup(clk, 0),
		ended: clock.NewSignal(clk),
		held:  make(map[catalog.Queue]int),
		busy:  make(map[string]bool),
	}
}

// offer is a source of jobs as the rotation sees it.
type offer interface {
	queue() catalog.Queue
	// next returns the source's next job, claimed, or nil: it is spent for this pass.
	next(ctx context.Context) func(ctx context.Context)
}

// rotate offers each live source one job a round, until all are spent or ctx, the
// pass's budget, ends, and tells whether it was cut: sources were left that may have more. Jobs
// run under jctx, beyond the pass if need be.
//
// The first round is in the order given, that of priority. A source that was offered goes to the back. One whose
// duty is at its cap is set aside: it keeps its place, so that it is the first of its
// duty's when one of their jobs ends; else a duty whose cap is one job would drain
// its first shard before it looked at the next.
//
// A slot of the pool is taken before a source is asked. So while the pool is full the rotation
// waits where it stands, a freed worker gets the next job at once, and no lease is
// claimed for a job that would wait.
func (p *pool) rotate(ctx, jctx context.Context, live []offer) (cut bool) {
	for len(live) > 0 {
		gen := p.ended.Generation()
		at := slices.IndexFunc(live, func(o offer) bool { return p.running(o.queue()) < p.most })
		if at < 0 {
			if p.ended.Wait(ctx, gen) != nil {
				return true
			}
			continue
		}
		if !p.slots.TryAcquire(1) {
			// Who is first may be another one by the time that a worker is free.
			if p.ended.Wait(ctx, gen) != nil {
				return true
			}
			continue
		}
		src := live[at]
		live = append(live[:at], live[at+1:]...)
		run := src.next(ctx)
		if run == nil {
			p.slots.Release(1)
		} else {
			p.start(jctx, src.queue(), run)
			live = append(live, src)
		}
		if ctx.Err() != nil {
			return len(live) > 0
		}
	}
	return false
}

// start runs a job in the slot that the caller holds.
func (p *pool) start(ctx context.Context, q catalog.Queue, run func(ctx context.Context)) {
	p.mu.Lock()
	p.held[q]++
	p.work.change(p.clk.Now(), 1)
	p.mu.Unlock()
	// Without a limit the group starts it whatever ctx says.
	_ = p.tasks.Go(ctx, "auditor/"+string(q), func(ctx context.Context) error {
		run(ctx)
		p.mu.Lock()
		p.held[q]--
		p.work.change(p.clk.Now(), -1)
		p.mu.Unlock()
		p.slots.Release(1)
		p.ended.Raise()
		return nil
	})
}

func (p *pool) running(q catalog.Queue) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[q]
}

// quiet waits until no job of the duty runs, or ctx ends.
func (p *pool) quiet(ctx context.Context, q catalog.Queue) {
	for {
		gen := p.ended.Generation()
		if p.running(q) == 0 || p.ended.Wait(ctx, gen) != nil {
			return
		}
	}
}

// occupy makes the key busy, and tells whether it was free.
func (p *pool) occupy(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[key] {
		return false
	}
	p.busy[key] = true
	return true
}

func (p *pool) vacate(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, key)
}

package sim

import (
	"context"
	"time"

	"github.com/nova-store/nova/clock"
)

// nodeClock is the clock of one incarnation.
type nodeClock struct{ inc *Incarnation }

var _ clock.Clock = (*nodeClock)(nil)

// Now returns what the node's clock shows.
func (k *nodeClock) Now() time.Time {
	n := k.inc.node
	return time.Unix(0, n.local(n.w.now)).UTC()
}

// Rand draws from a stream of this incarnation alone.
func (k *nodeClock) Rand() uint64 { return k.inc.rand.Uint64() }

// Sleep parks the task for d of the node's time.
func (k *nodeClock) Sleep(ctx context.Context, d time.Duration) error {
	t := k.inc.enter()
	if err := ctx.Err(); err != nil {
		return err
	}
	w := t.w
	w.issue(t, OpSleep, nil)
	if d <= 0 {
		w.makeReady(t)
		t.pass()
		w.resumed(t, nil)
		return nil
	}
	t.timer = w.schedule(w.now + k.inc.node.trueDelay(d))
	t.timer.t = t
	t.park(ctx)
	var err error
	if t.timer != nil {
		w.unschedule(t.timer)
		t.timer = nil
		err = ctx.Err()
	}
	w.resumed(t, err)
	return err
}

// WithCancel and WithTimeout derive a context of this world.
func (k *nodeClock) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return k.inc.derive(ctx, false, 0)
}

func (k *nodeClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return k.inc.derive(ctx, true, d)
}

// Go starts a task of the incarnation.
func (k *nodeClock) Go(ctx context.Context, name string, f func(ctx context.Context)) {
	if k.inc.dead {
		panic(killed{})
	}
	k.inc.node.w.spawn(k.inc, name, ctx, f)
}

// NewParker returns a parker for a task of the incarnation.
func (k *nodeClock) NewParker() clock.Parker { return &parker{inc: k.inc} }

type parker struct {
	inc   *Incarnation
	token bool
	t     *task // who is parked
}

// Park takes the token or waits for it. Only a wait is a step.
func (p *parker) Park(ctx context.Context) error {
	t := p.inc.enter()
	if p.token {
		p.token = false
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.t != nil {
		misuse("two tasks on one parker: %s and %s", t.w.describe(p.t), t.w.describe(t))
	}
	t.w.issue(t, OpWait, nil)
	p.t = t
	t.park(ctx)
	p.t = nil
	var err error
	if p.token {
		p.token = false
	} else {
		err = ctx.Err()
	}
	t.w.resumed(t, err)
	return err
}

// Unpark puts the token and wakes who waits for it.
func (p *parker) Unpark() {
	p.token = true
	// The record of a dead task may serve another one by now.
	if p.t != nil && !p.inc.dead {
		p.inc.node.w.wake(p.t)
	}
}

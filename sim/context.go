package sim

import (
	"context"
	"time"
)

// simCtx is the source of a context's end. Nobody is given one: what is handed
// out is a genuine context.WithCancel over it, so that everything that anyone
// derives from it, by whatever wrapper, works as ever and without a goroutine:
// the genuine one asks its parent for an AfterFunc method, and has its children
// attach to it directly.
//
// What ends a context of someone else between two of ours is not seen by waits
// under the lower one: production code derives from its Clock alone.
//
// Children, functions and waiting tasks are lists, since the genuine context
// keeps a map, whose order would make runs differ.
type simCtx struct {
	inc      *Incarnation
	up       context.Context // what it was derived from
	genuine  context.CancelFunc
	deadline int64 // on the node's clock, in nanoseconds; 0: none
	timer    *event
	err      error
	after    []func()
	one      [1]func() // behind after, as long as there is no second

	parent   *simCtx
	among    link[simCtx] // the children of its parent
	children list[simCtx]
	waiting  list[task]
}

type sourceKey struct{}

// sourceOf returns the simCtx whose end is also the end of ctx, or nil if ctx
// never ends. One behind context.WithoutCancel is still found by Value.
func sourceOf(ctx context.Context) *simCtx {
	if ctx.Done() == nil {
		return nil
	}
	src, _ := ctx.Value(sourceKey{}).(*simCtx)
	return src
}

// derive returns a context below up that ends with it, by the returned function,
// or d from now if there is a limit.
func (inc *Incarnation) derive(up context.Context, limited bool, d time.Duration) (context.Context, context.CancelFunc) {
	c := &simCtx{inc: inc, up: up}
	c.after = c.one[:0]
	parent := sourceOf(up)
	if parent == nil {
		// It is still in the tree of the incarnation, so that its timer goes with it.
		parent = inc.limbo
	}
	parent.adopt(c)
	if limited {
		w := inc.node.w
		c.deadline = inc.node.local(w.now) + int64(d)
		if t, ok := up.Deadline(); ok && t.UnixNano() <= c.deadline {
			c.deadline = 0
		} else if d > 0 {
			c.timer = w.schedule(w.now + inc.node.trueDelay(d))
			c.timer.c = c
		}
	}
	switch {
	case up.Err() != nil:
		c.end(up.Err())
	case limited && d <= 0:
		c.end(context.DeadlineExceeded)
	}
	ctx, cancel := context.WithCancel(c)
	c.genuine = cancel
	return ctx, func() { c.end(context.Canceled) }
}

// Deadline, Done, Err and Value make it a context, for the genuine one above it.
func (c *simCtx) Deadline() (time.Time, bool) {
	if c.deadline != 0 {
		return time.Unix(0, c.deadline).UTC(), true
	}
	return c.up.Deadline()
}

// Done returns a channel that tells what is true at the moment and is not closed
// later: the genuine context learns of the end by AfterFunc.
func (c *simCtx) Done() <-chan struct{} {
	if c.err != nil {
		return c.inc.node.w.shut
	}
	return c.inc.node.w.open
}

func (c *simCtx) Err() error { return c.err }

func (c *simCtx) Value(key any) any {
	if key == (sourceKey{}) {
		return c
	}
	return c.up.Value(key)
}

// AfterFunc has f called when the context ends, and returns what takes that back.
func (c *simCtx) AfterFunc(f func()) func() bool {
	c.after = append(c.after, f)
	i := len(c.after) - 1
	return func() bool {
		if i >= len(c.after) || c.after[i] == nil {
			return false
		}
		c.after[i] = nil
		return true
	}
}

// end ends the context, everything below it, and every wait under any of them.
func (c *simCtx) end(err error) {
	if c.err != nil {
		return
	}
	w := c.inc.node.w
	c.err = err
	w.unschedule(c.timer)
	c.timer = nil
	after := c.after
	c.after = nil
	for _, f := range after {
		if f != nil {
			f()
		}
	}
	for c.children.first != nil {
		child := c.children.first.of
		c.disown(child)
		child.end(err)
	}
	for k := c.waiting.first; k != nil; k = k.next {
		w.wake(k.of)
	}
	if c.parent != nil {
		c.parent.disown(c)
	}
	if c.genuine != nil {
		c.genuine()
	}
}

// forget drops the timers of c and of everything below it: its incarnation is
// dead, and nobody is left to notice.
func (c *simCtx) forget() {
	c.inc.node.w.unschedule(c.timer)
	c.timer = nil
	for k := c.children.first; k != nil; k = k.next {
		k.of.forget()
	}
}

func (c *simCtx) adopt(k *simCtx) {
	k.parent = c
	c.children.add(&k.among, k)
}

func (c *simCtx) disown(k *simCtx) {
	k.parent = nil
	c.children.remove(&k.among)
}

func (c *simCtx) wait(t *task) {
	t.on = c
	c.waiting.add(&t.onLink, t)
}

func (c *simCtx) unwait(t *task) {
	t.on = nil
	c.waiting.remove(&t.onLink)
}

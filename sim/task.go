package sim

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
)

type taskState uint8

const (
	taskNew     taskState = iota // never had a turn
	taskReady                    // waits for a turn
	taskHeld                     // the same, but its process is paused
	taskParked                   // waits for something
	taskRunning                  // has the turn
	taskEnded
)

// task is one coroutine with the body that it runs at the moment. Both the
// record and the coroutine are used again for other bodies, since to make a
// coroutine costs more than ten steps.
type task struct {
	w     *World
	id    uint64
	name  string
	inc   *Incarnation
	fn    func(ctx context.Context)
	ctx   context.Context
	state taskState
	duty  string // that it works for, if Config.Duty tells
	fresh bool   // has not begun
	at    int    // in w.ready, -1 if not there

	step  int // that it is parked with; 0: none, or one of the harness
	op    Op
	call  *call  // the dependency call that it waits for
	timer *event // that wakes it
	scan  scanned

	// The context whose end wakes it, and its place among those who wait for it.
	on     *simCtx
	onLink link[task]

	among link[task] // those of the incarnation

	// The context that it last waited under and the source of its end.
	seenCtx context.Context
	seenSrc *simCtx

	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()
}

// killed is what a task of a dead incarnation panics with, to run its deferred
// functions and leave. Only the root of a task recovers it.
type killed struct{}

// spawn makes a task of inc that is ready to run.
func (w *World) spawn(inc *Incarnation, name string, ctx context.Context, fn func(ctx context.Context)) *task {
	var t *task
	if n := len(w.freeTasks); n > 0 {
		t = w.freeTasks[n-1]
		w.freeTasks[n-1] = nil
		w.freeTasks = w.freeTasks[:n-1]
	} else {
		t = &task{w: w, at: -1}
		t.resume, t.stop = iter.Pull(t.bodies)
		w.coros++
	}
	w.tasks++
	t.id, t.name, t.inc, t.ctx, t.fn = w.tasks, name, inc, ctx, fn
	t.state, t.fresh = taskNew, true
	if w.cfg.Duty != nil {
		parent := ""
		if w.cur != nil && w.cur.inc == inc {
			parent = w.cur.duty
		}
		t.duty = w.cfg.Duty(name, parent)
	}
	inc.link(t)
	w.emit(w.record(EvStart, 0, inc, t, w.steps, ""))
	w.makeReady(t)
	return t
}

// bodies is the coroutine: it runs one body after the other and yields between.
func (t *task) bodies(yield func(struct{}) bool) {
	t.yield = yield
	for {
		t.run()
		if !yield(struct{}{}) {
			return
		}
	}
}

func (t *task) run() {
	defer func() {
		r := recover()
		if _, ok := r.(killed); r != nil && !ok {
			t.w.crashed(t, r, string(debug.Stack()))
		}
		t.w.drop(t)
		t.inc.unlink(t)
		t.state = taskEnded
	}()
	t.fn(t.ctx)
	if !t.inc.dead {
		t.w.emit(t.w.record(EvExit, 0, t.inc, t, t.w.steps, ""))
	}
}

// crashed reports a panic of a task.
func (w *World) crashed(t *task, r any, stack string) {
	invariant := "panic"
	if _, ok := r.(misuseError); ok {
		invariant = "harness"
	}
	if f := w.found(invariant, t.name, fmt.Sprintf("the task panicked: %v", r)); f != nil {
		f.Stack = stack
	}
}

// turn lets t run until it parks or ends.
func (w *World) turn(t *task) {
	prev := w.cur
	w.cur = t
	t.state, t.fresh = taskRunning, false
	t.resume()
	w.cur = prev
	if t.state == taskEnded {
		w.recycle(t)
	}
}

// recycle keeps the coroutine of an ended task for another body.
func (w *World) recycle(t *task) {
	t.name, t.inc, t.ctx, t.fn, t.seenCtx, t.seenSrc = "", nil, nil, nil, nil, nil
	t.step, t.op, t.call, t.scan = 0, 0, nil, scanned{}
	w.freeTasks = append(w.freeTasks, t)
}

// drop takes t out of everything that could wake it.
func (w *World) drop(t *task) {
	w.unready(t)
	w.unschedule(t.timer)
	t.timer = nil
	if t.on != nil {
		t.on.unwait(t)
	}
}

// park gives the turn away until t is woken, by what the caller has arranged or
// by the end of ctx. It does not return if t's incarnation is dead by then.
func (t *task) park(ctx context.Context) {
	if src := t.source(ctx); src != nil {
		src.wait(t)
	}
	t.pass()
	if t.on != nil {
		t.on.unwait(t)
	}
}

// pass is park without a context.
func (t *task) pass() {
	if t.state == taskRunning {
		t.state = taskParked // else something woke it already
	}
	if !t.yield(struct{}{}) || t.inc.dead {
		panic(killed{})
	}
}

// wake makes a parked task ready. To wake one that is not parked, or is dead,
// does nothing.
func (w *World) wake(t *task) {
	if t.state == taskParked && !t.inc.dead {
		w.makeReady(t)
	}
}

func (w *World) makeReady(t *task) {
	if t.inc.paused {
		t.state = taskHeld
		t.inc.held = append(t.inc.held, t)
		return
	}
	t.state = taskReady
	w.ready = putIn(w.ready, t)
}

func (t *task) place() *int { return &t.at }

// unready takes t out of the ready ones, if it is there.
func (w *World) unready(t *task) {
	w.ready = takeOut(w.ready, t)
}

// enter returns the running task on behalf of a call of inc. It refuses the
// calls of the dead: their deferred functions come here too.
func (inc *Incarnation) enter() *task {
	t := inc.node.w.cur
	if t == nil || t.inc != inc {
		misuse("%s used by %s", inc, inc.node.w.describe(t))
	}
	if inc.dead {
		panic(killed{})
	}
	return t
}

func (w *World) describe(t *task) string {
	if t == nil {
		return "no task"
	}
	return fmt.Sprintf("task %d (%s) of %s", t.id, t.name, t.inc)
}

// source returns the context of this world whose end is also the end of ctx.
func (t *task) source(ctx context.Context) *simCtx {
	if ctx != t.seenCtx {
		t.seenCtx, t.seenSrc = ctx, sourceOf(ctx)
	}
	return t.seenSrc
}

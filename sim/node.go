package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// Node is a machine with a name and a clock of its own. At most one process, an
// Incarnation, runs on it at a time.
type Node struct {
	w    *World
	name string
	inc  *Incarnation // alive, or nil
	num  int          // incarnations so far

	// The node's clock: at true time since it showed shown, and it gains ppm
	// microseconds a second.
	since, shown int64
	ppm          int64

	cutStore, cutBucket, cutNet bool

	ops [opCount]int
}

// Node returns the node of that name, made when it is first asked for, with an
// exact clock.
func (w *World) Node(name string) *Node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	n := &Node{w: w, name: name, since: w.now, shown: w.now}
	w.nodes = append(w.nodes, n)
	return n
}

// Nodes returns all nodes in the order in which they were made.
func (w *World) Nodes() []*Node { return w.nodes }

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Current returns the living incarnation, or nil.
func (n *Node) Current() *Incarnation { return n.inc }

// Ops returns how many steps of that kind the node's incarnations have issued.
func (n *Node) Ops(op Op) int { return n.ops[op] }

// SetClock sets how far the node's clock is from the true time at this moment and
// how many microseconds it gains each second (within ±100,000). Timers that run
// are not changed, as on a real machine.
func (n *Node) SetClock(offset time.Duration, ppm int) {
	if ppm < -100_000 || ppm > 100_000 {
		misuse("clock drift of %d ppm", ppm)
	}
	n.since, n.shown, n.ppm = n.w.now, n.w.now+int64(offset), int64(ppm)
}

// Skew returns how far the node's clock is from the true time.
func (n *Node) Skew() time.Duration { return time.Duration(n.local(n.w.now) - n.w.now) }

// local returns what the node's clock shows at that true time.
func (n *Node) local(at int64) int64 {
	d := at - n.since
	const million = 1_000_000
	return n.shown + d + d/million*n.ppm + d%million*n.ppm/million
}

// trueDelay returns how long it takes until the node's clock has advanced by d.
func (n *Node) trueDelay(d time.Duration) int64 {
	if n.ppm == 0 {
		return int64(d)
	}
	const million = 1_000_000
	rate := million + n.ppm
	// One more, since local rounds down.
	return int64(d)/rate*million + (int64(d)%rate*million+rate-1)/rate + 1
}

// Incarnation is one life of a node's process: its tasks, and the clock, store
// and bucket that they use. Nothing but the store and the bucket outlives it.
type Incarnation struct {
	node      *Node
	num       int
	isHarness bool
	dead      bool
	paused    bool
	exited    bool

	clk    nodeClock
	st     nodeStore
	bkt    nodeBucket
	rand   Rand
	root   *simCtx
	ctx    context.Context
	cancel context.CancelFunc
	limbo  *simCtx

	living  list[task] // its tasks, in order of their ids
	count   int
	held    []*task   // ready, but for the pause
	overdue []*simCtx // whose deadline passed while it was paused
	late    []*call   // may take effect after their answer; embedded world only
	rpcs    []*rpc
	kill    *Kill // what ended it, if that was planned

	newestEffect int // step of the newest call that has changed something
}

func newIncarnation(n *Node, num int) *Incarnation {
	inc := &Incarnation{node: n, num: num, rand: n.w.stream(fmt.Sprintf("rand/%s/%d", n.name, num))}
	inc.clk.inc, inc.st.inc, inc.bkt.inc = inc, inc, inc
	inc.limbo = &simCtx{inc: inc, up: context.Background()}
	inc.ctx, inc.cancel = inc.derive(context.Background(), false, 0)
	inc.root = sourceOf(inc.ctx)
	return inc
}

// Start begins a process on the node, with main as its first task; a nil main
// starts none. The node must have no living process; in the embedded world no
// node may.
func (n *Node) Start(main func(ctx context.Context, inc *Incarnation)) *Incarnation {
	w := n.w
	for _, o := range w.nodes {
		if o.inc != nil && (o == n || w.cfg.Embedded) {
			misuse("start of %s while %s lives", n.name, o.inc)
		}
	}
	n.num++
	inc := newIncarnation(n, n.num)
	n.inc = inc
	w.emit(w.record(EvUp, 0, inc, nil, w.steps, ""))
	if main != nil {
		inc.Go("main", func(ctx context.Context) { main(ctx, inc) })
	}
	return inc
}

// Go starts a task of the process under its root context.
func (inc *Incarnation) Go(name string, f func(ctx context.Context)) {
	if inc.dead {
		misuse("task %s started on %s, which is dead", name, inc)
	}
	inc.node.w.spawn(inc, name, inc.ctx, f)
}

// Clock, Store and Bucket are what production code is given. Their methods may
// be called by tasks of this incarnation alone, but for Now, Rand and Unpark.
func (inc *Incarnation) Clock() clock.Clock       { return &inc.clk }
func (inc *Incarnation) Store() metastore.Store   { return &inc.st }
func (inc *Incarnation) Bucket() objstore.Bucket  { return &inc.bkt }
func (inc *Incarnation) Context() context.Context { return inc.ctx }

// Interrupt ends the root context, as a signal to stop does; the process goes on
// until it has drained.
func (inc *Incarnation) Interrupt() { inc.cancel() }

// Node returns the node that it runs, or ran, on.
func (inc *Incarnation) Node() *Node { return inc.node }

// Number counts the node's incarnations from 1.
func (inc *Incarnation) Number() int { return inc.num }

// Dead tells whether the process has ended.
func (inc *Incarnation) Dead() bool { return inc.dead }

// Paused tells whether the process is stopped for now.
func (inc *Incarnation) Paused() bool { return inc.paused }

// Running returns how many of its tasks have not ended.
func (inc *Incarnation) Running() int { return inc.count }

// Calls returns how many calls of clients it has not answered yet.
func (inc *Incarnation) Calls() int { return len(inc.rpcs) }

// TaskNames returns the names of the tasks that have not ended, oldest first.
func (inc *Incarnation) TaskNames() []string {
	var names []string
	for k := inc.living.first; k != nil; k = k.next {
		names = append(names, k.of.name)
	}
	return names
}

func (inc *Incarnation) String() string {
	if inc.isHarness {
		return "the harness"
	}
	return fmt.Sprintf("%s#%d", inc.node.name, inc.num)
}

// Pause stops the process: its tasks get no turns while time passes. What it has
// asked of the store and the bucket goes on.
func (inc *Incarnation) Pause() {
	if inc.dead || inc.paused {
		return
	}
	w := inc.node.w
	inc.paused = true
	w.emit(w.record(EvPause, 0, inc, nil, w.steps, ""))
	for k := inc.living.first; k != nil; k = k.next {
		t := k.of
		if t.state == taskReady {
			w.unready(t)
			w.makeReady(t)
		}
	}
}

// Resume lets a paused process go on where it was, as a zombie perhaps.
func (inc *Incarnation) Resume() {
	if inc.dead || !inc.paused {
		return
	}
	w := inc.node.w
	inc.paused = false
	w.emit(w.record(EvResume, 0, inc, nil, w.steps, ""))
	held := inc.held
	inc.held = nil
	for _, t := range held {
		w.makeReady(t)
	}
	// Deadlines that passed meanwhile fire soon, but whoever could go on may do so before: what a process
	// checks of its context when it wakes tells nothing.
	overdue := inc.overdue
	inc.overdue = nil
	for _, c := range overdue {
		if c.err == nil {
			c.timer = w.schedule(w.now + int64(w.sched.N(int(wakeTimers))))
			c.timer.c = c
		}
	}
}

// wakeTimers is within what time the overdue timers of a process that wakes fire.
const wakeTimers = 500 * time.Millisecond

func (inc *Incarnation) link(t *task) {
	inc.living.add(&t.among, t)
	inc.count++
}

func (inc *Incarnation) unlink(t *task) {
	inc.living.remove(&t.among)
	inc.count--
}

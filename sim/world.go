// Package sim is a deterministic world for Nova's production code: virtual time,
// a scheduler, nodes that can be killed at any step, and a metadata store and a
// bucket that use all the freedom their contracts give.
//
// A run is a pure function of the program and the seed. Tasks are coroutines, one
// of which runs at a time; each call of a dependency, each sleep and each wait of
// a node's task is a step: the task parks and the scheduler draws, from the seed,
// what goes on next. Time advances only when nothing can go on. Everything that
// happens is folded into a hash, so that equal runs are told by one number.
//
// # Worlds
//
// In the embedded world there is one process at a time, and what a killed process
// had asked of its store and bucket has happened or not, at once; sessions end
// with it. In the shared world there are several; calls of the dead may still
// take effect, sessions end by their TTL, and a process may be paused and wake as
// a zombie.
//
// # Tasks of nodes and of the harness
//
// An [Incarnation] is one life of a node's process; its clock, store and bucket
// are what production code is given. A [Client] is a part of the harness: it is
// never killed, its waits are no steps, and it calls into a node by [Client.Do],
// which may lose the answer.
//
// A World is not safe for concurrent use: everything happens in the coroutines
// that Run resumes, or between two Runs.
package sim

import (
	"fmt"
	"time"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// Config of a world. The zero value is a shared world without faults.
type Config struct {
	Seed uint64
	// StartTime is the virtual time at which the world begins; zero means the
	// first moment of 2026.
	StartTime time.Time
	// Embedded makes it the world of one process at a time.
	Embedded bool
	// MaxSteps ends a run after that many steps; 0 means no bound.
	MaxSteps int
	// RingSize is how many events of the trace are kept; 0 means 8192.
	RingSize int
	// Sink is given every event of the trace. The event and its keys are reused
	// once it returns.
	Sink func(*Event) `json:"-"`
	// Decisions, if not nil, are written down or followed, by how they were made.
	Decisions *Decisions `json:"-"`
	// MaxOps and MaxBytes are the store's limits; 0 means 128 and 1 MiB.
	MaxOps, MaxBytes int
	// Faults are what is on from the start.
	Faults Faults
	// BucketSkew is how far the bucket's clock, by which it judges a put's NotAfter, is from the true time.
	BucketSkew time.Duration
	// Classes makes the world keep the classes of cuts, see World.Classes.
	Classes bool
	// Duty, if not nil, names the duty for which a task works, given its name and the duty of
	// the task of the same process that has started it, if one has. Classes are told by it.
	Duty func(task, parent string) string `json:"-"`
	// Watchdog, if above 0, is how long in real time a turn may take before OnHang
	// is called, from a goroutine of its own, with the stacks of all goroutines:
	// a task then waits for something that is not of this world. A nil OnHang
	// panics with them.
	Watchdog time.Duration
	OnHang   func(stacks string) `json:"-"`
}

// World is one simulated world.
type World struct {
	cfg    Config
	faults Faults
	limits metastore.Limits

	sched, fault, work, topo Rand

	now      int64 // virtual true time, in nanoseconds since the Unix epoch
	start    int64
	steps    int
	turns    int
	tasks    uint64 // ids given
	coros    int    // coroutines that exist
	heap     []*event
	eventSeq uint64

	ready      []*task // may take a turn
	readyCalls []*call // their effect may happen
	pending    []*call // commits and puts that are on their way, and nobody waits for
	cur        *task   // whose turn it is
	running    bool    // inside Run
	stopped    bool
	closed     bool

	freeEvents []*event
	freeTasks  []*task
	freeCalls  []*call

	nodes   []*Node
	clients []*Client
	harness *Incarnation

	// What contexts answer as long as they have not ended, and once they have.
	open, shut chan struct{}
	deaths     []*Incarnation // dead, not unwound yet

	store  store
	bucket bucket

	storeDown, bucketDown bool

	kills []Kill
	cuts  cuts

	onStep    []func(*StepInfo)
	onStepEnd []func()
	onCommit  []func(*Commit)
	onBucket  []func(*BucketEffect)
	onKill    []func(*Incarnation)
	stepInfo  StepInfo
	injector  Injector
	callInfo  CallInfo
	effectOf  *call // whose effect is happening

	marks   Marks
	marked  Event // reused
	finding *Finding

	ring     []Event
	ringAt   int
	ringFull bool
	hash     uint64

	dog watchdog
}

// New returns a world in which nothing happened yet. Close must be called.
func New(cfg Config) *World {
	if cfg.StartTime.IsZero() {
		cfg.StartTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if cfg.RingSize <= 0 {
		cfg.RingSize = 8192
	}
	if cfg.MaxOps <= 0 {
		cfg.MaxOps = 128
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 1 << 20
	}
	w := &World{
		cfg:    cfg,
		faults: cfg.Faults,
		limits: metastore.Limits{MaxOps: cfg.MaxOps, MaxBytes: cfg.MaxBytes},
		now:    cfg.StartTime.UnixNano(),
		marks:  Marks{},
		ring:   make([]Event, cfg.RingSize),
		open:   make(chan struct{}),
		shut:   make(chan struct{}),
	}
	w.sched, w.fault, w.work, w.topo = w.stream("sched"), w.stream("fault"), w.stream("workload"), w.stream("topology")
	close(w.shut)
	w.start = w.now
	w.store.init(w)
	w.bucket.init(w)
	w.harness = newIncarnation(&Node{w: w}, 0)
	w.harness.isHarness = true
	return w
}

// Seed returns the seed of the world.
func (w *World) Seed() uint64 { return w.cfg.Seed }

// MaxOps is how many operations the store takes in one commit.
func (w *World) MaxOps() int { return w.limits.MaxOps }

// Embedded tells which of the two worlds it is.
func (w *World) Embedded() bool { return w.cfg.Embedded }

// Time returns the true virtual time, which no node knows exactly.
func (w *World) Time() time.Time { return time.Unix(0, w.now).UTC() }

// Elapsed returns how much virtual time has passed since the world began.
func (w *World) Elapsed() time.Duration { return time.Duration(w.now - w.start) }

// Steps returns the number of the newest step, which is how many there were.
func (w *World) Steps() int { return w.steps }

// Turns returns how often the scheduler let a task or an effect go on.
func (w *World) Turns() int { return w.turns }

// Workload returns the stream of random numbers for what clients do.
func (w *World) Workload() *Rand { return &w.work }

// Topology returns the stream for which nodes there are, and which faults.
func (w *World) Topology() *Rand { return &w.topo }

// Stream returns a new stream of random numbers of that label: nothing of a world may
// be drawn from any that the world does not know, or it could not be replayed.
func (w *World) Stream(label string) *Rand {
	r := w.stream(label)
	return &r
}

func (w *World) stream(label string) Rand {
	return w.cfg.Decisions.stream(w.cfg.Seed, label, &w.steps)
}

// Coroutines returns how many coroutines exist. Each counts as a goroutine of
// the runtime, and the world has no others, so that runtime.NumGoroutine tells
// whether something else was started.
func (w *World) Coroutines() int { return w.coros }

// OnStep adds a hook that is called when a step is issued, before anything of it
// happens. It may kill the node: the call is then made without its effect.
func (w *World) OnStep(f func(*StepInfo)) { w.onStep = append(w.onStep, f) }

// OnStepEnd adds a hook that is called after every effect and every turn, when no
// task is running.
func (w *World) OnStepEnd(f func()) { w.onStepEnd = append(w.onStepEnd, f) }

// OnCommit adds a hook that is called at the moment of every change of the store.
// What it is given is reused once it returns, values excepted.
func (w *World) OnCommit(f func(*Commit)) { w.onCommit = append(w.onCommit, f) }

// OnBucket adds a hook that is called at the moment of every change of the bucket.
func (w *World) OnBucket(f func(*BucketEffect)) { w.onBucket = append(w.onBucket, f) }

// OnKill adds a hook that is called once an incarnation has ended, by a kill or
// by Exit, and all its tasks are unwound; it may start the node again.
func (w *World) OnKill(f func(*Incarnation)) { w.onKill = append(w.onKill, f) }

// StepInfo describes a step that is being issued. It is reused.
type StepInfo struct {
	Step     int
	Op       Op
	Inc      *Incarnation
	Task     uint64
	TaskName string
	// Write tells that the call may have an effect.
	Write bool
	// Keys are what the call names: of a commit its conditions and operations, of
	// a scan its bounds, of a peek the start of its first range, of a listing its
	// prefix.
	Keys []string
	// Ranges and Limit are those of a scan, a peek or a listing.
	Ranges []metastore.Range
	Limit  int
	// Put holds the options of a put into the bucket.
	Put objstore.PutOptions
}

// Close unwinds every task and ends every coroutine. The world can be looked at
// afterwards, but not run.
func (w *World) Close() {
	if w.closed {
		return
	}
	if w.cur != nil {
		panic("sim: Close within a task")
	}
	w.closed = true
	w.dog.stop()
	for _, n := range w.nodes {
		if n.inc != nil {
			n.inc.die("the world ends")
		}
	}
	w.reap()
	w.harness.dead = true
	w.unwind(w.harness)
	for _, t := range w.freeTasks {
		t.stop()
	}
	w.coros -= len(w.freeTasks)
	w.freeTasks = nil
}

// misuse reports a mistake of the harness; such a world proves nothing.
func misuse(format string, args ...any) {
	panic(misuseError("sim: " + fmt.Sprintf(format, args...)))
}

type misuseError string

func (e misuseError) Error() string { return string(e) }

package sim

import (
	"math"
	"time"
)

// Reason is why a run came to its end.
type Reason uint8

const (
	// Reached: what was waited for has come.
	Reached Reason = iota + 1
	// TimeUp: the virtual time that was granted is over.
	TimeUp
	// Idle: no task can go on, and no event is to come.
	Idle
	// StepsUp: Config.MaxSteps were done.
	StepsUp
	// Found: something is wrong; see Result.Finding.
	Found
	// Stopped: someone called World.Stop.
	Stopped
)

func (r Reason) String() string {
	return [...]string{"", "reached", "time is up", "idle", "steps are up", "found", "stopped"}[r]
}

// Result is how a run ended.
type Result struct {
	Reason Reason
	// Finding is not nil if the world has one, from this run or before.
	Finding *Finding
	// Steps and Time are the world's at the end.
	Steps int
	Time  time.Time
}

// Run goes on until the function returns true, which is asked between turns; a
// nil one never does.
func (w *World) Run(until func() bool) Result { return w.run(until, math.MaxInt64) }

// RunFor goes on for d of virtual time.
func (w *World) RunFor(d time.Duration) Result { return w.run(nil, w.now+int64(d)) }

// RunUntilIdle goes on until nothing is left that could happen, for max of
// virtual time at most.
func (w *World) RunUntilIdle(max time.Duration) Result {
	return w.run(func() bool { return len(w.heap)+len(w.ready)+len(w.readyCalls) == 0 }, w.now+int64(max))
}

// RunUntil goes on until the function returns true, for max of virtual time at
// most.
func (w *World) RunUntil(until func() bool, max time.Duration) Result {
	return w.run(until, w.now+int64(max))
}

// Stop ends the run after the turn that is under way.
func (w *World) Stop() { w.stopped = true }

// At has f called, by the harness itself and not by a task, after d of virtual
// time.
func (w *World) At(d time.Duration, f func()) {
	w.schedule(w.now + int64(d)).fn = f
}

func (w *World) run(until func() bool, limit int64) Result {
	if w.running || w.closed {
		misuse("Run of a world that runs already or is closed")
	}
	w.running, w.stopped = true, false
	w.dog.start(w)
	defer func() {
		// Also when a test ends its goroutine from within a task.
		w.running, w.cur, w.effectOf = false, nil, nil
		w.dog.stop()
	}()
	reason := w.loop(until, limit)
	return Result{Reason: reason, Finding: w.finding, Steps: w.steps, Time: w.Time()}
}

func (w *World) loop(until func() bool, limit int64) Reason {
	for {
		switch {
		case w.finding != nil:
			w.finding.lookBack(w)
			return Found
		case w.stopped:
			return Stopped
		case w.cfg.MaxSteps > 0 && w.steps >= w.cfg.MaxSteps:
			return StepsUp
		case until != nil && until():
			return Reached
		}
		n := len(w.ready) + len(w.readyCalls)
		if n == 0 {
			if len(w.heap) == 0 && limit == math.MaxInt64 {
				return Idle
			}
			if len(w.heap) == 0 || w.heap[0].at > limit {
				w.advance(limit)
				return TimeUp
			}
			w.advance(w.heap[0].at)
			w.fireDue()
			w.reap()
			continue
		}
		w.turns++
		if w.turns&0xff == 0 {
			w.dog.beat()
		}
		i := 0
		if n > 1 {
			i = w.sched.N(n)
		}
		if i < len(w.ready) {
			t := w.ready[i]
			w.unready(t)
			w.goOn(t)
		} else {
			c := w.readyCalls[i-len(w.ready)]
			w.unreadyCall(c)
			w.effect(c)
		}
		w.reap()
		for _, f := range w.onStepEnd {
			f()
		}
	}
}

// goOn lets t have its turn, unless that is where it is to die.
func (w *World) goOn(t *task) {
	if t.step != 0 && (t.call == nil || !t.call.done) {
		// A sleep or a wait is over, or a call without its answer.
		w.cut(t.inc, t, t.op, t.step, After, false)
		if len(w.kills) > 0 && w.strike(t.inc, t.step, After, false) {
			t.state = taskParked
			return
		}
	}
	w.turn(t)
}

func (w *World) advance(to int64) {
	if to > w.now {
		w.now = to
		w.boundary()
	}
}

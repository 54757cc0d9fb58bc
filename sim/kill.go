package sim

import "strings"

// Side is where around a step a kill strikes.
type Side uint8

const (
	// Before: the call is made and never has an effect.
	Before Side = iota
	// After: the call has had its effect, its answer does not arrive. A sleep or a
	// wait is over, but the task does not go on.
	After
)

func (s Side) String() string { return [...]string{"before", "after"}[s] }

// Kill is a planned death: of whoever issues that step.
type Kill struct {
	Step int
	Side Side
	// Then, if not nil, is called once the incarnation is unwound, before the
	// hooks of World.OnKill.
	Then func(*Incarnation)
}

// KillAt plans a kill. A step that was issued already is never met.
func (w *World) KillAt(k Kill) { w.kills = append(w.kills, k) }

// strike kills inc if that is planned for this step and side.
func (w *World) strike(inc *Incarnation, step int, side Side) bool {
	for i := range w.kills {
		if w.kills[i].Step == step && w.kills[i].Side == side {
			k := w.kills[i]
			w.kills = append(w.kills[:i], w.kills[i+1:]...)
			inc.kill = &k
			inc.die("kill " + side.String() + " the step")
			return true
		}
	}
	return false
}

// Kill ends the process at once, as kill -9 does: its calls under way may or may
// not have an effect, and nothing in its memory survives. Called from one of its
// own tasks, or from a hook, it takes hold at the end of the turn.
func (inc *Incarnation) Kill() {
	inc.die("kill")
	inc.node.w.reapOutside(inc)
}

// Exit ends a process that has drained. Tasks that still run are a finding: what
// was stopped cleanly leaves none.
func (inc *Incarnation) Exit() {
	if inc.dead {
		return
	}
	w := inc.node.w
	alive := inc.count
	if w.cur != nil && w.cur.inc == inc {
		alive-- // the one that calls
	}
	if alive > 0 {
		w.Finding("task-leak", inc.String(), "still running at the end of a clean stop: "+strings.Join(inc.TaskNames(), ", "))
	}
	inc.exited = true
	inc.die("exit")
	w.reapOutside(inc)
}

// Exited tells whether the process ended by Exit.
func (inc *Incarnation) Exited() bool { return inc.exited }

func (inc *Incarnation) die(why string) {
	if inc.dead {
		return
	}
	w := inc.node.w
	inc.dead = true
	inc.node.inc = nil
	w.emit(w.record(EvKill, 0, inc, nil, w.steps, why))
	w.deaths = append(w.deaths, inc)
}

// reapOutside unwinds the dead now if nothing else is being done: outside a Run,
// or in the turn of another task.
func (w *World) reapOutside(inc *Incarnation) {
	if w.cur == nil && !w.running || w.cur != nil && w.cur.inc != inc && w.effectOf == nil {
		w.reap()
	}
}

// reap settles what the newly dead leave behind.
func (w *World) reap() {
	for len(w.deaths) > 0 {
		inc := w.deaths[0]
		w.deaths = append(w.deaths[:0], w.deaths[1:]...)
		w.settleCalls(inc)
		w.unwind(inc)
		inc.root.forget()
		inc.limbo.forget()
		if w.cfg.Embedded {
			w.store.endSessionsOf(inc)
		}
		for _, r := range inc.rpcs {
			r.serverDied()
		}
		inc.rpcs = nil
		if w.closed {
			continue // nobody is to start it again
		}
		if k := inc.kill; k != nil && k.Then != nil {
			k.Then(inc)
		}
		for _, f := range w.onKill {
			f(inc)
		}
	}
}

// settleCalls decides what becomes of the calls that inc has under way. In the
// embedded world each has its effect now or never. In the shared one each that
// was sent is on its way, or was never sent.
func (w *World) settleCalls(inc *Incarnation) {
	for t := inc.first; t != nil; t = t.next {
		c := t.call
		if c == nil || c.done {
			continue
		}
		t.call = nil
		switch {
		case !c.write || w.fault.Chance(0.5):
			w.unsend(c)
			if c.write {
				w.Mark("fault/died-before-effect")
			}
		case w.cfg.Embedded:
			w.unsend(c)
			c.t = nil
			w.effect(c)
		default:
			w.detach(c)
			w.postpone(c)
		}
	}
	late := inc.late
	inc.late = nil
	for _, c := range late {
		w.unsend(c)
		if w.fault.Chance(0.5) {
			w.effect(c)
		} else {
			w.landed(c, false)
		}
	}
}

// postpone lets a call of the dead, which is on its way, take as long as the contract allows: a commit whatever
// time it likes, a put until its NotAfter.
func (w *World) postpone(c *call) {
	if c.op != OpCommit && c.op != OpBucketPut || !w.fault.Chance(w.faults.DeadLate) {
		return
	}
	late := int64(0)
	if c.op == OpCommit {
		late = w.commitLateness()
	} else {
		late = w.putLateness(c.put)
	}
	w.unsend(c)
	c.ev = w.schedule(w.now + late)
	c.ev.call = c
	w.Mark("fault/dead-late")
}

// unwind ends the tasks of a dead incarnation in the order of their ids, running
// their deferred functions, in which every call is refused.
func (w *World) unwind(inc *Incarnation) {
	for inc.first != nil {
		t := inc.first
		w.drop(t)
		if t.fresh {
			inc.unlink(t)
			t.state = taskEnded
			w.recycle(t)
			continue
		}
		w.turn(t)
		if t.state != taskEnded {
			misuse("%s survives its process", w.describe(t))
		}
	}
	inc.held = nil
}

package sim

import (
	"slices"
	"strings"
)

// Side is where around a step a kill strikes, and what becomes of the other calls that the process has in the
// air at that moment: all of them have their effect, or none. In the shared world one that has it is on its way, as any.
type Side uint8

const (
	// Before: the call is made and never has an effect, nor has any other.
	Before Side = iota
	// After: the call has had its effect, its answer does not arrive; all others have theirs. A sleep or a
	// wait is over, but the task does not go on.
	After
	// Middle: a delete of several keys has removed the first half of them; no other call has an effect.
	Middle
	// BeforeOthers: as Before, and all others have their effect.
	BeforeOthers
	// AfterAlone: as After, and no other has its effect.
	AfterAlone
)

var sides = [...]string{"before", "after", "middle", "before-others", "after-alone"}

func (s Side) String() string { return sides[s] }

// Sides returns the names of all sides.
func Sides() []string { return slices.Clone(sides[:]) }

// ParseSide returns the side of that name, and whether there is one.
func ParseSide(name string) (Side, bool) {
	i := slices.Index(sides[:], name)
	return Side(max(i, 0)), i >= 0
}

// moment is the side of the step, Before or After, at which a kill of that side strikes.
func (s Side) moment() Side {
	if s == Before || s == BeforeOthers {
		return Before
	}
	return After
}

// others tells whether the other calls in the air have their effect.
func (s Side) others() bool { return s == After || s == BeforeOthers }

// Kill is a planned death: of whoever issues that step.
type Kill struct {
	Step int
	Side Side
	// Drawn has each of the other calls in the air have its effect or not by a draw of its own, whatever the side.
	Drawn bool
	// Then, if not nil, is called once the incarnation is unwound, before the
	// hooks of World.OnKill.
	Then func(*Incarnation)
}

// KillAt plans a kill. A step that was issued already is never met.
func (w *World) KillAt(k Kill) { w.kills = append(w.kills, k) }

// Planned returns the kills that were planned and have not struck.
func (w *World) Planned() []Kill { return slices.Clone(w.kills) }

// strike kills inc if that is planned for this moment of the step. One in the middle strikes where that
// has torn the call.
func (w *World) strike(inc *Incarnation, step int, moment Side, torn bool) bool {
	for i := range w.kills {
		if k := w.kills[i]; k.Step == step && k.Side.moment() == moment && (k.Side == Middle) == torn {
			w.kills = append(w.kills[:i], w.kills[i+1:]...)
			inc.kill = &k
			inc.die("kill " + k.Side.String() + " the step")
			return true
		}
	}
	return false
}

// halve leaves the second half of a delete's keys where they are, if a kill is to strike in the middle of it.
func (w *World) halve(c *call) (torn bool) {
	if c.op != OpBucketDelete || len(c.names) < 2 || c.refuse != nil || c.t == nil || c.inc.dead {
		return false
	}
	if !slices.ContainsFunc(w.kills, func(k Kill) bool { return k.Step == c.step && k.Side == Middle }) {
		return false
	}
	c.spared = make([]bool, len(c.names))
	for i := (len(c.names) + 1) / 2; i < len(c.names); i++ {
		c.spared[i] = true
	}
	return true
}

// tear draws which keys a delete still removes whose process has died: those of a directory go one by one.
func (w *World) tear(inc *Incarnation, c *call) {
	drawn := inc.kill == nil || inc.kill.Drawn
	if !drawn || c.op != OpBucketDelete || len(c.names) < 2 || !w.fault.Chance(0.5) {
		return
	}
	w.Mark("fault/delete-torn")
	c.spared = make([]bool, len(c.names))
	for i := range c.spared {
		c.spared[i] = w.fault.Chance(0.5)
	}
}

// Kill ends the process at once, as kill -9 does: its calls under way may or may
// not have an effect, and nothing in its memory survives. Called from one of its
// own tasks, or from a hook, it takes hold at the end of the turn.
func (inc *Incarnation) Kill() {
	inc.die("kill")
	inc.node.w.reapOutside(inc)
}

// KillAs ends the process as Kill does; its calls under way have the fate of those of another, which k has killed.
func (inc *Incarnation) KillAs(k Kill) {
	if !inc.dead {
		inc.kill = &Kill{Side: k.Side, Drawn: k.Drawn}
	}
	inc.Kill()
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

// happens decides whether a call that inc has under way as it dies has its effect.
func (w *World) happens(inc *Incarnation) bool {
	if k := inc.kill; k != nil && !k.Drawn {
		return k.Side.others()
	}
	return w.fault.Chance(0.5)
}

// settleCalls decides what becomes of the calls that inc has under way. In the
// embedded world each has its effect now or never. In the shared one each that
// was sent is on its way, or was never sent. Where that is drawn, a delete of several keys
// may also remove some of them.
func (w *World) settleCalls(inc *Incarnation) {
	for k := inc.living.first; k != nil; k = k.next {
		t := k.of
		c := t.call
		if c == nil || c.done {
			continue
		}
		t.call = nil
		switch {
		case !c.write || !w.happens(inc):
			w.unsend(c)
			if c.write {
				w.Mark("fault/died-before-effect")
			}
		case w.cfg.Embedded:
			w.tear(inc, c)
			w.unsend(c)
			c.t = nil
			w.effect(c)
		default:
			w.tear(inc, c)
			w.detach(c)
			w.postpone(c)
		}
	}
	late := inc.late
	inc.late = nil
	for _, c := range late {
		w.unsend(c)
		if w.happens(inc) {
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
	for inc.living.first != nil {
		t := inc.living.first.of
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

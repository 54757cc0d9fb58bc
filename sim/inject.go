package sim

import (
	"slices"
	"time"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// CallInfo describes a call of the store or the bucket that a node is about to make. It is
// reused.
type CallInfo struct {
	Op       Op
	Inc      *Incarnation
	TaskName string
	// Keys are what the call names, as in [StepInfo].
	Keys []string
	// Changes are the operations of a commit.
	Changes []metastore.Op
}

// Answer is what the caller of a call is told.
type Answer uint8

const (
	// AnswerTrue: what became of it.
	AnswerTrue Answer = iota
	// AnswerRefused: it has no effect, and the caller is told so: the store is unavailable, the bucket throttles or
	// can't be reached.
	AnswerRefused
	// AnswerUnknown: it has no effect, and the caller does not know; a read is refused.
	AnswerUnknown
	// AnswerLost: it has its effect, and the caller does not know; a read is refused.
	AnswerLost
)

// Fate is what becomes of one call by the will of the harness, in place of what would be drawn. The zero value
// changes nothing.
type Fate struct {
	Answer Answer
	// Slow is how much longer than usual the call is on its way.
	Slow time.Duration
	// Late, with AnswerUnknown, is how long after that answer the effect comes all the same.
	Late time.Duration
	// Hold, if not nil, keeps the call on its way until it is released; together with AnswerUnknown only the effect is
	// kept, and the caller has its answer.
	Hold *Hold
	// Kill strikes the node on that side of the step; what becomes of its other calls is drawn.
	Kill *Side
	// Pause stops the node before it learns of the answer.
	Pause bool
	// Page, if not nil, bounds the records of a scanned page: it says that there are more, if there are.
	Page *int
	// Corrupt flips a bit of what is read from the bucket.
	Corrupt bool
	// Missing answers a read as if the object were not there.
	Missing bool
	// Partial, if not nil, is how many keys of a delete are deleted; the others are throttled.
	Partial *int
}

// Injector decides what becomes of a call. counted tells that it remembers the call, so that
// another world would come of another number of calls.
type Injector func(c *CallInfo) (fate Fate, counted bool)

// Inject has f asked about every call of the store and the bucket that a node's task makes, but for those that
// its process makes as it dies.
func (w *World) Inject(f Injector) { w.injector = f }

// Hold keeps calls on their way until it is released.
type Hold struct {
	w     *World
	calls []*call
	open  bool
}

// NewHold returns a hold that keeps what it is given.
func (w *World) NewHold() *Hold { return &Hold{w: w} }

// Release lets what is held, and all that is to come, go on.
func (h *Hold) Release() {
	h.open = true
	calls := h.calls
	h.calls = nil
	for _, c := range calls {
		c.hold = nil
		h.w.readyCall(c)
	}
}

// Calls returns how many calls are held.
func (h *Hold) Calls() int { return len(h.calls) }

// take keeps a call, and tells whether it does.
func (h *Hold) take(c *call) bool {
	if h == nil || h.open {
		c.hold = nil
		return false
	}
	h.calls = append(h.calls, c)
	return true
}

// drop forgets a call that is taken off its way.
func (h *Hold) drop(c *call) {
	if h != nil {
		h.calls = slices.DeleteFunc(h.calls, func(o *call) bool { return o == c })
		c.hold = nil
	}
}

// inject lets the injector have its way with a call that is about to be made.
func (w *World) inject(c *call) (slow int64) {
	i := &w.callInfo
	*i = CallInfo{Op: c.op, Inc: c.inc, TaskName: c.t.name, Keys: c.keys, Changes: c.batch.Ops}
	f, counted := w.injector(i)
	if counted {
		w.boundary() // what the injector remembers outlives a kill
	}
	switch f.Answer {
	case AnswerRefused:
		c.refuse, c.mask, c.late = w.refusal(c), nil, 0
	case AnswerUnknown:
		c.mask, c.late = nil, 0
		if f.Late > 0 || f.Hold != nil {
			c.refuse, c.late = nil, max(int64(f.Late), 1)
		} else {
			c.refuse = w.lost(c.op)
		}
	case AnswerLost:
		if c.refuse, c.mask, c.late = nil, w.lost(c.op), 0; !c.write {
			c.refuse, c.mask = c.mask, nil
		}
	}
	if c.op == OpScan && f.Page != nil {
		c.limit, c.mayBeEmpty = min(c.limit, *f.Page), true
	}
	c.corrupt, c.missing, c.partial, c.hold = f.Corrupt, f.Missing, f.Partial, f.Hold
	if f.Kill != nil {
		w.KillAt(Kill{Step: w.steps + 1, Side: *f.Kill, Drawn: true})
	}
	if f.Pause {
		c.inc.Pause()
	}
	return int64(f.Slow)
}

// refusal is the error of a call that was turned away.
func (w *World) refusal(c *call) error {
	switch {
	case !c.op.ofBucket():
		return metastore.ErrUnavailable
	case c.write:
		return objstore.ErrThrottled
	}
	return ErrUnreachable
}

// ExpireSessions ends all sessions of a process at this moment, as if their time had come, and returns how many
// there were.
func (w *World) ExpireSessions(inc *Incarnation) int {
	before := len(w.store.sessions)
	w.store.endSessionsOf(inc)
	return before - len(w.store.sessions)
}

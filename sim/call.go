package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// Op is the kind of a step.
type Op uint8

const (
	OpSleep Op = iota + 1
	OpWait
	OpGet
	OpScan
	OpPeek
	OpCommit
	OpOpenSession
	OpKeepAlive
	OpCloseSession
	OpBucketPut
	OpBucketGet
	OpBucketStat
	OpBucketDelete
	OpBucketList
	opCount
)

var opNames = [opCount]string{"", "sleep", "wait", "get", "scan", "peek", "commit", "open-session",
	"keep-alive", "close-session", "PUT", "GET", "STAT", "DELETE", "LIST"}

func (o Op) String() string { return opNames[o] }

// ErrUnreachable is what a read of the bucket answers when the bucket could not
// be reached, or failed.
var ErrUnreachable = errors.New("sim: bucket unreachable")

// outcomes are the words for errors in the trace.
var outcomes = [...]struct {
	err  error
	word string
}{
	{metastore.ErrConflict, "conflict"},
	{metastore.ErrUnknown, "unknown"},
	{metastore.ErrUnavailable, "unavailable"},
	{metastore.ErrSessionGone, "session gone"},
	{metastore.ErrTooLarge, "too large"},
	{metastore.ErrDuplicateKey, "duplicate key"},
	{objstore.ErrExists, "exists"},
	{objstore.ErrNotFound, "not found"},
	{objstore.ErrUnknown, "unknown"},
	{objstore.ErrThrottled, "throttled"},
	{objstore.ErrExpired, "expired"},
	{objstore.ErrBadKey, "bad key"},
	{objstore.ErrTooLarge, "too large"},
	{ErrUnreachable, "unreachable"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

func (o Op) ofBucket() bool { return o >= OpBucketPut }

// call is one call of a dependency on its way: sent, then effected at one moment,
// then answered. A task waits for it, unless it was detached: its caller died or
// got its answer, and the effect is still to come.
type call struct {
	op    Op
	inc   *Incarnation
	t     *task
	step  int
	write bool
	done  bool  // effected
	owned bool  // the arguments are copies
	late  int64 // above 0: the effect is to come so much after the answer
	seen  bool  // detached, and what it would write was read since
	back  int64 // how long the answer takes
	ev    *event
	at    int // in w.readyCalls, -1 if not there

	refuse error // answer this, without an effect
	mask   error // answer this, with the effect
	also   error // what the error of refuse or mask matches besides
	hold   *Hold // what keeps it on its way

	// What an injector has willed.
	corrupt, missing, mayBeEmpty bool
	partial                      *int

	spared []bool // of a delete: the keys that stay, since it was torn by a kill

	keys []string // what the trace names

	// What was asked.
	names  []string
	ranges []metastore.Range
	one    [1]metastore.Range
	limit  int
	batch  metastore.Batch
	sess   *session
	ttl    int64
	key    string
	body   []byte
	off, n int64
	put    objstore.PutOptions
	after  string

	// The answer.
	recs  []metastore.Record
	more  bool
	ver   metastore.Version
	data  []byte
	size  int64
	infos []objstore.Info
	errs  []error
	err   error
}

// callError is an error of the store or the bucket with what was attempted. The
// text is made when someone reads it, since conflicts are frequent.
type callError struct {
	op   Op
	key  string
	err  error
	also error // the context's error, where that ended the call
}

func (e *callError) Error() string {
	s := fmt.Sprintf("%s %q: %v", e.op, e.key, e.err)
	if e.also != nil {
		s += ": " + e.also.Error()
	}
	return s
}

func (e *callError) Unwrap() error { return e.err }

func (e *callError) Is(target error) bool { return e.also != nil && errors.Is(e.also, target) }

// fail makes err the answer, whatever the effect; also is the context's error if
// that is why.
func (c *call) fail(err, also error) {
	key := c.key
	if key == "" && len(c.keys) > 0 {
		key = c.keys[0]
	}
	c.err = &callError{op: c.op, key: key, err: err, also: also}
	c.recs, c.more, c.data, c.infos, c.errs = nil, false, nil, nil, nil
	if c.op == OpBucketDelete {
		c.errs = slices.Repeat([]error{c.err}, len(c.names))
	}
}

// newCall returns a call of inc by the running task.
func (w *World) newCall(inc *Incarnation, t *task, op Op, write bool) *call {
	var c *call
	if n := len(w.freeCalls); n > 0 {
		c = w.freeCalls[n-1]
		w.freeCalls[n-1] = nil
		w.freeCalls = w.freeCalls[:n-1]
	} else {
		c = &call{at: -1}
	}
	c.op, c.inc, c.t, c.write = op, inc, t, write
	return c
}

// free keeps the record for another call. The slices of the answer now belong to
// the caller.
func (w *World) free(c *call) {
	clear(c.keys)
	*c = call{at: -1, keys: c.keys[:0]}
	w.freeCalls = append(w.freeCalls, c)
}

// issue counts a step of t and tells everyone. The incarnation may be dead
// afterwards: the step then has no effect, and t must park.
func (w *World) issue(t *task, op Op, c *call) {
	t.op = op
	inc := t.inc
	if inc.isHarness {
		t.step = 0
		return
	}
	w.steps++
	t.step = w.steps
	inc.node.ops[op]++
	write := false
	e := w.record(EvIssue, op, inc, t, t.step, "")
	if c != nil {
		c.step, write = t.step, c.write
		for _, k := range c.keys {
			w.addKey(e, k)
		}
	}
	w.emit(e)
	w.cut(inc, t, op, t.step, Before, write)
	if write && w.cfg.Classes && inc.inAir(c) {
		w.cut(inc, t, op, t.step, BeforeOthers, write)
	}
	if write {
		w.boundary()
	}
	if len(w.onStep) > 0 {
		s := &w.stepInfo
		*s = StepInfo{Step: t.step, Op: op, Inc: inc, Task: t.id, TaskName: t.name, Write: write}
		if c != nil {
			s.Keys, s.Ranges, s.Limit, s.Put = c.keys, c.ranges, c.limit, c.put
		}
		for _, f := range w.onStep {
			f(s)
		}
	}
	if len(w.kills) > 0 && !inc.dead {
		w.strike(inc, t.step, Before, false)
	}
}

// send issues the call, waits for its answer and returns the call with it. If ctx
// ends first it returns another, whose error says so. The caller frees what
// it was given.
func (w *World) send(ctx context.Context, c *call, l Latency, extra int64) *call {
	t := c.t
	if w.injector != nil {
		extra += w.inject(c)
	}
	w.issue(t, c.op, c)
	if c.inc.dead {
		t.pass()
	}
	out := w.fault.latency(l) + extra
	c.back = w.fault.latency(l)
	if c.late > 0 {
		return w.answerFirst(ctx, c, out+c.back)
	}
	t.call = c
	switch {
	case c.hold.take(c):
	case out > 0:
		c.ev = w.schedule(w.now + out)
		c.ev.call = c
	default:
		w.readyCall(c)
	}
	t.park(ctx)
	t.call = nil
	if t.timer != nil || !c.done {
		c = w.interrupted(t, c, ctx.Err())
	} else if c.refuse == nil && w.isCut(c.inc, c.op) {
		c.fail(w.lost(c.op), nil)
	}
	w.resumed(t, c.err)
	return c
}

// answerFirst lets the caller know nothing after the usual time, and the call
// have its effect after that.
func (w *World) answerFirst(ctx context.Context, c *call, in int64) *call {
	t := c.t
	r := w.newCall(c.inc, t, c.op, c.write)
	r.key, r.keys = c.key, append(r.keys, c.keys...)
	r.names = c.names
	w.detach(c)
	if !c.hold.take(c) {
		c.ev = w.schedule(w.now + in + c.late)
		c.ev.call = c
	}
	t.timer = w.schedule(w.now + in)
	t.timer.t = t
	t.park(ctx)
	var also error
	if t.timer != nil {
		w.unschedule(t.timer)
		t.timer = nil
		also = ctx.Err()
	}
	r.fail(w.lost(c.op), also)
	w.resumed(t, r.err)
	return r
}

// interrupted ends the wait for a call because the context has ended before its
// answer came. An effect that is still to come will.
func (w *World) interrupted(t *task, c *call, err error) *call {
	w.unschedule(t.timer)
	t.timer = nil
	if c.done || !c.write {
		w.unsend(c)
	} else {
		r := w.newCall(c.inc, t, c.op, true)
		r.key, r.keys = c.key, append(r.keys, c.keys...)
		r.names = c.names
		w.detach(c)
		c = r
	}
	if c.write {
		c.fail(w.lost(c.op), err)
	} else {
		c.fail(err, nil)
	}
	return c
}

// lost returns the error of a call whose answer did not arrive.
func (w *World) lost(op Op) error {
	switch op {
	case OpCommit:
		return metastore.ErrUnknown
	case OpBucketPut, OpBucketDelete:
		return objstore.ErrUnknown
	case OpBucketGet, OpBucketStat, OpBucketList:
		return ErrUnreachable
	default:
		return metastore.ErrUnavailable
	}
}

// effect lets the call do, at this moment, what it asks.
func (w *World) effect(c *call) {
	c.done = true
	kind := EvEffect
	if c.t == nil {
		kind = EvLate
	}
	torn := len(w.kills) > 0 && w.halve(c)
	w.effectOf = c
	changed := false
	switch {
	case c.refuse != nil:
		c.fail(c.refuse, c.also)
	case c.op.ofBucket():
		changed = w.bucket.perform(c)
	default:
		changed = w.store.perform(c)
	}
	w.effectOf = nil
	e := w.record(kind, c.op, c.inc, c.t, c.step, outcome(c.err))
	w.hash = fold(w.hash, uint64(c.ver)+uint64(len(c.recs))<<40)
	e.Keys = append(e.Keys, c.keys...)
	w.emit(e)
	if changed {
		w.boundary()
		w.ordered(c)
	}
	w.cutAfter(c)
	if len(w.kills) > 0 && !c.inc.dead {
		w.strike(c.inc, c.step, After, torn)
	}
	if c.mask != nil && c.err == nil {
		c.fail(c.mask, c.also)
	}
	if c.t == nil {
		if w.cfg.Embedded {
			c.inc.late = slices.DeleteFunc(c.inc.late, func(l *call) bool { return l == c })
		}
		w.landed(c, changed)
		w.free(c)
		return
	}
	switch {
	case c.inc.dead:
	case c.back > 0:
		c.t.timer = w.schedule(w.now + c.back)
		c.t.timer.t = c.t
	default:
		w.wake(c.t)
	}
}

// resumed notes that the task goes on after its step.
func (w *World) resumed(t *task, err error) {
	if t.step != 0 {
		w.emit(w.record(EvAnswer, t.op, t.inc, t, t.step, outcome(err)))
		t.step = 0
	}
}

// outcome is the word for err in the trace.
func outcome(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := err.(*callError); ok {
		err = e.err
	}
	for i := range outcomes {
		if err == outcomes[i].err {
			return outcomes[i].word
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return outcome(inner)
	}
	return err.Error()
}

// detach lets the call go on without a caller, in the world where that is
// possible, or notes it for the end of its process in the other.
func (w *World) detach(c *call) {
	c.t = nil
	if !c.owned {
		c.owned = true
		c.batch.Conds = slices.Clone(c.batch.Conds)
		c.batch.Ops = slices.Clone(c.batch.Ops)
		c.body = slices.Clone(c.body)
		c.names = slices.Clone(c.names)
	}
	if w.cfg.Embedded {
		c.inc.late = append(c.inc.late, c)
	}
	if c.op == OpCommit || c.op == OpBucketPut {
		w.pending = append(w.pending, c)
	}
}

// Pending returns how many commits and puts are on their way for which nobody waits any more, but for those that are held.
func (w *World) Pending() int {
	n := 0
	for _, c := range w.pending {
		if c.hold == nil {
			n++
		}
	}
	return n
}

// ordered marks an effect that overtook an earlier call of the same process.
func (w *World) ordered(c *call) {
	if c.step < c.inc.newestEffect {
		w.Mark("fault/reordered")
		return
	}
	c.inc.newestEffect = c.step
}

// lookedAt notes that a key was read while calls without a caller are on their way: what they
// will write was not seen then.
func (w *World) lookedAt(key, end string) {
	for _, c := range w.pending {
		k := c.key
		if c.op == OpCommit {
			if len(c.batch.Ops) == 0 {
				continue
			}
			k = c.batch.Ops[0].Key
		}
		c.seen = c.seen || k == key || end != "" && k >= key && k < end
	}
}

// landed marks what a call that nobody waited for did.
func (w *World) landed(c *call, changed bool) {
	w.pending = slices.DeleteFunc(w.pending, func(l *call) bool { return l == c })
	if !changed || c.op != OpCommit && c.op != OpBucketPut {
		return
	}
	what := "commit"
	if c.op == OpBucketPut {
		what = "put"
	}
	w.Mark("late/" + what)
	if c.inc.dead {
		w.Mark("late/" + what + "-of-the-dead")
	}
	if c.seen {
		w.Mark("late/" + what + "-after-a-read")
	}
}

// unsend takes a call that had no effect off its way.
func (w *World) unsend(c *call) {
	w.unschedule(c.ev)
	c.ev = nil
	c.hold.drop(c)
	w.unreadyCall(c)
}

func (w *World) readyCall(c *call) {
	c.ev = nil
	w.readyCalls = putIn(w.readyCalls, c)
}

func (w *World) unreadyCall(c *call) { w.readyCalls = takeOut(w.readyCalls, c) }

func (c *call) place() *int { return &c.at }

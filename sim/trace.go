package sim

import (
	"fmt"
	"strings"
	"time"
)

// EventKind says what an Event of the trace is.
type EventKind uint8

const (
	// EvIssue: a task parked, with a dependency call, a sleep or a wait. This is
	// the one kind that counts as a step.
	EvIssue EventKind = iota + 1
	// EvEffect: a dependency did what the call of that step asked.
	EvEffect
	// EvLate: the same, after the caller had its answer or was dead.
	EvLate
	// EvAnswer: the answer reached the task, which runs on.
	EvAnswer
	// EvSession: a session ended by itself.
	EvSession
	// EvStart and EvExit: a task began or returned.
	EvStart
	EvExit
	// EvUp, EvKill, EvPause, EvResume: an incarnation's life.
	EvUp
	EvKill
	EvPause
	EvResume
	// EvAsk and EvReply: a client called into a node, and has its answer.
	EvAsk
	EvReply
	// EvNote: a remark of the harness.
	EvNote
	// EvFinding: something is wrong.
	EvFinding
	// EvMark: a mark was hit, which Outcome names: a fault, a verdict, a rare path. It is told to a sink
	// alone, and is no part of the hash.
	EvMark
)

var eventNames = [...]string{"", "issue", "effect", "late", "answer", "session", "start", "exit",
	"up", "kill", "pause", "resume", "ask", "reply", "note", "finding", "mark"}

func (k EventKind) String() string { return eventNames[k] }

// Event is one line of the trace.
type Event struct {
	Kind     EventKind
	Op       Op
	Step     int       // of the call, or the newest step
	Time     time.Time // virtual
	Node     string
	Inc      int // the node's incarnation, from 1
	Task     uint64
	TaskName string
	// Keys are what the call names: keys of the store or bucket.
	Keys    []string
	Outcome string
}

// Touches tells whether a key that the event names is that key or holds it, also
// with its slashes folded to exclamation marks: so the records about an object
// name it.
func (e *Event) Touches(key string) bool {
	if key == "" {
		return false
	}
	folded := strings.ReplaceAll(key, "/", "!")
	for _, k := range e.Keys {
		if strings.Contains(k, key) || strings.Contains(k, folded) {
			return true
		}
	}
	return false
}

// String returns the event as one readable line.
func (e *Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7d %s %-8s", e.Step, e.Time.Format("01-02 15:04:05.000000"), e.Kind)
	if e.Node != "" {
		fmt.Fprintf(&b, " %s#%d", e.Node, e.Inc)
	}
	if e.Task != 0 {
		fmt.Fprintf(&b, " [%d %s]", e.Task, e.TaskName)
	}
	if e.Op != 0 {
		fmt.Fprintf(&b, " %s", e.Op)
	}
	for i, k := range e.Keys {
		if i == 8 {
			fmt.Fprintf(&b, " +%d", len(e.Keys)-i)
			break
		}
		fmt.Fprintf(&b, " %q", k)
	}
	if e.Outcome != "" {
		fmt.Fprintf(&b, " → %s", e.Outcome)
	}
	return b.String()
}

// ringKeys is for how many keys an event that is over keeps the room. Many more are rare, and
// would in the end stand behind every slot of the ring.
const ringKeys = 16

// record takes a fresh slot of the ring. The caller may append to its Keys and
// must then call w.emit.
func (w *World) record(kind EventKind, op Op, inc *Incarnation, t *task, step int, outcome string) *Event {
	e := &w.ring[w.ringAt]
	w.ringAt++
	if w.ringAt == len(w.ring) {
		w.ringAt = 0
		w.ringFull = true
	}
	if cap(e.Keys) > ringKeys {
		e.Keys = nil
	}
	clear(e.Keys)
	e.Kind, e.Op, e.Step, e.Time, e.Outcome, e.Keys = kind, op, step, w.Time(), outcome, e.Keys[:0]
	h := fold(w.hash, uint64(kind)|uint64(op)<<8|uint64(step)<<16)
	h = fold(h, uint64(w.now))
	if inc != nil {
		e.Node, e.Inc = inc.node.name, inc.num
	} else {
		e.Node, e.Inc = "", 0
	}
	if t != nil {
		e.Task, e.TaskName = t.id, t.name
		h = fold(h, t.id)
	} else {
		e.Task, e.TaskName = 0, ""
	}
	if outcome != "" {
		h = fold(h, hashString(outcome))
	}
	w.hash = h
	return e
}

func (w *World) addKey(e *Event, key string) {
	e.Keys = append(e.Keys, key)
	w.hash = fold(w.hash, hashString(key))
}

func (w *World) emit(e *Event) {
	if w.cfg.Sink != nil {
		w.cfg.Sink(e)
	}
}

// Note puts a remark into the trace, and thereby into the hash.
func (w *World) Note(text string, keys ...string) {
	e := w.record(EvNote, 0, nil, nil, w.steps, text)
	for _, k := range keys {
		w.addKey(e, k)
	}
	w.emit(e)
}

// Hash returns the trace hash: equal for equal runs.
func (w *World) Hash() uint64 { return w.hash }

// Trace returns the last events, oldest first; at most n if n > 0.
func (w *World) Trace(n int) []Event { return w.TraceOf(n, nil) }

// TraceOf returns the last n events that keep accepts, oldest first; n ≤ 0 and a
// nil keep are no restriction. The ring bounds how far it reaches back.
func (w *World) TraceOf(n int, keep func(*Event) bool) []Event {
	var out []Event
	size := w.ringAt
	if w.ringFull {
		size = len(w.ring)
	}
	for i := 1; i <= size && (n <= 0 || len(out) < n); i++ {
		e := &w.ring[(w.ringAt-i+len(w.ring))%len(w.ring)]
		if keep != nil && !keep(e) {
			continue
		}
		c := *e
		c.Keys = append([]string(nil), e.Keys...)
		out = append(out, c)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

package sim

import (
	"maps"
	"slices"
)

// Marks counts how often each named situation was met: each fault, each verdict,
// each rare path. A sweep adds the marks of its runs up; one that was never hit
// tells that a check never ran.
type Marks map[string]int

// MarkCount is one line of a listing.
type MarkCount struct {
	Name  string
	Count int
}

// List returns the marks in order of their names.
func (m Marks) List() []MarkCount {
	out := make([]MarkCount, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, MarkCount{name, m[name]})
	}
	return out
}

// Add adds the counts of n.
func (m Marks) Add(n Marks) {
	for k, v := range n {
		m[k] += v
	}
}

// Mark counts the situation of that name. It is no step and draws nothing.
func (w *World) Mark(name string) {
	w.marks[name]++
	if w.cfg.Sink != nil {
		w.cfg.Sink(w.markEvent(name))
	}
}

// markEvent describes where the mark was hit: by whose turn, or in the effect of which call.
func (w *World) markEvent(name string) *Event {
	e := &w.marked
	*e = Event{Kind: EvMark, Step: w.steps, Time: w.Time(), Outcome: name}
	t := w.cur
	if c := w.effectOf; c != nil {
		e.Step, e.Op, t = c.step, c.op, c.t
		e.Node, e.Inc = c.inc.node.name, c.inc.num
	}
	if t != nil {
		e.Task, e.TaskName = t.id, t.name
		e.Node, e.Inc = t.inc.node.name, t.inc.num
	}
	return e
}

// Marks returns the counts so far; the caller must not change them.
func (w *World) Marks() Marks { return w.marks }

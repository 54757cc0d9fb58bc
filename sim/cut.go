package sim

import "slices"

// Class is a set of cuts, each a step and a side, of which one stands for all: a
// kill there leaves the same world. A kill loses the node's memory, so cuts of
// one node around steps that only read are alike up to the next boundary: an
// effect of anyone, the issue of a call that may have one, an answer that leaves a
// node for a client, a request that comes from one, any advance of virtual time. A
// cut of a step that may have an effect is alone in its class, and there are more of it than two: in the middle of
// a delete of several keys, and, where other calls of the process are in the air, with these and without.
type Class struct {
	// FirstStep and Side are the first cut, the one to make.
	FirstStep int
	Side      Side
	Node      string
	Op        Op
	// Write tells that the step may have an effect.
	Write bool
	// Cuts is how many cuts the class stands for. Steps is how many of them are
	// before a step, so that the sum over all classes is the number of steps.
	Cuts, Steps int
	// Parts are the cuts and steps by duty and kind, in the order in which they are met; the first
	// is that of the cut to make.
	Parts []Part
}

// Part is what a class stands for in the steps of one kind of one duty, as Config.Duty tells duties.
type Part struct {
	Duty        string
	Op          Op
	Cuts, Steps int
}

// Of tells whether the class stands for a cut in a step of that duty.
func (c *Class) Of(duty string) bool {
	return slices.ContainsFunc(c.Parts, func(p Part) bool { return p.Duty == duty })
}

// add counts one more cut.
func (c *Class) add(duty string, op Op, steps int) {
	c.Cuts++
	c.Steps += steps
	i := slices.IndexFunc(c.Parts, func(p Part) bool { return p.Duty == duty && p.Op == op })
	if i < 0 {
		i = len(c.Parts)
		c.Parts = append(c.Parts, Part{Duty: duty, Op: op})
	}
	c.Parts[i].Cuts++
	c.Parts[i].Steps += steps
}

type cuts struct {
	boundary uint64
	classes  []Class
	open     map[*Incarnation]openClass
}

// openClass is the class of an incarnation's reads since that boundary.
type openClass struct {
	boundary uint64
	class    int
}

// Classes returns the classes of all cuts of the run so far, in the order in
// which their first one is met. Config.Classes must be on.
func (w *World) Classes() []Class { return w.cuts.classes }

// boundary notes that something happened that outlives a kill.
func (w *World) boundary() { w.cuts.boundary++ }

// inAir tells whether the process has another call under way that may have an effect, and which its death would
// decide on.
func (inc *Incarnation) inAir(but *call) bool {
	for k := inc.living.first; k != nil; k = k.next {
		if c := k.of.call; c != nil && c != but && c.write && !c.done {
			return true
		}
	}
	return slices.ContainsFunc(inc.late, func(c *call) bool { return c != but })
}

// cutAfter notes the cuts once a call has had its effect.
func (w *World) cutAfter(c *call) {
	if !w.cfg.Classes || c.inc.dead {
		return
	}
	if c.op == OpBucketDelete && len(c.names) > 1 && c.refuse == nil && c.t != nil {
		w.cut(c.inc, c.t, c.op, c.step, Middle, true)
	}
	w.cut(c.inc, c.t, c.op, c.step, After, c.write)
	if c.write && c.inc.inAir(c) {
		w.cut(c.inc, c.t, c.op, c.step, AfterAlone, true)
	}
}

// cut notes that a kill could strike here, at a step of t.
func (w *World) cut(inc *Incarnation, t *task, op Op, step int, side Side, write bool) {
	if !w.cfg.Classes || inc.dead {
		return
	}
	steps, duty := 0, ""
	if side == Before {
		steps = 1
	}
	if t != nil {
		duty = t.duty
	}
	cs := &w.cuts
	if o, ok := cs.open[inc]; ok && !write && o.boundary == cs.boundary {
		cs.classes[o.class].add(duty, op, steps)
		return
	}
	c := Class{FirstStep: step, Side: side, Node: inc.node.name, Op: op, Write: write}
	c.add(duty, op, steps)
	cs.classes = append(cs.classes, c)
	if write {
		return
	}
	if cs.open == nil {
		cs.open = map[*Incarnation]openClass{}
	}
	cs.open[inc] = openClass{cs.boundary, len(cs.classes) - 1}
}

package sim

// Class is a set of cuts, each a step and a side, of which one stands for all: a
// kill there leaves the same world. A kill loses the node's memory, so cuts of
// one node around steps that only read are alike up to the next boundary: an
// effect of anyone, the issue of a call that may have one, an answer that leaves a
// node for a client, a request that comes from one, any advance of virtual time. A
// cut of a step that may have an effect is alone in its class.
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

// cut notes that a kill could strike here.
func (w *World) cut(inc *Incarnation, op Op, step int, side Side, write bool) {
	if !w.cfg.Classes || inc.dead {
		return
	}
	steps := 0
	if side == Before {
		steps = 1
	}
	cs := &w.cuts
	if o, ok := cs.open[inc]; ok && !write && o.boundary == cs.boundary {
		cs.classes[o.class].Cuts++
		cs.classes[o.class].Steps += steps
		return
	}
	cs.classes = append(cs.classes, Class{FirstStep: step, Side: side, Node: inc.node.name, Op: op, Write: write, Cuts: 1, Steps: steps})
	if write {
		return
	}
	if cs.open == nil {
		cs.open = map[*Incarnation]openClass{}
	}
	cs.open[inc] = openClass{cs.boundary, len(cs.classes) - 1}
}

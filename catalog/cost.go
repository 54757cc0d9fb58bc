package catalog

import "github.com/nova-store/nova/objstore/format"

// chainOps bounds what a commit needs beside its streams: the chain record, the
// batch marker, its schedule entry and pending entries.
const chainOps = 3 + MaxAttributed

// perStream bounds what a stream needs: its head, and on its first commit its mark,
// its retention marker and the removal of an older one.
const perStream = 4

// slotCost bounds the operations that a slot adds. Runs of accepted records become
// one span each; only a conditional append can be turned down between accepted ones.
func (a *absorb) slotCost(in *SlotIn) int {
	n, spans, sections := 0, 1, 0
	if in.Footer.Bundled {
		n, spans, sections = perBundle, 1+perBundleSpan, perBundleStream
	}
	for i := range in.Footer.Sections {
		s := &in.Footer.Sections[i]
		n += spans*spansAtMost(s.Appends) + sections
		if t := a.by[StreamID(s.Stream)]; t != nil && !t.judged {
			n += perStream
		}
	}
	return n
}

func spansAtMost(as []format.Append) int {
	n := 1
	for i := range as {
		if as[i].HasExpected || as[i].HasProducer {
			n++
		}
	}
	return n
}

// FlightCost returns what an append adds to its flight's absorb, in operations, and
// what one commit can hold: a flight keeps below, so that its slot always fits one commit.
// bundled: the flight's records go into a bundle. A store whose MaxOps is below [LeastOps] may hold no
// append at all.
func (c *Catalog) FlightCost(newStream, conditional, bundled bool) (cost, most int) {
	most = c.store.Limits().MaxOps - chainOps
	span := 1
	if bundled {
		span += perBundleSpan
		most -= perBundle
		if newStream {
			cost += perBundleStream
		}
	}
	if newStream {
		cost += perStream + span
	}
	if conditional {
		cost += span
	}
	return cost, most
}

// LeastOps is the least MaxOps of a store under a catalog: a lone append of any kind, and every
// other single step of a transition, then fits one commit.
const LeastOps = 32

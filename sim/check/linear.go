package check

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// Histories are what clients have asked and been told, stream by stream, judged by nothing but that: is there an order of
// the operations, each at one moment between its call and its answer, in which every answer is right? The
// model is a log's length: an append is told where it landed, and moves the end; one at an expected
// offset is refused where that is not the end; a look at the tail is told the end. It is a second opinion on [Checker],
// which knows what the store holds, by another program (Athalye's porcupine) and from outside.
//
// An append whose outcome is unknown stays open until the end of the history: in an order in which it comes last nobody has seen
// it. Of each stream the first operations alone are kept, since the search may take exponential time: what was called
// later is not in the history, and an answer that came later, which may tell of it, counts as none. A search that is
// longer all the same than so many moves is given up: its history is undecided, and no finding.
type Histories struct {
	now     int64
	streams map[string]*history
}

type history struct {
	ops    []*Asked
	closed bool // enough of them
	spoilt bool // something else may have appended to it, or it is another stream of that name by now
}

const (
	historyOps     = 60      // of a stream
	historyUnknown = 8       // appends without an outcome among them: then the history ends
	historySearch  = 1 << 21 // moves of the search; a second or so. Counted, not timed, so that a verdict is the same on every machine
)

// NewHistories returns histories without an operation.
func NewHistories() *Histories { return &Histories{streams: map[string]*history{}} }

// Asked is an operation that a client has called.
type Asked struct {
	h        *Histories
	of       *history
	records  int // of an append; 0: a look at the tail
	expected *uint64

	call, answer int64
	outcome      outcome
	at           uint64 // where an append has landed, or the end that a look was told
}

type outcome uint8

const (
	open    outcome = iota // no answer, or one that says that the outcome is unknown
	landed                 // at an offset
	present                // it is there, at an offset that is not told
	wrong                  // refused, since the end is not where it was expected
	void                   // had no effect, and tells nothing
)

func (h *Histories) ask(stream string, records int, expected *uint64) *Asked {
	of := h.streams[stream]
	if of == nil {
		of = &history{}
		h.streams[stream] = of
	}
	h.now++
	a := &Asked{h: h, of: of, records: records, expected: expected, call: h.now, answer: math.MaxInt64}
	if !of.closed {
		of.ops = append(of.ops, a)
		of.closed = len(of.ops) == historyOps
	}
	return a
}

// Append notes that a client sends an append of so many records, at an expected offset perhaps.
func (h *Histories) Append(stream string, records int, expected *uint64) *Asked {
	return h.ask(stream, records, expected)
}

// Look notes that a client asks where a stream ends.
func (h *Histories) Look(stream string) *Asked { return h.ask(stream, 0, nil) }

// Spoil ends the judging of a stream, to which something else appends, or which is deleted.
func (h *Histories) Spoil(stream string) { h.ask(stream, 0, nil).of.spoilt = true }

func (a *Asked) answered(o outcome, at uint64) {
	a.h.now++
	a.outcome, a.at, a.answer = o, at, a.h.now
	if a.of.closed {
		// It may tell of what is not in the history.
		a.outcome, a.answer = open, math.MaxInt64
	}
}

// Landed, Present, Wrong and Void are an append's definite answers; Landed is also that of a look, at the end of the stream.
func (a *Asked) Landed(at uint64) { a.answered(landed, at) }
func (a *Asked) Present()         { a.answered(present, 0) }
func (a *Asked) Wrong()           { a.answered(wrong, 0) }
func (a *Asked) Void()            { a.outcome = void }

// Unknown is that no answer came, or one that leaves the outcome open; after a definite one it changes nothing.
func (a *Asked) Unknown() {
	if a.outcome != open {
		return
	}
	n := 0
	for _, o := range a.of.ops {
		if o.records > 0 && o.outcome == open {
			n++
		}
	}
	a.of.closed = a.of.closed || n >= historyUnknown
}

// logModel is the model of one stream: its state is the next offset.
var logModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		end, a := state.(uint64), input.(*Asked)
		fits := a.expected == nil || *a.expected == end
		next := end + uint64(a.records)
		switch {
		case a.records == 0:
			return a.at == end, end
		case a.outcome == landed:
			return fits && a.at == end, next
		case a.outcome == present:
			return fits, next
		case a.outcome == wrong:
			return !fits, end
		case fits:
			return true, next
		}
		return true, end
	},
	DescribeOperation: func(input, _ any) string { return input.(*Asked).String() },
}

func (a *Asked) String() string {
	what := fmt.Sprintf("append of %d", a.records)
	if a.records == 0 {
		what = "look"
	}
	if a.expected != nil {
		what += fmt.Sprintf(" at %d", *a.expected)
	}
	switch a.outcome {
	case landed:
		return fmt.Sprintf("%s: %d", what, a.at)
	case present:
		return what + ": there"
	case wrong:
		return what + ": refused"
	}
	return what + ": unknown"
}

// Judge returns the first stream, by name, of whose history there is no such order, and the history; or "". undecided is of
// how many streams before that the search was given up.
func (h *Histories) Judge() (stream, text string, undecided int) { return h.judge(historySearch) }

func (h *Histories) judge(most int) (stream, text string, undecided int) {
	for _, name := range slices.Sorted(maps.Keys(h.streams)) {
		of := h.streams[name]
		if of.spoilt {
			continue
		}
		var ops []porcupine.Operation
		for _, a := range of.ops {
			if a.outcome != void && (a.records > 0 || a.outcome != open) {
				ops = append(ops, porcupine.Operation{Input: a, Call: a.call, Return: a.answer})
			}
		}
		moves := 0
		model := logModel
		model.Step = func(state, input, output any) (bool, any) {
			if moves++; moves > most {
				return false, state // no move is left, so that the search ends soon
			}
			return logModel.Step(state, input, output)
		}
		switch {
		case porcupine.CheckOperations(model, ops):
		case moves > most:
			undecided++
		default:
			return name, fmt.Sprintf("no order of what clients were told of stream %q explains it: %s", name, listed(ops)), undecided
		}
	}
	return "", "", undecided
}

// listed is a history in words: each operation with when it was called and answered.
func listed(ops []porcupine.Operation) string {
	s := ""
	for i, o := range ops {
		if i > 0 {
			s += "; "
		}
		if o.Return == math.MaxInt64 {
			s += fmt.Sprintf("[%d–] %s", o.Call, o.Input)
		} else {
			s += fmt.Sprintf("[%d–%d] %s", o.Call, o.Return, o.Input)
		}
	}
	return s
}

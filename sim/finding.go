package sim

import (
	"fmt"
	"strings"
	"time"
)

// Finding is something that is wrong: with the code under test, or, if Invariant
// is "harness", with the harness.
type Finding struct {
	// Invariant names what is broken, Object the object or record concerned.
	Invariant, Object, Text string
	// Step and Time are those of the moment.
	Step int
	Time time.Time
	// Touched are the last events that name the object, Last the last of all.
	Touched, Last []Event
	// Stack is where a task panicked.
	Stack string
}

const (
	findingTouched = 24
	findingLast    = 12
)

// Finding reports that an invariant does not hold, and ends the run. The first
// one is kept.
func (w *World) Finding(invariant, object, text string) { w.found(invariant, object, text) }

// FindingOf is Finding with another idea of which events concern the object: those that touches accepts.
func (w *World) FindingOf(invariant, object, text string, touches func(*Event) bool) {
	if f := w.found(invariant, object, text); f != nil {
		f.Touched = w.TraceOf(findingTouched, func(e *Event) bool { return e.Kind != EvFinding && touches(e) })
	}
}

// Found returns the finding, or nil.
func (w *World) Found() *Finding { return w.finding }

func (w *World) found(invariant, object, text string) *Finding {
	e := w.record(EvFinding, 0, nil, nil, w.steps, invariant+": "+text)
	w.addKey(e, object)
	w.emit(e)
	if w.finding != nil {
		return nil
	}
	w.finding = &Finding{
		Invariant: invariant, Object: object, Text: text, Step: w.steps, Time: w.Time(),
	}
	if !w.running {
		w.finding.lookBack(w)
	}
	return w.finding
}

// lookBack takes the trace's end into the finding. Within a run that is done at
// its end, so that the effect that broke the invariant is there too.
func (f *Finding) lookBack(w *World) {
	if f.Last == nil {
		f.Touched = w.TraceOf(findingTouched, func(e *Event) bool { return e.Kind != EvFinding && e.Touches(f.Object) })
		f.Last = w.Trace(findingLast)
	}
}

// Error returns the finding in one line.
func (f *Finding) Error() string {
	return fmt.Sprintf("step %d: %s: %s: %s", f.Step, f.Invariant, f.Object, f.Text)
}

// Report returns the finding with the events that led to it.
func (f *Finding) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invariant  %s\nobject     %s\nstep       %d at %s\n%s\n", f.Invariant, f.Object, f.Step,
		f.Time.Format(time.RFC3339Nano), f.Text)
	list := func(title string, events []Event) {
		if len(events) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s\n", title)
		for i := range events {
			fmt.Fprintf(&b, "  %s\n", events[i].String())
		}
	}
	list("what touched it last", f.Touched)
	list("what happened last", f.Last)
	if f.Stack != "" {
		fmt.Fprintf(&b, "\n%s", f.Stack)
	}
	return b.String()
}

package auditor

import (
	"context"
	"time"

	"github.com/nova-store/nova/catalog"
)

// killSpans kills a stream's spans whose last offset is below end, a page at a time from the first on, until a
// look from the very start finds none. more tells that until passed first.
//
// The walk goes on behind what it killed, since a store may have to wade through the deletes at the
// front; but only a fresh look says that nothing is left.
func (a *Auditor) killSpans(ctx context.Context, j *Job, id catalog.StreamID, end uint64, until time.Time) (more bool, err error) {
	defer j.step("kill")()
	below := func(s catalog.SpanAt) bool { return s.Span.Last() < end }
	for from := uint64(0); ; {
		spans, _, err := a.cat.Spans(ctx, id, from, spanPage)
		if err != nil {
			return false, err
		}
		n := 0
		for n < len(spans) && below(spans[n]) {
			n++
		}
		switch {
		case n == 0 && from == 0:
			return false, nil
		case n == 0:
			from = 0
			continue
		case !a.clk.Now().Before(until):
			return true, nil
		}
		killed, err := a.cat.Kill(ctx, spans[:n], below)
		if killed > 0 {
			j.emit(Event{Action: SpansKilled, Subject: id.String(), Count: killed})
		}
		if err != nil {
			return false, err
		}
		from = spans[n-1].Span.Last() + 1
	}
}

package sim

import "context"

// event is something that happens at a virtual time: a task wakes, a context's
// deadline passes, a call reaches its dependency, or fn runs. Events at the same time fire in the order in
// which they were made.
type event struct {
	at  int64
	seq uint64
	idx int // in the heap, -1 if not there

	t    *task
	c    *simCtx
	call *call
	fn   func()
}

// schedule makes an event. Its record is reused once it fired or was dropped, so
// whoever holds it must forget it then.
func (w *World) schedule(at int64) *event {
	var e *event
	if n := len(w.freeEvents); n > 0 {
		e = w.freeEvents[n-1]
		w.freeEvents = w.freeEvents[:n-1]
	} else {
		e = new(event)
	}
	w.eventSeq++
	e.at, e.seq = max(at, w.now), w.eventSeq
	w.heap = append(w.heap, e)
	w.up(len(w.heap)-1, e)
	return e
}

// unschedule drops an event that has not fired; nil is fine.
func (w *World) unschedule(e *event) {
	if e == nil || e.idx < 0 {
		return
	}
	i, n := e.idx, len(w.heap)-1
	last := w.heap[n]
	w.heap[n] = nil
	w.heap = w.heap[:n]
	if i < n {
		w.heap[i] = last
		last.idx = i
		w.down(i, last)
		w.up(last.idx, last)
	}
	w.release(e)
}

func (w *World) release(e *event) {
	*e = event{idx: -1}
	w.freeEvents = append(w.freeEvents, e)
}

func before(a, b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (w *World) up(i int, e *event) {
	for i > 0 {
		p := (i - 1) / 4
		if !before(e, w.heap[p]) {
			break
		}
		w.heap[i] = w.heap[p]
		w.heap[i].idx = i
		i = p
	}
	w.heap[i] = e
	e.idx = i
}

func (w *World) down(i int, e *event) {
	n := len(w.heap)
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		m := c
		for k := c + 1; k < min(c+4, n); k++ {
			if before(w.heap[k], w.heap[m]) {
				m = k
			}
		}
		if !before(w.heap[m], e) {
			break
		}
		w.heap[i] = w.heap[m]
		w.heap[i].idx = i
		i = m
	}
	w.heap[i] = e
	e.idx = i
}

// fireDue fires every event whose time has come. Tasks only become ready by
// that, so their order is still drawn.
func (w *World) fireDue() {
	for len(w.heap) > 0 && w.heap[0].at <= w.now {
		e := w.heap[0]
		t, c, call, fn := e.t, e.c, e.call, e.fn
		w.unschedule(e)
		switch {
		case t != nil:
			t.timer = nil
			w.wake(t)
		case c != nil:
			c.timer = nil
			if c.inc.paused {
				// A stopped process runs no timer: see Resume.
				c.inc.overdue = append(c.inc.overdue, c)
				continue
			}
			c.end(context.DeadlineExceeded)
		case call != nil:
			w.readyCall(call)
		default:
			fn()
		}
	}
}

package sim

import (
	"runtime"
	"sync/atomic"
	"time"
)

// watchdog notices a turn that does not end: the task waits for something outside
// the world, which would hang the run without a word. It has no goroutine until
// its timer fires.
type watchdog struct {
	beats atomic.Uint64
	watch *watch
}

// watch is the watching of one run.
type watch struct {
	dog   *watchdog
	every time.Duration
	hang  func(stacks string)
	over  atomic.Bool
	last  uint64
}

func (d *watchdog) start(w *World) {
	if w.cfg.Watchdog <= 0 {
		return
	}
	d.beat()
	d.watch = &watch{dog: d, every: w.cfg.Watchdog, hang: w.cfg.OnHang, last: d.beats.Load()}
	if d.watch.hang == nil {
		d.watch.hang = func(stacks string) { panic("sim: a turn does not end\n" + stacks) }
	}
	time.AfterFunc(d.watch.every, d.watch.look)
}

func (x *watch) look() {
	now := x.dog.beats.Load()
	switch {
	case x.over.Load():
	case now != x.last:
		x.last = now
		time.AfterFunc(x.every, x.look)
	default:
		buf := make([]byte, 1<<20)
		x.hang(string(buf[:runtime.Stack(buf, true)]))
	}
}

// beat tells that turns end.
func (d *watchdog) beat() { d.beats.Add(1) }

func (d *watchdog) stop() {
	if d.watch != nil {
		d.watch.over.Store(true)
		d.watch = nil
	}
}

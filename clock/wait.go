package clock

import (
	"context"
	"sync"
)

// The locks in this file guard a few words of state and are never held across a
// wait, so they are safe under the simulator's coroutines too.

// waiters is a FIFO of parked tasks.
type waiters struct {
	list []*waiter
}

type waiter struct {
	p     Parker
	n     int64
	ready bool // handed what it waited for
}

func (w *waiters) add(p Parker, n int64) *waiter {
	x := &waiter{p: p, n: n}
	w.list = append(w.list, x)
	return x
}

func (w *waiters) remove(x *waiter) {
	for i, y := range w.list {
		if y == x {
			w.list = append(w.list[:i], w.list[i+1:]...)
			return
		}
	}
}

// Event is a one-shot signal: once set, every present and future Wait returns.
type Event struct {
	clk Clock
	mu  sync.Mutex
	set bool
	ws  waiters
}

// NewEvent returns an event that is not set.
func NewEvent(clk Clock) *Event { return &Event{clk: clk} }

// Set sets the event and wakes all who wait. Setting it again does nothing.
func (e *Event) Set() {
	e.mu.Lock()
	e.set = true
	ws := e.ws.list
	e.ws.list = nil
	e.mu.Unlock()
	for _, w := range ws {
		w.p.Unpark()
	}
}

// IsSet tells whether the event was set.
func (e *Event) IsSet() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set
}

// Wait returns nil once the event is set, or ctx's error if that comes first.
func (e *Event) Wait(ctx context.Context) error {
	e.mu.Lock()
	if e.set {
		e.mu.Unlock()
		return nil
	}
	w := e.ws.add(e.clk.NewParker(), 0)
	e.mu.Unlock()
	if err := w.p.Park(ctx); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ws.remove(w)
		if e.set {
			return nil
		}
		return err
	}
	return nil
}

// Signal is a repeating broadcast. A waiter first takes the generation, then
// looks at whatever the signal announces, then waits for a later generation, so
// that no announcement is missed.
type Signal struct {
	clk Clock
	mu  sync.Mutex
	gen uint64
	ws  waiters
}

// NewSignal returns a signal of generation 0.
func NewSignal(clk Clock) *Signal { return &Signal{clk: clk} }

// Generation returns how often the signal was raised.
func (s *Signal) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen
}

// Raise starts a new generation and wakes all who wait for it.
func (s *Signal) Raise() {
	s.mu.Lock()
	s.gen++
	ws := s.ws.list
	s.ws.list = nil
	s.mu.Unlock()
	for _, w := range ws {
		w.p.Unpark()
	}
}

// Wait returns nil once the generation is beyond gen, or ctx's error.
func (s *Signal) Wait(ctx context.Context, gen uint64) error {
	s.mu.Lock()
	if s.gen > gen {
		s.mu.Unlock()
		return nil
	}
	w := s.ws.add(s.clk.NewParker(), 0)
	s.mu.Unlock()
	if err := w.p.Park(ctx); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ws.remove(w)
		return err
	}
	return nil
}

// Semaphore is a weighted semaphore that serves waiters in the order in which
// they came.
type Semaphore struct {
	clk  Clock
	mu   sync.Mutex
	size int64
	used int64
	ws   waiters
}

// NewSemaphore returns a semaphore of the given size (≥ 1).
func NewSemaphore(clk Clock, size int64) *Semaphore { return &Semaphore{clk: clk, size: size} }

// Acquire takes n units, waiting until they are free. An n larger than the size
// takes the whole semaphore, so that an oversized item passes alone.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	s.mu.Lock()
	n = min(n, s.size)
	if len(s.ws.list) == 0 && s.used+n <= s.size {
		s.used += n
		s.mu.Unlock()
		return nil
	}
	w := s.ws.add(s.clk.NewParker(), n)
	s.mu.Unlock()
	if err := w.p.Park(ctx); err != nil {
		s.mu.Lock()
		if w.ready {
			// The units were handed over in the same instant: keep them.
			s.mu.Unlock()
			return nil
		}
		s.ws.remove(w)
		woken := s.admit()
		s.mu.Unlock()
		unpark(woken)
		return err
	}
	return nil
}

// TryAcquire takes n units if they are free now and nobody waits.
func (s *Semaphore) TryAcquire(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.size)
	if len(s.ws.list) > 0 || s.used+n > s.size {
		return false
	}
	s.used += n
	return true
}

// Release gives n units back; n must be what was asked of Acquire.
func (s *Semaphore) Release(n int64) {
	s.mu.Lock()
	s.used -= min(n, s.size)
	if s.used < 0 {
		s.mu.Unlock()
		panic("clock: semaphore released more than was acquired")
	}
	woken := s.admit()
	s.mu.Unlock()
	unpark(woken)
}

// Used returns the units in use.
func (s *Semaphore) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

func (s *Semaphore) admit() []*waiter {
	var woken []*waiter
	for len(s.ws.list) > 0 {
		w := s.ws.list[0]
		if s.used+w.n > s.size {
			break
		}
		s.used += w.n
		w.ready = true
		s.ws.list = s.ws.list[1:]
		woken = append(woken, w)
	}
	return woken
}

func unpark(ws []*waiter) {
	for _, w := range ws {
		w.p.Unpark()
	}
}

// Mutex is a fair lock that may be held across a call of a dependency.
type Mutex struct{ s *Semaphore }

// NewMutex returns an unlocked mutex.
func NewMutex(clk Clock) *Mutex { return &Mutex{s: NewSemaphore(clk, 1)} }

// Lock waits for the lock, or for ctx.
func (m *Mutex) Lock(ctx context.Context) error { return m.s.Acquire(ctx, 1) }

// TryLock takes the lock if it is free.
func (m *Mutex) TryLock() bool { return m.s.TryAcquire(1) }

// Unlock gives the lock back.
func (m *Mutex) Unlock() { m.s.Release(1) }

// Group runs tasks and waits for them all. The first error is kept.
type Group struct {
	clk   Clock
	limit *Semaphore // nil: no limit
	mu    sync.Mutex
	n     int
	err   error
	idle  *Signal
}

// NewGroup returns an empty group; a limit > 0 bounds how many tasks run at once.
func NewGroup(clk Clock, limit int) *Group {
	g := &Group{clk: clk, idle: NewSignal(clk)}
	if limit > 0 {
		g.limit = NewSemaphore(clk, int64(limit))
	}
	return g
}

// Go starts f as a task of the group, waiting first until the limit admits it.
// It returns ctx's error, with f not started, if ctx ends before that.
func (g *Group) Go(ctx context.Context, name string, f func(ctx context.Context) error) error {
	if g.limit != nil {
		if err := g.limit.Acquire(ctx, 1); err != nil {
			return err
		}
	}
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	g.clk.Go(ctx, name, func(ctx context.Context) {
		err := f(ctx)
		if g.limit != nil {
			g.limit.Release(1)
		}
		g.mu.Lock()
		g.n--
		if err != nil && g.err == nil {
			g.err = err
		}
		done := g.n == 0
		g.mu.Unlock()
		if done {
			g.idle.Raise()
		}
	})
	return nil
}

// Running returns how many tasks have not returned yet.
func (g *Group) Running() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// Wait returns once no task runs: the group's first error, or nil. It returns
// ctx's error if that ends first; the tasks then still run.
func (g *Group) Wait(ctx context.Context) error {
	for {
		gen := g.idle.Generation()
		g.mu.Lock()
		n, err := g.n, g.err
		g.mu.Unlock()
		if n == 0 {
			return err
		}
		if err := g.idle.Wait(ctx, gen); err != nil {
			return err
		}
	}
}

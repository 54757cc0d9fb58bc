package clock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/clock"
)

// watched is the real clock that says when a task parks, so that a test knows that
// someone waits without waiting itself.
type watched struct {
	clock.Real
	parked chan struct{}
}

func newWatched() *watched { return &watched{parked: make(chan struct{}, 1000)} }

func (w *watched) NewParker() clock.Parker { return watchedParker{w.Real.NewParker(), w} }

type watchedParker struct {
	clock.Parker
	w *watched
}

func (p watchedParker) Park(ctx context.Context) error {
	p.w.parked <- struct{}{}
	return p.Parker.Park(ctx)
}

// start runs f in a goroutine, returns once it parked, and gives its answer later.
func (w *watched) start(f func() error) chan error {
	got := make(chan error, 1)
	go func() { got <- f() }()
	<-w.parked
	return got
}

func TestEvent(t *testing.T) {
	w := newWatched()
	e := clock.NewEvent(w)
	require.False(t, e.IsSet())
	ctx, cancel := context.WithCancel(t.Context())
	givesUp := w.start(func() error { return e.Wait(ctx) })
	cancel()
	require.ErrorIs(t, <-givesUp, context.Canceled)

	var waiting []chan error
	for range 5 {
		waiting = append(waiting, w.start(func() error { return e.Wait(t.Context()) }))
	}
	e.Set()
	e.Set()
	for _, got := range waiting {
		require.NoError(t, <-got)
	}
	require.True(t, e.IsSet())
	require.NoError(t, e.Wait(ctx), "a set event wins over an ended context")
}

func TestSignal(t *testing.T) {
	w := newWatched()
	s := clock.NewSignal(w)
	gen := s.Generation()
	s.Raise()
	require.NoError(t, s.Wait(t.Context(), gen), "raised between the look and the wait: not missed")

	gen = s.Generation()
	ctx, cancel := context.WithCancel(t.Context())
	givesUp := w.start(func() error { return s.Wait(ctx, gen) })
	cancel()
	require.ErrorIs(t, <-givesUp, context.Canceled)

	var waiting []chan error
	for range 5 {
		waiting = append(waiting, w.start(func() error { return s.Wait(t.Context(), gen) }))
	}
	s.Raise()
	for _, got := range waiting {
		require.NoError(t, <-got)
	}
	require.Equal(t, gen+1, s.Generation())
	again := w.start(func() error { return s.Wait(t.Context(), gen+1) })
	s.Raise()
	require.NoError(t, <-again, "it repeats")
}

func TestSemaphoreServesInOrder(t *testing.T) {
	w := newWatched()
	s := clock.NewSemaphore(w, 3)
	require.NoError(t, s.Acquire(t.Context(), 3))
	big := w.start(func() error { return s.Acquire(t.Context(), 2) })
	small := w.start(func() error { return s.Acquire(t.Context(), 1) })
	s.Release(1)
	require.False(t, s.TryAcquire(1), "nobody overtakes who waits")
	require.Equal(t, int64(2), s.Used(), "the big one is first, and one unit is not enough")
	s.Release(1)
	require.NoError(t, <-big)
	require.Equal(t, int64(3), s.Used())
	s.Release(1)
	require.NoError(t, <-small)
	s.Release(3)
	require.Zero(t, s.Used())
	require.True(t, s.TryAcquire(3))
	require.False(t, s.TryAcquire(1))
	s.Release(3)
}

func TestSemaphoreOversized(t *testing.T) {
	s := clock.NewSemaphore(newWatched(), 3)
	require.NoError(t, s.Acquire(t.Context(), 100), "it passes alone")
	require.Equal(t, int64(3), s.Used())
	s.Release(100)
	require.Zero(t, s.Used())
	require.True(t, s.TryAcquire(100))
	s.Release(100)
	require.Panics(t, func() { s.Release(1) })
}

// One who gives up at the head of the line lets the next pass.
func TestSemaphoreGivingUpAdmitsTheNext(t *testing.T) {
	w := newWatched()
	s := clock.NewSemaphore(w, 3)
	require.NoError(t, s.Acquire(t.Context(), 2))
	ctx, cancel := context.WithCancel(t.Context())
	big := w.start(func() error { return s.Acquire(ctx, 3) })
	small := w.start(func() error { return s.Acquire(t.Context(), 1) })
	cancel()
	require.ErrorIs(t, <-big, context.Canceled)
	require.NoError(t, <-small)
	require.Equal(t, int64(3), s.Used())
}

// Whatever the race between being served and giving up: no unit is lost and none is
// given twice.
func TestSemaphoreRaces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Int64Range(1, 4).Draw(rt, "size")
		wants := rapid.SliceOfN(rapid.Int64Range(1, 5), 1, 8).Draw(rt, "wants")
		s := clock.NewSemaphore(clock.NewReal(), size)
		var held, most atomic.Int64
		done := make(chan struct{})
		for i, n := range wants {
			ctx, cancel := context.WithCancel(context.Background())
			if i%3 == 0 {
				go cancel()
			}
			go func() {
				defer func() { cancel(); done <- struct{}{} }()
				for range 20 {
					if s.Acquire(ctx, n) != nil {
						continue
					}
					now := held.Add(min(n, size))
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					held.Add(-min(n, size))
					s.Release(n)
				}
			}()
		}
		for range wants {
			<-done
		}
		require.LessOrEqual(rt, most.Load(), size)
		require.Zero(rt, s.Used())
		require.True(rt, s.TryAcquire(size), "nobody stands in line any more")
	})
}

func TestMutex(t *testing.T) {
	w := newWatched()
	m := clock.NewMutex(w)
	require.True(t, m.TryLock())
	require.False(t, m.TryLock())
	var order []int
	var waiting []chan error
	for i := range 5 {
		waiting = append(waiting, w.start(func() error {
			if err := m.Lock(t.Context()); err != nil {
				return err
			}
			order = append(order, i) // the race detector sees to it that this is alone
			m.Unlock()
			return nil
		}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	givesUp := w.start(func() error { return m.Lock(ctx) })
	cancel()
	require.ErrorIs(t, <-givesUp, context.Canceled)
	m.Unlock()
	for _, got := range waiting {
		require.NoError(t, <-got)
	}
	require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	require.True(t, m.TryLock())
}

func TestGroup(t *testing.T) {
	w := newWatched()
	g := clock.NewGroup(w, 0)
	require.NoError(t, g.Wait(t.Context()), "an empty group is done")
	release := clock.NewEvent(clock.NewReal())
	first, second := errors.New("first"), errors.New("second")
	for range 3 {
		require.NoError(t, g.Go(t.Context(), "task", func(ctx context.Context) error { return release.Wait(ctx) }))
	}
	require.Equal(t, 3, g.Running())
	ctx, cancel := context.WithCancel(t.Context())
	givesUp := w.start(func() error { return g.Wait(ctx) })
	cancel()
	require.ErrorIs(t, <-givesUp, context.Canceled)
	require.Equal(t, 3, g.Running(), "they still run")
	waits := w.start(func() error { return g.Wait(t.Context()) })
	release.Set()
	require.NoError(t, <-waits)

	require.NoError(t, g.Go(t.Context(), "task", func(context.Context) error { return first }))
	require.ErrorIs(t, g.Wait(t.Context()), first)
	require.NoError(t, g.Go(t.Context(), "task", func(context.Context) error { return second }))
	require.ErrorIs(t, g.Wait(t.Context()), first, "the first error is kept")
	require.Zero(t, g.Running())
}

func TestGroupLimit(t *testing.T) {
	w := newWatched()
	g := clock.NewGroup(w, 2)
	release := clock.NewEvent(clock.NewReal())
	var running, most atomic.Int64
	task := func(ctx context.Context) error {
		now := running.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		defer running.Add(-1)
		return release.Wait(ctx)
	}
	require.NoError(t, g.Go(t.Context(), "a", task))
	require.NoError(t, g.Go(t.Context(), "b", task))
	ctx, cancel := context.WithCancel(t.Context())
	third := w.start(func() error { return g.Go(ctx, "c", task) })
	cancel()
	require.ErrorIs(t, <-third, context.Canceled)
	require.Equal(t, 2, g.Running(), "a task that was not admitted was not started")

	fourth := w.start(func() error { return g.Go(t.Context(), "d", task) })
	release.Set()
	require.NoError(t, <-fourth)
	require.NoError(t, g.Wait(t.Context()))
	for range 50 {
		require.NoError(t, g.Go(t.Context(), "e", task))
	}
	require.NoError(t, g.Wait(t.Context()))
	require.LessOrEqual(t, most.Load(), int64(2))
	require.Zero(t, running.Load())
}

// Tasks may start tasks of their own group; a wait that began before sees them all.
func TestGroupGrowsWhileItRuns(t *testing.T) {
	g := clock.NewGroup(clock.NewReal(), 0)
	var done atomic.Int64
	var grow func(depth int) func(context.Context) error
	grow = func(depth int) func(context.Context) error {
		return func(ctx context.Context) error {
			defer done.Add(1)
			if depth == 0 {
				return nil
			}
			return errors.Join(g.Go(ctx, "left", grow(depth-1)), g.Go(ctx, "right", grow(depth-1)))
		}
	}
	require.NoError(t, g.Go(t.Context(), "root", grow(6)))
	require.NoError(t, g.Wait(t.Context()))
	require.Equal(t, int64(127), done.Load())
}

// A pipeline of many tasks that signal one another: every wake arrives.
func TestSignalUnderRace(t *testing.T) {
	clk := clock.NewReal()
	s := clock.NewSignal(clk)
	m := clock.NewMutex(clk)
	var log []int
	g := clock.NewGroup(clk, 0)
	for i := range 20 {
		require.NoError(t, g.Go(t.Context(), "turn", func(ctx context.Context) error {
			for {
				gen := s.Generation()
				if err := m.Lock(ctx); err != nil {
					return err
				}
				mine := len(log) == i
				if mine {
					log = append(log, i)
				}
				m.Unlock()
				if mine {
					s.Raise()
					return nil
				}
				if err := s.Wait(ctx, gen); err != nil {
					return err
				}
			}
		}))
	}
	require.NoError(t, g.Wait(t.Context()))
	require.Len(t, log, 20)
	require.True(t, slices.IsSorted(log))
}

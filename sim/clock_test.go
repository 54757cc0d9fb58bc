package sim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/sim"
)

// What tasks wait on is one code for both clocks; these tests run it on each.
// They rely on no duration: only the order of events is judged.
var clockTests = []struct {
	name string
	run  func(ctx context.Context, t *testing.T, clk clock.Clock)
}{
	{"Parker", parkerKeepsOneToken},
	{"Event", eventWakesAll},
	{"Signal", signalMissesNothing},
	{"Semaphore", semaphoreIsFair},
	{"SemaphoreCancel", semaphorePassesOn},
	{"Mutex", mutexExcludes},
	{"Group", groupWaits},
	{"GroupLimit", groupIsLimited},
	{"Limiter", limiterPays},
	{"Timeout", timeoutEndsWaits},
}

func TestClockReal(t *testing.T) {
	for _, c := range clockTests {
		t.Run(c.name, func(t *testing.T) { c.run(t.Context(), t, clock.NewReal()) })
	}
}

func TestClockSimulated(t *testing.T) {
	for _, c := range clockTests {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				l := newLab(t, sim.Config{Seed: seed})
				l.do(t, 1, func(ctx context.Context, _ int) { c.run(ctx, t, l.inc.Clock()) })
			}
		})
	}
}

// together runs f n times at once and waits for all.
func together(ctx context.Context, t *testing.T, clk clock.Clock, n int, f func(ctx context.Context, i int) error) {
	g := clock.NewGroup(clk, 0)
	for i := range n {
		require.NoError(t, g.Go(ctx, "together", func(ctx context.Context) error { return f(ctx, i) }))
	}
	require.NoError(t, g.Wait(ctx))
}

func parkerKeepsOneToken(ctx context.Context, t *testing.T, clk clock.Clock) {
	p := clk.NewParker()
	p.Unpark()
	p.Unpark()
	done, cancel := clk.WithCancel(ctx)
	cancel()
	require.NoError(t, p.Park(done), "a token wins over a done context")
	require.ErrorIs(t, p.Park(done), context.Canceled, "two were one")
	clk.Go(ctx, "unpark", func(context.Context) { p.Unpark() })
	require.NoError(t, p.Park(ctx))
}

func eventWakesAll(ctx context.Context, t *testing.T, clk clock.Clock) {
	e := clock.NewEvent(clk)
	done, cancel := clk.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, e.Wait(done), context.Canceled)
	together(ctx, t, clk, 9, func(ctx context.Context, i int) error {
		if i == 4 {
			e.Set()
			return nil
		}
		return e.Wait(ctx)
	})
	require.True(t, e.IsSet())
	require.NoError(t, e.Wait(done))
}

func signalMissesNothing(ctx context.Context, t *testing.T, clk clock.Clock) {
	s := clock.NewSignal(clk)
	const rounds = 50
	together(ctx, t, clk, 3, func(ctx context.Context, i int) error {
		if i == 0 {
			for range rounds {
				s.Raise()
				if err := clk.Sleep(ctx, 0); err != nil {
					return err
				}
			}
			return nil
		}
		for gen := uint64(0); gen < rounds; gen = s.Generation() {
			if err := s.Wait(ctx, gen); err != nil {
				return err
			}
		}
		return nil
	})
}

func semaphoreIsFair(ctx context.Context, t *testing.T, clk clock.Clock) {
	s := clock.NewSemaphore(clk, 4)
	require.NoError(t, s.Acquire(ctx, 99), "oversized items pass alone")
	require.False(t, s.TryAcquire(1))
	s.Release(99)
	require.True(t, s.TryAcquire(3))
	first := clock.NewEvent(clk)
	together(ctx, t, clk, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			first.Set()
			if err := s.Acquire(ctx, 4); err != nil {
				return err
			}
			s.Release(4)
			return nil
		}
		if err := first.Wait(ctx); err != nil {
			return err
		}
		// Sooner or later the big one waits, and then a small one must not pass it.
		for s.TryAcquire(1) {
			s.Release(1)
			if err := clk.Sleep(ctx, time.Microsecond); err != nil {
				return err
			}
		}
		s.Release(3)
		return nil
	})
	require.Zero(t, s.Used())
	require.Panics(t, func() { s.Release(1) })
}

func semaphorePassesOn(ctx context.Context, t *testing.T, clk clock.Clock) {
	s := clock.NewSemaphore(clk, 2)
	require.True(t, s.TryAcquire(1))
	big, cancel := clk.WithCancel(ctx)
	defer cancel()
	together(ctx, t, clk, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			if err := s.Acquire(big, 2); !errors.Is(err, context.Canceled) {
				return errors.New("the big one got it")
			}
			return nil
		}
		for s.TryAcquire(1) {
			s.Release(1)
			if err := clk.Sleep(ctx, time.Microsecond); err != nil {
				return err
			}
		}
		clk.Go(ctx, "cancel", func(context.Context) { cancel() })
		err := s.Acquire(ctx, 1) // waits behind the big one until that gives up
		s.Release(1)
		return err
	})
	require.EqualValues(t, 1, s.Used())
}

func mutexExcludes(ctx context.Context, t *testing.T, clk clock.Clock) {
	m := clock.NewMutex(clk)
	inside, total := 0, 0
	together(ctx, t, clk, 8, func(ctx context.Context, i int) error {
		for range 10 {
			if err := m.Lock(ctx); err != nil {
				return err
			}
			inside++
			if err := clk.Sleep(ctx, 0); err != nil || inside != 1 || m.TryLock() {
				return errors.New("two inside")
			}
			inside--
			total++
			m.Unlock()
		}
		return nil
	})
	require.Equal(t, 80, total)
	require.True(t, m.TryLock())
}

func groupWaits(ctx context.Context, t *testing.T, clk clock.Clock) {
	g := clock.NewGroup(clk, 0)
	require.NoError(t, g.Wait(ctx), "an empty group")
	failed := errors.New("failed")
	for i := range 5 {
		require.NoError(t, g.Go(ctx, "task", func(ctx context.Context) error {
			if err := clk.Sleep(ctx, time.Duration(i)*time.Microsecond); err != nil || i != 3 {
				return err
			}
			return failed
		}))
	}
	require.ErrorIs(t, g.Wait(ctx), failed)
	require.Zero(t, g.Running())

	stop := clock.NewEvent(clk)
	require.NoError(t, g.Go(ctx, "long", stop.Wait))
	short, cancel := clk.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.ErrorIs(t, g.Wait(short), context.DeadlineExceeded)
	require.Equal(t, 1, g.Running())
	stop.Set()
	require.ErrorIs(t, g.Wait(ctx), failed, "the first error stays")
}

func groupIsLimited(ctx context.Context, t *testing.T, clk clock.Clock) {
	g := clock.NewGroup(clk, 3)
	var running, most int
	m := clock.NewMutex(clk)
	for range 12 {
		require.NoError(t, g.Go(ctx, "task", func(ctx context.Context) error {
			if err := m.Lock(ctx); err != nil {
				return err
			}
			running++
			most = max(most, running)
			m.Unlock()
			if err := clk.Sleep(ctx, time.Microsecond); err != nil {
				return err
			}
			if err := m.Lock(ctx); err != nil {
				return err
			}
			running--
			m.Unlock()
			return nil
		}))
	}
	require.NoError(t, g.Wait(ctx))
	require.LessOrEqual(t, most, 3)

	stop := clock.NewEvent(clk)
	for range 3 {
		require.NoError(t, g.Go(ctx, "long", stop.Wait))
	}
	done, cancel := clk.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, g.Go(done, "never", func(context.Context) error { panic("it started") }), context.Canceled)
	stop.Set()
	require.NoError(t, g.Wait(ctx))
}

func limiterPays(ctx context.Context, t *testing.T, clk clock.Clock) {
	l := clock.NewLimiter(clk, 100_000, 100)
	start := clk.Now()
	for range 3 {
		require.NoError(t, l.Pay(ctx, 1000)) // above the burst, in instalments
	}
	// 3000 units less the burst of 100, at 100,000 a second.
	require.GreaterOrEqual(t, clk.Now().Sub(start), 28*time.Millisecond)
	done, cancel := clk.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, l.Pay(done, 1000), context.Canceled)
	require.NoError(t, clock.NewLimiter(clk, 0, 0).Pay(done, 1<<40))
}

func timeoutEndsWaits(ctx context.Context, t *testing.T, clk clock.Clock) {
	together(ctx, t, clk, 4, func(ctx context.Context, i int) error {
		ctx, cancel := clk.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
		defer cancel()
		var err error
		switch i {
		case 0:
			err = clk.NewParker().Park(ctx)
		case 1:
			err = clk.Sleep(ctx, time.Hour)
		case 2:
			err = clock.NewEvent(clk).Wait(ctx)
		default:
			s := clock.NewSemaphore(clk, 1)
			s.TryAcquire(1)
			err = s.Acquire(ctx, 1)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return errors.Join(errors.New("no timeout"), err)
		}
		return nil
	})
}

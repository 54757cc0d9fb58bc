package clock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/clock"
)

// manual is a clock whose time passes in Sleep alone.
type manual struct {
	clock.Real
	now time.Time
}

func (m *manual) Now() time.Time { return m.now }

func (m *manual) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.now = m.now.Add(d)
	return nil
}

func TestLimiterUnlimited(t *testing.T) {
	for _, rate := range []float64{0, -1} {
		m := &manual{now: time.Unix(0, 0)}
		l := clock.NewLimiter(m, rate, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, l.Pay(ctx, 1<<40))
		require.Equal(t, time.Unix(0, 0), m.now, "it costs no time")
	}
}

// Whatever is paid in whatever pieces: after the first burst, units pass at the rate, and
// no faster.
func TestLimiterRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1000, 0)
		m := &manual{now: start}
		rate := rapid.IntRange(1, 1000).Draw(t, "rate")
		burst := rapid.IntRange(0, 200).Draw(t, "burst")
		l := clock.NewLimiter(m, float64(rate), burst)
		paid := 0
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 500), 1, 10).Draw(t, "prices") {
			require.NoError(t, l.Pay(context.Background(), n))
			paid += n
			earned := m.now.Sub(start).Seconds() * float64(rate)
			due := float64(paid - max(burst, 1))
			require.GreaterOrEqual(t, earned, due-0.01)
			require.LessOrEqual(t, earned, max(due, 0)+0.01)
		}
	})
}

func TestLimiterGivesBackWhatItDidNotTake(t *testing.T) {
	m := &manual{now: time.Unix(0, 0)}
	l := clock.NewLimiter(m, 1, 10)
	require.NoError(t, l.Pay(t.Context(), 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Pay(ctx, 10), context.Canceled)
	require.NoError(t, l.Pay(t.Context(), 1))
	require.Equal(t, time.Second, m.now.Sub(time.Unix(0, 0)), "who gave up is not waited for")
}

func TestLimiterOnTheRealClock(t *testing.T) {
	l := clock.NewLimiter(clock.NewReal(), 1e6, 10)
	g := clock.NewGroup(clock.NewReal(), 4)
	for range 20 {
		require.NoError(t, g.Go(t.Context(), "pay", func(ctx context.Context) error { return l.Pay(ctx, 25) }))
	}
	require.NoError(t, g.Wait(t.Context()))
}

func TestRoundUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(0, rapid.Int64Range(-1<<60, 1<<60).Draw(t, "t"))
		bucket := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "bucket"))
		got := clock.RoundUp(at, bucket)
		require.False(t, got.Before(at))
		require.Less(t, got.Sub(at), bucket)
		require.Zero(t, got.UnixNano()%int64(bucket))
		require.True(t, got.Equal(clock.RoundUp(got, bucket)), "a multiple stays")
	})
	at := time.Unix(7, 5)
	require.Equal(t, at, clock.RoundUp(at, 0))
	require.Equal(t, at, clock.RoundUp(at, -time.Second))
}

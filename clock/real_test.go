package clock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/clock"
)

func TestRealNow(t *testing.T) {
	before := time.Now()
	got := clock.NewReal().Now()
	require.False(t, got.Before(before))
	require.False(t, got.After(time.Now()))
}

func TestRealRandDiffers(t *testing.T) {
	c := clock.NewReal()
	seen := make(map[uint64]bool)
	for range 100 {
		seen[c.Rand()] = true
	}
	require.Len(t, seen, 100)
}

func TestRealSleep(t *testing.T) {
	c := clock.NewReal()
	start := time.Now()
	require.NoError(t, c.Sleep(t.Context(), 2*time.Millisecond))
	require.GreaterOrEqual(t, time.Since(start), 2*time.Millisecond)
	require.NoError(t, c.Sleep(t.Context(), 0))
	require.NoError(t, c.Sleep(t.Context(), -time.Hour))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Sleep(ctx, 0), context.Canceled)
	require.ErrorIs(t, c.Sleep(ctx, time.Hour), context.Canceled)

	ctx, cancel = c.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Sleep(ctx, time.Hour), context.DeadlineExceeded)
}

func TestRealContexts(t *testing.T) {
	c := clock.NewReal()
	type key struct{}
	parent := context.WithValue(t.Context(), key{}, 1)
	ctx, cancel := c.WithCancel(parent)
	require.Equal(t, 1, ctx.Value(key{}))
	require.NoError(t, ctx.Err())
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.NoError(t, parent.Err())

	ctx, cancel = c.WithTimeout(parent, time.Hour)
	_, bounded := ctx.Deadline()
	require.True(t, bounded)
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

func TestRealGoPassesTheContext(t *testing.T) {
	type key struct{}
	got := make(chan any)
	clock.NewReal().Go(context.WithValue(t.Context(), key{}, 7), "task", func(ctx context.Context) { got <- ctx.Value(key{}) })
	require.Equal(t, 7, <-got)
}

func TestRealParker(t *testing.T) {
	p := clock.NewReal().NewParker()
	p.Unpark()
	p.Unpark() // the token is there already: this one is lost
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, p.Park(done), "a token wins over an ended context")
	require.ErrorIs(t, p.Park(done), context.Canceled, "there was only one")

	got := make(chan error)
	go func() { got <- p.Park(t.Context()) }()
	p.Unpark()
	require.NoError(t, <-got)
}

// Whatever the race between a token and the context's end: a token is taken by Park,
// or is still there.
func TestRealParkerLosesNoToken(t *testing.T) {
	for range 500 {
		p := clock.NewReal().NewParker()
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		go p.Unpark()
		if err := p.Park(ctx); err != nil {
			require.True(t, errors.Is(err, context.Canceled))
			require.NoError(t, p.Park(t.Context()))
		}
		cancel()
	}
}

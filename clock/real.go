package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Real is the production clock: goroutines, the wall clock and the runtime's
// random source.
type Real struct{}

// NewReal returns the production clock.
func NewReal() Real { return Real{} }

var _ Clock = Real{}

// Now returns the wall-clock time.
func (Real) Now() time.Time { return time.Now() }

// Rand returns 64 random bits.
func (Real) Rand() uint64 { return rand.Uint64() }

// Sleep waits for d or for ctx.
func (Real) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithCancel is context.WithCancel.
func (Real) WithCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// WithTimeout is context.WithTimeout.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// Go starts f in a goroutine.
func (Real) Go(ctx context.Context, _ string, f func(ctx context.Context)) {
	go f(ctx)
}

// NewParker returns a Parker on a channel of capacity one.
func (Real) NewParker() Parker { return realParker(make(chan struct{}, 1)) }

type realParker chan struct{}

func (p realParker) Park(ctx context.Context) error {
	select {
	case <-p:
		return nil
	default:
	}
	select {
	case <-p:
		return nil
	case <-ctx.Done():
		// Both may be ready: a token that came wins, so that it is not lost.
		select {
		case <-p:
			return nil
		default:
			return ctx.Err()
		}
	}
}

func (p realParker) Unpark() {
	select {
	case p <- struct{}{}:
	default:
	}
}

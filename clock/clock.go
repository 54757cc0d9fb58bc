// Package clock is the only place where Nova's production code meets time,
// randomness and concurrency.
//
// Everything above it (catalog, star, auditor, the inner half of api) is written
// against Clock and the few things here that tasks wait on. In production a task
// is a goroutine and time is the wall clock ([Real]). In the simulator a task is
// a coroutine, one of which runs at a time, and time is virtual, so that a run is
// a pure function of its seed. For that to hold, the packages above may not start
// goroutines, use channels or select, or read the wall clock themselves; a test
// at the module's root walks their syntax and refuses it.
//
// What waits is built once, on [Parker], and is therefore the same code in both
// worlds: [Event], [Signal], [Semaphore], [Mutex], [Group] and [Limiter].
package clock

import (
	"context"
	"time"
)

// Clock is time, randomness and tasks.
//
// All methods are safe for concurrent use. A context handed to a method must
// descend from one that this clock made or from the process's root context.
type Clock interface {
	// Now returns the current time of this node. Clocks of different nodes differ
	// by up to the configured skew, and a clock may jump.
	Now() time.Time

	// Rand returns 64 random bits, for identifiers and jitter. They are not a
	// source of secrets.
	Rand() uint64

	// Sleep waits for d, or until ctx is done, and then returns ctx's error. A
	// d ≤ 0 yields to other tasks and returns.
	Sleep(ctx context.Context, d time.Duration) error

	// WithCancel and WithTimeout derive a context whose end wakes every wait
	// made under it. The cancel function must be called.
	WithCancel(ctx context.Context) (context.Context, context.CancelFunc)
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)

	// Go starts f as a task of its own. The name is for traces. Go never blocks.
	// A panic in f ends the process (production) or is a finding (simulation).
	Go(ctx context.Context, name string, f func(ctx context.Context))

	// NewParker returns a fresh Parker without a token.
	NewParker() Parker
}

// Jitter returns a duration in [d/2, d], so that those who wait for the same thing
// part. d must not be negative.
func Jitter(clk Clock, d time.Duration) time.Duration {
	return d/2 + time.Duration(clk.Rand()%uint64(d/2+1))
}

// Parker is the one primitive of waiting: a token that one task waits for and
// any task may put. Putting a token that is already there does nothing.
type Parker interface {
	// Park waits until there is a token, takes it and returns nil; or returns
	// ctx's error once ctx is done. A token that is already there wins over a
	// done context. At most one task may be parked at a time.
	Park(ctx context.Context) error

	// Unpark puts the token. It never blocks.
	Unpark()
}

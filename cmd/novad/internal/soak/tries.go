package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nova-store/nova/api"
)

const (
	// callTimeout is how long a client waits for an answer, before it asks another star.
	callTimeout = 10 * time.Second
	// callPause is how long it waits before it asks again.
	callPause = 200 * time.Millisecond
)

// verdictOf an answer: what a client does next.
type verdictOf int

const (
	again    verdictOf = iota // the server may come back, or have space again
	noStream                  // there is no such stream
	odd                       // no client that does what it may gets such an answer
	over                      // the run has ended
)

// judge tells what to do after a failed call, and whether it may have had its effect. ctx is the run's, not the call's.
func judge(ctx context.Context, err error) (v verdictOf, effect bool) {
	effect, retry := api.JudgeFailure(err)
	switch {
	case ctx.Err() != nil:
		return over, effect
	case isProblem(err, api.ProblemNoStream):
		return noStream, effect
	case isProblem(err, api.ProblemInternal):
		return odd, effect
	case retry, isProblem(err, api.ProblemStorageFull), errors.Is(err, context.DeadlineExceeded):
		return again, effect
	}
	return odd, effect
}

func isProblem(err error, typ string) bool {
	var p *api.Problem
	return errors.As(err, &p) && p.Type == typ
}

// task is one client with its own chance.
type task struct {
	s *soak
	r *rand.Rand
}

// star picks one to ask.
func (t *task) star() *api.Client { return t.s.world.stars[t.r.IntN(len(t.s.world.stars))] }

// call asks some star once.
func (t *task) call(ctx context.Context, f func(context.Context, *api.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx, t.star())
}

// insist asks, now this star and now that one, until there is an answer: true with none of the errors, false where there is no such stream or
// the run has ended.
func (t *task) insist(ctx context.Context, what string, f func(context.Context, *api.Client) error) (bool, verdictOf) {
	for {
		err := t.call(ctx, f)
		if err == nil {
			return true, again
		}
		switch v, _ := judge(ctx, err); v {
		case again:
			sleep(ctx, callPause)
		case odd:
			t.s.surprise("%s: %v", what, err)
			sleep(ctx, callPause)
		default:
			return false, v
		}
	}
}

// pause waits about d, more or less by chance, and tells whether ctx goes on.
func (t *task) pause(ctx context.Context, d time.Duration) bool {
	sleep(ctx, time.Duration(float64(d)*min(t.r.ExpFloat64(), 4)))
	return ctx.Err() == nil
}

// surprise notes an answer that no client may get.
func (s *soak) surprise(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.surpriseLocked(format, a...)
}

func (s *soak) surpriseLocked(format string, a ...any) {
	s.surprises++
	text := fmt.Sprintf(format, a...)
	s.world.journal.printf("wrong answer: %s", text)
	if len(s.details) < detailsMost {
		s.details = append(s.details, fmt.Sprintf("%v: %s", time.Since(s.began).Round(time.Millisecond), text))
	}
}

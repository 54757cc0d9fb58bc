package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nova-store/nova/api/service"
	"github.com/nova-store/nova/clock"
)

// AppendError tells what became of an append that a Producer gave up.
type AppendError struct {
	// Unknown: the records may have been appended, or may yet be. Else they were not.
	Unknown bool
	Err     error
}

func (e *AppendError) Error() string { return e.Err.Error() }

func (e *AppendError) Unwrap() error { return e.Err }

// Producer appends to one stream, each batch exactly once and in order, however often
// an answer is lost. It belongs to one task.
type Producer struct {
	// RetryFor bounds how long one append may take with all its tries; one that is not answered by then is given up. 0: it is tried
	// once, for as long as that takes.
	RetryFor time.Duration
	// OnRetry, if not nil, is told of a failure that is tried again.
	OnRetry func(err error)

	client *Client
	clk    clock.Clock
	stream string
	state  service.Producer
	failed error
}

// NewProducer returns a producer of a random identity. It reads the stream's end first,
// which must be done before the first try of the first append, and once only.
func (c *Client) NewProducer(ctx context.Context, clk clock.Clock, stream string) (*Producer, error) {
	s, err := c.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("producer id: %w", err)
	}
	return &Producer{
		RetryFor: 15 * time.Second,
		client:   c,
		clk:      clk,
		stream:   stream,
		state:    service.Producer{ID: hex.EncodeToString(id[:]), Since: s.NextOffset},
	}, nil
}

// Append appends one batch. Where the server cannot be reached, is overloaded or does not know the
// outcome it repeats the very same append, for RetryFor. It fails with an *AppendError; after
// one the producer is at its end, since what it appended last is not known.
func (p *Producer) Append(ctx context.Context, records [][]byte) (AppendResult, error) {
	if p.failed != nil {
		return AppendResult{}, &AppendError{Err: fmt.Errorf("the producer failed before: %w", p.failed)}
	}
	unknown := false
	var last error
	deadline := p.clk.Now().Add(p.RetryFor)
	within, cancel := ctx, context.CancelFunc(func() {})
	if p.RetryFor > 0 {
		within, cancel = p.clk.WithTimeout(ctx, p.RetryFor)
	}
	defer cancel()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		res, err := p.client.Append(within, p.stream, records, AppendOptions{Producer: &p.state})
		if err == nil {
			p.state.Sequence++
			return res, nil
		}
		effect, again := JudgeFailure(err)
		unknown = unknown || effect
		if within.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %v", p.RetryFor)
			if last != nil {
				err = fmt.Errorf("%w; before that: %w", err, last)
			}
		}
		last = err
		if !again || within.Err() != nil || p.clk.Now().Add(pause).After(deadline) {
			p.failed = err
			return AppendResult{}, &AppendError{Unknown: unknown, Err: err}
		}
		if p.OnRetry != nil {
			p.OnRetry(err)
		}
		if err := p.clk.Sleep(ctx, pause); err != nil {
			p.failed = err
			return AppendResult{}, &AppendError{Unknown: unknown, Err: err}
		}
	}
}

// JudgeFailure tells of an error of a Client whether what was asked may have had its effect, or may yet, and whether asking
// again may succeed. Of a context that ended it says that the effect is possible, and that there is nobody to ask again for.
func JudgeFailure(err error) (effect, again bool) {
	var unreachable *UnreachableError
	var p *Problem
	switch {
	case errors.As(err, &unreachable):
		return unreachable.Sent, true
	case errors.As(err, &p):
		switch p.Type {
		case ProblemOverloaded, ProblemUnavailable:
			return false, true
		case ProblemOutcomeUnknown, ProblemTimeout, ProblemInternal:
			return true, true
		case ProblemProducerLost:
			return true, false
		}
		return false, false
	}
	// The context ended, perhaps after the request was sent.
	return true, false
}

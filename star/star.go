// Package star is the serving role: it mints chains, takes appends, and answers
// reads.
//
// # The way of an append
//
// Appends gather into a flight (flight.go). A flight leaves as one slot of the
// star's chain, an object put if-absent; several fly at once (depart.go, fly.go).
// A flight too large for its slot puts its records into an object of their own first,
// a bundle, and its slot holds that one's index (bundle.go).
// Once it and all lower slots are durable it is released, and the absorber
// commits it (absorb.go). Only then is its producer answered: with what absorb
// judged, and nothing else. So an acknowledged record is in the catalog, and a
// crash at any moment leaves, of an append that was not acknowledged, either
// nothing, or a slot at or above the checkpoint of a chain whose settle marker
// stands: the settle duty absorbs it, whole, or seals it away.
//
// # Epochs
//
// A chain is one epoch of the star (epoch.go). The star abandons it, and mints a
// new one, when another's object is in its slot, when its session or its route is
// lost, when the chain is no longer open, or when a slot stays undecided past its
// deadline. The next mint waits until every PUT call of the old epoch has
// returned. What was PUT but not absorbed has an unknown outcome: it is reported
// as such, but for idempotent producers, whose appends are tried again in the new
// epoch with the same sequence and the same since, so that whoever absorbs which
// of the tries first, the records appear once.
//
// # Order
//
// Of one stream, appends are judged in the order in which they were taken: within
// a flight, between flights (slots are released in order), and from one epoch to
// the next (what is tried again stands before what was not begun).
package star

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
)

// Star is one serving process of a name. Its methods are safe for concurrent use.
type Star struct {
	cat    *catalog.Catalog
	bucket objstore.Bucket
	clk    clock.Clock
	opts   Options
	log    *slog.Logger
	events Events

	incarnation uint64 // of this process

	inline, bundled flightCost // of a flight whose records are in its slot, in a bundle

	kick    *clock.Signal // the departure task may have something to do
	drain   *clock.Event  // set: take no more appends, finish, stop
	stopped *clock.Event  // Run has returned

	names    names
	window   window
	decoders decoders
	sections sectionCache
	follows  follows
	expired  expiries

	// Of the task of Run alone.
	session metastore.Session
	minted  uint64 // the newest epoch of this process; 0: none yet

	mu      sync.Mutex
	running bool
	stop    error  // why appends are refused; nil: they are not
	epoch   *epoch // the newest, fenced ones included; nil before the first
	queue   []*flight
	order   uint64 // appends taken so far
	pending int64  // weight of the appends not answered
}

// New returns a star that is not running yet.
func New(cat *catalog.Catalog, bucket objstore.Bucket, clk clock.Clock, opts Options) (*Star, error) {
	opts = opts.withDefaults()
	if err := opts.check(cat.Timing()); err != nil {
		return nil, err
	}
	s := &Star{
		cat: cat, bucket: bucket, clk: clk, opts: opts,
		log:         opts.Logger.With("star", opts.Name),
		events:      opts.Events,
		incarnation: clk.Rand(),
		kick:        clock.NewSignal(clk),
		drain:       clock.NewEvent(clk),
		stopped:     clock.NewEvent(clk),
	}
	s.inline, s.bundled = costOf(cat, false), costOf(cat, true)
	s.names.init(opts.CacheStreams)
	s.window.init(opts.TailBytes)
	s.sections.init()
	s.follows.init(clk, opts.MaxFollowers)
	s.expired.init(opts.CacheStreams)
	return s, nil
}

// errDrained ends the last epoch of a drain.
var errDrained = errors.New("drained")

// Backoff between mints that fail, and between epochs that absorb nothing.
const (
	mintRetryFirst = 100 * time.Millisecond
	mintRetryMost  = 5 * time.Second
)

// Run opens the session, mints a chain and serves, epoch after epoch, until ctx
// ends (it then returns ctx's error), until a drain is done (nil), or until it must
// not go on: another process of the name took over ([catalog.ErrReplaced]), the name
// was decommissioned ([catalog.ErrRetired]), or the keyspace can't be read. It
// may be called once. All its tasks and calls have returned when it returns.
func (s *Star) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.running || s.stopped.IsSet() {
		s.mu.Unlock()
		return fmt.Errorf("star %s: run twice", s.opts.Name)
	}
	s.running = true
	s.mu.Unlock()
	err := s.run(ctx)
	s.finishRun(ctx, err)
	return err
}

func (s *Star) run(ctx context.Context) error {
	delay := mintRetryFirst
	for {
		if s.drained() {
			return nil
		}
		e, err := s.begin(ctx)
		if err != nil {
			return err
		}
		if e == nil {
			continue // a drain began
		}
		reason := s.serve(ctx, e)
		absorbed := s.retire(e, reason)
		switch {
		case errors.Is(reason, errDrained):
			s.leave(ctx, e)
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("star %s: %w", s.opts.Name, ctx.Err())
		}
		if errors.Is(reason, metastore.ErrSessionGone) {
			s.session = nil
		}
		s.log.Warn("chain abandoned", "chain", e.chain.String(), "reason", reason)
		s.events.Fenced(e.chain, reason)
		if absorbed {
			delay = mintRetryFirst
			continue
		}
		s.pause(ctx, delay)
		delay = min(2*delay, mintRetryMost)
	}
}

// finishRun refuses what waits and what is still to come, and lets the session go.
// Every PUT call has returned, so that whoever sees the route vanish may
// fence the chain.
func (s *Star) finishRun(ctx context.Context, err error) {
	stop := ErrShuttingDown
	if err != nil && ctx.Err() == nil {
		stop = err
		s.log.Error("star stopped", "error", err)
	}
	s.mu.Lock()
	s.stop = stop
	left := s.unqueue()
	woken := left[:0]
	for _, p := range left {
		woken = append(woken, s.finish(p, AppendResult{Stream: p.stream}, p.refused(stop)))
	}
	s.mu.Unlock()
	unpark(woken)
	s.EndFollows()
	_ = s.follows.polls.Wait(context.WithoutCancel(ctx)) // they were just ended, and none fails
	if s.session != nil {
		closing, cancel := s.clk.WithTimeout(context.WithoutCancel(ctx), s.cat.Timing().SessionTTL)
		if cerr := s.session.Close(closing); cerr != nil {
			s.log.Warn("session not closed", "error", cerr)
		}
		cancel()
	}
	s.stopped.Set()
}

// Drain refuses new appends and ends the waits of followers, waits until those taken are answered and absorbed,
// drops the route and closes the session; Run then returns nil. If ctx ends first
// Drain returns its error, and the drain goes on until Run's context ends.
func (s *Star) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.stop == nil {
		s.stop = ErrShuttingDown
	}
	running := s.running
	s.mu.Unlock()
	s.EndFollows()
	s.drain.Set()
	s.kick.Raise()
	if !running {
		return nil
	}
	if err := s.stopped.Wait(ctx); err != nil {
		return fmt.Errorf("draining star %s: %w", s.opts.Name, err)
	}
	return nil
}

// drained tells whether a drain has nothing left to do, before an epoch begins.
func (s *Star) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain.IsSet() && len(s.queue) == 0
}

// Ready returns nil once the session lives and a chain is minted, and why not before, in
// between and afterwards.
func (s *Star) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stop != nil:
		return s.stop
	case s.epoch == nil:
		return ErrNotReady
	case s.epoch.fenced != nil:
		return fmt.Errorf("%w: chain %s was abandoned: %w", ErrNotReady, s.epoch.chain, s.epoch.fenced)
	}
	return nil
}

// Chain returns the star's newest chain and its head, the next slot; ok is false
// before the first was minted.
func (s *Star) Chain() (chain catalog.ChainID, head uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == nil {
		return catalog.ChainID{}, 0, false
	}
	return s.epoch.chain, s.epoch.next, true
}

// pause waits, but not beyond the beginning of a drain. Whatever ended the wait, the
// caller looks again.
func (s *Star) pause(ctx context.Context, d time.Duration) {
	if s.drain.IsSet() {
		_ = s.clk.Sleep(ctx, clock.Jitter(s.clk, d))
		return
	}
	waiting, cancel := s.clk.WithTimeout(ctx, clock.Jitter(s.clk, d))
	defer cancel()
	_ = s.drain.Wait(waiting)
}

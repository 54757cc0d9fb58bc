package star

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore/format"
)

// epoch is one chain of the star, from its mint until it is abandoned.
type epoch struct {
	chain    catalog.ChainID
	session  metastore.Session
	tasks    *clock.Group
	ended    *clock.Event  // it was fenced, or drained
	released *clock.Signal // a slot was released
	owes     *clock.Signal // the chain owes too much to the settle rewrite
	grew     *clock.Signal // slots were absorbed

	// Of the departure task and of the absorber alone.
	writer, bundler *format.Writer // of slots; of bundles, nil before the first
	cache           *catalog.Cache

	// Guarded by Star.mu. absorbed ≤ durable ≤ next; flights holds one for each slot
	// of [absorbed, next), in order.
	fenced   error     // why it was abandoned; nil: it lives
	held     time.Time // read before the route was last seen to name this epoch
	absorbed uint64    // the checkpoint, as this star knows it
	durable  uint64    // first slot not known durable: those below are released
	next     uint64    // next slot
	flights  []*flight

	// What a flight lingers by: appends of slots that are released and not absorbed;
	// those that the last absorb answered, and when; those that the next flight will
	// hold if as many come back.
	landed, answered, expected int
	answeredAt                 time.Time
}

// begin mints the next chain, in a session that it opens where there is none. It
// tries again while the store is unavailable; nil without an error means that a drain
// began and nothing is left to do.
//
// A crash before the mint leaves a session, which ends by itself; after it an
// empty chain with its settle marker.
func (s *Star) begin(ctx context.Context) (*epoch, error) {
	for delay := mintRetryFirst; ; delay = min(2*delay, mintRetryMost) {
		e, err := s.mint(ctx)
		switch {
		case err == nil:
			return e, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("star %s: %w", s.opts.Name, ctx.Err())
		case errors.Is(err, metastore.ErrSessionGone):
			s.session = nil
		case !transient(err):
			return nil, fmt.Errorf("star %s: %w", s.opts.Name, err)
		}
		s.events.Branch("star.mint.retry")
		s.log.Warn("chain not minted, trying again", "error", err)
		if s.drained() {
			return nil, nil
		}
		s.pause(ctx, delay)
	}
}

// transient tells whether the store may answer the same call otherwise later.
func transient(err error) bool {
	return errors.Is(err, metastore.ErrUnavailable) || errors.Is(err, metastore.ErrUnknown)
}

func (s *Star) mint(ctx context.Context) (*epoch, error) {
	if s.session == nil {
		session, err := s.cat.Store().OpenSession(ctx, s.cat.Timing().SessionTTL)
		if err != nil {
			return nil, fmt.Errorf("opening a session: %w", err)
		}
		s.session = session
	}
	// The route that the mint puts names the epoch from this moment on at the earliest.
	held := s.clk.Now()
	chain, err := s.cat.Mint(ctx, catalog.MintRequest{
		Star: s.opts.Name, Incarnation: s.incarnation, Previous: s.minted,
		Session: s.session.ID(), Address: s.opts.Address, Window: uint64(s.opts.Window),
	})
	if err != nil {
		return nil, err
	}
	s.minted = chain.Epoch
	e := &epoch{
		chain: chain, session: s.session, held: held,
		tasks:    clock.NewGroup(s.clk, 0),
		ended:    clock.NewEvent(s.clk),
		released: clock.NewSignal(s.clk),
		owes:     clock.NewSignal(s.clk),
		grew:     clock.NewSignal(s.clk),
		writer:   format.NewWriter(format.KindSlot, s.opts.Codec),
		cache:    catalog.NewCache(s.opts.CacheStreams),
	}
	s.mu.Lock()
	s.epoch = e
	s.mu.Unlock()
	s.log.Info("chain minted", "chain", chain.String())
	s.events.Minted(chain)
	return e, nil
}

// serve runs the epoch's tasks until it ends, and returns why it did. Every task,
// and with them every PUT call, has returned by then.
func (s *Star) serve(ctx context.Context, e *epoch) error {
	working, cancel := s.clk.WithCancel(ctx)
	defer cancel()
	for _, t := range []struct {
		name string
		run  func(ctx context.Context, e *epoch)
	}{{"star.depart", s.depart}, {"star.absorb", s.absorb}, {"star.beat", s.beat}, {"star.ripen", s.ripen}, {"star.guard", s.guard}, {"star.announce", s.announce}} {
		// A group without a limit starts the task at once.
		_ = e.tasks.Go(working, t.name, func(ctx context.Context) error {
			t.run(ctx, e)
			return nil
		})
	}
	if err := e.ended.Wait(ctx); err != nil {
		s.fence(e, err)
	}
	cancel()
	// Tasks report to the fence and not to the group.
	_ = e.tasks.Wait(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.fenced
}

// fence abandons the epoch; the first reason is kept.
func (s *Star) fence(e *epoch, reason error) {
	s.mu.Lock()
	if e.fenced == nil {
		e.fenced = reason
	}
	s.mu.Unlock()
	e.ended.Set()
}

// retire sorts out the appends of an epoch whose tasks have all returned: those whose bundle
// could not be stored are told so; those whose slot's PUT had not begun go back to the queue, and with them, to be judged again,
// those of idempotent producers; the rest is answered with an unknown outcome. It
// returns whether the epoch absorbed anything.
//
// An append that is tried again may be absorbed twice as bytes, by the settle
// duty from the old slot and here from the new one, but only once as records:
// whichever comes second is judged a duplicate, from the same sequence and since.
func (s *Star) retire(e *epoch, reason error) bool {
	s.mu.Lock()
	var again, woken []*pending
	for _, f := range e.flights {
		for i := range f.sections {
			for _, p := range f.sections[i].appends {
				switch {
				case f.failed != nil:
					woken = append(woken, s.finish(p, AppendResult{Stream: p.stream}, p.refused(f.failed)))
				case !f.begun:
					again = append(again, p)
				case p.producer != nil && !p.left:
					p.retried = true
					again = append(again, p)
				default:
					woken = append(woken, s.finish(p, AppendResult{Stream: p.stream},
						fmt.Errorf("%w: its slot was sent when chain %s was abandoned: %w", ErrOutcomeUnknown, e.chain, reason)))
				}
			}
		}
	}
	e.flights = nil
	s.requeue(again)
	absorbed := e.absorbed > 0
	s.mu.Unlock()
	unpark(woken)
	if len(again) > 0 {
		s.events.Branch("star.retire.again")
	}
	return absorbed
}

// requeue puts appends back to where they came from in the order of all. s.mu is held.
func (s *Star) requeue(again []*pending) {
	if len(again) == 0 {
		return
	}
	again = append(again, s.unqueue()...)
	slices.SortFunc(again, func(a, b *pending) int {
		if a.order < b.order {
			return -1
		}
		return 1
	})
	for _, p := range again {
		p.taken = false
		if p.left {
			s.pending -= p.weight
			continue
		}
		s.join(p)
	}
}

// leave ends an epoch that was drained: nothing of it is in the air or waits to be
// absorbed. The route goes and the chain's settle marker ripens, so that the chain
// is sealed soon; where that fails, the end of the session and the marker's own time
// do the same later.
func (s *Star) leave(ctx context.Context, e *epoch) {
	leaving, cancel := s.clk.WithTimeout(ctx, s.cat.Timing().SessionTTL)
	defer cancel()
	if err := s.cat.DropRoute(leaving, e.chain); err != nil {
		s.log.Warn("route not dropped", "chain", e.chain.String(), "error", err)
	}
}

// beat keeps the session alive and watches the route, each third of the TTL.
//
// A route that no longer names the epoch means that the session ended, or that
// another process took the name; the next mint tells which. A session that could not
// be kept alive for its whole TTL counts as lost, whatever the store thinks of it,
// but where sessions end only with their process.
func (s *Star) beat(ctx context.Context, e *epoch) {
	ttl := min(e.session.TTL(), s.cat.Timing().SessionTTL)
	every := ttl / 3
	s.mu.Lock()
	alive := e.held
	s.mu.Unlock()
	for wait := every - s.clk.Now().Sub(alive); ; wait = every {
		if s.clk.Sleep(ctx, min(wait, every)) != nil {
			return
		}
		for {
			now := s.clk.Now()
			err := s.beatOnce(ctx, e, every)
			switch {
			case err == nil:
				alive = now
			case ctx.Err() != nil:
				return
			case errors.Is(err, metastore.ErrSessionGone):
				s.events.Branch("star.session.gone")
				s.fence(e, err)
				return
			case errors.Is(err, errRouteLost):
				s.events.Branch("star.route.lost")
				s.fence(e, err)
				return
			case !s.opts.Embedded && s.clk.Now().Sub(alive) >= ttl:
				s.events.Branch("star.session.stale")
				s.fence(e, fmt.Errorf("session not kept alive for %v: %w", ttl, err))
				return
			default:
				s.log.Warn("keep-alive failed, trying again", "chain", e.chain.String(), "error", err)
				if s.clk.Sleep(ctx, clock.Jitter(s.clk, every/8)) != nil {
					return
				}
				continue
			}
			break
		}
	}
}

var errRouteLost = errors.New("the star's route no longer names its chain")

// beatOnce keeps the session alive and then reads the route. Only in that order
// does seeing it say that the epoch was the name's after a moment at which the
// session lived: an idle star whose name was taken over may have a living session.
func (s *Star) beatOnce(ctx context.Context, e *epoch, limit time.Duration) error {
	beating, cancel := s.clk.WithTimeout(ctx, limit)
	defer cancel()
	if err := e.session.KeepAlive(beating); err != nil {
		return fmt.Errorf("keeping the session alive: %w", err)
	}
	now := s.clk.Now()
	holds, err := s.cat.HoldsRoute(beating, e.chain)
	switch {
	case err != nil:
		return err
	case !holds:
		return errRouteLost
	}
	s.mu.Lock()
	e.held = now
	s.mu.Unlock()
	s.kick.Raise()
	return nil
}

// announce hurries the settlement of the epochs that the mint had no room to announce: best
// effort, once, beside the serving.
func (s *Star) announce(ctx context.Context, e *epoch) {
	if err := s.cat.Reannounce(ctx, e.chain); err != nil && ctx.Err() == nil {
		s.log.Warn("older chains not re-announced", "chain", e.chain.String(), "error", err)
	}
}

// ripen hurries the settle rewrite while the chain owes it too much: batch markers
// armed before that are moved to now. New ones are armed ripe. It is best effort:
// acknowledgements never wait for it, and a marker that is missed ripens by itself.
func (s *Star) ripen(ctx context.Context, e *epoch) {
	var gen, from uint64
	for {
		if e.owes.Wait(ctx, gen) != nil {
			return
		}
		gen = e.owes.Generation()
		next, _, err := s.cat.RipenOwed(ctx, e.chain, from, math.MaxUint64)
		from = next
		if err != nil && ctx.Err() == nil {
			s.log.Warn("batch markers not ripened", "chain", e.chain.String(), "error", err)
		}
	}
}

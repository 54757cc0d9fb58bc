package auditor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// Seat is what the ring deals to one member. It decides what the member looks at, never
// what is right: an overlap costs duplicate work, a gap costs a wait.
type Seat struct {
	// Members is the roster, sorted.
	Members []string
	// Shards are the shards whose markers this member walks.
	Shards []int
	// Stars are the registered stars whose chains this member settles, sorted.
	Stars []string
}

// Deal returns a member's seat. A member that is not on the roster owns nothing. The
// roster and the stars are sorted and without repetition.
func Deal(member string, roster, stars []string) Seat {
	seat := Seat{Members: roster}
	at, ok := slices.BinarySearch(roster, member)
	if !ok {
		return seat
	}
	for shard := range catalog.Shards {
		if owner(roster, shard) == member {
			seat.Shards = append(seat.Shards, shard)
		}
	}
	// One after the other: so all chains of a star have one seat, and no seat has two
	// stars more than another.
	for i := at; i < len(stars); i += len(roster) {
		seat.Stars = append(seat.Stars, stars[i])
	}
	return seat
}

// owner returns the member with the highest score for the shard: rendezvous hashing
// (Thaler and Ravishankar, 1998). A member that joins takes shards, and one that
// leaves gives its own away; no other shard moves. The roster is not empty.
func owner(roster []string, shard int) string {
	best, most := "", uint64(0)
	for _, m := range roster {
		if s := score(m, shard); best == "" || s > most || s == most && m > best {
			best, most = m, s
		}
	}
	return best
}

// score hashes a member and a shard. Names hold no zero byte, so that no two pairs run together.
func score(member string, shard int) uint64 {
	var buf [80]byte
	b := append(buf[:0], member...)
	return xxhash.Sum64(append(b, 0, byte(shard)))
}

// ring is this member's place among the others. Its announcement has a session of its own,
// which withdrawal closes: so that an announcement that lands late cannot come back to life.
type ring struct {
	a *Auditor

	mu      sync.Mutex
	session metastore.Session // nil: not announced
	alive   time.Time         // before the session was last known to live
	seat    Seat
	owned   [catalog.Shards]bool
}

func newRing(a *Auditor) *ring { return &ring{a: a} }

// refresh announces the member if it is not, and reads roster and stars. On an
// error the member owns nothing until the next one: it can't know what.
func (r *ring) refresh(ctx context.Context) error {
	s, err := r.announce(ctx)
	if err != nil {
		return err
	}
	roster, err := r.a.cat.Roster(ctx)
	if err != nil {
		r.take(s, Seat{})
		return fmt.Errorf("reading the roster: %w", err)
	}
	stars, err := r.a.cat.Stars(ctx)
	if err != nil {
		r.take(s, Seat{})
		return fmt.Errorf("reading the stars: %w", err)
	}
	if _, ok := slices.BinarySearch(roster, r.a.opts.Member); !ok {
		r.lost(s)
		return fmt.Errorf("announcement of %s: %w", r.a.opts.Member, metastore.ErrSessionGone)
	}
	r.take(s, Deal(r.a.opts.Member, roster, stars))
	return nil
}

func (r *ring) announce(ctx context.Context) (metastore.Session, error) {
	if s := r.live(); s != nil {
		return s, nil
	}
	now := r.a.clk.Now()
	s, err := r.a.cat.Store().OpenSession(ctx, r.a.cat.Timing().SessionTTL)
	if err != nil {
		return nil, fmt.Errorf("opening the ring's session: %w", err)
	}
	if err := r.a.cat.Announce(ctx, s.ID(), r.a.opts.Member); err != nil {
		// It may have landed: ending the session takes it back.
		return nil, errors.Join(err, s.Close(ctx))
	}
	r.mu.Lock()
	r.session, r.alive = s, now
	r.mu.Unlock()
	r.a.emit(Event{Action: Announced})
	return s, nil
}

// take makes seat the member's, unless the session it was read under was lost since.
func (r *ring) take(s metastore.Session, seat Seat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != s {
		return
	}
	r.seat = seat
	r.owned = [catalog.Shards]bool{}
	for _, shard := range seat.Shards {
		r.owned[shard] = true
	}
}

// lost notes that the session is gone: the member owns nothing until it announced
// anew under another.
func (r *ring) lost(s metastore.Session) {
	r.mu.Lock()
	gone := r.session == s
	if gone {
		r.session, r.seat, r.owned = nil, Seat{}, [catalog.Shards]bool{}
	}
	r.mu.Unlock()
	if gone {
		r.a.log.Warn("the ring's session is gone; owning nothing until announced anew")
		r.a.emit(Event{Action: SessionLost})
	}
}

func (r *ring) live() metastore.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

// renewed notes that the session lived after now.
func (r *ring) renewed(s metastore.Session, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == s {
		r.alive = now
	}
}

// fresh tells whether the member is announced under a session that was known to live less than its TTL ago.
func (r *ring) fresh(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session != nil && (r.a.opts.Embedded || now.Sub(r.alive) < r.session.TTL())
}

func (r *ring) announced() bool { return r.live() != nil }

func (r *ring) current() Seat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seat
}

// owns tells whether the member walks the shard.
func (r *ring) owns(shard int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owned[shard]
}

// shards are those that the member walks.
func (r *ring) shards() [catalog.Shards]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owned
}

// settles tells whether the star's chains are placed at this member.
func (r *ring) settles(star string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := slices.BinarySearch(r.seat.Stars, star)
	return ok
}

func (r *ring) withdraw(ctx context.Context) error {
	r.mu.Lock()
	s := r.session
	r.session, r.seat, r.owned = nil, Seat{}, [catalog.Shards]bool{}
	r.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := s.Close(ctx); err != nil {
		return fmt.Errorf("leaving the ring: %w", err)
	}
	return nil
}

// keepAlive renews the ring's and the leases' session each third of a TTL. A call that hangs is
// given up after half of that, so that it costs neither the other session nor its own next try.
func (a *Auditor) keepAlive(ctx context.Context) error {
	every := a.cat.Timing().SessionTTL / 3
	gone := func(s metastore.Session) bool {
		if s == nil {
			return false
		}
		asking, cancel := a.clk.WithTimeout(ctx, every/2)
		defer cancel()
		now := a.clk.Now()
		err := s.KeepAlive(asking)
		if err == nil {
			a.ring.renewed(s, now)
		}
		return errors.Is(err, metastore.ErrSessionGone)
	}
	for {
		if err := a.clk.Sleep(ctx, every); err != nil {
			return nil
		}
		if s := a.ring.live(); gone(s) {
			a.ring.lost(s)
			a.wake.Raise()
		}
		if s := a.leases.live(); gone(s) {
			a.leases.lost(s)
		}
	}
}

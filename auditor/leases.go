package auditor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// leases holds the session of this member's leases, and those that it could not give back.
//
// A lease spares two members the same work and nothing rests on it. It ends by its
// release, by its deadline, past which anyone takes it over, and with its session.
type leases struct {
	a *Auditor

	mu      sync.Mutex
	session metastore.Session // nil: none open
	leaked  []lease
}

// lease is one that this member holds.
type lease struct {
	job     string
	version metastore.Version
	session metastore.SessionID
	until   time.Time
}

func newLeases(a *Auditor) *leases { return &leases{a: a} }

// claim takes the job's lease. ErrLeaseHeld (wrapped): a peer is on it.
func (l *leases) claim(ctx context.Context, job string) (*lease, error) {
	if l.a.opts.NoLeases {
		return nil, nil
	}
	for try := 0; ; try++ {
		s, err := l.open(ctx)
		if err != nil {
			return nil, err
		}
		until := l.a.clk.Now().Add(l.a.cat.Timing().JobDeadline)
		v, err := l.a.cat.Claim(ctx, s.ID(), job, l.a.opts.Member)
		switch {
		case err == nil:
			return &lease{job, v, s.ID(), until}, nil
		case !errors.Is(err, metastore.ErrSessionGone) || try > 0:
			return nil, err
		}
		l.lost(s)
	}
}

func (l *leases) open(ctx context.Context) (metastore.Session, error) {
	if s := l.live(); s != nil {
		return s, nil
	}
	s, err := l.a.cat.Store().OpenSession(ctx, l.a.cat.Timing().SessionTTL)
	if err != nil {
		return nil, fmt.Errorf("opening a session for leases: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session = s
	return s, nil
}

// release gives a lease back. One that can't be given back now has leaked: the next
// pass boundaries try again.
func (l *leases) release(ctx context.Context, h *lease) {
	if h == nil {
		return
	}
	if err := l.a.cat.Release(ctx, h.job, h.version); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leaked = append(l.leaked, *h)
	}
}

// retry releases what has leaked. A lease past its deadline is in nobody's way, and one of a session that is gone ends with
// it: the first is tried once more and then left to the session, the second is forgotten. So the list is bounded by the jobs of one deadline.
func (l *leases) retry(ctx context.Context) {
	l.mu.Lock()
	leaked := l.leaked
	l.leaked = nil
	s := l.session
	l.mu.Unlock()
	now := l.a.clk.Now()
	for i := range leaked {
		switch h := &leaked[i]; {
		case s == nil || h.session != s.ID():
		case now.Before(h.until):
			l.release(ctx, h)
		default:
			// At its version: whoever took it over since is not disturbed.
			_ = l.a.cat.Release(ctx, h.job, h.version)
		}
	}
}

func (l *leases) live() metastore.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

func (l *leases) lost(s metastore.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s {
		l.session = nil
	}
}

func (l *leases) close(ctx context.Context) error {
	l.mu.Lock()
	s := l.session
	l.session, l.leaked = nil, nil
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	if err := s.Close(ctx); err != nil {
		return fmt.Errorf("ending the leases' session: %w", err)
	}
	return nil
}

// wedgedAfter is how far past due a marker is when a lost claim of it is worth a warning: the
// holder is wedged then, not working.
const wedgedAfter = 5 * time.Minute

// skipped notes a lost claim.
func (l *leases) skipped(reg *Registration, m catalog.MarkerAt, job string, err error) {
	past := m.Due.PastDue(l.a.clk.Now())
	l.a.emit(Event{Duty: string(reg.Queue), Action: LeaseSkipped, Subject: m.Due.Subject, Took: past, Err: err})
	if past > wedgedAfter {
		l.a.log.Warn("a job long past due is leased by another member", "job", job, "past_due", past, "err", err)
	}
}

package pebblestore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nova-store/nova/metastore"
)

// OpenSession starts a session. It does not expire: it ends by Close and with the
// store. ttl is granted as it was asked for.
func (s *Store) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	r := request{kind: requestOpenSession}
	if err := s.call(ctx, &r); err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	return &session{s: s, id: r.session, ttl: ttl}, nil
}

type session struct {
	s    *Store
	id   metastore.SessionID
	ttl  time.Duration
	gone atomic.Bool
}

func (ss *session) ID() metastore.SessionID { return ss.id }

func (ss *session) TTL() time.Duration { return ss.ttl }

func (ss *session) KeepAlive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("keep alive: %w", ctx.Err())
	}
	if ss.gone.Load() {
		return fmt.Errorf("keep alive: %w: %d was closed", metastore.ErrSessionGone, ss.id)
	}
	if err := ss.s.queue.ended(); err != nil {
		return fmt.Errorf("keep alive: %w: %w", metastore.ErrSessionGone, err)
	}
	return nil
}

// Close ends the session. A session of a closed store has ended with it.
func (ss *session) Close(ctx context.Context) error {
	if ss.gone.Load() || ss.s.queue.ended() != nil {
		return nil
	}
	r := request{kind: requestEndSession, session: ss.id}
	if err := ss.s.call(ctx, &r); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	ss.gone.Store(true)
	return nil
}

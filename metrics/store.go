package metrics

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// Store wraps a store for the use of one role: its calls are counted, and so are the due markers that
// its commits arm and resolve.
//
// A commit whose answer was lost counts as unknown. Where it landed nevertheless, the
// repeat conflicts, and its markers are counted by nobody: the rates are for sizing, not for accounts.
func (m *Metrics) Store(s metastore.Store, role Role) metastore.Store {
	w := &store{Store: s, m: m, armed: map[string]metric.MeasurementOption{}}
	for op := range storeOps {
		for out := range storeOutcomes {
			w.outcomes[op][out] = labels("op", storeOp(op).String(), "outcome", storeOutcome(out).String(), "role", string(role))
		}
		w.ops[op] = labels("op", storeOp(op).String(), "role", string(role))
	}
	for _, q := range catalog.Queues() {
		w.armed[string(q)] = labels("queue", string(q))
	}
	return w
}

type storeOp int

const (
	opGet storeOp = iota
	opScan
	opPeek
	opCommit
	opOpenSession
	opKeepAlive
	opCloseSession
	storeOps
)

func (o storeOp) String() string {
	return [...]string{"get", "scan", "peek", "commit", "open-session", "keep-alive", "close-session"}[o]
}

type storeOutcome int

const (
	storeOK storeOutcome = iota
	storeConflict
	storeUnknown
	storeUnavailable
	storeSessionGone
	storeCancelled
	storeFailed
	storeOutcomes
)

func (o storeOutcome) String() string {
	return [...]string{"ok", "conflict", "unknown", "unavailable", "session-gone", "cancelled", "failed"}[o]
}

func storeOutcomeOf(err error) storeOutcome {
	switch {
	case err == nil:
		return storeOK
	case errors.Is(err, metastore.ErrConflict):
		return storeConflict
	case errors.Is(err, metastore.ErrUnknown):
		return storeUnknown
	case errors.Is(err, metastore.ErrSessionGone):
		return storeSessionGone
	case errors.Is(err, metastore.ErrUnavailable):
		return storeUnavailable
	case cancelled(err):
		return storeCancelled
	}
	return storeFailed
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

type store struct {
	metastore.Store
	m        *Metrics
	outcomes [storeOps][storeOutcomes]metric.MeasurementOption
	ops      [storeOps]metric.MeasurementOption
	armed    map[string]metric.MeasurementOption
}

// done counts one call that began at start.
func (s *store) done(ctx context.Context, op storeOp, start time.Time, bytes int, err error) {
	s.m.storeOps.Add(ctx, 1, s.outcomes[op][storeOutcomeOf(err)])
	s.m.storeLatency.Record(ctx, s.m.clk.Now().Sub(start).Seconds(), s.ops[op])
	if bytes > 0 {
		s.m.storeBytes.Add(ctx, int64(bytes), s.ops[op])
	}
}

func sizeOf(recs []metastore.Record) int {
	n := 0
	for i := range recs {
		if recs[i].Exists() {
			n += len(recs[i].Key) + len(recs[i].Value)
		}
	}
	return n
}

func (s *store) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	start := s.m.clk.Now()
	recs, err := s.Store.Get(ctx, keys...)
	s.done(ctx, opGet, start, sizeOf(recs), err)
	return recs, err
}

func (s *store) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	start := s.m.clk.Now()
	page, err := s.Store.Scan(ctx, r, limit)
	s.done(ctx, opScan, start, sizeOf(page.Records), err)
	return page, err
}

func (s *store) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	start := s.m.clk.Now()
	recs, err := s.Store.Peek(ctx, rs)
	s.done(ctx, opPeek, start, sizeOf(recs), err)
	return recs, err
}

func (s *store) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	start := s.m.clk.Now()
	v, err := s.Store.Commit(ctx, b)
	bytes := 0
	if err == nil {
		for i := range b.Ops {
			bytes += len(b.Ops[i].Key) + len(b.Ops[i].Value)
			s.marker(ctx, &b.Ops[i])
		}
	}
	s.done(ctx, opCommit, start, bytes, err)
	return v, err
}

// marker counts an operation on a due marker. Denorm's schedule only follows its markers.
func (s *store) marker(ctx context.Context, op *metastore.Op) {
	rest, ok := strings.CutPrefix(op.Key, "due/")
	if !ok {
		return
	}
	queue, _, _ := strings.Cut(rest, "/")
	opt, ok := s.armed[queue]
	switch {
	case !ok:
	case op.Delete:
		s.m.resolved.Add(ctx, 1, opt)
	default:
		s.m.armed.Add(ctx, 1, opt)
	}
}

func (s *store) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	start := s.m.clk.Now()
	inner, err := s.Store.OpenSession(ctx, ttl)
	s.done(ctx, opOpenSession, start, 0, err)
	if err != nil {
		return nil, err
	}
	return &session{inner, s}, nil
}

type session struct {
	metastore.Session
	s *store
}

func (s *session) KeepAlive(ctx context.Context) error {
	start := s.s.m.clk.Now()
	err := s.Session.KeepAlive(ctx)
	s.s.done(ctx, opKeepAlive, start, 0, err)
	return err
}

func (s *session) Close(ctx context.Context) error {
	start := s.s.m.clk.Now()
	err := s.Session.Close(ctx)
	s.s.done(ctx, opCloseSession, start, 0, err)
	return err
}

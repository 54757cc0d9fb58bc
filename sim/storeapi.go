package sim

import (
	"context"
	"time"

	"github.com/nova-store/nova/metastore"
)

func duration(n int64) time.Duration { return time.Duration(n) }

// nodeStore is the store as one incarnation sees it: across a network that loses
// answers, in the shared world.
type nodeStore struct{ inc *Incarnation }

var _ metastore.Store = (*nodeStore)(nil)

// Limits returns what bounds a batch.
func (s *nodeStore) Limits() metastore.Limits { return s.inc.node.w.limits }

// begin makes a call; the error says that the context had ended before.
func (inc *Incarnation) begin(ctx context.Context, op Op, write bool) (*call, error) {
	t := inc.enter()
	if err := ctx.Err(); err != nil {
		return nil, &callError{op: op, err: err}
	}
	return t.w.newCall(inc, t, op, write), nil
}

// sendStore sends a call other than a commit.
func (s *nodeStore) sendStore(ctx context.Context, c *call) *call {
	w := s.inc.node.w
	var extra int64
	switch {
	case w.isCut(s.inc, c.op):
		c.refuse, extra = metastore.ErrUnavailable, w.outageDelay()
	case w.fault.Chance(w.faults.StoreUnavailable):
		if c.write && !w.cfg.Embedded && w.fault.Chance(0.5) {
			c.mask = metastore.ErrUnavailable
			w.Mark("fault/session-answer-lost")
		} else {
			c.refuse = metastore.ErrUnavailable
			w.Mark("fault/store-unavailable")
		}
	}
	if (c.op == OpGet || c.op == OpScan || c.op == OpPeek) && w.fault.Chance(w.faults.ReadSlow) {
		extra += int64(w.fault.Between(0, w.faults.ReadSlowMax))
		w.Mark("fault/read-slow")
	}
	return w.send(ctx, c, w.faults.StoreLatency, extra)
}

// Get reads keys at one revision.
func (s *nodeStore) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	c, err := s.inc.begin(ctx, OpGet, false)
	if err != nil {
		return nil, err
	}
	c.names, c.keys = keys, append(c.keys, keys...)
	c = s.sendStore(ctx, c)
	recs, err := c.recs, c.err
	s.inc.node.w.free(c)
	return recs, err
}

// Scan reads the first records of a range.
func (s *nodeStore) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	c, err := s.inc.begin(ctx, OpScan, false)
	if err != nil {
		return metastore.Page{}, err
	}
	c.one[0] = r
	c.ranges, c.limit = c.one[:], max(limit, 1)
	c.keys = append(c.keys, r.Start, r.End)
	c = s.sendStore(ctx, c)
	page, err := metastore.Page{Records: c.recs, More: c.more}, c.err
	s.inc.node.w.free(c)
	return page, err
}

// Peek reads the first record of each range at one revision.
func (s *nodeStore) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	c, err := s.inc.begin(ctx, OpPeek, false)
	if err != nil {
		return nil, err
	}
	c.ranges = rs
	if len(rs) > 0 {
		// The trace names the first of what may be hundreds, again and again.
		c.keys = append(c.keys, rs[0].Start)
	}
	c = s.sendStore(ctx, c)
	recs, err := c.recs, c.err
	s.inc.node.w.free(c)
	return recs, err
}

// Commit applies a batch.
func (s *nodeStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	c, err := s.inc.begin(ctx, OpCommit, len(b.Ops) > 0)
	if err != nil {
		return 0, err
	}
	c.batch = b
	for i := range b.Conds {
		c.keys = append(c.keys, b.Conds[i].Key)
	}
	for i := range b.Ops {
		c.keys = append(c.keys, b.Ops[i].Key)
	}
	w := s.inc.node.w
	f := &w.faults
	var extra int64
	switch {
	case w.isCut(s.inc, OpCommit):
		c.refuse, extra = metastore.ErrUnknown, w.outageDelay()
	case w.fault.Chance(f.CommitUnavailable):
		c.refuse = metastore.ErrUnavailable
		w.Mark("fault/commit-unavailable")
	case w.fault.Chance(f.CommitUnknownNoEffect):
		c.refuse = metastore.ErrUnknown
		w.Mark("fault/commit-unknown-no-effect")
	case w.fault.Chance(f.CommitUnknownEffect):
		c.mask = metastore.ErrUnknown
		w.Mark("fault/commit-unknown-effect")
	case w.fault.Chance(f.CommitUnknownLate):
		c.late = w.commitLateness()
		w.Mark("fault/commit-unknown-late")
	}
	if w.fault.Chance(f.CommitSlow) {
		extra += int64(w.fault.Between(0, f.CommitSlowMax))
		w.Mark("fault/commit-slow")
	}
	c = w.send(ctx, c, f.StoreLatency, extra)
	ver, err := c.ver, c.err
	w.free(c)
	if err != nil {
		ver = 0
	}
	return ver, err
}

// commitLateness draws how much later than usual a commit lands.
func (w *World) commitLateness() int64 {
	return 1 + int64(w.fault.Between(0, w.faults.CommitLateMax))
}

// OpenSession starts a session.
func (s *nodeStore) OpenSession(ctx context.Context, ttl time.Duration) (metastore.Session, error) {
	c, err := s.inc.begin(ctx, OpOpenSession, true)
	if err != nil {
		return nil, err
	}
	c.ttl = int64(max(ttl, 1))
	c = s.sendStore(ctx, c)
	x, err := c.sess, c.err
	s.inc.node.w.free(c)
	if err != nil {
		return nil, err
	}
	return &nodeSession{st: s, x: x}, nil
}

// nodeSession is a session as its owner sees it.
type nodeSession struct {
	st *nodeStore
	x  *session
}

// ID is what puts name.
func (h *nodeSession) ID() metastore.SessionID { return h.x.id }

// TTL is what the store granted.
func (h *nodeSession) TTL() time.Duration { return duration(h.x.ttl) }

// KeepAlive renews the session.
func (h *nodeSession) KeepAlive(ctx context.Context) error { return h.do(ctx, OpKeepAlive) }

// Close ends the session.
func (h *nodeSession) Close(ctx context.Context) error { return h.do(ctx, OpCloseSession) }

func (h *nodeSession) do(ctx context.Context, op Op) error {
	// In the embedded world there is nothing to renew.
	write := op != OpKeepAlive || !h.st.inc.node.w.cfg.Embedded
	c, err := h.st.inc.begin(ctx, op, write)
	if err != nil {
		return err
	}
	c.sess = h.x
	c = h.st.sendStore(ctx, c)
	err = c.err
	h.st.inc.node.w.free(c)
	return err
}

package sim

import (
	"slices"

	"github.com/nova-store/nova/metastore"
)

// store is the metadata store that all nodes share. Each call has its effect at
// one moment, so everything is strictly serializable.
type store struct {
	w        *World
	tab      table[*row]
	rev      metastore.Version
	sessions []*session // living ones in order of their ids
	lastID   metastore.SessionID
	commit   Commit // reused
	seen     map[string]struct{}
	nothing  []metastore.Record // all of them absent; never written
	page     []metastore.Record // reused
}

type row struct {
	metastore.Record
	session *session // nil: none
}

// session is one session; its keys are those of its rows.
type session struct {
	id    metastore.SessionID
	inc   *Incarnation
	ttl   int64
	ended bool
	timer *event
	rows  map[*row]struct{}
}

// Change is what a commit did to one key.
type Change struct {
	// Old and New are the key's records before and after; Version 0 means absent.
	Old, New metastore.Record
	// Session is the session that the key is bound to afterwards, 0 if none.
	Session metastore.SessionID
}

// Commit is one change of the store as it happens.
type Commit struct {
	Rev     metastore.Version
	Changes []Change
	// Inc and Step tell who asked for it; a nil Inc means that a session ended by
	// itself or with its process.
	Inc  *Incarnation
	Step int
	// Late tells that the caller had its answer, or was dead, before.
	Late bool
	// Session is not 0 if this is the end of that session, and its keys go.
	Session metastore.SessionID
}

func (s *store) init(w *World) {
	s.w = w
	s.seen = map[string]struct{}{}
}

// perform does what the call asks and tells whether anything has changed.
func (s *store) perform(c *call) bool {
	switch c.op {
	case OpGet:
		s.get(c)
	case OpScan:
		s.scan(c)
	case OpPeek:
		s.peek(c)
	case OpCommit:
		return s.apply(c)
	case OpOpenSession:
		s.open(c)
		return true
	case OpKeepAlive:
		return s.keepAlive(c)
	case OpCloseSession:
		if c.sess.ended {
			return false
		}
		s.end(c.sess, c)
		return true
	}
	return false
}

func (s *store) get(c *call) {
	if len(c.names) > s.w.limits.MaxOps {
		c.fail(metastore.ErrTooLarge, nil)
		return
	}
	late := len(s.w.pending) > 0
	c.recs = make([]metastore.Record, len(c.names))
	for i, k := range c.names {
		if late {
			s.w.lookedAt(k, "")
		}
		if r, ok := s.tab.get(k); ok {
			c.recs[i] = r.Record
		} else {
			c.recs[i].Key = k
		}
	}
}

func (s *store) scan(c *call) {
	limit := c.limit
	if c.mayBeEmpty && limit == 0 {
		c.more = s.first(c.ranges[0]).Exists()
		return
	}
	if limit > 1 && s.w.fault.Chance(s.w.faults.ScanShort) {
		limit = 1 + s.w.fault.N(limit-1)
		s.w.Mark("fault/scan-short")
	}
	recs, more := s.page[:0], false
	s.tab.ascend(c.ranges[0].Start, c.ranges[0].End, func(_ string, r *row) bool {
		if len(recs) == limit {
			more = true
			return false
		}
		recs = append(recs, r.Record)
		return true
	})
	// Most pages are short, however many records may be on one.
	c.recs, c.more = append([]metastore.Record(nil), recs...), more
	s.page = recs
	if len(s.w.pending) > 0 {
		s.w.lookedAt(c.ranges[0].Start, c.ranges[0].End)
	}
	if t := c.t; t != nil {
		if t.scan.more && t.scan.end == c.ranges[0].End && t.scan.start < c.ranges[0].Start && t.scan.rev != s.rev {
			s.w.Mark("store/scan-interleaved")
		}
		t.scan = scanned{c.ranges[0].Start, c.ranges[0].End, s.rev, more}
	}
}

// scanned is the page that a task read last.
type scanned struct {
	start, end string
	rev        metastore.Version
	more       bool
}

func (s *store) peek(c *call) {
	if len(c.ranges) > s.w.limits.MaxOps {
		c.fail(metastore.ErrTooLarge, nil)
		return
	}
	// Where nothing is found, as in most looks at idle queues, all callers share one empty answer.
	for len(s.nothing) < len(c.ranges) {
		s.nothing = append(s.nothing, metastore.Record{})
	}
	c.recs = s.nothing[:len(c.ranges):len(c.ranges)]
	found := false
	// Most ranges of an idle queue are empty and lie side by side: what one search
	// found tells that everything from its start up to there is empty.
	var from, to string
	searched := false
	for i := range c.ranges {
		r := &c.ranges[i]
		if searched && r.Start >= from && r.End != "" && (to == "" || r.End <= to) {
			continue
		}
		searched, from, to = true, r.Start, ""
		s.tab.ascend(r.Start, "", func(key string, x *row) bool {
			to = key
			if r.End == "" || key < r.End {
				if !found {
					found, c.recs = true, make([]metastore.Record, len(c.ranges))
				}
				c.recs[i] = x.Record
			}
			return false
		})
	}
}

func (s *store) first(r metastore.Range) (rec metastore.Record) {
	s.tab.ascend(r.Start, r.End, func(_ string, x *row) bool {
		rec = x.Record
		return false
	})
	return rec
}

// apply judges the batch and, if its conditions hold, makes it happen.
func (s *store) apply(c *call) bool {
	b := &c.batch
	if err := s.admissible(b); err != nil {
		c.fail(err, nil)
		return false
	}
	for i := range b.Conds {
		if !s.holds(&b.Conds[i]) {
			c.fail(metastore.ErrConflict, nil)
			c.err.(*callError).key = b.Conds[i].Key
			return false
		}
	}
	for i := range b.Ops {
		if id := b.Ops[i].Session; id != 0 && s.session(id) == nil {
			c.fail(metastore.ErrSessionGone, nil)
			return false
		}
	}
	m := s.begin(c)
	for i := range b.Ops {
		s.write(m, &b.Ops[i])
	}
	if len(b.Ops) > 0 {
		s.finish(m)
	}
	c.ver = s.rev
	return len(m.Changes) > 0
}

func (s *store) admissible(b *metastore.Batch) error {
	lim := s.w.limits
	if len(b.Conds) > lim.MaxOps || len(b.Ops) > lim.MaxOps {
		return metastore.ErrTooLarge
	}
	size := 0
	for i := range b.Conds {
		size += len(b.Conds[i].Key)
	}
	for i := range b.Ops {
		size += len(b.Ops[i].Key) + len(b.Ops[i].Value)
	}
	if size > lim.MaxBytes {
		return metastore.ErrTooLarge
	}
	if len(b.Ops) <= 8 {
		for i := range b.Ops {
			for j := range i {
				if b.Ops[i].Key == b.Ops[j].Key {
					return metastore.ErrDuplicateKey
				}
			}
		}
		return nil
	}
	clear(s.seen)
	for i := range b.Ops {
		s.seen[b.Ops[i].Key] = struct{}{}
	}
	if len(s.seen) < len(b.Ops) {
		return metastore.ErrDuplicateKey
	}
	return nil
}

func (s *store) holds(c *metastore.Cond) bool {
	r, ok := s.tab.get(c.Key)
	switch c.Kind {
	case metastore.CondAbsent:
		return !ok
	case metastore.CondExists:
		return ok
	default:
		return ok && c.Version != 0 && r.Version == c.Version
	}
}

func (s *store) session(id metastore.SessionID) *session {
	i, ok := slices.BinarySearchFunc(s.sessions, id, func(x *session, id metastore.SessionID) int {
		return int(int64(x.id) - int64(id))
	})
	if !ok {
		return nil
	}
	return s.sessions[i]
}

// begin starts a change on behalf of c, or, if that is nil, of nobody.
func (s *store) begin(c *call) *Commit {
	m := &s.commit
	clear(m.Changes)
	*m = Commit{Changes: m.Changes[:0]}
	if c != nil {
		m.Inc, m.Step, m.Late = c.inc, c.step, c.t == nil
	}
	return m
}

// write does one operation; its new record gets the revision to come.
func (s *store) write(m *Commit, op *metastore.Op) {
	next := s.rev + 1
	r, ok := s.tab.get(op.Key)
	ch := Change{Old: metastore.Record{Key: op.Key}, New: metastore.Record{Key: op.Key}, Session: op.Session}
	if ok {
		ch.Old = r.Record
	}
	if op.Delete {
		if !ok {
			return
		}
		ch.Session = 0
		s.bind(r, nil)
		s.tab.remove(op.Key)
	} else {
		if !ok {
			r = &row{Record: metastore.Record{Key: op.Key}}
			s.tab.add(op.Key, r)
		}
		r.Value, r.Version = op.Value, next
		ch.New = r.Record
		var to *session
		if op.Session != 0 {
			to = s.session(op.Session)
		}
		s.bind(r, to)
		s.w.hash = fold(s.w.hash, hashBytes(op.Value))
	}
	m.Changes = append(m.Changes, ch)
}

func (s *store) bind(r *row, to *session) {
	if r.session == to {
		return
	}
	if r.session != nil {
		delete(r.session.rows, r)
	}
	if r.session = to; to != nil {
		to.rows[r] = struct{}{}
	}
}

// finish gives the change its revision and tells everyone. Deletes of absent keys
// alone have one too, but are no change.
func (s *store) finish(m *Commit) {
	s.rev++
	m.Rev = s.rev
	if len(m.Changes) == 0 {
		return
	}
	for _, f := range s.w.onCommit {
		f(m)
	}
}

func (s *store) open(c *call) {
	s.lastID++
	x := &session{id: s.lastID, inc: c.inc, ttl: c.ttl, rows: map[*row]struct{}{}}
	s.sessions = append(s.sessions, x)
	c.sess = x
	s.extend(x)
}

func (s *store) keepAlive(c *call) bool {
	if c.sess.ended {
		c.fail(metastore.ErrSessionGone, nil)
		return false
	}
	if s.w.cfg.Embedded {
		return false
	}
	s.extend(c.sess)
	return true
}

// extend sets when the session ends, if it is not kept alive before. In the
// embedded world it ends with its process alone.
func (s *store) extend(x *session) {
	w := s.w
	if w.cfg.Embedded {
		return
	}
	w.unschedule(x.timer)
	in := x.ttl
	f := &w.faults
	switch {
	case w.fault.Chance(f.SessionEarly):
		in = 1 + int64(w.fault.Between(0, duration(x.ttl)))
		w.Mark("fault/session-early")
	case w.fault.Chance(f.SessionLate):
		in += int64(w.fault.Between(0, f.SessionLateMax))
		w.Mark("fault/session-late")
	}
	x.timer = w.schedule(w.now + in)
	x.timer.fn = func() {
		x.timer = nil
		if x.inc.dead {
			w.Mark("store/session-ended-with-the-dead")
		} else {
			w.Mark("store/session-ended-of-the-living")
		}
		s.end(x, nil)
	}
}

// end ends a session and removes its keys, in one change.
func (s *store) end(x *session, c *call) {
	w := s.w
	w.unschedule(x.timer)
	x.timer, x.ended = nil, true
	i := slices.Index(s.sessions, x)
	s.sessions = slices.Delete(s.sessions, i, i+1)
	keys := make([]string, 0, len(x.rows))
	for r := range x.rows {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	m := s.begin(c)
	m.Session = x.id
	for _, k := range keys {
		op := metastore.Delete(k)
		s.write(m, &op)
	}
	if c == nil {
		w.Mark("store/session-ended")
		e := w.record(EvSession, 0, x.inc, nil, w.steps, "")
		for _, k := range keys {
			w.addKey(e, k)
		}
		w.emit(e)
	}
	if len(keys) > 0 {
		s.finish(m)
	}
	w.boundary()
}

// endSessionsOf ends the sessions of a process that is gone.
func (s *store) endSessionsOf(inc *Incarnation) {
	for i := 0; i < len(s.sessions); {
		if x := s.sessions[i]; x.inc == inc {
			s.end(x, nil)
		} else {
			i++
		}
	}
}

// StoreView looks at the store as it is now, without a step.
type StoreView struct{ s *store }

// StoreView returns a view of the store.
func (w *World) StoreView() StoreView { return StoreView{&w.store} }

// Get returns a key's record; of an absent key Version is 0.
func (v StoreView) Get(key string) metastore.Record {
	if r, ok := v.s.tab.get(key); ok {
		return r.Record
	}
	return metastore.Record{Key: key}
}

// Scan calls f for the records of a range in order until it returns false. The
// store must not change meanwhile.
func (v StoreView) Scan(r metastore.Range, f func(metastore.Record) bool) {
	v.s.tab.ascend(r.Start, r.End, func(_ string, x *row) bool { return f(x.Record) })
}

// First returns the first record of a range; of an empty one Version is 0.
func (v StoreView) First(r metastore.Range) metastore.Record { return v.s.first(r) }

// Session returns the session that the key is bound to, or 0.
func (v StoreView) Session(key string) metastore.SessionID {
	if r, ok := v.s.tab.get(key); ok && r.session != nil {
		return r.session.id
	}
	return 0
}

// Len returns how many keys there are.
func (v StoreView) Len() int { return v.s.tab.len() }

// Rev returns the newest revision.
func (v StoreView) Rev() metastore.Version { return v.s.rev }

// ExpireSession ends a session at this moment, as if its time had come.
func (w *World) ExpireSession(id metastore.SessionID) bool {
	x := w.store.session(id)
	if x == nil {
		return false
	}
	w.store.end(x, nil)
	return true
}

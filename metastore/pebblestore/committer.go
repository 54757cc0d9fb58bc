package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"

	"github.com/nova-store/nova/metastore"
)

// ceilingStep is how far ahead of its use a revision is reserved: one more small
// record every so many commits, and so many revisions skipped at a start.
const ceilingStep = 1 << 12

// committer judges requests, one after the other, against the newest state, earlier
// members of the group under way included. Its goroutine alone uses everything below mu.
type committer struct {
	s *Store

	// mu is held while a group is judged, never across the disk's writes. Under it a caller that
	// gives up learns whether its request was taken.
	mu sync.Mutex

	// revision is the newest commit's. It never passes ceiling, the durable bound, save in
	// the group whose batch raises it.
	revision, ceiling uint64

	// keys are the session keys. No key is both here and in Pebble. Published views
	// hold copies, which share structure and are never written to.
	keys *btree.Map[string, sessionKey]

	// sessions holds the keys of every open session.
	sessions map[metastore.SessionID]map[string]struct{}

	// overlay is what the group under way has written to Pebble so far: the new
	// version, 0 for a delete.
	overlay map[string]metastore.Version
	batch   *pebble.Batch
	changes []change

	space  spaceGuard
	short  shortener
	keyBuf []byte
}

// sessionKey is the value of a key under a session.
type sessionKey struct {
	value   []byte
	version metastore.Version
	session metastore.SessionID
}

// group is what is synced and answered together.
type group struct {
	requests []*request
	// batch is nil when Pebble has nothing to write.
	batch *pebble.Batch
	// changes are what the batch does to durable keys, in order.
	changes []change
}

func (c *committer) init(s *Store, ceiling uint64) {
	c.s = s
	c.revision, c.ceiling = ceiling, ceiling
	c.keys = btree.NewMap[string, sessionKey](0)
	c.sessions = make(map[metastore.SessionID]map[string]struct{})
	c.overlay = make(map[string]metastore.Version)
	c.short = newShortener()
	_, every := steps(s.opts.MinFreeBytes)
	c.space = spaceGuard{fs: s.opts.FS, dir: s.dir, reserve: s.opts.MinFreeBytes, every: every, now: time.Now}
}

// runCommitter forms, judges, applies, shows and answers groups until the queue is closed.
func (s *Store) runCommitter() {
	defer close(s.done)
	last := s.views.newest()
	for {
		g := &group{}
		var closed error
		if g.requests, closed = s.queue.take(); closed != nil {
			for _, r := range g.requests {
				r.answer(closed)
			}
			return
		}
		s.committer.shorten()
		keysChanged := s.committer.judge(g)
		if err := s.apply(g); err != nil {
			for _, r := range g.requests {
				// Not wrapped: an error that says that the store is closed means "nothing happened".
				r.answer(fmt.Errorf("%w: %v", metastore.ErrUnknown, err))
			}
			continue
		}
		if g.batch != nil || keysChanged {
			last = s.show(g, last, keysChanged)
		}
		s.answer(g)
		s.flushShortened()
	}
}

// judge decides every request of the group, in order, and stages what the group writes. It tells
// whether session keys changed.
func (c *committer) judge(g *group) (keysChanged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := g.requests[:0]
	for _, r := range g.requests {
		if r.givenUp {
			continue
		}
		r.judged = true
		taken = append(taken, r)
		changed := false
		switch r.kind {
		case requestCommit:
			changed, r.err = c.commit(r)
		case requestOpenSession:
			c.revision++
			r.session = metastore.SessionID(c.revision)
			c.sessions[r.session] = make(map[string]struct{})
		case requestEndSession:
			changed = c.endSession(r.session)
		}
		r.batch = metastore.Batch{}
		keysChanged = keysChanged || changed
	}
	g.requests = taken
	if c.revision > c.ceiling {
		// Durable together with the revisions that pass the old one.
		c.ceiling = c.revision + ceilingStep
		_ = c.staging().Set(ceilingKey, binary.BigEndian.AppendUint64(nil, c.ceiling), nil)
	}
	g.batch, c.batch = c.batch, nil
	g.changes, c.changes = c.changes, nil
	clear(c.overlay)
	return keysChanged
}

// commit judges and stages one batch. Every check comes before the first change,
// so that an error leaves nothing.
func (c *committer) commit(r *request) (keysChanged bool, err error) {
	for i := range r.batch.Conds {
		if err := c.holds(&r.batch.Conds[i]); err != nil {
			return false, err
		}
	}
	if len(r.batch.Ops) == 0 {
		return false, nil
	}
	need := spaceForNothing
	for i := range r.batch.Ops {
		op := &r.batch.Ops[i]
		switch {
		case op.Delete:
			if _, found := c.keys.Get(op.Key); !found {
				need = max(need, spaceForDeletes)
			}
		case op.Session == 0:
			need = spaceForPuts
		default:
			if _, open := c.sessions[op.Session]; !open {
				return false, fmt.Errorf("%w: %d", metastore.ErrSessionGone, op.Session)
			}
		}
	}
	if err := c.space.check(need, r.bytes); err != nil {
		if need != spaceForPuts || c.grows(r.batch.Ops) || c.space.check(spaceForDeletes, 0) != nil {
			return false, err
		}
	}
	// A durable key that goes under a session leaves Pebble. Looking it up can fail,
	// so it is done before anything changes.
	var moved []string
	for i := range r.batch.Ops {
		op := &r.batch.Ops[i]
		if op.Delete || op.Session == 0 {
			continue
		}
		if _, found := c.keys.Get(op.Key); found {
			continue
		}
		version, err := c.durableVersion(op.Key)
		if err != nil {
			return false, err
		}
		if version != 0 {
			moved = append(moved, op.Key)
		}
	}

	c.revision++
	r.version = metastore.Version(c.revision)
	for _, key := range moved {
		c.stageDelete(key)
	}
	for i := range r.batch.Ops {
		op := &r.batch.Ops[i]
		wasSessions := c.dropSessionKey(op.Key)
		keysChanged = keysChanged || wasSessions
		switch {
		case op.Delete:
			if !wasSessions {
				c.stageDelete(op.Key)
			}
		case op.Session == 0:
			c.stagePut(op.Key, r.version, op.Value)
		default:
			c.keys.Set(op.Key, sessionKey{op.Value, r.version, op.Session})
			c.sessions[op.Session][op.Key] = struct{}{}
			keysChanged = true
		}
	}
	return keysChanged, nil
}

// holds returns ErrConflict if the condition does not.
func (c *committer) holds(cond *metastore.Cond) error {
	version, err := c.version(cond.Key)
	if err != nil {
		return err
	}
	ok := version != 0
	switch cond.Kind {
	case metastore.CondVersion:
		ok = ok && version == cond.Version
	case metastore.CondAbsent:
		ok = !ok
	}
	if ok {
		return nil
	}
	return &conflict{cond: *cond, found: version}
}

// grows tells whether there are more durable keys after the operations than before. What moves a cursor, or
// re-arms or resolves a marker, does not grow: it is how space is given back.
func (c *committer) grows(ops []metastore.Op) bool {
	more := 0
	for i := range ops {
		op := &ops[i]
		if op.Session != 0 {
			continue
		}
		version, err := c.durableVersion(op.Key)
		if err != nil {
			return true
		}
		switch {
		case op.Delete && version != 0:
			more--
		case !op.Delete && version == 0:
			more++
		}
	}
	return more > 0
}

// version returns the newest version of a key, 0 if it is absent.
func (c *committer) version(key string) (metastore.Version, error) {
	if k, found := c.keys.Get(key); found {
		return k.version, nil
	}
	return c.durableVersion(key)
}

// durableVersion is version for what is in Pebble or about to be.
func (c *committer) durableVersion(key string) (metastore.Version, error) {
	if version, found := c.overlay[key]; found {
		return version, nil
	}
	c.keyBuf = appendKey(c.keyBuf[:0], key)
	value, closer, err := c.s.db.Get(c.keyBuf)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: reading %q: %w", metastore.ErrUnavailable, key, err)
	}
	version, _, err := decodeValue(key, value)
	return version, errors.Join(err, closer.Close())
}

func (c *committer) staging() *pebble.Batch {
	if c.batch == nil {
		c.batch = c.s.db.NewBatch()
	}
	return c.batch
}

func (c *committer) stagePut(key string, version metastore.Version, value []byte) {
	op := c.staging().SetDeferred(1+len(key), versionLen+len(value))
	op.Key[0] = userPrefix
	copy(op.Key[1:], key)
	binary.BigEndian.PutUint64(op.Value, uint64(version))
	copy(op.Value[versionLen:], value)
	_ = op.Finish()
	c.overlay[key] = version
	c.changes = append(c.changes, change{key: key, put: true})
}

func (c *committer) stageDelete(key string) {
	op := c.staging().DeleteDeferred(1 + len(key))
	op.Key[0] = userPrefix
	copy(op.Key[1:], key)
	_ = op.Finish()
	c.overlay[key] = 0
	c.short.deleted(key)
	c.changes = append(c.changes, change{key: key})
}

// dropSessionKey removes a key from the session that holds it, if one does.
func (c *committer) dropSessionKey(key string) bool {
	k, found := c.keys.Delete(key)
	if found {
		delete(c.sessions[k.session], key)
	}
	return found
}

func (c *committer) endSession(id metastore.SessionID) (keysChanged bool) {
	keys := c.sessions[id]
	for key := range keys {
		c.keys.Delete(key)
	}
	delete(c.sessions, id)
	return len(keys) > 0
}

// apply writes the group's batch and syncs it. A crash in the midst of it leaves
// the batch whole or not at all; none of it was shown or answered.
func (s *Store) apply(g *group) error {
	if g.batch == nil {
		return s.failed()
	}
	// Where the log cannot be synced Pebble calls Fatalf, and returns nil. Where it cannot
	// even be appended to, Pebble panics, which ends the process as well.
	if err := s.db.Apply(g.batch, pebble.Sync); err != nil {
		s.fail(fmt.Errorf("writing the log: %w", err))
	}
	if err := s.failed(); err != nil {
		return err
	}
	return g.batch.Close()
}

// show makes the state after g, which is durable, the one that readers see. The snapshot is of
// exactly that state: only the committer writes.
func (s *Store) show(g *group, last *view, keysChanged bool) *view {
	v := &view{snap: last.snap, sessionKeys: last.sessionKeys}
	if g.batch != nil {
		v.snap = newSnapshot(s.db)
	} else {
		v.snap.retain()
	}
	if keysChanged {
		v.sessionKeys = s.committer.keys.Copy()
	}
	s.views.install(v, g.changes)
	return v
}

// answer tells every member of the group how it ended.
func (s *Store) answer(g *group) {
	for _, r := range g.requests {
		s.committer.mu.Lock()
		orphan := r.kind == requestOpenSession && r.givenUp
		s.committer.mu.Unlock()
		if orphan {
			// Nobody will ever know this session. If the push is refused the store is closed,
			// and the session is gone as well.
			_ = s.queue.push(&request{kind: requestEndSession, session: r.session, done: make(chan struct{}, 1)})
			continue
		}
		r.answer(r.err)
	}
}

// conflict says which condition failed. It is an ErrConflict, put into words only when asked.
type conflict struct {
	cond  metastore.Cond
	found metastore.Version
}

func (e *conflict) Error() string {
	want := "absent"
	switch e.cond.Kind {
	case metastore.CondVersion:
		want = fmt.Sprintf("at version %d", e.cond.Version)
	case metastore.CondExists:
		want = "there"
	}
	if e.found == 0 {
		return fmt.Sprintf("%v: %q should be %s, it is absent", metastore.ErrConflict, e.cond.Key, want)
	}
	return fmt.Sprintf("%v: %q should be %s, it is at version %d", metastore.ErrConflict, e.cond.Key, want, e.found)
}

func (e *conflict) Unwrap() error { return metastore.ErrConflict }

package pebblestore

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"

	"github.com/nova-store/nova/metastore"
)

// view is the state at one revision: what is in Pebble, and the session keys.
type view struct {
	// seq counts views. It is set when the view is installed.
	seq uint64

	snap        *snapshot
	sessionKeys *btree.Map[string, sessionKey]
}

// snapshot is a Pebble snapshot that closes with its last user. Views that differ
// in session keys only share one.
type snapshot struct {
	*pebble.Snapshot
	users atomic.Int64
}

func newSnapshot(db *pebble.DB) *snapshot {
	s := &snapshot{Snapshot: db.NewSnapshot()}
	s.users.Store(1)
	return s
}

func (s *snapshot) retain() { s.users.Add(1) }

func (s *snapshot) release() {
	if s.users.Add(-1) == 0 {
		_ = s.Close()
	}
}

// views holds the newest durable view, which every read begins with.
type views struct {
	mu      sync.Mutex
	view    *view
	gaps    gaps
	refused error

	// learnSteps is the constant, except in tests that want every read to learn.
	learnSteps int
	readers    sync.WaitGroup
}

// change is a put or a delete of a durable key.
type change struct {
	key string
	put bool
}

// install puts v in place of the older view, from which it differs by changes among
// the durable keys. Whoever reads from that one goes on.
func (vs *views) install(v *view, changes []change) {
	vs.mu.Lock()
	old := vs.view
	if old != nil {
		v.seq = old.seq + 1
	}
	vs.view = v
	for _, c := range changes {
		vs.gaps.change(v.seq, c)
	}
	vs.mu.Unlock()
	if old != nil {
		old.snap.release()
	}
}

func (vs *views) newest() *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.view
}

// acquire returns the newest view for reading, to be given back by release. It appends to
// from, for each range, where in Pebble to look for its first key.
func (vs *views) acquire(from []string, rs ...metastore.Range) (*view, []string, error) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.refused != nil {
		return nil, nil, vs.refused
	}
	vs.readers.Add(1)
	vs.view.snap.retain()
	for i := range rs {
		from = append(from, vs.gaps.skip(rs[i].Start))
	}
	return vs.view, from, nil
}

// learn remembers that v has no durable key in [start, end).
func (vs *views) learn(v *view, start, end string) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.gaps.learn(v.seq, start, end)
}

func (vs *views) release(v *view) {
	v.snap.release()
	vs.readers.Done()
}

// refuse fails all later reads.
func (vs *views) refuse(err error) {
	vs.mu.Lock()
	if vs.refused == nil {
		vs.refused = err
	}
	vs.mu.Unlock()
}

// close refuses later reads, waits for those under way, and lets the view go.
func (vs *views) close(err error) {
	vs.refuse(err)
	vs.readers.Wait()
	vs.view.snap.release()
}

// versionLen is the length of the version before each value in Pebble.
const versionLen = 8

func appendKey(dst []byte, key string) []byte {
	return append(append(dst, userPrefix), key...)
}

// decodeValue splits what is stored for key. The value is a part of stored.
func decodeValue(key string, stored []byte) (metastore.Version, []byte, error) {
	if len(stored) < versionLen {
		return 0, nil, fmt.Errorf("%w: %q is damaged: %d bytes are too few for its version", metastore.ErrUnavailable, key, len(stored))
	}
	version := metastore.Version(binary.BigEndian.Uint64(stored))
	if version == 0 {
		return 0, nil, fmt.Errorf("%w: %q is damaged: its version is 0", metastore.ErrUnavailable, key)
	}
	return version, stored[versionLen:], nil
}

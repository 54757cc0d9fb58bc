package catalog_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
)

// manualClock is a clock whose time passes in Sleep, or by hand.
type manualClock struct {
	clock.Real
	now  time.Time
	rand uint64
}

func newManualClock() *manualClock {
	// Not at a bucket's edge, which a retry would cross.
	return &manualClock{now: time.Date(2026, 1, 1, 0, 0, 7, 0, time.UTC)}
}

func (m *manualClock) Now() time.Time { return m.now }

func (m *manualClock) Rand() uint64 {
	m.rand += 0x9e3779b97f4a7c15
	z := m.rand
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	return z ^ z>>27
}

func (m *manualClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.now = m.now.Add(max(d, 0))
	return nil
}

// fault is what a commit meets.
type fault int

const (
	noFault fault = iota
	conflict
	lostWithoutEffect
	unavailable
	lostWithEffect
	lostLate // the effect comes when the test lands it
	crashBefore
	crashAfter
	crashLate // the caller dies, and the effect comes later
)

// crash is the panic by which a caller dies.
type crash struct{}

// dies runs f and tells whether it died of a crash.
func dies(f func()) (died bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	f()
	return false
}

// faultStore is a real store that loses answers, kills callers, lands effects late and
// lets others in between two calls. It keeps a mirror of all records, so that a test
// judges the keyspace without reading through what it tests.
type faultStore struct {
	metastore.Store
	mirror map[string]mirrored
	late   []metastore.Batch

	plan      []fault                // of the next commits, in order
	draw      func() fault           // of the others; nil: no fault
	interject func(call string)      // before each call; nil: nobody
	readFails func(call string) bool // nil: never
	committed func()                 // after each effect; nil: nobody looks
	trace     *footprint             // nil: not asked for
}

// footprint is what an action reads and writes, objects included.
type footprint struct {
	calls, commits int
	reads          []metastore.Range
	writes         map[string]bool
	blind          [][]metastore.Op // of commits that change no key that they are conditional on
}

func (f *footprint) read(key string) {
	if f != nil {
		f.reads = append(f.reads, metastore.Range{Start: key, End: key + "\x00"})
	}
}

func (f *footprint) write(key string) {
	if f != nil {
		f.writes[key] = true
	}
}

// disturbs tells whether f writes what g reads or writes.
func (f *footprint) disturbs(g *footprint) bool {
	for key := range f.writes {
		if g.writes[key] || slices.ContainsFunc(g.reads, func(r metastore.Range) bool { return key >= r.Start && (r.End == "" || key < r.End) }) {
			return true
		}
	}
	return false
}

type mirrored struct {
	metastore.Record
	session metastore.SessionID
}

var errRead = fmt.Errorf("the test says so: %w", metastore.ErrUnavailable)

func (s *faultStore) enter(call string) error {
	if s.trace != nil {
		s.trace.calls++
	}
	if s.interject != nil {
		s.interject(call)
	}
	if call != "commit" && s.readFails != nil && s.readFails(call) {
		return errRead
	}
	return nil
}

func (s *faultStore) Get(ctx context.Context, keys ...string) ([]metastore.Record, error) {
	if err := s.enter("get"); err != nil {
		return nil, err
	}
	for _, key := range keys {
		s.trace.read(key)
	}
	return s.Store.Get(ctx, keys...)
}

func (s *faultStore) Scan(ctx context.Context, r metastore.Range, limit int) (metastore.Page, error) {
	if err := s.enter("scan"); err != nil {
		return metastore.Page{}, err
	}
	if s.trace != nil {
		s.trace.reads = append(s.trace.reads, r)
	}
	return s.Store.Scan(ctx, r, limit)
}

func (s *faultStore) Peek(ctx context.Context, rs []metastore.Range) ([]metastore.Record, error) {
	if err := s.enter("peek"); err != nil {
		return nil, err
	}
	if s.trace != nil {
		s.trace.reads = append(s.trace.reads, rs...)
	}
	return s.Store.Peek(ctx, rs)
}

func (s *faultStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	if err := s.enter("commit"); err != nil {
		return 0, err
	}
	if s.trace != nil {
		s.trace.commits++
	}
	for _, c := range b.Conds {
		s.trace.read(c.Key)
	}
	for _, op := range b.Ops {
		s.trace.write(op.Key)
	}
	if s.trace != nil && !slices.ContainsFunc(b.Conds, func(c metastore.Cond) bool {
		return slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return op.Key == c.Key })
	}) {
		s.trace.blind = append(s.trace.blind, b.Ops)
	}
	f := noFault
	if len(s.plan) > 0 {
		f, s.plan = s.plan[0], s.plan[1:]
	} else if s.draw != nil {
		f = s.draw()
	}
	b = metastore.Batch{Conds: slices.Clone(b.Conds), Ops: slices.Clone(b.Ops)}
	lost := fmt.Errorf("the test says so: %w", metastore.ErrUnknown)
	switch f {
	case conflict:
		return 0, fmt.Errorf("the test says so: %w", metastore.ErrConflict)
	case lostWithoutEffect:
		return 0, lost
	case unavailable:
		return 0, fmt.Errorf("the test says so: %w", metastore.ErrUnavailable)
	case lostWithEffect:
		_, _ = s.apply(ctx, b)
		return 0, lost
	case lostLate:
		s.late = append(s.late, b)
		return 0, lost
	case crashBefore:
		panic(crash{})
	case crashAfter:
		_, _ = s.apply(ctx, b)
		panic(crash{})
	case crashLate:
		s.late = append(s.late, b)
		panic(crash{})
	}
	return s.apply(ctx, b)
}

func (s *faultStore) apply(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	v, err := s.Store.Commit(ctx, b)
	if err != nil {
		return v, err
	}
	for _, op := range b.Ops {
		if op.Delete {
			delete(s.mirror, op.Key)
		} else {
			s.mirror[op.Key] = mirrored{metastore.Record{Key: op.Key, Value: op.Value, Version: v}, op.Session}
		}
	}
	if s.committed != nil {
		s.committed()
	}
	return v, nil
}

// land makes the late effect of that index happen, if its conditions hold now.
func (s *faultStore) land(i int) bool {
	b := s.late[i]
	s.late = slices.Delete(s.late, i, i+1)
	_, err := s.apply(context.Background(), b)
	return err == nil
}

// landAll lands all late effects, the earliest first, and tells how many had one.
func (s *faultStore) landAll() (landed int) {
	for len(s.late) > 0 {
		if s.land(0) {
			landed++
		}
	}
	return landed
}

// end closes a session, as its expiry would.
func (s *faultStore) end(session metastore.Session) {
	if err := session.Close(context.Background()); err != nil {
		panic(err)
	}
	for key, r := range s.mirror {
		if r.session == session.ID() {
			delete(s.mirror, key)
		}
	}
	if s.committed != nil {
		s.committed()
	}
}

// keys returns the mirror's keys that begin with prefix, in order.
func (s *faultStore) keys(prefix string) []string {
	var out []string
	for key := range s.mirror {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// openStore opens a real store in memory, behind the faults.
func openStore(t interface{ Cleanup(func()) }, maxOps int) *faultStore {
	inner, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem(), MaxOps: maxOps, CacheBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			panic(err)
		}
	})
	return &faultStore{Store: inner, mirror: make(map[string]mirrored)}
}

// testTiming is a shared store's, so that there are deadlines to keep.
func testTiming() catalog.Timing { return catalog.DefaultTiming(false) }

// setup is a catalog on a fresh store, for tests of single transitions.
type setup struct {
	*testing.T
	*require.Assertions
	store    *faultStore
	clk      *manualClock
	cat      *catalog.Catalog
	branches map[string]int
	world    *world
}

func newSetup(t *testing.T, maxOps int) *setup {
	s := &setup{T: t, Assertions: require.New(t), store: openStore(t, maxOps), clk: newManualClock(), branches: make(map[string]int)}
	s.cat = catalog.New(s.store, s.clk, testTiming(), func(name string) { s.branches[name]++ })
	s.world = newWorld(s.store, s.clk, s.cat, func(format string, args ...any) { t.Fatalf(format, args...) })
	return s
}

// during runs f once, right before the n-th next call of that kind (0: the next).
func (s *setup) during(call string, n int, f func()) {
	s.store.interject = func(c string) {
		if c != call {
			return
		}
		if n > 0 {
			n--
			return
		}
		s.store.interject = nil
		f()
	}
}

func (s *setup) version(key string) metastore.Version { return s.store.mirror[key].Version }

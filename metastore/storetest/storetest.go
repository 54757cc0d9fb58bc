// Package storetest is the conformance suite of metastore.Store. Every
// implementation, simulated ones included, runs it: what the suite demands is what
// the packages above rely on.
//
// Calls to the store are made only inside Harness.Do and Harness.Parallel, and
// nothing is asserted in there, so that a store whose calls must run as tasks of a
// scheduler can run the suite too.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/metastore"
)

// UnknownMode says what becomes of a commit that is answered with ErrUnknown.
type UnknownMode uint8

const (
	// UnknownNoEffect: it never happens.
	UnknownNoEffect UnknownMode = iota
	// UnknownEffect: it happened before the answer.
	UnknownEffect
	// UnknownLateEffect: the effect is on its way when the answer arrives. It happens
	// later, if its conditions hold then: not before Harness.LandLate, where that is set.
	UnknownLateEffect
)

func (m UnknownMode) String() string {
	switch m {
	case UnknownNoEffect:
		return "NoEffect"
	case UnknownEffect:
		return "Effect"
	default:
		return "LateEffect"
	}
}

// Harness is what the suite needs from an implementation. A nil optional field
// leaves out the tests that need it.
type Harness struct {
	// Open returns a fresh, empty store, cleaned up at the end of t.
	Open func(t *testing.T) metastore.Store

	// Do runs f where the store may be called, and returns when f did.
	Do func(t *testing.T, store metastore.Store, f func(ctx context.Context))

	// Parallel (optional) runs f(ctx, 0) … f(ctx, n-1) concurrently, and returns when all did.
	Parallel func(t *testing.T, store metastore.Store, n int, f func(ctx context.Context, i int))

	// Reopen (optional) crashes the store, which may lose whatever was not
	// durable, and returns it as it is found afterwards. The old one is not used again.
	Reopen func(t *testing.T, store metastore.Store) metastore.Store

	// ExpireSession (optional) makes a session end as if it had not been kept alive.
	ExpireSession func(t *testing.T, store metastore.Store, session metastore.Session)

	// InjectUnknown (optional) makes the next commit answer ErrUnknown.
	InjectUnknown func(store metastore.Store, mode UnknownMode)

	// LandLate (optional) makes every late effect that is still on its way happen, if its
	// conditions hold now.
	LandLate func(t *testing.T, store metastore.Store)

	// SmallLimits (optional) returns a fresh store with MaxOps 8.
	SmallLimits func(t *testing.T) metastore.Store
}

// Run runs the whole suite, each test on a fresh store.
func Run(t *testing.T, h Harness) {
	for _, test := range []struct {
		name string
		runs bool
		run  func(t *testing.T, h Harness)
	}{
		{"Get", true, testGet},
		{"Scan", true, testScan},
		{"ScanKeyOrder", true, testScanKeyOrder},
		{"Peek", true, testPeek},
		{"Conditions", true, testConditions},
		{"ConflictLeavesNothing", true, testConflictLeavesNothing},
		{"ConditionsOnly", true, testConditionsOnly},
		{"DuplicateKey", true, testDuplicateKey},
		{"Revisions", true, testRevisions},
		{"Values", true, testValues},
		{"TooManyBytes", true, testTooManyBytes},
		{"Limits", true, func(t *testing.T, h Harness) { testLimits(t, h, h.Open(t)) }},
		{"SmallLimits", h.SmallLimits != nil, func(t *testing.T, h Harness) {
			s := h.SmallLimits(t)
			require.Equal(t, 8, s.Limits().MaxOps)
			testLimits(t, h, s)
		}},
		{"EndedContext", true, testEndedContext},
		{"SessionKeys", true, testSessionKeys},
		{"SessionClose", true, testSessionClose},
		{"SessionRebind", true, testSessionRebind},
		{"SessionGone", true, testSessionGone},
		{"SessionIDs", true, testSessionIDs},
		{"SessionExpiry", h.ExpireSession != nil, testSessionExpiry},
		{"Reopen", h.Reopen != nil, testReopen},
		{"ReopenSessions", h.Reopen != nil, testReopenSessions},
		{"UnknownNoEffect", h.InjectUnknown != nil, testUnknownNoEffect},
		{"UnknownEffect", h.InjectUnknown != nil, testUnknownEffect},
		{"UnknownLateEffect", h.InjectUnknown != nil, testUnknownLateEffect},
		{"UnknownLateUnconditional", h.InjectUnknown != nil && h.LandLate != nil, testUnknownLateUnconditional},
		{"ParallelIncrements", h.Parallel != nil, testParallelIncrements},
		{"ParallelReads", h.Parallel != nil, testParallelReads},
		{"ParallelSessions", h.Parallel != nil, testParallelSessions},
		{"Model", true, testModel},
	} {
		if test.runs {
			t.Run(test.name, func(t *testing.T) { test.run(t, h) })
		}
	}
}

// env is one store under test. Its methods make one call each, inside Harness.Do.
type env struct {
	t *testing.T
	h Harness
	s metastore.Store
	// require fails the test: t, or the property that is being checked.
	require *require.Assertions
}

func newEnv(t *testing.T, h Harness, s metastore.Store) *env {
	return &env{t: t, h: h, s: s, require: require.New(t)}
}

func (e *env) do(f func(ctx context.Context)) { e.h.Do(e.t, e.s, f) }

func (e *env) commit(b metastore.Batch) (v metastore.Version, err error) {
	e.do(func(ctx context.Context) { v, err = e.s.Commit(ctx, b) })
	return v, err
}

func (e *env) mustCommit(b metastore.Batch) metastore.Version {
	v, err := e.commit(b)
	e.require.NoError(err)
	return v
}

// write commits operations without conditions.
func (e *env) write(ops ...metastore.Op) metastore.Version {
	return e.mustCommit(metastore.Batch{Ops: ops})
}

func (e *env) get(keys ...string) []metastore.Record {
	var recs []metastore.Record
	var err error
	e.do(func(ctx context.Context) { recs, err = e.s.Get(ctx, keys...) })
	e.require.NoError(err)
	e.require.Len(recs, len(keys))
	for i, key := range keys {
		e.require.Equal(key, recs[i].Key)
		if !recs[i].Exists() {
			e.require.Empty(recs[i].Value, "an absent key has no value")
		}
	}
	return recs
}

func (e *env) scan(r metastore.Range, limit int) metastore.Page {
	var page metastore.Page
	var err error
	e.do(func(ctx context.Context) { page, err = e.s.Scan(ctx, r, limit) })
	e.require.NoError(err)
	e.require.LessOrEqual(len(page.Records), limit)
	return page
}

func (e *env) peek(rs ...metastore.Range) []metastore.Record {
	var recs []metastore.Record
	var err error
	e.do(func(ctx context.Context) { recs, err = e.s.Peek(ctx, rs) })
	e.require.NoError(err)
	e.require.Len(recs, len(rs))
	return recs
}

func (e *env) openSession() metastore.Session {
	var sess metastore.Session
	var err error
	e.do(func(ctx context.Context) { sess, err = e.s.OpenSession(ctx, time.Hour) })
	e.require.NoError(err)
	e.require.NotZero(sess.ID())
	e.require.GreaterOrEqual(sess.TTL(), time.Hour, "a store may grant more, not less")
	return sess
}

func (e *env) keepAlive(sess metastore.Session) (err error) {
	e.do(func(ctx context.Context) { err = sess.KeepAlive(ctx) })
	return err
}

func (e *env) closeSession(sess metastore.Session) {
	var err error
	e.do(func(ctx context.Context) { err = sess.Close(ctx) })
	e.require.NoError(err)
}

// requireAbsent demands that no read shows any of the keys.
func (e *env) requireAbsent(keys ...string) {
	for i, rec := range e.get(keys...) {
		e.require.False(rec.Exists(), "Get shows %q", keys[i])
		only := metastore.Range{Start: keys[i], End: keys[i] + "\x00"}
		e.require.Empty(e.scan(only, 1).Records, "Scan shows %q", keys[i])
		e.require.Zero(e.peek(only)[0].Version, "Peek shows %q", keys[i])
	}
}

// requireRecord demands that every kind of read shows the record.
func (e *env) requireRecord(key, value string, v metastore.Version) {
	want := metastore.Record{Key: key, Value: []byte(value), Version: v}
	only := metastore.Range{Start: key, End: key + "\x00"}
	e.require.Equal(want, e.get(key)[0])
	e.require.Equal(metastore.Page{Records: []metastore.Record{want}}, e.scan(only, 1))
	e.require.Equal(want, e.peek(only)[0])
}

// keysOf returns the keys of records.
func keysOf(recs []metastore.Record) []string {
	keys := make([]string, len(recs))
	for i, rec := range recs {
		keys[i] = rec.Key
	}
	return keys
}

func conds(cs ...metastore.Cond) []metastore.Cond { return cs }

func ops(os ...metastore.Op) []metastore.Op { return os }

func put(key, value string) metastore.Op { return metastore.Put(key, []byte(value)) }

func putUnder(sess metastore.Session, key, value string) metastore.Op {
	return metastore.PutUnder(sess.ID(), key, []byte(value))
}

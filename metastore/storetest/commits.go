package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nova-store/nova/metastore"
)

func testConditions(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	old := e.write(put("durable", "0"), putUnder(sess, "session", "0"), put("deleted", "0"))
	now := e.write(put("durable", "1"), putUnder(sess, "session", "1"), metastore.Delete("deleted"))

	n := 0
	check := func(holds bool, cs ...metastore.Cond) {
		t.Helper()
		n++
		probe := fmt.Sprintf("probe/%d", n)
		_, err := e.commit(metastore.Batch{Conds: cs, Ops: ops(put(probe, "x"))})
		if holds {
			e.require.NoError(err, "%+v", cs)
			e.require.True(e.get(probe)[0].Exists())
			return
		}
		e.require.ErrorIs(err, metastore.ErrConflict, "%+v", cs)
		e.requireAbsent(probe)
	}
	for _, key := range []string{"durable", "session"} {
		check(true, metastore.Exists(key))
		check(false, metastore.Absent(key))
		check(true, metastore.At(key, now))
		check(false, metastore.At(key, old))
		check(false, metastore.At(key, now+1000))
		check(false, metastore.At(key, 0))
	}
	for _, key := range []string{"deleted", "never", "durabl", "durable\x00"} {
		check(false, metastore.Exists(key))
		check(true, metastore.Absent(key))
		check(false, metastore.At(key, now))
		check(false, metastore.At(key, old))
		check(true, metastore.At(key, 0))
	}

	// All must hold; a key may appear in several.
	check(true, metastore.At("durable", now), metastore.Exists("durable"), metastore.Absent("deleted"), metastore.At("session", now))
	check(false, metastore.At("durable", now), metastore.Exists("durable"), metastore.Absent("durable"))
	check(false, metastore.Absent("durable"), metastore.At("session", now))

	// Conditions are judged before the operations.
	_, err := e.commit(metastore.Batch{Conds: conds(metastore.Absent("new")), Ops: ops(put("new", "1"))})
	e.require.NoError(err)
	_, err = e.commit(metastore.Batch{Conds: conds(metastore.Absent("new")), Ops: ops(metastore.Delete("new"))})
	e.require.ErrorIs(err, metastore.ErrConflict)
	_, err = e.commit(metastore.Batch{Conds: conds(metastore.Exists("new")), Ops: ops(metastore.Delete("new"))})
	e.require.NoError(err)
	e.requireAbsent("new")
}

func testConflictLeavesNothing(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	v := e.write(put("a", "1"), putUnder(sess, "s", "1"))
	_, err := e.commit(metastore.Batch{
		Conds: conds(metastore.At("a", v), metastore.Exists("missing")),
		Ops: ops(put("a", "2"), put("b", "2"), metastore.Delete("s"), putUnder(sess, "t", "2"),
			putUnder(sess, "u", "2")),
	})
	e.require.ErrorIs(err, metastore.ErrConflict)
	e.requireRecord("a", "1", v)
	e.requireRecord("s", "1", v)
	e.requireAbsent("b", "t", "u")
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 2)
	e.closeSession(sess)
	e.requireRecord("a", "1", v)
}

func testConditionsOnly(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	v := e.write(put("a", "1"))
	_, err := e.commit(metastore.Batch{Conds: conds(metastore.At("a", v), metastore.Absent("b"))})
	e.require.NoError(err)
	_, err = e.commit(metastore.Batch{Conds: conds(metastore.At("a", v), metastore.Exists("b"))})
	e.require.ErrorIs(err, metastore.ErrConflict)
	_, err = e.commit(metastore.Batch{})
	e.require.NoError(err, "nothing demanded, nothing done")
	e.requireRecord("a", "1", v)
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)
}

func testDuplicateKey(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	v := e.write(put("a", "1"))
	for _, dup := range [][]metastore.Op{
		ops(put("b", "2"), put("a", "2"), put("a", "2")),
		ops(put("b", "2"), put("a", "2"), metastore.Delete("a")),
		ops(metastore.Delete("a"), put("b", "2"), metastore.Delete("a")),
		ops(putUnder(sess, "b", "2"), put("a", "2"), putUnder(sess, "b", "3")),
		ops(put("", "2"), put("b", "2"), put("c", "2"), put("d", "2"), put("e", "2"), put("f", "2"), put("g", "2"), put("b", "2")),
	} {
		_, err := e.commit(metastore.Batch{Ops: dup})
		e.require.ErrorIs(err, metastore.ErrDuplicateKey)
	}
	e.requireRecord("a", "1", v)
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)

	// A key among both conditions and operations, or in several conditions, is no duplicate.
	e.mustCommit(metastore.Batch{Conds: conds(metastore.At("a", v), metastore.Exists("a")), Ops: ops(put("a", "2"))})
}

// testRevisions: each writing commit has a larger revision than all before, which
// is the version of every key it wrote; a version never comes back.
func testRevisions(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	last := metastore.Version(0)
	next := func(os ...metastore.Op) metastore.Version {
		t.Helper()
		v := e.write(os...)
		e.require.Greater(v, last)
		last = v
		return v
	}
	first := next(put("a", "same"))
	second := next(put("a", "same"))
	e.requireRecord("a", "same", second)
	next(metastore.Delete("a"))
	third := next(put("a", "same"))
	e.requireRecord("a", "same", third)
	_, err := e.commit(metastore.Batch{Conds: conds(metastore.At("a", first)), Ops: ops(metastore.Delete("a"))})
	e.require.ErrorIs(err, metastore.ErrConflict)
	_, err = e.commit(metastore.Batch{Conds: conds(metastore.At("a", second)), Ops: ops(metastore.Delete("a"))})
	e.require.ErrorIs(err, metastore.ErrConflict)

	shared := next(put("b", "1"), put("c", "2"), putUnder(sess, "d", "3"), metastore.Delete("a"))
	for _, rec := range e.get("b", "c", "d") {
		e.require.Equal(shared, rec.Version, "the revision is store-wide, not a key's own")
	}
	e.requireAbsent("a")

	// Deleting what is absent is fine, and a commit that does no more than that may be given no revision of its own.
	e.require.GreaterOrEqual(e.write(metastore.Delete("never")), last)

	// Keys that only sessions hold count on.
	next(putUnder(sess, "d", "4"))
	next(metastore.Delete("d"))
	next(putUnder(sess, "d", "5"))
	next(put("d", "6"))
	e.requireRecord("d", "6", last)
	e.requireRecord("b", "1", shared)
}

// testLimits: exactly as much as Limits allow is accepted, and one more is not.
func testLimits(t *testing.T, h Harness, s metastore.Store) {
	e := newEnv(t, h, s)
	limits := s.Limits()
	e.require.Greater(limits.MaxOps, 0)
	e.require.Greater(limits.MaxBytes, 0)
	e.require.Equal(limits, s.Limits())

	v := e.write(put("a", "1"))
	var batch metastore.Batch
	var keys []string
	var ranges []metastore.Range
	for i := range limits.MaxOps + 1 {
		key := fmt.Sprintf("k/%06d", i)
		keys = append(keys, key)
		ranges = append(ranges, metastore.Prefix(key))
		batch.Conds = append(batch.Conds, metastore.At("a", v))
		batch.Ops = append(batch.Ops, put(key, "x"))
	}
	full := metastore.Batch{Conds: batch.Conds[:limits.MaxOps], Ops: batch.Ops[:limits.MaxOps]}

	_, err := e.commit(metastore.Batch{Ops: batch.Ops})
	e.require.ErrorIs(err, metastore.ErrTooLarge)
	_, err = e.commit(metastore.Batch{Conds: batch.Conds, Ops: ops(put("b", "1"))})
	e.require.ErrorIs(err, metastore.ErrTooLarge)
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)

	rev := e.mustCommit(full)
	for _, rec := range e.get(keys[:limits.MaxOps]...) {
		e.require.Equal(rev, rec.Version)
	}
	for i, rec := range e.peek(ranges[:limits.MaxOps]...) {
		e.require.Equal(keys[i], rec.Key)
	}
	for i := range full.Ops {
		full.Ops[i] = metastore.Delete(full.Ops[i].Key)
	}
	e.mustCommit(full)
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)
}

func testTooManyBytes(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	limit := e.s.Limits().MaxBytes
	value := strings.Repeat("v", limit)
	_, err := e.commit(metastore.Batch{Ops: ops(put("k", value))})
	e.require.ErrorIs(err, metastore.ErrTooLarge, "the key counts too")
	_, err = e.commit(metastore.Batch{Ops: ops(put("k", value[:limit/2]), put("l", value[:limit-limit/2]))})
	e.require.ErrorIs(err, metastore.ErrTooLarge, "all values count together")
	e.require.Empty(e.scan(metastore.Range{}, 10).Records)

	v := e.write(put("k", value[:limit-1]))
	rec := e.get("k")[0]
	e.require.Equal(v, rec.Version)
	e.require.True(string(rec.Value) == value[:limit-1])
}

// testEndedContext: a context that had ended before the call means that nothing happened.
func testEndedContext(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	v := e.write(put("a", "1"))
	errs := make([]error, 5)
	e.do(func(ctx context.Context) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, errs[0] = e.s.Commit(ended, metastore.Batch{Ops: ops(put("a", "2"))})
		_, errs[1] = e.s.Get(ended, "a")
		_, errs[2] = e.s.Scan(ended, metastore.Range{}, 1)
		_, errs[3] = e.s.Peek(ended, []metastore.Range{{}})
		_, errs[4] = e.s.OpenSession(ended, time.Hour)
	})
	for i, err := range errs {
		e.require.ErrorIs(err, context.Canceled, "call %d", i)
	}
	e.requireRecord("a", "1", v)
}

package storetest

import (
	"context"
	"testing"

	"github.com/nova-store/nova/metastore"
)

// testSessionKeys: a key put under a session is a key like any other.
func testSessionKeys(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	v := e.write(putUnder(sess, "s", "1"), put("d", "1"))
	e.requireRecord("s", "1", v)
	e.requireRecord("d", "1", v)
	e.require.Equal([]string{"d", "s"}, keysOf(e.scan(metastore.Range{}, 10).Records))
	e.require.NoError(e.keepAlive(sess))

	v = e.mustCommit(metastore.Batch{Conds: conds(metastore.At("s", v)), Ops: ops(putUnder(sess, "s", "2"))})
	e.requireRecord("s", "2", v)
	e.mustCommit(metastore.Batch{Conds: conds(metastore.At("s", v)), Ops: ops(metastore.Delete("s"))})
	e.requireAbsent("s")
	v = e.mustCommit(metastore.Batch{Conds: conds(metastore.Absent("s")), Ops: ops(putUnder(sess, "s", "3"))})
	e.requireRecord("s", "3", v)
}

func testSessionClose(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess, other := e.openSession(), e.openSession()
	e.write(put("d", "0"))
	v := e.write(putUnder(sess, "s/1", "1"), putUnder(sess, "d", "1"), putUnder(other, "o", "1"), put("e", "1"))
	v2 := e.write(putUnder(sess, "s/2", "2"))
	e.require.Greater(v2, v)

	e.closeSession(sess)
	e.requireAbsent("s/1", "s/2", "d")
	e.require.Equal([]string{"e", "o"}, keysOf(e.scan(metastore.Range{}, 10).Records))
	e.requireRecord("o", "1", v)
	e.requireRecord("e", "1", v)
	e.require.Zero(e.peek(metastore.Prefix("s/"))[0].Version)

	// For conditions they are absent too, and their versions are never seen again.
	_, err := e.commit(metastore.Batch{Conds: conds(metastore.At("s/1", v)), Ops: ops(put("p", "x"))})
	e.require.ErrorIs(err, metastore.ErrConflict)
	_, err = e.commit(metastore.Batch{Conds: conds(metastore.Exists("d")), Ops: ops(put("p", "x"))})
	e.require.ErrorIs(err, metastore.ErrConflict)
	v3 := e.mustCommit(metastore.Batch{
		Conds: conds(metastore.Absent("s/1"), metastore.Absent("s/2"), metastore.Absent("d")),
		Ops:   ops(put("s/1", "3")),
	})
	e.require.Greater(v3, v2)
	e.requireRecord("s/1", "3", v3)

	// Closing it again is fine, and changes nothing, not even keys of the same name.
	e.closeSession(sess)
	e.requireRecord("s/1", "3", v3)
	e.require.NoError(e.keepAlive(other))
}

// testSessionRebind: the last put of a key decides which session's end removes it.
func testSessionRebind(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	a, b := e.openSession(), e.openSession()
	e.write(putUnder(a, "to-b", "1"), putUnder(a, "to-none", "1"), putUnder(a, "deleted", "1"), putUnder(a, "stays", "1"), put("to-a", "1"))
	v := e.write(putUnder(b, "to-b", "2"), put("to-none", "2"), metastore.Delete("deleted"), putUnder(a, "to-a", "2"))
	e.requireRecord("to-a", "2", v)
	v2 := e.write(put("deleted", "2"))

	e.closeSession(a)
	e.requireAbsent("stays", "to-a")
	e.requireRecord("to-b", "2", v)
	e.requireRecord("to-none", "2", v)
	e.requireRecord("deleted", "2", v2)

	e.closeSession(b)
	e.requireAbsent("to-b")
	e.requireRecord("to-none", "2", v)
	e.require.Equal([]string{"deleted", "to-none"}, keysOf(e.scan(metastore.Range{}, 10).Records))

	// To and fro, many times.
	c := e.openSession()
	var last metastore.Version
	for range 5 {
		last = e.write(putUnder(c, "fro", "session"))
		e.requireRecord("fro", "session", last)
		last = e.write(put("fro", "durable"))
		e.requireRecord("fro", "durable", last)
	}
	e.closeSession(c)
	e.requireRecord("fro", "durable", last)
}

func testSessionGone(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess := e.openSession()
	v := e.write(put("a", "1"))
	e.require.NoError(e.keepAlive(sess))
	e.closeSession(sess)
	e.requireGone(sess)

	never := metastore.SessionID(1<<62 + 12345)
	_, err := e.commit(metastore.Batch{Ops: ops(put("b", "2"), metastore.PutUnder(never, "c", nil))})
	e.require.ErrorIs(err, metastore.ErrSessionGone)
	e.requireRecord("a", "1", v)
	e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)
}

// requireGone demands that nothing can be put under the session any more, and
// that a commit which tries has no effect at all.
func (e *env) requireGone(sess metastore.Session) {
	e.require.ErrorIs(e.keepAlive(sess), metastore.ErrSessionGone)
	before := e.scan(metastore.Range{}, 100)
	os := ops(put("gone/durable", "2"), putUnder(sess, "gone/session", "2"))
	for _, rec := range before.Records {
		os = append(os, metastore.Delete(rec.Key))
	}
	_, err := e.commit(metastore.Batch{Ops: os})
	e.require.ErrorIs(err, metastore.ErrSessionGone)
	e.require.Equal(before, e.scan(metastore.Range{}, 100))
}

func testSessionIDs(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	seen := make(map[metastore.SessionID]bool)
	for i := range 20 {
		sess := e.openSession()
		e.require.NotZero(sess.ID())
		e.require.False(seen[sess.ID()], "id %d given twice", sess.ID())
		seen[sess.ID()] = true
		if i%2 == 0 {
			e.closeSession(sess)
		}
		if i%5 == 4 && h.Reopen != nil {
			e.s = h.Reopen(t, e.s)
		}
	}
}

func testSessionExpiry(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	sess, other := e.openSession(), e.openSession()
	v := e.write(putUnder(sess, "s", "1"), putUnder(sess, "rebound", "1"), putUnder(sess, "kept", "1"), putUnder(other, "o", "1"), put("d", "1"))
	v2 := e.write(putUnder(other, "rebound", "2"), put("kept", "2"))
	h.ExpireSession(t, e.s, sess)
	e.requireAbsent("s")
	e.requireRecord("o", "1", v)
	e.requireRecord("d", "1", v)
	e.requireRecord("rebound", "2", v2)
	e.requireRecord("kept", "2", v2)
	e.requireGone(sess)
	e.closeSession(sess)

	e.require.NoError(e.keepAlive(other))
	again := e.openSession()
	e.require.NotEqual(sess.ID(), again.ID())
	v3 := e.mustCommit(metastore.Batch{Conds: conds(metastore.Absent("s")), Ops: ops(putUnder(again, "s", "3"))})
	e.require.Greater(v3, v2)
	e.requireRecord("s", "3", v3)
}

// testParallelSessions: a put under a session that is closed at the same time
// either came first and vanishes, or is refused. Nothing of it ever stays.
func testParallelSessions(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	for range 10 {
		sess := e.openSession()
		errs := make([]error, 5)
		h.Parallel(t, e.s, len(errs), func(ctx context.Context, i int) {
			if i == 2 {
				errs[i] = sess.Close(ctx)
				return
			}
			key := string(rune('a' + i))
			_, errs[i] = e.s.Commit(ctx, metastore.Batch{Ops: ops(putUnder(sess, key, "x"))})
		})
		for i, err := range errs {
			if i == 2 {
				e.require.NoError(err)
			} else if err != nil {
				e.require.ErrorIs(err, metastore.ErrSessionGone)
			}
		}
		e.require.Empty(e.scan(metastore.Range{}, 10).Records)
	}
}

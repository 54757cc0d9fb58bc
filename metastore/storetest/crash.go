package storetest

import (
	"fmt"
	"testing"

	"github.com/nova-store/nova/metastore"
)

// testReopen: whatever was answered or read is there after a crash, and revisions go on above.
func testReopen(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	var last metastore.Version
	want := make(map[string]metastore.Record)
	for round := range 5 {
		for i := range 10 {
			key, value := fmt.Sprintf("k/%d", i), fmt.Sprintf("%d in round %d", i, round)
			if i == round {
				v := e.write(metastore.Delete(key))
				e.require.Greater(v, last)
				last = v
				delete(want, key)
				continue
			}
			v := e.write(put(key, value))
			e.require.Greater(v, last)
			last = v
			want[key] = metastore.Record{Key: key, Value: []byte(value), Version: v}
		}
		e.s = h.Reopen(t, e.s)
		page := e.scan(metastore.Range{}, 100)
		e.require.Len(page.Records, len(want))
		for _, rec := range page.Records {
			e.require.Equal(want[rec.Key], rec)
			e.mustCommit(metastore.Batch{Conds: conds(metastore.At(rec.Key, rec.Version))})
		}
	}
}

// testReopenSessions: a crash ends all sessions, their keys vanish, and neither
// their versions nor their ids are ever given again.
func testReopenSessions(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	var last metastore.Version
	var old []metastore.Session
	for range 5 {
		sess := e.openSession()
		for _, earlier := range old {
			e.require.NotEqual(earlier.ID(), sess.ID())
			_, err := e.commit(metastore.Batch{Ops: ops(metastore.PutUnder(earlier.ID(), "s", nil), put("x", "1"))})
			e.require.ErrorIs(err, metastore.ErrSessionGone)
		}
		e.requireAbsent("x", "s")
		old = append(old, sess)

		durable := e.write(put("d", "1"), put("rebound", "1"), putUnder(sess, "s", "0"))
		e.require.Greater(durable, last)
		// The newest commits touch nothing but session keys.
		last = durable
		for range 5 {
			v := e.mustCommit(metastore.Batch{Conds: conds(metastore.Exists("s")), Ops: ops(putUnder(sess, "s", "1"), putUnder(sess, "rebound", "2"))})
			e.require.Greater(v, last)
			last = v
		}
		e.s = h.Reopen(t, e.s)
		e.requireAbsent("s", "rebound")
		e.requireRecord("d", "1", durable)
		e.require.Len(e.scan(metastore.Range{}, 10).Records, 1)
	}
}

// An unknown commit that changes a key it is conditional on is settled by
// repeating it until the answer is definite.

func testUnknownNoEffect(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	v := e.write(put("a", "0"))
	b := metastore.Batch{Conds: conds(metastore.At("a", v)), Ops: ops(put("a", "1"), put("b", "1"))}
	h.InjectUnknown(e.s, UnknownNoEffect)
	_, err := e.commit(b)
	e.require.ErrorIs(err, metastore.ErrUnknown)
	e.requireRecord("a", "0", v)
	v2 := e.mustCommit(b)
	e.requireRecord("a", "1", v2)
	e.requireRecord("b", "1", v2)
}

func testUnknownEffect(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	v := e.write(put("a", "0"))
	b := metastore.Batch{Conds: conds(metastore.At("a", v)), Ops: ops(put("a", "1"), put("b", "1"))}
	h.InjectUnknown(e.s, UnknownEffect)
	_, err := e.commit(b)
	e.require.ErrorIs(err, metastore.ErrUnknown)
	_, err = e.commit(b)
	e.require.ErrorIs(err, metastore.ErrConflict, "its twin happened")
	got := e.get("a", "b")
	e.require.Equal("1", string(got[0].Value))
	e.require.Equal(got[0].Version, got[1].Version)
	e.require.Greater(got[0].Version, v)
}

func testUnknownLateEffect(t *testing.T, h Harness) {
	// Repeated before the twin lands: whoever is first, it happens exactly once.
	e := newEnv(t, h, h.Open(t))
	v := e.write(put("a", "0"))
	b := metastore.Batch{Conds: conds(metastore.At("a", v)), Ops: ops(put("a", "1"), put("b", "1"))}
	h.InjectUnknown(e.s, UnknownLateEffect)
	_, err := e.commit(b)
	e.require.ErrorIs(err, metastore.ErrUnknown)
	v2, err := e.commit(b)
	if err != nil {
		e.require.ErrorIs(err, metastore.ErrConflict)
		v2 = e.get("a")[0].Version
	}
	v3 := e.write(put("b", "mine"))
	e.landLate()
	e.requireRecord("a", "1", v2)
	e.requireRecord("b", "mine", v3)

	if h.LandLate == nil {
		return
	}
	// Not repeated: it lands after reads that showed it absent.
	b.Conds = conds(metastore.At("a", v2))
	b.Ops = ops(put("a", "2"))
	h.InjectUnknown(e.s, UnknownLateEffect)
	_, err = e.commit(b)
	e.require.ErrorIs(err, metastore.ErrUnknown)
	e.requireRecord("a", "1", v2)
	e.landLate()
	got := e.get("a")[0]
	e.require.Equal("2", string(got.Value))
	e.require.Greater(got.Version, v3)
}

// testUnknownLateUnconditional: without a condition on what it changes, a late
// commit lands over what was written since, which no one may take for settled.
func testUnknownLateUnconditional(t *testing.T, h Harness) {
	e := newEnv(t, h, h.Open(t))
	h.InjectUnknown(e.s, UnknownLateEffect)
	_, err := e.commit(metastore.Batch{Ops: ops(put("a", "late"))})
	e.require.ErrorIs(err, metastore.ErrUnknown)
	e.requireAbsent("a")
	v := e.write(put("a", "mine"))
	e.requireRecord("a", "mine", v)
	e.landLate()
	got := e.get("a")[0]
	e.require.Equal("late", string(got.Value))
	e.require.Greater(got.Version, v)
}

func (e *env) landLate() {
	if e.h.LandLate != nil {
		e.h.LandLate(e.t, e.s)
	}
}

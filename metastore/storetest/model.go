package storetest

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/metastore"
)

// model is the reference: a map, and who holds what.
type model struct {
	recs map[string]modelRecord
	open map[metastore.SessionID]metastore.Session
	last metastore.Version
}

type modelRecord struct {
	metastore.Record
	session metastore.SessionID
}

// errs returns the errors that the batch may be answered with; none: it must succeed.
func (m *model) errs(b metastore.Batch) (errs []error) {
	for _, c := range b.Conds {
		rec, exists := m.recs[c.Key]
		holds := exists
		switch c.Kind {
		case metastore.CondVersion:
			holds = exists && rec.Version == c.Version
		case metastore.CondAbsent:
			holds = !exists
		}
		if !holds {
			errs = append(errs, metastore.ErrConflict)
			break
		}
	}
	seen := make(map[string]bool)
	for _, op := range b.Ops {
		if seen[op.Key] {
			errs = append(errs, metastore.ErrDuplicateKey)
		}
		seen[op.Key] = true
		if _, open := m.open[op.Session]; op.Session != 0 && !open {
			errs = append(errs, metastore.ErrSessionGone)
		}
	}
	return errs
}

// writes tells whether the batch changes anything.
func (m *model) writes(b metastore.Batch) bool {
	return slices.ContainsFunc(b.Ops, func(op metastore.Op) bool {
		_, exists := m.recs[op.Key]
		return !op.Delete || exists
	})
}

func (m *model) apply(b metastore.Batch, v metastore.Version) {
	for _, op := range b.Ops {
		if op.Delete {
			delete(m.recs, op.Key)
			continue
		}
		m.recs[op.Key] = modelRecord{metastore.Record{Key: op.Key, Value: op.Value, Version: v}, op.Session}
	}
}

func (m *model) end(id metastore.SessionID) {
	delete(m.open, id)
	maps.DeleteFunc(m.recs, func(_ string, rec modelRecord) bool { return rec.session == id })
}

func (m *model) scan(r metastore.Range, limit int) metastore.Page {
	var page metastore.Page
	for _, key := range slices.Sorted(maps.Keys(m.recs)) {
		if key < r.Start || r.End != "" && key >= r.End {
			continue
		}
		if len(page.Records) == limit {
			page.More = true
			break
		}
		page.Records = append(page.Records, m.recs[key].Record)
	}
	return page
}

// modelKeys are few, so that batches meet, and next to each other in order.
var modelKeys = []string{"a", "a\x00", "a/", "a/0", "a/1", "a0", "b", "b/\xff", "b/\xff\xff", "b0", "\xff", "\xff\xff"}

func drawRange() *rapid.Generator[metastore.Range] {
	bound := rapid.SampledFrom(append([]string{""}, modelKeys...))
	return rapid.Custom(func(t *rapid.T) metastore.Range {
		return metastore.Range{Start: bound.Draw(t, "start"), End: bound.Draw(t, "end")}
	})
}

// testModel runs random operations against the store and the model, and
// demands the same answers.
func testModel(t *testing.T, h Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newEnv(t, h, h.Open(t))
		e.require = require.New(rt)
		m := &model{recs: make(map[string]modelRecord), open: make(map[metastore.SessionID]metastore.Session)}
		var gone []metastore.Session
		key := rapid.SampledFrom(modelKeys)

		drawOpen := func(rt *rapid.T) metastore.Session {
			if len(m.open) == 0 {
				rt.Skip("no open session")
			}
			return m.open[rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(rt, "session")]
		}
		sameRecords := func(want, got []metastore.Record) {
			e.require.Equal(keysOf(want), keysOf(got))
			for i := range want {
				e.require.Equal(want[i].Version, got[i].Version, "%q", want[i].Key)
				e.require.Equal(string(want[i].Value), string(got[i].Value), "%q", want[i].Key)
			}
		}
		actions := map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				want, got := m.scan(metastore.Range{}, 1000), e.scan(metastore.Range{}, 1000)
				e.require.False(got.More)
				sameRecords(want.Records, got.Records)
			},
			"commit": func(rt *rapid.T) {
				b := drawBatch(rt, m, gone)
				v, err := e.commit(b)
				allowed := m.errs(b)
				if len(allowed) > 0 {
					e.require.True(slices.ContainsFunc(allowed, func(a error) bool { return errors.Is(err, a) }),
						"got %v, want one of %v", err, allowed)
					return
				}
				e.require.NoError(err)
				switch {
				case len(b.Ops) == 0:
				case m.writes(b):
					e.require.Greater(v, m.last)
					m.last = v
					m.apply(b, v)
				default:
					e.require.GreaterOrEqual(v, m.last)
					m.last = v
				}
			},
			"get": func(rt *rapid.T) {
				keys := rapid.SliceOfN(key, 0, 5).Draw(rt, "keys")
				for i, rec := range e.get(keys...) {
					e.require.Equal(m.recs[keys[i]].Version, rec.Version)
					e.require.Equal(string(m.recs[keys[i]].Value), string(rec.Value))
				}
			},
			"scan": func(rt *rapid.T) {
				r, limit := drawRange().Draw(rt, "range"), rapid.IntRange(1, 8).Draw(rt, "limit")
				want, got := m.scan(r, limit), e.scan(r, limit)
				e.require.Equal(want.More, got.More)
				sameRecords(want.Records, got.Records)
			},
			"peek": func(rt *rapid.T) {
				rs := rapid.SliceOfN(drawRange(), 0, 5).Draw(rt, "ranges")
				for i, rec := range e.peek(rs...) {
					if want := m.scan(rs[i], 1).Records; len(want) > 0 {
						sameRecords(want, []metastore.Record{rec})
					} else {
						e.require.Zero(rec.Version)
					}
				}
			},
			"open session": func(rt *rapid.T) {
				sess := e.openSession()
				e.require.NotContains(m.open, sess.ID())
				e.require.False(slices.ContainsFunc(gone, func(s metastore.Session) bool { return s.ID() == sess.ID() }))
				m.open[sess.ID()] = sess
			},
			"close session": func(rt *rapid.T) {
				sess := drawOpen(rt)
				e.closeSession(sess)
				m.end(sess.ID())
				gone = append(gone, sess)
				e.require.ErrorIs(e.keepAlive(sess), metastore.ErrSessionGone)
			},
			"keep alive": func(rt *rapid.T) { e.require.NoError(e.keepAlive(drawOpen(rt))) },
		}
		if h.ExpireSession != nil {
			actions["expire session"] = func(rt *rapid.T) {
				sess := drawOpen(rt)
				h.ExpireSession(t, e.s, sess)
				m.end(sess.ID())
				gone = append(gone, sess)
			}
		}
		if h.Reopen != nil {
			actions["reopen"] = func(rt *rapid.T) {
				if rapid.IntRange(0, 4).Draw(rt, "really") > 0 {
					return // opening is slow
				}
				e.s = h.Reopen(t, e.s)
				for _, id := range slices.Sorted(maps.Keys(m.open)) {
					gone = append(gone, m.open[id])
					m.end(id)
				}
			}
		}
		rt.Repeat(actions)
	})
}

// drawBatch draws a batch whose conditions hold more often than not.
func drawBatch(rt *rapid.T, m *model, gone []metastore.Session) metastore.Batch {
	key := rapid.SampledFrom(modelKeys)
	var b metastore.Batch
	for range rapid.IntRange(0, 3).Draw(rt, "conditions") {
		k := key.Draw(rt, "key")
		rec, exists := m.recs[k]
		switch rapid.IntRange(0, 9).Draw(rt, "kind") {
		case 0:
			b.Conds = append(b.Conds, metastore.Absent(k))
		case 1:
			b.Conds = append(b.Conds, metastore.Exists(k))
		case 2:
			b.Conds = append(b.Conds, metastore.At(k, metastore.Version(rapid.Uint64Range(1, uint64(m.last)+1).Draw(rt, "version"))))
		case 3, 4:
			if exists {
				b.Conds = append(b.Conds, metastore.Exists(k))
			}
		default:
			b.Conds = append(b.Conds, metastore.At(k, rec.Version))
		}
	}
	sessions := []metastore.SessionID{0}
	sessions = append(sessions, slices.Sorted(maps.Keys(m.open))...)
	if n := len(gone); n > 0 && rapid.IntRange(0, 9).Draw(rt, "use a dead session") == 0 {
		sessions = append(sessions, gone[n-1].ID())
	}
	keys := rapid.SliceOfNDistinct(key, 0, 5, rapid.ID[string]).Draw(rt, "writes")
	if len(keys) > 0 && rapid.IntRange(0, 19).Draw(rt, "duplicate") == 0 {
		keys = append(keys, keys[0])
	}
	for _, k := range keys {
		if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
			b.Ops = append(b.Ops, metastore.Delete(k))
			continue
		}
		value := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(rt, "value")
		b.Ops = append(b.Ops, metastore.PutUnder(rapid.SampledFrom(sessions).Draw(rt, "under"), k, value))
	}
	return b
}

package buckettest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/objstore"
)

// modelKeys are few, so that operations meet, and share folders, so that folders come
// and go.
var modelKeys = []string{"slot/a/1/0", "slot/a/1/1", "slot/a/2/0", "slot/a-b/1/0", "slot/a.b/1/0", "settled/x", "settled/y", "z"}

// testModel compares the bucket with a map over random histories, one call at a
// time, with crashes in between.
func testModel(s *suite) {
	t := s.t
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{suite: &suite{Harness: s.Harness, t: t, b: s.Open(t)}, rt: rt, bodies: make(map[string]string)}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			m.step()
		}
		m.compare()
	})
}

type model struct {
	*suite
	rt     *rapid.T
	bodies map[string]string
	puts   int
}

// step draws one call. Its checks fail m.rt and not m.t, so that rapid looks for a
// smaller history.
func (m *model) step() {
	switch rapid.SampledFrom([]string{"put", "put", "put", "late", "delete", "get", "list", "reopen"}).Draw(m.rt, "call") {
	case "put":
		m.modelPut()
	case "late":
		m.modelLatePut()
	case "delete":
		m.modelDelete()
	case "get":
		m.modelGet()
	case "list":
		m.modelList()
	case "reopen":
		m.reopen()
	}
}

// newBody draws a body that no other put of the history has.
func (m *model) newBody() string {
	m.puts++
	return fmt.Sprintf("%d:%s", m.puts, rapid.StringN(0, 30, -1).Draw(m.rt, "body"))
}

func (m *model) key() string { return rapid.SampledFrom(modelKeys).Draw(m.rt, "key") }

func (m *model) modelPut() {
	key, body, ifAbsent := m.key(), m.newBody(), rapid.Bool().Draw(m.rt, "if absent")
	err := m.putWith(key, []byte(body), m.options(ifAbsent))
	if _, there := m.bodies[key]; there && ifAbsent {
		require.ErrorIs(m.rt, err, objstore.ErrExists)
		return
	}
	require.NoError(m.rt, err)
	m.bodies[key] = body
}

func (m *model) modelLatePut() {
	key, ifAbsent := m.key(), rapid.Bool().Draw(m.rt, "if absent")
	err := m.putWith(key, []byte(m.newBody()), objstore.PutOptions{IfAbsent: ifAbsent, NotAfter: m.Now().Add(-time.Minute)})
	if _, there := m.bodies[key]; there && ifAbsent && errors.Is(err, objstore.ErrExists) {
		return // that there is an object may be told first
	}
	require.ErrorIs(m.rt, err, objstore.ErrExpired)
}

func (m *model) modelDelete() {
	keys := rapid.SliceOfN(rapid.SampledFrom(modelKeys), 0, 5).Draw(m.rt, "keys")
	errs := m.delete(keys...)
	require.Len(m.rt, errs, len(keys))
	for i, key := range keys {
		require.NoError(m.rt, errs[i])
		delete(m.bodies, key)
	}
}

func (m *model) modelGet() {
	key := m.key()
	off, n := rapid.Int64Range(0, 40).Draw(m.rt, "off"), rapid.Int64Range(-1, 40).Draw(m.rt, "n")
	got, err := m.getRange(key, off, n)
	body, there := m.bodies[key]
	if !there {
		require.ErrorIs(m.rt, err, objstore.ErrNotFound)
		return
	}
	require.NoError(m.rt, err)
	require.Equal(m.rt, cut(body, off, n), string(got))
}

func (m *model) modelList() {
	prefix := rapid.SampledFrom([]string{"", "s", "slot/", "slot/a", "slot/a/", "settled/", "z"}).Draw(m.rt, "prefix")
	after := rapid.SampledFrom(append([]string{"", "slot/a", "slot/b"}, modelKeys...)).Draw(m.rt, "after")
	limit := rapid.IntRange(0, len(modelKeys)+1).Draw(m.rt, "limit")
	got, err := m.list(prefix, after, limit)
	require.NoError(m.rt, err)
	require.Equal(m.rt, listed(m.bodies, prefix, after, limit), got)
}

// compare reads everything.
func (m *model) compare() {
	infos, err := m.list("", "", len(modelKeys)+1)
	require.NoError(m.rt, err)
	require.Equal(m.rt, listed(m.bodies, "", "", len(modelKeys)), infos)
	for _, info := range infos {
		got, err := m.getRange(info.Key, 0, -1)
		require.NoError(m.rt, err)
		require.Equal(m.rt, m.bodies[info.Key], string(got))
	}
}

package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/sim/check"
)

// restream puts a stream's record in another state.
func (x *fixture) restream(id catalog.StreamID, name string, state catalog.StreamState, deleted time.Time) metastore.Op {
	v, err := x.cat.ReadAnyStream(x.ctx, id)
	require.NoError(x.t, err)
	s := v.Stream
	e := newValue().string(name).uint(uint64(state)).int(s.Created).int(deleted.UnixMilli()).uint(s.Nonce).int(s.Policy.MaxAgeMS).uint(s.Policy.MaxBytes)
	return metastore.Put(catalog.StreamKey(id), *e)
}

// tearing brings a stream into its teardown as production does.
func (x *fixture) tearing(id catalog.StreamID) {
	_, err := x.cat.DeleteStream(x.ctx, id)
	require.NoError(x.t, err)
	x.commit(x.restream(id, x.c.Name(id), catalog.StreamTearing, x.w.Time()))
}

// erase takes a stream's records and its markers away.
func (x *fixture) erase(id catalog.StreamID, more ...metastore.Op) {
	v, err := x.cat.ReadAnyStream(x.ctx, id)
	require.NoError(x.t, err)
	ops := append([]metastore.Op{metastore.Delete(catalog.StreamKey(id)), metastore.Delete(catalog.HeadKey(id)), metastore.Delete(catalog.MarkKey(id)),
		metastore.Delete(x.standing("due/teardown/"))}, more...)
	if v.Mark.RetentionKey != "" {
		ops = append(ops, metastore.Delete(v.Mark.RetentionKey))
	}
	x.commit(ops...)
}

// policy gives the stream a policy, as a client does.
func (x *fixture) policy(p catalog.Policy) {
	asked := x.c.AskPolicy(x.id, p)
	_, err := x.cat.SetPolicy(x.ctx, x.id, p)
	require.NoError(x.t, err)
	x.c.PolicySet(asked)
}

// unspan kills a stream's spans without a word to anyone but the refs.
func (x *fixture) unspan(id catalog.StreamID) {
	spans, _, err := x.cat.Spans(x.ctx, id, 0, 100)
	require.NoError(x.t, err)
	_, err = x.cat.Kill(x.ctx, spans, func(catalog.SpanAt) bool { return true })
	require.NoError(x.t, err)
}

func TestLives(t *testing.T) {
	expect(t, []planted{
		{"a name that outlives its stream", func(x *fixture) {
			x.commit(x.restream(x.other, "other", catalog.StreamDeleted, x.w.Time()), metastore.Put(catalog.DueKey(catalog.Teardown, 1, x.other.String()), *newValue().int(0).int(0)))
		}, check.Lost, "its name \"other\" still leads to it"},
		{"a stream that lost its name", func(x *fixture) {
			x.delete(catalog.NameKey("other"))
		}, check.Lost, "does not lead to it"},
		{"a deletion without a teardown marker", func(x *fixture) {
			x.commit(x.restream(x.other, "other", catalog.StreamDeleted, x.w.Time()), metastore.Delete(catalog.NameKey("other")))
		}, check.Watched, "has 0 teardown markers"},
		{"a teardown marker of an active stream", func(x *fixture) {
			x.commit(metastore.Put(catalog.DueKey(catalog.Teardown, 1, x.other.String()), *newValue().int(0).int(0)))
		}, check.Bounded, "active and has a teardown marker"},
		{"a teardown before its time", func(x *fixture) {
			timing := catalog.DefaultTiming(false)
			timing.UndeleteWindow = time.Hour
			x.c.Assume(timing)
			x.tearing(x.other)
		}, check.Lost, "until when its deletion may be undone"},
		{"a stream that comes back from its teardown", func(x *fixture) {
			x.tearing(x.other)
			x.commit(x.restream(x.other, "other", catalog.StreamDeleted, x.w.Time()))
		}, check.Monotonic, "is there again"},
		{"half of a stream's records", func(x *fixture) {
			x.delete(catalog.HeadKey(x.other))
		}, check.Lost, "some are there without the others"},
		{"a stream that goes without a teardown", func(x *fixture) {
			x.commit(metastore.Delete(catalog.StreamKey(x.other)), metastore.Delete(catalog.HeadKey(x.other)),
				metastore.Delete(catalog.MarkKey(x.other)), metastore.Delete(catalog.NameKey("other")))
		}, check.Lost, "it was not torn down"},
		{"a teardown that overtakes a settle job", func(x *fixture) {
			x.tearing(x.id)
			x.unspan(x.id)
			x.erase(x.id)
		}, check.Lost, "the settle frontier is 1"},
		{"an id that is used again", func(x *fixture) {
			x.tearing(x.other)
			x.erase(x.other)
			x.commit(metastore.Put(catalog.MarkKey(x.other), *newValue().uint(0, 0).string("")))
		}, check.Lost, "appears again"},
		{"two retention markers", func(x *fixture) {
			x.commit(metastore.Put(catalog.DueKey(catalog.Retention, 1, x.id.String()), *newValue()))
		}, check.Bounded, "the stream has 2 retention markers"},
		{"a retention marker that the mark does not name", func(x *fixture) {
			x.commit(metastore.Put(catalog.DueKey(catalog.Retention, 1, x.other.String()), *newValue()))
		}, check.Bounded, "the mark names the retention marker"},
		{"two gc markers", func(x *fixture) {
			k := catalog.DueKey(catalog.GC, 1, "settled!0")
			x.commit(metastore.Put(k, *newValue().uint(0, 0)), metastore.Put(catalog.GCKey(settled), *newValue().string(k)))
			x.commit(metastore.Put(catalog.DueKey(catalog.GC, 2, "settled!0"), *newValue().uint(0, 0)))
		}, check.Bounded, "the object has 2 gc markers"},
		{"a deletion that says that it was long ago", func(x *fixture) {
			x.commit(x.restream(x.other, "other", catalog.StreamDeleted, x.w.Time().Add(-time.Hour)), metastore.Delete(catalog.NameKey("other")),
				metastore.Put(catalog.DueKey(catalog.Teardown, 1, x.other.String()), *newValue().int(0).int(0)))
		}, check.Lost, "and its record says at"},
		{"a deletion that says that it was before anyone asked", func(x *fixture) {
			require.NoError(x.t, x.inc.Clock().Sleep(x.ctx, time.Hour))
			x.c.Deleting(x.other)
			x.commit(x.restream(x.other, "other", catalog.StreamDeleted, x.w.Time().Add(-time.Minute)), metastore.Delete(catalog.NameKey("other")),
				metastore.Put(catalog.DueKey(catalog.Teardown, 1, x.other.String()), *newValue().int(0).int(0)))
		}, check.Lost, "and its record says at"},
		{"a deletion that was acknowledged", func(x *fixture) {
			x.c.Deleted(x.id)
		}, check.Lost, "its deletion was acknowledged"},
	})
}

// A read is judged by what the records say, not by what the reader or the auditor has done.
func TestReadsOfWhatIsGone(t *testing.T) {
	expect(t, []planted{
		{"trimmed when the read began", func(x *fixture) {
			x.c.Trimming(x.id, 3)
			x.remark(3)
			x.c.Read(x.c.Reading("s"), x.id, 2, [][]byte{data(2, 0, 1)})
		}, check.Lost, "those below 3 had been trimmed or had expired"},
		{"expired by age", func(x *fixture) {
			// Record 1 of append 1 is of the second 1 of 1970.
			x.policy(catalog.Policy{MaxAgeMS: 1000})
			x.c.Read(x.c.Reading("s"), x.id, 4, [][]byte{data(3, 1, 2)})
		}, check.Lost, "those below 5 had been trimmed or had expired"},
		{"expired by size", func(x *fixture) {
			x.policy(catalog.Policy{MaxBytes: 2*size + 1})
			x.c.Read(x.c.Reading("s"), x.id, 2, [][]byte{data(2, 0, 1)})
			x.c.Read(x.c.Reading("s"), x.id, 1, [][]byte{data(1, 1, 2)})
		}, check.Lost, "given offset 1, and those below 2"},
		{"expired by a policy that was replaced", func(x *fixture) {
			x.policy(catalog.Policy{MaxBytes: 2 * size})
			x.policy(catalog.Policy{})
			x.c.Read(x.c.Reading("s"), x.id, 2, [][]byte{data(2, 0, 1)})
		}, check.Lost, "given offset 2, and those below 3"},
		{"an answer that takes too much for trimmed", func(x *fixture) {
			x.c.ToldTrimmed(x.c.Reading("s"), x.id, 0, 1)
		}, check.Lost, "told that 1 is the first readable offset; 0 is"},
	})
}

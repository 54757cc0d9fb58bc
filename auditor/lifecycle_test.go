package auditor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

// unhurried makes the settle rewrite wait for an hour, so that spans stay in their slots.
func (r *rig) unhurried() *rig {
	timing := quick(r.w.Embedded())
	timing.SettleAgeCap = time.Hour
	r.cat = catalog.New(r.inc.Store(), r.inc.Clock(), timing, func(name string) { r.marks[name]++ })
	return r
}

func (r *rig) view(ctx context.Context, id catalog.StreamID) catalog.StreamView {
	v, err := r.cat.ReadAnyStream(ctx, id)
	require.NoError(r.t, err)
	return v
}

// spansOf returns how many spans a stream has.
func (r *rig) spansOf(ctx context.Context, id catalog.StreamID) int {
	spans, _, err := r.cat.Spans(ctx, id, 0, 1000)
	require.NoError(r.t, err)
	return len(spans)
}

// wait is how far ahead a queue's one marker is.
func (r *rig) wait(q catalog.Queue) time.Duration {
	keys := r.markers(q)
	require.Len(r.t, keys, 1)
	due, err := catalog.ParseDue(keys[0])
	require.NoError(r.t, err)
	return -due.PastDue(r.inc.Clock().Now())
}

func (r *rig) trim(ctx context.Context, a *Auditor, id catalog.StreamID, upTo uint64) {
	_, err := r.cat.TrimStream(ctx, id, upTo)
	require.NoError(r.t, err)
	a.Wake()
}

func (r *rig) setPolicy(ctx context.Context, a *Auditor, id catalog.StreamID, p catalog.Policy) {
	_, err := r.cat.SetPolicy(ctx, id, p)
	require.NoError(r.t, err)
	a.Wake()
}

func (r *rig) deleteStream(ctx context.Context, a *Auditor, id catalog.StreamID) {
	_, err := r.cat.DeleteStream(ctx, id)
	require.NoError(r.t, err)
	a.Wake()
}

// What was trimmed goes span by whole span, in settled objects and in slots, with its objects; then no marker stands.
func TestRetentionKillsWhatWasTrimmed(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 2 {
			s.flight(ctx, part{id: x, n: 2, size: 10})
		}
		r.passes(ctx, a, 3, 2*time.Second)
		require.Len(t, r.objects("settled/"), 1)
		s.flight(ctx, part{id: x, n: 2, size: 10})
		require.Equal(t, 2, r.spansOf(ctx, x))

		r.trim(ctx, a, x, 5)
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 1, r.spansOf(ctx, x), "the span that the watermark lies in stays")
		require.Empty(t, r.markers(catalog.Retention))
		require.Empty(t, r.view(ctx, x).Mark.RetentionKey, "an append could arm it")

		r.trim(ctx, a, x, 6)
		r.passes(ctx, a, 8, 5*time.Second)
		require.Zero(t, r.spansOf(ctx, x))
		require.Empty(t, r.objects("settled/"))
		require.Empty(t, r.objects("slot/"))
		require.NotEmpty(t, r.did(SpansKilled))
	})
}

// By age: the marker waits for the very time at which the next span expires, at least MinRearm; with the last
// span it goes, and the next append arms it.
func TestRetentionWaitsForTheNextSpan(t *testing.T) {
	r := newRig(t, true).unhurried()
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		for range 3 { // of 0, 1 and 2 s after 1970
			s.flight(ctx, part{id: x, n: 1, size: 10})
		}
		r.setPolicy(ctx, a, x, catalog.Policy{MaxAgeMS: r.inc.Clock().Now().UnixMilli() + 10_000})
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 3, r.spansOf(ctx, x))
		require.Equal(t, 10*time.Second, r.wait(catalog.Retention))
		require.Equal(t, Waiting, r.did(JobDone)[0].Outcome, "nothing to run the pass again for")

		require.NoError(t, r.inc.Clock().Sleep(ctx, 10*time.Second+500*time.Millisecond))
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 2, r.spansOf(ctx, x))
		require.Equal(t, uint64(1), r.view(ctx, x).Mark.Watermark)
		require.Equal(t, catalog.MinRearm, r.wait(catalog.Retention), "the next would be due in half a second")

		require.NoError(t, r.inc.Clock().Sleep(ctx, catalog.MinRearm))
		r.passes(ctx, a, 1, 0)
		require.Zero(t, r.spansOf(ctx, x))
		require.Empty(t, r.markers(catalog.Retention))
		s.flight(ctx, part{id: x, n: 1, size: 10})
		require.Len(t, r.markers(catalog.Retention), 1)
	})
}

// By size: an append that expires a whole span arms; the run kills it and goes.
func TestRetentionBySize(t *testing.T) {
	r := newRig(t, true).unhurried()
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 100})
		r.setPolicy(ctx, a, x, catalog.Policy{MaxBytes: 250})
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.markers(catalog.Retention))
		s.flight(ctx, part{id: x, n: 1, size: 100})
		s.flight(ctx, part{id: x, n: 1, size: 100})
		require.Empty(t, r.markers(catalog.Retention), "300 bytes, and the first span ends 200 before the end")
		s.flight(ctx, part{id: x, n: 1, size: 100})
		require.LessOrEqual(t, r.wait(catalog.Retention), catalog.MinRearm)
		require.NoError(t, r.inc.Clock().Sleep(ctx, catalog.MinRearm))
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 3, r.spansOf(ctx, x))
		require.Equal(t, catalog.Mark{Watermark: 1, WatermarkBytes: 100, NextBytes: 450}, r.view(ctx, x).Mark)
	})
}

// hookedStore lets a test in before commits.
type hookedStore struct {
	metastore.Store
	before func(ctx context.Context, b metastore.Batch)
}

func (s *hookedStore) Commit(ctx context.Context, b metastore.Batch) (metastore.Version, error) {
	s.before(ctx, b)
	return s.Store.Commit(ctx, b)
}

// A stream whose head moves under every look is judged a few times, and then looked at again soon.
func TestRetentionOfABusyStream(t *testing.T) {
	r := newRig(t, true).unhurried()
	stars, store := r.cat, &hookedStore{Store: r.inc.Store()}
	r.cat = catalog.New(store, r.inc.Clock(), r.cat.Timing(), nil)
	a := r.auditor(nil)
	r.cat = stars
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 64), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 100})
		r.setPolicy(ctx, a, x, catalog.Policy{MaxBytes: 1000})
		store.before = func(ctx context.Context, b metastore.Batch) {
			if slices.ContainsFunc(b.Ops, func(op metastore.Op) bool { return op.Key == catalog.MarkKey(x) }) {
				s.flight(ctx, part{id: x, n: 1, size: 1})
			}
		}
		r.passes(ctx, a, 1, 0)
		require.Equal(t, uint64(1+retentionTries), s.next)
		require.Len(t, r.did(JobDone), 1)
		require.Equal(t, Waiting, r.did(JobDone)[0].Outcome)
		require.Equal(t, catalog.MarkerBucket, r.wait(catalog.Retention))
		require.Equal(t, uint64(1100), r.view(ctx, x).Mark.NextBytes)

		// A max age may be due sooner.
		r.setPolicy(ctx, a, x, catalog.Policy{MaxBytes: 1000, MaxAgeMS: r.inc.Clock().Now().UnixMilli() + 7000})
		r.passes(ctx, a, 1, 0)
		require.Equal(t, 7*time.Second, r.wait(catalog.Retention))
	})
}

// Out of time, a run re-arms for more work, and so does a teardown.
func TestKillsThatRunOutOfTime(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 10})
		r.passes(ctx, a, 3, 2*time.Second)
		late := func(q catalog.Queue) *Job {
			keys := r.markers(q)
			require.Len(t, keys, 1)
			recs, err := r.cat.Store().Get(ctx, keys[0])
			require.NoError(t, err)
			due, err := catalog.ParseDue(keys[0])
			require.NoError(t, err)
			m := catalog.MarkerAt{Due: due, Value: recs[0].Value, Version: recs[0].Version}
			return &Job{a: a, reg: registration(a, q), Marker: m, Started: r.inc.Clock().Now().Add(-time.Hour)}
		}
		_, err := r.cat.TrimStream(ctx, x, 1)
		require.NoError(t, err)
		out, err := (&retention{a}).Handle(ctx, late(catalog.Retention))
		require.NoError(t, err)
		require.Equal(t, Resolved, out, "it counts as completed")
		require.Equal(t, 1, r.spansOf(ctx, x))
		require.Equal(t, catalog.MinRearm, r.wait(catalog.Retention))

		_, err = r.cat.DeleteStream(ctx, x)
		require.NoError(t, err)
		j := late(catalog.Teardown)
		out, err = (&teardown{a}).run(ctx, j, j.Marker, x)
		require.NoError(t, err)
		require.Equal(t, Resolved, out)
		require.Equal(t, catalog.MinRearm, r.wait(catalog.Teardown))
		require.Equal(t, catalog.StreamTearing, r.view(ctx, x).Stream.State)
	})
}

// Markers that are nobody's are resolved: of streams that are gone, or whose mark names another, or that are not what the marker says.
func TestStrayMarkersOfStreams(t *testing.T) {
	r := newRig(t, true).unhurried()
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 10})
		mine := r.view(ctx, x).Mark.RetentionKey
		for _, q := range []catalog.Queue{catalog.Retention, catalog.Teardown} {
			for _, id := range []catalog.StreamID{x, 77} {
				_, err := r.cat.Store().Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.DueKey(q, 1, id.String()), []byte{1})}})
				require.NoError(t, err)
			}
		}
		a.Wake()
		r.passes(ctx, a, 1, 0)
		require.Equal(t, []string{mine}, r.markers(catalog.Retention))
		require.Empty(t, r.markers(catalog.Teardown))
		require.Equal(t, 1, r.spansOf(ctx, x))
	})
}

// A deleted stream's records are its teardown's business: its retention marker goes, within an undelete window too.
func TestRetentionLeavesADeletedStream(t *testing.T) {
	r := newRig(t, true)
	timing := quick(true)
	timing.SettleAgeCap, timing.UndeleteWindow = time.Hour, time.Hour
	r.cat = catalog.New(r.inc.Store(), r.inc.Clock(), timing, nil)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 8), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 10})
		r.trim(ctx, a, x, 1)
		r.deleteStream(ctx, a, x)
		r.passes(ctx, a, 3, 10*time.Second)
		require.Empty(t, r.markers(catalog.Retention))
		require.Empty(t, r.view(ctx, x).Mark.RetentionKey)
		require.Equal(t, 1, r.spansOf(ctx, x))
		require.Equal(t, catalog.StreamDeleted, r.view(ctx, x).Stream.State, "it may be undone for an hour")
		require.NoError(t, r.inc.Clock().Sleep(ctx, time.Hour))
		r.passes(ctx, a, 6, 10*time.Second)
		_, err := r.cat.ReadAnyStream(ctx, x)
		require.ErrorIs(t, err, catalog.ErrNoStream)
	})
}

// A teardown waits until what the chain owes of its stream is settled, and hurries that; then nothing of the stream is left,
// and its neighbour in slot and object is as it was.
func TestTeardown(t *testing.T) {
	r := newRig(t, true).unhurried()
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s := r.mint(ctx, "a", 8)
		x, y := r.stream(ctx, "x"), r.stream(ctx, "y")
		s.flight(ctx, part{id: x, n: 2, size: 10}, part{id: y, n: 2, size: 10})
		s.flight(ctx, part{id: y, n: 1, size: 10})
		want, _ := r.read(ctx, y, 0)
		first := r.view(ctx, x)
		r.deleteStream(ctx, a, x)
		r.passes(ctx, a, 1, 0)
		require.Len(t, r.did(TeardownWaits), 1)
		require.Equal(t, catalog.MinRearm, r.wait(catalog.Teardown))
		batch, ok, err := r.cat.ReadBatch(ctx, s.chain, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.LessOrEqual(t, batch.Batch.Ready, r.inc.Clock().Now().UnixMilli(), "ripened")
		batch, _, err = r.cat.ReadBatch(ctx, s.chain, 1)
		require.NoError(t, err)
		require.Greater(t, batch.Batch.Ready, r.inc.Clock().Now().UnixMilli(), "nothing of it lies there")
		require.True(t, a.takeFronting(), "the next pass comes at once, and sees the ripened marker")

		r.passes(ctx, a, 2, catalog.MinRearm)
		r.passes(ctx, a, 4, 5*time.Second)
		_, err = r.cat.ReadAnyStream(ctx, x)
		require.ErrorIs(t, err, catalog.ErrNoStream)
		require.Len(t, r.did(StreamTornDown), 1)
		require.Zero(t, r.spansOf(ctx, x))
		require.Empty(t, r.markers(catalog.Teardown))
		require.NotContains(t, r.markers(catalog.Retention), first.Mark.RetentionKey)
		got, _ := r.read(ctx, y, 0)
		require.Equal(t, want, got)
		require.Empty(t, a.pool.busy)
	})
}

// A chain that is retired is past, and a dead one is on its way there.
func TestTeardownAfterTheStarIsGone(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		s, x := r.mint(ctx, "a", 4), r.stream(ctx, "x")
		s.flight(ctx, part{id: x, n: 1, size: 10})
		require.NoError(t, s.session.Close(ctx))
		r.deleteStream(ctx, a, x)
		r.passes(ctx, a, 20, 10*time.Second)
		_, err := r.cat.ReadAnyStream(ctx, x)
		require.ErrorIs(t, err, catalog.ErrNoStream)
		require.Empty(t, r.objects(""))
		at, err := r.cat.ReadChain(ctx, s.chain)
		require.NoError(t, err)
		require.Zero(t, at.Version)

		z := r.stream(ctx, "z")
		v := r.view(ctx, z)
		require.Empty(t, v.Head.Chains)
		r.deleteStream(ctx, a, z) // it never had a record
		r.passes(ctx, a, 1, 0)
		require.Empty(t, r.markers(catalog.Teardown))
	})
}

// The markers of a shard go in groups; one member that fails stands and rests, its siblings are torn down.
func TestTeardownGroupsConvergeByMember(t *testing.T) {
	r := newRig(t, true)
	a := r.auditor(nil)
	r.do(func(ctx context.Context) {
		var ids []catalog.StreamID
		for i := 0; len(ids) < 20; i++ {
			if id := r.stream(ctx, fmt.Sprint(i)); len(ids) == 0 || catalog.Shard(id.String()) == catalog.Shard(ids[0].String()) {
				ids = append(ids, id)
			}
		}
		s := r.mint(ctx, "a", 8)
		for part20 := range slices.Chunk(ids, 10) {
			var parts []part
			for _, id := range part20 {
				parts = append(parts, part{id: id, n: 1, size: 10})
			}
			s.flight(ctx, parts...)
		}
		r.passes(ctx, a, 3, 2*time.Second)
		spans, _, err := r.cat.Spans(ctx, ids[3], 0, 1)
		require.NoError(t, err)
		require.NoError(t, rewrite(ctx, r, spans[0].Key(), func([]byte) []byte { return []byte{9} }))
		for _, id := range ids {
			r.deleteStream(ctx, a, id)
		}
		sizes := map[int]int{}
		r.passes(ctx, a, 1, 0)
		for _, e := range r.did(JobDone) {
			if e.Duty == string(catalog.Teardown) {
				sizes[int(e.Outcome)]++
			}
		}
		require.Equal(t, map[int]int{int(Resolved): 19, int(Standing): 1}, sizes)
		require.Equal(t, []string{catalog.DueKey(catalog.Teardown, uint64(r.view(ctx, ids[3]).Stream.Deleted), ids[3].String())}, r.markers(catalog.Teardown))
		require.Len(t, r.did(StreamTornDown), 19)
	})
}

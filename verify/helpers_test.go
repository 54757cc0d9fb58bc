package verify_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/auditor"
	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/clock"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/metastore/pebblestore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/dirbucket"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/star"
	"github.com/nova-store/nova/verify"
)

// world is a store in memory and a bucket in a directory.
type world struct {
	t      testing.TB
	store  *pebblestore.Store
	bucket *dirbucket.Bucket
	clk    clock.Clock
	dir    string // of the bucket
}

func newWorld(t testing.TB) *world {
	store, err := pebblestore.Open("meta", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	dir := t.TempDir()
	bucket, err := dirbucket.Open(dir, dirbucket.Options{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, bucket.Close())
		require.NoError(t, store.Close())
	})
	return &world{t, store, bucket, clock.NewReal(), dir}
}

// timing has graces of a millisecond, and an age cap of its own.
func timing(ageCap time.Duration) catalog.Timing {
	t := catalog.DefaultTiming(true)
	t.ReapGrace, t.TrimGrace, t.RetireGrace = time.Millisecond, time.Millisecond, time.Millisecond
	t.SettleRecheck = 5 * time.Millisecond
	t.SettleAgeCap = ageCap
	return t
}

func (w *world) catalog(ageCap time.Duration) *catalog.Catalog {
	c := catalog.New(w.store, w.clk, timing(ageCap), nil)
	require.NoError(w.t, c.EnsureFormat(context.Background()))
	return c
}

// serve runs a star until the function returned drains it.
func (w *world) serve(cat *catalog.Catalog) (*star.Star, func()) {
	s, err := star.New(cat, w.bucket, w.clk, star.Options{Name: "a", Embedded: true, Codec: format.Stored()})
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	require.Eventually(w.t, func() bool { return s.Ready() == nil }, 20*time.Second, time.Millisecond)
	return s, func() {
		require.NoError(w.t, s.Drain(context.Background()))
		require.NoError(w.t, <-done)
	}
}

// audit runs an auditor until the function returned stops it.
func (w *world) audit(cat *catalog.Catalog) (*auditor.Auditor, func()) {
	a, err := auditor.New(cat, w.bucket, w.clk, auditor.Options{Member: "m", Workers: 4, IdleInterval: 2 * time.Millisecond,
		SettleObjectMin: 8 << 10, GCMinDeadBytes: 1, GCMinDeadRatio: 0.1, Embedded: true})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return a, func() {
		cancel()
		require.NoError(w.t, <-done)
	}
}

func (w *world) append(s *star.Star, name string, records, size int) {
	req := star.AppendRequest{Name: name}
	for i := range records {
		req.Records = append(req.Records, star.Record{Data: []byte(fmt.Sprintf("%s/%d/%s", name, i, strings.Repeat("x", size)))})
	}
	_, err := s.Append(context.Background(), req)
	require.NoError(w.t, err)
}

// keys returns the keys under a prefix.
func (w *world) keys(prefix string) []string {
	var out []string
	rng := metastore.Range{}
	if prefix != "" {
		rng = metastore.Prefix(prefix)
	}
	for {
		page, err := w.store.Scan(context.Background(), rng, 100)
		require.NoError(w.t, err)
		for _, r := range page.Records {
			out = append(out, r.Key)
		}
		if !page.More {
			return out
		}
		rng.Start = out[len(out)-1] + "\x00"
	}
}

// key is the only key, or the first, under a prefix that holds a text.
func (w *world) key(prefix, text string) string {
	for _, k := range w.keys(prefix) {
		if strings.Contains(k, text) {
			return k
		}
	}
	w.t.Fatalf("no key under %s with %q", prefix, text)
	return ""
}

func (w *world) value(key string) []byte {
	recs, err := w.store.Get(context.Background(), key)
	require.NoError(w.t, err)
	require.True(w.t, recs[0].Exists(), key)
	return slices.Clone(recs[0].Value)
}

func (w *world) commit(ops ...metastore.Op) {
	_, err := w.store.Commit(context.Background(), metastore.Batch{Ops: ops})
	require.NoError(w.t, err)
}

func (w *world) del(key string)               { w.value(key); w.commit(metastore.Delete(key)) }
func (w *world) put(key string, value []byte) { w.commit(metastore.Put(key, value)) }

func (w *world) verify(o verify.Options) verify.Report {
	rep, err := verify.Run(context.Background(), catalog.New(w.store, w.clk, timing(time.Hour), nil), w.bucket, w.clk, o)
	require.NoError(w.t, err)
	return rep
}

// objects lists the bucket.
func (w *world) objects(prefix string) []string {
	infos, err := w.bucket.List(context.Background(), prefix, "", 1000)
	require.NoError(w.t, err)
	var out []string
	for _, i := range infos {
		out = append(out, i.Key)
	}
	return out
}

// fill makes some of everything: settled objects of one stream and packed ones, slots that wait to be settled, a trimmed stream, an object that
// waits to be probed, one whose dead bytes wait to be reclaimed, an announced one. Nothing runs when it returns.
func (w *world) fill() {
	ctx := context.Background()
	hasty, patient := w.catalog(time.Millisecond), w.catalog(time.Hour)
	for _, name := range []string{"big", "trimmed", "s0", "s1", "s2"} {
		_, _, err := hasty.CreateStream(ctx, name, catalog.Policy{})
		require.NoError(w.t, err)
	}
	s, drain := w.serve(hasty)
	for range 3 {
		w.append(s, "big", 20, 1000)
		for _, name := range []string{"trimmed", "s0", "s1", "s2"} {
			w.append(s, name, 3, 50)
		}
	}
	drain()
	a, stop := w.audit(hasty)
	require.Eventually(w.t, func() bool {
		a.Wake()
		return len(w.keys(catalog.QueuePrefix(catalog.Denorm)))+len(w.keys(catalog.QueuePrefix(catalog.TrimCheck))) == 0
	}, 30*time.Second, 2*time.Millisecond, "all is settled and trimmed")
	stop()

	s, drain = w.serve(patient)
	for range 2 {
		for _, name := range []string{"big", "s0", "s1"} {
			w.append(s, name, 4, 100)
		}
	}
	drain()

	// Trim, and kill what is below: the object's reap-check is armed.
	id, err := patient.FindStream(ctx, "trimmed")
	require.NoError(w.t, err)
	_, err = patient.TrimStream(ctx, id, 9)
	require.NoError(w.t, err)
	spans, _, err := patient.Spans(ctx, id, 0, 100)
	require.NoError(w.t, err)
	_, err = patient.Kill(ctx, spans, func(catalog.SpanAt) bool { return true })
	require.NoError(w.t, err)
	// Another object of which some is worth reclaiming.
	big, err := patient.FindStream(ctx, "big")
	require.NoError(w.t, err)
	spans, _, err = patient.Spans(ctx, big, 0, 1)
	require.NoError(w.t, err)
	object := spans[0].Span.Object
	refs, _, err := patient.Refs(ctx, object, 8)
	require.NoError(w.t, err)
	reap := catalog.DueKey(catalog.Reap, uint64(w.clk.Now().UnixMilli()), strings.ReplaceAll(object, "/", "!"))
	w.put(reap, w.value(w.key(catalog.QueuePrefix(catalog.Reap), "")))
	recs, err := w.store.Get(ctx, reap)
	require.NoError(w.t, err)
	require.NoError(w.t, patient.StandDownReap(ctx, catalog.ReapAt{Key: reap, Object: object, Version: recs[0].Version}, refs, 12345))
	_, err = patient.ArmIntent(ctx, catalog.SettledKey("01ANNOUNCED"))
	require.NoError(w.t, err)
}

// slotOf returns the span of a stream that lies in a slot, and the slot.
func (w *world) slotOf(name string) (catalog.SpanAt, string) {
	cat := w.catalog(time.Hour)
	id, err := cat.FindStream(context.Background(), name)
	require.NoError(w.t, err)
	spans, _, err := cat.Spans(context.Background(), id, 0, 100)
	require.NoError(w.t, err)
	for _, s := range spans {
		if catalog.IsSlot(s.Span.Object) {
			return s, s.Span.Object
		}
	}
	w.t.Fatalf("stream %s has nothing in a slot", name)
	return catalog.SpanAt{}, ""
}

// settledOf returns the first span of a stream, which lies in a settled object.
func (w *world) settledOf(name string) (catalog.SpanAt, string) {
	cat := w.catalog(time.Hour)
	id, err := cat.FindStream(context.Background(), name)
	require.NoError(w.t, err)
	spans, _, err := cat.Spans(context.Background(), id, 0, 1)
	require.NoError(w.t, err)
	require.False(w.t, catalog.IsSlot(spans[0].Span.Object))
	return spans[0], spans[0].Span.Object
}

// remove takes an object from the bucket, as a failing disk would.
func (w *world) remove(object string) {
	for _, err := range w.bucket.Delete(context.Background(), []string{object}) {
		require.NoError(w.t, err)
	}
}

// replace puts other bytes in an object's place.
func (w *world) replace(object string, change func([]byte) []byte) {
	body, err := w.bucket.Get(context.Background(), object, 0, -1)
	require.NoError(w.t, err)
	require.NoError(w.t, w.bucket.Put(context.Background(), object, change(slices.Clone(body)), objstore.PutOptions{}))
}

func (w *world) copy(from, to string) {
	body, err := w.bucket.Get(context.Background(), from, 0, -1)
	require.NoError(w.t, err)
	require.NoError(w.t, w.bucket.Put(context.Background(), to, slices.Clone(body), objstore.PutOptions{IfAbsent: true}))
}

// state is a copy of all records and objects.
type state struct {
	ops     []metastore.Op
	objects map[string][]byte
}

func (w *world) snapshot() state {
	s := state{objects: map[string][]byte{}}
	for _, key := range w.keys("") {
		s.ops = append(s.ops, metastore.Put(key, w.value(key)))
	}
	for _, key := range w.objects("") {
		body, err := w.bucket.Get(context.Background(), key, 0, -1)
		require.NoError(w.t, err)
		s.objects[key] = body
	}
	return s
}

func (w *world) restore(s state) {
	w.commit(s.ops...)
	for key, body := range s.objects {
		require.NoError(w.t, w.bucket.Put(context.Background(), key, slices.Clone(body), objstore.PutOptions{}))
	}
}

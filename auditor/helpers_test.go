package auditor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
)

// quick is a legal timing whose graces pass soon.
func quick(embedded bool) catalog.Timing {
	t := catalog.DefaultTiming(embedded)
	t.SettleAgeCap, t.SettleRecheck = time.Second, 20*time.Second
	t.JobDeadline, t.OrphanGrace = time.Minute, 2*time.Minute
	if embedded {
		t.ReapGrace, t.TrimGrace, t.RetireGrace = time.Second, time.Second, time.Second
	} else {
		t.PutHorizon = 10 * time.Second
		t.ReapGrace, t.TrimGrace, t.RetireGrace = 30*time.Second, 30*time.Second, 30*time.Second
	}
	return t
}

// rig is one process in a world without faults unless a test makes some.
type rig struct {
	t      testing.TB
	w      *sim.World
	inc    *sim.Incarnation
	cat    *catalog.Catalog
	events []Event
	marks  map[string]int
}

func newRig(t testing.TB, embedded bool) *rig {
	return newRigOf(t, sim.Config{Embedded: embedded, MaxOps: 128})
}

func newRigOf(t testing.TB, cfg sim.Config) *rig {
	w := sim.New(cfg)
	t.Cleanup(w.Close)
	r := &rig{t: t, w: w, marks: map[string]int{}}
	r.inc = w.Node("a").Start(nil)
	r.cat = catalog.New(r.inc.Store(), r.inc.Clock(), quick(cfg.Embedded), func(name string) { r.marks[name]++ })
	return r
}

// textLogger writes what is logged to w, from info on.
func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// Event keeps what happens.
func (r *rig) Event(e Event) { r.events = append(r.events, e) }

// did returns the events of an action.
func (r *rig) did(a Action) []Event {
	var out []Event
	for _, e := range r.events {
		if e.Action == a {
			out = append(out, e)
		}
	}
	return out
}

// do runs f as a task of the process.
func (r *rig) do(f func(ctx context.Context)) {
	r.t.Helper()
	done := false
	r.inc.Go("test", func(ctx context.Context) {
		f(ctx)
		done = true
	})
	res := r.w.RunUntil(func() bool { return done }, 24*time.Hour)
	if res.Finding != nil {
		r.t.Fatal(res.Finding.Report())
	}
	require.True(r.t, done, "the task did not end")
}

func (r *rig) options() Options {
	return Options{Member: "m", Embedded: r.w.Embedded(), Events: r}
}

func (r *rig) auditor(change func(*Options)) *Auditor {
	o := r.options()
	if change != nil {
		change(&o)
	}
	a, err := New(r.cat, r.inc.Bucket(), r.inc.Clock(), o)
	require.NoError(r.t, err)
	return a
}

// passes runs n passes, each to the end of its jobs, d apart.
func (r *rig) passes(ctx context.Context, a *Auditor, n int, d time.Duration) {
	for range n {
		a.pass(ctx)
		require.NoError(r.t, a.pool.tasks.Wait(ctx))
		require.NoError(r.t, r.inc.Clock().Sleep(ctx, d))
	}
}

// markers returns the keys that stand in a queue, denorm's schedule for denorm.
func (r *rig) markers(q catalog.Queue) []string {
	var out []string
	for shard := range catalog.Shards {
		r.w.StoreView().Scan(catalog.ShardRange(q, shard), func(rec metastore.Record) bool {
			out = append(out, rec.Key)
			return true
		})
	}
	return out
}

// objects returns the keys in the bucket under a prefix.
func (r *rig) objects(prefix string) []string {
	var out []string
	r.w.BucketView().Scan(prefix, func(key string, _ []byte) bool {
		out = append(out, key)
		return true
	})
	return out
}

// chainStar does what a star does to a chain, one slot at a time.
type chainStar struct {
	r       *rig
	chain   catalog.ChainID
	session metastore.Session
	next    uint64
	want    map[catalog.StreamID][][]byte
}

func (r *rig) mint(ctx context.Context, name string, window uint64) *chainStar {
	s, err := r.cat.Store().OpenSession(ctx, r.cat.Timing().SessionTTL)
	require.NoError(r.t, err)
	c, err := r.cat.Mint(ctx, catalog.MintRequest{Star: name, Incarnation: r.inc.Clock().Rand(), Session: s.ID(), Window: window})
	require.NoError(r.t, err)
	return &chainStar{r: r, chain: c, session: s, want: map[catalog.StreamID][][]byte{}}
}

func (r *rig) stream(ctx context.Context, name string) catalog.StreamID {
	v, _, err := r.cat.CreateStream(ctx, name, catalog.Policy{})
	require.NoError(r.t, err)
	return v.ID
}

// part is what a slot holds of one stream.
type part struct {
	id       catalog.StreamID
	n, size  int
	expected *uint64
}

// slot builds the bytes of a slot and puts them, without absorbing.
func (s *chainStar) slot(ctx context.Context, slot uint64, parts ...part) (body []byte, f format.Footer) {
	w := format.NewWriter(format.KindSlot, format.Stored())
	w.SetSlot(s.chain.Star, s.chain.Epoch, slot, [16]byte{byte(slot) + 1})
	s.fill(w, slot, parts...)
	body, f, err := w.Finish()
	require.NoError(s.r.t, err)
	s.put(ctx, slot, body)
	return body, f
}

// fill writes a flight's sections.
func (s *chainStar) fill(w *format.Writer, slot uint64, parts ...part) {
	for _, p := range parts {
		w.Begin(uint64(p.id), 0)
		for i := range p.n {
			data := fmt.Appendf(nil, "%s/%d/%v/%d:", s.chain, slot, p.id, i)
			for len(data) < p.size {
				data = append(data, byte(i))
			}
			w.Add(int64(1000*slot)+int64(i), data)
		}
		a := format.Append{}
		if p.expected != nil {
			a.HasExpected, a.Expected = true, *p.expected
		}
		w.EndAppend(a)
	}
}

func (s *chainStar) put(ctx context.Context, slot uint64, body []byte) {
	opt := objstore.PutOptions{IfAbsent: true}
	if !s.r.w.Embedded() {
		opt.NotAfter = s.r.inc.Clock().Now().Add(time.Minute)
	}
	require.NoError(s.r.t, s.r.inc.Bucket().Put(ctx, catalog.SlotKey(s.chain, slot), body, opt))
}

// flight puts and absorbs the next slot.
func (s *chainStar) flight(ctx context.Context, parts ...part) {
	body, f := s.slot(ctx, s.next, parts...)
	s.absorb(ctx, body, f)
}

func (s *chainStar) absorb(ctx context.Context, body []byte, f format.Footer) {
	_, err := s.r.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: s.chain, Slots: []catalog.SlotIn{{Slot: s.next, Size: int64(len(body)), Footer: &f}}})
	require.NoError(s.r.t, err)
	s.next++
}

// read returns a stream's records by its catalog, and where the spans lie.
func (r *rig) read(ctx context.Context, id catalog.StreamID, from uint64) (data [][]byte, objects []string) {
	d := format.NewDecoder()
	for {
		spans, more, err := r.cat.Spans(ctx, id, from, 100)
		require.NoError(r.t, err)
		for _, s := range spans {
			require.Equal(r.t, from, s.Span.First, "a gap in stream %v", id)
			body, err := r.inc.Bucket().Get(ctx, s.Span.Object, s.Span.Offset, s.Span.Length)
			require.NoError(r.t, err)
			require.NoError(r.t, d.Records(body, uint64(id), func(o uint32, rec format.Record) error {
				if o >= s.Span.Ordinal && uint64(o) < uint64(s.Span.Ordinal)+s.Span.Count {
					data = append(data, slices.Clone(rec.Data))
				}
				return nil
			}))
			from = s.Span.Last() + 1
			objects = append(objects, s.Span.Object)
		}
		if !more {
			return data, slices.Compact(objects)
		}
	}
}

// cursors returns a chain's trim record, zero where it is retired.
func (r *rig) cursors(ctx context.Context, c catalog.ChainID) catalog.Trim {
	at, err := r.cat.ReadTrim(ctx, c)
	require.NoError(r.t, err)
	return at.Trim
}

const opGet = sim.OpBucketGet

// setWatermark and setTearing do what a trim and a teardown do to a stream's records.
func (r *rig) setWatermark(ctx context.Context, id catalog.StreamID, first uint64) {
	require.NoError(r.t, rewrite(ctx, r, catalog.MarkKey(id), func(b []byte) []byte {
		m, err := catalog.DecodeMark(b)
		require.NoError(r.t, err)
		// The value is: format, watermark, its byte position, key; the first two are small varints here.
		require.Less(r.t, first, uint64(128))
		require.Less(r.t, m.Watermark, uint64(128))
		b = slices.Clone(b)
		b[1] = byte(first)
		return b
	}))
}

func (r *rig) setTearing(ctx context.Context, id catalog.StreamID) {
	require.NoError(r.t, rewrite(ctx, r, catalog.StreamKey(id), func(b []byte) []byte {
		s, err := catalog.DecodeStream(b)
		require.NoError(r.t, err)
		// The state follows the name, which follows its length.
		b = slices.Clone(b)
		b[2+len(s.Name)] = byte(catalog.StreamTearing)
		return b
	}))
}

func rewrite(ctx context.Context, r *rig, key string, change func([]byte) []byte) error {
	recs, err := r.cat.Store().Get(ctx, key)
	if err != nil {
		return err
	}
	_, err = r.cat.Store().Commit(ctx, metastore.Batch{
		Conds: []metastore.Cond{metastore.At(key, recs[0].Version)},
		Ops:   []metastore.Op{metastore.Put(key, change(recs[0].Value))},
	})
	return err
}

package catalog_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
)

// An append that finds a marker standing arms none; so the run of retention that resolves this marker must have
// seen the append, or the append the resolve.
func TestResolveRetentionMeetsAnAppend(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(2, catalog.Policy{MaxBytes: 20})
	s.clk.now = s.clk.now.Add(2 * catalog.MarkerBucket)
	m := s.due(catalog.Retention)
	s.Positive(m.Due.PastDue(s.clk.now))
	v := s.view(id)
	s.slots(star, 1, id)
	s.absorbed(star, 1) // offset 0 is expired now, and the standing marker is to see to it
	s.Equal(v.Mark, s.view(id).Mark)
	s.ErrorIs(s.cat.ResolveRetention(s.Context(), m, v, 30), catalog.ErrMoved)
	s.clk.now = s.clk.now.Add(catalog.MarkerBucket)
	s.NoError(s.world.retain(s.due(catalog.Retention)))
	s.Empty(s.store.keys("due/retention/"))
	s.Len(s.spans(id), 2)
	s.Equal(uint64(40), s.view(id).Mark.NextBytes)

	// The other way round: the append has looked at the marker, which is resolved before it commits.
	_, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 5})
	s.NoError(err)
	s.Zero(s.view(id).Mark.NextBytes, "it was reckoned with the old policy")
	m, v = s.due(catalog.Retention), s.view(id)
	s.slots(star, 2, id)
	s.absorbed(star, 1) // so that the star knows the stream as it is
	s.during("commit", 0, func() { s.NoError(s.world.retain(m)) })
	s.absorbed(star, 1)
	s.Len(s.store.keys("due/retention/"), 1)
	s.Equal(uint64(1), v.Mark.Watermark, "what 20 bytes had expired")
}

// A busy stream at its limit does not arm retention at every append, but where a whole span is expired.
func TestAppendsArmRetentionForWholeSpans(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(6, catalog.Policy{})
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)}), 3) // one span of 60 bytes
	_, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxBytes: 30})
	s.NoError(err)
	s.NoError(s.world.retain(s.due(catalog.Retention)))
	s.Empty(s.store.keys("due/retention/"))
	mark := s.version(catalog.MarkKey(id))
	for range 2 { // up to 80 bytes: the span straddles the limit all the while
		s.slots(star, 1, id)
		s.absorbed(star, 1)
	}
	s.Equal(mark, s.version(catalog.MarkKey(id)))
	s.slots(star, 1, id)
	s.absorbed(star, 1)
	m := s.due(catalog.Retention)
	s.LessOrEqual(-m.Due.PastDue(s.clk.now), catalog.MinRearm)
	s.NoError(s.world.retain(m))
	s.Len(s.spans(id), 3)
}

func TestRetentionTransitionsJudgeByTheirView(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(3, catalog.Policy{MaxBytes: 1000})
	v, m := s.view(id), s.due(catalog.Retention)
	s.store.plan = []fault{lostWithEffect}
	_, err := s.cat.AdvanceWatermark(s.Context(), v, 1, 10)
	s.ErrorIs(err, catalog.ErrMoved, "its own twin: the new view shows it")
	s.ErrorIs(s.cat.RearmRetention(s.Context(), m, v, s.clk.now, 0, true), catalog.ErrMoved)
	s.ErrorIs(s.cat.ResolveRetention(s.Context(), m, v, 0), catalog.ErrMoved)
	v = s.view(id)
	s.Equal(uint64(1), v.Mark.Watermark)
	same, err := s.cat.AdvanceWatermark(s.Context(), v, 0, 0)
	s.NoError(err)
	s.Equal(v, same, "never back")

	s.slots(star, 1, id)
	s.absorbed(star, 1)
	s.ErrorIs(s.cat.RearmRetention(s.Context(), m, v, s.clk.now.Add(time.Hour), 7, false), catalog.ErrMoved, "the head moved")
	s.store.plan = []fault{lostLate}
	s.NoError(s.cat.RearmRetention(s.Context(), m, v, s.clk.now, 7, true))
	s.Zero(s.store.landAll())
	now := s.due(catalog.Retention)
	s.InDelta(catalog.MinRearm.Seconds(), time.UnixMilli(int64(now.Due.Order)).Sub(s.clk.now).Seconds(), 0.1, "at least so far ahead")
	s.Equal(uint64(7), s.view(id).Mark.NextBytes)
	s.ErrorIs(s.cat.ResolveRetention(s.Context(), m, s.view(id), 0), catalog.ErrMoved, "the mark names another marker")
	s.NoError(s.cat.ResolveStrayRetention(s.Context(), m, s.view(id)), "it is gone")
	s.NoError(s.world.killBelow(id, 1))
	s.store.plan = []fault{lostWithEffect}
	s.ErrorIs(s.cat.ResolveRetention(s.Context(), now, s.view(id), 9), catalog.ErrMoved, "its own twin")
	s.Empty(s.store.keys("due/retention/"))
	s.Equal(catalog.Mark{Watermark: 1, WatermarkBytes: 10, NextBytes: 9}, s.view(id).Mark)
}

// One stream has one retention marker, whoever arms it and however often: the earliest time wins, until a run moves it.
func TestRetentionMarkersCollapse(t *testing.T) {
	s := newSetup(t, 128)
	star, id := s.filled(1, catalog.Policy{})
	rng := rand.New(rand.NewPCG(7, 7))
	for range 60 {
		before := s.due(catalog.Retention).Due.Order
		s.clk.now = s.clk.now.Add(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		switch rng.IntN(3) {
		case 0:
			s.slots(star, 1, id)
			s.absorbed(star, 1)
		case 1:
			_, err := s.cat.TrimStream(s.Context(), id, min(s.view(id).Mark.Watermark+1, s.view(id).Head.Next))
			s.NoError(err)
		case 2:
			_, err := s.cat.SetPolicy(s.Context(), id, catalog.Policy{MaxAgeMS: int64(rng.IntN(4)) * 20_000, MaxBytes: uint64(rng.IntN(3)) * 40})
			s.NoError(err)
		}
		s.LessOrEqual(s.due(catalog.Retention).Due.Order, before)
	}
}

// rec is a record of the model, which holds every one.
type rec struct {
	ts      int64
	bytes   uint64
	highest int64  // timestamp up to here
	end     uint64 // byte position
	expired bool   // by a policy that was replaced
}

// retained is one stream and its model.
type retained struct {
	*world
	t    *rapid.T
	id   catalog.StreamID
	star *starLife
	recs []rec
	trim uint64
	p    catalog.Policy
}

func (r *retained) no(err error) {
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *retained) append(n int) {
	for range n {
		ts := r.clk.Now().UnixMilli() + int64(rapid.IntRange(-4000, 4000).Draw(r.t, "skew"))
		bytes := uint64(rapid.IntRange(0, 40).Draw(r.t, "bytes"))
		r.refresh(r.star)
		r.putSlot(r.star, 0, func(o *object) { r.recordAt(o, r.id, ts, bytes) })
		_, err := r.absorb(r.star, 1, true)
		r.no(err)
		x := rec{ts: ts, bytes: bytes, highest: ts, end: bytes}
		if k := len(r.recs); k > 0 {
			x.highest, x.end = max(ts, r.recs[k-1].highest), r.recs[k-1].end+bytes
		}
		r.recs = append(r.recs, x)
	}
}

// merge moves some adjacent spans into one object, and with that into one span.
func (r *retained) merge() {
	spans, _, err := r.cat.Spans(r.ctx, r.id, 0, 1000)
	r.no(err)
	if len(spans) < 2 {
		return
	}
	from := rapid.IntRange(0, len(spans)-2).Draw(r.t, "from")
	n := rapid.IntRange(2, min(len(spans)-from, 6)).Draw(r.t, "spans")
	p := r.publish([][]catalog.SpanAt{spans[from : from+n]})
	for range 4 {
		r.step(p, 100)
	}
}

// expired is the truth about a record, said as the requirement says it.
func (r *retained) expired(i int) bool {
	x, all := r.recs[i], r.recs[len(r.recs)-1].end
	old := r.p.MaxAgeMS > 0 && x.highest <= r.clk.Now().UnixMilli()-r.p.MaxAgeMS
	over := r.p.MaxBytes > 0 && all-x.end >= r.p.MaxBytes && all > r.p.MaxBytes
	return uint64(i) < r.trim || x.expired || old || over
}

// judge compares what a reader would serve with the truth, record by record.
func (r *retained) judge() {
	if len(r.recs) == 0 {
		return
	}
	v, err := r.cat.ReadStream(r.ctx, r.id)
	r.no(err)
	readable, err := r.cat.Readable(r.ctx, v, r.clk.Now())
	r.no(err)
	served := make([]bool, len(r.recs))
	spans, _, err := r.cat.Spans(r.ctx, r.id, readable.First, 1000)
	r.no(err)
	for i, s := range spans {
		highest, pos := s.Span.FirstTimestamp, s.Span.BytePos-s.Span.Bytes
		whole := true
		for at := s.Span.First; at <= s.Span.Last(); at++ {
			highest, pos = max(highest, r.recs[at].ts), pos+r.recs[at].bytes
			if r.recs[at].highest != highest || r.recs[at].end != pos {
				r.t.Fatalf("record %d is told as %d at %d, and is %d at %d", at, highest, pos, r.recs[at].highest, r.recs[at].end)
			}
			served[at] = at >= v.Mark.Watermark && !readable.Expired(highest, pos)
			whole = whole && !served[at]
		}
		if i == 0 && whole {
			r.t.Fatalf("the span at %d is expired as a whole, and readable is said to begin there: %+v", s.Span.First, readable)
		}
	}
	for i := range r.recs {
		if served[i] == r.expired(i) {
			r.t.Fatalf("record %d of %d: served %v, expired %v; %+v %+v at %d\n%+v", i, len(r.recs), served[i], r.expired(i), r.p, readable, r.clk.Now().UnixMilli(), r.recs)
		}
	}
	if readable.FirstBytes > 0 && readable.First > 0 && readable.FirstBytes > r.recs[readable.First-1].end {
		r.t.Fatalf("offset %d is said to be at byte %d", readable.First, readable.FirstBytes)
	}
	r.seek(v)
}

// seek compares a seek by time with a look at every record.
func (r *retained) seek(v catalog.StreamView) {
	ts := r.clk.Now().UnixMilli() - int64(rapid.IntRange(-5000, 60_000).Draw(r.t, "seek"))
	s, ok, err := r.cat.SeekTime(r.ctx, v, ts)
	r.no(err)
	want := max(slices.IndexFunc(r.recs, func(x rec) bool { return x.highest >= ts }), int(v.Mark.Watermark))
	none := r.recs[len(r.recs)-1].highest < ts || v.Mark.Watermark == v.Head.Next
	if ok == none || ok && (uint64(want) < s.Span.First || uint64(want) > s.Span.Last()) {
		r.t.Fatalf("seek of %d found %+v %v, the record is %d", ts, s.Span, ok, want)
	}
}

// run is a run of the duty: it kills all that may go, and nothing else, and is armed anew for the very
// time at which the next span goes.
func (r *retained) run() {
	keys := r.store.keys("due/retention/")
	if len(keys) == 0 {
		return
	}
	r.no(r.retain(r.marker(keys[0])))
	spans, _, err := r.cat.Spans(r.ctx, r.id, 0, 1000)
	r.no(err)
	if len(spans) == 0 {
		return
	}
	first := spans[0].Span
	if r.expired(int(first.Last())) {
		r.t.Fatalf("the span of %d to %d is expired, and was not killed", first.First, first.Last())
	}
	if first.First > 0 && !r.expired(int(first.First-1)) {
		r.t.Fatalf("record %d is not expired, and was killed", first.First-1)
	}
	v, err := r.cat.ReadStream(r.ctx, r.id)
	r.no(err)
	if next := v.Expiring(first); r.p.MaxAgeMS > 0 {
		if at := next.At.UnixMilli(); at <= r.clk.Now().UnixMilli() || at != r.recs[first.Last()].highest+r.p.MaxAgeMS {
			r.t.Fatalf("the next span expires at %d", at)
		}
	}
}

// Readers, seeks and the duty agree with a model that holds every record, for whatever timestamps and
// sizes, however the records are laid into spans, whatever policies come and go; and what has expired stays so.
func TestRetentionArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clk := newManualClock()
		store := &faultStore{Store: newMemStore(128), mirror: map[string]mirrored{}}
		w := newWorld(store, clk, catalog.New(store, clk, testTiming(), nil), t.Fatalf)
		r := &retained{world: w, t: t, id: w.createStream("s"), star: w.start("a")}
		r.append(rapid.IntRange(1, 6).Draw(t, "records"))
		for range rapid.IntRange(1, 25).Draw(t, "actions") {
			switch rapid.IntRange(0, 6).Draw(t, "action") {
			case 0, 1:
				r.append(rapid.IntRange(1, 5).Draw(t, "records"))
			case 2:
				r.merge()
			case 3:
				p := catalog.Policy{MaxAgeMS: rapid.Int64Range(0, 20_000).Draw(t, "max age"), MaxBytes: uint64(rapid.IntRange(0, 200).Draw(t, "max bytes"))}
				for i := range r.recs {
					r.recs[i].expired = r.expired(i)
				}
				_, err := w.cat.SetPolicy(w.ctx, r.id, p)
				r.no(err)
				r.p = p
			case 4:
				r.trim = max(r.trim, uint64(rapid.IntRange(0, len(r.recs)).Draw(t, "trim")))
				_, err := w.cat.TrimStream(w.ctx, r.id, r.trim)
				r.no(err)
			case 5:
				clk.now = clk.now.Add(time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms")) * time.Millisecond)
			case 6:
				r.run()
			}
			r.judge()
		}
	})
}

// A timestamp is whatever a producer says: none overflows into an expiry.
func TestFarTimestampsNeverExpire(t *testing.T) {
	s := newSetup(t, 128)
	_, id := s.filled(1, catalog.Policy{MaxAgeMS: catalog.MaxPolicyAge.Milliseconds()})
	v := s.view(id)
	s.True(v.Expiring(catalog.Span{MaxTimestamp: math.MaxInt64}).At.IsZero())
	s.False(v.Expiring(catalog.Span{MaxTimestamp: 0}).At.IsZero())
	v.Stream.Policy = catalog.Policy{MaxBytes: 10}
	s.Equal(uint64(math.MaxUint64), v.Expiring(catalog.Span{BytePos: math.MaxUint64 - 5}).Bytes)
}

package star_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

func (r *rig) setPolicy(id catalog.StreamID, p catalog.Policy) {
	r.t.Helper()
	r.run(func(ctx context.Context) {
		_, err := r.cat.SetPolicy(ctx, id, p)
		require.NoError(r.t, err)
	})
}

// settle makes one span, in an object of its own, of all the stream's records.
func (r *rig) settle(id catalog.StreamID, object string, recs []star.Record) {
	r.t.Helper()
	r.run(func(ctx context.Context) {
		spans, more, err := r.cat.Spans(ctx, id, 0, 100)
		require.NoError(r.t, err)
		require.False(r.t, more)
		w := format.NewWriter(format.KindSettled, format.Stored())
		w.Begin(uint64(id), 0)
		for _, rec := range recs {
			w.Add(rec.Timestamp, rec.Data)
		}
		body, footer, err := w.Finish()
		require.NoError(r.t, err)
		armed, err := r.cat.ArmIntent(ctx, object)
		require.NoError(r.t, err)
		require.NoError(r.t, r.bucket.Put(ctx, object, body, objstore.PutOptions{IfAbsent: true, NotAfter: armed.NotAfter}))
		out, err := r.cat.Swap(ctx, catalog.Publish{Object: object, Size: int64(len(body)), Intent: armed.Version},
			[]catalog.Run{{Stream: id, Old: spans, Section: &footer.Sections[0]}})
		require.NoError(r.t, err)
		require.Equal(r.t, len(spans), out.Placed)
	})
}

// history is what a stream must read as.
type history struct {
	recs   []star.Record
	floor  uint64 // no offset below it may be read, whatever the policy is now
	policy catalog.Policy
	bound  int64 // a former policy expired what has a running maximum up to here
}

// first is the first readable offset at a time, by the definition.
func (h *history) first(now time.Time) uint64 {
	total := uint64(0)
	for _, r := range h.recs {
		total += uint64(len(r.Data))
	}
	first, high, end := h.floor, int64(0), uint64(0)
	for i, r := range h.recs {
		high = max(high, r.Timestamp)
		end += uint64(len(r.Data))
		old := h.bound > 0 && high <= h.bound || h.policy.MaxAgeMS > 0 && high <= now.UnixMilli()-h.policy.MaxAgeMS
		// Where nothing but empty records lies before the bytes that are kept, they stay.
		beyond := h.policy.MaxBytes > 0 && total > h.policy.MaxBytes && total-end >= h.policy.MaxBytes
		if old || beyond {
			first = max(first, uint64(i)+1)
		}
	}
	return first
}

// since is the first offset whose running maximum has reached ts.
func (h *history) since(ts int64) uint64 {
	for i, r := range h.recs {
		if r.Timestamp >= ts {
			return uint64(i)
		}
	}
	return uint64(len(h.recs))
}

// Whatever was appended, trimmed, expired and settled: a read gives exactly what is readable, to the record,
// from each kind of position.
func TestReadsJudgeThePolicy(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 60})
	r := newRig(t, w, "n", func(o *star.Options) { o.TailBytes = 3000 })
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		name := fmt.Sprint("s", n)
		id := r.create(name)
		h := &history{}
		// Timestamps may go back where every span's predecessor is there to say so.
		backwards := rapid.Bool().Draw(t, "backwards")
		ts := r.clk.Now().UnixMilli() - 20_000
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var recs []star.Record
				for range rapid.IntRange(1, 12).Draw(t, "records") {
					step := rapid.Int64Range(0, 900).Draw(t, "step")
					if backwards {
						step -= 300
					}
					ts += step
					data := strings.Repeat("x", rapid.IntRange(0, 40).Draw(t, "size"))
					recs = append(recs, star.Record{Timestamp: ts, Data: []byte(data)})
				}
				h.recs = append(h.recs, recs...)
				_, err := r.append(star.AppendRequest{Name: name, Records: recs})
				require.NoError(t, err)
			},
			"settle": func(t *rapid.T) {
				if len(h.recs) > 0 {
					n++
					r.settle(id, catalog.SettledKey(fmt.Sprint(n)), h.recs)
				}
			},
			"policy": func(t *rapid.T) {
				h.floor = h.first(r.clk.Now())
				p := catalog.Policy{MaxAgeMS: rapid.SampledFrom([]int64{0, 1000, 15_000, 25_000}).Draw(t, "age")}
				if !backwards {
					p.MaxBytes = rapid.SampledFrom([]uint64{0, 1, 100, 500}).Draw(t, "bytes")
				}
				r.setPolicy(id, p)
				if h.policy != p && h.policy.MaxAgeMS > 0 {
					// Where all there is has expired, the watermark alone says so: what comes may be as old.
					old := max(h.bound, r.clk.Now().UnixMilli()-h.policy.MaxAgeMS)
					if slices.ContainsFunc(h.recs, func(rec star.Record) bool { return rec.Timestamp > old }) {
						h.bound = old
					}
				}
				h.policy = p
			},
			"trim": func(t *rapid.T) {
				if backwards || len(h.recs) == 0 {
					return
				}
				if to := rapid.Uint64Range(0, uint64(len(h.recs))).Draw(t, "to"); to > h.floor {
					h.floor = to
					r.run(func(ctx context.Context) { r.trim(ctx, id, to) })
				}
			},
			"wait": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond
				r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, d)) })
			},
			"": func(t *rapid.T) {
				end := uint64(len(h.recs))
				now := r.clk.Now()
				first := h.first(now)
				from := rapid.Uint64Range(0, end).Draw(t, "from")
				back := rapid.Uint64Range(1, end+1).Draw(t, "back")
				at := ts - rapid.Int64Range(-100, 8000).Draw(t, "ago")
				for _, c := range []struct {
					req  star.ReadRequest
					want uint64
				}{
					{star.ReadRequest{Start: true}, first},
					{star.ReadRequest{Tail: true}, end},
					{star.ReadRequest{From: from}, from},
					{star.ReadRequest{Back: back}, max(first, end-min(back, end))},
					{star.ReadRequest{Since: time.UnixMilli(at)}, max(first, h.since(at))},
				} {
					c.req.Name = name
					res, err := r.read(c.req)
					require.Equal(t, now, r.clk.Now(), "reads take no time in this world")
					if c.want < first {
						var trimmed *star.TrimmedError
						require.ErrorAs(t, err, &trimmed)
						require.Equal(t, star.TrimmedError{Stream: id, From: from, First: first}, *trimmed)
						continue
					}
					require.NoError(t, err, "%+v", c.req)
					require.Equal(t, c.want, res.First, "%+v", c.req)
					require.Equal(t, end, res.Next)
					require.Len(t, res.Records, int(end-c.want))
					for i, rec := range res.Records {
						require.Equal(t, h.recs[int(c.want)+i].Timestamp, rec.Timestamp)
					}
				}
			},
		})
	})
}

// The span of which some records are expired is trimmed and gone once it is to be looked at, while the star's memory has its
// records still: what had expired when the read began is not served.
func TestBoundarySpanGoesUnderARead(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 8217}), "n", nil)
	id := r.create("s")
	r.mustAppend("s", numbers(0, 5)...)
	r.mustAppend("s", numbers(5, 10)...)
	r.setPolicy(id, catalog.Policy{MaxBytes: 7})
	scans := 0
	r.store.scan = func(ctx context.Context, _ metastore.Range) {
		if scans++; scans != 2 { // the first is the search for that span
			return
		}
		r.trim(ctx, id, 5)
		_, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.SpanKey(id, 4))}})
		require.NoError(t, err)
	}
	res, err := r.read(star.ReadRequest{Name: "s", Start: true})
	require.NoError(t, err)
	require.Equal(t, uint64(5), res.First)
	require.Equal(t, numbers(5, 10), texts(res.Records))
	require.Equal(t, 1, r.events.branches["star.read.position"])
}

// What came after the head was read does not count: nothing is readable where all that it tells of is expired and gone.
func TestFirstOffsetIsNotBeyondTheHead(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 8218}), "n", nil)
	id := r.create("s")
	r.mustAppend("s", numbers(0, 5)...)
	r.setPolicy(id, catalog.Policy{MaxBytes: 3})
	var view catalog.StreamView
	r.run(func(ctx context.Context) {
		var err error
		view, err = r.cat.ReadStream(ctx, id)
		require.NoError(t, err)
	})
	r.mustAppend("s", numbers(5, 10)...)
	r.mustAppend("s", numbers(10, 15)...)
	r.run(func(ctx context.Context) {
		r.trim(ctx, id, 10)
		_, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.SpanKey(id, 4)), metastore.Delete(catalog.SpanKey(id, 9))}})
		require.NoError(t, err)
		first, err := r.star.FirstOffset(ctx, view)
		require.NoError(t, err)
		require.Equal(t, view.Head.Next, first)
	})
}

// A reader that pages through a boundary span does not decode its expired part for every page.
func TestExpiredPartIsScannedOnce(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 61}), "n", noTail)
	id := r.create("s")
	recs := make([]star.Record, 4000)
	for i := range recs {
		recs[i] = star.Record{Timestamp: int64(i + 1), Data: make([]byte, 4000)}
	}
	for i := range 16 {
		_, err := r.append(star.AppendRequest{Stream: id, Records: recs[250*i : 250*i+250]})
		require.NoError(t, err)
	}
	r.settle(id, catalog.SettledKey("01"), recs)
	r.setPolicy(id, catalog.Policy{MaxBytes: 8_000_000})
	fetched := int64(0)
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		fetched += n
		return get()
	}
	res, err := r.read(star.ReadRequest{Name: "s", Start: true, MaxRecords: 10})
	require.NoError(t, err)
	require.Equal(t, uint64(2000), res.First)
	require.Greater(t, fetched, int64(8_000_000), "it looks once")
	fetched = 0
	for range 10 {
		res, err = r.read(star.ReadRequest{Stream: id, From: res.Next, MaxRecords: 10})
		require.NoError(t, err)
	}
	require.Less(t, fetched, int64(8_000_000))
	_, err = r.read(star.ReadRequest{Stream: id, From: 1999})
	var trimmed *star.TrimmedError
	require.ErrorAs(t, err, &trimmed)
	require.Equal(t, uint64(2000), trimmed.First)
}

// Timestamps went back behind a span whose maximum still counts: nothing of the next span is
// expired before that maximum is, and a seek to a time between them finds the next span's first record.
func TestExpiryGoesByTheRunningMaximum(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 62}), "n", noTail)
	id := r.create("s")
	now := r.clk.Now().UnixMilli()
	for _, ts := range [][]int64{{now}, {now - 9000, now - 8000}, {now - 7000}} {
		var recs []star.Record
		for _, t := range ts {
			recs = append(recs, star.Record{Timestamp: t, Data: []byte("x")})
		}
		_, err := r.append(star.AppendRequest{Stream: id, Records: recs})
		require.NoError(t, err)
	}
	r.run(func(ctx context.Context) { r.trim(ctx, id, 1) })
	r.setPolicy(id, catalog.Policy{MaxAgeMS: 5000})
	res, err := r.read(star.ReadRequest{Stream: id, Start: true})
	require.NoError(t, err)
	require.Equal(t, uint64(1), res.First)
	require.Len(t, res.Records, 3)
	res, err = r.read(star.ReadRequest{Stream: id, Since: time.UnixMilli(now - 8500)})
	require.NoError(t, err)
	require.Equal(t, uint64(1), res.First)
}

// Records may say that they are old: the marker that their append arms ripens when they expire, not a max age later. What has
// expired on arrival goes with the next multiple of catalog.MinRearm.
func TestRetentionIsArmedForWhenOldRecordsExpire(t *testing.T) {
	for name, c := range map[string]struct{ old, least, most time.Duration }{
		"expired": {2 * time.Hour, 0, catalog.MinRearm},
		"soon":    {59 * time.Minute, time.Minute - time.Second, time.Minute + catalog.MinRearm},
		"new":     {0, time.Hour, time.Hour + catalog.MarkerBucket},
		"future":  {-time.Hour, time.Hour, time.Hour + catalog.MarkerBucket},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 63}), "n", noTail)
			var id catalog.StreamID
			r.run(func(ctx context.Context) {
				v, _, err := r.cat.CreateStream(ctx, "s", catalog.Policy{MaxAgeMS: time.Hour.Milliseconds()})
				require.NoError(t, err)
				id = v.ID
			})
			now := r.clk.Now()
			_, err := r.append(star.AppendRequest{Stream: id, Records: []star.Record{{Timestamp: now.Add(-c.old).UnixMilli(), Data: []byte("x")}}})
			require.NoError(t, err)
			mark, err := catalog.DecodeMark(r.w.StoreView().Get(catalog.MarkKey(id)).Value)
			require.NoError(t, err)
			due, err := catalog.ParseDue(mark.RetentionKey)
			require.NoError(t, err)
			in := time.UnixMilli(int64(due.Order)).Sub(now)
			require.GreaterOrEqual(t, in, c.least)
			require.LessOrEqual(t, in, c.most+time.Second, "the append took a moment")
		})
	}
}

package star_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

func noTail(o *star.Options) { o.TailBytes = -1 }

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// Reads give the same whether the records come from memory or from the bucket.
func TestReadLimits(t *testing.T) {
	for name, change := range map[string]func(*star.Options){
		"tail": nil, "bucket": noTail, "both": func(o *star.Options) { o.TailBytes = 2000 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 40}), "n", change)
			id := r.create("s")
			for i := range 10 {
				r.mustAppend("s", numbers(10*i, 10*i+10)...)
			}
			require.Equal(t, numbers(0, 100), r.all("s"))
			for _, c := range []struct {
				req  star.ReadRequest
				want []string
			}{
				{star.ReadRequest{From: 37, MaxRecords: 5}, numbers(37, 42)},
				{star.ReadRequest{From: 98}, numbers(98, 100)},
				{star.ReadRequest{From: 100}, nil},
				{star.ReadRequest{Tail: true}, nil},
				{star.ReadRequest{Back: 7}, numbers(93, 100)},
				{star.ReadRequest{Back: 7000, MaxRecords: 2}, numbers(0, 2)},
				{star.ReadRequest{From: 10, MaxBytes: 9}, numbers(10, 14)},
				{star.ReadRequest{From: 10, MaxBytes: 1}, numbers(10, 11)},
			} {
				c.req.Name = "s"
				res, err := r.read(c.req)
				require.NoError(t, err)
				require.Equal(t, c.want, texts(res.Records), "%+v", c.req)
				require.Equal(t, id, res.Stream)
				require.Equal(t, uint64(100), res.End)
				require.Equal(t, res.First+uint64(len(c.want)), res.Next)
			}
			_, err := r.read(star.ReadRequest{Name: "s", From: 101})
			require.ErrorIs(t, err, star.ErrBeyondEnd)
			var beyond *star.BeyondEndError
			require.ErrorAs(t, err, &beyond)
			require.Equal(t, uint64(100), beyond.Next)
			_, err = r.read(star.ReadRequest{Name: "none"})
			require.ErrorIs(t, err, catalog.ErrNoStream)
		})
	}
}

// What a read gives is the caller's: nobody sees what he does with it.
func TestReadBuffersAreTheCallers(t *testing.T) {
	for name, change := range map[string]func(*star.Options){"tail": nil, "bucket": noTail} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 41}), "n", change)
			r.create("s")
			r.mustAppend("s", "one", "two", "three")
			res, err := r.read(star.ReadRequest{Name: "s"})
			require.NoError(t, err)
			for i := range res.Records {
				res.Records[i].Data = append(res.Records[i].Data, "more"...)
				for j := range res.Records[i].Data {
					res.Records[i].Data[j] = '!'
				}
			}
			require.Equal(t, []string{"one", "two", "three"}, r.all("s"))
		})
	}
}

func TestReadAgreesWithAModel(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 42})
	r := newRig(t, w, "n", func(o *star.Options) { o.TailBytes, o.Codec = 20_000, format.Zstd() })
	stream := 0
	rapid.Check(t, func(t *rapid.T) {
		stream++
		name := fmt.Sprint("s", stream)
		r.create(name)
		var model []string
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "appends") {
			var data []string
			for range n {
				data = append(data, strings.Repeat(fmt.Sprint(len(model)+len(data), "-"), rapid.IntRange(0, 60).Draw(t, "size")))
			}
			r.mustAppend(name, data...)
			model = append(model, data...)
		}
		for range 5 {
			req := star.ReadRequest{Name: name, From: uint64(rapid.IntRange(0, len(model)).Draw(t, "from")),
				MaxRecords: rapid.IntRange(0, 50).Draw(t, "records"), MaxBytes: int64(rapid.IntRange(0, 3000).Draw(t, "bytes"))}
			res, err := r.read(req)
			require.NoError(t, err)
			var want []string
			bytes := int64(0)
			for _, d := range model[req.From:] {
				bytes += int64(len(d))
				if len(want) > 0 && req.MaxBytes > 0 && bytes > req.MaxBytes || req.MaxRecords > 0 && len(want) == req.MaxRecords {
					break
				}
				want = append(want, d)
			}
			require.Equal(t, want, texts(res.Records))
		}
	})
}

// Two stars on one stream: each tail window holds only a part of the offsets.
func TestTailWindowWithHoles(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 43})
	a := newRig(t, w, "a", nil)
	b := newRig(t, w, "b", func(o *star.Options) { o.Name = "b" })
	a.create("s")
	var want []string
	for i := range 20 {
		r := a
		if i%3 == 1 {
			r = b
		}
		want = append(want, fmt.Sprint(i))
		require.Equal(t, uint64(i), r.mustAppend("s", want[i]).First)
	}
	require.Equal(t, want, a.all("s"))
	require.Equal(t, want, b.all("s"))
}

// trim moves the stream's watermark.
func (r *rig) trim(ctx context.Context, id catalog.StreamID, to uint64) {
	_, err := r.cat.TrimStream(ctx, id, to)
	require.NoError(r.t, err)
}

func TestTrimmed(t *testing.T) {
	for name, change := range map[string]func(*star.Options){"tail": nil, "bucket": noTail} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 44}), "n", change)
			id := r.create("s")
			r.mustAppend("s", numbers(0, 10)...)
			r.run(func(ctx context.Context) { r.trim(ctx, id, 4) })
			_, err := r.read(star.ReadRequest{Name: "s", From: 3})
			require.ErrorIs(t, err, star.ErrTrimmed)
			var trimmed *star.TrimmedError
			require.ErrorAs(t, err, &trimmed)
			require.Equal(t, star.TrimmedError{Stream: id, From: 3, First: 4}, *trimmed)
			res, err := r.read(star.ReadRequest{Name: "s", Back: 9})
			require.NoError(t, err)
			require.Equal(t, numbers(4, 10), texts(res.Records))
			require.Equal(t, uint64(4), res.Watermark)
		})
	}
}

// Trimmed between the read of the stream's records and the seek: no corruption.
func TestTrimmedUnderARead(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 45}), "n", noTail)
	id := r.create("s")
	r.mustAppend("s", numbers(0, 5)...)
	r.mustAppend("s", numbers(5, 10)...)
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		r.bucket.get = nil
		r.trim(ctx, id, 5)
		_, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.SpanKey(id, 4))}})
		require.NoError(t, err)
		return nil, objstore.ErrNotFound
	}
	_, err := r.read(star.ReadRequest{Name: "s", MaxRecords: 1})
	var trimmed *star.TrimmedError
	require.ErrorAs(t, err, &trimmed)
	require.Equal(t, uint64(5), trimmed.First)
}

func TestHoleIsReported(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 46}), "n", noTail)
	id := r.create("s")
	for i := range 3 {
		r.mustAppend("s", numbers(5*i, 5*i+5)...)
	}
	r.run(func(ctx context.Context) {
		_, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Delete(catalog.SpanKey(id, 9))}})
		require.NoError(t, err)
	})
	res, err := r.read(star.ReadRequest{Name: "s"})
	require.NoError(t, err, "what lies before it is readable")
	require.Equal(t, numbers(0, 5), texts(res.Records))
	require.Equal(t, uint64(5), res.Next)
	_, err = r.read(star.ReadRequest{Name: "s", From: res.Next})
	require.ErrorIs(t, err, catalog.ErrCorruptValue)
	res, err = r.read(star.ReadRequest{Name: "s", From: 10})
	require.NoError(t, err)
	require.Equal(t, numbers(10, 15), texts(res.Records))
}

func TestCorruptObjectIsNamed(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 47}), "n", noTail)
	r.create("s")
	r.mustAppend("s", "good")
	r.mustAppend("s", "damaged")
	bad, gets := r.slot(1), 0
	forever := false
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		body, err := get()
		if key != bad || err != nil {
			return body, err
		}
		if gets++; forever || gets == 1 {
			body = slices.Clone(body)
			body[len(body)-1] ^= 1
		}
		return body, nil
	}
	require.Equal(t, []string{"good", "damaged"}, r.all("s"), "damaged once, on its way")
	forever = true
	res, err := r.read(star.ReadRequest{Name: "s"})
	require.NoError(t, err)
	require.Equal(t, []string{"good"}, texts(res.Records))
	gets = 0
	_, err = r.read(star.ReadRequest{Name: "s", From: res.Next})
	var corrupt *format.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, bad, corrupt.Object)
	require.Equal(t, 2, gets)
}

func TestMissingObjectIsNamed(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 48}), "n", noTail)
	r.create("s")
	r.mustAppend("s", "x")
	r.run(func(ctx context.Context) { require.NoError(t, r.bucket.Delete(ctx, []string{r.slot(0)})[0]) })
	_, err := r.read(star.ReadRequest{Name: "s"})
	var corrupt *format.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, r.slot(0), corrupt.Object)
}

// The slot is settled and deleted between the seek and the fetch.
func TestReadFollowsASwap(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 49}), "n", noTail)
	id := r.create("s")
	r.mustAppend("s", numbers(0, 5)...)
	r.mustAppend("s", numbers(5, 10)...)
	settled := catalog.SettledKey("01")
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		r.bucket.get = nil
		spans, _, err := r.cat.Spans(ctx, id, 0, 8)
		require.NoError(t, err)
		w := format.NewWriter(format.KindSettled, format.Stored())
		w.Begin(uint64(id), 0)
		for i, d := range numbers(0, 10) {
			w.Add(int64(i), []byte(d))
		}
		body, footer, err := w.Finish()
		require.NoError(t, err)
		armed, err := r.cat.ArmIntent(ctx, settled)
		require.NoError(t, err)
		require.NoError(t, r.bucket.Put(ctx, settled, body, objstore.PutOptions{IfAbsent: true, NotAfter: armed.NotAfter}))
		out, err := r.cat.Swap(ctx, catalog.Publish{Object: settled, Size: int64(len(body)), Intent: armed.Version},
			[]catalog.Run{{Stream: id, Old: spans, Section: &footer.Sections[0]}})
		require.NoError(t, err)
		require.Equal(t, 2, out.Placed)
		for _, err := range r.bucket.Delete(ctx, []string{r.slot(0), r.slot(1)}) {
			require.NoError(t, err)
		}
		return get()
	}
	res, err := r.read(star.ReadRequest{Name: "s", From: 3})
	require.NoError(t, err)
	require.Equal(t, numbers(3, 10), texts(res.Records))
	require.Equal(t, 1, r.events.branches["star.read.moved"])
	require.Equal(t, numbers(0, 10), r.all("s"))
}

// A big span is read in pieces that its object's footer finds.
func TestBigSpanIsReadInPieces(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 50}), "n", noTail)
	id := r.create("s")
	rnd := rand.New(rand.NewPCG(1, 2))
	var recs []star.Record
	var want []string
	for i := range 200 {
		data := make([]byte, 24_000+rnd.IntN(10_000))
		for j := range data {
			data[j] = byte(i + j)
		}
		recs = append(recs, star.Record{Timestamp: int64(i), Data: data})
		want = append(want, string(data))
	}
	_, err := r.append(star.AppendRequest{Stream: id, Records: recs})
	require.NoError(t, err)
	largest := 0
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		body, err := get()
		largest = max(largest, len(body))
		return body, err
	}
	res, err := r.read(star.ReadRequest{Name: "s", From: 131, MaxRecords: 3})
	require.NoError(t, err)
	require.True(t, slices.Equal(want[131:134], texts(res.Records)))
	res, err = r.read(star.ReadRequest{Name: "s", From: 100, MaxBytes: 100_000})
	require.NoError(t, err)
	require.True(t, slices.Equal(want[100:100+len(res.Records)], texts(res.Records)))
	require.GreaterOrEqual(t, len(res.Records), 3)
	res, err = r.read(star.ReadRequest{Name: "s", MaxBytes: 64 << 20})
	require.NoError(t, err)
	require.True(t, slices.Equal(want, texts(res.Records)))
	require.LessOrEqual(t, largest, 4<<20, "never the whole span at once")
}

// A read that is given up has ended all that it began.
func TestReadThatIsGivenUpLeavesNothing(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 51}), "n", noTail)
	id := r.create("s")
	for i := range 6 {
		_, err := r.append(star.AppendRequest{Stream: id, Records: []star.Record{{Data: []byte{byte(i)}}}})
		require.NoError(t, err)
	}
	begun, running := 0, 0
	r.bucket.get = func(ctx context.Context, key string, off, n int64, get func() ([]byte, error)) ([]byte, error) {
		begun++
		running++
		defer func() { running-- }()
		_ = r.clk.Sleep(ctx, time.Minute)
		_ = r.clk.Sleep(context.WithoutCancel(ctx), time.Second) // what has begun in a directory goes on
		return nil, ctx.Err()
	}
	r.run(func(ctx context.Context) {
		ctx, cancel := r.clk.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := r.star.Read(ctx, star.ReadRequest{Name: "s", MaxRecords: 100})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Greater(t, begun, 1)
		require.Zero(t, running)
	})
}

// The bucket's readers may fail for a while; a page of the catalog may be short.
func TestReadThroughFaults(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 51})
	r := newRig(t, w, "n", noTail)
	r.create("s")
	for i := range 30 {
		r.mustAppend("s", numbers(10*i, 10*i+10)...)
	}
	w.SetFaults(sim.Faults{ScanShort: 0.4, BucketThrottle: 0.1, BucketReadError: 0.1, BucketLatency: sim.Latency{Base: time.Millisecond, Jitter: time.Millisecond}})
	require.Equal(t, numbers(0, 300), r.all("s"))
}

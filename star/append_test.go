package star_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// worlds runs a test in both worlds.
func worlds(t *testing.T, f func(t *testing.T, w *sim.World)) {
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprintf("embedded=%v", embedded), func(t *testing.T) {
			f(t, newWorld(t, sim.Config{Seed: 1, Embedded: embedded}))
		})
	}
}

func TestAcknowledgedAfterAbsorb(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", nil)
		id := r.create("s")
		release, held := r.holdAbsorbs()
		a := r.begin(star.AppendRequest{Name: "s", Records: records("x", "y")})
		r.until(func() bool { return *held == 1 })
		w.RunFor(time.Second)
		require.True(t, w.BucketView().Has(r.slot(0)), "durable")
		require.False(t, a.done, "and yet not acknowledged")
		head, err := catalog.DecodeHead(w.StoreView().Get(catalog.HeadKey(id)).Value)
		require.NoError(t, err)
		require.Zero(t, head.Next)

		release()
		r.wait(a)
		require.NoError(t, a.err)
		require.Equal(t, star.AppendResult{Stream: id, First: 0, Last: 1, OffsetsKnown: true}, a.res)
		require.Equal(t, []string{"x", "y"}, r.all("s"))
	})
}

func TestFlightGathersManyStreams(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 2}), "n", nil)
	names := []string{"s0", "s1", "s2", "s3", "s4"}
	r.create(names...)
	release, held := r.holdPuts()
	first := r.begin(star.AppendRequest{Name: "s0", Records: records("lone")})
	r.until(func() bool { return *held == 1 })
	as := []*answer{first}
	for i := range 20 {
		as = append(as, r.begin(star.AppendRequest{Name: names[i%5], Records: records(fmt.Sprint(i))}))
	}
	r.until(func() bool { return *held == 2 })
	release()
	r.wait(as...)
	require.Equal(t, 2, r.events.departed, "a lone append leaves at once, what came meanwhile leaves together")
	body, ok := r.w.BucketView().Get(r.slot(1))
	require.True(t, ok)
	f, err := format.Parse(body)
	require.NoError(t, err)
	require.Len(t, f.Sections, 5)
	for _, a := range as {
		require.NoError(t, a.err)
	}
	require.Len(t, r.all("s0"), 5)
	require.Len(t, r.all("s4"), 4)
}

func TestOrderIsThatOfTheAppends(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 3, Faults: sim.Faults{
		BucketLatency: sim.Latency{Base: time.Millisecond, Jitter: 40 * time.Millisecond, Tail: 3},
	}})
	r := newRig(t, w, "n", func(o *star.Options) { o.FlightBytes = 300 })
	id := r.create("s")
	var taken []string
	answers := make([]*answer, 100)
	for i := range answers {
		answers[i] = &answer{}
		r.inc.Go("append", func(ctx context.Context) {
			require.NoError(t, r.clk.Sleep(ctx, time.Duration(r.clk.Rand()%uint64(50*time.Millisecond))))
			text := fmt.Sprint(i)
			taken = append(taken, text)
			answers[i].res, answers[i].err = r.star.Append(ctx, star.AppendRequest{Stream: id, Records: records(text)})
			answers[i].done = true
		})
	}
	r.wait(answers...)
	require.Greater(t, r.events.departed, 20)
	require.Equal(t, taken, r.all("s"))
	for i, a := range answers {
		require.NoError(t, a.err)
		require.Equal(t, fmt.Sprint(i), taken[a.res.First])
	}
}

func TestWindowIsNeverExceeded(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 4, Faults: sim.Faults{
		BucketLatency: sim.Latency{Base: 5 * time.Millisecond, Jitter: 200 * time.Millisecond, Tail: 4},
	}})
	r := newRig(t, w, "n", func(o *star.Options) { o.Window, o.FlightBytes = 4, 1 })
	r.create("s")
	var as []*answer
	for i := range 60 {
		as = append(as, r.begin(star.AppendRequest{Name: "s", Records: records(fmt.Sprint(i))}))
	}
	r.wait(as...)
	require.Equal(t, 60, r.events.departed)
	require.Equal(t, uint64(3), r.events.ahead, "the window is used, and kept")
	require.Len(t, r.all("s"), 60)
}

func TestFlightsFitOneCommit(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 5, MaxOps: 32}), "n", nil)
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	r.create(names...)
	release, held := r.holdPuts()
	as := []*answer{r.begin(star.AppendRequest{Name: "s0", Records: records("first")})}
	r.until(func() bool { return *held == 1 })
	for i := range 48 {
		as = append(as, r.begin(star.AppendRequest{Name: names[i%12], Records: records("x"), Expected: ptr(uint64(7))}))
	}
	w := r.w
	w.RunFor(time.Second)
	release()
	r.wait(as...)
	require.NoError(t, as[0].err)
	for _, a := range as[1:] {
		require.ErrorIs(t, a.err, star.ErrWrongOffset)
	}
	require.Empty(t, r.events.fenced)
}

func TestExpectedOffset(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", nil)
		id := r.create("s")
		_, err := r.append(star.AppendRequest{Name: "s", Records: records("a", "b"), Expected: ptr(uint64(0))})
		require.NoError(t, err)
		_, err = r.append(star.AppendRequest{Name: "s", Records: records("no"), Expected: ptr(uint64(1))})
		require.ErrorIs(t, err, star.ErrWrongOffset)
		var wrong *star.WrongOffsetError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, star.WrongOffsetError{Stream: id, Expected: 1, Next: 2}, *wrong)
		res, err := r.append(star.AppendRequest{Name: "s", Records: records("c"), Expected: ptr(uint64(2))})
		require.NoError(t, err)
		require.Equal(t, uint64(2), res.First)
		require.Equal(t, []string{"a", "b", "c"}, r.all("s"))
	})
}

func TestProducers(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 6}), "n", nil)
	id := r.create("s")
	send := func(who string, epoch uint32, seq uint64, data string) (star.AppendResult, error) {
		return r.append(star.AppendRequest{Name: "s", Records: records(data), Producer: &format.Producer{ID: who, Epoch: epoch, Seq: seq}})
	}
	for seq := range uint64(3) {
		res, err := send("p", 1, seq, fmt.Sprint("p", seq))
		require.NoError(t, err)
		require.Equal(t, star.AppendResult{Stream: id, First: seq, Last: seq, OffsetsKnown: true}, res)
	}
	res, err := send("p", 1, 2, "p2")
	require.NoError(t, err)
	require.Equal(t, star.AppendResult{Stream: id, First: 2, Last: 2, OffsetsKnown: true, Duplicate: true}, res)
	res, err = send("p", 1, 0, "p0")
	require.NoError(t, err)
	require.Equal(t, star.AppendResult{Stream: id, Duplicate: true}, res)
	_, err = send("p", 1, 4, "p4")
	require.ErrorIs(t, err, star.ErrProducerGap)
	var gap *star.ProducerGapError
	require.ErrorAs(t, err, &gap)
	require.Equal(t, uint64(3), gap.Next)
	_, err = send("p", 0, 3, "old")
	require.ErrorIs(t, err, star.ErrProducerFenced)
	_, err = send("unknown", 0, 5, "x")
	require.ErrorIs(t, err, star.ErrProducerLost)
	require.ErrorIs(t, err, star.ErrOutcomeUnknown)

	// 64 others push p out. A first append that began before that may have been
	// absorbed; one that begins now is new.
	for i := range 64 {
		_, err = send(fmt.Sprint("q", i), 0, 0, "q")
		require.NoError(t, err)
	}
	old := star.AppendRequest{Name: "s", Records: records("p0"), Producer: &format.Producer{ID: "p", Epoch: 1}, SinceKnown: true}
	_, err = r.append(old)
	require.ErrorIs(t, err, star.ErrProducerLost)
	old.SinceKnown = false
	res, err = r.append(old)
	require.NoError(t, err)
	require.Equal(t, uint64(67), res.First)
	require.Len(t, r.all("s"), 68)
}

func TestRefusedAtTheDoor(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 7}), "n", func(o *star.Options) { o.MaxRecordBytes, o.FlightBytes = 100, 200 })
	r.create("s")
	for _, c := range []struct {
		req  star.AppendRequest
		want error
	}{
		{star.AppendRequest{Name: "s"}, star.ErrBadRequest},
		{star.AppendRequest{Name: "missing", Records: records("x")}, catalog.ErrNoStream},
		{star.AppendRequest{Name: "!", Records: records("x")}, catalog.ErrBadName},
		{star.AppendRequest{Stream: 99, Records: records("x")}, catalog.ErrNoStream},
		{star.AppendRequest{Name: "s", Records: records("x", strings.Repeat("x", 101))}, star.ErrTooLarge},
		{star.AppendRequest{Name: "s", Records: records(strings.Repeat("x", 100), strings.Repeat("x", 100), "x")}, star.ErrTooLarge},
		{star.AppendRequest{Name: "s", Records: records("x"), Producer: &format.Producer{}}, star.ErrBadRequest},
		{star.AppendRequest{Name: "s", Records: records("x"), Producer: &format.Producer{ID: strings.Repeat("p", 129)}}, star.ErrBadRequest},
	} {
		_, err := r.append(c.req)
		require.ErrorIs(t, err, c.want)
	}
	require.Empty(t, r.all("s"))
	r.mustAppend("s", strings.Repeat("x", 100), strings.Repeat("x", 100))
}

func TestNameLeadsToANewStream(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 8}), "n", nil)
	old := r.create("s")
	r.mustAppend("s", "old")
	// The stream is deleted and another takes the name, behind the star's back.
	r.run(func(ctx context.Context) {
		v, err := r.cat.ReadStream(ctx, old)
		require.NoError(t, err)
		v.Stream.State = catalog.StreamDeleted
		_, err = r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{
			metastore.Put(catalog.StreamKey(old), encodeStream(v.Stream)), metastore.Delete(catalog.NameKey("s"))}})
		require.NoError(t, err)
	})
	_, err := r.append(star.AppendRequest{Stream: old, Records: records("x")})
	require.ErrorIs(t, err, catalog.ErrNoStream)
	_, err = r.append(star.AppendRequest{Name: "s", Records: records("x")})
	require.ErrorIs(t, err, catalog.ErrNoStream)
	_, err = r.read(star.ReadRequest{Name: "s"})
	require.ErrorIs(t, err, catalog.ErrNoStream)
	r.create("s")
	res := r.mustAppend("s", "new")
	require.NotEqual(t, old, res.Stream)
	require.Equal(t, []string{"new"}, r.all("s"))
}

func TestOverload(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 9}), "n", func(o *star.Options) { o.Window, o.FlightBytes = 2, 1 })
	r.create("s")
	release, held := r.holdAbsorbs()
	var as []*answer
	for i := range 10 {
		as = append(as, r.begin(star.AppendRequest{Name: "s", Records: records(fmt.Sprint(i))}))
	}
	r.until(func() bool { return *held == 1 })
	r.w.RunFor(time.Second)
	_, head, _ := r.star.Chain()
	require.Equal(t, uint64(8), head, "4 W slots, and no more, wait to be absorbed")
	_, err := r.append(star.AppendRequest{Name: "s", Records: records("x")})
	require.ErrorIs(t, err, star.ErrOverloaded)
	release()
	r.wait(as...)
	for _, a := range as {
		require.NoError(t, a.err)
	}
	r.mustAppend("s", "10")
	require.Len(t, r.all("s"), 11)
}

func TestPendingBytesAreBounded(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 10}), "n", func(o *star.Options) { o.MaxPendingBytes = 2000 })
	r.create("s")
	release, held := r.holdPuts()
	big := r.begin(star.AppendRequest{Name: "s", Records: records(strings.Repeat("x", 5000))})
	r.until(func() bool { return *held == 1 })
	_, err := r.append(star.AppendRequest{Name: "s", Records: records("x")})
	require.ErrorIs(t, err, star.ErrOverloaded)
	release()
	r.wait(big)
	require.NoError(t, big.err, "a lone append is taken whatever its size")
	r.mustAppend("s", "x")
}

func TestCallerGoesAway(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", func(o *star.Options) { o.Window = 1 })
		r.create("s")
		release, held := r.holdPuts()
		impatient := func(data string) *answer {
			a := &answer{}
			r.inc.Go("append", func(ctx context.Context) {
				ctx, cancel := r.clk.WithTimeout(ctx, time.Second)
				defer cancel()
				a.res, a.err = r.star.Append(ctx, star.AppendRequest{Name: "s", Records: records(data)})
				a.done = true
			})
			return a
		}
		flown := impatient("flown")
		r.until(func() bool { return *held == 1 })
		queued := impatient("queued")
		r.wait(flown, queued)
		require.ErrorIs(t, flown.err, star.ErrOutcomeUnknown)
		require.ErrorIs(t, flown.err, context.DeadlineExceeded)
		require.ErrorIs(t, queued.err, context.DeadlineExceeded)
		require.NotErrorIs(t, queued.err, star.ErrOutcomeUnknown)
		release()
		r.mustAppend("s", "last")
		require.Equal(t, []string{"flown", "last"}, r.all("s"))
	})
}

func TestRecordsKeepTimestamps(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 11}), "n", nil)
	r.create("s")
	_, err := r.append(star.AppendRequest{Name: "s", Records: []star.Record{{Timestamp: -5, Data: []byte("a")}, {Data: nil}}})
	require.NoError(t, err)
	now := r.w.Time().UnixMilli()
	for _, tail := range []bool{true, false} {
		if !tail {
			r.inc.Kill()
			r = newRig(t, r.w, "n", nil)
		}
		res, err := r.read(star.ReadRequest{Name: "s"})
		require.NoError(t, err)
		require.Equal(t, int64(-5), res.Records[0].Timestamp)
		require.InDelta(t, now, res.Records[1].Timestamp, 1000, "the star's time stands in for none")
		require.Equal(t, []string{"a", ""}, texts(res.Records))
	}
}

// A lone client never waits; several that append in a closed loop leave together.
func TestLinger(t *testing.T) {
	for _, clients := range []int{1, 8} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			const each = 50
			w := newWorld(t, sim.Config{Seed: 12, Faults: sim.Faults{
				BucketLatency: sim.Latency{Base: time.Millisecond}, StoreLatency: sim.Latency{Base: 200 * time.Microsecond},
			}})
			r := newRig(t, w, "n", nil)
			id := r.create("s")
			start := w.Time()
			left := clients
			for range clients {
				r.inc.Go("client", func(ctx context.Context) {
					for range each {
						_, err := r.star.Append(ctx, star.AppendRequest{Stream: id, Records: records("x")})
						require.NoError(t, err)
					}
					left--
				})
			}
			r.until(func() bool { return left == 0 })
			if clients == 1 {
				require.Equal(t, each, r.events.departed)
				require.Less(t, w.Time().Sub(start), each*5*time.Millisecond, "a PUT takes 2 ms, a lingering flight 5")
				return
			}
			require.Less(t, r.events.departed, each+10)
		})
	}
}

// Nobody audits: what a chain owes grows beyond any bound, and appends and reads go on as ever. None of the auditor's
// code is in the foreground, so that nothing of it can be waited for.
func TestTheForegroundNeedsNoAuditor(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 41}), "n", nil)
	r.create("s")
	big := strings.Repeat("x", 200<<10)
	var first, last time.Duration
	for i := range 40 {
		start := r.w.Elapsed()
		r.mustAppend("s", big)
		last = r.w.Elapsed() - start
		if i == 0 {
			first = last
		}
		res, err := r.read(star.ReadRequest{Name: "s", Back: 1})
		require.NoError(t, err)
		require.Len(t, res.Records, 1)
	}
	require.Equal(t, first, last, "an append takes as long with 8 MB owed, at a limit of 1, as with nothing")
	require.Len(t, r.all("s"), 40)

	pkgs, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedDeps}, ".", "../api/service")
	require.NoError(t, err)
	require.Len(t, pkgs, 2)
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		require.NotEqual(t, "github.com/nova-store/nova/auditor", p.PkgPath)
	})
}

// A stream whose head does not decode refuses appends, for as long as that is so: the star goes on, and
// so do the other streams, in one flight with it or not.
func TestUnreadableHead(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 13}), "n", nil)
	r.create("good")
	bad := r.create("bad")
	put := func(value []byte) {
		r.run(func(ctx context.Context) {
			_, err := r.store.Commit(ctx, metastore.Batch{Ops: []metastore.Op{metastore.Put(catalog.HeadKey(bad), value)}})
			require.NoError(t, err)
		})
	}
	sound := r.w.StoreView().Get(catalog.HeadKey(bad)).Value
	put([]byte{1, 0xff})
	release, held := r.holdPuts()
	first := r.begin(star.AppendRequest{Name: "good", Records: records("0")})
	r.until(func() bool { return *held == 1 })
	var refused []*answer
	for range 3 {
		refused = append(refused, r.begin(star.AppendRequest{Stream: bad, Records: records("x")}))
	}
	second := r.begin(star.AppendRequest{Name: "good", Records: records("1")})
	r.until(func() bool { return *held == 2 })
	release()
	r.wait(append(refused, first, second)...)
	for _, a := range refused {
		require.ErrorIs(t, a.err, catalog.ErrCorruptValue)
		require.NotErrorIs(t, a.err, star.ErrOutcomeUnknown, "nothing was appended")
	}
	require.NoError(t, errors.Join(first.err, second.err))
	require.Empty(t, r.events.fenced)
	put(sound)
	r.mustAppend("bad", "y")
	require.Equal(t, []string{"y"}, r.all("bad"))
}

// On a full disk appends are refused before anything of them is written, reads go on, and so do appends
// as soon as there is room.
func TestAppendWithoutRoom(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 14})
	free := int64(1 << 20)
	room := objstore.NewRoom(1<<19, func() time.Time { return time.Unix(0, 0).Add(w.Elapsed()) }, func() (int64, error) { return free, nil })
	r := newRig(t, w, "n", func(o *star.Options) { o.Room = room })
	r.create("s")
	r.mustAppend("s", "a")
	free = 1<<19 + 10
	pause := func() { r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, time.Second)) }) }
	pause()
	before := len(r.objects("slot/"))
	_, err := r.append(star.AppendRequest{Name: "s", Records: records("refused")})
	require.ErrorIs(t, err, objstore.ErrNoRoom)
	require.NotErrorIs(t, err, star.ErrOutcomeUnknown)
	require.Len(t, r.objects("slot/"), before)
	require.Equal(t, []string{"a"}, r.all("s"))
	free = 1 << 20
	pause()
	r.mustAppend("s", "b")
	require.Equal(t, []string{"a", "b"}, r.all("s"))
}

package star_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
	"github.com/nova-store/nova/objstore"
	"github.com/nova-store/nova/objstore/format"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

func TestNotReadyBeforeTheFirstMint(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 20})
	w.SetOutage(true, false)
	r := bootRig(t, w, "n", nil)
	w.RunFor(3 * time.Second)
	require.ErrorIs(t, r.star.Ready(), star.ErrNotReady)
	_, _, ok := r.star.Chain()
	require.False(t, ok)
	_, err := r.append(star.AppendRequest{Stream: 1, Records: records("x")})
	require.ErrorIs(t, err, star.ErrNotReady)
	w.SetOutage(false, false)
	r.until(func() bool { return r.star.Ready() == nil })
	r.create("s")
	r.mustAppend("s", "x")
}

// A seal in its next slot tells a star that its chain was taken over.
func TestForeignSlotFences(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", func(o *star.Options) { o.Window = 2 })
		id := r.create("s")
		first, _, _ := r.star.Chain()
		r.run(func(ctx context.Context) {
			opt := objstore.PutOptions{IfAbsent: true}
			if !w.Embedded() {
				opt.NotAfter = r.clk.Now().Add(time.Minute)
			}
			require.NoError(t, r.bucket.Bucket.Put(ctx, r.slot(0), format.Seal("a", first.Epoch, 0), opt))
		})
		release, held := r.holdPuts()
		plain := r.begin(star.AppendRequest{Stream: id, Records: records("plain")})
		r.until(func() bool { return *held == 1 })
		var producer []*answer
		for seq := range uint64(3) {
			producer = append(producer, r.begin(star.AppendRequest{Stream: id, Records: records(fmt.Sprint("p", seq)),
				Producer: &format.Producer{ID: "p", Seq: seq}, SinceKnown: true}))
			w.RunFor(time.Millisecond)
		}
		r.until(func() bool { return *held == 2 })
		queued := r.begin(star.AppendRequest{Stream: id, Records: records("queued")})
		w.RunFor(100 * time.Millisecond)
		release()
		r.wait(append(producer, plain, queued)...)

		require.ErrorIs(t, plain.err, star.ErrOutcomeUnknown, "its slot was sent")
		for _, a := range producer {
			require.NoError(t, a.err, "an idempotent append is tried again")
		}
		require.NoError(t, queued.err, "what was not begun moves on")
		require.Equal(t, []string{"p0", "p1", "p2", "queued"}, r.all("s"))
		second, _, _ := r.star.Chain()
		require.Equal(t, first.Epoch+1, second.Epoch)
		require.Len(t, r.events.fenced, 1)
		require.NoError(t, r.star.Ready())
	})
}

// The earlier try of an idempotent append is absorbed by the settle duty, after or before
// the second: its records appear once.
func TestRetryAndSettleAbsorbOnce(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 21}), "n", nil)
	id := r.create("s")
	release, held := r.holdAbsorbs()
	a := r.begin(star.AppendRequest{Stream: id, Records: records("once"), Producer: &format.Producer{ID: "p"}})
	r.until(func() bool { return *held == 1 })
	// The slot is durable; the session ends, and the settle duty absorbs it.
	old, _, _ := r.star.Chain()
	key := r.slot(0)
	r.w.ExpireSession(r.w.StoreView().Session(catalog.RouteKey("a")))
	r.run(func(ctx context.Context) {
		at, err := r.cat.ReadChain(ctx, old)
		require.NoError(t, err)
		dead, err := r.cat.ReadDead(ctx, old)
		require.NoError(t, err)
		require.True(t, dead.Dead)
		fence, err := r.cat.TakeFence(ctx, at, dead)
		require.NoError(t, err)
		body, err := r.bucket.Get(ctx, key, 0, -1)
		require.NoError(t, err)
		footer, err := format.Parse(body)
		require.NoError(t, err)
		r.store.commit = nil
		_, err = r.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: old, Fence: &fence,
			Slots: []catalog.SlotIn{{Slot: 0, Size: int64(len(body)), Footer: &footer}}})
		require.NoError(t, err)
	})
	release()
	r.wait(a)
	require.NoError(t, a.err)
	require.Equal(t, star.AppendResult{Stream: id, OffsetsKnown: true, Duplicate: true}, a.res)
	require.Equal(t, []string{"once"}, r.all("s"))
	require.Len(t, r.events.minted, 2)
}

// The retry of an append that expects an offset not reached yet is turned down, but its earlier
// slot may be absorbed once the offset is reached: nobody may be told that nothing happened.
func TestRetryIsTurnedDownForGoodOnlyWhereItsEarlierSlotMustBe(t *testing.T) {
	for _, c := range []struct {
		name     string
		expected uint64
		final    bool
	}{{"an offset that is past", 0, true}, {"an offset still to come", 5, false}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, newWorld(t, sim.Config{Seed: 23}), "n", nil)
			id := r.create("s")
			r.mustAppend("s", "first")
			release, held := r.holdAbsorbs()
			a := r.begin(star.AppendRequest{Stream: id, Records: records("late"), Expected: &c.expected, Producer: &format.Producer{ID: "p", Since: 1}})
			r.until(func() bool { return *held == 1 })
			old, _, _ := r.star.Chain()
			key := catalog.SlotKey(old, 1)
			r.w.ExpireSession(r.w.StoreView().Session(catalog.RouteKey("a")))
			r.until(func() bool { return len(r.events.minted) == 2 })
			release()
			r.wait(a)
			require.Error(t, a.err)
			r.mustAppend("s", "1", "2", "3", "4")
			r.run(func(ctx context.Context) { // the settle duty comes at last
				at, err := r.cat.ReadChain(ctx, old)
				require.NoError(t, err)
				dead, err := r.cat.ReadDead(ctx, old)
				require.NoError(t, err)
				fence, err := r.cat.TakeFence(ctx, at, dead)
				require.NoError(t, err)
				body, err := r.bucket.Get(ctx, key, 0, -1)
				require.NoError(t, err)
				footer, err := format.Parse(body)
				require.NoError(t, err)
				_, err = r.cat.Absorb(ctx, catalog.AbsorbRequest{Chain: old, Fence: &fence,
					Slots: []catalog.SlotIn{{Slot: 1, Size: int64(len(body)), Footer: &footer}}})
				require.NoError(t, err)
			})
			appeared := slices.Contains(r.all("s"), "late")
			require.Equal(t, !c.final, appeared)
			require.Equal(t, c.final, !errors.Is(a.err, star.ErrOutcomeUnknown), "%v", a.err)
		})
	}
}

func TestSlotUndecidedPastItsDeadlineFences(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 22}), "n", nil)
	r.create("s")
	start := r.w.Time()
	r.w.SetOutage(false, true)
	a := r.begin(star.AppendRequest{Name: "s", Records: records("x")})
	r.wait(a)
	require.ErrorIs(t, a.err, star.ErrOutcomeUnknown)
	require.GreaterOrEqual(t, r.w.Time().Sub(start), 10*time.Second)
	r.w.SetOutage(false, false)
	r.until(func() bool { return r.star.Ready() == nil })
	r.mustAppend("s", "y")
	require.Len(t, r.events.minted, 2)
}

func TestLostAnswersOfPuts(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", nil)
		r.create("s")
		tries := 0
		r.bucket.put = func(ctx context.Context, key string, put func() error) error {
			tries++
			if err := put(); err != nil || tries > 1 {
				return err
			}
			return objstore.ErrUnknown
		}
		r.mustAppend("s", "landed")
		require.Equal(t, 2, tries)
		require.Equal(t, 1, r.events.branches["star.slot.own"])

		// Whatever an unknown outcome wraps besides: that nothing was there when it was read back, in particular.
		tries = 0
		r.bucket.put = func(ctx context.Context, key string, put func() error) error {
			if tries++; tries <= 2 {
				return fmt.Errorf("%w: a reset; reading back: %w", objstore.ErrUnknown, objstore.ErrNotFound)
			}
			return put()
		}
		r.mustAppend("s", "lost")
		require.Equal(t, 3, tries)
		require.Empty(t, r.events.fenced)

		tries = 0
		r.bucket.put = func(ctx context.Context, key string, put func() error) error {
			if tries++; tries <= 2 {
				return fmt.Errorf("%w: try %d", objstore.ErrThrottled, tries)
			}
			return put()
		}
		r.mustAppend("s", "throttled")
		require.Equal(t, 3, tries)
		require.Equal(t, []string{"landed", "lost", "throttled"}, r.all("s"))
		require.Empty(t, r.events.fenced)
	})
}

func TestLostAnswersOfAbsorbs(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 23}), "n", nil)
	r.create("s")
	tries := 0
	r.store.commit = func(ctx context.Context, b metastore.Batch, commit func() (metastore.Version, error)) (metastore.Version, error) {
		if !isAbsorb(b) {
			return commit()
		}
		tries++
		v, err := commit()
		if err != nil || tries > 1 {
			return v, err
		}
		return 0, metastore.ErrUnknown
	}
	r.mustAppend("s", "x")
	require.Equal(t, 2, tries)
	require.Equal(t, 1, r.events.branches["absorb.twin"])
	r.mustAppend("s", "y")
	require.Equal(t, []string{"x", "y"}, r.all("s"))
	require.Empty(t, r.events.fenced)
}

func TestStoreOutageIsWaitedOut(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 24}), "n", nil)
	r.create("s")
	r.mustAppend("s", "x")
	r.w.SetOutage(true, false)
	a := r.begin(star.AppendRequest{Name: "s", Records: records("y")})
	r.w.RunFor(4 * time.Second)
	require.False(t, a.done)
	r.w.SetOutage(false, false)
	r.wait(a)
	require.NoError(t, a.err)
	require.Equal(t, []string{"x", "y"}, r.all("s"))
	require.Empty(t, r.events.fenced)
}

func TestLostSessionMintsAnew(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 25}), "n", nil)
	r.create("s")
	r.mustAppend("s", "x")
	old, _, _ := r.star.Chain()
	r.w.ExpireSession(r.w.StoreView().Session(catalog.RouteKey("a")))
	r.until(func() bool { return len(r.events.minted) == 2 && r.star.Ready() == nil })
	r.mustAppend("s", "y")
	require.Equal(t, []string{"x", "y"}, r.all("s"))
	route, err := catalog.DecodeRoute(r.w.StoreView().Get(catalog.RouteKey("a")).Value)
	require.NoError(t, err)
	require.Equal(t, catalog.Route{Address: "n", Epoch: old.Epoch + 1}, route)
}

// A store that can't be reached for a TTL is a lost session, and appends whose
// NotAfter is near do not leave.
func TestUnreachableStoreFencesAndHoldsFlights(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 26}), "n", nil)
	id := r.create("s")
	r.w.SetOutage(true, false)
	r.w.RunFor(8 * time.Second)
	a := r.begin(star.AppendRequest{Stream: id, Records: records("x")})
	r.w.RunFor(time.Minute)
	require.Zero(t, r.events.departed, "it would leave too late")
	require.Error(t, r.star.Ready())
	require.False(t, a.done)
	r.w.SetOutage(false, false)
	r.wait(a)
	require.NoError(t, a.err)
	require.Len(t, r.events.minted, 2)
}

func TestPutsCarryTheirDeadline(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 27})
	r := newRig(t, w, "n", nil)
	r.create("s")
	w.RunFor(time.Minute)
	var puts []time.Time
	w.OnStep(func(s *sim.StepInfo) {
		if s.Op == sim.OpBucketPut {
			puts = append(puts, s.Put.NotAfter)
			require.True(t, s.Put.IfAbsent)
		}
	})
	r.mustAppend("s", "x")
	require.Len(t, puts, 1)
	left := puts[0].Sub(w.Time())
	ttl := r.cat.Timing().SessionTTL
	require.LessOrEqual(t, left, ttl)
	require.Greater(t, left, ttl/3)
}

// A paused star wakes after its session ended and its chain was sealed: nothing
// that it sends then has an effect, and it goes on in a new epoch.
func TestZombie(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 28})
	r := newRig(t, w, "n", nil)
	id := r.create("s")
	release, held := r.holdPuts()
	a := r.begin(star.AppendRequest{Stream: id, Records: records("late")})
	r.until(func() bool { return *held == 1 })
	key := r.slot(0)
	r.inc.Pause()
	w.RunFor(time.Minute)
	r.inc.Resume()
	release()
	r.wait(a)
	require.ErrorIs(t, a.err, star.ErrOutcomeUnknown)
	require.False(t, w.BucketView().Has(key), "the bucket refuses what comes too late")
	r.mustAppend("s", "next")
	require.Equal(t, []string{"next"}, r.all("s"))
}

func TestReplaced(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 29})
	old := newRig(t, w, "one", nil)
	id := old.create("s")
	old.mustAppend("s", "x")
	release, held := old.holdPuts()
	a := old.begin(star.AppendRequest{Stream: id, Records: records("y")})
	old.until(func() bool { return *held == 1 })
	next := newRig(t, w, "two", nil)
	old.until(func() bool { return old.over })
	require.ErrorIs(t, old.err, catalog.ErrReplaced)
	old.wait(a)
	require.ErrorIs(t, a.err, star.ErrOutcomeUnknown)
	require.ErrorIs(t, old.star.Ready(), catalog.ErrReplaced)
	_, err := old.append(star.AppendRequest{Stream: id, Records: records("z")})
	require.ErrorIs(t, err, catalog.ErrReplaced)
	release()
	next.mustAppend("s", "from two")
	require.Equal(t, []string{"x", "from two"}, next.all("s"))
}

// Stopping the star gives up at once, and leaves no task behind.
func TestRunEndsWithItsContext(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", func(o *star.Options) { o.Window = 1 })
		id := r.create("s")
		release, held := r.holdPuts()
		release() // of puts to come; those below wait for this one's context
		r.bucket.put = func(ctx context.Context, key string, put func() error) error {
			*held++
			return fmt.Errorf("%w: %w", objstore.ErrUnknown, r.clk.Sleep(ctx, time.Hour))
		}
		flown := r.begin(star.AppendRequest{Stream: id, Records: records("x"), Producer: &format.Producer{ID: "p"}, SinceKnown: true})
		r.until(func() bool { return *held == 1 })
		r.inc.Interrupt()
		r.until(func() bool { return r.over && flown.done })
		require.ErrorIs(t, r.err, context.Canceled)
		require.ErrorIs(t, flown.err, star.ErrOutcomeUnknown)
		w.RunFor(time.Second)
		r.inc.Exit()
		require.Nil(t, w.Found())
		require.False(t, w.StoreView().Get(catalog.RouteKey("a")).Exists(), "the session was closed")
	})
}

func TestDrain(t *testing.T) {
	worlds(t, func(t *testing.T, w *sim.World) {
		r := newRig(t, w, "n", func(o *star.Options) { o.Window = 1 })
		id := r.create("s")
		release, held := r.holdPuts()
		flown := r.begin(star.AppendRequest{Stream: id, Records: records("flown")})
		r.until(func() bool { return *held == 1 })
		queued := r.begin(star.AppendRequest{Stream: id, Records: records("queued")})
		w.RunFor(time.Millisecond)
		var drained error
		done := r.start(func(ctx context.Context) { drained = r.star.Drain(ctx) })
		w.RunFor(time.Second)
		require.False(t, *done)
		_, err := r.append(star.AppendRequest{Stream: id, Records: records("late")})
		require.ErrorIs(t, err, star.ErrShuttingDown)
		release()
		r.until(func() bool { return *done && r.over })
		require.NoError(t, drained)
		require.NoError(t, r.err)
		require.True(t, flown.done && queued.done)
		require.NoError(t, flown.err)
		require.NoError(t, queued.err)
		require.False(t, w.StoreView().Get(catalog.RouteKey("a")).Exists())
		require.Equal(t, []string{"flown", "queued"}, r.all("s"), "reads still work")
		chain, head, _ := r.star.Chain()
		require.Equal(t, uint64(2), head)
		trim, err := catalog.DecodeTrim(w.StoreView().Get(catalog.TrimKey(chain)).Value)
		require.NoError(t, err)
		due, err := catalog.ParseDue(trim.SettleKey)
		require.NoError(t, err)
		require.LessOrEqual(t, due.Order, uint64(w.Time().UnixMilli()), "the chain's settle marker moved to now")
		w.RunFor(time.Second)
		r.inc.Exit()
		require.Nil(t, w.Found())
	})
}

func TestDrainGivesUpWaiting(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 30}), "n", nil)
	id := r.create("s")
	release, held := r.holdAbsorbs()
	a := r.begin(star.AppendRequest{Stream: id, Records: records("x")})
	r.until(func() bool { return *held == 1 })
	r.run(func(ctx context.Context) {
		ctx, cancel := r.clk.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, r.star.Drain(ctx), context.DeadlineExceeded)
	})
	release()
	r.wait(a)
	require.NoError(t, a.err)
	r.until(func() bool { return r.over })
	require.NoError(t, r.err)
}

func TestDrainBeforeAnyMint(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 31})
	w.SetOutage(true, false)
	r := bootRig(t, w, "n", nil)
	w.RunFor(time.Second)
	r.run(func(ctx context.Context) { require.NoError(t, r.star.Drain(ctx)) })
	require.True(t, r.over)
	require.NoError(t, r.err)
}

func TestRunOnce(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 32}), "n", nil)
	r.run(func(ctx context.Context) { require.Error(t, r.star.Run(ctx)) })
	require.NoError(t, r.star.Ready())
}

// While a chain owes more than the settle rewrite may fall behind, its old batch
// markers are ripened too.
func TestOldBatchesAreRipened(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 33})
	r := newRig(t, w, "n", nil)
	r.create("s")
	for i := range 20 {
		r.mustAppend("s", fmt.Sprint(i))
	}
	chain, _, _ := r.star.Chain()
	ripe := func() (n, of int) {
		w.StoreView().Scan(metastore.Prefix(catalog.BatchPrefix(chain)), func(rec metastore.Record) bool {
			b, err := catalog.DecodeBatch(rec.Value)
			require.NoError(t, err)
			if of++; b.Ready <= w.Time().UnixMilli() {
				n++
			}
			return true
		})
		return n, of
	}
	n, of := ripe()
	require.Equal(t, []int{0, 20}, []int{n, of})
	for range 3 {
		r.mustAppend("s", string(make([]byte, 500<<10)))
	}
	w.RunFor(5 * time.Second)
	n, of = ripe()
	require.Equal(t, []int{23, 23}, []int{n, of})
}

package star_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/sim"
	"github.com/nova-store/nova/star"
)

// follow reads a stream for ever, and keeps what it reads, until an error ends it.
type follow struct {
	r    *rig
	at   uint64
	got  []string
	err  error
	over bool
}

func (r *rig) follow(id catalog.StreamID, at uint64) *follow {
	f := &follow{r: r, at: at}
	r.inc.Go("follower", func(ctx context.Context) {
		f.err = f.run(ctx, id)
		f.over = true
	})
	return f
}

func (f *follow) run(ctx context.Context, id catalog.StreamID) error {
	w, err := f.r.star.Follow(ctx, id)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		res, err := f.r.star.Read(ctx, star.ReadRequest{Stream: id, From: f.at, MaxRecords: 7})
		if err != nil {
			return err
		}
		require.Equal(f.r.t, f.at, res.First)
		f.got, f.at = append(f.got, texts(res.Records)...), res.Next
		if res.Next == res.End {
			if err := w.Wait(ctx, f.at); err != nil {
				return err
			}
		}
	}
}

// Followers on the star that appends and on another see each offset once, in order, whoever appends, in
// however many appends; those on this star at once, those on another within a poll.
func TestFollowersSeeEachOffsetOnce(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 70})
	a := newRig(t, w, "a", nil)
	b := newRig(t, w, "b", func(o *star.Options) { o.Name = "b" })
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		name := fmt.Sprint("s", n)
		id := a.create(name)
		fs := []*follow{a.follow(id, 0), a.follow(id, 0), b.follow(id, 0)}
		var want []string
		for range rapid.IntRange(1, 12).Draw(t, "appends") {
			r := rapid.SampledFrom([]*rig{a, b}).Draw(t, "star")
			data := numbers(len(want), len(want)+rapid.IntRange(1, 20).Draw(t, "records"))
			r.mustAppend(name, data...)
			want = append(want, data...)
			d := time.Duration(rapid.IntRange(0, 3000).Draw(t, "pause")) * time.Millisecond
			r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, d)) })
		}
		a.run(func(ctx context.Context) { require.NoError(t, a.clk.Sleep(ctx, 2*time.Second)) })
		for _, f := range fs {
			require.Equal(t, want, f.got)
			require.False(t, f.over)
		}
		a.deleteStream(id)
		a.run(func(ctx context.Context) { require.NoError(t, a.clk.Sleep(ctx, 2*time.Second)) })
		for _, f := range fs {
			require.True(t, f.over)
			require.ErrorIs(t, f.err, catalog.ErrNoStream)
		}
	})
}

func (r *rig) deleteStream(id catalog.StreamID) {
	r.t.Helper()
	r.run(func(ctx context.Context) {
		_, err := r.cat.DeleteStream(ctx, id)
		require.NoError(r.t, err)
	})
}

// What this star absorbs its followers learn without a poll.
func TestFollowersOfThisStarDoNotWaitForAPoll(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 71}), "n", nil)
	id := r.create("s")
	f := r.follow(id, 0)
	r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, 10*time.Second)) }) // the poll is slow by now
	before := r.clk.Now()
	r.mustAppend("s", "x")
	r.until(func() bool { return len(f.got) == 1 })
	require.Less(t, r.clk.Now().Sub(before), 100*time.Millisecond)
}

// Any number of followers of a stream cost one poll, none once they are gone; and the number is bounded.
func TestOnePollAStream(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 72}), "n", func(o *star.Options) { o.MaxFollowers = 100 })
	id := r.create("s")
	heads := 0
	r.store.get = func(keys []string) {
		if len(keys) == 3 && keys[1] == catalog.HeadKey(id) {
			heads++
		}
	}
	var fs []*star.Follower
	r.run(func(ctx context.Context) {
		for range 100 {
			f, err := r.star.Follow(ctx, id)
			require.NoError(t, err)
			fs = append(fs, f)
		}
		_, err := r.star.Follow(ctx, id)
		require.ErrorIs(t, err, star.ErrOverloaded)
		require.NoError(t, r.clk.Sleep(ctx, time.Minute))
	})
	require.GreaterOrEqual(t, heads, 60)
	require.LessOrEqual(t, heads, 130, "at most two a second, once it is slow")
	for _, f := range fs {
		f.Close()
	}
	heads = 0
	r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, time.Minute)) })
	require.LessOrEqual(t, heads, 1)
	r.run(func(ctx context.Context) {
		f, err := r.star.Follow(ctx, id)
		require.NoError(t, err, "there is room again")
		f.Close()
	})
}

// A follower that is slower than the trimming is told, with where it may go on.
func TestFollowerIsTrimmedPast(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 73}), "n", nil)
	id := r.create("s")
	r.mustAppend("s", numbers(0, 10)...)
	r.run(func(ctx context.Context) { r.trim(ctx, id, 5) })
	f := r.follow(id, 2)
	r.until(func() bool { return f.over })
	var trimmed *star.TrimmedError
	require.ErrorAs(t, f.err, &trimmed)
	require.Equal(t, uint64(5), trimmed.First)
}

// A drain ends waits, and lets none begin.
func TestDrainEndsFollowers(t *testing.T) {
	r := newRig(t, newWorld(t, sim.Config{Seed: 74}), "n", nil)
	id := r.create("s")
	f := r.follow(id, 0)
	r.run(func(ctx context.Context) { require.NoError(t, r.clk.Sleep(ctx, time.Second)) })
	require.False(t, f.over)
	r.run(func(ctx context.Context) { require.NoError(t, r.star.Drain(ctx)) })
	r.until(func() bool { return f.over })
	require.ErrorIs(t, f.err, star.ErrShuttingDown)
	r.run(func(ctx context.Context) {
		_, err := r.star.Follow(ctx, id)
		require.ErrorIs(t, err, star.ErrShuttingDown)
	})
}

// A poll goes on through outages of the store.
func TestFollowThroughFaults(t *testing.T) {
	w := newWorld(t, sim.Config{Seed: 75})
	a := newRig(t, w, "a", nil)
	b := newRig(t, w, "b", func(o *star.Options) { o.Name = "b" })
	id := a.create("s")
	out := false
	b.store.get = func(keys []string) { b.store.fail = out && len(keys) == 3 && keys[1] == catalog.HeadKey(id) }
	f := b.follow(id, 0)
	b.run(func(ctx context.Context) { require.NoError(t, b.clk.Sleep(ctx, time.Second)) })
	out = true
	b.run(func(ctx context.Context) { require.NoError(t, b.clk.Sleep(ctx, 5*time.Second)) })
	a.mustAppend("s", "x")
	b.run(func(ctx context.Context) { require.NoError(t, b.clk.Sleep(ctx, 5*time.Second)) })
	require.Empty(t, f.got)
	out = false
	b.until(func() bool { return len(f.got) == 1 })
}

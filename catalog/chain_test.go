package catalog_test

import (
	"math"
	"testing"
	"time"

	"github.com/nova-store/nova/catalog"
	"github.com/nova-store/nova/metastore"
)

func (s *setup) mint(star *starLife, previous uint64) (catalog.ChainID, error) {
	return s.cat.Mint(s.Context(), catalog.MintRequest{Star: star.name, Incarnation: star.incarnation, Previous: previous,
		Session: star.session.ID(), Address: "here", Window: window})
}

func TestMint(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	s.Equal(catalog.ChainID{Star: "a", Epoch: 1}, a.chain)
	held, err := s.cat.HoldsRoute(s.Context(), a.chain)
	s.NoError(err)
	s.True(held)
	at, err := s.cat.ReadChain(s.Context(), a.chain)
	s.NoError(err)
	s.Equal(catalog.Chain{State: catalog.ChainOpen, Window: window}, at.Chain)

	// After a fence the same process mints again; the older epoch's settle marker moves to now.
	chain, err := s.mint(a, 1)
	s.NoError(err)
	s.Equal(uint64(2), chain.Epoch)
	held, err = s.cat.HoldsRoute(s.Context(), a.chain)
	s.NoError(err)
	s.False(held)
	old := must(catalog.ParseDue(s.world.last.trims[a.chain].SettleKey))
	s.Equal(uint64(s.clk.now.UnixMilli()), old.Order)
	s.Greater(must(catalog.ParseDue(s.world.last.trims[chain].SettleKey)).Order, old.Order)

	// Another process of that name takes over. The first one must stop, not mint against it.
	b := s.world.start("a")
	s.Equal(uint64(3), b.chain.Epoch)
	_, err = s.mint(a, 2)
	s.ErrorIs(err, catalog.ErrReplaced)

	s.store.end(b.session)
	_, err = s.mint(b, 3)
	s.ErrorIs(err, metastore.ErrSessionGone)
	_, err = s.cat.Mint(s.Context(), catalog.MintRequest{Star: "-"})
	s.ErrorIs(err, catalog.ErrBadName)
	stars, err := s.cat.Stars(s.Context())
	s.NoError(err)
	s.Equal([]string{"a"}, stars)
}

func TestMintFindsItsTwin(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		a := s.world.start("a")
		s.store.plan = []fault{f}
		chain, err := s.mint(a, 1)
		s.NoError(err)
		s.Equal(uint64(2), chain.Epoch)
		s.Zero(s.store.landAll())
		s.Len(s.world.last.chains, 2)
	}
}

// A star with any number of older epochs can mint, in batches of any size, and all of
// them are re-announced.
func TestMintWithManyOlderEpochs(t *testing.T) {
	for _, maxOps := range []int{16, 128} {
		s := newSetup(t, maxOps)
		a := s.world.start("a")
		for e := range uint64(12) {
			s.clk.now = s.clk.now.Add(time.Millisecond)
			if _, err := s.mint(a, e+1); err != nil {
				s.NoError(err)
			}
		}
		// All markers stand in the future again, as a settle duty that saw a living star leaves them.
		for c := range s.world.last.chains {
			s.NoError(s.cat.RearmSettle(s.Context(), s.world.marker(s.world.last.trims[c].SettleKey), c, time.Hour))
		}
		last, err := s.mint(a, 13)
		s.NoError(err)
		later := func() int {
			now, n := uint64(s.clk.now.UnixMilli()), 0
			for c, trim := range s.world.last.trims {
				if must(catalog.ParseDue(trim.SettleKey)).Order > now && c != last {
					n++
				}
			}
			return n
		}
		s.Positive(later(), "the mint does not wait for them")
		s.store.plan = []fault{conflict} // one of the others' commits fails: best effort
		s.NoError(s.cat.Reannounce(s.Context(), last))
		s.Equal(1, later())
		s.NoError(s.cat.Reannounce(s.Context(), last))
		s.Zero(later())
	}
}

// An older epoch is retired, or its marker moves, while a star mints: it looks again.
func TestMintMeetsTheSettleDuty(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	s.during("commit", 0, func() {
		key := s.world.last.trims[a.chain].SettleKey
		s.NoError(s.cat.RearmSettle(s.Context(), s.world.marker(key), a.chain, time.Minute))
	})
	_, err := s.mint(a, 1)
	s.NoError(err)
	s.Equal(1, s.branches["mint.conflict"])
}

func TestDropRoute(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	s.store.plan = []fault{lostWithEffect}
	s.NoError(s.cat.DropRoute(s.Context(), a.chain))
	s.Empty(s.store.keys("cluster/routes/"))
	s.Equal(uint64(s.world.last.chains[a.chain].Checkpoint), uint64(0))
	s.LessOrEqual(must(catalog.ParseDue(s.world.last.trims[a.chain].SettleKey)).Order, uint64(s.clk.now.UnixMilli()))
	s.NoError(s.cat.DropRoute(s.Context(), a.chain), "there is none any more")
	b := s.world.start("a")
	s.NoError(s.cat.DropRoute(s.Context(), a.chain), "it is another epoch's")
	held, err := s.cat.HoldsRoute(s.Context(), b.chain)
	s.NoError(err)
	s.True(held)
}

func TestReadDead(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	dead := func() bool {
		d, err := s.cat.ReadDead(s.Context(), a.chain)
		s.NoError(err)
		return d.Dead
	}
	s.False(dead())
	s.store.end(a.session)
	s.True(dead(), "its session ended")
	s.world.start("a")
	s.True(dead(), "a newer epoch was minted")
}

// A star that dies and mints between the look and the fence, or an absorb that comes
// between: judge again.
func TestFenceIsConditional(t *testing.T) {
	s := newSetup(t, 128)
	a, id := s.world.start("a"), s.world.createStream("s")
	s.slots(a, 1, id)
	s.store.end(a.session)
	at, err := s.cat.ReadChain(s.Context(), a.chain)
	s.NoError(err)
	dead, err := s.cat.ReadDead(s.Context(), a.chain)
	s.NoError(err)
	s.during("commit", 0, func() { s.absorbed(a, 1) }) // a zombie's
	_, err = s.cat.TakeFence(s.Context(), at, dead)
	s.ErrorIs(err, catalog.ErrMoved)
	at, err = s.cat.ReadChain(s.Context(), a.chain)
	s.NoError(err)
	s.during("commit", 0, func() { s.world.start("a") })
	_, err = s.cat.TakeFence(s.Context(), at, dead)
	s.ErrorIs(err, catalog.ErrMoved, "the route is not as it was")

	dead, err = s.cat.ReadDead(s.Context(), a.chain)
	s.NoError(err)
	for _, f := range []fault{lostWithEffect, lostLate, lostWithoutEffect} {
		s.store.plan = []fault{f}
		start := s.clk.now
		fence, err := s.cat.TakeFence(s.Context(), at, dead)
		s.NoError(err)
		s.Equal(start.Add(testTiming().PutHorizon), fence.NotAfter)
		s.Equal(catalog.ChainFencing, fence.Chain.Chain.State)
		s.Equal(s.version(catalog.ChainKey(a.chain)), fence.Chain.Version)
		s.Zero(s.store.landAll())
		at = fence.Chain
	}
	embedded, err := catalog.New(s.store, s.clk, catalog.DefaultTiming(true), nil).TakeFence(s.Context(), at, dead)
	s.NoError(err)
	s.Zero(embedded.NotAfter)
}

func (s *setup) sealed(a *starLife) catalog.ChainAt {
	at, err := s.cat.ReadChain(s.Context(), a.chain)
	s.NoError(err)
	dead, err := s.cat.ReadDead(s.Context(), a.chain)
	s.NoError(err)
	s.True(dead.Dead)
	at, err = s.world.sealUp(at, dead)
	s.NoError(err)
	return at
}

func TestSealFindsItsTwin(t *testing.T) {
	for _, f := range []fault{lostWithEffect, lostWithoutEffect, lostLate} {
		s := newSetup(t, 128)
		a := s.world.start("a")
		s.store.end(a.session)
		s.store.plan = []fault{noFault, f} // the fence, the seal
		at := s.sealed(a)
		s.Equal(catalog.ChainSealed, at.Chain.State)
		s.Equal(s.version(catalog.ChainKey(a.chain)), at.Version)
		s.Equal(uint64(window), at.Chain.WindowEnd)
		s.Zero(s.store.landAll())
	}
}

// A retire that did not happen does not say that it did: its marker moved, the chain stands.
func TestRetire(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	s.store.end(a.session)
	at := s.sealed(a)
	trim, err := s.cat.ReadTrim(s.Context(), a.chain)
	s.NoError(err)
	m := s.world.marker(trim.Trim.SettleKey)
	s.NoError(s.cat.RearmSettle(s.Context(), m, a.chain, time.Hour))
	s.NotContains(s.store.mirror, m.Due.Key)
	s.ErrorIs(s.cat.Retire(s.Context(), m, at, trim), catalog.ErrMoved)

	trim, err = s.cat.ReadTrim(s.Context(), a.chain)
	s.NoError(err)
	m = s.world.marker(trim.Trim.SettleKey)
	clear(s.world.objects)
	s.store.plan = []fault{lostWithEffect}
	s.NoError(s.cat.Retire(s.Context(), m, at, trim))
	s.NoError(s.cat.Retire(s.Context(), m, at, trim), "another member was first")
	s.Empty(s.store.keys("chain/a/"))
	s.Empty(s.store.keys("trim/"))
	s.Empty(s.store.keys("due/"))
	s.Len(s.store.keys("chain/"), 1, "the newest epoch is kept for ever")

	f, err := s.cat.Frontier(s.Context(), a.chain)
	s.NoError(err)
	s.Equal(uint64(math.MaxUint64), f)
	_, err = s.cat.AdvanceTrim(s.Context(), a.chain, 1, 1)
	s.ErrorIs(err, catalog.ErrMoved)
}

func TestRearmSettle(t *testing.T) {
	s := newSetup(t, 128)
	a := s.world.start("a")
	first := s.world.marker(s.world.last.trims[a.chain].SettleKey)
	chain := s.version(catalog.ChainKey(a.chain))
	s.during("commit", 0, func() { // the trim record moves: try again with what is read then
		_, err := s.cat.AdvanceTrim(s.Context(), a.chain, 0, 0)
		s.NoError(err)
		s.NoError(s.cat.DropRoute(s.Context(), a.chain))
	})
	s.ErrorIs(s.cat.RearmSettle(s.Context(), first, a.chain, 0), catalog.ErrMoved, "it was moved to now")
	now := s.world.marker(s.world.last.trims[a.chain].SettleKey)
	s.NoError(s.cat.RearmSettle(s.Context(), now, a.chain, 0))
	moved := s.world.marker(s.world.last.trims[a.chain].SettleKey)
	s.Equal(catalog.MinRearm, -moved.Due.PastDue(s.clk.now), "no duty spins")
	s.Equal(catalog.SettleMarker{Delay: catalog.MinRearm.Milliseconds()}, catalog.DecodeSettleMarker(moved.Value))
	s.Equal(chain, s.version(catalog.ChainKey(a.chain)), "a live chain's absorbs do not meet it")

	// A marker that the trim record does not name is nobody's.
	stray := catalog.DueKey(catalog.Settle, 1, a.chain.String())
	s.store.committed = nil
	_, err := s.store.Commit(s.Context(), metastore.Batch{Ops: []metastore.Op{metastore.Put(stray, nil)}})
	s.NoError(err)
	s.NoError(s.cat.RearmSettle(s.Context(), s.world.marker(stray), a.chain, time.Minute))
	s.Equal([]string{moved.Due.Key}, s.store.keys("due/settle/"))
	s.Equal(1, s.branches["settle.stray"])
}

func TestFrontierReadsTheChainFirst(t *testing.T) {
	s := newSetup(t, 128)
	a, id := s.world.start("a"), s.world.createStream("s")
	s.slots(a, 3, id)
	frontier := func() uint64 {
		f, err := s.cat.Frontier(s.Context(), a.chain)
		s.NoError(err)
		return f
	}
	s.Zero(frontier())
	// An absorb between the two reads, which is completed before the second.
	s.during("scan", 0, func() { s.absorbed(a, 1) })
	s.Zero(frontier())
	s.absorbed(a, 1)
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)[:1]}), 3)
	s.NoError(s.world.complete(a.chain, 2))
	s.Equal(uint64(1), frontier())
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)[1:]}), 3)
	s.NoError(s.world.complete(a.chain, 2))
	s.Equal(uint64(2), frontier(), "none stands: the checkpoint")

	// Whenever an absorb comes between: what it absorbed is not called settled.
	for at := range 5 {
		s.absorbed(a, 10)
		s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)}), 3)
		s.NoError(s.world.complete(a.chain, 10))
		before := frontier()
		s.Equal(s.world.last.chains[a.chain].Checkpoint, before, "none stands")
		s.slots(a, 1, id)
		calls := 0
		s.store.interject = func(string) {
			if calls++; calls == at+1 {
				s.store.interject = nil
				s.absorbed(a, 1)
			}
		}
		s.Equal(before, frontier(), "before call %d", at)
		s.store.interject = nil
	}
}

func TestCursorsOnlyAdvance(t *testing.T) {
	s := newSetup(t, 128)
	a, id := s.world.start("a"), s.world.createStream("s")
	s.slots(a, 4, id)
	s.absorbed(a, 4)
	s.steps(s.world.publish([][]catalog.SpanAt{s.spans(id)}), 3)
	s.NoError(s.world.complete(a.chain, 1))
	s.clk.now = s.clk.now.Add(time.Hour)
	s.NoError(s.world.trimCheck(s.world.marker(s.store.keys("due/trimcheck/")[0])))
	s.Empty(s.store.keys("due/trimcheck/"))
	s.Empty(s.world.objects[catalog.SlotKey(a.chain, 0)])
	v := s.version(catalog.TrimKey(a.chain))
	at, err := s.cat.AdvanceTrim(s.Context(), a.chain, 2, 1)
	s.NoError(err)
	s.Equal(uint64(4), at.Trim.Rewritten)
	s.Equal(uint64(4), at.Trim.Trimmed)
	s.Equal(v, s.version(catalog.TrimKey(a.chain)), "nothing is written where nothing moves")
	s.Equal(v, at.Version)
}
